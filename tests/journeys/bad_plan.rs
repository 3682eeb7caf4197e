//! What can't be started, and what a machine lacks: one clear sentence, the exit code, and nothing left. Where a run can do without,
//! it does.

use crate::steps::{look, text, untouched};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use testkit::treehash::TreeHash;
use testkit::{Ended, Repo, Sandbox, not_tested_here, program};

/// A person with a repository who has run something before, and all that could be left behind.
struct World<'s> {
    person: &'s Sandbox,
    repo: Repo<'s>,
    before: (BTreeSet<PathBuf>, String, TreeHash),
}

impl<'s> World<'s> {
    fn new(person: &'s Sandbox) -> Self {
        let repo = person.small_repo();
        let home = person.home();
        for data in [person.data(), home.join("state")] {
            let mut c = person.airlock_command(["run", "--rm", "--repo"]);
            c.arg(&repo.path).args(["--", "true"]).env("XDG_DATA_HOME", data);
            person.finish(c, b"").ok();
        }
        for dir in ["dir", ".local/bin", ".config/autostart"] {
            std::fs::create_dir_all(home.join(dir)).unwrap();
        }
        for (to, link) in [("loop-b", "loop-a"), ("loop-a", "loop-b"), ("nowhere", "dangling"), (".local", "linked")] {
            std::os::unix::fs::symlink(to, home.join(link)).unwrap();
        }
        std::fs::write(home.join("file"), "x").unwrap();
        let before = (files(person), mounts(), look(&repo.path));
        Self { person, repo, before }
    }

    /// One sentence with these words, this exit code, and nothing left; for the code 0, a run that worked.
    #[track_caller]
    fn ends(&self, what: &str, ended: &Ended, code: i32, words: &[&str]) {
        let said = ended.err();
        assert_eq!(ended.code(), code, "{what}\n{}", ended.said());
        assert!(!said.contains("panicked") && !said.contains("RUST_BACKTRACE"), "{what}: an error is no crash\n{}", ended.said());
        for word in words {
            assert!(said.contains(word), "{what}: it says {word:?}\n{}", ended.said());
        }
        if code == 0 {
            self.person.airlock(["task", "discard", &text(&ended.json(), "task")]).ok();
        } else {
            let sentences = said.lines().filter(|line| line.starts_with("airlock: ")).count();
            assert!(sentences == 1 && said.lines().count() <= 2, "{what}: it is one sentence, and where\n{}", ended.said());
        }
        let (names, mounted, repository) = &self.before;
        let now = files(self.person);
        let differ: Vec<_> = now.symmetric_difference(names).collect();
        assert!(differ.is_empty(), "{what}: files are as before, but for {differ:?}");
        assert_eq!(&mounts(), mounted, "{what}: mounts are as before");
        testkit::eventually("the end of every process", std::time::Duration::from_secs(20), || {
            processes(self.person).is_empty().then_some(())
        });
        untouched(repository, &self.repo.path, what);
    }

    fn with_policy(&self, files: &str, data: &Path) -> Ended {
        let policy = self.person.root().join("policy.toml");
        std::fs::write(&policy, format!("version = 1\nname = \"x\"\n[network]\ndefault = \"deny\"\n[files]\n{files}\n")).unwrap();
        let mut c = self.person.airlock_command(["run", "--json", "--policy"]);
        c.arg(&policy).arg("--repo").arg(&self.repo.path).args(["--", "true"]).env("XDG_DATA_HOME", data);
        let ended = self.person.finish(c, b"");
        std::fs::remove_file(policy).unwrap();
        ended
    }

    /// A run on a machine that a script, in a mount namespace of its own, made another one.
    fn on_machine(&self, script: &str) -> Ended {
        let mut c = self.person.command("unshare");
        if !rustix::process::geteuid().is_root() {
            c.args(["--user", "--map-current-user", "--keep-caps"]);
        }
        let script = format!("set -e; {script}; exec \"$@\"");
        c.args(["--mount", "--propagation", "private", "sh", "-c", &script, "sh"]);
        c.arg(program("airlock")).args(["run", "--json", "--repo"]).arg(&self.repo.path).args(["--", "true"]);
        let places = [("ROOT", self.person.root().to_owned()), ("DATA", self.person.data()), ("RUN", self.person.runtime())];
        c.envs(places).env("JAIL", program("airlock-jail")).env("WARDEN", program("airlock-warden"));
        self.person.finish(c, b"")
    }
}

