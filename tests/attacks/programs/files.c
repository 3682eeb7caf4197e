// Against files outside: `files ATTACK SECRET FILE DIRECTORY-THAT-MAY-BE-WRITTEN [HANDLE]`.
#include "hostile.h"
#include <dirent.h>
#include <linux/openat2.h>
#include <sys/sysmacros.h>
#include <sys/xattr.h>

static char path[8192];
static const char *join(const char *a, const char *b) {
  snprintf(path, sizeof path, "%s%s", a, b);
  return path;
}

static const char *UP = "../../../../../../../../../../../../../../../..";

// A file of the program's own, with something in it.
static const char *mine(const char *dir) {
  static char name[4096];
  snprintf(name, sizeof name, "%s/left", dir);
  int fd = open(name, O_CREAT | O_WRONLY | O_TRUNC, 0755);
  if (write(fd, "#!/bin/sh\n", 10) != 10) perror("write");
  close(fd);
  return name;
}

static void every_process(const char *secret) {
  DIR *proc = opendir("/proc");
  struct dirent *entry;
  while (proc && (entry = readdir(proc))) {
    if (entry->d_name[0] < '0' || entry->d_name[0] > '9') continue;
    const char *links[] = {"root", "cwd/../../../../../../../../../..", "map_files/../root", "task/../root"};
    for (int i = 0; i < 4; i++) {
      char where[300];
      snprintf(where, sizeof where, "/proc/%s/%s", entry->d_name, links[i]);
      show(join(where, secret));
    }
  }
}

static void handle_of(const char *file) {
  struct file_handle *h = calloc(1, sizeof *h + MAX_HANDLE_SZ);
  int mount;
  h->handle_bytes = MAX_HANDLE_SZ;
  if (name_to_handle_at(AT_FDCWD, file, h, &mount, 0) != 0) exit(1);
  printf("%d:", h->handle_type);
  for (unsigned i = 0; i < h->handle_bytes; i++) printf("%02x", h->f_handle[i]);
}

static void by_handle(const char *text, const char *dir) {
  struct file_handle *h = calloc(1, sizeof *h + MAX_HANDLE_SZ);
  h->handle_type = strtol(text, 0, 10);
  const char *hex = strchr(text, ':') + 1;
  for (; hex[0] && hex[1]; hex += 2) sscanf(hex, "%2hhx", &h->f_handle[h->handle_bytes++]);
  const char *mounts[] = {".", dir, "/", "/usr", "/tmp"};
  for (int i = 0; i < 5; i++) {
    int at = open(mounts[i], O_RDONLY | O_DIRECTORY);
    show_fd(step("open_by_handle_at", open_by_handle_at(at, h, O_RDONLY)));
  }
}

