// Against the terminal that a program was started on: `terminal ATTACK`.
#include "hostile.h"
#include <linux/tiocl.h>
#include <sys/ioctl.h>
#include <termios.h>

int main(int argc, char **argv) {
  if (argc < 2) return 2;
  signal(SIGTTOU, SIG_IGN);
  signal(SIGHUP, SIG_IGN);
  int tty = open("/dev/tty", O_RDWR);
  int places[] = {0, 1, 2, tty};
  for (int i = 0; i < 4; i++) {
    int fd = places[i];
    if (IS("type")) {
      const char *line = "touch typed\n";
      for (const char *c = line; *c; c++) step("TIOCSTI", ioctl(fd, TIOCSTI, c));
      char select[] = {TIOCL_SETSEL, 0};
      step("TIOCLINUX", ioctl(fd, TIOCLINUX, select));
    }
    if (IS("raw")) {
      struct termios modes;
      step("tcgetattr", tcgetattr(fd, &modes));
      cfmakeraw(&modes);
      step("tcsetattr", tcsetattr(fd, TCSANOW, &modes));
    }
    if (IS("foreground")) {
      setpgid(0, 0);
      step("tcsetpgrp", tcsetpgrp(fd, getpid()));
    }
    if (IS("no-wait")) step("O_NONBLOCK", fcntl(fd, F_SETFL, O_NONBLOCK));
    if (IS("size")) {
      struct winsize size = {.ws_row = 7, .ws_col = 9};
      step("TIOCSWINSZ", ioctl(fd, TIOCSWINSZ, &size));
    }
    if (IS("exclusive")) step("TIOCEXCL", ioctl(fd, TIOCEXCL));
    if (IS("hang-up")) step("vhangup", vhangup());
  }
  return 0;
}
