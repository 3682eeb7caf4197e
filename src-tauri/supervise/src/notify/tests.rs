//! Real notifications of this kernel: a thread of the test observes itself and what it starts.
#![allow(clippy::disallowed_methods, reason = "tests start the programs that they observe")]

use super::*;
use crate::who::JailRef;
use model::event::{FileOp, Origin, Verdict};
use model::path::RawPath;
use nix::libc;
use std::process::Command;
use std::sync::Condvar;
use sys::bpf::{Action, Entry, Program, Table};

const WAIT: Duration = Duration::from_secs(20);

fn observed() -> Vec<i64> {
    let mut calls = vec![
        libc::SYS_execve,
        libc::SYS_execveat,
        libc::SYS_connect,
        libc::SYS_bind,
        libc::SYS_openat,
        libc::SYS_unlinkat,
        libc::SYS_mkdirat,
        libc::SYS_renameat2,
    ];
    #[cfg(target_arch = "x86_64")]
    calls.extend([libc::SYS_open, libc::SYS_creat, libc::SYS_unlink, libc::SYS_rename, libc::SYS_mkdir, libc::SYS_rmdir]);
    calls
}

/// Makes the calling thread and what it starts wait at these calls.
fn observe(calls: &[i64]) -> OwnedFd {
    let mut numbers: Vec<u32> = calls.iter().map(|call| u32::try_from(*call).unwrap()).collect();
    numbers.sort_unstable();
    let entries: Vec<Entry> =
        numbers.into_iter().map(|number| Entry { number, clauses: &[], otherwise: Action::Notify }).collect();
    let table = Table { arch: NATIVE_ARCH, entries: &entries, unlisted: Action::Allow };
    nix::sys::prctl::set_no_new_privs().unwrap();
    sys::seccomp::install_with_listener(&Program::assemble(&table).unwrap()).expect("this kernel has seccomp notification")
}

/// Runs `work` on an observed thread and returns what was told by the time that it and everything it started is done.
fn told_with<T: Send + 'static>(
    jail: JailRef,
    memory: Box<dyn Memory>,
    work: impl FnOnce(&Announced) -> T + Send + 'static,
) -> (Vec<Fact>, T) {
    let (tell, facts) = mpsc::channel();
    let (hand, handed) = mpsc::channel();
    let (go, gone) = mpsc::channel::<Arc<Announced>>();
    let (finish, finished) = mpsc::channel();
    let observed_thread = std::thread::spawn(move || {
        hand.send(observe(&observed())).unwrap();
        let announced = gone.recv().unwrap();
        finish.send(work(&announced)).unwrap();
    });
    let listener = handed.recv_timeout(WAIT).unwrap();
    let who = Who::new(jail).unwrap();
    let notify = Notify::serve_with(listener, who, None, move |fact| drop(tell.send(fact)), memory).unwrap();
    go.send(notify.announced()).unwrap();
    let value = finished.recv_timeout(Duration::from_secs(60)).expect("no observed call may wait for ever");
    observed_thread.join().unwrap();
    drop(notify);
    (facts.into_iter().collect(), value)
}

fn jail(writable: &Path) -> JailRef {
    JailRef { init_pid: std::process::id(), writable: vec![writable.to_path_buf()], ..JailRef::default() }
}

fn sh(dir: &Path, script: &str) -> i32 {
    Command::new("/bin/sh").arg("-c").arg(script).current_dir(dir).status().unwrap().code().unwrap()
}

fn told(dir: &Path, work: impl FnOnce(&Announced) + Send + 'static) -> Vec<Fact> {
    told_with(jail(dir), Box::new(memory::Remote), work).0
}

fn execs(facts: &[Fact]) -> Vec<(u32, Vec<String>)> {
    facts
        .iter()
        .filter_map(|fact| match fact {
            Fact::Exec { process } => Some((process.pid, process.argv.iter().map(ToString::to_string).collect())),
            _ => None,
        })
        .collect()
}

