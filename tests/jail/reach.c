/* Tries whatever changes, reads or disturbs what is not its own: `reach VICTIMS SHOWN OWN PID`. VICTIMS is a directory with files
   `0`, `1`, … of the caller's, each for one try; SHOWN another, which a jail may only read; OWN is the caller's own. PID is a process of
   the same person. Prints a line for each: its name and `ok`, or the error. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/openat2.h>
#include <sched.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/inotify.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/msg.h>
#include <sys/ptrace.h>
#include <sys/resource.h>
#include <sys/sem.h>
#include <sys/shm.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <sys/xattr.h>
#include <unistd.h>

#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452
#endif
#ifndef SYS_file_setattr
#define SYS_file_setattr 469
#endif

static const char *victims, *own;
static int next;
static char path[4096], mine[4096], shown[4096];

/* The next victim, and a name beside it that is the caller's own. */
static const char *v(void) {
    snprintf(path, sizeof path, "%s/%d", victims, next);
    snprintf(mine, sizeof mine, "%s/mine-%d", own, next++);
    return path;
}

static const char *to(const char *name) {
    static char out[4096];
    snprintf(out, sizeof out, "%s/%s", victims, name);
    return out;
}

static const char *in_proc(int pid, const char *file) {
    static char out[64];
    snprintf(out, sizeof out, "/proc/%d/%s", pid, file);
    return out;
}

static int made(void) {
    int fd = open(mine, O_CREAT | O_WRONLY, 0600);
    if (fd >= 0) close(fd);
    return fd;
}

static int opens(const char *name, int flags) {
    int fd = open(name, flags, 0600);
    if (fd >= 0) close(fd);
    return fd;
}

static int by_descriptor(int (*change)(const char *)) {
    char name[64];
    int fd = open(v(), O_PATH);
    if (fd < 0) return -1;
    snprintf(name, sizeof name, "/proc/self/fd/%d", fd);
    int rc = change(name), e = errno;
    close(fd);
    errno = e;
    return rc;
}

static int chmod_it(const char *name) { return chmod(name, 0640); }
static int touch_it(const char *name) {
    struct timespec t[2] = {{1, 0}, {1, 0}};
    return utimensat(AT_FDCWD, name, t, 0);
}

static int by_link(int (*change)(const char *)) {
    v();
    if (symlink(path, mine) != 0) return -1;
    return change(mine);
}

static int by_directory(int (*change)(const char *)) {
    char here[4096], name[16];
    if (!getcwd(here, sizeof here) || chdir(victims) != 0) return -1;
    snprintf(name, sizeof name, "%d", next++);
    int rc = change(name), e = errno;
    if (chdir(here) != 0) return -1;
    errno = e;
    return rc;
}

static int runs(const char *program) {
    int status, gate[2], e = 0;
    if (pipe2(gate, O_CLOEXEC) != 0) return -1;
    pid_t child = fork();
    if (child == 0) {
        execl(program, program, (char *)0);
        e = errno;
        if (write(gate[1], &e, sizeof e) < 0) _exit(2);
        _exit(1);
    }
    close(gate[1]);
    ssize_t n = read(gate[0], &e, sizeof e);
    close(gate[0]);
    waitpid(child, &status, 0);
    errno = e;
    return n == 0 ? 0 : -1;
}

static void says(const char *name, long rc) {
    int e = errno;
    printf("%s %s\n", name, rc >= 0 ? "ok" : strerror(e));
    fflush(stdout);
}
#define TRY(name, call) (errno = 0, says(name, (long)(call)))

