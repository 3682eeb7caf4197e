//! A real FUSE mount in a mount namespace of a thread's own.
#![allow(clippy::disallowed_methods, reason = "tests start the programs that they observe")]

use super::*;
use crate::who::JailRef;
use nix::mount::{MsFlags, mount};
use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;

const WAIT: Duration = Duration::from_secs(20);

/// Mounts at `dir` in this thread's own namespace, so that nothing of it outlives the thread's children.
fn mounted(dir: &Path) -> Result<OwnedFd, String> {
    let nonblocking = libc::O_NONBLOCK;
    let fuse = std::fs::File::options().read(true).write(true).custom_flags(nonblocking).open("/dev/fuse");
    let fuse = fuse.map_err(|e| format!("/dev/fuse ({e})"))?;
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).map_err(|e| format!("a mount namespace ({e})"))?;
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).map_err(|e| format!("private mounts ({e})"))?;
    let options = format!("fd={},rootmode=40000,user_id=0,group_id=0,allow_other", fuse.as_raw_fd());
    mount(Some("decoy"), dir, Some("fuse"), MsFlags::MS_NOSUID | MsFlags::MS_NODEV, Some(options.as_str()))
        .map_err(|e| format!("a FUSE mount ({e})"))?;
    Ok(fuse.into())
}

/// Runs `work` on a thread that sees the mount; `None` (said) where this machine can't mount.
fn touched<T: Send + 'static>(
    places: &[(&str, Looks)],
    work: impl FnOnce(&Path) -> T + Send + 'static,
) -> Option<(Vec<Fact>, T)> {
    touched_with(places, work, |_| ())
}

fn touched_with<T: Send + 'static>(
    places: &[(&str, Looks)],
    work: impl FnOnce(&Path) -> T + Send + 'static,
    with: impl FnOnce(&Decoys),
) -> Option<(Vec<Fact>, T)> {
    let dir = tempfile::tempdir().unwrap();
    let at: PathBuf = dir.path().to_path_buf();
    let (tell, facts) = mpsc::channel();
    let (hand, handed) = mpsc::channel();
    let (go, gone) = mpsc::channel::<()>();
    let (finish, finished) = mpsc::channel();
    std::thread::spawn(move || {
        hand.send(mounted(&at)).unwrap();
        if gone.recv().is_ok() {
            finish.send(work(&at)).unwrap();
        }
    });
    let fuse = match handed.recv_timeout(WAIT).unwrap() {
        Ok(fuse) => fuse,
        Err(feature) => {
            println!("not tested here: {feature}");
            return None;
        }
    };
    let who = Who::new(JailRef { init_pid: std::process::id(), ..JailRef::default() }).unwrap();
    let places = places.iter().map(|(path, looks)| Hidden { path: (*path).into(), real: path.into(), looks: *looks }).collect();
    let decoys = Decoys::serve(fuse, places, (0, 0)).unwrap();
    with(&decoys);
    let decoys = decoys.tell(who, None, move |fact| drop(tell.send(fact))).unwrap();
    go.send(()).unwrap();
    let value = finished.recv_timeout(Duration::from_secs(60)).expect("no touch may wait for ever");
    drop(decoys);
    Some((facts.try_iter().collect(), value))
}

const SSH: &[(&str, Looks)] = &[("/home/u/.ssh", Looks::Directory)];

fn run(program: &str, args: &[&str], path: &Path) -> (bool, String) {
    let out = Command::new(program).args(args).arg(path).stdin(Stdio::null()).output().unwrap();
    (out.status.success(), String::from_utf8_lossy(&out.stderr).into_owned())
}

fn rows(facts: &[Fact]) -> Vec<(FileOp, String, Process)> {
    facts
        .iter()
        .filter_map(|fact| match fact {
            Fact::Decoy { process, op, path, .. } => Some((*op, path.to_string(), process.as_deref().cloned().expect("named"))),
            _ => None,
        })
        .collect()
}