fn exits(facts: &[Fact]) -> Vec<(u32, Option<i32>)> {
    facts
        .iter()
        .filter_map(|fact| match fact {
            Fact::Exit { process, status } => Some((process.pid, *status)),
            _ => None,
        })
        .collect()
}

fn files(facts: &[Fact]) -> Vec<(FileOp, String, Option<String>, Verdict)> {
    facts
        .iter()
        .filter_map(|fact| match fact {
            Fact::File { op, path, to, verdict, .. } => {
                Some((*op, path.to_string(), to.as_ref().map(ToString::to_string), *verdict))
            }
            _ => None,
        })
        .collect()
}

#[test]
fn a_path_search_tells_the_one_program_that_ran() {
    let dir = tempfile::tempdir().unwrap();
    let facts = told(dir.path(), |_| {
        let mut command = Command::new("/usr/bin/env");
        command.args(["PATH=/nowhere:/nor/here:/usr/bin:/bin", "true", "an argument"]);
        assert!(command.status().unwrap().success());
    });
    let execs = execs(&facts);
    let argv: Vec<&[String]> = execs.iter().map(|(_, argv)| argv.as_slice()).collect();
    assert_eq!(argv.len(), 2, "env and then true, no candidates: {facts:#?}");
    assert_eq!(argv[1], ["true", "an argument"]);
    assert_eq!(execs[0].0, execs[1].0, "it is the same process");
    assert_eq!(exits(&facts).iter().map(|(pid, _)| *pid).collect::<Vec<_>>(), [execs[0].0], "it ends once");
    let Some(Fact::Exec { process }) = facts.iter().find(|fact| matches!(fact, Fact::Exec { .. })) else { panic!("{facts:?}") };
    assert_eq!(process.program, RawPath::from("env"));
    assert_eq!(process.origin, Origin::System);
    assert_eq!(process.parent, std::process::id(), "the parent is the test: {process:?}");
    assert_eq!(process.ancestry.len(), 1, "up to the init and no further: {process:?}");
}

#[test]
fn every_short_program_is_told_with_its_end() {
    let dir = tempfile::tempdir().unwrap();
    let facts = told(dir.path(), |_| {
        for _ in 0..40 {
            Command::new("/bin/true").status().unwrap();
            Command::new("/bin/false").status().unwrap();
        }
    });
    let (execs, exits) = (execs(&facts), exits(&facts));
    assert_eq!(execs.len(), 80, "each of the programs: {facts:?}");
    assert_eq!(exits.len(), 80, "each end: {facts:?}");
    for (pid, argv) in &execs {
        let wanted = i32::from(argv == &["/bin/false"]);
        let status = exits.iter().find(|(exited, _)| exited == pid).map(|(_, status)| *status);
        assert!(matches!(status, Some(Some(code)) if code == wanted) || status == Some(None), "{argv:?} ended with {status:?}");
    }
}

#[test]
fn a_failed_exec_is_not_told_and_one_of_the_same_program_is() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().to_path_buf();
    let facts = told(dir.path(), move |_| {
        assert_eq!(sh(&root, "./nope 2>/dev/null; /nowhere/x 2>/dev/null; exec /bin/sh -c 'exit 4'"), 4);
    });
    let argv: Vec<Vec<String>> = execs(&facts).into_iter().map(|(_, argv)| argv).collect();
    assert_eq!(argv.len(), 2, "{facts:#?}");
    assert_eq!(argv[1], ["/bin/sh", "-c", "exit 4"], "the same program again is another exec");
    assert!(matches!(exits(&facts)[..], [(_, Some(4) | None)]), "{facts:?}");
}

