//! Candidates: what the tree holds and nothing else, whatever an agent puts there.

use crate::fixture::{Says, Unjailed, World, reasons, write};
use model::id::TreeId;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::process::Command;
use worktree::{CandidateError, candidate};

#[test]
fn it_is_what_git_add_all_would_take() {
    let world = World::new();
    let task = world.create();
    assert_eq!(task.candidate().tree, task.created.base_tree, "nothing changed yet");
    task.write("a.txt", "changed\n");
    task.write("dir/new.txt", "new\n");
    task.remove("src/lib.rs");
    symlink("a.txt", task.tree().join("link")).unwrap();
    task.write("run.sh", "#!/bin/sh\n");
    std::fs::set_permissions(task.tree().join("run.sh"), std::fs::Permissions::from_mode(0o755)).unwrap();
    task.write("x.log", "ignored\n");
    let taken = task.candidate();
    assert!(taken.still && taken.left_out.is_empty(), "{taken:?}");
    assert_eq!(task.files(&world, taken.tree.as_str()), [".gitignore", "a.txt", "dir/new.txt", "link", "run.sh"]);
    // The same by git itself, in the person's own repository.
    for (from, to) in [("a.txt", "a.txt"), ("dir/new.txt", "dir/new.txt"), ("run.sh", "run.sh")] {
        write(&world.repo.join(to), std::fs::read(task.tree().join(from)).unwrap());
    }
    std::fs::set_permissions(world.repo.join("run.sh"), std::fs::Permissions::from_mode(0o755)).unwrap();
    std::fs::remove_file(world.repo.join("src/lib.rs")).unwrap();
    symlink("a.txt", world.repo.join("link")).unwrap();
    world.git(["add", "-A"]);
    assert_eq!(taken.tree.as_str(), world.git(["write-tree"]), "the tree is git's own");
    // And back.
    task.remove("link");
    task.remove("run.sh");
    task.remove("dir/new.txt");
    task.write("a.txt", "one\ntwo\nthree\n");
    task.write("src/lib.rs", "pub fn f() -> u8 {\n    1\n}\n");
    assert_eq!(task.candidate().tree, task.created.base_tree, "undone by hand it is the base again");
}

#[test]
fn special_files_block_nobody_and_are_named() {
    let world = World::new();
    let task = world.create();
    task.remove("a.txt");
    for name in ["a.txt", "fifo"] {
        assert!(Command::new("mkfifo").arg(task.tree().join(name)).status().unwrap().success());
    }
    let _socket = std::os::unix::net::UnixListener::bind(task.tree().join("socket")).unwrap();
    task.write("ok.txt", "ok\n");
    let taken = task.candidate();
    assert_eq!(task.files(&world, taken.tree.as_str()), [".gitignore", "ok.txt", "src/lib.rs"]);
    let why = reasons(&taken);
    assert!(why["a.txt"].contains("FIFO") && why["fifo"].contains("FIFO") && why["socket"].contains("socket"), "{why:?}");
}

#[test]
fn a_link_is_a_link_and_never_what_it_leads_to() {
    let world = World::new();
    let task = world.create();
    let secret = world.dir.path().join("secret");
    write(&secret.join("key"), "PRIVATE");
    task.remove("a.txt");
    symlink(secret.join("key"), task.tree().join("a.txt")).unwrap();
    task.remove("src/lib.rs");
    std::fs::remove_dir(task.tree().join("src")).unwrap();
    symlink(&secret, task.tree().join("src")).unwrap();
    write(&secret.join("lib.rs"), "PRIVATE");
    let taken = task.candidate();
    assert_eq!(task.files(&world, taken.tree.as_str()), [".gitignore", "a.txt", "src"]);
    let patch = worktree::unified(&task.git, None, &taken.tree).unwrap();
    assert!(!String::from_utf8_lossy(&patch).contains("PRIVATE"), "what lies outside is not read");
}

#[test]
fn nested_repositories_never_become_links() {
    let world = World::new();
    let task = world.create();
    let nested = task.tree().join("nested");
    write(&nested.join("f.txt"), "x\n");
    world.git_in(&nested, ["init", "-q"]);
    world.git_in(&nested, ["add", "-A"]);
    world.git_in(&nested, ["commit", "-q", "-m", "x"]);
    // One around files of the base hides nothing.
    world.git_in(&task.tree().join("src"), ["init", "-q"]);
    task.write("src/more.rs", "x\n");
    let taken = task.candidate();
    assert_eq!(task.files(&world, taken.tree.as_str()), [".gitignore", "a.txt", "src/lib.rs", "src/more.rs"]);
    assert!(reasons(&taken)["nested"].contains("nested"), "{taken:?}");
}

