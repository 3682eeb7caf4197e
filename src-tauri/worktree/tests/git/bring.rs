//! What comes along from a working copy: carried trees, masked settings, and nothing else; whatever traps lie there.

use crate::fixture::{Task, Unjailed, World, listing, reasons, same, write};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use worktree::{BringError, Brought, Wanted, bring};

fn texts(list: &[&str]) -> Vec<String> {
    list.iter().map(|t| (*t).to_owned()).collect()
}

fn brings(world: &World, task: &Task, carry: &[&str], mask: &[&str]) -> Result<Brought, BringError> {
    let (carry, mask) = (texts(carry), texts(mask));
    bring(&task.git, &world.facts(), &Unjailed, Wanted { carry: &carry, mask: &mask }, &|_| ())
}

fn named(name: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(name))
}

/// Like [`World::listing`] without contents, for trees with special and sparse files.
fn marks(dir: &Path) -> Vec<String> {
    let mut all = Vec::new();
    let mut todo = vec![dir.to_owned()];
    while let Some(path) = todo.pop() {
        let meta = std::fs::symlink_metadata(&path).unwrap();
        if meta.is_dir() {
            todo.extend(std::fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()));
        }
        all.push(format!("{path:?} {:o} {} {} {} {}", meta.mode(), meta.len(), meta.ino(), meta.mtime(), meta.mtime_nsec()));
    }
    all.sort();
    all
}

#[test]
fn ignored_trees_come_along_and_nothing_else_does() {
    let world = World::new();
    world.write(".gitignore", "node_modules/\n/target/\n*.log\n/build/*\n!/build/kept.txt\n");
    world.write("build/kept.txt", "of the base\n");
    world.commit("rules");
    world.write("build/kept.txt", "changed by the person\n");
    world.write("build/made.o", "object\n");
    world.write("node_modules/a/index.js", "one\n");
    world.write("node_modules/a/.git/config", "[core]\n");
    world.write("packages/web/node_modules/b/index.js", "two\n");
    world.write("target/debug/out", "not wanted\n");
    world.write("untracked.txt", "not ignored\n");
    world.write("x.log", "not wanted\n");
    let before = world.listing();
    let task = world.create();
    let brought = brings(&world, &task, &["node_modules", "build"], &[]).unwrap();
    same(&world.listing(), &before, "the working copy is only read");
    let read = |path: &str| std::fs::read_to_string(task.tree().join(path)).ok();
    assert_eq!(read("node_modules/a/index.js").as_deref(), Some("one\n"));
    assert_eq!(read("node_modules/a/.git/config").as_deref(), Some("[core]\n"), "a nested repository is files");
    assert_eq!(read("packages/web/node_modules/b/index.js").as_deref(), Some("two\n"), "a name counts in every directory");
    assert_eq!(read("build/made.o").as_deref(), Some("object\n"));
    assert_eq!(read("build/kept.txt").as_deref(), Some("of the base\n"), "what is tracked is as in the base");
    for not in ["target", "untracked.txt", "x.log"] {
        assert_eq!(read(not), None, "{not}");
        assert!(!task.tree().join(not).exists(), "{not}");
    }
    assert_eq!((brought.files, brought.skipped.as_slice()), (4, [].as_slice()), "{brought:?}");
    assert_eq!(brought.bytes, 4 + 7 + 4 + 7, "{brought:?}");

    // A file of its own: what an agent writes is not the person's.
    task.write("node_modules/a/index.js", "of the agent\n");
    same(&world.listing(), &before, "nothing is shared with the working copy");
    let candidate = task.candidate();
    assert_eq!(candidate.tree, world.create().candidate().tree, "carried files are in no candidate: {:?}", reasons(&candidate));
}

#[test]
fn a_pattern_may_lead_into_an_ignored_directory() {
    let world = World::new();
    world.write("target/cache/x", "x\n");
    world.write("target/other/y", "y\n");
    let task = world.create();
    let brought = brings(&world, &task, &["target/cache", "target/missing/z", "nothing"], &[]).unwrap();
    assert_eq!(brought.files, 1);
    assert!(task.tree().join("target/cache/x").exists() && !task.tree().join("target/other").exists());
}

