//! Caches of the person: seen, written over in a layer of the task's own, and never changed themselves.

use crate::room::{Room, good};
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use supervise::compose::Layered;
use testkit::treehash::treehash;

const SHOWN: &str = ".npm/_cacache";

/// A live cache, a generation that shares its files (the case that could do harm), and a layer for one task.
struct Cached {
    room: Room,
    live: PathBuf,
    lower: PathBuf,
    private: PathBuf,
}

fn cached() -> Cached {
    let mut room = Room::new();
    let live = room.home.join(SHOWN);
    let lower = room.layout.data.join("caches/npm/1");
    let private = room.task.path().join("caches/npm");
    for dir in [&live.join("content/aa"), &live.join("empty"), &lower.join("content/aa"), &lower.join("empty")] {
        fs::create_dir_all(dir).unwrap();
    }
    for file in ["content/aa/one", "content/aa/two", "top"] {
        fs::write(live.join(file), format!("{file} of the person\n")).unwrap();
        fs::hard_link(live.join(file), lower.join(file)).unwrap();
    }
    layer(&private);
    room.grants.caches =
        vec![Layered { name: "npm".into(), lower: lower.clone(), private: private.clone(), target: live.clone() }];
    Cached { room, live, lower, private }
}

fn layer(private: &Path) {
    for dir in ["upper", "work"] {
        fs::create_dir_all(private.join(dir)).unwrap();
    }
}

/// Whether the jail's own report says that the cache is there; why not, else.
fn told(room: &Room) -> Result<(), String> {
    let running = room.start(&["/bin/true"], |_| ()).unwrap();
    let caches = running.jail.report.caches.clone();
    assert_eq!(caches.len(), 1, "{caches:?}");
    drop(running.finish());
    assert_eq!(caches[0].shown, caches[0].reason.is_none(), "{caches:?}");
    caches[0].reason.clone().map_or(Ok(()), Err)
}

#[test]
fn p1_a_cache_is_read_and_written_and_stays_as_it_is() {
    let Cached { room, live, lower, private } = cached();
    let before = (treehash(&live).unwrap(), treehash(&lower).unwrap());
    // Every way to write that a shell has.
    let went = room.sh(&format!(
        "set -e; cd ~/{SHOWN}; cat content/aa/one; echo mine >> content/aa/one; echo new > content/aa/new; mkdir deep; echo x > deep/x; \
         rm content/aa/two; rmdir empty; mv top moved; chmod 777 content; touch -d 2001-01-01 content/aa; ln content/aa/one linked; \
         truncate -s 1 linked; cat content/aa/one; ls content/aa | tr '\\n' ' '"
    ));
    assert_eq!(good(&went), "content/aa/one of the person\ncnew one ", "it works as a cache does: {went:?}");
    assert_eq!(told(&room), Ok(()));
    for (hash, place) in [(before.0, &live), (before.1, &lower)] {
        let now = treehash(place).unwrap();
        assert_eq!(hash.total, now.total, "{}: {:#?}", place.display(), hash.difference(&now));
    }
    let me = nix::unistd::geteuid().as_raw();
    assert_eq!(fs::metadata(private.join("upper/content/aa/new")).unwrap().uid(), me, "what it adds belongs to the person");

    // The task finds it again, another one does not.
    let read = format!("cd ~/{SHOWN}; cat content/aa/new deep/x; ls");
    assert_eq!(good(&room.sh(&read)), "new\nx\ncontent\ndeep\nlinked\nmoved\n");
    let mut other = room;
    let private = other.task.path().join("caches/other");
    layer(&private);
    other.grants.caches[0].private = private;
    assert_eq!(
        good(&other.sh(&format!("cd ~/{SHOWN}; find . -type f | sort | tr '\\n' ' '"))),
        "./content/aa/one ./content/aa/two ./top "
    );
}

