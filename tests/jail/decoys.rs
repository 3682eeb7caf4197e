//! Hidden places: refused at a touch and told, wherever they lie; looking at them is nothing.

use crate::files::listing;
use crate::room::{Room, Running, SECRET, Went, good};
use jail_plan::{Guarantee, Status};
use model::event::FileOp;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::{Arc, Mutex};
use supervise::fact::Fact;
use testkit::not_tested_here;

/// What was told of hidden places.
#[derive(Debug, Clone, Default)]
pub(crate) struct Told(Arc<Mutex<Vec<Fact>>>);

impl Told {
    pub(crate) fn sink(&self) -> impl Fn(Fact) + Send + Sync + Clone + 'static {
        let facts = Arc::clone(&self.0);
        move |fact| facts.lock().unwrap().push(fact)
    }

    pub(crate) fn facts(&self) -> Vec<Fact> {
        self.0.lock().unwrap().clone()
    }

    /// Touches: path, operation, program, how often.
    pub(crate) fn touches(&self) -> Vec<(String, FileOp, String, u64)> {
        let of = |fact: Fact| match fact {
            Fact::Decoy { process, op, path, count } => {
                Some((path.to_string(), op, process.map_or_else(String::new, |p| p.program.to_string()), count))
            }
            _ => None,
        };
        self.facts().into_iter().filter_map(of).collect()
    }

    /// How many touches a path had, each told or counted in a row.
    pub(crate) fn count(&self, path: &str) -> u64 {
        self.touches().iter().filter(|(p, ..)| p == path).map(|(.., count)| count).sum()
    }

    /// How many touches were only counted.
    pub(crate) fn folded(&self) -> u64 {
        let of = |fact: Fact| if let Fact::Coalesced { count, .. } = fact { count } else { 0 };
        self.facts().into_iter().map(of).sum()
    }
}

/// Starts a script; `None` (said) where the machine has no FUSE.
pub(crate) fn watched(room: &Room, argv: &[&str]) -> Option<(Running, Told)> {
    let told = Told::default();
    let running = room.start(argv, told.sink()).unwrap();
    match running.jail.report.status(Guarantee::Decoys) {
        Some(Status::Absent { reason }) => {
            assert!(reason.contains("/dev/fuse"), "only that may be missing: {reason}");
            not_tested_here("/dev/fuse");
            running.jail.kill();
            None
        }
        _ => Some((running, told)),
    }
}

/// Runs a script to its end, after which everything is told.
fn touched(room: &Room, script: &str) -> Option<(Went, Told)> {
    let (running, told) = watched(room, &["/bin/bash", "-c", script])?;
    let went = running.finish();
    Some((went, told))
}

#[test]
fn p2_every_hidden_place_is_refused_and_told() {
    for has_some in [true, false] {
        let mut room = Room::new();
        if !has_some {
            fs::remove_dir_all(room.home.join(".ssh")).unwrap();
        }
        room.grants.hide.push(room.home.join("taxes"));
        let script = "cat ~/.ssh/id_ed25519; ls ~/.ssh; echo x > ~/.ssh/authorized_keys; cat ~/.aws/credentials; cat ~/.config/gh/hosts.yml; \
                      ls ~/taxes; cat ~/.git-credentials; echo x >> ~/.pypirc; cat ~/.netrc; [ -d ~/.ssh ] && [ -f ~/.netrc ] && echo there";
        let Some((went, told)) = touched(&room, script) else { return };
        assert_eq!(good(&went), "there\n", "nothing of it may be read: {went:?}");
        assert_eq!(went.err.matches("ermission denied").count(), 8, "each touch is refused: {went:?}");
        assert_eq!(went.err.matches("No such file").count(), 1, "but for a file that tools look for: {went:?}");
        let all = told.touches();
        for (path, op, program) in [
            ("~/.ssh/id_ed25519", FileOp::Read, "cat"),
            ("~/.ssh", FileOp::Read, "ls"),
            ("~/.ssh/authorized_keys", FileOp::Read, "bash"),
            ("~/.aws/credentials", FileOp::Read, "cat"),
            ("~/.config/gh/hosts.yml", FileOp::Read, "cat"),
            ("~/taxes", FileOp::Read, "ls"),
            ("~/.git-credentials", FileOp::Read, "cat"),
            ("~/.pypirc", FileOp::Write, "bash"),
            ("~/.netrc", FileOp::Read, "cat"),
        ] {
            assert!(all.contains(&(path.into(), op, program.into(), 1)), "{path} is told with the program: {all:?}");
        }
        assert_eq!(all.len(), 9, "and nothing else: {all:?}");
    }
}