#[test]
fn changes_of_files_are_told_with_who_and_reads_are_not() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().to_path_buf();
    std::fs::write(root.join("read"), "x").unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    let evil = elsewhere.path().join("evil").display().to_string();
    let script = format!("cat read >/dev/null; mkdir d; echo 1 >a; mv a d/b; rm d/b; : >{evil}");
    let facts = told(dir.path(), move |_| {
        sh(&root, &script);
    });
    let files = files(&facts);
    let noted = |op, path: &str, to: Option<&str>| (op, path.to_owned(), to.map(str::to_owned), Verdict::Noted);
    for wanted in [noted(FileOp::Create, "d", None), noted(FileOp::Write, "a", None), noted(FileOp::Rename, "a", Some("d/b"))] {
        assert!(files.contains(&wanted), "{wanted:?} is told as written: {files:?}");
    }
    assert!(files.iter().any(|(op, path, ..)| *op == FileOp::Delete && path.ends_with("d/b")), "{files:?}");
    let evil = (FileOp::Write, evil, None, Verdict::Denied);
    assert!(files.contains(&evil), "a write outside is told as denied: {files:?}");
    assert!(!files.iter().any(|(_, path, ..)| path == "read" || path == "/dev/null"), "{files:?}");
    let mv = facts.iter().find_map(|fact| match fact {
        Fact::File { process: Some(process), op: FileOp::Rename, .. } => Some(Process::clone(process)),
        _ => None,
    });
    let mv = mv.expect("the rename names its process");
    assert_eq!((mv.program, mv.argv), (RawPath::from("mv"), vec!["mv".into(), "a".into(), "d/b".into()]));
    assert_eq!(mv.ancestry.len(), 2, "the shell and the test: {:?}", mv.ancestry);
    let order = |wanted: &dyn Fn(&Fact) -> bool| facts.iter().position(wanted).unwrap();
    let ran = order(&|fact| matches!(fact, Fact::Exec { process } if process.program == RawPath::from("mv")));
    assert!(ran < order(&|fact| matches!(fact, Fact::File { op: FileOp::Rename, .. })), "a program is told before what it does");
}

#[test]
fn changes_below_a_quiet_place_are_one_fact_a_process() {
    let dir = tempfile::tempdir().unwrap();
    let (quiet, path) = (dir.path().join("git"), dir.path().to_path_buf());
    std::fs::create_dir(&quiet).unwrap();
    let jail = JailRef { quiet: vec![quiet.clone()], ..jail(dir.path()) };
    let script = "cd git; for i in 1 2 3 4 5 6 7 8; do : > f$i; done; : > ../beside; : > sub/../../climbs";
    let (facts, _) = told_with(jail, Box::new(memory::Remote), move |_| {
        std::fs::create_dir(path.join("git/sub")).unwrap();
        std::fs::write(path.join("out"), "").unwrap();
        std::fs::rename(path.join("out"), path.join("git/in")).unwrap();
        assert_eq!(sh(&path, script), 0);
    });
    let mut folded: Vec<(Option<u32>, u64)> = Vec::new();
    for fact in &facts {
        if let Fact::Folded { process, path, count } = fact {
            assert_eq!(*path, RawPath::from(quiet.as_os_str().as_bytes()));
            folded.push((process.as_ref().map(|p| p.pid), *count));
        }
    }
    let own = Some(std::process::id());
    let of = |mine: bool| folded.iter().filter(|(pid, _)| (*pid == own) == mine).map(|(_, n)| n).sum::<u64>();
    assert_eq!((of(true), of(false)), (1, 8), "the directory made by the test, and eight files of the shell: {facts:?}");
    assert!(folded.len() <= 4, "a process has a fact a second, and this takes at most two: {facts:?}");
    let files = files(&facts);
    assert!(!files.iter().any(|(_, path, ..)| path.ends_with("f1") || path.ends_with("sub")), "{files:?}");
    for beside in ["beside", "climbs"] {
        assert!(files.iter().any(|(_, path, ..)| path.ends_with(beside)), "{beside} is not below it: {files:?}");
    }
    assert!(files.iter().any(|(op, ..)| *op == FileOp::Rename), "what comes from elsewhere is told: {files:?}");
}

