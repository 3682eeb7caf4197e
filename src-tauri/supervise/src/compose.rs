//! From what a run is granted to the plan of its jail. Pure but for looking at which system directories and tools exist,
//! and where granted places really are.

use crate::{etc, tools};
use jail_plan::{Access, Guarantee, Identity, Landlock, Limits, Mapped, Net, Plan, Raw, Stdio, Step};
use model::keeper::{Job, inside};
use model::run::RunSpec;
use rustix::fs::{Mode, OFlags};
use std::os::fd::AsRawFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

/// What a policy lets one run do, in paths and figures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grants {
    /// More host paths shown read-only at their own place.
    pub read: Vec<PathBuf>,
    /// More host paths shown writable at their own place.
    pub write: Vec<PathBuf>,
    /// Host paths that stay hidden even where `read`, `write` or a system directory would show them.
    pub hide: Vec<PathBuf>,
    /// Environment of the command, on top of what every jail has (`HOME`, `PATH`, `TMPDIR`, …).
    pub env: Vec<(String, String)>,
    /// Processes and threads.
    pub processes: u64,
    /// Descriptors of one process.
    pub open_files: u64,
    /// Whether there is a way out (served by the caller) or no network at all.
    pub network: bool,
    /// Whether the tools of the person's home are shown.
    pub tools: bool,
    /// Guarantees whose loss the person's policy accepts by name.
    pub accept: Vec<Guarantee>,
}

/// What an agent's jail must keep in full unless the person's policy accepts the loss by name. Landlock is a second lock
/// on what the mounts keep already; limits and events start when they are partial, and are shown so.
const REQUIRED: [Guarantee; 5] =
    [Guarantee::Writes, Guarantee::Reads, Guarantee::Control, Guarantee::Network, Guarantee::Syscalls];

/// Where every agent's jail has the private git directory.
pub const GIT: &str = "/run/airlock/git";
/// Where it has the history, read-only.
const HISTORY: &str = "/run/airlock/history";

/// Where programs of the system are.
const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// What is granted can't be kept as it is written.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("`{key}` names {}: {why}", place.display())]
pub struct Conflict {
    /// The key of the policy, as in `files.hide`.
    pub key: &'static str,
    /// The place.
    pub place: PathBuf,
    /// What would happen, and what to do.
    pub why: String,
}

/// The plan of an agent's jail.
///
/// # Errors
/// A grant that would be lifted by what a run can do, or that says what no jail on this workspace can keep.
pub fn agent(spec: &RunSpec, grants: &Grants) -> Result<Plan, Conflict> {
    check(spec, grants)?;
    let identity = identity();
    let home = Raw::from(spec.home.as_path());
    let workspace = Raw::from(spec.workspace.as_path());
    let write = |source: PathBuf, target: &Raw| bind(Raw::from(source), target.clone(), Access::Write);

    // Whatever is shown goes up from the root down: a place below another must be mounted after it.
    let mut shown =
        vec![write(spec.dir.home(), &home), write(spec.dir.tree(), &workspace), write(spec.dir.git(), &Raw::from(GIT))];
    let (mut tool_steps, mut path) = if grants.tools { tools::of_home(&spec.home) } else { (Vec::new(), Vec::new()) };
    for tool in spec.tools.iter().chain(outside_system(&spec.git_program)) {
        tool_steps.push(tools::show(tool, Access::Read));
        path.push(if tool.is_dir() { tool.join("bin") } else { tool.parent().unwrap_or(tool).to_owned() });
    }
    path.splice(0..0, chosen_by_person(spec, &tool_steps));
    shown.extend(tool_steps);
    shown.extend(grants.read.iter().map(|p| tools::show(p, Access::Read)));
    shown.extend(grants.write.iter().map(|p| tools::show(p, Access::Write)));
    for (n, objects) in spec.history.iter().enumerate() {
        shown.push(bind(Raw::from(objects.as_path()), Raw::from(format!("{HISTORY}/{n}")), Access::Read));
    }
    shown.sort_by_key(|step| depth(step.target()));
    dedup_targets(&mut shown);

    let mut root = etc::system();
    root.extend(etc::etc(identity, &home, &spec.hostname));
    root.extend(etc::machine(identity.uid));
    root.extend(shown);
    // The agent finds its own git directory whatever it does to this file: it can't be written, moved or removed.
    root.push(Step::Cover { target: below(&workspace, b".git"), contents: Raw::from(format!("gitdir: {GIT}\n")) });
    root.push(Step::Decoy { target: below(&home, b".ssh") });
    root.extend(masks(spec, grants));

    let runtime = etc::runtime_dir(identity.uid);
    let writable =
        [&home, &workspace].into_iter().cloned().chain(["/tmp", "/var/tmp", "/dev", "/proc", &runtime, GIT].map(Raw::from));
    Ok(Plan {
        hostname: spec.hostname.clone(),
        root,
        net: if grants.network { Net::WayOut } else { Net::None },
        stdio: match spec.stdio {
            model::run::Stdio::Terminal { cols, rows } => Stdio::Terminal { cols, rows },
            model::run::Stdio::Pipes => Stdio::Inherit,
        },
        limits: limits(grants.processes, grants.open_files),
        landlock: Landlock {
            writable: writable.chain(grants.write.iter().map(|p| Raw::from(p.as_path()))).collect(),
            readable: vec![Raw::from("/")],
        },
        notify: true,
        require: REQUIRED.into_iter().filter(|g| !grants.accept.contains(g)).collect(),
        argv: spec.argv.iter().map(|a| Raw::from(a.as_str())).collect(),
        env: environment(spec, grants, &path),
        cwd: workspace,
        ..empty(identity)
    })
}