#[test]
fn p1_no_call_reaches_what_the_person_shares_with_a_cache() {
    let Cached { room, live, .. } = cached();
    let before = treehash(&live).unwrap();
    let ids: Vec<u64> = ["content/aa/one", "top"].map(|f| fs::metadata(live.join(f)).unwrap().ino()).to_vec();
    let script = format!(
        r#"
import os, sys, mmap, fcntl, ctypes
os.chdir(os.path.expanduser("~/{SHOWN}"))
tried = []
def attempt(name, call):
    try: call(); tried.append(name + " done")
    except OSError as e: tried.append(name + " refused")
f = "content/aa/one"
# Descriptors that were open for reading before anything was copied up.
held = os.open(f, os.O_RDONLY); root = os.open(".", os.O_RDONLY)
attempt("fchmod", lambda: os.fchmod(held, 0o777))
attempt("futimens", lambda: os.utime(held, (1, 1)))
attempt("fsetxattr", lambda: os.setxattr(held, "user.mine", b"1"))
attempt("fchmod of the root", lambda: os.fchmod(root, 0o700))
attempt("utime of the root", lambda: os.utime(root, (1, 1)))
attempt("reopening for writing", lambda: os.write(os.open("/proc/self/fd/%d" % held, os.O_RDWR), b"MINE"))
attempt("ftruncate", lambda: os.ftruncate(held, 0))
def shared():
    fd = os.open("top", os.O_RDWR); m = mmap.mmap(fd, 0, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE); m[0:4] = b"MINE"; m.flush()
attempt("a shared mapping", shared)
def mapped_before():
    m = mmap.mmap(os.open("content/aa/two", os.O_RDONLY), 0, mmap.MAP_SHARED, mmap.PROT_READ)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
    address = next(int(l.split("-")[0], 16) for l in open("/proc/self/maps") if "content/aa/two" in l)
    if libc.mprotect(address, 4096, 3): raise OSError(ctypes.get_errno(), "mprotect")
    m[0:4] = b"MINE"
attempt("a mapping made writable", mapped_before)
attempt("a link into the workspace", lambda: os.link("top", os.path.join(os.environ["PWD"], "linked")))
attempt("a rename into the workspace", lambda: os.rename("top", os.path.join(os.environ["PWD"], "moved")))
attempt("chown", lambda: os.chown("content/aa/two", os.getuid(), os.getgid()))
attempt("setxattr", lambda: os.setxattr("content", "user.overlay.opaque", b"y"))
attempt("inode flags", lambda: fcntl.ioctl(held, 0x40086602, b"\x20\0\0\0\0\0\0\0"))
attempt("a lock", lambda: fcntl.flock(held, fcntl.LOCK_EX))
attempt("a device", lambda: os.mknod("content/dev", 0o020666, os.makedev(1, 3)))
attempt("a whiteout", lambda: os.mknod("content/aa/white", 0o020000, 0))
attempt("the layers", lambda: os.listdir("/run/airlock/layers/lower/content") or os.listdir("/run/airlock/layers/private/upper"))
for d in ("/run/airlock/layers/lower", "/run/airlock/layers/private"):
    assert not os.path.exists(d) or not os.listdir(d), d
print("\n".join(tried))
"#
    );
    fs::write(room.task.tree().join("try.py"), script).unwrap();
    let went = room.sh("exec python3 ./try.py");
    let out = good(&went).to_owned();
    for (name, how) in [("fchmod", "done"), ("reopening for writing", "done"), ("a shared mapping", "done"), ("a lock", "done")] {
        assert!(out.contains(&format!("{name} {how}")), "the attempt was made: {out}");
    }
    for name in [
        "ftruncate",
        "a link into the workspace",
        "a rename into the workspace",
        "a mapping made writable",
        "a device",
        "a whiteout",
        "the layers",
    ] {
        assert!(out.contains(&format!("{name} refused")), "{out}");
    }
    let after = treehash(&live).unwrap();
    assert_eq!(before.total, after.total, "the person's own files are as they were: {:#?}", before.difference(&after));
    assert_eq!(ids, ["content/aa/one", "top"].map(|f| fs::metadata(live.join(f)).unwrap().ino()), "and are the same files");
    // A lock that a jail takes keeps nobody outside waiting.
    let running = room.start(&["/bin/sh", "-c", &format!("exec flock ~/{SHOWN}/top sleep 60")], |_| ()).unwrap();
    testkit::eventually("the jail has its lock", std::time::Duration::from_secs(60), || {
        (running.jail.processes().len() > 2).then_some(())
    });
    let outside = fs::File::open(live.join("top")).unwrap();
    rustix::fs::flock(&outside, rustix::fs::FlockOperation::NonBlockingLockExclusive).expect("the person's file is not locked");
}