/// Every path below the person's directories but what Airlock keeps for good: its database.
fn files(person: &Sandbox) -> BTreeSet<PathBuf> {
    let out = person.command("find").arg(person.root()).arg("-print0").output().unwrap();
    assert!(out.status.success(), "{out:?}");
    let paths = out.stdout.split(|b| *b == 0).filter(|p| !p.is_empty());
    let paths = paths.map(|p| PathBuf::from(String::from_utf8_lossy(p).into_owned()));
    paths.filter(|p| !p.to_string_lossy().contains("airlock.db")).collect()
}

fn mounts() -> String {
    std::fs::read_to_string("/proc/self/mountinfo").unwrap()
}

/// Processes that were told of the person's directories, or see one of them mounted.
fn processes(person: &Sandbox) -> Vec<String> {
    let root = person.root().to_string_lossy().into_owned();
    let knows = |pid: &PathBuf| {
        let has = |file: &str| std::fs::read(pid.join(file)).is_ok_and(|b| String::from_utf8_lossy(&b).contains(&root));
        has("environ") || has("cmdline") || has("mountinfo")
    };
    let all = std::fs::read_dir("/proc").unwrap().flatten().map(|e| e.path());
    let numbers = all.filter(|p| p.file_name().is_some_and(|n| n.to_string_lossy().bytes().all(|b| b.is_ascii_digit())));
    numbers.filter(knows).map(|p| p.display().to_string()).collect()
}

#[test]
fn p10_a_place_that_a_policy_can_not_show_starts_nothing() {
    let person = Sandbox::new();
    let world = World::new(&person);
    let (data, own) = (person.data(), person.home().join("state"));
    // The place, where Airlock's data lies, and what is said of it.
    let both: [(&str, &Path, &str); 14] = [
        ("~/missing", &data, "~/missing is not there; make it"),
        ("~/dangling", &data, "~/dangling is not there"),
        ("~/loop-a", &data, "~/loop-a is a loop of symlinks"),
        ("~/loop-b/x", &data, "~/loop-b/x is a loop of symlinks"),
        ("~/file/x", &data, "~/file/x goes through a file where a directory is meant"),
        ("~/linked/bin", &data, "leads through a symlink to"),
        ("relative/x", &data, "must begin with `/` or `~/`"),
        ("", &data, "must begin with `/` or `~/`"),
        ("~/a\\u0000b", &data, "control or hiding character"),
        ("~/../data/airlock", &data, "`.` or `..`"),
        ("~/state/airlock", &own, "touches Airlock's own state"),
        ("~/state", &own, "touches Airlock's own state"),
        ("~/.ssh", &data, "credentials"),
        ("/proc/1", &data, "/proc/1 can't be in"),
    ];
    for key in ["read", "write"] {
        for (place, data, word) in both {
            let ended = world.with_policy(&format!("{key} = [\"{place}\"]"), data);
            world.ends(&format!("{key} {place:?}"), &ended, 2, &["is refused, nothing starts", word]);
        }
    }
    for place in ["~/.local/bin", "~/.config/autostart", "~/.bashrc", "/usr/local/bin", "/etc/cron.d"] {
        let ended = world.with_policy(&format!("write = [\"{place}\"]"), &data);
        world.ends(place, &ended, 2, &["is refused, nothing starts", "run"]);
    }
    let ended = world.with_policy("read = [\"~/dir\"]\nwrite = [\"~/file\"]", &data);
    world.ends("the control: places that are there", &ended, 0, &[]);
}