/// The plan of a keeper's jail: the tree, the keeper's git directory, objects, and no home or network.
pub fn keeper(job: &Job, warden_program: &Path) -> Plan {
    let identity = identity();
    let at = |place: &str| Raw::from(place);
    let mut root = etc::system();
    root.extend(etc::etc(identity, &at("/tmp"), "keeper"));
    root.extend(etc::machine(identity.uid));
    let tree = if job.write_tree { Access::Write } else { Access::Read };
    root.extend([
        bind(Raw::from(job.tree.as_path()), at(inside::TREE), tree),
        bind(Raw::from(job.git.as_path()), at(inside::GIT), Access::Write),
        bind(Raw::from(job.objects.as_path()), at(inside::OBJECTS), Access::Read),
        bind(Raw::from(warden_program), at(inside::PROGRAM), Access::Read),
    ]);
    for (n, objects) in job.history.iter().enumerate() {
        root.push(bind(Raw::from(objects.as_path()), Raw::from(format!("{}/{n}", inside::HISTORY)), Access::Read));
    }
    let mut writable: Vec<Raw> = ["/tmp", "/dev", "/proc", inside::GIT].map(Raw::from).to_vec();
    if job.write_tree {
        writable.push(at(inside::TREE));
    }
    let mut argv = vec![at(inside::PROGRAM), at("keeper")];
    argv.extend(job.args.iter().cloned().map(Raw::from));
    let env = [("PATH", SYSTEM_PATH), ("HOME", "/tmp"), ("TMPDIR", "/tmp"), ("LANG", "C.UTF-8")];
    Plan {
        hostname: "keeper".into(),
        root,
        limits: limits(256, 1024),
        landlock: Landlock { writable, readable: vec![at("/")] },
        require: REQUIRED.to_vec(),
        argv,
        env: env.map(|(k, v)| (at(k), at(v))).to_vec(),
        ..empty(identity)
    }
}

/// A keeper's frame, for an agent's plan to fill.
fn empty(identity: Identity) -> Plan {
    Plan {
        version: jail_plan::VERSION,
        hostname: String::new(),
        identity,
        root: Vec::new(),
        net: Net::None,
        stdio: Stdio::Inherit,
        limits: limits(0, 0),
        landlock: Landlock::default(),
        notify: false,
        require: Vec::new(),
        argv: Vec::new(),
        env: Vec::new(),
        cwd: Raw::from("/"),
    }
}