#[test]
fn an_overlay_that_cannot_be_is_left_out_whole_and_told() {
    let refused = |change: &dyn Fn(&mut Cached)| {
        let mut it = cached();
        change(&mut it);
        let before = treehash(&it.live).unwrap();
        let why = told(&it.room).expect_err("such a cache is not shown");
        let went = it.room.sh(&format!("ls ~/{SHOWN} 2>/dev/null; ls -A /run/airlock/layers/* 2>/dev/null | grep -v :; true"));
        assert_eq!(good(&went).trim(), "", "nothing of it is there: {went:?}");
        assert_eq!(before.total, treehash(&it.live).unwrap().total);
        why
    };
    let why = refused(&|it| fs::remove_dir_all(&it.lower).unwrap());
    assert!(why.contains("can't be taken"), "{why}");
    let why = refused(&|it| fs::remove_dir_all(it.private.join("upper")).unwrap());
    assert!(why.contains("upper"), "{why}");
    // What an attacker could leave in a layer's place.
    let why = refused(&|it| {
        fs::remove_dir_all(it.private.join("upper")).unwrap();
        symlink(&it.live, it.private.join("upper")).unwrap();
    });
    assert!(why.contains("`upper` is odd"), "{why}");
    let why = refused(&|it| {
        fs::remove_dir_all(it.private.join("work")).unwrap();
        symlink(&it.room.root, it.private.join("work")).unwrap();
    });
    assert!(why.contains("`work` is odd"), "{why}");
    let why = refused(&|it| {
        fs::remove_dir_all(&it.private).unwrap();
        symlink(&it.live, &it.private).unwrap();
    });
    assert!(!why.is_empty());
    let why = refused(&|it| {
        fs::remove_dir(it.private.join("upper")).unwrap();
        nix::unistd::mkfifo(&it.private.join("upper"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    });
    assert!(why.contains("`upper` is odd"), "{why}");
}

#[test]
fn a_link_in_the_private_home_costs_the_cache_and_leads_nowhere() {
    let Cached { room, live, .. } = cached();
    let victim = room.root.join("victim");
    fs::create_dir_all(victim.join("_cacache")).unwrap();
    let before = treehash(&victim).unwrap();
    symlink(&victim, room.task.home().join(".npm")).unwrap();
    let why = told(&room).expect_err("a link is not followed");
    assert!(why.contains("odd is in its way"), "{why}");
    assert_eq!(treehash(&victim).unwrap().total, before.total);
    fs::remove_file(room.task.home().join(".npm")).unwrap();
    assert_eq!(told(&room), Ok(()), "and {} is shown again", live.display());
}

#[test]
fn a_layer_that_a_run_left_odd_does_not_reach_further() {
    let Cached { room, private, live, .. } = cached();
    // Everything that a run can leave in its own layer, and what only somebody outside could.
    good(&room.sh(&format!("cd ~/{SHOWN}; rm -rf content; mkdir content; ln -s / content/root; mkfifo fifo; chmod 0 .")));
    let upper = private.join("upper");
    fs::set_permissions(&upper, fs::Permissions::from_mode(0o700)).unwrap();
    rustix::fs::setxattr(&upper, "user.overlay.redirect", b"/../../..", rustix::fs::XattrFlags::empty()).unwrap();
    fs::create_dir_all(upper.join("empty")).unwrap();
    rustix::fs::setxattr(upper.join("empty"), "user.overlay.redirect", b"/content", rustix::fs::XattrFlags::empty()).unwrap();
    let before = treehash(&live).unwrap();
    let went = room.sh(&format!(
        "cd ~/{SHOWN}; ls || echo refused; ls content empty; cat content/root/{} 2>/dev/null; true",
        room.home.join("diary").display()
    ));
    // Older kernels refuse what newer ones pass over.
    assert!(good(&went).contains("fifo") || went.out.contains("refused"), "{went:?}");
    assert!(!went.out.contains(crate::room::SECRET), "{went:?}");
    assert!(!went.out.contains("aa"), "the directory that it replaced stays replaced: {went:?}");
    assert_eq!(before.total, treehash(&live).unwrap().total);
}
