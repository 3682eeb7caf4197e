// A process of the person's: holds a secret in memory and in descriptor 3, and works in the secret's directory.
#include "hostile.h"

static char memory[256];
static volatile unsigned long word = 0x11;

int main(int argc, char **argv) {
  if (argc < 2) return 2;
  int fd = open(argv[1], O_RDONLY);
  if (fd != 3) dup2(fd, 3);
  if (pread(3, memory, sizeof memory - 1, 0) < 0) return 1;
  char *slash = strrchr(argv[1], '/');
  *slash = 0;
  if (chdir(argv[1]) != 0) return 1;
  printf("%p %p\n", (void *)memory, (void *)&word);
  fflush(stdout);
  for (;;) pause();
}