#[test]
fn connections_are_told_and_those_that_leave_are_announced() {
    use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
    let server = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = server.local_addr().unwrap().port();
    let dir = tempfile::tempdir().unwrap();
    let (facts, who) = told_with(jail(dir.path()), Box::new(memory::Remote), move |announced| {
        TcpStream::connect(("127.0.0.1", port)).unwrap();
        let datagram = UdpSocket::bind("127.0.0.1:0").unwrap();
        datagram.connect(("127.0.0.1", 9)).unwrap();
        // No stream can be opened to a broadcast address, so nothing leaves.
        TcpStream::connect((Ipv4Addr::BROADCAST, 4242)).unwrap_err();
        let inside = announced.take(SocketAddr::from((Ipv4Addr::LOCALHOST, port)));
        assert_eq!(inside, None, "the own loopback never reaches the way out");
        announced.take("[::ffff:255.255.255.255]:4242".parse().unwrap())
    });
    assert_eq!(who.map(|process| process.pid), Some(std::process::id()), "announced before it happened");
    let connects: Vec<(IpAddr, u16)> = facts
        .iter()
        .filter_map(|fact| match fact {
            Fact::Connect { process: Some(_), address, port } => Some((*address, *port)),
            _ => None,
        })
        .collect();
    let wanted = [(Ipv4Addr::LOCALHOST.into(), port), (Ipv4Addr::BROADCAST.into(), 4242)];
    assert_eq!(connects, wanted, "a connect of a datagram socket sends nothing: {facts:?}");
    assert!(facts.iter().any(|fact| matches!(fact, Fact::Bind { port: 0, .. })), "{facts:?}");
}

/// Hangs in every read of a path that starts with `/stall` until opened, and counts those that hang.
struct Stalling(Arc<(Mutex<bool>, Condvar)>, Arc<AtomicUsize>);

impl Memory for Stalling {
    fn read(&self, tid: u32, address: u64, buf: &mut [u8]) -> usize {
        let got = memory::Remote.read(tid, address, buf);
        if buf.starts_with(b"/stall") {
            let (open, changed) = &*self.0;
            self.1.fetch_add(1, Ordering::AcqRel);
            drop(changed.wait_timeout_while(open.lock().unwrap(), WAIT * 3, |open| !*open).unwrap());
            self.1.fetch_sub(1, Ordering::AcqRel);
        }
        got
    }
}