#[test]
fn p2_looking_at_a_hidden_place_is_no_event() {
    let room = Room::new();
    let looks = "set -e; cd ~; stat .ssh .aws .netrc >/dev/null; ls -la ~ >/dev/null; ls -d ~/.ssh ~/.config/* >/dev/null; ls -dl --color=always ~/.* >/dev/null; \
                 for f in ~/.*; do test -e $f; test -r $f; test -d $f || test -f $f; done; find ~ -maxdepth 1 >/dev/null; find ~ -maxdepth 1 -name '.s*' -type d; \
                 compgen -f ~/.s; compgen -d ~/.aw; compgen -f ~/.netr; stat -f ~/.ssh >/dev/null; readlink -f ~/.ssh; (cd ~/.ssh); \
                 getfattr -d ~/.ssh 2>/dev/null || true; git -C ~ status >/dev/null 2>&1 || true; echo looked; ";
    let Some((went, told)) = touched(&room, &format!("{looks} cat ~/.ssh/key 2>/dev/null || true")) else { return };
    assert!(good(&went).ends_with("looked\n"), "{went:?}");
    let home = room.home.display();
    for seen in [format!("{home}/.ssh\n"), format!("{home}/.aws\n"), format!("{home}/.netrc\n")] {
        assert!(went.out.contains(&seen), "a shell completes it: {went:?}");
    }
    let all = told.touches();
    assert_eq!(all, [("~/.ssh/key".to_owned(), FileOp::Read, "cat".to_owned(), 1)], "only the touch at the end is one");
}

#[test]
fn p2_repeats_are_counted_and_none_is_lost() {
    let room = Room::new();
    room.bring_probe();
    let argv = ["./probe", "touch", &format!("{}/.ssh", room.home.display()), "2", "3000", "id"];
    let Some((running, told)) = watched(&room, &argv) else { return };
    let went = running.finish();
    assert_eq!(good(&went), "ok 6000\n");
    drop(went);
    // Where looking at the process takes long, what is beyond its share of a second is told by the place alone.
    assert_eq!(told.count("~/.ssh/id") + told.count("~/.ssh") + told.folded(), 6000, "{:?}", told.touches());
    assert!(told.count("~/.ssh/id") > 0, "some with all that is known");
    assert!(told.touches().len() < 600, "in few rows: {}", told.touches().len());
}

#[test]
fn p2_what_a_grant_would_show_is_told_where_it_is_hidden() {
    let mut room = Room::new();
    let (read, write) = (room.root.join("granted/read"), room.root.join("granted/write"));
    for dir in [read.join("deep/keys"), write.clone()] {
        fs::create_dir_all(dir).unwrap();
    }
    let hidden = [read.join("deep/keys"), read.join("token"), write.join("key")];
    for file in [read.join("deep/keys/k"), read.join("token"), write.join("key"), read.join("plain")] {
        fs::write(file, SECRET).unwrap();
    }
    room.grants.read = vec![read.clone()];
    room.grants.write = vec![write.clone()];
    room.grants.hide = hidden.to_vec();
    let before = listing(&room.root.join("granted"), &[]);
    let script = format!(
        "cd '{}'; cat read/plain; cat read/deep/keys/k read/token write/key; ls read/deep/keys; rm -rf write/key; mv write/key write/other; echo x > write/key",
        room.root.join("granted").display()
    );
    let Some((went, told)) = touched(&room, &script) else { return };
    assert_eq!(went.out, SECRET, "only what is not hidden is shown: {went:?}");
    assert_eq!(listing(&room.root.join("granted"), &[]), before, "and what is hidden is as it was");
    let all = told.touches();
    for path in [hidden[0].join("k"), hidden[0].clone(), hidden[1].clone(), hidden[2].clone()] {
        assert!(all.iter().any(|(told, ..)| *told == path.display().to_string()), "{} is told: {all:?}", path.display());
    }
}

