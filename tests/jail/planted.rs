//! What an earlier run left where the next start mounts.

use crate::files::listing;
use crate::room::{Room, SECRET, good};
use jail_plan::{Kind, Stage};
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use supervise::compose::{self, Grants};

/// Plants something, and sees that the start is refused and nothing is made on the host.
fn refuses(what: &str, plant: impl FnOnce(&Room, &Path)) {
    let room = Room::new();
    let victim = room.root.join("victim");
    fs::create_dir_all(victim.join("repo")).unwrap();
    fs::write(victim.join("file"), "precious").unwrap();
    plant(&room, &victim);
    let before = listing(&room.root, &[]);
    let refusal = room.refusal();
    assert_eq!((refusal.step, refusal.kind), (Stage::Mounts, Kind::Workspace), "{what}: {refusal}");
    assert!(refusal.reason.contains(room.root.to_str().unwrap()), "{what}: the reason names the place: {refusal}");
    let made: Vec<_> = listing(&room.root, &[room.task.home()])
        .into_iter()
        .filter(|e| !before.iter().any(|b| b.0 == &e.0 && b.1 == &e.1))
        .collect();
    assert!(made.is_empty(), "{what}: nothing may be made or changed: {made:?}");
    assert_eq!(listing(&victim, &[]), before.into_iter().filter(|(p, _)| p.starts_with(&victim)).collect(), "{what}");
}

#[test]
fn a_symlink_on_the_way_to_the_workspace_refuses_the_start() {
    refuses("~/src a symlink", |room, victim| symlink(victim, room.task.home().join("src")).unwrap());
    refuses("~/src a symlink upwards", |room, _| symlink("../../../..", room.task.home().join("src")).unwrap());
    refuses("~/src a magic link", |room, _| symlink("/proc/self/root", room.task.home().join("src")).unwrap());
    refuses("~/src/repo a symlink", |room, victim| {
        fs::create_dir(room.task.home().join("src")).unwrap();
        symlink(victim, room.task.home().join("src/repo")).unwrap();
    });
    refuses("~/src a file", |room, _| fs::write(room.task.home().join("src"), "").unwrap());
}

#[test]
fn an_odd_dot_git_refuses_the_start() {
    let dot_git = |room: &Room| room.task.tree().join(".git");
    refuses(".git a symlink", |room, victim| {
        fs::remove_file(dot_git(room)).unwrap();
        symlink(victim.join("file"), dot_git(room)).unwrap();
    });
    refuses(".git a directory", |room, _| {
        fs::remove_file(dot_git(room)).unwrap();
        fs::create_dir(dot_git(room)).unwrap();
    });
    refuses(".git gone", |room, _| fs::remove_file(dot_git(room)).unwrap());
    refuses(".git a FIFO", |room, _| {
        fs::remove_file(dot_git(room)).unwrap();
        nix::unistd::mkfifo(&dot_git(room), nix::sys::stat::Mode::S_IRUSR).unwrap();
    });
}

#[test]
fn a_symlink_where_a_tool_goes_refuses_the_start() {
    refuses("~/.cargo a symlink", |room, victim| {
        fs::create_dir_all(room.home.join(".cargo/bin")).unwrap();
        symlink(victim, room.task.home().join(".cargo")).unwrap();
    });
}

#[test]
fn a_run_can_plant_but_not_swap_what_is_mounted() {
    let room = Room::new();
    let went = room.sh(
        "rm -f .git; mv .git git-old; echo gitdir: /elsewhere > .git; ln -sfn /etc .git; cd ..; mv repo other; rmdir repo; rm -rf repo/.git; \
         mv \"$HOME/.ssh\" \"$HOME/ssh-old\"; rmdir \"$HOME/.ssh\"; cat repo/.git",
    );
    assert_eq!(good(&went), "gitdir: /run/airlock/git\n", "mounted places can't be moved, removed or written: {went:?}");
    assert!(fs::symlink_metadata(room.task.tree().join(".git")).unwrap().is_file(), "what lies below is as it was");
    good(&room.sh("true"));
}

#[test]
fn what_is_hidden_in_a_writable_place_stays_hidden_in_every_later_run() {
    let mut room = Room::new();
    let shared = room.root.join("shared");
    fs::create_dir_all(shared.join("deep")).unwrap();
    for f in ["key", "deep/key"] {
        fs::write(shared.join(f), SECRET).unwrap();
    }
    room.grants.write = vec![shared.clone()];
    room.grants.hide.push(shared.join("key"));
    let find = format!("cd '{0}'; grep -rs {SECRET} . | grep -v '^./deep'; true", shared.display());
    let went = room.sh(&format!(
        "cd '{0}'; mv key other 2>/dev/null && echo moved; ln key linked 2>/dev/null && echo linked; rm -f key 2>/dev/null && echo removed; \
         mv ../shared ../elsewhere 2>/dev/null && echo moved all; mv deep deeper; mkdir deep; echo planted > deep/key; {find}",
        shared.display()
    ));
    assert_eq!(good(&went), "", "the place itself is a mount and can't be moved: {went:?}");
    assert_eq!(good(&room.sh(&find)), "", "and a second run finds it no more than the first");
    assert_eq!(fs::read_to_string(shared.join("deeper/key")).unwrap(), SECRET, "while a directory beside it could be moved");

    // So what lies deeper could be lifted: no plan hides it.
    let deep = Grants { hide: vec![shared.join("deep/key")], ..room.grants.clone() };
    let refused = compose::agent(&room.spec(&["/bin/true"]), &deep).unwrap_err().to_string();
    assert!(refused.contains("deep/key") && refused.contains("move"), "it says what would happen: {refused}");

    // And one that is gone, whoever moved it, refuses the start.
    fs::rename(shared.join("key"), shared.join("moved")).unwrap();
    let refusal = room.refusal();
    assert_eq!((refusal.step, refusal.kind), (Stage::Mounts, Kind::Workspace), "{refusal}");
    assert!(refusal.reason.contains("shared/key") && refusal.reason.contains("another name"), "{refusal}");
    fs::rename(shared.join("moved"), shared.join("key")).unwrap();
    assert_eq!(good(&room.sh(&find)), "");
}

#[test]
fn a_hide_in_the_repository_is_refused_and_not_ignored() {
    for workspace in ["home/person/src/repo", "data/repos/repo"] {
        let mut room = Room::at(workspace.as_ref());
        room.grants.hide.push(room.workspace.join("file"));
        let refused = compose::agent(&room.spec(&["/bin/true"]), &room.grants).unwrap_err().to_string();
        assert!(refused.contains("repo/file") && refused.contains("history"), "{workspace}: {refused}");
    }
}