static void files(void) {
    struct timespec past[2] = {{1, 0}, {1, 0}};
    struct open_how how = {.flags = O_WRONLY};
    struct open_how beneath = {.flags = O_RDONLY | O_TRUNC};
    char bytes[64];
    TRY("open-read", opens(v(), O_RDONLY));
    TRY("open-write", opens(v(), O_WRONLY));
    TRY("open-append", opens(v(), O_WRONLY | O_APPEND));
    TRY("open-neither", opens(v(), 3));
    TRY("open-truncate", opens(v(), O_RDONLY | O_TRUNC));
    TRY("openat2-write", syscall(SYS_openat2, AT_FDCWD, v(), &how, sizeof how));
    TRY("openat2-truncate", syscall(SYS_openat2, AT_FDCWD, v(), &beneath, sizeof beneath));
    TRY("truncate", truncate(v(), 1));
    TRY("list", opens(victims, O_RDONLY | O_DIRECTORY));
    TRY("execute", runs(to("program")));
    TRY("create", opens(to("created"), O_CREAT | O_EXCL | O_WRONLY));
    TRY("temporary", opens(victims, O_TMPFILE | O_WRONLY));
    TRY("mkdir", mkdir(to("directory"), 0700));
    TRY("mkfifo", mkfifo(to("fifo"), 0600));
    TRY("symlink", symlink("x", to("symlink")));
    TRY("unlink", unlink(v()));
    TRY("rename", (v(), rename(path, to("renamed"))));
    TRY("rename-in", (v(), rename(path, mine)));
    TRY("rename-out", (v(), made(), rename(mine, path)));
    TRY("exchange", (v(), made(), renameat2(AT_FDCWD, mine, AT_FDCWD, path, RENAME_EXCHANGE)));
    TRY("link-in", (v(), link(path, mine)));
    TRY("link-out", (v(), made(), link(mine, to("linked"))));
    TRY("chmod", chmod_it(v()));
    TRY("chmod-by-descriptor", by_descriptor(chmod_it));
    TRY("chmod-by-link", by_link(chmod_it));
    TRY("chmod-by-directory", by_directory(chmod_it));
    TRY("fchmodat", fchmodat(open(victims, O_PATH), (v(), strrchr(path, '/') + 1), 0640, 0));
    TRY("chmod-climbs", (v(), snprintf(mine, sizeof mine, "%.1000s/../../../../../../../../../../../../../..%.1000s", own, path), chmod(mine, 0640)));
    TRY("may:fchmodat2-empty", syscall(SYS_fchmodat2, open(v(), O_PATH), "", 0640, AT_EMPTY_PATH));
    TRY("utimensat", touch_it(v()));
    TRY("utimensat-by-descriptor", by_descriptor(touch_it));
    TRY("utimensat-by-link", by_link(touch_it));
    TRY("utimensat-by-directory", by_directory(touch_it));
    TRY("utimensat-empty", syscall(SYS_utimensat, open(v(), O_PATH), "", past, AT_EMPTY_PATH));
#ifdef SYS_utime
    TRY("utime", syscall(SYS_utime, v(), NULL));
    TRY("utimes", syscall(SYS_utimes, v(), NULL));
    TRY("futimesat", syscall(SYS_futimesat, AT_FDCWD, v(), NULL));
#endif
    TRY("chown", chown(v(), getuid(), getgid()));
    TRY("lchown", lchown(v(), getuid(), getgid()));
    TRY("setxattr", setxattr(v(), "user.x", "y", 1, 0));
    TRY("lsetxattr", lsetxattr(v(), "user.x", "y", 1, 0));
    TRY("getxattr", getxattr(to("program"), "user.secret", bytes, sizeof bytes));
    TRY("listxattr", listxattr(to("program"), bytes, sizeof bytes));
    TRY("removexattr", removexattr(to("program"), "user.secret"));
    TRY("inotify", inotify_add_watch(inotify_init1(IN_CLOEXEC), victims, IN_ALL_EVENTS));
    TRY("open-by-descriptor", by_descriptor((int (*)(const char *))runs) < 0 ? opens(to("program"), O_RDONLY) : 0);
}