#[test]
fn p2_there_is_one_file_system_and_its_root_is_nowhere() {
    let room = Room::new();
    let script = "grep -c ' - fuse ' /proc/self/mountinfo; grep ' - fuse ' /proc/self/mountinfo | cut -d' ' -f3 | sort -u | wc -l; \
                  ls /run/airlock/decoys; cat /run/airlock/decoys/all/0d/x /run/airlock/decoys/all/1d/x; chmod 777 /run/airlock/decoys";
    let Some((went, told)) = touched(&room, script) else { return };
    let lines: Vec<usize> = went.out.lines().map(|l| l.parse().unwrap()).collect();
    assert!(lines[0] > 20 && lines[1] == 1, "many places, one file system: {went:?}");
    assert_eq!(went.err.matches("ermission denied").count(), 3, "{went:?}");
    assert_eq!(told.touches(), []);
}

/// Plants something, and sees that one decoy is left out, nothing is made outside the home, and the rest is as ever.
fn leaves_out(what: &str, place: &str, plant: impl FnOnce(&Path, &Path)) {
    let room = Room::new();
    let victim = room.root.join("victim");
    fs::create_dir_all(&victim).unwrap();
    fs::write(victim.join("file"), "precious").unwrap();
    plant(&room.task.home(), &victim);
    let before = listing(&room.root, &[room.task.home()]);
    let Some((running, told)) = watched(&room, &["/bin/bash", "-c", "cat ~/.gnupg/k; cat ~/.azure/k; true"]) else { return };
    let status = running.jail.report.status(Guarantee::Decoys).cloned();
    let Some(Status::Partial { reason }) = status else { panic!("{what}: {status:?}") };
    assert!(reason.contains(&format!("/{place}`")), "{what}: it names the place: {reason}");
    good(&running.finish());
    assert_eq!(listing(&room.root, &[room.task.home()]), before, "{what}: nothing outside is made or changed");
    assert_eq!(told.touches().len(), 2, "{what}: the others are there: {told:?}");
}

#[test]
fn p2_something_odd_where_a_decoy_goes_is_not_followed_and_bricks_nothing() {
    leaves_out("a symlink", ".ssh", |home, victim| symlink(victim, home.join(".ssh")).unwrap());
    leaves_out("a symlink to nothing", ".ssh", |home, victim| symlink(victim.join("new"), home.join(".ssh")).unwrap());
    leaves_out("a symlink to a file", ".netrc", |home, victim| symlink(victim.join("file"), home.join(".netrc")).unwrap());
    leaves_out("a file for a directory", ".aws", |home, _| fs::write(home.join(".aws"), "").unwrap());
    leaves_out("a directory for a file", ".pypirc", |home, _| fs::create_dir(home.join(".pypirc")).unwrap());
    leaves_out("a FIFO for a file", ".vault-token", |home, _| {
        nix::unistd::mkfifo(&home.join(".vault-token"), nix::sys::stat::Mode::S_IRUSR).unwrap();
    });
    leaves_out("a symlink on the way", ".config/gh", |home, victim| symlink(victim, home.join(".config")).unwrap());
    leaves_out("a loop on the way", ".local/share/keyrings", |home, _| symlink(".local", home.join(".local")).unwrap());
}

#[test]
fn p2_a_run_cant_take_a_decoy_away_and_leaves_only_mount_points() {
    let room = Room::new();
    let script = "cd ~; mv .ssh old; rmdir .aws; rm -rf .gnupg; rm -f .netrc; ln -sfn /etc .kube; mkdir .ssh/d; mv .config other; mknod .docker/p p; \
                  touch -d 2001-01-01 .azure; chmod 777 .mozilla; find . -depth -delete; true";
    let mut left = Vec::new();
    for _ in 0..2 {
        let Some((went, _)) = touched(&room, script) else { return };
        assert_eq!(went.ended.exit, Some(0), "{went:?}");
        left.push(listing(&room.task.home(), &[]));
    }
    let names: Vec<_> = left[1].keys().map(|path| path.strip_prefix(room.task.home()).unwrap().display().to_string()).collect();
    for name in [".ssh", ".aws", ".gnupg", ".netrc", ".kube", ".docker", ".azure"] {
        assert!(names.iter().any(|n| n == name), "{name} is still there: {names:?}");
    }
    let files = fs::read_dir(room.task.home()).unwrap().flatten().filter(|e| e.metadata().unwrap().is_file());
    assert!(files.map(|f| f.metadata().unwrap().len()).all(|len| len == 0), "empty ones: {names:?}");
}