/// As an ordinary user, oneself. As root never uid 0, which without any capability still owns `/proc/sys` and is exempt
/// from the limit on processes: an id that nobody has, with the person's own files mapped to it.
fn identity() -> Identity {
    const INSIDE: u32 = 1000;
    let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
    if uid != 0 {
        // A primary group 0 gets another number inside; on disk it stays what it is.
        return Identity { uid, gid: if gid == 0 { INSIDE } else { gid }, mapped: None };
    }
    let mapped = Mapped { host_uid: jail_plan::HOST_ID, host_gid: jail_plan::HOST_ID, disk_uid: uid, disk_gid: gid };
    Identity { uid: INSIDE, gid: INSIDE, mapped: Some(mapped) }
}

fn limits(processes: u64, open_files: u64) -> Limits {
    Limits { processes, open_files, file_size: None, inotify_instances: 32, inotify_watches: 65_536 }
}

fn bind(source: Raw, target: Raw, access: Access) -> Step {
    Step::Bind { source, target, access, recursive: false, idmapped: true, optional: false }
}

/// A program that the system directories don't show already.
fn outside_system(program: &PathBuf) -> Option<&PathBuf> {
    let shown = ["/usr", "/bin", "/sbin", "/nix/store", "/gnu/store"];
    let outside = program.is_absolute() && !shown.iter().any(|s| program.starts_with(s));
    outside.then_some(program)
}

/// The person's own `PATH`, as far as it leads into tools that are shown: it says which of several versions is in use.
fn chosen_by_person(spec: &RunSpec, tools: &[Step]) -> Vec<PathBuf> {
    let path = spec.host_env.iter().find(|(k, _)| k == "PATH").map_or("", |(_, v)| v);
    let shown = |p: &PathBuf| tools.iter().any(|t| p.starts_with(t.target().as_path()));
    std::env::split_paths(path).filter(shown).collect()
}

/// Refuses what can't be kept.
///
/// What is mounted can't be moved by the jail, but every directory above it inside a writable place can: after
/// `mv data/a data/b` the next run finds nothing to close at `data/a/key`, or something planted there, and what was hidden
/// lies open in `data/b`. So whatever is narrower than the writable place around it must lie directly in that place.
fn check(spec: &RunSpec, grants: &Grants) -> Result<(), Conflict> {
    let conflict = |key, place: &Path, why: String| Err(Conflict { key, place: place.to_owned(), why });
    for hidden in &grants.hide {
        if hidden.starts_with(&spec.workspace) {
            let why = "it lies in the repository, whose history the task has and which shows it too, hidden or not; ignored files \
                 of the working copy are not in the workspace in the first place. Take it out of the policy";
            return conflict("files.hide", hidden, why.into());
        }
        if spec.workspace.starts_with(hidden) && !hidden.starts_with(&spec.home) {
            let why = "it holds the repository of the task. Name what is to be hidden in it";
            return conflict("files.hide", hidden, why.into());
        }
        if spec.home.starts_with(hidden) {
            return conflict("files.hide", hidden, "it holds the home, and a jail has its own. Name places in it".into());
        }
    }
    let own = [&spec.layout.data, &spec.layout.config, &spec.layout.runtime];
    let granted: Vec<(&Path, PathBuf)> =
        grants.read.iter().chain(&grants.write).chain(&spec.tools).filter_map(|g| Some((g.as_path(), real(g)?))).collect();
    for hidden in grants.hide.iter().chain(own) {
        let Some(place) = real(hidden) else { continue };
        for (grant, shown) in &granted {
            // Shown by a symlink's name and hidden by the real one, or the other way round, it would be in sight.
            let inside = place.strip_prefix(shown);
            if inside.is_ok() && inside != hidden.strip_prefix(grant) {
                let why = format!(
                    "it is {}, which {} shows by another name, through a symlink. Name both by their real path",
                    place.display(),
                    grant.display()
                );
                return conflict("files.hide", hidden, why);
            }
        }
    }
    let narrower = grants.hide.iter().map(|p| ("files.hide", p));
    let narrower = narrower.chain(grants.read.iter().map(|p| ("files.read", p)));
    let narrower = narrower.chain(own.into_iter().chain([&spec.workspace]).map(|p| ("files.write", p)));
    for (key, place) in narrower {
        if let Some(write) = grants.write.iter().find(|w| place.starts_with(w) && place.parent() != Some(w) && place != *w) {
            let why = format!(
                "it lies deeper in {}, which may be written: a run could move a directory above it, and the next one would find \
                 it open under another name. Only what lies directly in a writable place can be kept from it; write less, or \
                 name the place just below",
                write.display()
            );
            return conflict(key, place, why);
        }
    }
    Ok(())
}

