# A person's shell on a terminal of its own, in miniature: runs `terminal.py REPORT COMMAND…` in the foreground and writes down
# how it finds the terminal afterwards.
import fcntl, json, os, pty, struct, sys, termios

report, command = sys.argv[1], sys.argv[2:]
child, master = pty.fork()
if child == 0:
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    modes = termios.tcgetattr(0)
    flags = fcntl.fcntl(0, fcntl.F_GETFL)
    here = os.getpgrp()
    job = os.fork()
    if job == 0:
        os.execvp(command[0], command)
    os.waitpid(job, 0)
    waiting = struct.unpack("i", fcntl.ioctl(0, termios.FIONREAD, b"\0\0\0\0"))[0]
    try:
        reopened = os.open("/dev/tty", os.O_RDWR) >= 0
    except OSError:
        reopened = False
    with open(report, "w") as out:
        json.dump(
            {
                "typed": waiting > 0,
                "modes": termios.tcgetattr(0) != modes,
                "foreground": os.tcgetpgrp(0) != here,
                "flags": fcntl.fcntl(0, fcntl.F_GETFL) != flags,
                "size": struct.unpack("HHHH", fcntl.ioctl(0, termios.TIOCGWINSZ, b"\0" * 8))[:2] != (24, 80),
                "exclusive": not reopened or fcntl.ioctl(0, 0x80045440, b"\0\0\0\0") != b"\0\0\0\0",
            },
            out,
        )
    os._exit(0)
while True:
    try:
        if not os.read(master, 4096):
            break
    except OSError:
        break
os.waitpid(child, 0)
