//! Candidates of a tree, and copies of a working copy, that somebody changes all the time: nothing outside is read, written or
//! stored, thousands of times.

mod attacker;
mod world;

use attacker::{Attacker, Shape};
use model::keeper::KeeperError;
use std::process::Command;
use supervise::keeper::JailKeeper;
use testkit::program;
use worktree::{BringError, CandidateError, Wanted};
use world::{SECRET, World};

/// How many candidates are taken, or copies made, under attack.
fn rounds() -> usize {
    if std::env::var_os("AIRLOCK_TIER").is_some_and(|tier| tier == "long") {
        return 3000;
    }
    // Fewer where the processor is emulated: what they show is not that kernel's.
    let slower = testkit::wait::patiently(std::time::Duration::from_secs(1)).as_secs();
    usize::try_from(60 / slower).unwrap_or(60).max(6)
}

fn keeper() -> JailKeeper {
    JailKeeper { jail_program: program("airlock-jail"), warden_program: program("airlock-warden"), fallback: false }
}

/// Places of the tree, each with what stands there one after the other. Behind every link lies a file with a secret.
fn attack(world: &World) -> Attacker {
    use Shape::{Dir, DirWithLink, Fifo, File, Gone, HardLink, Link, Repository, Socket, Sparse};
    let file = |name: &str| Link(world.outside.join(name));
    let deeper = || DirWithLink(world.outside.join("deep/er"));
    let attributes = || File("* text=auto filter=evil diff=evil ident\n".into());
    Attacker::start(
        &world.stage,
        vec![
            (world.tree.join("a.txt"), vec![File("one\n".into()), file("key"), Fifo, Dir, HardLink, Socket, Sparse, Gone]),
            (world.tree.join("src"), vec![Dir, file("dir"), File("a file\n".into()), file("dir"), Repository]),
            (world.tree.join("deep"), vec![Dir, file("deep"), deeper(), Link("/proc/self/root".into()), Dir, Link("..".into())]),
            (world.tree.join("new"), vec![Gone, file("dir"), Dir, file("key"), File("new\n".into()), Repository]),
            (world.tree.join(".gitattributes"), vec![attributes(), file("key"), Dir, Fifo, Gone]),
            (world.tree.join(".gitignore"), vec![File("*.log\n".into()), file("key"), Fifo, Dir, Gone]),
            (
                world.tree.join(".gitmodules"),
                vec![Gone, File("[submodule \"x\"]\n\tpath = src\n\turl = x\n".into()), file("key")],
            ),
            (world.tree.join(".git"), vec![File("gitdir: ../outside/repo/.git\n".into()), file("repo/.git"), Dir, Repository]),
            (world.tree.join(".GIT"), vec![Gone, Repository, file("repo/.git")]),
        ],
    )
}

#[test]
fn p2_a_tree_that_changes_all_the_time_leads_nowhere() {
    let world = World::new();
    // The control: git itself, on the host, goes through the links.
    {
        let places = [("src", "dir"), ("deep", "deep")]
            .map(|(place, behind)| (world.tree.join(place), vec![Shape::Dir, Shape::Link(world.outside.join(behind))]));
        let _attacker = Attacker::start(&world.stage, places.to_vec());
        let mut tries = 0;
        while !world.add_all_took_it() {
            tries += 1;
            assert!(tries < 3000, "without a keeper the attack reads what lies outside");
        }
        println!("control: `git add` on the host stored what lies outside at try {}", tries + 1);
    }
    let before = world.watch();
    let (mut taken, mut refused) = (0, 0);
    {
        let attacker = attack(&world);
        for round in 0..rounds() {
            match worktree::candidate(&world.git, &keeper(), false) {
                Ok(candidate) => {
                    taken += 1;
                    if round % 10 == 0 {
                        worktree::changes(&world.git, None, &candidate.tree).unwrap();
                        let patch = worktree::unified(&world.git, None, &candidate.tree).unwrap();
                        assert!(!patch.windows(SECRET.len()).any(|w| w == SECRET.as_bytes()), "a diff shows what lies outside");
                    }
                }
                // The tree moved while git looked, or git said so in its own words; what came out of it was not taken.
                Err(CandidateError::Ended(_) | CandidateError::Refused(_)) => refused += 1,
                Err(CandidateError::Keeper(KeeperError::Timeout(limit))) => panic!("round {round} hung for {limit:?}"),
                Err(other) => panic!("round {round}: {other}"),
            }
        }
        println!(
            "candidates under attack: {} rounds, {taken} taken, {refused} refused, {} changes of the tree, 0 leaks",
            rounds(),
            attacker.changes()
        );
    }
    assert!(taken > 0, "some are taken");
    world.untouched(before);
    world.no_object_has_the_secret();
    // And when it stands still again, all is as ever.
    std::fs::write(world.tree.join("last.txt"), "x\n").unwrap();
    worktree::candidate(&world.git, &keeper(), true).unwrap();
}