/// Where a path leads, through symlinks; `None` where it leads to nothing.
fn real(path: &Path) -> Option<PathBuf> {
    let flags = OFlags::PATH | OFlags::CLOEXEC;
    let fd = rustix::fs::open(path, flags, Mode::empty()).ok()?;
    std::fs::read_link(format!("/proc/self/fd/{}", fd.as_raw_fd())).ok()
}

/// What stays hidden although something that is shown holds it. Below the private home nothing of the person's is, but
/// what a grant put there.
fn masks(spec: &RunSpec, grants: &Grants) -> Vec<Step> {
    let granted = |path: &Path| grants.read.iter().chain(&grants.write).chain(&spec.tools).any(|g| path.starts_with(g));
    let visible = |path: &&PathBuf| granted(path.as_path()) || !path.starts_with(&spec.home);
    let ssh = spec.home.join(".ssh");
    // Whatever a grant says, Airlock's own data are in no jail.
    let own = [&spec.layout.data, &spec.layout.config, &spec.layout.runtime];
    grants
        .hide
        .iter()
        .chain(own)
        .filter(visible)
        .filter(|p| **p != ssh)
        .map(|p| Step::Mask { target: Raw::from(p.as_path()), must_exist: grants.write.iter().any(|w| p.starts_with(w)) })
        .collect()
}

fn environment(spec: &RunSpec, grants: &Grants, tool_path: &[PathBuf]) -> Vec<(Raw, Raw)> {
    let uid = identity().uid;
    let path = tool_path.iter().map(|p| p.as_os_str().as_bytes()).chain([SYSTEM_PATH.as_bytes()]).collect::<Vec<_>>().join(&b':');
    let mut env: Vec<(Raw, Raw)> = Vec::new();
    let mut set = |key: &str, value: Raw| {
        env.retain(|(k, _)| k.as_bytes() != key.as_bytes());
        env.push((Raw::from(key), value));
    };
    set("LANG", Raw::from("C.UTF-8"));
    if let model::run::Stdio::Terminal { .. } = spec.stdio {
        set("TERM", Raw::from("xterm-256color"));
    }
    for (key, value) in &grants.env {
        set(key, Raw::from(value.as_str()));
    }
    // These say where things are inside, which nobody outside knows better.
    set("HOME", Raw::from(spec.home.as_path()));
    set("PATH", Raw::from(path));
    set("USER", Raw::from("agent"));
    set("LOGNAME", Raw::from("agent"));
    set("SHELL", Raw::from("/bin/sh"));
    set("TMPDIR", Raw::from("/tmp"));
    set("XDG_RUNTIME_DIR", Raw::from(etc::runtime_dir(uid)));
    set("PWD", Raw::from(spec.workspace.as_path()));
    for (key, value) in &spec.env {
        set(key, Raw::from(value.as_str()));
    }
    env
}

fn below(directory: &Raw, name: &[u8]) -> Raw {
    Raw::from([directory.as_bytes(), b"/", name].concat())
}

fn depth(path: &Raw) -> usize {
    path.as_bytes().iter().filter(|b| **b == b'/').count()
}

