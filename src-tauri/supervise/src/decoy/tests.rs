//! A real FUSE mount in a mount namespace of a thread's own.
#![allow(clippy::disallowed_methods, reason = "tests start the programs that they observe")]

use super::*;
use crate::who::JailRef;
use model::event::Process;
use nix::mount::{MsFlags, mount};
use std::collections::HashSet;
use std::os::fd::AsRawFd;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::mpsc;

const WAIT: Duration = Duration::from_secs(20);

/// Mounts at `dir` in this thread's own namespace, so that nothing of it outlives the thread's children.
fn mounted(dir: &Path) -> Result<OwnedFd, String> {
    let fuse = std::fs::File::options().read(true).write(true).open("/dev/fuse").map_err(|e| format!("/dev/fuse ({e})"))?;
    nix::sched::unshare(nix::sched::CloneFlags::CLONE_NEWNS).map_err(|e| format!("a mount namespace ({e})"))?;
    let none = None::<&str>;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none).map_err(|e| format!("private mounts ({e})"))?;
    let options = format!("fd={},rootmode=40000,user_id=0,group_id=0,allow_other", fuse.as_raw_fd());
    mount(Some("decoy"), dir, Some("fuse"), MsFlags::MS_NOSUID | MsFlags::MS_NODEV, Some(options.as_str()))
        .map_err(|e| format!("a FUSE mount ({e})"))?;
    Ok(fuse.into())
}

/// Runs `work` on a thread that sees the mount; `None` (said) where this machine can't mount.
fn touched<T: Send + 'static>(places: Places, work: impl FnOnce(&Path) -> T + Send + 'static) -> Option<(Vec<Fact>, T)> {
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
    let decoys = Decoys::serve(fuse, places, (0, 0), who, move |fact| drop(tell.send(fact))).unwrap();
    go.send(()).unwrap();
    let value = finished.recv_timeout(Duration::from_secs(60)).expect("no touch may wait for ever");
    drop(decoys);
    Some((facts.try_iter().collect(), value))
}

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
    let touches = touched(Places::Root("/home/u/.ssh".into()), |dir| {
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
    let looks = touched(Places::Root("/home/u/.ssh".into()), |dir| {
        let parent = dir.parent().unwrap();
        [
            run("stat", &[], dir),
            run("test", &["-r"], dir),
            run("ls", &["-lad"], dir),
            run("ls", &["-la"], parent),
            run("test", &["-d"], dir),
        ]
    });
    let Some((facts, results)) = looks else { return };
    assert!(results.iter().all(|(ok, _)| *ok), "a place looks like a directory: {results:?}");
    assert_eq!(facts, [], "nobody touched anything");
}

#[test]
fn numbered_places_are_told_by_their_own_names_and_repeats_are_counted() {
    let places = Places::Numbered(vec!["/home/u/.ssh".into(), "/home/u/.aws".into()]);
    let touches = touched(places, |dir| {
        let key = dir.join("1/credentials");
        for _ in 0..500 {
            std::fs::read(&key).unwrap_err();
        }
        (std::fs::read(dir.join("0/id")).unwrap_err().kind(), std::fs::metadata(dir.join("2")).unwrap_err().kind())
    });
    let Some((facts, (inside, beyond))) = touches else { return };
    assert_eq!(inside, std::io::ErrorKind::PermissionDenied);
    assert_eq!(beyond, std::io::ErrorKind::NotFound, "there is no third place");
    let count = |wanted: &str| -> (usize, u64) {
        let counts: Vec<u64> = facts
            .iter()
            .filter_map(|fact| match fact {
                Fact::Decoy { path, count, .. } if path.to_string() == wanted => Some(*count),
                _ => None,
            })
            .collect();
        (counts.len(), counts.iter().sum())
    };
    let (rows, total) = count("/home/u/.aws/credentials");
    assert_eq!(total, 500, "each is counted: {facts:?}");
    assert!(rows < 50, "and told in few rows: {rows}");
    assert_eq!(count("/home/u/.ssh/id"), (1, 1));
}
