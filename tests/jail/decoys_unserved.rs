//! Decoys that nobody can serve, or nobody serves any more: hidden places stay unreadable.

use crate::decoys::watched;
use crate::room::{Room, SECRET};
use jail_plan::{Plan, Say};
use rustix::net::{AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SocketFlags, SocketType};
use std::fs;
use std::io::{IoSliceMut, Seek as _, Write as _};
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Stdio};
use std::time::Duration;
use testkit::{eventually, not_tested_here, program};

#[test]
fn p2_without_the_server_a_hidden_place_stays_closed() {
    let mut room = Room::new();
    let shown = room.root.join("granted");
    fs::create_dir(&shown).unwrap();
    fs::write(shown.join("key"), SECRET).unwrap();
    room.grants.read = vec![shown.clone()];
    room.grants.hide.push(shown.join("key"));
    let script = format!(
        "echo ready; read -r go < ready; cat ~/.ssh/id_ed25519 {0} ~/.netrc; ls ~/.ssh; (echo x > ~/.ssh/new); cat {0}; echo end",
        shown.join("key").display()
    );
    nix::unistd::mkfifo(&room.task.tree().join("ready"), nix::sys::stat::Mode::S_IRWXU | nix::sys::stat::Mode::S_IRWXO).unwrap();
    let Some((mut running, _)) = watched(&room, &["/bin/bash", "-c", &script]) else { return };
    // The warden's end of the file system is gone.
    drop(running.decoys.take());
    let fifo = room.task.tree().join("ready");
    eventually("the command reads", Duration::from_secs(30), || {
        let flags = rustix::fs::OFlags::WRONLY | rustix::fs::OFlags::NONBLOCK;
        let end = rustix::fs::open(&fifo, flags, rustix::fs::Mode::empty()).ok()?;
        rustix::io::write(&end, b"go\n").ok()
    });
    let went = running.finish();
    assert_eq!(went.out, "ready\nend\n", "nothing may be read: {went:?}");
    let closed = went.err.matches("not connected").count() + went.err.matches("onnection abort").count();
    assert_eq!(closed + went.err.matches("ermission denied").count(), 6, "each fails at once: {went:?}");
}

/// Starts the probe in a mount namespace of its own in which something stands at `/dev/fuse`, and answers with what it said.
fn with_fuse_hidden(room: &Room, plan: &Plan, hide: &str) -> Option<String> {
    let file = room.root.join("plan.json");
    fs::write(&file, serde_json::to_vec(plan).unwrap()).unwrap();
    let user: &[&str] = if nix::unistd::geteuid().is_root() { &[] } else { &["--user", "--map-root-user"] };
    let script = format!("set -e; {hide}; exec \"$@\"");
    let out = Command::new("unshare")
        .args(user)
        .args(["--mount", "--propagation", "private", "/bin/sh", "-c", &script, "sh"])
        .arg(program("probe"))
        .arg("row")
        .args([&file, &program("airlock-jail")])
        .env("TMPDIR", &room.root)
        .stdin(Stdio::null())
        .output()
        .unwrap();
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    if !out.status.success() && said.is_empty() {
        let error = String::from_utf8_lossy(&out.stderr);
        assert!(error.contains("unshare"), "only the namespace may be missing: {error}");
        not_tested_here("a mount namespace to hide /dev/fuse in");
        return None;
    }
    Some(said)
}

