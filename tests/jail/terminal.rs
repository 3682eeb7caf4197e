//! The terminal: the jail's own, of the size that was asked for.

use crate::room::Room;
use model::run::Stdio;
use std::fs::File;
use std::io::{Read as _, Write as _};
use std::time::Duration;
use testkit::eventually;

/// Reads from the master until a text appears.
fn read_until(master: &mut File, seen: &mut String, wanted: &str) {
    let mut buffer = [0; 4096];
    while !seen.contains(wanted) {
        let n = master.read(&mut buffer).unwrap_or(0);
        assert!(n > 0, "the terminal hung up before `{wanted}` was seen: {seen}");
        seen.push_str(&String::from_utf8_lossy(&buffer[..n]));
    }
}

#[test]
fn the_command_has_a_terminal_that_follows_its_window() {
    let mut room = Room::new();
    room.stdio = Stdio::Terminal { cols: 101, rows: 33 };
    // A shell's `read` ends early at a trapped signal, which is not the end of its input.
    let script = "trap 'seen=1; stty size' WINCH; tty; stty size; [ -t 0 ] && [ -t 1 ] && [ -t 2 ] && echo three; echo \"$TERM\"; (echo tty > /dev/tty); \
         ls /dev/pts; while :; do if read line; then seen=; echo \"got $line\"; elif [ -n \"$seen\" ]; then seen=; else exit 0; fi; done";
    let running = room.start(&["/bin/sh", "-c", script], |_| ()).unwrap();
    let mut master = File::from(running.jail.pty.as_ref().unwrap().try_clone().unwrap());
    let mut seen = String::new();
    read_until(&mut master, &mut seen, "ptmx");
    for wanted in ["/dev/pts/0", "33 101", "three", "xterm-256color", "tty"] {
        assert!(seen.contains(wanted), "`{wanted}` must be seen: {seen}");
    }
    running.jail.resize(80, 24).unwrap();
    master.write_all(b"hello\n").unwrap();
    read_until(&mut master, &mut seen, "got hello");
    read_until(&mut master, &mut seen, "24 80");
    // Ctrl-D ends the input, and with it the command.
    master.write_all(&[4]).unwrap();
    assert_eq!(running.jail.wait().unwrap().exit, Some(0));
    eventually("the hang-up", Duration::from_secs(5), || master.read(&mut [0; 64]).is_err().then_some(()));
}
