//! Naming processes of this kernel.
#![allow(clippy::disallowed_methods, reason = "tests start the programs that they observe")]

use super::*;
use std::process::{Child, Command, Stdio};

struct Ends(Child);

impl Drop for Ends {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn here() -> Arc<Who> {
    let jail = JailRef {
        init_pid: std::process::id(),
        writable: vec!["/home/u/repo".into(), "/tmp".into()],
        tools: vec!["/home/u/.cargo/bin".into()],
        quiet: vec![],
    };
    Who::new(jail).unwrap()
}

#[test]
fn origin_goes_by_whole_components() {
    let who = here();
    for (exe, origin) in [
        ("/usr/bin/ls", Origin::System),
        ("/home/u/repo/a.out", Origin::Task),
        ("/home/u/repository/x", Origin::Unknown),
        ("/tmp/x", Origin::Task),
        ("/home/u/.cargo/bin/cargo", Origin::Tool),
        ("/usrx/ls", Origin::Unknown),
        ("bin/ls", Origin::Unknown),
        ("", Origin::Unknown),
    ] {
        assert_eq!(who.origin(exe.as_bytes()), origin, "{exe}");
    }
}

#[test]
fn a_process_is_named_with_capped_arguments_that_need_not_be_text() {
    let mut command = Command::new("/bin/sleep");
    command.arg("60").stdin(Stdio::null());
    let odd = OsStr::from_bytes(b"0\xff");
    let mut many = Command::new("/bin/sh");
    many.args(["-c", "read x; :"]).stdin(Stdio::piped()).arg(odd).args(vec!["x".repeat(3000); 100]);
    let (sleep, many) = (Ends(command.spawn().unwrap()), Ends(many.spawn().unwrap()));
    let who = here();
    // A child shows its parent's program until its exec is done.
    let settled = |child: &Ends, name: &str| {
        for _ in 0..2000 {
            match who.by_host_id(child.0.id()) {
                Some(process) if process.argv.first().is_some_and(|argv| argv.to_string() == name) => return process,
                _ => std::thread::sleep(Duration::from_millis(5)),
            }
        }
        panic!("{name} never ran")
    };
    let process = settled(&sleep, "/bin/sleep");
    assert_eq!(process.pid, sleep.0.id());
    assert_eq!(process.program, RawPath::from("sleep"));
    assert_eq!(process.argv, [RawPath::from("/bin/sleep"), RawPath::from("60")]);
    assert_eq!(process.parent, std::process::id());
    let process = settled(&many, "/bin/sh");
    assert!(process.argv.len() <= ARGV_CAP && process.argv.iter().map(|a| a.0.len()).sum::<usize>() <= ARGV_BYTES);
    assert_eq!(process.argv.get(3), Some(&RawPath::from(odd.as_bytes())));
}

#[test]
fn a_process_that_has_gone_is_who_it_was() {
    let who = here();
    let mut child = Command::new("/bin/cat").stdin(Stdio::piped()).stdout(Stdio::null()).spawn().unwrap();
    let before = who.by_host_id(child.id());
    drop(child.stdin.take());
    let id = child.id();
    child.wait().unwrap();
    assert!(before.is_some(), "a live process is named");
    assert_eq!(who.by_host_id(id), before, "what was known stays known");
    assert_eq!(who.by_host_id(0), None);
    assert_eq!(who.by_host_id(u32::MAX), None, "nobody has this number");
}

#[test]
fn only_processes_of_the_jail_are_named_and_by_its_own_numbers() {
    let mut command = Command::new("unshare");
    command.args(["--user", "--pid", "--fork", "--mount-proc", "--kill-child", "sh", "-c", "echo $$; read x; :"]);
    let mut child = Ends(command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap());
    let mut first = [0u8; 2];
    if child.0.stdout.as_mut().unwrap().read_exact(&mut first).is_err() {
        println!("not tested here: user and pid namespaces");
        return;
    }
    assert_eq!(&first, b"1\n", "the shell is the first in its namespace");
    let parent = child.0.id();
    let init = std::fs::read_to_string(format!("/proc/{parent}/task/{parent}/children")).unwrap();
    let init: u32 = init.trim().parse().unwrap();
    let inside = Who::new(JailRef { init_pid: init, ..JailRef::default() }).unwrap();
    assert_eq!(inside.by_host_id(std::process::id()), None, "nobody outside is ever named");
    assert_eq!(inside.by_host_id(parent), None, "nor who started the jail");
    let process = inside.by_host_id(init).unwrap();
    assert_eq!((process.pid, process.parent), (1, 0), "{process:?}");
    assert_eq!(process.ancestry, [], "nobody outside is an ancestor");
    assert_eq!(inside.by_jail_id(1).as_ref(), Some(&process));
    let long = Duration::from_secs(20);
    assert_eq!(inside.search(1, long), Some(init), "the slow way finds the same");
    assert_eq!(inside.by_jail_id(4_000_000), None);
    assert_eq!(inside.search(4_000_000, long), None);
    assert_eq!(inside.search(1, Duration::ZERO), None, "a search ends in time");
    assert_eq!(inside.remembered(1), Some(init), "whoever was seen is not searched for");
    inside.cache().inside.insert(77, init);
    assert_eq!(inside.remembered(77), None, "a memory that the kernel does not confirm is none");
    // Seen from a jail around it, it has that jail's numbers.
    let around = here();
    let process = around.by_host_id(init).unwrap();
    assert_eq!((process.pid, process.parent), (init, parent), "{process:?}");
}

#[test]
fn a_reader_that_hangs_costs_a_deadline_and_only_so_many_hang() {
    let stuck = Arc::new(AtomicUsize::new(0));
    let (open, opened) = mpsc::channel::<()>();
    let opened = Arc::new(Mutex::new(opened));
    for _ in 0..STUCK_CAP {
        let opened = opened.clone();
        let hang = move || opened.lock().unwrap_or_else(PoisonError::into_inner).recv().is_ok();
        assert_eq!(with_deadline(&stuck, hang), None, "nobody waits for it");
    }
    assert_eq!(with_deadline(&stuck, || 1), None, "no more is read while so many hang");
    drop(open);
    for _ in 0..2000 {
        if stuck.load(Ordering::Acquire) == 0 {
            break;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(with_deadline(&stuck, || 1), Some(1), "reading resumes");
}