/// Names that a task brings along, in a working copy or a tree, each with what stands there one after the other.
fn carried_names(world: &World, at: &std::path::Path) -> Attacker {
    use Shape::{Dir, DirWithLink, Fifo, File, Gone, HardLink, Link, Repository, Socket, Sparse};
    let behind = |name: &str| Link(world.outside.join(name));
    let own = || File("carried\n".into());
    let places = vec![
        (at.join("a.log"), vec![own(), behind("key"), Fifo, Dir, HardLink, Socket, Sparse, Gone]),
        (at.join("A.LOG"), vec![Gone, behind("key"), own()]),
        (at.join("dir.log"), vec![Dir, behind("dir"), own(), Repository, behind("dir")]),
        (at.join("deep.log"), vec![Dir, behind("deep"), DirWithLink(world.outside.join("deep/er")), Link("..".into()), Gone]),
        (at.join("root.log"), vec![Dir, Link("/proc/self/root".into()), Link(world.root().into())]),
        (at.join(".env"), vec![File("TOKEN=carried\n".into()), behind("key"), Fifo, Dir, Sparse, HardLink, Gone]),
    ];
    Attacker::start(&world.stage, places)
}

#[test]
fn p2_what_comes_along_from_a_copy_that_changes_all_the_time_is_the_copys() {
    let world = World::new();
    let names = ["a.log", "A.LOG", "dir.log", "deep.log", "root.log", ".env"];
    let patterns = |list: &[&str]| list.iter().map(|p| (*p).to_owned()).collect::<Vec<String>>();
    let (carry, mask) = (patterns(&["*.log", "*.LOG"]), patterns(&[".env"]));
    let (mut brought, mut refused, mut files, mut masked) = (0, 0, 0, 0);
    // The control: who looks first and opens then is led out.
    {
        let _attacker = carried_names(&world, &world.repo);
        let at = world.repo.join("a.log");
        let led_out = |_: &usize| {
            let is_file = at.symlink_metadata().is_ok_and(|about| about.is_file() && about.len() < 100);
            is_file && std::fs::read(&at).is_ok_and(|text| text.starts_with(SECRET.as_bytes()))
        };
        let tries = (1..2_000_000).find(led_out).expect("without a keeper the attack reads what lies outside");
        println!("control: a look and a read on the host read what lies outside at try {tries}");
    }
    let before = world.watch();
    for round in 0..rounds() {
        let source = carried_names(&world, &world.repo);
        // In every other round also where it is copied to.
        let tree = (round % 2 == 1).then(|| carried_names(&world, &world.tree));
        match worktree::bring(&world.git, &world.facts, &keeper(), Wanted { carry: &carry, mask: &mask }, &|_| ()) {
            Ok(all) => {
                brought += 1;
                files += all.files;
                masked += all.masked.len();
            }
            Err(BringError::Ended(_)) => refused += 1,
            Err(other) => panic!("round {round}: {other}"),
        }
        drop((source, tree));
        assert_eq!(world.files_with(SECRET), Vec::<String>::new(), "round {round}: what lies outside came along");
        for name in names {
            attacker::remove(&world.tree.join(name));
        }
    }
    println!("carry under attack: {} rounds, {brought} brought, {refused} refused, {files} files, {masked} masked", rounds());
    assert!(brought > 0 && files > 0 && masked > 0, "something comes along");
    world.untouched(before);
    // And when it stands still again, all is as ever.
    std::fs::write(world.repo.join("a.log"), "carried\n").unwrap();
    worktree::bring(&world.git, &world.facts, &keeper(), Wanted { carry: &carry, mask: &mask }, &|_| ()).unwrap();
    assert_eq!(world.files_with("carried").len(), 1, "the search finds what came along");
}

