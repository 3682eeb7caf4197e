//! Git inside: works as ever, on a private git directory with the history as a read-only alternate.

use crate::room::{Room, good};
use std::fs;
use std::path::Path;
use std::process::Command;

fn git(directory: &Path, args: &[&str]) -> String {
    let out = Command::new("git")
        .current_dir(directory)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .args(["-c", "user.name=P", "-c", "user.email=p@example.org", "-c", "init.defaultBranch=main", "-c", "safe.directory=*"])
        .args(args)
        .output()
        .unwrap();
    assert!(out.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap().trim().to_owned()
}

/// A room whose workspace is a checkout with a private git directory.
fn with_git() -> Room {
    let mut room = Room::new();
    let person = room.root.join("repo");
    fs::create_dir(&person).unwrap();
    git(&person, &["init", "-q"]);
    fs::write(person.join("file"), "of the task\n").unwrap();
    git(&person, &["add", "."]);
    git(&person, &["commit", "-qm", "base"]);
    let base = git(&person, &["rev-parse", "HEAD"]);
    let private = room.task.git();
    git(&private, &["init", "-q", "--bare", "."]);
    fs::write(private.join("objects/info/alternates"), "/run/airlock/history/0\n").unwrap();
    fs::write(
        private.join("config"),
        format!("[core]\n\trepositoryformatversion = 0\n\tbare = false\n\tworktree = {}\n[user]\n\tname = A\n\temail = a@example.org\n", room.workspace.display()),
    )
    .unwrap();
    fs::write(private.join("refs/heads/main"), format!("{base}\n")).unwrap();
    fs::write(private.join("HEAD"), "ref: refs/heads/main\n").unwrap();
    room.history = vec![person.join(".git/objects")];
    room
}

#[test]
fn the_daily_commands_work() {
    let room = with_git();
    let went = room.sh(
        "set -e; git reset -q; git status --porcelain; echo more >> file; echo new > other; git status --porcelain; git diff --stat | tail -1; \
         git add -A; git commit -qm work; git log --format=%s; git branch feature; git checkout -q feature; echo x > file; git stash -q; git stash pop -q; \
         git diff --name-only; git checkout -q -- file; git rebase -q main; git branch --list | tr -d ' *' | tr '\\n' ' '; git fsck 2>&1 | grep -v '^dangling' || true",
    );
    assert_eq!(
        good(&went),
        " M file\n?? other\n 1 file changed, 1 insertion(+)\nwork\nbase\nfile\nfeature main ",
        "git must work as outside: {went:?}"
    );
}

#[test]
fn nothing_of_it_reaches_the_persons_repository() {
    let room = with_git();
    let person = room.root.join("repo");
    let before = crate::files::listing(&person, &[]);
    let went = room.sh(
        "git reset -q; git config core.hooksPath /tmp; mkdir -p .git/hooks 2>/dev/null; echo x > $(git rev-parse --git-dir)/hooks/post-commit; git commit -q --allow-empty -m w; git gc -q --prune=now; \
         rm -rf /run/airlock/history/0/* 2>/dev/null; (echo x > /run/airlock/history/0/info/alternates) 2>/dev/null; git log --format=%s | wc -l",
    );
    assert_eq!(good(&went).trim(), "2", "and the history is still whole: {went:?}");
    assert_eq!(crate::files::listing(&person, &[]), before, "the person's repository is as it was");
}