#[test]
fn nothing_planted_runs_or_counts() {
    let world = World::new();
    let task = world.create();
    let ran = world.dir.path().join("ran");
    let run = format!("touch {}", ran.display());
    // Git directories and configuration wherever git could look for them.
    task.write(".gitattributes", "* filter=evil diff=evil merge=evil\n");
    task.write(".gitconfig", format!("[core]\n\tfsmonitor = {run}\n"));
    for dir in [".GIT", "bare.git", "config-dir"] {
        let dir = task.tree().join(dir);
        write(&dir.join("config"), format!("[core]\n\tfsmonitor = {run}\n[filter \"evil\"]\n\tclean = {run}\n"));
        write(&dir.join("HEAD"), "ref: refs/heads/main\n");
        std::fs::create_dir_all(dir.join("objects")).unwrap();
        std::fs::create_dir_all(dir.join("refs")).unwrap();
        write(&dir.join("hooks/post-checkout"), format!("#!/bin/sh\n{run}\n"));
    }
    std::fs::remove_file(task.tree().join(".git")).unwrap();
    write(&task.tree().join(".git"), format!("gitdir: {}\n", task.tree().join("bare.git").display()));
    for line in ["core.fsmonitor", "filter.evil.clean", "core.hooksPath"] {
        world.git_in(&task.git.dir().git(), ["config", "--file", "config", line, &run]);
    }
    let taken = task.candidate();
    worktree::changes(&task.git, None, &taken.tree).unwrap();
    worktree::unified(&task.git, None, &taken.tree).unwrap();
    assert!(!ran.exists(), "no program of the workspace ran");
    let files = task.files(&world, taken.tree.as_str());
    assert!(files.contains(&"bare.git/config".to_owned()), "files that look like a repository are files: {files:?}");
    assert!(!files.iter().any(|f| f.to_lowercase().starts_with(".git/")), "no spelling of .git enters a tree: {files:?}");
    assert!(reasons(&taken).keys().any(|p| p.starts_with(".GIT/")), "and what was left out is told: {:?}", taken.left_out);
}

#[test]
fn what_the_agent_ignores_is_not_ignored() {
    let world = World::new();
    world.write("deep/.gitignore", "*.tmp\n");
    world.commit("ignore");
    let task = world.create();
    task.write(".gitignore", "*\n");
    task.write("hidden.txt", "x\n");
    task.write("deep/x.tmp", "ignored by the base\n");
    task.write("deep/y.log", "ignored by the base\n");
    task.write("x.tmp", "only ignored in deep\n");
    task.write("target/out", "ignored by the base\n");
    write(&task.git.dir().git().join("info/exclude"), "*\n");
    let taken = task.candidate();
    let files = task.files(&world, taken.tree.as_str());
    assert_eq!(files, [".gitignore", "a.txt", "deep/.gitignore", "hidden.txt", "src/lib.rs", "x.tmp"]);
}

#[test]
fn a_huge_file_is_left_out_unread() {
    let world = World::new();
    let task = world.create();
    for name in ["huge.bin", "a.txt"] {
        std::fs::File::create(task.tree().join(name)).unwrap().set_len(1 << 42).unwrap();
    }
    for _ in 0..2 {
        let taken = task.candidate();
        let why = reasons(&taken);
        assert!(why["huge.bin"].contains("1 GiB") && why["a.txt"].contains("1 GiB"), "{why:?}");
        assert_eq!(taken.tree, task.created.base_tree, "the version before is kept");
    }
    task.write("a.txt", "small again\n");
    std::fs::remove_file(task.tree().join("huge.bin")).unwrap();
    let taken = task.candidate();
    assert!(taken.left_out.is_empty() && taken.tree != task.created.base_tree, "small again it counts again");
}

#[test]
fn a_forged_time_stamp_hides_no_change() {
    let world = World::new();
    let task = world.create();
    let path = task.tree().join("a.txt");
    let old = std::fs::File::options().write(true).open(&path).unwrap();
    let long_ago = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_000_000_000);
    old.set_modified(long_ago).unwrap();
    task.candidate();
    std::fs::write(&path, "ONE\ntwo\nthree\n").unwrap();
    std::fs::File::options().write(true).open(&path).unwrap().set_modified(long_ago).unwrap();
    assert_ne!(task.candidate().tree, task.created.base_tree, "same size, same mtime, same second: seen all the same");
}