#[test]
fn p9_nothing_planted_for_git_is_opened_or_run() {
    let world = World::new();
    let ran = world.root().join("ran");
    let run = format!("touch {}", ran.display());
    let git = world.private_git();
    let plant = |path: &str, text: &str| {
        let path = git.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    // What git would run or follow, in the git directory that the agent may write.
    plant(
        "config",
        &format!(
            "[core]\n\tfsmonitor = {run}\n\thooksPath = hooks\n\tworktree = {outside}\n\tsplitIndex = true\n\tuntrackedCache = true\n\
         \tsshCommand = {run}\n\tpager = {run}\n[filter \"evil\"]\n\tclean = {run}\n\tsmudge = {run}\n\tprocess = {run}\n\trequired = true\n\
         [diff \"evil\"]\n\tcommand = {run}\n\ttextconv = {run}\n[diff]\n\texternal = {run}\n[include]\n\tpath = {outside}/key\n\
         [extensions]\n\tpartialClone = origin\n[remote \"origin\"]\n\turl = ext::{run}\n\tpromisor = true\n",
            outside = world.outside.display(),
        ),
    );
    let objects = world.outside.join("repo/.git/objects");
    plant("objects/info/alternates", &format!("{}\n", objects.display()));
    plant("objects/info/http-alternates", &format!("{}\n", objects.display()));
    plant("commondir", &format!("{}\n", world.outside.join("repo/.git").display()));
    plant("gitdir", &format!("{}\n", world.outside.join("repo/.git").display()));
    plant("info/grafts", "0000000000000000000000000000000000000001\n");
    plant("info/attributes", "* filter=evil diff=evil\n");
    plant("info/exclude", "*\n");
    plant("info/sparse-checkout", "/nothing\n");
    plant("shallow", "0000000000000000000000000000000000000001\n");
    plant("refs/replace/0000000000000000000000000000000000000001", "0000000000000000000000000000000000000002\n");
    for hook in ["post-index-change", "pre-auto-gc", "reference-transaction", "fsmonitor-watchman"] {
        plant(&format!("hooks/{hook}"), &format!("#!/bin/sh\n{run}\n"));
        std::fs::set_permissions(git.join("hooks").join(hook), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
    // An index with a shared part elsewhere, and one with a monitor's bitmap; packs that unfold to gigabytes; a mass of refs.
    plant("index", "DIRC\0\0\0\x02\0\0\0\0link\0\0\0\x14aaaaaaaaaaaaaaaaaaaa");
    std::os::unix::fs::symlink(world.outside.join("key"), git.join("sharedindex.6161616161616161616161616161616161616161"))
        .unwrap();
    plant("objects/pack/pack-bomb.pack", "PACK\0\0\0\x02\x7f\x7f\x7f\x7f");
    plant("objects/pack/pack-bomb.idx", "\u{ff}tOc");
    std::os::unix::fs::symlink(&world.outside, git.join("objects/aa")).unwrap();
    std::fs::create_dir_all(git.join("refs/heads/mass")).unwrap();
    for n in 0..5_000 {
        std::fs::write(git.join(format!("refs/heads/mass/{n}")), "0000000000000000000000000000000000000001\n").unwrap();
    }
    std::fs::remove_file(git.join("packed-refs")).unwrap();
    assert!(Command::new("mkfifo").arg(git.join("packed-refs")).status().unwrap().success());
    std::fs::write(world.tree.join("b.txt"), "new\n").unwrap();
    let before = world.watch();
    let planted = world.watch_private_git();
    let taken = worktree::candidate(&world.git, &keeper(), true).unwrap();
    let changed = worktree::changes(&world.git, None, &taken.tree).unwrap();
    assert_eq!(changed.iter().map(|f| f.path.to_string()).collect::<Vec<_>>(), ["b.txt"]);
    worktree::unified(&world.git, None, &taken.tree).unwrap();
    planted.nothing_opened("the private git directory is for the jail alone");
    world.untouched(before);
    assert!(!ran.exists(), "nothing planted ran");
    world.no_object_has_the_secret();
}
