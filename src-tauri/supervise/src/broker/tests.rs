//! What a broker takes apart before it acts: addresses, paths, descriptors.
#![allow(clippy::unwrap_used, reason = "tests")]
use super::flows::{Flows, Written, path_of};
use super::places::{End, Places, own_descriptor};
use super::{Broker, Made, Memory, QUEUE, Reach, WORKERS, made};
use crate::who::{JailRef, Who};
use model::event::{Origin, Process};
use nix::errno::Errno;
use nix::libc;
use rustix::fs::{Mode, OFlags};
use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;
use sys::seccomp_notify::{NATIVE_ARCH, Notification};

fn process(pid: u32) -> Arc<Process> {
    let exe = || "/usr/bin/curl".into();
    Arc::new(Process { pid, parent: 1, program: exe(), exe: exe(), origin: Origin::System, argv: vec![], ancestry: vec![] })
}

fn at(text: &str) -> SocketAddr {
    text.parse().unwrap()
}

/// Memory in which every reader hangs.
struct Stuck;

impl Memory for Stuck {
    fn read(&self, _: u32, _: u64, _: &mut [u8]) -> usize {
        loop {
            std::thread::park();
        }
    }
}

#[test]
fn calls_that_nobody_gets_to_are_bounded() {
    let me = std::process::id();
    let who = Who::new(JailRef { init_pid: me, ..JailRef::default() }).unwrap();
    let listener = rustix::event::eventfd(0, rustix::event::EventfdFlags::CLOEXEC).unwrap();
    let broker = Broker::start(listener, Reach { roots: vec![], way_out: None }, who, Box::new(Stuck)).unwrap();
    let call = Notification { id: 1, tid: me, nr: libc::SYS_connect, arch: NATIVE_ARCH, args: [0, 4096, 16, 0, 0, 0] };
    let taken = (0..2 * QUEUE).take_while(|_| broker.take(&call)).count();
    assert!((QUEUE..=QUEUE + WORKERS).contains(&taken), "{taken} calls wait");
}

#[test]
fn p4_a_flow_is_taken_once_by_exactly_where_it_comes_from_and_the_newest_counts() {
    let flows = Flows::default();
    flows.put(at("127.0.0.1:4000"), at("192.0.2.1:443"), process(1));
    flows.put(at("[::ffff:127.0.0.1]:4001"), at("[2001:db8::1]:80"), process(2));
    assert_eq!(flows.take(at("127.0.0.1:4002")), None, "a stranger");
    assert_eq!(flows.take(at("127.0.0.2:4000")), None, "another address");
    assert_eq!(flows.take(at("127.0.0.1:4001")).map(|(to, p)| (to, p.pid)), Some((at("[2001:db8::1]:80"), 2)));
    flows.put(at("127.0.0.1:4000"), at("192.0.2.2:22"), process(3));
    assert_eq!(flows.take(at("127.0.0.1:4000")).map(|(to, p)| (to, p.pid)), Some((at("192.0.2.2:22"), 3)));
    assert_eq!(flows.take(at("127.0.0.1:4000")), None, "the older one is not kept beside it");
    for port in 0..10_000 {
        flows.put(SocketAddr::new(at("127.0.0.1:0").ip(), port), at("192.0.2.1:1"), process(4));
    }
    assert_eq!(flows.take(at("127.0.0.1:0")), None, "the list has an end, and the oldest go");
    assert!(flows.take(at("127.0.0.1:9999")).is_some());
}

#[test]
fn p6_only_a_name_in_the_file_system_is_a_name() {
    let written = |family: i32, path: &[u8]| Written {
        family: u16::try_from(family).unwrap(),
        bytes: [&u16::try_from(family).unwrap().to_ne_bytes()[..], path].concat(),
    };
    assert_eq!(path_of(&written(libc::AF_UNIX, b"/run/x\0rest")), Ok(&b"/run/x"[..]), "it ends where the kernel ends it");
    for shared in [&b""[..], b"\0", b"\0/run/x", b"\0bus"] {
        assert_eq!(path_of(&written(libc::AF_UNIX, shared)), Err(Errno::EACCES), "{shared:?}");
    }
    for family in [libc::AF_UNSPEC, libc::AF_INET, libc::AF_NETLINK] {
        assert_eq!(path_of(&written(family, b"/run/x")), Err(Errno::EINVAL));
    }
}

