//! Generations: what is in one, that it stays as it is, and when it goes.
#![allow(clippy::unwrap_used, reason = "tests")]
use super::*;
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

const LIMITS: Limits = Limits { files: 10_000, bytes: 1 << 30, reserve: 0, until: None };

struct Room {
    _dir: tempfile::TempDir,
    root: PathBuf,
    live: PathBuf,
}

/// An npm cache with one tarball and one list.
fn room() -> Room {
    let dir = tempfile::tempdir().unwrap();
    let (root, live) = (dir.path().join("caches"), dir.path().join("live"));
    write(&live.join("content-v2/sha512/aa/one"), "tarball one");
    write(&live.join("index-v5/bb/list"), "entry one\n");
    Room { _dir: dir, root, live }
}

fn write(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

impl Room {
    fn refresh(&self) -> Result<Made, NotMade> {
        refresh(&self.root, "npm", &self.live, &LIMITS, 1_000, &|_| true)
    }

    fn changed(&self) -> bool {
        changed(&self.root, "npm", &self.live, 1_000)
    }

    fn numbers(&self) -> Vec<u64> {
        let mut all: Vec<u64> = names(&self.root.join("npm")).iter().filter_map(|n| n.parse().ok()).collect();
        all.sort_unstable();
        all
    }
}

fn names(dir: &Path) -> Vec<String> {
    fs::read_dir(dir).into_iter().flatten().map(|e| e.unwrap().file_name().into_string().unwrap()).collect()
}

/// Everything below: content, mode and time.
fn listing(dir: &Path) -> BTreeMap<PathBuf, String> {
    let mut all = BTreeMap::new();
    let mut todo = vec![dir.to_owned()];
    while let Some(path) = todo.pop() {
        let meta = fs::symlink_metadata(&path).unwrap();
        if meta.is_dir() {
            todo.extend(fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()));
        }
        let content = if meta.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
        all.insert(path, format!("{:o} {} {} {content:?}", meta.mode(), meta.mtime(), meta.mtime_nsec()));
    }
    all
}

#[test]
fn p1_a_generation_never_changes_and_neither_does_the_live_cache() {
    let room = room();
    assert!(room.changed());
    let before = listing(&room.live);
    let made = room.refresh().unwrap();
    assert_eq!((made.counts.files, made.counts.skipped.len()), (2, 0), "{made:?}");
    assert_eq!(listing(&room.live), before, "copying changes nothing of the person's");
    assert!(!room.changed());

    let held = hold(&room.root, "npm").unwrap();
    let generation = listing(&held.path);
    // A person's tool works on: a list grows in place, content comes and goes.
    use std::io::Write as _;
    fs::OpenOptions::new().append(true).open(room.live.join("index-v5/bb/list")).unwrap().write_all(b"entry two\n").unwrap();
    write(&room.live.join("content-v2/sha512/cc/two"), "tarball two");
    fs::remove_file(room.live.join("content-v2/sha512/aa/one")).unwrap();
    assert_eq!(listing(&held.path), generation, "what the live cache becomes is another generation's");
    assert!(room.changed());
    room.refresh().unwrap();
    assert_eq!(listing(&held.path), generation);
    let new = hold(&room.root, "npm").unwrap();
    assert_eq!(fs::read_to_string(new.path.join("index-v5/bb/list")).unwrap(), "entry one\nentry two\n");
    assert!(new.path.join("content-v2/sha512/cc/two").exists() && !new.path.join("content-v2/sha512/aa/one").exists());
}

#[test]
fn a_new_generation_shares_what_did_not_change() {
    let room = room();
    room.refresh().unwrap();
    let first = hold(&room.root, "npm").unwrap();
    write(&room.live.join("content-v2/sha512/cc/two"), "tarball two");
    let made = room.refresh().unwrap();
    assert_eq!(made.counts.copied, 0, "nothing is copied twice: {made:?}");
    let second = hold(&room.root, "npm").unwrap();
    let inode = |held: &Held, file: &str| fs::metadata(held.path.join(file)).unwrap().ino();
    assert_eq!(inode(&first, "index-v5/bb/list"), inode(&second, "index-v5/bb/list"));
    assert_ne!(inode(&second, "index-v5/bb/list"), fs::metadata(room.live.join("index-v5/bb/list")).unwrap().ino());
}

#[test]
fn a_generation_in_use_stays_and_goes_when_nobody_has_it() {
    let room = room();
    room.refresh().unwrap();
    let held = hold(&room.root, "npm").unwrap();
    for _ in 0..2 {
        room.refresh().unwrap();
    }
    assert_eq!(room.numbers(), [1, 3], "the one in use and the newest");
    drop(held);
    clean_up(&room.root);
    assert_eq!(room.numbers(), [3]);
    assert_eq!(names(&room.live).len(), 2, "and nothing of the person's went with it");
    assert_eq!(fs::read_to_string(room.live.join("content-v2/sha512/aa/one")).unwrap(), "tarball one");
}