#[test]
fn p10_a_machine_that_lacks_something_says_what_and_keeps_nothing() {
    let person = Sandbox::new();
    let world = World::new(&person);
    let probe = world.on_machine("true");
    if probe.err().contains("unshare: ") {
        return not_tested_here("user namespaces for an ordinary user");
    }
    world.ends("the control: a machine that lacks nothing", &probe, 0, &[]);
    let read_only = |place: &str| format!("mount --bind {place} {place}; mount -o remount,bind,ro {place}");
    let cases: Vec<(&str, String, i32, &[&str])> = vec![
        ("no /proc", "mkdir $ROOT/p; mount --bind $ROOT/p /proc; rmdir $ROOT/p".into(), 7, &["/proc", "mount -t proc"]),
        ("another /proc", "mount -t tmpfs none /proc".into(), 7, &["/proc", "mount -t proc"]),
        ("no /dev/fuse", "mount --bind /dev/null /dev/fuse".into(), 0, &[]),
        ("a home to be read", read_only("$HOME"), 0, &[]),
        ("data to be read", read_only("$DATA"), 7, &["airlock.db", "place that you can write to", "XDG_DATA_HOME"]),
        ("a runtime directory to be read", read_only("$RUN"), 7, &["socket", "place that you can write to", "XDG_RUNTIME_DIR"]),
        ("no room for data", "mount -t tmpfs -o size=64k none $DATA".into(), 7, &["ree some space"]),
        ("no directory for temporary files", "export TMPDIR=/nowhere".into(), 7, &["/nowhere", "TMPDIR"]),
        (
            "/tmp to be read",
            "mount --bind /tmp /tmp; mount --bind $ROOT $ROOT; mount -o remount,bind,ro /tmp".into(),
            7,
            &["/tmp", "TMPDIR"],
        ),
        ("64 descriptors", "ulimit -n 64".into(), 0, &[]),
        ("24 descriptors", "ulimit -n 24".into(), 7, &["Too many open files", "ulimit -n"]),
        ("16 descriptors", "ulimit -n 16".into(), 7, &["Too many open files", "ulimit -n"]),
        ("another jail program", "mount --bind /bin/true $JAIL".into(), 7, &["jail program", "without a word", "airlock doctor"]),
        ("a jail program that is none", "mount --bind /etc/passwd $JAIL".into(), 7, &["airlock-jail", "installed completely"]),
        ("a jail program of another version", newer_plan(), 7, &["the plan has version", "the same installation"]),
        ("another warden", "mount --bind /bin/true $WARDEN".into(), 7, &["without a word", "installed completely"]),
    ];
    for (what, script, code, words) in cases {
        let ended = world.on_machine(&script);
        world.ends(what, &ended, code, words);
    }
}

/// In the jail program's place, one that hands it the plan of a later version.
fn newer_plan() -> String {
    let script = "#!/usr/bin/python3 -I\nimport json, os\n\
                  plan = json.loads(os.pread(1, os.fstat(1).st_size, 0))\nplan[\"version\"] += 1\n\
                  fd = os.memfd_create(\"plan\")\nos.write(fd, json.dumps(plan).encode())\nos.lseek(fd, 0, 0)\nos.dup2(fd, 1)\n\
                  os.execv(\"/mnt/jail\", [\"airlock-jail\"])\n";
    format!(
        "mount -t tmpfs none /mnt; cp $JAIL /mnt/jail; printf %s '{script}' >/mnt/newer; chmod 755 /mnt/newer; mount --bind /mnt/newer $JAIL"
    )
}

#[test]
fn p10_a_machine_without_a_place_for_temporary_files_says_so() {
    let person = Sandbox::below(Path::new("/var/tmp"));
    let world = World::new(&person);
    // A root with everything of this one but `/tmp`, where the programs themselves may lie.
    let without = |also: &str| {
        format!(
            "mount -t tmpfs none /mnt; cd /; for d in *; do case $d in mnt|tmp) ;; \
             *) if [ -L $d ]; then cp -P $d /mnt/; elif [ -d $d ]; then mkdir /mnt/$d; mount --rbind $d /mnt/$d; fi;; esac; done; {also} \
             mkdir /mnt/programs; mount --bind $(dirname $JAIL) /mnt/programs; shift; set -- /programs/airlock \"$@\"; \
             mkdir /mnt/old; pivot_root /mnt /mnt/old; cd $HOME; umount -l /old; rmdir /old"
        )
    };
    let control = world.on_machine(&without("mkdir -m 1777 /mnt/tmp;"));
    if control.err().contains("unshare: ") {
        return not_tested_here("user namespaces for an ordinary user");
    }
    world.ends("the control: a root made likewise, with /tmp", &control, 0, &[]);
    world.ends("no /tmp", &world.on_machine(&without("")), 7, &["/tmp", "TMPDIR"]);
}