#[test]
fn memory_that_never_comes_stalls_nobody() {
    let dir = tempfile::tempdir().unwrap();
    let gate = Arc::new((Mutex::new(false), Condvar::new()));
    let opener = gate.clone();
    let hanging = Arc::new(AtomicUsize::new(0));
    let inside = hanging.clone();
    let root = dir.path().to_path_buf();
    let (facts, ()) = told_with(jail(dir.path()), Box::new(Stalling(gate, hanging)), move |_| {
        let write = |path: &str| drop(std::fs::OpenOptions::new().write(true).open(path));
        // More than may hang: from then on nothing is read any more, and every call still goes ahead.
        for i in 0..STUCK_CAP + 4 {
            write(&format!("/stall/{i}"));
        }
        *opener.0.lock().unwrap() = true;
        opener.1.notify_all();
        // Everything that hung comes back; then it is read again.
        for _ in 0..2000 {
            if inside.load(Ordering::Acquire) == 0 {
                break;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        for i in 0..100 {
            std::thread::sleep(Duration::from_millis(5));
            std::fs::write(root.join(format!("after{i}")), "").unwrap();
        }
    });
    let unreadable = facts.iter().filter(|fact| matches!(fact, Fact::Unreadable { process: Some(_), .. })).count();
    assert!(unreadable >= STUCK_CAP + 4, "each is told as unread: {unreadable} of {facts:?}");
    assert!(files(&facts).iter().any(|(_, path, ..)| path.contains("after")), "reading resumes: {facts:?}");
}

#[test]
fn processes_killed_while_they_wait_leave_the_server_alive() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().to_path_buf();
    let facts = told(dir.path(), move |_| {
        for i in 0..40 {
            let script = "while :; do : > x; mkdir y; rmdir y; done";
            let mut child = Command::new("/bin/sh").args(["-c", script]).current_dir(&root).spawn().unwrap();
            std::thread::sleep(Duration::from_millis(i % 7));
            child.kill().unwrap();
            child.wait().unwrap();
        }
        sh(&root, ": > last");
    });
    let total: u64 = facts.iter().cloned().map(|fact| fact.into_event_what().2).sum();
    assert!(total > 40, "floods are counted: {total}");
    let last = files(&facts).iter().any(|(_, path, ..)| path == "last");
    let over = facts.iter().any(|fact| matches!(fact, Fact::Coalesced { .. }));
    assert!(last || over, "the server still tells, or has counted: {facts:?}");
}

#[test]
fn the_end_of_the_last_process_is_told() {
    for _ in 0..8 {
        let (tell, facts) = mpsc::channel();
        let (hand, handed) = mpsc::channel();
        let (go, gone) = mpsc::channel::<()>();
        let observed_thread = std::thread::spawn(move || {
            hand.send(observe(&observed())).unwrap();
            gone.recv().unwrap();
            Command::new("/bin/sh").args(["-c", "read x; exit 7"]).stdin(std::process::Stdio::piped()).spawn().unwrap()
        });
        let listener = handed.recv_timeout(WAIT).unwrap();
        let who = Who::new(jail(Path::new("/"))).unwrap();
        let notify = Notify::serve(listener, who, move |fact| drop(tell.send(fact))).unwrap();
        go.send(()).unwrap();
        let mut child = observed_thread.join().unwrap();
        drop(child.stdin.take());
        let until = Instant::now() + WAIT;
        while !notify.server.stopping.load(Ordering::Acquire) {
            // Before Linux 6.11 a process that ended holds its filter until somebody has asked how.
            child.try_wait().unwrap();
            assert!(Instant::now() < until, "the listener hangs up with the last process");
            std::thread::sleep(Duration::from_millis(1));
        }
        drop(notify);
        child.wait().unwrap();
        let facts: Vec<Fact> = facts.into_iter().collect();
        assert!(matches!(exits(&facts)[..], [(_, Some(7) | None)]), "{facts:?}");
    }
}

#[test]
fn a_server_that_is_dropped_leaves_no_call_waiting() {
    let (hand, handed) = mpsc::channel();
    let (go, gone) = mpsc::channel::<()>();
    let thread = std::thread::spawn(move || {
        hand.send(observe(MKDIR)).unwrap();
        gone.recv().unwrap();
        std::fs::create_dir("/nowhere/at/all")
    });
    let listener = handed.recv_timeout(WAIT).unwrap();
    let notify = Notify::serve(listener, Who::new(jail(Path::new("/"))).unwrap(), |_| ()).unwrap();
    drop(notify);
    go.send(()).unwrap();
    let error = thread.join().unwrap().unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOSYS), "an unobserved jail is closed, not open");
}

#[cfg(target_arch = "x86_64")]
const MKDIR: &[i64] = &[libc::SYS_mkdir, libc::SYS_mkdirat];
#[cfg(not(target_arch = "x86_64"))]
const MKDIR: &[i64] = &[libc::SYS_mkdirat];

#[test]
fn a_thread_that_waits_for_memory_is_stuck_and_one_that_waits_for_a_processor_is_not() {
    let (tell, told) = mpsc::channel();
    let (go, gone) = mpsc::channel::<()>();
    let blocked = std::thread::spawn(move || {
        tell.send(rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs()).unwrap();
        assert!(gone.recv().is_err());
    });
    let thread = told.recv().unwrap();
    let [short, long] = [100, 600].map(Duration::from_millis);
    let stuck = (0..2000).any(|_| {
        std::thread::sleep(Duration::from_millis(1));
        late(short, thread)
    });
    assert!(stuck, "it waits for a word");
    drop(go);
    blocked.join().unwrap();
    let me = rustix::thread::gettid().as_raw_nonzero().get().unsigned_abs();
    assert!(!late(short, me), "this one runs");
    assert!(late(long, me), "but not for ever");
}
