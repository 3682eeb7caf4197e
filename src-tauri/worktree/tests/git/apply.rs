//! Exits: exactly the objects, one ref, and where it is checked out the files shown; else nothing. And back.

use crate::fixture::{Task, World, exit_id, listing, same, write};
use model::exit::{Approved, Exit};
use model::id::TreeId;
use model::path::RawPath;
use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::PathBuf;
use std::sync::Mutex;
use worktree::{
    ApplyError, ApplySpec, Journal, JournalError, Onto, Outcome, Plan, Step, act, plan_apply, plan_undo, recover, result_tree,
};

/// A journal in memory.
#[derive(Default)]
pub(crate) struct Memory(pub(crate) Mutex<Vec<Step>>);

impl Journal for Memory {
    fn record(&self, step: &Step) -> Result<(), JournalError> {
        self.0.lock().unwrap().push(step.clone());
        Ok(())
    }
}

pub(crate) fn approved(task: &Task, candidate: &TreeId, result: &TreeId) -> Approved<Exit> {
    let exit = Exit {
        task: task.git.task.clone(),
        candidate: candidate.clone(),
        result: result.clone(),
        base: task.created.base.clone(),
    };
    let digest = exit.digest();
    Approved::check(exit, &digest).unwrap()
}

pub(crate) fn plan(world: &World, task: &Task, onto: &Onto) -> Result<Plan, ApplyError> {
    plan_of(world, task, onto, "The work\n\nWith a body.\n")
}

fn plan_of(world: &World, task: &Task, onto: &Onto, message: &str) -> Result<Plan, ApplyError> {
    let tree = task.candidate().tree;
    let approved = approved(task, &tree, &tree);
    let repo = world.facts();
    plan_apply(&ApplySpec {
        task: &task.git,
        exit: &exit_id(1),
        approved: &approved,
        repo: &repo,
        home: &world.home,
        onto,
        message,
    })
}

pub(crate) fn main() -> Onto {
    Onto::Branch("main".to_owned())
}

fn apply(world: &World, task: &Task, onto: &Onto) -> Result<Plan, ApplyError> {
    let plan = plan(world, task, onto)?;
    act(&world.layout, &plan, &Memory::default())?;
    Ok(plan)
}

fn undo(world: &World, applied: &Plan) -> Result<Plan, ApplyError> {
    let plan = plan_undo(&world.layout, &world.home, &exit_id(2), applied)?;
    act(&world.layout, &plan, &Memory::default())?;
    Ok(plan)
}

/// The working tree without times, which a file that was put in place and back does not keep exactly.
pub(crate) fn contents(world: &World) -> BTreeMap<PathBuf, String> {
    let cut = |text: String| {
        let mut words: Vec<&str> = text.splitn(5, ' ').collect();
        words.remove(3);
        words.join(" ")
    };
    let outside = listing(&world.repo).into_iter().filter(|(p, _)| !p.starts_with(".git"));
    outside.map(|(p, t)| (p, cut(t))).collect()
}

/// Everything but objects and reflogs, as it was before a refused exit.
fn untouched(world: &World) -> BTreeMap<PathBuf, String> {
    world.listing()
}

/// A task that changes, adds, removes, renames, links and makes executable.
fn varied(world: &World) -> Task {
    let task = world.create();
    task.write("a.txt", "ONE\ntwo\nthree\n");
    task.write("deep/er/new.txt", "new\n");
    task.remove("src/lib.rs");
    symlink("a.txt", task.tree().join("link")).unwrap();
    task.write("run.sh", "#!/bin/sh\n");
    std::fs::set_permissions(task.tree().join("run.sh"), std::fs::Permissions::from_mode(0o755)).unwrap();
    task
}