#[test]
fn an_unreadable_file_is_named_and_kept_as_it_was() {
    let world = World::new();
    let task = world.create();
    task.write("a.txt", "changed\n");
    for name in ["a.txt", "src"] {
        std::fs::set_permissions(task.tree().join(name), std::fs::Permissions::from_mode(0o0)).unwrap();
    }
    let taken = task.candidate();
    std::fs::set_permissions(task.tree().join("src"), std::fs::Permissions::from_mode(0o755)).unwrap();
    if rustix::process::geteuid().is_root() {
        assert!(taken.left_out.is_empty(), "root reads everything");
    } else {
        let why = reasons(&taken);
        assert!(why["a.txt"].contains("not readable") && why["src"].contains("not readable"), "{why:?}");
        assert_eq!(taken.tree, task.created.base_tree);
    }
}

#[test]
fn attributes_that_break_git_break_only_their_files() {
    let world = World::new();
    let task = world.create();
    task.write(".gitattributes", "*.utf16 working-tree-encoding=UTF-16\n");
    task.write("bad.utf16", "odd number of bytes without a mark");
    task.write("good.txt", "good\n");
    let taken = task.candidate();
    let files = task.files(&world, taken.tree.as_str());
    assert!(files.contains(&"good.txt".to_owned()) && !files.contains(&"bad.utf16".to_owned()), "{files:?}");
    assert!(reasons(&taken)["bad.utf16"].contains("git could not store it"), "{taken:?}");
}

#[test]
fn file_and_directory_change_places() {
    let world = World::new();
    let task = world.create();
    task.remove("a.txt");
    task.write("a.txt/inner", "x\n");
    task.remove("src/lib.rs");
    std::fs::remove_dir(task.tree().join("src")).unwrap();
    task.write("src", "now a file\n");
    let taken = task.candidate();
    assert_eq!(task.files(&world, taken.tree.as_str()), [".gitignore", "a.txt/inner", "src"]);
    assert!(taken.left_out.is_empty(), "{taken:?}");
}

#[test]
fn a_broken_keeper_directory_is_made_anew() {
    let world = World::new();
    let task = world.create();
    task.write("a.txt", "changed\n");
    let first = task.candidate();
    let keeper = task.git.dir().keeper();
    write(&keeper.join("index.lock"), "left by a kill");
    assert_eq!(task.candidate().tree, first.tree, "a lock that was left does not matter");
    std::fs::write(keeper.join("index"), "garbage").unwrap();
    assert_eq!(task.candidate().tree, first.tree, "nor does a broken index");
    // The keeper's objects and what it knows of the host's are gone.
    std::fs::remove_dir_all(keeper.join("objects")).unwrap();
    std::fs::create_dir_all(keeper.join("objects/pack")).unwrap();
    std::fs::create_dir_all(keeper.join("objects/info")).unwrap();
    task.write("b.txt", "b\n");
    assert_eq!(task.files(&world, task.candidate().tree.as_str()), [".gitignore", "a.txt", "b.txt", "src/lib.rs"]);
}

#[test]
fn only_new_objects_come_out() {
    let world = World::new();
    for n in 0..50 {
        world.write(format!("many/{n}"), format!("{n}\n"));
    }
    world.commit("many");
    let task = world.create();
    task.write("many/7", "changed\n");
    task.candidate();
    let count = || {
        let out = world
            .command(&world.repo)
            .env("GIT_OBJECT_DIRECTORY", task.git.dir().objects())
            .args(["count-objects", "-v"])
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        text.lines().find_map(|l| l.strip_prefix("in-pack: ")).unwrap().parse::<u32>().unwrap()
    };
    assert_eq!(count(), 3, "one file, its directory, the top");
    task.candidate();
    assert_eq!(count(), 3, "the same candidate brings nothing");
    task.write("many/8", "changed too\n");
    task.candidate();
    assert_eq!(count(), 6, "the next one only what is newer");
}

