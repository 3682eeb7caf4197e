//! Creation: any repository that git can work on, a clear error for any other, and nothing of the person's changed.

use crate::fixture::{World, listing, same, task_id, write};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use worktree::{CreateError, CreateSpec, RefFormat, RepoError, inspect};

/// Creates a task and shows that its worktree is the base's tree and that the repository did not change.
fn works(world: &World) -> crate::fixture::Task {
    let before = world.listing();
    let task = world.create();
    same(&world.listing(), &before, "the person's repository is as it was");
    let out = inside(world, &task, &["status", "--porcelain"]);
    assert_eq!(out, "", "the worktree is the base's tree, as the private git directory sees it");
    task
}

/// Git as it runs in the jail, but for where the history is.
fn inside(world: &World, task: &crate::fixture::Task, args: &[&str]) -> String {
    let list: Vec<_> = task.created.history.iter().map(|h| h.to_str().unwrap()).collect();
    let out = world
        .command(&task.tree())
        .env("GIT_DIR", task.git.dir().git())
        .env("GIT_WORK_TREE", task.tree())
        .env("GIT_ALTERNATE_OBJECT_DIRECTORIES", list.join(":"))
        .args(args)
        .output()
        .unwrap();
    assert!(out.status.success(), "git inside works: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8_lossy(&out.stdout).trim_end().to_owned()
}

#[test]
fn a_dirty_repository_stays_dirty_and_the_task_starts_clean() {
    let world = World::new();
    world.write("a.txt", "changed by the person\n");
    world.write("new.txt", "untracked\n");
    world.write("staged.txt", "staged\n");
    world.git(["add", "staged.txt"]);
    assert!(world.facts().dirty, "it is seen to be dirty");
    let task = works(&world);
    assert_eq!(std::fs::read_to_string(task.tree().join("a.txt")).unwrap(), "one\ntwo\nthree\n");
    assert!(!task.tree().join("staged.txt").exists(), "what is not committed stays with the person");
    assert_eq!(task.created.base_branch.as_deref(), Some("main"));
}

#[test]
fn git_inside_commits_stashes_and_branches() {
    let world = World::new();
    let task = works(&world);
    let before = world.listing();
    assert_eq!(inside(&world, &task, &["branch", "--show-current"]), "the-task");
    task.write("b.txt", "x\n");
    inside(&world, &task, &["add", "-A"]);
    inside(&world, &task, &["commit", "-q", "-m", "work"]);
    task.write("b.txt", "y\n");
    inside(&world, &task, &["stash", "-q"]);
    inside(&world, &task, &["checkout", "-q", "-b", "other", "main"]);
    assert_eq!(inside(&world, &task, &["log", "--format=%an", "the-task"]).lines().next(), Some("Jo Person"));
    same(&world.listing(), &before, "none of it is in the person's repository");
    let store = task.git.layout.repo(&task.git.repo).join("store.git");
    assert_eq!(world.git_in(&store, ["--git-dir=.", "for-each-ref"]), "", "nor in the store's refs");
}

#[test]
fn the_worktree_is_a_linked_worktree_of_the_store() {
    let world = World::new();
    let task = works(&world);
    let store = task.git.layout.repo(&task.git.repo).join("store.git");
    let list = world.git_in(&store, ["--git-dir=.", "worktree", "list", "--porcelain"]);
    assert!(list.contains(&format!("worktree {}", task.tree().display())), "git lists it: {list}");
    assert!(!list.contains("prunable"), "git takes it for whole: {list}");
    assert_eq!(world.git_in(&task.tree(), ["rev-parse", "HEAD"]), task.created.base.as_str());
    world.git_in(&store, ["--git-dir=.", "fsck", "--connectivity-only"]);
}

#[test]
fn a_linked_worktree_a_detached_head_and_a_branch_named_airlock_work() {
    let mut world = World::new();
    world.git(["branch", "airlock"]);
    let linked = world.dir.path().join("linked one");
    world.git([OsStr::new("worktree"), OsStr::new("add"), OsStr::new("-q"), linked.as_os_str(), OsStr::new("airlock")]);
    let main = listing(&world.repo);
    let first = std::mem::replace(&mut world.repo, linked);
    let facts = world.facts();
    assert!(facts.linked && facts.head_branch.as_deref() == Some("airlock"), "{facts:?}");
    works(&world);
    same(&listing(&first), &main, "the main working tree is as it was");
    world.git(["checkout", "-q", "--detach"]);
    let facts = world.facts();
    assert_eq!(facts.head_branch, None);
    assert_eq!(works(&world).created.base_branch, None);
}

#[test]
fn odd_paths_work() {
    for name in [
        &b"with space"[..],
        b"quote\"s 'and' $(x)",
        b"new\nline",
        b"non-utf8-\xff\xfe",
        b"-dash",
        b"col:on#hash",
        "uml\u{e4}ut".as_bytes(),
    ] {
        let world = World::named(OsStr::from_bytes(name));
        world.write(OsStr::from_bytes(b"file \"x\"\n\xff.txt"), "odd\n");
        world.commit("odd");
        let task = works(&world);
        task.write(OsStr::from_bytes(b"\xfe\n.txt"), "more");
        let candidate = task.candidate();
        let changed = worktree::changes(&task.git, None, &candidate.tree).unwrap();
        assert_eq!(changed[0].path.as_bytes(), b"\xfe\n.txt", "in {name:?}");
    }
}

#[test]
fn other_layouts_work() {
    // `.git` a link, as some repository tools make it.
    let world = World::new();
    std::fs::rename(world.repo.join(".git"), world.dir.path().join("real.git")).unwrap();
    std::os::unix::fs::symlink("../real.git", world.repo.join(".git")).unwrap();
    works(&world);
    // A git directory elsewhere.
    let world = World::new();
    let elsewhere = world.dir.path().join("elsewhere");
    world.git([OsStr::new("init"), OsStr::new("-q"), OsStr::new("--separate-git-dir"), elsewhere.as_os_str()]);
    works(&world);
    // Objects of another repository.
    let mut world = World::new();
    let clone = world.dir.path().join("clone");
    world.git_in(world.dir.path(), ["clone", "-q", "--shared", "repo", "clone"]);
    world.repo = clone;
    works(&world);
    // Reftable, where git has it.
    let world = World::empty("repo");
    if !world.reftable() {
        return;
    }
    world.write("a.txt", "x\n");
    world.commit("start");
    assert_eq!(world.facts().ref_format, RefFormat::Reftable);
    works(&world);
}

#[test]
fn submodules_are_carried_as_links() {
    let world = World::new();
    let other = World::new();
    world.git([OsStr::new("submodule"), OsStr::new("add"), OsStr::new("-q"), other.repo.as_os_str(), OsStr::new("sub")]);
    world.commit("sub");
    assert!(world.facts().submodules);
    let task = works(&world);
    assert!(task.tree().join("sub").is_dir(), "the submodule's directory is there");
    task.write("sub/file.txt", "written by the agent");
    let candidate = task.candidate();
    assert_eq!(candidate.tree, task.created.base_tree, "the link stays as it was");
    assert!(crate::fixture::reasons(&candidate)["sub"].contains("submodule"), "and what was written there is told");
}

#[test]
fn a_shallow_clone_stays_shallow() {
    let mut world = World::new();
    for n in 0..3 {
        world.write("a.txt", format!("{n}\n"));
        world.commit("more");
    }
    let url = format!("file://{}", world.repo.display());
    world.git_in(world.dir.path(), ["clone", "-q", "--depth=1", &url, "cut"]);
    world.repo = world.dir.path().join("cut");
    assert!(world.facts().shallow);
    let task = works(&world);
    assert_eq!(inside(&world, &task, &["rev-list", "--count", "HEAD"]), "1");
}

#[test]
fn conversions_are_the_persons_and_filters_are_nobodys() {
    let world = World::new();
    world.git(["config", "core.autocrlf", "true"]);
    world.write(".gitattributes", "*.bin filter=evil\n*.win text eol=crlf\n");
    world.write("x.bin", "raw\n");
    world.write("x.win", "a\r\nb\r\n");
    world.commit("attributes");
    world.git(["config", "filter.evil.smudge", "touch ran; cat"]);
    world.git(["config", "filter.evil.clean", "touch ran; cat"]);
    world.git(["config", "core.fsmonitor", "touch ran"]);
    let task = works(&world);
    assert_eq!(std::fs::read(task.tree().join("a.txt")).unwrap(), b"one\r\ntwo\r\nthree\r\n", "autocrlf counts");
    assert_eq!(std::fs::read(task.tree().join("x.win")).unwrap(), b"a\r\nb\r\n", "attributes count");
    assert!(!task.tree().join("ran").exists() && !world.repo.join("ran").exists(), "no program of the configuration ran");
}

#[test]
fn history_has_the_base_and_the_default_branch_and_nothing_else() {
    let world = World::new();
    world.git(["checkout", "-q", "-b", "secret"]);
    world.write("secret.txt", "not for the agent\n");
    let secret = world.commit("secret");
    world.git(["checkout", "-q", "main"]);
    world.git(["tag", "v1", &secret]);
    let task = works(&world);
    let out = world
        .command(&task.tree())
        .env("GIT_DIR", task.git.dir().git())
        .env("GIT_ALTERNATE_OBJECT_DIRECTORIES", &task.created.history[0])
        .args(["cat-file", "-e", &secret])
        .output()
        .unwrap();
    assert!(!out.status.success(), "another branch's commit is not there");
    let task = world.try_create(Some("secret")).unwrap();
    assert_eq!(task.created.base.as_str(), secret, "unless it is the base");
    assert!(task.tree().join("secret.txt").exists());
}

#[test]
fn a_second_task_copies_only_what_is_new() {
    let world = World::new();
    let first = works(&world);
    let again = works(&world);
    assert_eq!(again.created.history, first.created.history, "the same history is shared");
    world.write("b.txt", "b\n");
    world.commit("more");
    let third = works(&world);
    assert_eq!(third.created.history.len(), 2, "the difference is a directory of its own");
    assert_eq!(third.created.history[0], first.created.history[0], "on top of the one before");
    assert_eq!(inside(&world, &third, &["rev-list", "--count", "HEAD"]), "2");
    assert_eq!(third.git.history().unwrap(), third.created.history, "the list can be read again");
}

#[test]
fn the_excludes_of_the_person_count() {
    let world = World::new();
    write(&world.home.join(".config/git/ignore"), "*.mine\n");
    let task = works(&world);
    task.write("x.mine", "x");
    task.write("x.log", "x");
    task.write("y.txt", "y");
    let candidate = task.candidate();
    assert_eq!(task.files(&world, candidate.tree.as_str()), [".gitignore", "a.txt", "src/lib.rs", "y.txt"]);
}

#[test]
fn places_that_are_no_repository_are_refused_with_words() {
    let world = World::empty("repo");
    let look = |dir: &std::path::Path| inspect(dir, &world.layout, &world.home);
    assert!(matches!(look(&world.dir.path().join("missing")), Err(RepoError::NoDirectory { .. })));
    assert!(matches!(look(&world.repo), Err(RepoError::NotARepository(_))));
    world.git(["init", "-q"]);
    assert!(matches!(look(&world.repo), Err(RepoError::NoCommit(_))), "no commit yet");
    world.git(["commit", "-q", "--allow-empty", "-m", "x"]);
    assert!(look(&world.repo).is_ok(), "an empty commit is enough");
    assert!(matches!(look(&world.repo.join(".git")), Err(RepoError::InsideGitDir(_))), "{:?}", look(&world.repo.join(".git")));
    world.git(["clone", "-q", "--bare", ".", "../bare.git"]);
    assert!(matches!(look(&world.dir.path().join("bare.git")), Err(RepoError::Bare(_))));
    let sha256 = world.dir.path().join("sha256");
    world.git([OsStr::new("init"), OsStr::new("-q"), OsStr::new("--object-format=sha256"), sha256.as_os_str()]);
    world.git_in(&sha256, ["commit", "-q", "--allow-empty", "-m", "x"]);
    assert!(matches!(look(&sha256), Err(RepoError::Unsupported { .. })));
    let unknown = world.dir.path().join("unknown");
    world.git([OsStr::new("init"), OsStr::new("-q"), unknown.as_os_str()]);
    world.git_in(&unknown, ["config", "core.repositoryformatversion", "1"]);
    world.git_in(&unknown, ["config", "extensions.future", "yes"]);
    assert!(matches!(look(&unknown), Err(RepoError::Unsupported { .. })), "{:?}", look(&unknown));
    assert_eq!(std::fs::read_dir(&world.layout.data).unwrap().count(), 0, "nothing was made");
}

#[test]
fn home_and_airlocks_own_data_are_never_a_repository() {
    let world = World::empty("repo");
    let repository = |dir: &std::path::Path| {
        std::fs::create_dir_all(dir).unwrap();
        world.git_in(dir, ["init", "-q"]);
        world.git_in(dir, ["commit", "-q", "--allow-empty", "-m", "x"]);
        let result = inspect(dir, &world.layout, &world.home);
        std::fs::remove_dir_all(dir.join(".git")).unwrap();
        result
    };
    for dir in [
        world.home.clone(),
        world.dir.path().to_owned(),
        world.dir.path().join("data"),
        world.layout.data.join("x"),
        world.layout.config.clone(),
    ] {
        assert!(matches!(repository(&dir), Err(RepoError::Place { .. })), "{} is refused", dir.display());
    }
    assert!(repository(&world.home.join("code/x")).is_ok(), "a directory inside the home is fine");
}

#[test]
fn a_path_that_is_too_long_is_refused() {
    let world = World::empty("repo");
    let mut dir = world.repo.clone();
    while dir.as_os_str().len() < 3_100 {
        dir.push("d".repeat(200));
    }
    std::fs::create_dir_all(&dir).unwrap();
    world.git_in(&world.repo, ["init", "-q"]);
    assert!(matches!(inspect(&dir, &world.layout, &world.home), Err(RepoError::PathTooLong(_))));
    let four_thousand = world.dir.path().join("x/".repeat(2_000));
    assert!(inspect(&four_thousand, &world.layout, &world.home).is_err(), "what the kernel refuses is an error too");
}

#[test]
fn wrong_words_leave_nothing() {
    let world = World::new();
    let before = world.listing();
    assert!(matches!(world.try_create(Some("no-such-branch")), Err(CreateError::NoSuchRevision(_))));
    assert!(matches!(world.try_create(Some("--help")), Err(CreateError::NoSuchRevision(_))));
    let repo = world.facts();
    let id = task_id();
    let spec = |branch| CreateSpec {
        layout: &world.layout,
        home: &world.home,
        repo: &repo,
        repo_id: &world.repo_id,
        task_id: &id,
        base: None,
        branch,
    };
    for branch in ["", "a b", "-x", "x..y", "x.lock", "@{-1}"] {
        assert!(
            matches!(worktree::create(&spec(branch), &|_| ()), Err(CreateError::BadBranch(_))),
            "{branch:?} is no branch name"
        );
    }
    assert!(!world.layout.data.join("tasks").exists(), "no task was begun");
    worktree::create(&spec("x"), &|_| ()).unwrap();
    assert!(matches!(worktree::create(&spec("x"), &|_| ()), Err(CreateError::Exists(_))), "a task's files are never overwritten");
    same(&world.listing(), &before, "it is as it was");
}

#[test]
fn two_tasks_at_once_on_one_repository() {
    let world = World::new();
    let tasks: Vec<_> = std::thread::scope(|s| {
        let threads: Vec<_> = (0..4).map(|_| s.spawn(|| world.try_create(None).unwrap())).collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    for task in &tasks {
        assert_eq!(inside(&world, task, &["status", "--porcelain"]), "");
    }
}

#[test]
fn a_full_disk_is_told_and_leaves_nothing() {
    let mut world = World::new();
    world.write("big.bin", (0..3_000_000_u32).flat_map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()).collect::<Vec<u8>>());
    world.commit("big");
    let small = world.dir.path().join("small");
    std::fs::create_dir(&small).unwrap();
    let mounted = std::process::Command::new("mount").args(["-t", "tmpfs", "-o", "size=4m", "tmpfs"]).arg(&small).output();
    if !mounted.is_ok_and(|o| o.status.success()) {
        eprintln!("not tested here: mount");
        return;
    }
    world.layout.data = small.join("airlock");
    let result = world.try_create(None);
    let left = listing(&small);
    assert!(std::process::Command::new("umount").arg(&small).status().unwrap().success());
    match result {
        Err(CreateError::DiskFull { .. } | CreateError::Git(worktree::GitError::DiskFull { .. })) => {}
        other => panic!("a full disk is an error of its own: {:?}", other.err()),
    }
    assert!(
        !left.keys().any(|p| p.starts_with("airlock/tasks") && p.components().count() > 2),
        "no task is left: {:?}",
        left.keys()
    );
    assert!(!left.keys().any(|p| p.to_string_lossy().contains(".making")), "no half history is left");
}

#[test]
fn a_seeded_repository_is_a_repository_and_its_files_can_be_read() {
    let mut world = World::empty("other");
    world.repo = world.dir.path().join("made/demo");
    worktree::seed(&world.repo, &[("a.txt", b"a\n"), (".airlock.toml", b"version = 1\n")]).unwrap();
    assert_eq!(world.git(["log", "--format=%an %s"]), "Airlock demo Greet everybody");
    let task = works(&world);
    assert_eq!(worktree::base_file(&task.git, ".airlock.toml").unwrap().as_deref(), Some(&b"version = 1\n"[..]));
    assert_eq!(worktree::base_file(&task.git, "missing").unwrap(), None);
    task.write(".airlock.toml", "changed by the agent\n");
    assert_eq!(
        worktree::base_file(&task.git, ".airlock.toml").unwrap().as_deref(),
        Some(&b"version = 1\n"[..]),
        "the base's, not the tree's"
    );
    assert!(worktree::seed(&world.repo, &[]).is_err(), "what exists is not overwritten");
}