#[test]
fn a_path_by_descriptor_is_the_callers_and_no_other_of_proc_is() {
    for (path, number) in [("/proc/self/fd/7", 7), ("/dev/fd/0", 0), ("/proc/thread-self/fd/12", 12)] {
        assert_eq!(own_descriptor(path.as_bytes()), Some(number), "{path}");
    }
    for path in ["/proc/self/fd/", "/proc/self/fd/-1", "/proc/1/fd/7", "/proc/self/fd/7/x", "/proc/self/fd/99999999999", "fd/7"] {
        assert_eq!(own_descriptor(path.as_bytes()), None, "{path}");
    }
}

#[test]
fn p1_what_is_found_lies_beneath_and_what_leads_out_is_not_found() {
    let dir = tempfile::tempdir().unwrap();
    let (root, inner, outside) = (dir.path().join("root"), dir.path().join("root/inner"), dir.path().join("outside"));
    for d in [&inner, &outside] {
        std::fs::create_dir_all(d).unwrap();
    }
    for f in [root.join("file"), inner.join("file"), outside.join("file")] {
        std::fs::write(f, "").unwrap();
    }
    symlink(outside.join("file"), root.join("absolute")).unwrap();
    symlink("../outside/file", root.join("relative")).unwrap();
    symlink("../outside", root.join("directory")).unwrap();
    symlink("inner/file", root.join("within")).unwrap();
    let places = Places::open(&[root.clone(), inner.clone()]).unwrap();
    let finds = |path: &Path| places.find(path, End::Followed).map(drop);
    for good in [root.join("file"), root.join("within"), inner.join("file"), root.clone()] {
        assert_eq!(finds(&good), Ok(()), "{}", good.display());
    }
    let one = Places::open(std::slice::from_ref(&root)).unwrap();
    assert!(one.find(&root.join("inner/../file"), End::Followed).is_ok(), "up and down again within one root");
    for bad in [
        outside.join("file"),
        root.join("absolute"),
        root.join("relative"),
        root.join("directory/file"),
        root.join("../outside/file"),
        root.join("inner/../../outside/file"),
        // A nearer root is no way past it.
        inner.join("../file"),
        dir.path().join("rootless/file"),
        "relative".into(),
        "/".into(),
    ] {
        assert!(matches!(finds(&bad), Err(Errno::EACCES | Errno::ENOENT)), "{}: {:?}", bad.display(), finds(&bad));
    }
    assert!(places.find(&root.join("absolute"), End::Itself).is_ok(), "a link itself is its own");
    let open = |path: &Path| -> OwnedFd { rustix::fs::open(path, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty()).unwrap() };
    assert!(places.same(&open(&root.join("file"))).is_ok());
    assert!(places.same(&open(&outside.join("file"))).is_err(), "a descriptor of something outside");
    let moved = open(&root.join("file"));
    std::fs::rename(root.join("file"), outside.join("moved")).unwrap();
    std::fs::write(root.join("file"), "").unwrap();
    assert!(places.same(&moved).is_err(), "what was beneath and is not");
    assert!(Places::open(&[root.join("directory")]).is_err(), "a root is no link");
}

#[test]
fn what_is_made_is_what_the_list_says() {
    let list = if cfg!(target_arch = "aarch64") {
        include_str!("../../../../policies/seccomp/aarch64.json")
    } else {
        include_str!("../../../../policies/seccomp/x86_64.json")
    };
    let listed = include_str!("../../../../policies/seccomp/notify.json");
    let [list, listed] = [list, listed].map(|text| serde_json::from_str::<serde_json::Value>(text).unwrap());
    for line in list["syscalls"].as_array().unwrap() {
        let named = listed["made"].as_array().unwrap().iter().any(|call| call["name"] == line["name"]);
        let taken: Option<Made> = made(line["nr"].as_i64().unwrap());
        assert_eq!(taken.is_some(), named, "{}: told to wait, and made, or neither", line["name"]);
    }
}