#[test]
fn p11_a_killed_copy_leaves_nothing_that_counts() {
    let room = room();
    room.refresh().unwrap();
    let half = room.root.join("npm").join(MAKING);
    write(&half.join("content-v2/sha512/aa/one"), "ha");
    write(&room.root.join("npm").join(format!("{GOING}1")).join("x"), "y");
    let before = hold(&room.root, "npm").unwrap();
    assert!(before.path.ends_with("1"));
    clean_up(&room.root);
    assert_eq!(names(&room.root.join("npm")).iter().filter(|n| n.starts_with('.')).count(), 0);
    write(&half.join("content-v2/sha512/aa/one"), "ha");
    room.refresh().unwrap();
    let held = hold(&room.root, "npm").unwrap();
    assert_eq!(fs::read_to_string(held.path.join("content-v2/sha512/aa/one")).unwrap(), "tarball one");
    // A copy that is under way is not taken away from whoever makes it.
    let maker = open_dir(&room.root.join("npm")).unwrap();
    rustix::fs::flock(&maker, FlockOperation::NonBlockingLockExclusive).unwrap();
    write(&half.join("x"), "");
    clean_up(&room.root);
    assert!(half.exists());
    assert!(matches!(room.refresh(), Err(NotMade::Busy)));
}

#[test]
fn what_is_too_much_leaves_the_generation_before() {
    let room = room();
    room.refresh().unwrap();
    write(&room.live.join("index-v5/cc/list"), &"x".repeat(5000));
    for limits in [
        Limits { files: 3, ..LIMITS },
        Limits { bytes: 4096, ..LIMITS },
        Limits { reserve: u64::MAX, ..LIMITS },
        Limits { until: Some(std::time::Instant::now()), ..LIMITS },
    ] {
        let stopped = refresh(&room.root, "npm", &room.live, &limits, 1_000, &|_| true);
        assert!(matches!(stopped, Err(NotMade::Stop(_))), "{limits:?}: {stopped:?}");
    }
    assert!(matches!(refresh(&room.root, "npm", &room.live, &LIMITS, 1_000, &|_| false), Err(NotMade::Stop(Stop::Stopped))));
    assert_eq!(room.numbers(), [1]);
    assert!(!room.root.join("npm").join(MAKING).exists() && room.changed());
}

#[test]
fn p2_secrets_and_odd_files_are_in_no_generation() {
    let room = room();
    write(&room.live.join("index-v5/cc/login"), "{\"key\":\"https://jo:hunter2@registry.test/a\"}");
    write(&room.live.join("index-v5/cc/token"), "//registry.test/:_authToken=npm_0123456789");
    write(&room.live.join("index-v5/.npmrc"), "registry = x");
    write(&room.live.join("auth.json"), "{}");
    write(&room.live.join("content-v2/setuid"), "program");
    fs::set_permissions(room.live.join("content-v2/setuid"), fs::Permissions::from_mode(0o4755)).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, room.live.join("content-v2/fifo"), rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
    symlink("/etc/passwd", room.live.join("content-v2/link")).unwrap();
    symlink(room.live.join("index-v5"), room.live.join("content-v2/dir")).unwrap();
    let made = room.refresh().unwrap();
    let held = hold(&room.root, "npm").unwrap();
    let all = listing(&held.path);
    assert!(!all.values().any(|v| v.contains("hunter2") || v.contains("_authToken")), "{all:#?}");
    let has = |name: &str| fs::symlink_metadata(held.path.join(name)).is_ok();
    assert!(!has("index-v5/.npmrc") && !has("auth.json") && !has("content-v2/setuid") && !has("content-v2/fifo"));
    assert!(fs::symlink_metadata(held.path.join("content-v2/link")).unwrap().is_symlink(), "a link is a link");
    assert_eq!(made.counts.skipped.get("it may hold a secret"), Some(&4), "{made:?}");
    assert_eq!(made.counts.skipped.get("a FIFO"), Some(&1), "{made:?}");
}

#[test]
fn a_cache_that_a_link_leads_to_is_none() {
    let room = room();
    let link = room.live.with_file_name("link");
    symlink(&room.live, &link).unwrap();
    assert!(matches!(refresh(&room.root, "npm", &link, &LIMITS, 1_000, &|_| true), Err(NotMade::Io { .. })));
    assert!(matches!(refresh(&room.root, "no-such", &room.live, &LIMITS, 1_000, &|_| true), Err(NotMade::Unknown(_))));
}