#[test]
fn a_checked_out_branch_moves_with_its_files_and_back() {
    let world = World::new();
    let ran = world.dir.path().join("ran");
    for hook in ["post-checkout", "reference-transaction", "pre-commit", "post-commit", "post-index-change", "commit-msg"] {
        let path = world.repo.join(".git/hooks").join(hook);
        write(&path, format!("#!/bin/sh\ntouch {}\n", ran.display()));
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    world.git(["config", "core.fsmonitor", &format!("touch {}", ran.display())]);
    let task = varied(&world);
    world.write("mine.txt", "the person's own, untracked\n");
    world.write(".gitignore", "the person's own change\n");
    let old = world.git(["-c", "core.hooksPath=/dev/null", "-c", "core.fsmonitor=false", "rev-parse", "main"]);
    drop(std::fs::remove_file(&ran));
    let before = contents(&world);
    let objects = |w: &World| listing(&w.repo.join(".git/objects")).len();
    let had = objects(&world);

    let plan = apply(&world, &task, &main()).unwrap();
    assert!(!ran.exists(), "no hook and no fsmonitor of the person's ran");
    world.git(["config", "--unset", "core.fsmonitor"]);
    assert_eq!(std::fs::read_to_string(world.repo.join("a.txt")).unwrap(), "ONE\ntwo\nthree\n");
    assert_eq!(std::fs::read_to_string(world.repo.join("mine.txt")).unwrap(), "the person's own, untracked\n");
    assert!(!world.repo.join("src").exists(), "a directory left empty goes");
    assert_eq!(std::fs::read_link(world.repo.join("link")).unwrap(), PathBuf::from("a.txt"));
    assert_eq!(world.git(["status", "--porcelain"]), " M .gitignore\n?? mine.txt", "index and files moved along; theirs stayed");
    assert_eq!(
        world.git(["log", "-1", "--format=%an|%ae|%cn|%s|%b|%P"]),
        format!("Jo Person|jo@example.org|Jo Person|The work|With a body.\n|{old}")
    );
    assert_eq!(world.git(["rev-parse", "main^{tree}"]), plan.tree.as_str());
    assert!(world.git(["reflog", "-1", "main"]).contains("airlock apply: The work"), "the reflog says what it was");
    assert!(world.git(["reflog", "-1", "HEAD"]).contains("airlock apply"), "HEAD's too");
    // Commit, three trees, four files; each a loose object in a directory of its own at most.
    let new = world.git(["rev-list", "--objects", "main", &format!("^{old}")]).lines().count();
    let loose = world.git(["count-objects"]);
    assert!(objects(&world) - had <= 2 * new, "exactly the new objects: {new} of {loose}");
    assert_eq!(world.git(["for-each-ref", "--format=%(refname)"]), "refs/heads/main", "one ref");
    assert!(!world.repo.join(".git/index.lock").exists());
    assert!(!world.layout.data.join("exits").join(plan.exit.as_str()).exists(), "nothing of the exit is left");
    world.git(["fsck", "--strict"]);

    undo(&world, &plan).unwrap();
    assert_eq!(world.git(["rev-parse", "main"]), old);
    same(&contents(&world), &before, "every file is back");
    assert_eq!(world.git(["status", "--porcelain"]), " M .gitignore\n?? mine.txt");
}

#[test]
fn another_branch_moves_alone() {
    let world = World::new();
    world.git(["branch", "work"]);
    let task = varied(&world);
    world.write("a.txt", "dirty where the task wrote\n");
    let before = contents(&world);
    let index = std::fs::read(world.repo.join(".git/index")).unwrap();
    let plan = apply(&world, &task, &Onto::Branch("work".to_owned())).unwrap();
    assert_eq!(plan.checkout, None);
    same(&contents(&world), &before, "no file changed");
    assert_eq!(std::fs::read(world.repo.join(".git/index")).unwrap(), index, "nor the index");
    assert_eq!(world.git(["rev-parse", "work^{tree}"]), plan.tree.as_str());
    undo(&world, &plan).unwrap();
    assert_eq!(world.git(["rev-parse", "work"]), world.git(["rev-parse", "main"]));
}

#[test]
fn a_linked_worktree_moves_along() {
    let world = World::new();
    world.git(["worktree", "add", "-q", "-b", "side", "../linked tree"]);
    let linked = world.dir.path().join("linked tree");
    let task = varied(&world);
    let plan = apply(&world, &task, &Onto::Branch("side".to_owned())).unwrap();
    assert_eq!(plan.checkout.as_ref().map(|c| c.top.to_string()), Some(linked.to_string_lossy().into_owned()));
    assert_eq!(world.git_in(&linked, ["status", "--porcelain"]), "");
    assert!(linked.join("run.sh").exists() && !world.repo.join("run.sh").exists(), "only that working copy moved");
    undo(&world, &plan).unwrap();
    assert_eq!(world.git_in(&linked, ["status", "--porcelain"]), "");
    assert!(!linked.join("run.sh").exists());
    // From the linked worktree onto the main one's branch.
    let main_of = World {
        repo: linked,
        dir: tempfile::tempdir().unwrap(),
        home: world.home.clone(),
        layout: world.layout.clone(),
        repo_id: world.repo_id.clone(),
    };
    let plan = apply(&main_of, &task, &main()).unwrap();
    assert_eq!(plan.checkout.map(|c| c.top.to_string()), Some(world.repo.to_string_lossy().into_owned()));
    assert!(world.repo.join("run.sh").exists());
}

#[test]
fn a_new_branch_is_made_at_the_base_and_removed_by_undo() {
    let world = World::new();
    world.git(["checkout", "-q", "--detach"]);
    let task = varied(&world);
    let before = contents(&world);
    let onto = Onto::NewBranch("fresh".to_owned());
    let plan = apply(&world, &task, &onto).unwrap();
    assert_eq!(world.git(["rev-parse", "fresh^"]), task.created.base.as_str());
    same(&contents(&world), &before, "a detached HEAD stays where it is");
    assert!(matches!(plan_err(&world, &task, &onto), ApplyError::BranchExists(_)));
    undo(&world, &plan).unwrap();
    assert_eq!(world.git(["for-each-ref", "--format=%(refname)"]), "refs/heads/main");
    for bad in ["a b", "-x", ""] {
        assert!(matches!(plan_err(&world, &task, &Onto::NewBranch(bad.to_owned())), ApplyError::BadBranch(_)), "{bad:?}");
    }
}

fn plan_err(world: &World, task: &Task, onto: &Onto) -> ApplyError {
    let error = plan(world, task, onto).expect_err("it must be refused");
    assert!(!world.layout.data.join("exits").join(exit_id(1).as_str()).exists(), "a refused plan leaves nothing");
    error
}

#[test]
fn a_branch_that_moved_is_merged_or_told_in_conflict() {
    let world = World::new();
    let task = world.create();
    task.write("a.txt", "ONE\ntwo\nthree\n");
    world.write("b.txt", "by the person\n");
    world.write("a.txt", "1\ntwo\nthree\n");
    world.commit("meanwhile");
    task.write("src/lib.rs", "pub fn f() -> u8 {\n    2\n}\n");
    let before = world.listing();
    match plan_err(&world, &task, &main()) {
        ApplyError::Conflicts { paths, .. } => assert_eq!(paths, [RawPath::from("a.txt")], "the conflict is named"),
        other => panic!("a conflict is told: {other}"),
    }
    same(&world.listing(), &before, "and nothing was done");
    task.write("a.txt", "one\ntwo\nthree\n");
    apply(&world, &task, &main()).unwrap();
    assert_eq!(std::fs::read_to_string(world.repo.join("src/lib.rs")).unwrap(), "pub fn f() -> u8 {\n    2\n}\n");
    assert_eq!(std::fs::read_to_string(world.repo.join("b.txt")).unwrap(), "by the person\n");
    assert_eq!(world.git(["status", "--porcelain"]), "");
    // A branch that was rewritten: the base is no longer in it.
    let task = world.create();
    task.write("c.txt", "c\n");
    world.git(["checkout", "-q", "--orphan", "other"]);
    world.git(["commit", "-q", "-m", "rewritten"]);
    world.git(["branch", "-q", "-f", "main", "other"]);
    world.git(["checkout", "-q", "main"]);
    let plan = apply(&world, &task, &main()).unwrap();
    assert_eq!(plan.files.len(), 1, "only what the task did comes over");
}

#[test]
fn a_working_copy_with_something_in_the_way_stops_everything() {
    type Prepare = (&'static str, fn(&World));
    let cases: [Prepare; 8] = [
        ("changed", |w| w.write("a.txt", "the person's\n")),
        ("staged", |w| {
            w.write("a.txt", "the person's\n");
            w.git(["add", "a.txt"]);
            w.write("a.txt", "one\ntwo\nthree\n");
        }),
        ("removed", |w| drop(w.git(["rm", "-q", "--cached", "a.txt"]))),
        ("untracked", |w| w.write("run.sh", "the person's\n")),
        ("ignored", |w| {
            w.write(".git/info/exclude", "run.sh\n");
            w.write("run.sh", "the person's\n");
        }),
        ("a file where a directory goes", |w| w.write("deep", "the person's\n")),
        ("a link where a directory goes", |w| symlink(w.dir.path(), w.repo.join("deep")).unwrap()),
        ("a tracked directory became a link", |w| {
            std::fs::rename(w.repo.join("src"), w.dir.path().join("src")).unwrap();
            symlink(w.dir.path().join("src"), w.repo.join("src")).unwrap();
        }),
    ];
    for (what, prepare) in cases {
        let world = World::new();
        let task = varied(&world);
        prepare(&world);
        let before = untouched(&world);
        let error = plan_err(&world, &task, &main());
        assert!(matches!(error, ApplyError::NotClean { .. }), "{what}: {error}");
        same(&untouched(&world), &before, "{what}: nothing was done");
    }
    // The same after the plan was made.
    let world = World::new();
    let task = varied(&world);
    let plan = plan(&world, &task, &main()).unwrap();
    world.write("run.sh", "the person's\n");
    let before = untouched(&world);
    let journal = Memory::default();
    assert!(matches!(act(&world.layout, &plan, &journal), Err(ApplyError::NotClean { .. })));
    same(&untouched_but_dirs(&world), &cut_dirs(before), "nothing was done");
    let steps = journal.0.lock().unwrap();
    assert!(matches!(steps.as_slice(), [Step::Intent(_), Step::Undone(_)]), "and the journal says so: {steps:?}");
    assert_eq!(recover(&world.layout, &steps, &Memory::default()).unwrap(), Outcome::Undone);
}

/// A lock that comes and goes moves the time of the git directory itself.
fn cut_dirs(all: BTreeMap<PathBuf, String>) -> BTreeMap<PathBuf, String> {
    all.into_iter().filter(|(p, _)| p != std::path::Path::new(".git")).collect()
}

fn untouched_but_dirs(world: &World) -> BTreeMap<PathBuf, String> {
    cut_dirs(untouched(world))
}

#[test]
fn a_busy_working_copy_waits() {
    for name in ["index.lock", "MERGE_HEAD", "rebase-merge/x", "BISECT_LOG"] {
        let world = World::new();
        let task = varied(&world);
        let planned = plan(&world, &task, &main()).unwrap();
        world.write(format!(".git/{name}"), "x");
        let before = untouched_but_dirs(&world);
        let error = act(&world.layout, &planned, &Memory::default()).expect_err("it is busy");
        assert!(matches!(error, ApplyError::Busy { .. }), "{name}: {error}");
        same(&untouched_but_dirs(&world), &before, "{name}: nothing was done");
    }
    let world = World::new();
    world.git(["branch", "work"]);
    let task = varied(&world);
    world.write(".git/rebase-merge/head-name", "refs/heads/work\n");
    assert!(
        matches!(plan_err(&world, &task, &Onto::Branch("work".to_owned())), ApplyError::Busy { .. }),
        "a branch in a rebase waits"
    );
}

#[test]
fn a_branch_that_is_gone_or_moved_is_told() {
    let world = World::new();
    world.git(["branch", "work"]);
    let task = varied(&world);
    let onto = Onto::Branch("work".to_owned());
    let planned = plan(&world, &task, &onto).unwrap();
    world.git(["commit", "-q", "--allow-empty", "-m", "x"]);
    world.git(["branch", "-f", "work", "main"]);
    let before = untouched(&world);
    let error = act(&world.layout, &planned, &Memory::default()).expect_err("it moved");
    assert!(matches!(error, ApplyError::BranchMoved { .. }), "{error}");
    same(&untouched(&world), &before, "nothing was done");
    world.git(["branch", "-q", "-D", "work"]);
    assert!(matches!(plan_err(&world, &task, &onto), ApplyError::NoBranch(_)));
}

#[test]
fn wrong_words_and_missing_names_are_told() {
    let world = World::new();
    let task = world.create();
    assert!(matches!(plan_err(&world, &task, &main()), ApplyError::Nothing));
    task.write("a.txt", "x\n");
    assert!(matches!(plan_of(&world, &task, &main(), " \n"), Err(ApplyError::NoMessage)));
    let tree = task.candidate().tree;
    let other = world.create();
    let foreign = approved(&other, &tree, &tree);
    let repo = world.facts();
    let spec = ApplySpec {
        task: &task.git,
        exit: &exit_id(1),
        approved: &foreign,
        repo: &repo,
        home: &world.home,
        onto: &main(),
        message: "x",
    };
    assert!(matches!(plan_apply(&spec), Err(ApplyError::NotApproved)));
    std::fs::write(world.home.join(".gitconfig"), "[user]\n\tname = Jo\n").unwrap();
    assert!(matches!(plan_err(&world, &task, &main()), ApplyError::NoIdentity));
}

#[test]
fn a_new_file_in_a_directory_that_the_branch_renamed_is_a_conflict() {
    let world = World::new();
    world.write("old/one", "1\n".repeat(9));
    world.write("old/two", "2\n".repeat(9));
    world.commit("a directory");
    let task = world.create();
    task.write("old/three", "3\n");
    world.git(["mv", "old", "new"]);
    world.git(["commit", "-q", "-m", "renamed"]);
    match plan_err(&world, &task, &main()) {
        ApplyError::Conflicts { paths, .. } => assert_eq!(paths, [RawPath::from("new/three")], "it has no silent place"),
        other => panic!("a conflict is told: {other}"),
    }
}

#[test]
fn only_accepted_files_leave() {
    let world = World::new();
    let task = varied(&world);
    std::fs::rename(task.tree().join("a.txt"), task.tree().join("b.txt")).unwrap();
    task.write("b.txt", "one\ntwo\nthree\n");
    let tree = task.candidate().tree;
    assert_eq!(result_tree(&task.git, &tree, &[]).unwrap(), task.created.base_tree, "nothing accepted is the base");
    let all: Vec<RawPath> = worktree::changes(&task.git, None, &tree).unwrap().into_iter().map(|f| f.path).collect();
    assert_eq!(result_tree(&task.git, &tree, &all).unwrap(), tree, "all accepted is the candidate");
    let result = result_tree(&task.git, &tree, &["b.txt", "run.sh"].map(RawPath::from)).unwrap();
    assert_eq!(
        task.files(&world, result.as_str()),
        [".gitignore", "b.txt", "run.sh", "src/lib.rs"],
        "a rename takes the old name away"
    );
    assert!(result_tree(&task.git, &tree, &[RawPath::from("a.txt")]).is_err(), "a path that is no change is refused");
    let approved = approved(&task, &tree, &result);
    let repo = world.facts();
    let spec = ApplySpec {
        task: &task.git,
        exit: &exit_id(1),
        approved: &approved,
        repo: &repo,
        home: &world.home,
        onto: &main(),
        message: "x",
    };
    act(&world.layout, &plan_apply(&spec).unwrap(), &Memory::default()).unwrap();
    assert_eq!(world.git(["rev-parse", "main^{tree}"]), result.as_str());
    assert!(!world.repo.join("link").exists() && !world.repo.join("a.txt").exists() && world.repo.join("b.txt").exists());
    assert_eq!(world.git(["status", "--porcelain"]), "");
}

#[test]
fn files_arrive_in_the_persons_line_ends_and_without_their_filters() {
    let world = World::new();
    world.git(["config", "core.autocrlf", "true"]);
    world.write(".gitattributes", "*.lfs filter=lfs\n");
    world.write("x.lfs", "pointer\n");
    world.commit("attributes");
    let task = world.create();
    task.write("new.txt", "a\r\nb\r\n");
    let plan = apply(&world, &task, &main()).unwrap();
    assert_eq!(std::fs::read(world.repo.join("new.txt")).unwrap(), b"a\r\nb\r\n", "the working copy has the person's line ends");
    assert_eq!(world.git(["cat-file", "-s", "main:new.txt"]), "4", "the repository has git's");
    assert_eq!(world.git(["status", "--porcelain"]), "");
    undo(&world, &plan).unwrap();
    let ran = world.dir.path().join("ran");
    task.write("x.lfs", "another\n");
    world.git(["config", "filter.lfs.smudge", &format!("touch {}; cat", ran.display())]);
    world.git(["config", "filter.lfs.clean", &format!("touch {}; cat", ran.display())]);
    let error = plan_err(&world, &task, &main());
    assert!(matches!(error, ApplyError::NotClean { .. }) && error.to_string().contains("filter"), "{error}");
    assert!(!ran.exists(), "and it did not run");
}

#[test]
fn undo_needs_the_branch_and_the_files_as_they_were_left() {
    let world = World::new();
    let task = varied(&world);
    let plan = apply(&world, &task, &main()).unwrap();
    world.write("run.sh", "edited since\n");
    assert!(matches!(undo(&world, &plan), Err(ApplyError::NotClean { .. })), "an edited file is kept");
    world.git(["commit", "-q", "-a", "-m", "on top"]);
    assert!(matches!(undo(&world, &plan), Err(ApplyError::BranchMoved { .. })), "a branch that went on is not taken back");
}

#[test]
fn file_and_directory_change_places_and_back() {
    let world = World::new();
    let task = world.create();
    task.remove("a.txt");
    task.write("a.txt/inner/x", "x\n");
    task.remove("src/lib.rs");
    std::fs::remove_dir(task.tree().join("src")).unwrap();
    task.write("src", "now a file\n");
    let before = contents(&world);
    let plan = apply(&world, &task, &main()).unwrap();
    assert_eq!(std::fs::read_to_string(world.repo.join("src")).unwrap(), "now a file\n");
    assert!(world.repo.join("a.txt/inner/x").exists());
    assert_eq!(world.git(["status", "--porcelain"]), "");
    undo(&world, &plan).unwrap();
    same(&contents(&world), &before, "it is as it was");
    world.write("src/untracked", "the person's\n");
    assert!(matches!(plan_err(&world, &task, &main()), ApplyError::NotClean { .. }), "a directory with other files stays");
}

#[test]
fn split_and_sparse_indexes_are_understood() {
    let world = World::new();
    world.write("other/x.txt", "x\n");
    world.commit("more");
    world.git(["config", "core.splitIndex", "true"]);
    world.git(["update-index", "--split-index"]);
    let task = varied(&world);
    apply(&world, &task, &main()).unwrap();
    assert_eq!(world.git(["status", "--porcelain"]), "");
    let world = World::new();
    world.write("other/x.txt", "x\n");
    world.commit("more");
    let task = world.create();
    task.write("other/x.txt", "changed\n");
    world.git(["sparse-checkout", "set", "--sparse-index", "src"]);
    let error = plan_err(&world, &task, &main());
    assert!(error.to_string().contains("outside the sparse checkout"), "{error}");
    task.write("other/x.txt", "x\n");
    task.write("src/lib.rs", "changed\n");
    apply(&world, &task, &main()).unwrap();
    assert_eq!(world.git(["status", "--porcelain"]), "");
    assert!(!world.repo.join("other").exists(), "what is outside the cone stays outside");
}

#[test]
fn somebody_elses_repository_is_read_by_root_and_never_written() {
    let world = World::new();
    if !rustix::process::geteuid().is_root() {
        eprintln!("not tested here: chown");
        return;
    }
    let task = varied(&world);
    assert!(std::process::Command::new("chown").args(["-R", "4242"]).arg(&world.repo).status().unwrap().success());
    let before = world.listing();
    assert_eq!(world.facts().owner, 4242);
    world.create();
    assert!(matches!(plan_err(&world, &task, &main()), ApplyError::NotYours { owner: 4242, you: 0, .. }));
    same(&world.listing(), &before, "it is as it was");
}

#[test]
fn reftable_repositories_take_an_exit_too() {
    let world = World::empty("repo");
    if !world.reftable() {
        return;
    }
    world.write("a.txt", "x\n");
    world.write("src/lib.rs", "x\n");
    world.commit("start");
    let task = varied(&world);
    let plan = apply(&world, &task, &main()).unwrap();
    assert!(plan.checkout.is_some(), "its working copy is found");
    assert_eq!(world.git(["status", "--porcelain"]), "");
    undo(&world, &plan).unwrap();
    assert_eq!(world.git(["status", "--porcelain"]), "");
}

#[test]
fn a_file_and_a_directory_of_one_name_are_accepted_together_or_told() {
    let world = World::new();
    world.write("dir/one", "1\n");
    world.commit("a directory");
    let task = world.create();
    task.remove("a.txt");
    task.write("a.txt/inside", "a directory now\n");
    task.remove("dir/one");
    std::fs::remove_dir(task.tree().join("dir")).unwrap();
    task.write("dir", "a file now\n");
    let tree = task.candidate().tree;
    let result = |paths: &[&str]| {
        let paths: Vec<RawPath> = paths.iter().map(|p| RawPath::from(*p)).collect();
        result_tree(&task.git, &tree, &paths)
    };
    assert_eq!(result(&["a.txt", "a.txt/inside", "dir/one", "dir"]).unwrap(), tree, "all of it is the candidate");
    for alone in ["a.txt/inside", "dir"] {
        let said = result(&[alone]).unwrap_err().to_string();
        assert!(said.contains("same name") && said.contains(alone), "what stands in the way is not dropped: {said}");
    }
}