#[test]
fn a_keeper_that_lies_is_refused() {
    let world = World::new();
    let task = world.create();
    let base = task.created.base_tree.as_str();
    let header = |tree: &str| format!("{{\"tree\":\"{tree}\",\"left_out\":[]}}\n").into_bytes();
    let say = |bytes: Vec<u8>, code| candidate(&task.git, &Says(bytes, code), true);
    assert!(say(header(base), 0).is_ok(), "an honest word is taken");
    assert!(matches!(say(Vec::new(), 1), Err(CandidateError::Ended(_))), "no word");
    assert!(matches!(say(header(base), 1), Err(CandidateError::Ended(_))), "a word and a failure");
    assert!(matches!(say(b"hello\n".to_vec(), 0), Err(CandidateError::Unknown(_))), "no header");
    assert!(matches!(say(header("../../etc"), 0), Err(CandidateError::Unknown(_))), "no id");
    assert!(matches!(say(header(&"a".repeat(40)), 0), Err(CandidateError::Refused(_))), "a tree that is not there");
    assert!(matches!(say([header(base), b"PACKxxxx".to_vec()].concat(), 0), Err(CandidateError::Unknown(_))), "half a pack");
    let huge = [header(base), b"PACK\0\0\0\x02\xff\xff\xff\xff".to_vec()].concat();
    assert!(matches!(say(huge, 0), Err(CandidateError::TooLarge { .. })), "too many objects");
    // A tree with a `.git` in it, and one with a link to a repository.
    let blob = world.git(["rev-parse", "HEAD:a.txt"]);
    let head = world.git(["rev-parse", "HEAD"]);
    for (entry, what) in [(format!("100644 blob {blob}\t.gIt"), ".git"), (format!("160000 commit {head}\tsub"), "a submodule")] {
        let tree = feed(&world, &["mktree", "--missing"], entry.as_bytes());
        let tree = String::from_utf8(tree).unwrap().trim().to_owned();
        let pack = feed(&world, &["pack-objects", "--stdout", "-q"], format!("{tree}\n").as_bytes());
        let out = say([header(&tree), pack].concat(), 0);
        assert!(matches!(out, Err(CandidateError::Refused(_))), "{what} is refused: {out:?}");
    }
    assert!(TreeId::parse(&task.candidate().tree.to_string()).is_ok(), "after all that an honest candidate is taken");
}

fn feed(world: &World, args: &[&str], input: &[u8]) -> Vec<u8> {
    let mut child = world
        .command(&world.repo)
        .args(args)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), input).unwrap();
    child.wait_with_output().unwrap().stdout
}

