// Against mounts: `mounts ATTACK HIDDEN-SECRET SHOWN-FILE SHOWN HIDDEN`. What is hidden lies below a mount in SHOWN, which is read-only.
#include "hostile.h"
#include <sched.h>
#include <sys/mount.h>

#define OPEN_TREE_CLONE_ 1
#define MOVE_EMPTY 4
struct attributes {
  uint64_t set, clear, propagation, ns;
};

static char path[8192];

static void shows(const char *root) {
  snprintf(path, sizeof path, "%s/hidden/secret", root);
  show(path);
}

static int private_place(void) {
  if (mkdir("m", 0755) != 0 && errno != EEXIST) perror("mkdir");
  return 0;
}

int main(int argc, char **argv) {
  if (argc < 6) return 2;
  const char *secret = argv[2], *file = argv[3], *shown = argv[4], *hidden = argv[5];
  if (IS("umount")) {
    step("umount2", umount2(hidden, MNT_DETACH));
    step("umount2", umount2(hidden, MNT_DETACH));
    show(secret);
  }
  if (IS("umount-all")) {
    // Whatever stands anywhere.
    FILE *table = fopen("/proc/self/mountinfo", "r");
    char line[4096], target[4096];
    while (table && fgets(line, sizeof line, table))
      if (sscanf(line, "%*s %*s %*s %*s %4095s", target) == 1 && strstr(target, "hidden")) step(target, umount2(target, MNT_DETACH));
    show(secret);
  }
  if (IS("bind")) {
    private_place();
    step("mount", mount(shown, "m", 0, MS_BIND, 0));
    shows("m");
  }
  if (IS("clone-tree")) {
    int fd = step("open_tree", syscall(SYS_open_tree, AT_FDCWD, shown, OPEN_TREE_CLONE_));
    if (fd >= 0) show_fd(openat(fd, "hidden/secret", O_RDONLY));
  }
  if (IS("move")) {
    private_place();
    step("mount", mount(hidden, "m", 0, MS_MOVE, 0));
    show(secret);
  }
  if (IS("move-fd")) {
    private_place();
    int fd = step("open_tree", syscall(SYS_open_tree, AT_FDCWD, hidden, 0));
    step("move_mount", syscall(SYS_move_mount, fd, "", AT_FDCWD, "m", MOVE_EMPTY));
    show(secret);
  }
  if (IS("overlay")) {
    private_place();
    snprintf(path, sizeof path, "lowerdir=%s:/usr", shown);
    step("mount", mount("overlay", "m", "overlay", 0, path));
    shows("m");
  }
  if (IS("unshare-private")) {
    step("unshare", unshare(CLONE_NEWNS));
    step("umount2", umount2(hidden, MNT_DETACH));
    show(secret);
  }
  if (IS("remount")) {
    step("mount", mount(0, shown, 0, MS_REMOUNT | MS_BIND, 0));
    spoil(file);
  }
  if (IS("set-attributes")) {
    struct attributes open = {.clear = 1};
    step("mount_setattr", syscall(SYS_mount_setattr, AT_FDCWD, shown, 0, &open, sizeof open));
    spoil(file);
  }
  if (IS("bind-writable")) {
    private_place();
    struct attributes open = {.clear = 1};
    int fd = step("open_tree", syscall(SYS_open_tree, AT_FDCWD, shown, OPEN_TREE_CLONE_));
    step("mount_setattr", syscall(SYS_mount_setattr, fd, "", AT_EMPTY_PATH, &open, sizeof open));
    if (fd >= 0) {
      int f = openat(fd, "file", O_WRONLY);
      if (f >= 0) step("write", write(f, "spoiled\n", 8));
    }
  }
  if (IS("fsopen")) {
    step("fsopen", syscall(SYS_fsopen, "tmpfs", 0));
    step("fspick", syscall(SYS_fspick, AT_FDCWD, "/", 0));
    hold();
  }
  if (IS("chroot-escape")) {
    // A second chroot below the first, with the working directory left above it.
    if (mkdir("cage", 0755) != 0 && errno != EEXIST) perror("mkdir");
    step("chroot", chroot("cage"));
    for (int i = 0; i < 64; i++)
      if (chdir("..") != 0) break;
    step("chroot", chroot("."));
    show(secret);
  }
  if (IS("pivot")) {
    private_place();
    step("mount", mount("none", "m", "tmpfs", 0, 0));
    if (mkdir("m/old", 0755) != 0) perror("mkdir");
    step("pivot_root", syscall(SYS_pivot_root, "m", "m/old"));
    if (access("/old", F_OK) == 0 && access(secret, F_OK) != 0) printf("\nfell\n");
  }
  if (IS("user-namespace") || IS("clone3-namespace") || IS("clone-namespace") || IS("set-namespace")) {
    if (IS("user-namespace")) step("unshare", unshare(CLONE_NEWUSER));
    if (IS("clone3-namespace")) {
      uint64_t args[11] = {CLONE_NEWUSER, 0, 0, 0, SIGCHLD};
      step("clone3", syscall(SYS_clone3, args, sizeof args));
    }
    if (IS("clone-namespace")) step("clone", syscall(SYS_clone, CLONE_NEWUSER | CLONE_NEWNS | SIGCHLD, 0, 0, 0, 0));
    if (IS("set-namespace")) {
      int ready[2];
      char byte;
      step("pipe", pipe(ready));
      pid_t child = fork();
      if (child == 0) {
        step("unshare", unshare(CLONE_NEWUSER));
        step("ready", write(ready[1], ".", 1));
        for (;;) pause();
      }
      step("child", read(ready[0], &byte, 1));
      snprintf(path, sizeof path, "/proc/%d/ns/user", child);
      int fd = step(path, open(path, O_RDONLY));
      step("setns", setns(fd, CLONE_NEWUSER));
      int pidfd = syscall(SYS_pidfd_open, child, 0);
      step("setns by pidfd", setns(pidfd, CLONE_NEWUSER | CLONE_NEWNS));
      step("setns to init", setns(open("/proc/1/ns/mnt", O_RDONLY), CLONE_NEWNS));
    }
    hold();
  }
  return 0;
}
