//! Keepers: see one tree, have no network or home, and can't hang.

use crate::room::{Room, SECRET};
use model::keeper::{Job, Keeper as _, KeeperError};
use std::fs;
use std::io::Read as _;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;
use supervise::keeper::JailKeeper;
use testkit::program;

/// Runs a shell script as the keeper's program.
fn keep(room: &Room, script: &str, write_tree: bool, limit: Duration) -> (String, Result<(i32, String), KeeperError>) {
    keep_from(room, None, script, write_tree, limit)
}

/// The same, with a working copy in sight.
fn keep_from(
    room: &Room,
    source: Option<std::path::PathBuf>,
    script: &str,
    write_tree: bool,
    limit: Duration,
) -> (String, Result<(i32, String), KeeperError>) {
    let stand_in = room.root.join("warden");
    fs::write(&stand_in, "#!/bin/sh\n[ \"$1\" = keeper ] || exit 99\nshift\nexec \"$@\"\n").unwrap();
    fs::set_permissions(&stand_in, fs::Permissions::from_mode(0o755)).unwrap();
    let job = Job {
        tree: room.task.tree(),
        write_tree,
        source,
        git: room.task.keeper(),
        objects: room.task.objects(),
        history: vec![room.task.objects()],
        args: ["/bin/sh", "-c", script].map(Into::into).to_vec(),
        time_limit: limit,
    };
    let keeper = JailKeeper { jail_program: program("airlock-jail"), warden_program: stand_in, fallback: false };
    let mut running = keeper.start(job).unwrap();
    let mut out = String::new();
    running.stdout().unwrap().read_to_string(&mut out).unwrap();
    (out, running.wait())
}

const LONG: Duration = Duration::from_secs(60);

#[test]
fn a_keeper_sees_the_tree_and_nothing_else() {
    let room = Room::new();
    let script = format!(
        "cat /tree/file; echo g > /keeper/g && echo kept; for p in /tree/x /objects/x /history/0/x /x; do (echo x > $p) 2>/dev/null && echo wrote $p; done; \
         grep -rsl {SECRET} /home /tmp /run /root /etc; cat /proc/net/dev | tail -n +3 | cut -d: -f1; which git >/dev/null && echo git; echo why >&2; exit 3"
    );
    let (out, went) = keep(&room, &script, false, LONG);
    assert_eq!(out.replace(' ', ""), "ofthetask\nkept\nlo\ngit\n");
    assert_eq!(went.unwrap(), (3, "why\n".to_owned()), "its exit code and the end of its stderr come back");
    assert!(room.task.keeper().join("g").exists());
}

#[test]
fn a_keeper_writes_the_tree_only_when_its_job_says_so() {
    let room = Room::new();
    let (_, went) = keep(&room, "echo x > /tree/restored", true, LONG);
    assert_eq!(went.unwrap().0, 0);
    assert!(room.task.tree().join("restored").exists());
}

#[test]
fn a_keeper_that_hangs_on_a_fifo_is_ended() {
    let room = Room::new();
    nix::unistd::mkfifo(&room.task.tree().join("fifo"), nix::sys::stat::Mode::S_IRWXU).unwrap();
    let (_, went) = keep(&room, "cat /tree/fifo", false, Duration::from_secs(1));
    assert!(matches!(went, Err(KeeperError::Timeout(_))), "{went:?}");
}

#[test]
fn a_keeper_reads_no_symlink_out_of_the_tree() {
    let room = Room::new();
    std::os::unix::fs::symlink(room.home.join("diary"), room.task.tree().join("link")).unwrap();
    let (out, went) = keep(&room, "cat /tree/link 2>/dev/null || echo nothing there", false, LONG);
    assert_eq!((out.as_str(), went.unwrap().0), ("nothing there\n", 0));
}

#[test]
fn p3_a_working_copy_is_only_read_and_its_repository_is_not_in_sight() {
    let room = Room::new();
    let copy = room.root.join("copy");
    let script = "cat /source/file; cat /source/.git/config /source/.git 2>/dev/null; ls /source/.git/ 2>/dev/null; \
        for p in /source/new /source/file /source/.git/x; do (echo x > $p) 2>/dev/null && echo wrote $p; done; \
        rm -f /source/file 2>/dev/null; mv /source/.git /source/x 2>/dev/null; cp /source/file /tree/copied && cat /tree/copied";
    // A directory as usual, a file as in a linked worktree, a link to a repository elsewhere.
    for kind in ["directory", "file", "link"] {
        drop(fs::remove_dir_all(&copy));
        fs::create_dir_all(copy.join("elsewhere")).unwrap();
        fs::write(copy.join("file"), "of the person\n").unwrap();
        match kind {
            "directory" => {
                fs::create_dir(copy.join(".git")).unwrap();
                fs::write(copy.join(".git/config"), SECRET).unwrap();
            }
            "file" => fs::write(copy.join(".git"), SECRET).unwrap(),
            _ => std::os::unix::fs::symlink(room.home.join(".config/gh"), copy.join(".git")).unwrap(),
        }
        let before = testkit::treehash::treehash(&copy).unwrap();
        let (out, went) = keep_from(&room, Some(copy.clone()), script, true, LONG);
        assert_eq!((out.as_str(), went.unwrap().0), ("of the person\nof the person\n", 0), "{kind}");
        let after = testkit::treehash::treehash(&copy).unwrap();
        assert_eq!(before.total, after.total, "{kind}: {:#?}", before.difference(&after));
    }
}