#[test]
fn traps_in_a_working_copy_are_copied_as_what_they_are_or_not_at_all() {
    let world = World::new();
    let odd = world.repo.join("target");
    write(&odd.join("plain"), "plain\n");
    symlink("/etc/passwd", odd.join("to-passwd")).unwrap();
    symlink("../../..", odd.join("up")).unwrap();
    symlink("/nonexistent", odd.join("to-nothing")).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, odd.join("fifo"), rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(odd.join("socket")).unwrap();
    write(&odd.join("setuid"), "program");
    std::fs::set_permissions(odd.join("setuid"), std::fs::Permissions::from_mode(0o4755)).unwrap();
    let sparse = std::fs::File::create(odd.join("sparse")).unwrap();
    sparse.set_len(10 << 30).unwrap();
    std::os::unix::fs::FileExt::write_at(&sparse, b"middle", 5 << 30).unwrap();
    for name in [&b"line\nbreak"[..], b"not \xff\xfe utf-8", b"-rf", b" \t", b"\x1b[2J"] {
        write(&odd.join("names").join(named(name)), "named\n");
    }
    std::fs::hard_link(odd.join("plain"), odd.join("linked")).unwrap();
    std::fs::hard_link(world.repo.join("a.txt"), odd.join("tracked-by-another-name")).unwrap();
    let mut deep = odd.join("deep");
    std::fs::create_dir(&deep).unwrap();
    for _ in 0..180 {
        deep = deep.join("d");
        std::fs::create_dir(&deep).unwrap();
    }
    write(&odd.join("readonly/file"), "kept\n");
    std::fs::set_permissions(odd.join("readonly"), std::fs::Permissions::from_mode(0o555)).unwrap();
    let before = marks(&odd);
    let task = world.create();
    let brought = brings(&world, &task, &["target"], &[]).unwrap();
    assert_eq!(marks(&odd), before, "the working copy is only read");

    let at = |name: &str| task.tree().join("target").join(name);
    let link = |name: &str| std::fs::read_link(at(name)).unwrap();
    assert_eq!(link("to-passwd"), Path::new("/etc/passwd"), "a link is a link");
    assert_eq!((link("up"), link("to-nothing")), ("../../..".into(), "/nonexistent".into()));
    for not in ["fifo", "socket", "setuid"] {
        assert!(std::fs::symlink_metadata(at(not)).is_err(), "{not} stays behind");
    }
    let meta = std::fs::metadata(at("sparse")).unwrap();
    assert!(meta.len() == 10 << 30 && meta.blocks() * 512 < 1 << 20, "holes stay holes: {} blocks", meta.blocks());
    let mut middle = [0; 6];
    std::os::unix::fs::FileExt::read_exact_at(&std::fs::File::open(at("sparse")).unwrap(), &mut middle, 5 << 30).unwrap();
    assert_eq!(&middle, b"middle");
    for name in [&b"line\nbreak"[..], b"not \xff\xfe utf-8", b"-rf", b" \t", b"\x1b[2J"] {
        assert_eq!(std::fs::read(at("names").join(named(name))).unwrap(), b"named\n", "{name:?}");
    }
    for name in ["plain", "linked", "tracked-by-another-name"] {
        assert_eq!(std::fs::metadata(at(name)).unwrap().nlink(), 1, "{name} is a file of its own");
    }
    assert_eq!(std::fs::read(at("readonly/file")).unwrap(), b"kept\n");
    let skipped: Vec<&str> = brought.skipped.iter().map(|(why, _)| why.as_str()).collect();
    assert_eq!(skipped, ["a FIFO", "a set-uid program", "a socket", "too many directories deep"], "{brought:?}");
    assert!(std::fs::symlink_metadata(odd.join("fifo")).unwrap().file_type().is_fifo());
    std::fs::set_permissions(odd.join("readonly"), std::fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn p1_a_link_of_the_base_leads_nothing_out_of_the_tree() {
    let world = World::new();
    let victim = world.dir.path().join("victim");
    std::fs::create_dir_all(victim.join("target")).unwrap();
    symlink(&victim, world.repo.join("web")).unwrap();
    symlink(&victim, world.repo.join("deep")).unwrap();
    world.write(".gitignore", "node_modules\ntarget\n");
    world.commit("links");
    // The person has made directories of them since.
    for dir in ["web", "deep"] {
        std::fs::remove_file(world.repo.join(dir)).unwrap();
    }
    world.write("web/node_modules/x.js", "x\n");
    world.write("deep/target/x", "x\n");
    let task = world.create();
    let brought = brings(&world, &task, &["node_modules", "deep/target", "target"], &[]).unwrap();
    assert_eq!(listing(&victim).len(), 2, "nothing is made through a link");
    assert_eq!(brought.files, 0, "{brought:?}");
    assert!(std::fs::symlink_metadata(task.tree().join("web")).unwrap().is_symlink());
}

#[test]
fn p2_settings_come_along_without_their_values() {
    let world = World::new();
    world.write(".gitignore", ".env\n.env.*\n!.env.example\nsecret/\nnode_modules/\n");
    world.write(".env.example", "API_KEY=\n");
    world.commit("rules");
    world.write(".env", "# mine\nAPI_KEY=\"s3cret-one\"\nexport PORT=3000\n");
    world.write("web/.env.local", "TOKEN='s3cret-two'\n");
    world.write("web/.env.json", "{\"a\": \"s3cret-three\"}");
    world.write("node_modules/p/.env", "K=s3cret-four\n");
    world.write("secret/.env", "K=s3cret-five\n");
    std::fs::create_dir_all(world.repo.join("odd")).unwrap();
    symlink("../.env", world.repo.join("odd/.env")).unwrap();
    rustix::fs::mknodat(rustix::fs::CWD, world.repo.join("odd/.env.fifo"), rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0)
        .unwrap();
    write(&world.repo.join("odd").join(named(b".env.\n")), "K=s3cret-six\n");
    let task = world.create();
    let before = marks(&world.repo);
    let brought = brings(&world, &task, &["node_modules"], &[".env", ".env.*"]).unwrap();
    assert_eq!(marks(&world.repo), before, "the person's own are as they were");
    let read = |path: &str| std::fs::read_to_string(task.tree().join(path)).unwrap();
    assert_eq!(read(".env"), "API_KEY=\"placeholder-API_KEY\"\nexport PORT=placeholder-PORT\n");
    assert_eq!(read("web/.env.local"), "TOKEN='placeholder-TOKEN'\n");
    assert_eq!(read("web/.env.json"), "", "what is of no known form is empty");
    assert_eq!(read("node_modules/p/.env"), "K=placeholder-K\n", "in what is carried too");
    assert_eq!(read(".env.example"), "API_KEY=\n", "an example is as in the base");
    let mut todo = vec![task.tree()];
    while let Some(path) = todo.pop() {
        let meta = std::fs::symlink_metadata(&path).unwrap();
        if meta.is_dir() {
            todo.extend(std::fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()));
        } else if meta.is_file() {
            let text = String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned();
            assert!(!text.contains("s3cret"), "{}: {text}", path.display());
        }
    }
    let odd: Vec<_> = std::fs::read_dir(task.tree().join("odd")).unwrap().map(|e| e.unwrap().file_name()).collect();
    assert_eq!(odd, [OsStr::new(".env.\n")], "a link and a FIFO stay behind");
    let masked: Vec<String> = brought.masked.iter().map(ToString::to_string).collect();
    assert_eq!(masked, [".env", "node_modules/p/.env", "odd/.env.\\x0a", "web/.env.json", "web/.env.local"], "{brought:?}");
    assert_eq!((brought.files, brought.bytes), (0, 0), "a masked file is not carried: {brought:?}");
}

#[test]
fn a_masked_file_is_in_no_candidate_whatever_an_agent_does() {
    let world = World::new();
    world.write(".gitignore", ".env*\n");
    world.commit("rules");
    world.write(".env", "API_KEY=s3cret\n");
    world.write(".env [*]", "API_KEY=s3cret\n");
    let task = world.create();
    let empty = task.candidate().tree;
    assert_eq!(brings(&world, &task, &[], &[".env", ".env*"]).unwrap().masked.len(), 2);
    assert_eq!(task.candidate().tree, empty);
    task.write(".gitignore", "!.env\n!.env*\n");
    task.write(".env", "API_KEY=of the agent\n");
    let files = task.files(&world, task.candidate().tree.as_str());
    assert_eq!(files, [".gitignore", "a.txt", "src/lib.rs"], "nor one that it says is not ignored");
    task.remove(".env");
    assert!(!task.files(&world, task.candidate().tree.as_str()).contains(&".env".to_owned()));
}

#[test]
fn p2_a_secret_in_history_is_refused_by_name_and_a_harmless_file_is_told() {
    let world = World::new();
    world.write("web/.env", "NODE_ENV=development\nPORT=3000\nAPI=https://api.example.org\nAPI_KEY=your-key\n");
    world.commit("harmless");
    let task = world.create();
    let brought = brings(&world, &task, &[], &[".env", ".env.*"]).unwrap();
    assert_eq!(brought.tracked.iter().map(ToString::to_string).collect::<Vec<_>>(), ["web/.env"]);
    world.write("config/.env.production", "DB_URL=postgres://app:hunter2hunter2@db.intern/app\nSMTP_PASSWORD=Tr0ub4dor&3\n");
    world.write("config/.env.sample", "DB_URL=postgres://app:hunter2hunter2@db.intern/app\n");
    world.commit("a secret");
    let task = world.create();
    let refused = brings(&world, &task, &[], &[".env", ".env.*"]).unwrap_err();
    let told = refused.to_string();
    assert!(matches!(refused, BringError::Tracked { .. }), "{told}");
    for part in
        ["`config/.env.production` is in the repository's history", "DB_URL, SMTP_PASSWORD", "\"!config/.env.production\""]
    {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert!(!told.contains("hunter2") && !told.contains("sample"), "{told}");
    let brought = brings(&world, &task, &[], &[".env", ".env.*", "!config/.env.production"]).unwrap();
    assert_eq!(brought.tracked.len(), 1, "what a person names may be seen: {brought:?}");
}