#[test]
fn a_touch_is_refused_and_told_with_its_process() {
    let touches = touched(SSH, |dir| {
        let dir = &dir.join("0d");
        [
            run("ls", &[], dir),
            run("cat", &[], &dir.join("id_ed25519")),
            run("touch", &[], &dir.join("new")),
            run("mkdir", &[], &dir.join("d")),
        ]
    });
    let Some((facts, results)) = touches else { return };
    for (ok, text) in &results {
        assert!(!ok && text.contains("Permission denied"), "every touch is refused: {results:?}");
    }
    let rows = rows(&facts);
    let seen: HashSet<(String, String)> = rows.iter().map(|(_, path, who)| (who.program.to_string(), path.clone())).collect();
    for (program, path) in [("ls", ""), ("cat", "/id_ed25519"), ("touch", "/new"), ("mkdir", "/d")] {
        let path = format!("/home/u/.ssh{path}");
        assert!(seen.contains(&(program.to_owned(), path)), "{program} is named: {seen:?}");
    }
    let (_, _, cat) = rows.iter().find(|(_, _, who)| who.program == RawPath::from("cat")).unwrap();
    assert_eq!(cat.argv.len(), 2, "with its arguments: {cat:?}");
    let (who, what, _) = facts.first().cloned().unwrap().into_event_what();
    assert!(who.is_some());
    assert!(
        matches!(what, model::event::What::File { verdict: model::event::Verdict::Denied, ref rule, .. } if rule == "files.hide"),
        "{what:?}"
    );
}

#[test]
fn looking_at_a_place_is_silent() {
    let looks = touched(SSH, |root| {
        let dir = &root.join("0d");
        [
            run("stat", &[], dir),
            run("test", &["-r"], dir),
            run("ls", &["-lad"], dir),
            run("sh", &["-c", "cd \"$0\""], dir),
            run("stat", &["-f"], dir),
            run("stat", &[], &root.join("0f")),
            run("test", &["-d"], dir),
        ]
    });
    let Some((facts, results)) = looks else { return };
    assert!(results.iter().all(|(ok, _)| *ok), "a place looks like a directory: {results:?}");
    assert_eq!(facts, [], "nobody touched anything");
}

#[test]
fn numbered_places_are_told_by_their_own_names_and_repeats_are_counted() {
    let places = [("/home/u/.ssh", Looks::Directory), ("/home/u/.aws", Looks::Directory)];
    let touches = touched(&places, |dir| {
        let key = dir.join("1d/credentials");
        for _ in 0..500 {
            std::fs::read(&key).unwrap_err();
        }
        (std::fs::read(dir.join("0d/id")).unwrap_err().kind(), std::fs::metadata(dir.join("2d")).unwrap_err().kind())
    });
    let Some((facts, (inside, beyond))) = touches else { return };
    assert_eq!(inside, std::io::ErrorKind::PermissionDenied);
    assert_eq!(beyond, std::io::ErrorKind::NotFound, "there is no third place");
    let count = |wanted: &str| -> (usize, u64) {
        let counts: Vec<u64> = facts
            .iter()
            .filter_map(|fact| match fact {
                // On a machine that is busy naming has had its share, and the rest is told by place.
                Fact::Decoy { path, count, .. } if path.to_string().starts_with(wanted) => Some(*count),
                _ => None,
            })
            .collect();
        (counts.len(), counts.iter().sum())
    };
    let (rows, total) = count("/home/u/.aws");
    assert_eq!(total, 500, "each is counted: {facts:?}");
    assert!(rows < 50, "and told in few rows: {rows}");
    assert_eq!(count("/home/u/.ssh"), (1, 1));
}

