// What the hostile programs share. Each is `program ATTACK ARGUMENT…`; it prints what it got hold of and where it was stopped.
// Whether an attack came through is judged by the test from outside, never by these words.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/types.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#define IS(name) (strcmp(argv[1], name) == 0)

// Says how a step went and hands its result on.
static inline long step(const char *what, long result) {
  if (result < 0) printf("%s: %s\n", what, strerror(errno));
  else printf("%s: ok\n", what);
  fflush(stdout);
  return result;
}

// Prints a file's first bytes.
static inline void show_fd(int fd) {
  char buffer[4096];
  ssize_t n = fd < 0 ? -1 : read(fd, buffer, sizeof buffer);
  if (n > 0) fwrite(buffer, 1, n, stdout);
  fflush(stdout);
}

static inline void show(const char *path) {
  show_fd(step(path, open(path, O_RDONLY | O_CLOEXEC)));
}

// Writes to a file.
static inline void spoil(const char *path) {
  int fd = step(path, open(path, O_WRONLY | O_CLOEXEC));
  if (fd >= 0) step("write", write(fd, "spoiled\n", 8));
}

// Stays as it is until the test has looked.
static inline void hold(void) {
  printf("holding\n");
  fflush(stdout);
  for (;;) pause();
}
