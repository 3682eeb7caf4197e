// Against the kernel's other doors: `kernel ATTACK NAME [SETTING]`. What opened is held, so that the test sees it from outside.
#include "hostile.h"
#include <linux/bpf.h>
#include <linux/filter.h>
#include <linux/perf_event.h>
#include <linux/seccomp.h>
#include <sys/klog.h>
#include <sys/prctl.h>
#include <sys/reboot.h>
#include <sys/resource.h>
#include <sys/time.h>
#include <time.h>

// Bound, so that the kernel's tables list it.
static void socket_of(int family, int type, int protocol) {
  int fd = step("socket", socket(family, type, protocol));
  struct sockaddr_storage any = {.ss_family = family};
  if (fd >= 0 && family != AF_PACKET) step("bind", bind(fd, (struct sockaddr *)&any, family == AF_INET ? 16 : family == AF_INET6 ? 28 : 12));
}

int main(int argc, char **argv) {
  if (argc < 3) return 2;
  if (IS("bpf")) {
    union bpf_attr map = {.map_type = BPF_MAP_TYPE_ARRAY, .key_size = 4, .value_size = 4, .max_entries = 1};
    step("bpf", syscall(SYS_bpf, BPF_MAP_CREATE, &map, sizeof map));
    hold();
  }
  if (IS("perf")) {
    struct perf_event_attr event = {.type = PERF_TYPE_SOFTWARE, .size = sizeof event, .config = PERF_COUNT_SW_TASK_CLOCK, .exclude_kernel = 1, .exclude_hv = 1};
    step("perf_event_open", syscall(SYS_perf_event_open, &event, 0, -1, -1, 0));
    hold();
  }
  if (IS("userfault")) {
    step("userfaultfd", syscall(SYS_userfaultfd, O_CLOEXEC | 1));
    step("/dev/userfaultfd", open("/dev/userfaultfd", O_RDWR));
    hold();
  }
  if (IS("uring")) {
    char params[256] = {0};
    step("io_uring_setup", syscall(SYS_io_uring_setup, 4, params));
    hold();
  }
  if (IS("fanotify")) {
    step("fanotify_init", syscall(SYS_fanotify_init, 0x200, O_RDONLY));
    hold();
  }
  if (IS("listener")) {
    // Whoever answers a program's calls can keep them from whoever watches it.
    struct sock_filter all[] = {{0x20, 0, 0, 0}, {0x15, 0, 1, SYS_connect}, {6, 0, 0, SECCOMP_RET_USER_NOTIF}, {6, 0, 0, SECCOMP_RET_ALLOW}};
    struct sock_fprog program = {4, all};
    prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    step("seccomp", syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &program));
    hold();
  }
  if (IS("packet")) {
    socket_of(AF_PACKET, SOCK_RAW, 0x0300);
    hold();
  }
  if (IS("raw")) {
    socket_of(AF_INET, SOCK_RAW, 1);
    socket_of(AF_INET6, SOCK_RAW, 58);
    hold();
  }
  if (IS("icmp")) {
    socket_of(AF_INET, SOCK_DGRAM, 1);
    hold();
  }
  if (IS("netlink")) {
    int kinds[] = {4, 6, 9, 10, 12, 15, 16, 20};
    for (int i = 0; i < 8; i++) socket_of(AF_NETLINK, SOCK_RAW, kinds[i]);
    hold();
  }
  if (IS("keys")) {
    step("add_key", syscall(SYS_add_key, "user", argv[2], "x", 1, -4));
    step("add_key", syscall(SYS_add_key, "user", argv[2], "x", 1, -5));
    hold();
  }
  // For the test itself: a secret among the keys of the user, for a minute.
  if (IS("plant-key") && argc > 3) {
    long key = syscall(SYS_add_key, "user", argv[2], argv[3], strlen(argv[3]), -4);
    step("timeout", syscall(SYS_keyctl, 15, key, 60));
  }
  if (IS("read-key")) {
    char value[512] = {0};
    long rings[] = {-4, -5, -3, -2, -1};
    for (int i = 0; i < 5; i++) {
      long key = syscall(SYS_keyctl, 10, rings[i], "user", argv[2], 0);
      if (key > 0 && syscall(SYS_keyctl, 11, key, value, sizeof value) > 0) puts(value);
    }
    long key = step("request_key", syscall(SYS_request_key, "user", argv[2], 0, 0));
    if (key > 0 && syscall(SYS_keyctl, 11, key, value, sizeof value) > 0) puts(value);
  }
  if (IS("host-name")) step("sethostname", sethostname("taken", 5));
  if (IS("domain-name")) step("setdomainname", setdomainname("taken", 5));
  if (IS("setting") && argc > 3) {
    int fd = step(argv[3], open(argv[3], O_WRONLY));
    step("write", write(fd, "7", 1));
  }
  if (IS("open") && argc > 3) {
    step(argv[3], open(argv[3], O_RDONLY | O_NONBLOCK));
    hold();
  }
  if (IS("clock")) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    now.tv_sec += 7200;
    if (step("clock_settime", clock_settime(CLOCK_REALTIME, &now)) < 0) {
      struct timeval later = {now.tv_sec, 0};
      step("settimeofday", settimeofday(&later, 0));
    }
  }
  // The mildest of what reboot does: what Ctrl-Alt-Del means.
  if (IS("reboot")) step("reboot", reboot(0x89abcdef));
  if (IS("account") && argc > 3) {
    step("acct", acct(argv[3]));
    if (fork() == 0) _exit(0);
    wait(0);
  }
  if (IS("next-kernel")) {
    static char page[4096];
    struct { void *from; size_t size; unsigned long to, room; } segment = {page, sizeof page, 0x1000000, sizeof page};
    step("kexec_load", syscall(SYS_kexec_load, 0x1000000, 1, &segment, 62UL << 16));
  }
  if (IS("no-next-kernel")) syscall(SYS_kexec_load, 0, 0, 0, 0);
  if (IS("log")) {
    static char all[1 << 20];
    int n = step("syslog", klogctl(3, all, sizeof all));
    if (n > 0) fwrite(all, 1, n, stdout);
    int fd = step("/dev/kmsg", open("/dev/kmsg", O_RDONLY | O_NONBLOCK));
    for (ssize_t got; fd >= 0 && (got = read(fd, all, sizeof all)) > 0;) fwrite(all, 1, got, stdout);
  }
  if (IS("dump")) {
    struct rlimit most;
    getrlimit(RLIMIT_CORE, &most);
    most.rlim_cur = most.rlim_max;
    setrlimit(RLIMIT_CORE, &most);
    prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
    abort();
  }
  return 0;
}
