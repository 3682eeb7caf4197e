// What a starter hands on: `inherit hand-on PROGRAM ARGUMENT…` sets up everything that a program could have from whoever started it
// and becomes the program. `inherit report FILE` writes down what of it this process has.
#include "hostile.h"
#include <dirent.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/personality.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/time.h>

static void put(const char *name, long value, FILE *to) {
  fprintf(to, "%s %ld\n", name, value);
}

static void line_of(const char *file, const char *start, FILE *to) {
  FILE *from = fopen(file, "r");
  char line[512];
  while (from && fgets(line, sizeof line, from))
    if (strncmp(line, start, strlen(start)) == 0) fputs(line, to);
}

static int report(const char *where) {
  FILE *to = fopen(where, "w");
  if (!to) return 1;
  long extra = 0;
  for (int fd = 3; fd < 4096; fd++)
    if (fd != fileno(to) && fcntl(fd, F_GETFD) >= 0) extra++;
  put("descriptors", extra, to);
  const char *lines[] = {"SigIgn", "SigBlk", "Umask", "NoNewPrivs", "Seccomp:", "CapEff", "CapBnd", "CapAmb", "Groups", "SigPnd", "ShdPnd"};
  for (int i = 0; i < 11; i++) line_of("/proc/self/status", lines[i], to);
  line_of("/proc/self/limits", "Max core", to);
  line_of("/proc/self/limits", "Max nice", to);
  line_of("/proc/self/limits", "Max realtime priority", to);
  put("priority", getpriority(PRIO_PROCESS, 0), to);
  put("scheduler", sched_getscheduler(0) & 0xff, to);
  put("disk", syscall(SYS_ioprio_get, 1, 0) >> 13 == 1, to);
  put("personality", personality(0xffffffff), to);
  put("secure bits", prctl(PR_GET_SECUREBITS, 0, 0, 0, 0), to);
  put("keep capabilities", prctl(PR_GET_KEEPCAPS, 0, 0, 0, 0), to);
  struct itimerval timer = {0};
  long timers = 0;
  for (int i = 0; i < 3; i++) timers += getitimer(i, &timer) == 0 && (timer.it_value.tv_sec || timer.it_value.tv_usec);
  put("timers", timers, to);
  put("terminal", open("/dev/tty", O_RDWR) >= 0, to);
  put("leader", getsid(0) == getpid(), to);
  put("session keys", syscall(SYS_keyctl, 0, -3, 0) > 0, to);
  FILE *oom = fopen("/proc/self/oom_score_adj", "r");
  long score = 0;
  if (oom && fscanf(oom, "%ld", &score) != 1) score = -9999;
  put("spared by memory", score < 0, to);
  fclose(to);
  return 0;
}

int main(int argc, char **argv) {
  if (argc < 3) return 2;
  if (IS("report")) return report(argv[2]);
  // As root, also what an ordinary user can't have.
  struct sched_param first = {.sched_priority = 1};
  sched_setscheduler(0, SCHED_RR, &first);
  syscall(SYS_ioprio_set, 1, 0, 1 << 13);
  int score = open("/proc/self/oom_score_adj", O_WRONLY);
  if (score >= 0 && write(score, "-500", 4) < 0) errno = 0;
  close(score);
  gid_t groups[] = {4242, 4243};
  syscall(SYS_setgroups, 2, groups);
  struct rlimit limit;
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur = limit.rlim_max < 4096 ? limit.rlim_max : 4096;
  setrlimit(RLIMIT_NOFILE, &limit);
  struct rlimit none = {RLIM_INFINITY, RLIM_INFINITY};
  setrlimit(RLIMIT_CORE, &none);
  setrlimit(RLIMIT_NICE, &(struct rlimit){40, 40});
  setrlimit(RLIMIT_RTPRIO, &(struct rlimit){50, 50});
  personality(ADDR_NO_RANDOMIZE | READ_IMPLIES_EXEC);
  struct itimerval late = {.it_value = {100000, 0}};
  setitimer(ITIMER_REAL, &late, 0);
  umask(0);
  for (int s = 1; s < 65; s++)
    if (s != SIGCHLD || !getenv("CHILDREN_ARE_KEPT")) signal(s, SIG_IGN);
  sigset_t all;
  sigfillset(&all);
  sigprocmask(SIG_SETMASK, &all, 0);
  syscall(SYS_keyctl, 1, "hostile-session", 0, 0);
  syscall(SYS_add_key, "user", "hostile-session-key", "x", 1, -3);
  // Whatever descriptors there are, up to number 1023: places, sockets, processes, memory, events.
  int pair[2], n = 0;
  for (;; n++) {
    int fd = -1;
    switch (n % 8) {
      case 0: fd = open("/", O_PATH | O_DIRECTORY); break;
      case 1: fd = open("/", O_RDONLY | O_DIRECTORY); break;
      case 2: fd = socket(AF_INET, SOCK_STREAM, 0); break;
      case 3: fd = syscall(SYS_pidfd_open, getppid(), 0); if (fd >= 0) fcntl(fd, F_SETFD, 0); break;
      case 4: fd = memfd_create("left", 0); break;
      case 5: fd = eventfd(0, 0); break;
      case 6: fd = socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) == 0 ? pair[0] : -1; break;
      case 7: fd = open("/proc/self/ns/mnt", O_RDONLY); break;
    }
    if (fd >= 1022 || (fd < 0 && errno == EMFILE)) break;
  }
  execvp(argv[2], argv + 2);
  perror(argv[2]);
  return 127;
}