/// Of two binds at one place the first counts: the jail's own directories come before tools and grants.
fn dedup_targets(steps: &mut Vec<Step>) {
    let mut seen = Vec::new();
    steps.retain(|step| {
        let new = !seen.contains(step.target());
        if new {
            seen.push(step.target().clone());
        }
        new
    });
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;
    use model::id::{RunId, TaskId};
    use model::layout::{Layout, TaskDir};
    use model::run::PolicyText;

    fn spec(workspace: &str) -> RunSpec {
        RunSpec {
            version: 1,
            task: TaskId::from_random([0; 8]),
            run: RunId::from_random([0; 8]),
            layout: Layout {
                data: "/home/u/data".into(),
                config: "/home/u/config".into(),
                runtime: "/run/user/1/airlock".into(),
            },
            dir: TaskDir("/home/u/data/tasks/t".into()),
            workspace: workspace.into(),
            home: "/home/u".into(),
            history: vec!["/home/u/data/store/objects".into()],
            policy: PolicyText { name: String::new(), text: String::new(), repository: None },
            argv: vec!["agent".into()],
            env: vec![("PATH".into(), "/mine".into())],
            host_env: vec![("SECRET".into(), "x".into()), ("PATH".into(), "/home/u/agent/bin:/home/u/.ssh/bin".into())],
            tools: vec!["/home/u/agent".into()],
            stdio: model::run::Stdio::Pipes,
            hostname: "h".into(),
            jail_program: PathBuf::new(),
            git_program: "/usr/bin/git".into(),
        }
    }

    fn grants() -> Grants {
        Grants {
            read: vec!["/home".into(), "/data".into()],
            write: vec![],
            hide: vec!["/data/secret".into()],
            env: vec![("A".into(), "b".into())],
            processes: 9,
            open_files: 8,
            network: true,
            tools: false,
            accept: vec![Guarantee::Network],
        }
    }

    #[test]
    fn a_place_below_another_is_mounted_after_it() {
        for workspace in ["/home/u/src/repo", "/data/repo", "/repo"] {
            let plan = agent(&spec(workspace), &grants()).unwrap();
            plan.check().unwrap();
            let binds: Vec<&Raw> = plan.root.iter().filter(|s| matches!(s, Step::Bind { .. })).map(Step::target).collect();
            for (at, later) in binds.iter().enumerate() {
                for earlier in &binds[..at] {
                    assert!(!earlier.as_path().starts_with(later.as_path()), "{later} would cover {earlier}");
                }
            }
            let masked = plan.root.iter().position(|s| *s == Step::Mask { target: Raw::from("/data/secret"), must_exist: false });
            let shown = plan.root.iter().position(|s| s.target() == &Raw::from("/data"));
            assert!(masked > shown, "what hides comes last");
            let own = plan.root.contains(&Step::Mask { target: Raw::from("/home/u/data"), must_exist: false });
            assert!(own, "a grant of /home does not show Airlock's own data");
        }
    }

    #[test]
    fn the_environment_is_composed_and_not_inherited() {
        let plan = agent(&spec("/repo"), &grants()).unwrap();
        let value = |key: &str| plan.env.iter().find(|(k, _)| k.as_bytes() == key.as_bytes()).map(|(_, v)| v.to_string());
        assert_eq!(value("SECRET"), None, "the host's variables are only picked by a policy");
        assert_eq!(value("A").as_deref(), Some("b"));
        assert_eq!(value("PATH").as_deref(), Some("/mine"), "the person's own word for this run counts");
        let mut spec = spec("/repo");
        spec.env.clear();
        let plan = agent(&spec, &grants()).unwrap();
        let path = plan.env.iter().find(|(k, _)| k.as_bytes() == b"PATH").unwrap().1.to_string();
        assert!(
            path.starts_with("/home/u/agent/bin:") && !path.contains(".ssh"),
            "the host's PATH, as far as it is shown: {path}"
        );
    }

    #[test]
    fn a_loss_that_is_accepted_is_not_required() {
        let plan = agent(&spec("/repo"), &grants()).unwrap();
        assert!(!plan.require.contains(&Guarantee::Network) && plan.require.contains(&Guarantee::Writes));
    }

    #[test]
    fn what_a_run_could_lift_is_refused() {
        let refused = |change: &dyn Fn(&mut Grants, &mut RunSpec)| {
            let (mut grants, mut spec) = (grants(), spec("/repos/deep/repo"));
            grants.read = vec!["/data".into()];
            grants.hide = vec![];
            change(&mut grants, &mut spec);
            agent(&spec, &grants).err().map(|e| (e.key, e.place))
        };
        let at = |key, place: &str| Some((key, PathBuf::from(place)));
        assert_eq!(refused(&|_, _| ()), None);
        let in_write = |hidden: &'static str, write: &'static [&'static str]| {
            refused(&|g, _| {
                g.hide = vec![hidden.into()];
                g.write = write.iter().map(PathBuf::from).collect();
            })
        };
        assert_eq!(in_write("/w/secret", &["/w"]), None, "its place is a mount, which can't be moved");
        assert_eq!(in_write("/w/a/secret", &["/w"]), at("files.hide", "/w/a/secret"), "/w/a can be moved");
        assert_eq!(in_write("/w/a/secret", &["/w/a", "/w"]), at("files.hide", "/w/a/secret"), "/w/a is a mount, in /w it is not");
        assert_eq!(in_write("/wide/a/secret", &["/w"]), None);
        assert_eq!(refused(&|g, _| g.write = vec!["/data".into()]), None, "of two at one place the first counts");
        assert_eq!(
            refused(&|g, _| g.write = vec!["/".into()]),
            at("files.write", "/home/u/data"),
            "Airlock's own, /data is direct"
        );
        assert_eq!(
            refused(&|g, _| g.write = vec!["/repos".into()]),
            at("files.write", "/repos/deep/repo"),
            "the person's own tree"
        );
        assert_eq!(refused(&|g, _| g.write = vec!["/repos/deep".into()]), None);
        assert_eq!(
            refused(&|g, _| {
                g.write = vec!["/srv".into()];
                g.read = vec!["/srv/a/b".into()];
            }),
            at("files.read", "/srv/a/b"),
            "what is only to be read would be written under another name"
        );
    }

    #[test]
    fn what_a_grant_shows_by_another_name_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let at = |p: &str| dir.path().join(p);
        std::fs::create_dir_all(at("disk/data/keys")).unwrap();
        std::fs::create_dir_all(at("airlock")).unwrap();
        std::os::unix::fs::symlink(at("disk"), at("link")).unwrap();
        std::os::unix::fs::symlink(at("airlock"), at("disk/state")).unwrap();
        let refused = |read: &str, hide: &str| {
            let grants = Grants { read: vec![at(read)], hide: vec![at(hide)], ..grants() };
            agent(&spec("/repo"), &grants).err().map(|e| e.place)
        };
        assert_eq!(refused("disk/data", "disk/data/keys"), None);
        assert_eq!(refused("link/data", "link/data/keys"), None, "both by one name");
        assert_eq!(refused("link/data", "disk/data/keys"), Some(at("disk/data/keys")));
        assert_eq!(refused("disk/data", "link/data/keys"), Some(at("link/data/keys")));
        assert_eq!(refused("disk/data/keys", "link/never"), None, "what leads nowhere is not in sight");
        let mut spec = spec("/repo");
        spec.layout.data = at("disk/state");
        let own = Grants { read: vec![at("airlock")], ..grants() };
        assert_eq!(agent(&spec, &own).err().map(|e| e.place), Some(at("disk/state")), "nor Airlock's own");
    }

    #[test]
    fn a_hide_that_no_jail_on_the_repository_can_keep_is_refused() {
        for workspace in ["/home/u/src/repo", "/data/src/repo"] {
            let hide = |place: PathBuf| {
                agent(&spec(workspace), &Grants { hide: vec![place], read: vec![], ..grants() }).err().map(|e| e.to_string())
            };
            let inside = hide(Path::new(workspace).join("keys/k")).unwrap();
            assert!(inside.contains("history") && inside.contains("keys/k"), "{inside}");
            assert!(hide(workspace.into()).is_some());
        }
        let hide = |place: &str| agent(&spec("/data/src/repo"), &Grants { hide: vec![place.into()], ..grants() }).err();
        assert!(hide("/data/src").unwrap().why.contains("repository"));
        assert!(hide("/home").unwrap().why.contains("home"));
        let beside = agent(&spec("/home/u/src/repo"), &Grants { hide: vec!["/home/u/src".into()], ..grants() });
        assert!(beside.is_ok(), "below the private home nothing of it is but the workspace");
    }
}