#[test]
fn a_file_is_refused_or_gone_when_it_is_opened() {
    let places = [("/home/u/.pypirc", Looks::File), ("/home/u/.netrc", Looks::Gone)];
    let touches = touched(&places, |dir| {
        let (file, gone) = (dir.join("0f"), dir.join("1f"));
        assert!([&file, &gone].iter().all(|f| std::fs::metadata(f).unwrap().is_file()), "both look like files");
        [
            std::fs::read(&file).unwrap_err().raw_os_error(),
            std::fs::read(&gone).unwrap_err().raw_os_error(),
            std::fs::write(&file, "x").unwrap_err().raw_os_error(),
            nix::sys::stat::lstat(&file.join("below")).err().map(|e| e as i32),
        ]
    });
    let Some((facts, errors)) = touches else { return };
    assert_eq!(errors, [libc::EACCES, libc::ENOENT, libc::EACCES, libc::ENOTDIR].map(Some));
    let told: Vec<_> = rows(&facts).into_iter().map(|(op, path, _)| (op, path)).collect();
    let row = |op, path: &str| (op, path.to_owned());
    let wanted =
        [row(FileOp::Read, "/home/u/.pypirc"), row(FileOp::Read, "/home/u/.netrc"), row(FileOp::Write, "/home/u/.pypirc")];
    assert_eq!(told, wanted);
}

#[test]
fn whatever_is_tried_on_a_place_is_refused_and_told_by_its_name() {
    let touches = touched(SSH, |root| {
        let dir = root.join("0d");
        let long = "n".repeat(255);
        let names: [&[u8]; 4] = [b"a\nb", b"\xff\xfe", long.as_bytes(), b"id \x1b[2J"];
        for name in names {
            let error = std::fs::symlink_metadata(dir.join(OsStr::from_bytes(name))).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EACCES), "{name:?}");
        }
        let temporary = std::fs::File::options().write(true).custom_flags(libc::O_TMPFILE).open(&dir).unwrap_err();
        let mode = std::fs::set_permissions(&dir, std::os::unix::fs::PermissionsExt::from_mode(0o777)).unwrap_err();
        let listed = std::fs::read_dir(root).map(|_| ()).unwrap_err();
        let deep = std::fs::read(dir.join("a/b/c")).unwrap_err();
        [temporary, mode, listed, deep].map(|e| e.raw_os_error())
    });
    let Some((facts, errors)) = touches else { return };
    assert_eq!(errors, [Some(libc::EACCES); 4]);
    let told: Vec<(FileOp, RawPath)> = facts
        .iter()
        .filter_map(|fact| match fact {
            Fact::Decoy { op, path, .. } => Some((*op, path.clone())),
            _ => None,
        })
        .collect();
    let below = |name: &[u8]| RawPath([b"/home/u/.ssh/", name].concat());
    for name in [b"a\nb".as_slice(), b"\xff\xfe", "n".repeat(255).as_bytes(), b"id \x1b[2J", b"a"] {
        assert!(told.contains(&(FileOp::Read, below(name))), "{name:?} is told as it is: {told:?}");
    }
    for op in [FileOp::Create, FileOp::Change] {
        assert!(told.contains(&(op, "/home/u/.ssh".into())), "{op:?}: {told:?}");
    }
    assert_eq!(told.len(), 7, "and nothing else, the root least of all: {told:?}");
}

#[test]
fn what_nobody_serves_is_closed() {
    let (tell, told) = mpsc::channel();
    let work = move |root: &Path| {
        let held = std::fs::File::options().read(true).custom_flags(libc::O_PATH).open(root.join("0d")).unwrap();
        let closer: Closer = told.recv().unwrap();
        closer.close();
        let errors = [std::fs::read(root.join("0d/id")), std::fs::read(root.join("0f")), std::fs::read(root.join("1d"))];
        let through = std::fs::read_dir(format!("/proc/self/fd/{}", held.as_raw_fd())).map(|_| Vec::new());
        errors.into_iter().chain([through]).map(|e| e.unwrap_err().raw_os_error().unwrap()).collect::<Vec<_>>()
    };
    let Some((_, errors)) = touched_with(SSH, work, move |decoys| tell.send(decoys.closer()).unwrap()) else { return };
    for error in errors {
        assert!([libc::ENOTCONN, libc::ECONNABORTED, libc::EACCES].contains(&error), "{error}");
    }
}
