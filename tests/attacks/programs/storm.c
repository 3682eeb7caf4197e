// Against whoever watches calls: `storm ATTACK ROUNDS`. Makes calls of which the watcher is told, in ways that are hard to read.
#include "hostile.h"
#include <netinet/in.h>
#include <sched.h>
#include <sys/time.h>

extern char **environ;
static const char *TRUE_ = "/bin/true";

// A string that ends where its page ends, and what comes after is not there.
static char *at_the_edge(const char *text) {
  char *pages = mmap(0, 8192, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  munmap(pages + 4096, 4096);
  char *start = pages + 4096 - strlen(text) - 1;
  strcpy(start, text);
  return start;
}

static void child(char *path, char **words) {
  pid_t pid = fork();
  if (pid == 0) {
    execve(path, words, environ);
    _exit(0);
  }
  waitpid(pid, 0, 0);
}

static void nothing(int signal) { (void)signal; }

static void connects(int rounds) {
  struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(9), .sin_addr = {htonl(0x7f000001)}};
  for (int i = 0; i < rounds; i++) {
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    connect(fd, (struct sockaddr *)&to, sizeof to);
    close(fd);
  }
}

int main(int argc, char **argv) {
  if (argc < 3) return 2;
  int rounds = atoi(argv[2]);
  char *plain[] = {"true", 0};
  if (IS("argv")) {
    char *wild[] = {(char *)1, (char *)-1, (char *)0xdead000000000000, 0}, **nowhere = (char **)-8, *edge[] = {at_the_edge("true"), 0};
    for (int i = 0; i < rounds; i++) {
      child((char *)TRUE_, wild);
      child((char *)TRUE_, nowhere);
      child((char *)TRUE_, 0);
      child(at_the_edge("/bin/true"), edge);
      child((char *)-1, plain);
      child(0, plain);
      child("", plain);
    }
  }
  if (IS("long-argv")) {
    // As long as the kernel takes: 32 words of 128 KiB less a bit.
    static char word[131000], *words[33];
    memset(word, 'x', sizeof word - 1);
    for (int i = 0; i < 10; i++) words[i] = word;
    for (int i = 0; i < rounds; i++) child((char *)TRUE_, words);
    static char *many[60001];
    for (int i = 0; i < 60000; i++) many[i] = "";
    for (int i = 0; i < rounds; i++) child((char *)TRUE_, many);
  }
  if (IS("vfork")) {
    for (int i = 0; i < rounds; i++) {
      pid_t pid = vfork();
      if (pid == 0) {
        execve(TRUE_, plain, environ);
        _exit(0);
      }
      waitpid(pid, 0, 0);
    }
  }
  if (IS("killed")) {
    // Gone while the call waits for its answer.
    for (int i = 0; i < rounds; i++) {
      pid_t pid = fork();
      if (pid == 0)
        for (;;) connects(100);
      usleep(500);
      kill(pid, SIGKILL);
      waitpid(pid, 0, 0);
    }
  }
  if (IS("signals")) {
    signal(SIGALRM, nothing);
    struct itimerval often = {{0, 200}, {0, 200}};
    setitimer(ITIMER_REAL, &often, 0);
    connects(rounds);
  }
  if (IS("flood")) {
    for (int i = 0; i < 8; i++) {
      if (fork() == 0) {
        connects(rounds);
        char name[32];
        snprintf(name, sizeof name, "made-%d", i);
        for (int n = 0; n < rounds; n++) {
          close(open(name, O_CREAT | O_WRONLY, 0644));
          unlink(name);
        }
        _exit(0);
      }
    }
    while (wait(0) > 0) {}
  }
  if (IS("exec-of-others")) {
    // A thread becomes another program while its siblings are at work.
    for (int i = 0; i < rounds; i++) {
      pid_t pid = fork();
      if (pid == 0) {
        for (int n = 0; n < 4; n++)
          if (fork() == 0) {
            connects(3);
            _exit(0);
          }
        execve(TRUE_, plain, environ);
      }
      waitpid(pid, 0, 0);
    }
    while (wait(0) > 0) {}
  }
  puts("\nthrough");
  return 0;
}