/* What is open for reading must stay as it is. */
static void shown_files(void) {
    struct timespec past[2] = {{1, 0}, {1, 0}};
    struct fsxattr attributes = {0};
    int fd = open(shown, O_RDONLY), flags = 0;
    if (fd < 0) {
        puts("shown is not readable");
        exit(1);
    }
    TRY("shown-write", opens(shown, O_RDWR));
    TRY("shown-truncate", opens(shown, O_RDONLY | O_TRUNC));
    TRY("shown-neither", opens(shown, 3));
    TRY("shown-chmod", chmod(shown, 0600));
    TRY("shown-fchmod", fchmod(fd, 0600));
    TRY("shown-futimens", futimens(fd, past));
    TRY("shown-fsetxattr", fsetxattr(fd, "user.x", "y", 1, 0));
    TRY("shown-fchown", fchown(fd, getuid(), getgid()));
    flags = FS_NODUMP_FL | FS_NOATIME_FL;
    TRY("shown-flags", ioctl(fd, FS_IOC_SETFLAGS, &flags));
    attributes.fsx_xflags = FS_XFLAG_NODUMP;
    TRY("shown-xflags", ioctl(fd, FS_IOC_FSSETXATTR, &attributes));
    snprintf(mine, sizeof mine, "%.1000s/linked", own);
    TRY("shown-link", link(shown, mine));
    TRY("shown-rename", rename(shown, mine));
    TRY("shown-unlink", unlink(mine));
}

static void processes(int pid) {
    char byte, name[256];
    int shm, sem, msg;
    struct iovec here = {&byte, 1}, there = {(void *)&byte, 1};
    siginfo_t info = {.si_code = SI_QUEUE};
    struct rlimit limit = {100, 100};
    struct sched_param usual = {0};
    TRY("kill", kill(pid, 0));
    TRY("tgkill", syscall(SYS_tgkill, pid, pid, 0));
    TRY("tkill", syscall(SYS_tkill, pid, 0));
    TRY("sigqueue", syscall(SYS_rt_sigqueueinfo, pid, 0, &info));
    TRY("pidfd-signal", syscall(SYS_pidfd_send_signal, syscall(SYS_pidfd_open, pid, 0), 0, NULL, 0));
    TRY("kill-group", kill(-pid, 0));
    TRY("may:ptrace", ptrace(PTRACE_SEIZE, pid, 0, 0));
    TRY("may:read-memory", process_vm_readv(pid, &here, 1, &there, 1, 0) < 0 && errno == EFAULT ? 0 : errno == 0 ? 0 : -1);
    TRY("may:pidfd-getfd", syscall(SYS_pidfd_getfd, syscall(SYS_pidfd_open, pid, 0), 0, 0));
    TRY("may:kcmp", syscall(SYS_kcmp, getpid(), pid, 2, 0, 0));
    TRY("may:environ", opens(in_proc(pid, "environ"), O_RDONLY));
    TRY("may:mem", opens(in_proc(pid, "mem"), O_RDONLY));
    TRY("may:maps", opens(in_proc(pid, "maps"), O_RDONLY));
    TRY("may:descriptors", readlink(in_proc(pid, "fd/0"), name, sizeof name));
    TRY("may:descriptor", opens(in_proc(pid, "fd/0"), O_RDONLY));
    TRY("may:root", opens(in_proc(pid, "root/etc/hostname"), O_RDONLY));
    TRY("may:cwd", opens(in_proc(pid, "cwd"), O_RDONLY | O_DIRECTORY));
    TRY("oom", opens(in_proc(pid, "oom_score_adj"), O_WRONLY));
    TRY("nice", setpriority(PRIO_PROCESS, (id_t)pid, 19));
    TRY("may:nice-user", setpriority(PRIO_USER, getuid(), 0));
    TRY("scheduler", sched_setscheduler(pid, SCHED_OTHER, &usual));
    TRY("ioprio", syscall(SYS_ioprio_set, 1, pid, 2 << 13 | 7));
    TRY("may:prlimit", prlimit(pid, RLIMIT_NOFILE, &limit, NULL));
    TRY("shm", shm = shmget(0x41495231, 4096, IPC_CREAT | 0600));
    TRY("sem", sem = semget(0x41495231, 1, IPC_CREAT | 0600));
    TRY("msg", msg = msgget(0x41495231, IPC_CREAT | 0600));
    if (shm >= 0) shmctl(shm, IPC_RMID, NULL);
    if (sem >= 0) semctl(sem, 0, IPC_RMID);
    if (msg >= 0) msgctl(msg, IPC_RMID, NULL);
}

int main(int argc, char **argv) {
    if (argc != 5) return 2;
    victims = argv[1];
    snprintf(shown, sizeof shown, "%s/file", argv[2]);
    own = argv[3];
    files();
    shown_files();
    processes(atoi(argv[4]));
    return 0;
}