#[test]
fn a_tree_that_moves_is_survived() {
    let world = World::new();
    let task = world.create();
    let secret = world.dir.path().join("secret");
    write(&secret, "PRIVATE");
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|s| {
        s.spawn(|| {
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let path = task.tree().join("race");
                drop(std::fs::write(&path, "x\n"));
                drop(std::fs::remove_file(&path));
                drop(symlink(&secret, &path));
                drop(std::fs::remove_file(&path));
            }
        });
        for _ in 0..10 {
            // Either it was read, or it is said that it moved; what the link leads to is never in it.
            if let Ok(taken) = candidate(&task.git, &Unjailed, false) {
                assert!(!taken.still, "it is said that it was taken while running");
                task.files(&world, taken.tree.as_str());
            }
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
    drop(std::fs::remove_file(task.tree().join("race")));
    assert_eq!(task.candidate().tree, task.created.base_tree, "at rest it is exact again");
}

#[test]
fn one_name_that_git_refuses_makes_nothing_else_unreviewable() {
    let world = World::new();
    world.write(".gitmodules", "# none yet\n");
    world.commit("modules");
    let task = world.create();
    let names = [".git\u{200c}/x", "a/.g\u{200c}it/hooks/x", ".GIT/x", "git~1/x", "b/.git./x", "c\\.git/x"];
    for name in names {
        task.write(name, "x\n");
    }
    for dir in ["wt", "src"] {
        task.write(format!("{dir}/.git"), "gitdir: /nowhere\n");
    }
    symlink("a.txt", task.tree().join("src/.gitmodules")).unwrap();
    let bad = "[submodule \"../x\"]\n\tpath = x\n\turl = https://example.org/x\n";
    for name in [".gitmodules", "deep/.GitModules", "gitmod~1"] {
        task.write(name, bad);
    }
    task.write("long/.gitattributes", format!("*.x {}\n", "a".repeat(3000)));
    task.write("good/.gitmodules", "[submodule \"x\"]\n\tpath = x\n\turl = https://example.org/x\n");
    task.write("good/.gitattributes", "*.x text\n");
    task.write("a.txt", "changed\n");
    for _ in 0..2 {
        let taken = task.candidate();
        let files = task.files(&world, taken.tree.as_str());
        let good = [".gitignore", ".gitmodules", "a.txt", "good/.gitattributes", "good/.gitmodules", "src/lib.rs"];
        assert_eq!(files, good, "all else stays reviewable: {:#?}", taken.left_out);
        let changed = worktree::changes(&task.git, None, &taken.tree).unwrap();
        assert!(changed.iter().all(|f| f.path.to_string() != ".gitmodules"), "the base's version stands: {changed:?}");
        let why = reasons(&taken);
        for name in names {
            let name = model::path::RawPath::from(name).to_string();
            assert!(why.get(&name).is_some_and(|w| w.contains("take it for `.git`")), "{name}: {why:#?}");
        }
        for name in ["wt/.git", "src/.git"] {
            assert!(why[name].contains("stores nothing of this name"), "{why:#?}");
        }
        for name in [".gitmodules", "deep/.GitModules", "gitmod~1"] {
            assert!(why[name].contains("../x"), "{name}: what git says is told: {why:#?}");
        }
        assert!(why["long/.gitattributes"].contains("gitattributesLineLength"), "{why:#?}");
        assert!(why.contains_key("src/.gitmodules"), "{why:#?}");
    }
    task.write(".gitmodules", "# better\n");
    let taken = task.candidate();
    assert!(!reasons(&taken).contains_key(".gitmodules"), "a good one counts again: {:?}", taken.left_out);
}

#[test]
fn holes_and_masses_of_data_are_left_out_and_source_files_never() {
    let world = World::new();
    let task = world.create();
    for n in 0..90 {
        std::fs::File::create(task.tree().join(format!("hole{n}"))).unwrap().set_len(1000 << 20).unwrap();
        std::fs::File::create(task.tree().join(format!("small-hole{n}"))).unwrap().set_len(100 << 20).unwrap();
    }
    std::fs::File::options().write(true).open(task.tree().join("a.txt")).unwrap().set_len(200 << 20).unwrap();
    task.write("source.rs", "fn f() {}\n");
    for _ in 0..2 {
        let taken = task.candidate();
        assert_eq!(task.files(&world, taken.tree.as_str()), [".gitignore", "a.txt", "source.rs", "src/lib.rs"]);
        let why = reasons(&taken);
        assert_eq!(why.len(), 181, "each is named");
        assert!(why["hole7"].contains("1000 MiB") && why["hole7"].contains("above 256 MiB"), "{:?}", why["hole7"]);
        assert!(why["small-hole7"].contains("100 MiB") && why["small-hole7"].contains("sparse"), "{:?}", why["small-hole7"]);
        assert!(why["a.txt"].contains("sparse"), "{:?}", why["a.txt"]);
        let changed = worktree::changes(&task.git, None, &taken.tree).unwrap();
        assert_eq!(changed.len(), 1, "the version before is kept: {changed:?}");
    }
    task.write("a.txt", "small again\n");
    assert_eq!(worktree::changes(&task.git, None, &task.candidate().tree).unwrap().len(), 2, "small again it counts again");
}

#[test]
fn a_path_that_is_too_long_is_named() {
    let world = World::new();
    let task = world.create();
    let mut at = std::fs::File::open(task.tree()).unwrap();
    for n in 0..60 {
        let name = format!("{n:0>200}");
        rustix::fs::mkdirat(&at, &name, rustix::fs::Mode::RWXU).unwrap();
        at = rustix::fs::openat(&at, &name, rustix::fs::OFlags::DIRECTORY, rustix::fs::Mode::empty()).unwrap().into();
    }
    let flags = rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY;
    rustix::fs::openat(&at, "file", flags, rustix::fs::Mode::RWXU).unwrap();
    task.write("ok.txt", "ok\n");
    let taken = task.candidate();
    assert_eq!(task.files(&world, taken.tree.as_str()), [".gitignore", "a.txt", "ok.txt", "src/lib.rs"]);
    let why = reasons(&taken);
    assert!(why.iter().any(|(p, w)| p.len() > 4_000 && w.contains("4,000 bytes")) && why.len() == 1, "{why:?}");
}

#[test]
fn what_is_left_out_always_fits_into_the_answer() {
    let world = World::new();
    let task = world.create();
    let deep = format!("{}/", "\u{1}".repeat(250)).repeat(15);
    for n in 0..2_000 {
        let path = format!("{deep}{n}\n");
        if n == 0 {
            task.write(&path, "");
            std::fs::remove_file(task.tree().join(&path)).unwrap();
        }
        rustix::fs::mknodat(rustix::fs::CWD, task.tree().join(&path), rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0)
            .unwrap();
    }
    let taken = task.candidate();
    let (last, count) = taken.left_out.last().unwrap();
    assert!(last.to_string() == "…" && count.contains("more paths"), "the rest is counted: {count}");
}