int main(int argc, char **argv) {
  if (argc == 3 && IS("handle-of")) return handle_of(argv[2]), 0;
  if (argc < 5) return 2;
  const char *secret = argv[2], *file = argv[3], *dir = argv[4];
  if (IS("open")) show(secret);
  if (IS("self-root")) show(join("/proc/self/root", secret));
  if (IS("thread-root")) show(join("/proc/thread-self/root", secret));
  if (IS("every-process")) every_process(secret);
  if (IS("dot-dot")) {
    for (int i = 0; i < 64; i++) step("chdir", chdir(".."));
    show(join(".", secret));
    show(join(UP, secret));
  }
  if (IS("fd-link")) {
    int root = open("/", O_PATH | O_DIRECTORY);
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d/..", root);
    show(join(link, secret));
  }
  if (IS("openat2")) {
    // Magic links are followed unless one asks otherwise.
    struct open_how how = {.flags = O_RDONLY};
    show_fd(step("openat2", syscall(SYS_openat2, AT_FDCWD, join("/proc/self/cwd/../../../../../../../../..", secret), &how, sizeof how)));
    int root = open("/proc/self/root", O_PATH);
    how.resolve = RESOLVE_IN_ROOT;
    show_fd(step("openat2 in root", syscall(SYS_openat2, root, secret, &how, sizeof how)));
  }
  if (IS("inherited")) {
    for (int fd = 0; fd < 1024; fd++) {
      int got = openat(fd, join(UP, secret), O_RDONLY);
      if (got < 0 && fchdir(fd) == 0) got = open(join(UP, secret), O_RDONLY);
      show_fd(got);
    }
    show(secret);
  }
  if (IS("handle") && argc > 5) by_handle(argv[5], dir);
  if (IS("memfd-exec")) {
    // A program without a file: its confinement must be that of whoever started it.
    int from = open("/proc/self/exe", O_RDONLY), to = memfd_create("program", 0);
    char buffer[65536];
    for (ssize_t n; (n = read(from, buffer, sizeof buffer)) > 0;)
      if (write(to, buffer, n) != n) return 1;
    char *words[] = {"files", "self-root", argv[2], argv[3], argv[4], 0}, *env[] = {0};
    step("fexecve", fexecve(to, words, env));
  }
  if (IS("write")) spoil(file);
  if (IS("append-root-link")) spoil(join("/proc/self/root", file));
  if (IS("truncate")) step("truncate", truncate(file, 0));
  if (IS("chmod")) step("chmod", chmod(file, 0666));
  if (IS("utime")) step("utimensat", utimensat(AT_FDCWD, file, (struct timespec[]){{1, 0}, {1, 0}}, 0));
  if (IS("xattr")) step("setxattr", setxattr(file, "user.spoiled", "x", 1, 0));
  if (IS("unlink")) step("unlink", unlink(file));
  if (IS("beside")) step("mkdir", mkdir(join(file, "-beside"), 0755));
  if (IS("link")) {
    step("link", link(file, "linked"));
    step("linkat", syscall(SYS_linkat, AT_FDCWD, join("/proc/self/root", file), AT_FDCWD, "linked", AT_SYMLINK_FOLLOW));
    spoil("linked");
  }
  if (IS("link-fd")) {
    int fd = open(file, O_PATH);
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    step("linkat by fd", linkat(AT_FDCWD, link, AT_FDCWD, "linked", AT_SYMLINK_FOLLOW));
    spoil("linked");
    spoil(link);
  }
  if (IS("rename-over")) step("rename", rename(mine("."), file));
  if (IS("rename-away")) step("rename", rename(file, "taken"));
  if (IS("exchange")) step("exchange", syscall(SYS_renameat2, AT_FDCWD, mine("."), AT_FDCWD, file, 2));
  if (IS("symlink-follow")) {
    step("symlink", symlink(file, "followed"));
    spoil("followed");
  }
  if (IS("mmap-write")) {
    int fd = step("open", open(file, O_RDWR));
    char *m = mmap(0, 4, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (m != MAP_FAILED) memcpy(m, "spoi", 4);
  }
  if (IS("reopen-rw")) {
    // Open for reading, then again for writing by the link of the open descriptor.
    int fd = step("open", open(file, O_RDONLY));
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    spoil(link);
  }
  if (IS("device")) {
    step("mknod", mknod("device", S_IFCHR | 0666, makedev(1, 3)));
    step("mknod", mknod(join(dir, "/device"), S_IFBLK | 0666, makedev(7, 0)));
    step("mknodat", mknodat(AT_FDCWD, "device2", S_IFBLK | 0666, makedev(254, 0)));
  }
  if (IS("set-id")) step("chmod", chmod(mine(dir), 04755));
  if (IS("set-id-fd")) step("fchmod", fchmod(open(mine(dir), O_RDWR), 06755));
  if (IS("set-id-at")) step("fchmodat", syscall(SYS_fchmodat, AT_FDCWD, mine(dir), 02755));
  umask(0);
  if (IS("set-id-made")) step("open", open(join(dir, "/left"), O_CREAT | O_WRONLY, 04755));
  if (IS("set-id-node")) step("mknod", mknod(join(dir, "/left"), S_IFREG | 04755, 0));
  if (IS("set-id-openat2")) {
    struct open_how how = {.flags = O_CREAT | O_WRONLY, .mode = 02666};
    step("openat2", syscall(SYS_openat2, AT_FDCWD, join(dir, "/left"), &how, sizeof how));
  }
  if (IS("set-id-unnamed")) {
    int fd = step("open", open(dir, O_TMPFILE | O_WRONLY, 02666));
    char link[64];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    step("linkat", linkat(AT_FDCWD, link, AT_FDCWD, join(dir, "/left"), AT_SYMLINK_FOLLOW));
  }
  if (IS("set-id-list")) {
    // Without the right to run it the group's bit outlives a write; the list gives that right.
    int fd = step("open", open(join(dir, "/left"), O_CREAT | O_WRONLY, 02666));
    if (write(fd, "#!/bin/sh\n", 10) != 10) perror("write");
    struct { unsigned version; struct { unsigned short tag, rights; unsigned id; } entry[3]; } list = {
      2, {{1, 7, -1}, {4, 5, -1}, {32, 5, -1}}};
    step("setxattr", setxattr(path, "system.posix_acl_access", &list, sizeof list, 0));
  }
  if (IS("set-id-at2")) step("fchmodat2", syscall(452, AT_FDCWD, mine(dir), 04755, 0));
  return 0;
}
