// Against a process outside: `processes ATTACK PID SECRET-ADDRESS WORD-ADDRESS SECRET-FILE`.
#include "hostile.h"
#include <sched.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/uio.h>
#include <sys/user.h>

static void proc_path(const char *pid, const char *rest, void (*then)(const char *)) {
  char path[4096];
  snprintf(path, sizeof path, "/proc/%s/%s", pid, rest);
  then(path);
}

int main(int argc, char **argv) {
  if (argc < 6) return 2;
  pid_t pid = atoi(argv[2]);
  unsigned long secret = strtoul(argv[3], 0, 0), word = strtoul(argv[4], 0, 0);
  char buffer[256] = {0};
  struct iovec here = {buffer, sizeof buffer - 1};
  if (IS("kill")) step("kill", kill(pid, SIGKILL));
  if (IS("stop")) step("kill", kill(pid, SIGSTOP));
  if (IS("kill-group")) step("kill", kill(-pid, SIGKILL));
  if (IS("tgkill")) step("tgkill", syscall(SYS_tgkill, pid, pid, SIGKILL));
  if (IS("tkill")) step("tkill", syscall(SYS_tkill, pid, SIGKILL));
  if (IS("queue")) step("sigqueue", sigqueue(pid, SIGTERM, (union sigval){.sival_int = 1}));
  if (IS("pidfd-signal")) {
    int fd = step("pidfd_open", syscall(SYS_pidfd_open, pid, 0));
    step("pidfd_send_signal", syscall(SYS_pidfd_send_signal, fd, SIGKILL, 0, 0));
  }
  if (IS("proc-pidfd-signal")) {
    // A directory of /proc serves as a pidfd too.
    char path[64];
    snprintf(path, sizeof path, "/proc/%d", pid);
    int fd = step(path, open(path, O_DIRECTORY | O_RDONLY));
    step("pidfd_send_signal", syscall(SYS_pidfd_send_signal, fd, SIGKILL, 0, 0));
  }
  if (IS("owner-signal")) {
    // The kernel itself sends the signal when the pipe can be read.
    int p[2];
    step("pipe", pipe(p));
    step("F_SETOWN", fcntl(p[0], F_SETOWN, pid));
    step("F_SETSIG", fcntl(p[0], F_SETSIG, SIGKILL));
    step("O_ASYNC", fcntl(p[0], F_SETFL, O_ASYNC));
    step("write", write(p[1], "x", 1));
  }
  if (IS("ptrace-poke")) {
    step("attach", ptrace(PTRACE_ATTACH, pid, 0, 0));
    waitpid(pid, 0, __WALL);
    step("poke", ptrace(PTRACE_POKEDATA, pid, word, 0x99));
    ptrace(PTRACE_DETACH, pid, 0, 0);
  }
  if (IS("ptrace-seize")) {
    step("seize", ptrace(PTRACE_SEIZE, pid, 0, PTRACE_O_EXITKILL));
    step("interrupt", ptrace(PTRACE_INTERRUPT, pid, 0, 0));
    waitpid(pid, 0, __WALL);
    step("poke", ptrace(PTRACE_POKEDATA, pid, word, 0x99));
  }
  if (IS("vm-read")) {
    struct iovec there = {(void *)secret, sizeof buffer - 1};
    if (step("process_vm_readv", process_vm_readv(pid, &here, 1, &there, 1, 0)) > 0) puts(buffer);
  }
  if (IS("vm-write")) {
    unsigned long value = 0x99;
    struct iovec from = {&value, sizeof value}, there = {(void *)word, sizeof value};
    step("process_vm_writev", process_vm_writev(pid, &from, 1, &there, 1, 0));
  }
  if (IS("mem-write") || IS("mem-read")) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/mem", pid);
    int fd = step(path, open(path, O_RDWR));
    unsigned long value = 0x99;
    if (IS("mem-write")) step("pwrite", pwrite(fd, &value, sizeof value, word));
    else if (step("pread", pread(fd, buffer, sizeof buffer - 1, secret)) > 0) puts(buffer);
  }
  // The victim's working directory is the secret's.
  if (IS("proc-cwd")) proc_path(argv[2], "cwd/secret", show);
  if (IS("proc-root")) {
    char path[4096];
    snprintf(path, sizeof path, "root%s", argv[5]);
    proc_path(argv[2], path, show);
  }
  if (IS("proc-environ")) proc_path(argv[2], "environ", show);
  if (IS("proc-fd")) proc_path(argv[2], "fd/3", show);
  if (IS("proc-task-fd")) {
    char path[64];
    snprintf(path, sizeof path, "task/%s/fd/3", argv[2]);
    proc_path(argv[2], path, show);
  }
  if (IS("pidfd-getfd")) {
    int fd = step("pidfd_open", syscall(SYS_pidfd_open, pid, 0));
    int got = step("pidfd_getfd", syscall(SYS_pidfd_getfd, fd, 3, 0));
    if (got >= 0) lseek(got, 0, SEEK_SET);
    show_fd(got);
  }
  if (IS("prlimit")) {
    struct rlimit small = {20, 20};
    step("prlimit", prlimit(pid, RLIMIT_NOFILE, &small, 0));
  }
  if (IS("nice")) step("setpriority", setpriority(PRIO_PROCESS, pid, 15));
  if (IS("nice-group")) step("setpriority", setpriority(PRIO_PGRP, pid, 15));
  if (IS("nice-user")) step("setpriority", setpriority(PRIO_USER, geteuid(), 15));
  if (IS("ioprio")) step("ioprio_set", syscall(SYS_ioprio_set, 1, pid, 3 << 13));
  if (IS("ioprio-user")) step("ioprio_set", syscall(SYS_ioprio_set, 3, geteuid(), 3 << 13));
  if (IS("scheduler")) {
    struct sched_param none = {0};
    step("sched_setscheduler", sched_setscheduler(pid, SCHED_IDLE, &none));
  }
  if (IS("affinity")) {
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(0, &one);
    step("sched_setaffinity", sched_setaffinity(pid, sizeof one, &one));
  }
  if (IS("advise")) {
    struct iovec there = {(void *)(word & ~4095UL), 4096};
    int fd = step("pidfd_open", syscall(SYS_pidfd_open, pid, 0));
    step("process_madvise", syscall(SYS_process_madvise, fd, &there, 1, 21, 0));
    step("process_mrelease", syscall(SYS_process_mrelease, fd, 0));
  }
  if (IS("oom")) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/oom_score_adj", pid);
    int fd = step(path, open(path, O_WRONLY));
    step("write", write(fd, "1000", 4));
  }
  return 0;
}
