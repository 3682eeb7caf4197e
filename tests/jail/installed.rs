//! The installed jail program, which security modules give user namespaces, is not started by accident. That is no promise: who
//! looks for a way past it finds one. An overlay in a throw-away mount namespace puts programs at the installed path.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use testkit::{not_tested_here, program};

/// Copies the named programs to `/usr/lib/airlock` in a namespace of its own and runs a script there.
fn installed(programs: &[&str], script: &str) -> Output {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| -> PathBuf { dir.path().join(name) };
    for d in ["up/airlock", "work", "home", "run"] {
        std::fs::create_dir_all(at(d)).unwrap();
    }
    for name in programs {
        std::fs::copy(program(name), at("up/airlock").join(name)).unwrap();
    }
    let mut command = Command::new("unshare");
    command.arg("--mount");
    let options = format!("lowerdir=/usr/lib,upperdir={},workdir={}", at("up").display(), at("work").display());
    let mount = format!("set -e; mount -t overlay overlay -o '{options}' /usr/lib; {script}");
    command.args(["sh", "-c", &mount]).env_clear().env("PATH", "/usr/sbin:/usr/bin:/sbin:/bin");
    command.env("HOME", at("home")).env("XDG_RUNTIME_DIR", at("run"));
    command.output().unwrap()
}

fn said(output: &Output) -> String {
    format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

const BY_HAND: &str = r#"
import os, socket, sys
ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
plan = os.memfd_create("plan")
os.write(plan, b"{}")
os.lseek(plan, 0, 0)
ours.send(b'{"answer":"begin"}')
if os.fork() == 0:
    os.dup2(theirs.fileno(), 0)
    os.dup2(plan, 1)
    os.execv(sys.argv[1], ["init"])
theirs.close()
os.wait()
print(ours.recv(65536).decode())
"#;

/// Whether programs can be put there: only root can, and only what root put there counts.
fn can_install() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        not_tested_here("programs at the installed path");
    }
    root
}

#[test]
fn the_installed_program_is_not_started_by_hand() {
    if !can_install() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("by-hand.py");
    std::fs::write(&script, BY_HAND).unwrap();
    let run = |path: &Path| format!("exec python3 {} {}", script.display(), path.display());
    let output = installed(&["airlock-jail"], &run(Path::new(jail_plan::INSTALLED)));
    assert!(said(&output).contains("not started by a program that root installed beside it"), "{}", said(&output));
    // The same program at another path reads the plan, and finds fault with that.
    let output = installed(&["airlock-jail"], &run(&program("airlock-jail")));
    assert!(said(&output).contains("the plan can't be read"), "{}", said(&output));
}

#[test]
fn the_installed_program_refuses_to_be_linked_dynamically() {
    if !can_install() {
        return;
    }
    let output = installed(&["airlock", "airlock-warden", "airlock-jail"], "exec /usr/lib/airlock/airlock doctor");
    let text = said(&output);
    // What the tests build is linked dynamically.
    assert!(text.contains("linked dynamically"), "{text}");
    assert_eq!(output.status.code(), Some(4), "{text}");
}
