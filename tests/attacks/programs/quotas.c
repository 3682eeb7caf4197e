// Against tables that everybody shares: `quotas ATTACK MOST`. Takes what it gets and holds it.
#include "hostile.h"
#include <mqueue.h>
#include <sys/inotify.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/resource.h>
#include <sys/shm.h>

static void lift(int what) {
  struct rlimit limit;
  getrlimit(what, &limit);
  limit.rlim_cur = limit.rlim_max;
  setrlimit(what, &limit);
}

// Descriptors in flight: sent and never taken.
static int in_flight(int most) {
  int total = 0, pair[2];
  while (total < most && socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0) {
    for (;;) {
      int fds[50];
      for (int i = 0; i < 50; i++) fds[i] = 0;
      char control[CMSG_SPACE(sizeof fds)], byte = 'x';
      struct iovec data = {&byte, 1};
      struct msghdr message = {.msg_iov = &data, .msg_iovlen = 1, .msg_control = control, .msg_controllen = sizeof control};
      struct cmsghdr *head = CMSG_FIRSTHDR(&message);
      head->cmsg_level = SOL_SOCKET;
      head->cmsg_type = SCM_RIGHTS;
      head->cmsg_len = CMSG_LEN(sizeof fds);
      memcpy(CMSG_DATA(head), fds, sizeof fds);
      if (total >= most || sendmsg(pair[0], &message, MSG_DONTWAIT) < 0) break;
      total += 50;
    }
    if (errno == ETOOMANYREFS) break;
  }
  return total;
}

int main(int argc, char **argv) {
  if (argc < 3) return 2;
  int most = atoi(argv[2]), got = 0;
  lift(RLIMIT_NOFILE);
  lift(RLIMIT_NPROC);
  lift(RLIMIT_SIGPENDING);
  if (IS("processes")) {
    for (; got < most; got++) {
      pid_t child = fork();
      if (child < 0) break;
      if (child == 0) {
        // Out of the session and orphaned, as a daemon is.
        setsid();
        for (;;) pause();
      }
    }
  }
  if (IS("threads-of-daemons")) {
    for (; got < most; got++) {
      pid_t child = vfork();
      if (child < 0) break;
      if (child == 0) {
        char *words[] = {"sleep", "100", 0};
        execv("/bin/sleep", words);
        _exit(1);
      }
    }
  }
  if (IS("descriptors")) while (got < most && dup(0) >= 0) got++;
  if (IS("inotify")) while (got < most && inotify_init1(0) >= 0) got++;
  if (IS("in-flight")) got = in_flight(most);
  if (IS("queues")) {
    for (; got < most; got++) {
      char name[64];
      snprintf(name, sizeof name, "/hostile-%d-%d", getpid(), got);
      struct mq_attr size = {.mq_maxmsg = 10, .mq_msgsize = 8192};
      if (mq_open(name, O_CREAT | O_RDWR, 0600, &size) < 0) break;
      mq_unlink(name);
    }
  }
  if (IS("signals")) {
    sigset_t one;
    sigemptyset(&one);
    sigaddset(&one, SIGRTMIN);
    sigprocmask(SIG_BLOCK, &one, 0);
    while (got < most && sigqueue(getpid(), SIGRTMIN, (union sigval){0}) == 0) got++;
  }
  if (IS("locked")) {
    for (; got < most; got++) {
      // What mlock takes counts for the process, what this takes for the user.
      int id = shmget(IPC_PRIVATE, 4 << 12, IPC_CREAT | 0600);
      if (id < 0 || shmctl(id, SHM_LOCK, 0) != 0) break;
    }
  }
  if (IS("huge-pages")) {
    for (; got < most; got++)
      if (mmap(0, 2 << 20, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0) == MAP_FAILED) break;
    for (; got < most; got++) {
      int fd = memfd_create("huge", MFD_HUGETLB);
      if (fd < 0 || ftruncate(fd, 2 << 20) != 0 || mmap(0, 2 << 20, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED) break;
    }
    for (; got < most; got++) {
      int id = shmget(IPC_PRIVATE, 2 << 20, IPC_CREAT | SHM_HUGETLB | 0600);
      if (id < 0 || shmat(id, 0, 0) == (void *)-1) break;
    }
  }
  // Named objects that others could meet.
  if (IS("shared-memory")) {
    int id = step("shmget", shmget(0x41524c4b, 4096, IPC_CREAT | 0666));
    char *m = shmat(id, 0, 0);
    if (m != (void *)-1) strcpy(m, "spoiled");
    int queue = step("msgget", msgget(0x41524c4b, IPC_CREAT | 0666));
    struct { long type; char text[8]; } word = {1, "spoiled"};
    step("msgsnd", msgsnd(queue, &word, sizeof word.text, IPC_NOWAIT));
  }
  printf("took %d: %s\n", got, strerror(errno));
  hold();
}