#[test]
fn p10_without_fuse_a_run_starts_hidden_places_are_closed_and_it_says_so() {
    // Something else at its place, nothing, and something that may not be opened.
    let missing = "d=$(mktemp -d); mount -t tmpfs tmpfs $d; for n in null zero full random urandom tty; do touch $d/$n; mount --bind /dev/$n $d/$n; done; \
                   mkdir $d/pts $d/shm; mount --rbind $d /dev";
    let ways = [
        ("overmounted", "mount --bind /dev/null /dev/fuse".to_owned()),
        ("a plain file", "f=$(mktemp); mount --bind $f /dev/fuse; rm $f".to_owned()),
        ("closed", "mount --bind /dev/kmsg /dev/fuse".to_owned()),
        ("missing", missing.to_owned()),
    ];
    for (way, hide) in ways {
        let mut room = Room::new();
        let shown = room.root.join("granted");
        fs::create_dir_all(shown.join("keys")).unwrap();
        for file in ["key", "keys/k"] {
            fs::write(shown.join(file), SECRET).unwrap();
        }
        room.grants.read = vec![shown.clone()];
        room.grants.hide.extend([shown.join("key"), shown.join("keys")]);
        let script = format!(
            "cat ~/.ssh/id_ed25519 ~/.netrc ~/.aws/x {0}/key {0}/keys/k; ls ~/.ssh {0}/keys; echo x > ~/.pypirc; echo end",
            shown.display()
        );
        let mut plan = room.plan(&["/bin/bash", "-c", &script]);
        plan.notify = false;
        let Some(said) = with_fuse_hidden(&room, &plan, &hide) else { return };
        let mut lines = said.lines();
        let row = lines.next().unwrap_or_default();
        assert!(row.contains("Absent") && row.contains("/dev/fuse can't be used"), "{way}: the row says so: {said}");
        assert!(said.contains("end\n") && said.ends_with("ok Some(0)\n"), "{way}: the run starts: {said}");
        assert!(!said.contains(SECRET), "{way}: {said}");
        let after = said.split_once('\n').unwrap_or_default().1;
        let refused = after.matches("ermission denied").count() + after.matches("Read-only").count();
        assert_eq!(refused, 8, "{way}: everything is closed all the same: {said}");
        fs::set_permissions(room.task.home(), std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    }
}

/// A starter that says the first word, reads what the jail says and answers nothing.
struct Mute {
    socket: OwnedFd,
    launcher: Child,
    init: Option<OwnedFd>,
    fuse: Option<OwnedFd>,
}

impl Mute {
    fn start(plan: &Plan) -> Self {
        let (socket, theirs) =
            rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
        let mut text = fs::File::from(rustix::fs::memfd_create("plan", rustix::fs::MemfdFlags::CLOEXEC).unwrap());
        text.write_all(&serde_json::to_vec(plan).unwrap()).unwrap();
        text.rewind().unwrap();
        let launcher = Command::new(program("airlock-jail")).env_clear().stdin(theirs).stdout(text).spawn().unwrap();
        let begin = serde_json::to_vec(&jail_plan::Answer::Begin).unwrap();
        rustix::net::send(&socket, &begin, rustix::net::SendFlags::empty()).unwrap();
        let mut mute = Self { socket, launcher, init: None, fuse: None };
        while mute.fuse.is_none() {
            match mute.hear() {
                (Say::Born { .. }, fd) => mute.init = fd,
                (Say::Fuse, fd) => mute.fuse = fd,
                (said, _) => panic!("{said:?}"),
            }
        }
        mute
    }

    fn hear(&self) -> (Say, Option<OwnedFd>) {
        let mut buffer = vec![0; 64 << 10];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(8))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let flags = RecvFlags::CMSG_CLOEXEC;
        let got = rustix::net::recvmsg(&self.socket, &mut [IoSliceMut::new(&mut buffer)], &mut control, flags).unwrap();
        let fd = control.drain().find_map(|m| if let RecvAncillaryMessage::ScmRights(mut fds) = m { fds.next() } else { None });
        (serde_json::from_slice(&buffer[..got.bytes]).unwrap(), fd)
    }

    fn ended(&self) -> bool {
        let init = self.init.as_ref().unwrap();
        let mut poll = [rustix::event::PollFd::new(init, rustix::event::PollFlags::IN)];
        let now = rustix::event::Timespec { tv_sec: 0, tv_nsec: 0 };
        rustix::event::poll(&mut poll, Some(&now)).unwrap() == 1
    }
}

fn terminal_plan(room: &mut Room) -> Plan {
    room.stdio = model::run::Stdio::Terminal { cols: 80, rows: 24 };
    room.plan(&["/bin/true"])
}

#[test]
fn p11_a_set_up_that_waits_for_its_decoys_ends_with_a_kill() {
    let mut room = Room::new();
    let plan = terminal_plan(&mut room);
    if fs::File::open("/dev/fuse").is_err() {
        return not_tested_here("/dev/fuse");
    }
    let mut mute = Mute::start(&plan);
    assert!(!mute.ended(), "it waits for an answer");
    rustix::process::pidfd_send_signal(mute.init.as_ref().unwrap(), rustix::process::Signal::KILL).unwrap();
    eventually("the end", Duration::from_secs(20), || mute.ended().then_some(()));
    mute.launcher.wait().unwrap();
}

#[test]
fn p11_a_starter_that_goes_away_leaves_no_set_up_behind() {
    let mut room = Room::new();
    let plan = terminal_plan(&mut room);
    if fs::File::open("/dev/fuse").is_err() {
        return not_tested_here("/dev/fuse");
    }
    let mut mute = Mute::start(&plan);
    // Its socket and its end of the file system go; the process that would have been the parent stays.
    drop(mute.fuse.take());
    let (lone, _) = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None).unwrap();
    mute.socket = lone;
    eventually("the end", Duration::from_secs(20), || mute.ended().then_some(()));
    mute.launcher.wait().unwrap();
}

#[test]
fn p10_a_starter_that_cant_serve_gets_a_jail_that_says_so() {
    let mut room = Room::new();
    let plan = terminal_plan(&mut room);
    if fs::File::open("/dev/fuse").is_err() {
        return not_tested_here("/dev/fuse");
    }
    let mut mute = Mute::start(&plan);
    // As where no thread is left for it.
    drop(mute.fuse.take());
    let (said, _) = mute.hear();
    let Say::Ready { report, .. } = said else { panic!("{said:?}") };
    let decoys = report.status(jail_plan::Guarantee::Decoys).unwrap();
    assert!(decoys.reason().is_some_and(|r| r.contains("nobody answers") && r.contains("closed")), "{decoys:?}");
    assert!(matches!(decoys, jail_plan::Status::Absent { .. }), "{decoys:?}");
    rustix::process::pidfd_send_signal(mute.init.as_ref().unwrap(), rustix::process::Signal::KILL).unwrap();
    mute.launcher.wait().unwrap();
}
