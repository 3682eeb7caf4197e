//! From what a run is granted to the plan of its jail. Pure but for looking at which system directories and tools exist,
//! and where granted places really are.

use crate::tools::{self, Shown};
use crate::{etc, toolconf};
use authority::Trusted;
use jail_plan::{Access, Guarantee, Identity, Landlock, Limits, Mapped, Net, Plan, Raw, Stdio, Step};
use model::keeper::{Job, inside};
use model::run::RunSpec;
use std::path::{Path, PathBuf};

mod authority;
mod check;
mod env;
mod fallback;
mod granted;
mod hidden;
mod keystore;

pub use check::Conflict;
pub use fallback::{LOST_IN_PART, agent_without_namespaces, keeper_without_namespaces};

/// What a policy lets one run do, in paths and figures.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Grants {
    /// More host paths shown read-only at their own place.
    pub read: Vec<PathBuf>,
    /// More host paths shown writable at their own place.
    pub write: Vec<PathBuf>,
    /// Character devices below `/dev`, or directories of them, handed in read-write.
    pub devices: Vec<PathBuf>,
    /// Host paths that stay hidden even where `read`, `write` or a system directory would show them.
    pub hide: Vec<PathBuf>,
    /// Environment of the command, on top of what every jail has (`HOME`, `PATH`, `TMPDIR`, …).
    pub env: Vec<(String, String)>,
    /// Processes and threads.
    pub processes: u64,
    /// Descriptors of one process.
    pub open_files: u64,
    /// Bytes that workspace and home may grow by: no single file gets larger than that and an eighth.
    pub disk: Option<u64>,
    /// Whether there is a way out (served by the caller) or no network at all.
    pub network: bool,
    /// Whether the tools of the person's home are shown.
    pub tools: bool,
    /// Caches of the person's tools, each under a layer of the task's own.
    pub caches: Vec<Layered>,
    /// Whether programs inside may make namespaces of their own.
    pub nested: bool,
    /// Guarantees whose loss the person's policy accepts by name.
    pub accept: Vec<Guarantee>,
    /// The certificate of the run's own authority (PEM), where requests are read.
    pub authority: Option<String>,
    /// Variables of the person's whose values stay outside, with what stands for them.
    pub placeholders: Vec<(String, String)>,
}

/// A host directory that is seen at a place of the jail, under a layer that takes what is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Layered {
    /// Its name in the report.
    pub name: String,
    /// What is seen. Nothing may change in it while the jail lives.
    pub lower: PathBuf,
    /// Where `upper` and `work` are.
    pub private: PathBuf,
    /// Where it is seen.
    pub target: PathBuf,
}

impl Default for Grants {
    /// Nothing but the workspace, with usual bounds.
    fn default() -> Self {
        Self {
            read: Vec::new(),
            write: Vec::new(),
            devices: Vec::new(),
            hide: Vec::new(),
            env: Vec::new(),
            processes: 1024,
            open_files: 700,
            disk: None,
            network: false,
            tools: false,
            caches: Vec::new(),
            nested: false,
            accept: Vec::new(),
            authority: None,
            placeholders: Vec::new(),
        }
    }
}

/// Where every agent's jail has the private git directory.
pub const GIT: &str = "/run/airlock/git";
/// Where it has the history, read-only.
const HISTORY: &str = "/run/airlock/history";

/// Where programs of the system are.
const SYSTEM_PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

/// The plan of an agent's jail.
///
/// # Errors
/// A grant that would be lifted by what a run can do, or that says what no jail on this workspace can keep.
pub fn agent(spec: &RunSpec, grants: &Grants) -> Result<Plan, Conflict> {
    check::check(spec, grants)?;
    let identity = identity();
    let home = Raw::from(spec.home.as_path());
    let workspace = Raw::from(spec.workspace.as_path());
    let write = |source: PathBuf, target: &Raw| bind(Raw::from(source), target.clone(), Access::Write);

    // Whatever is shown goes up from the root down: a place below another must be mounted after it.
    let mut shown =
        vec![write(spec.dir.home(), &home), write(spec.dir.tree(), &workspace), write(spec.dir.git(), &Raw::from(GIT))];
    let Shown { steps: mut tool_steps, path: mut programs, env: of_tools, .. } =
        if grants.tools { tools::of_home(spec, &grants.hide) } else { Shown::default() };
    for tool in spec.tools.iter().chain(outside_system(&spec.git_program)) {
        tool_steps.push(tools::show(tool, Access::Read));
        programs.push(if tool.is_dir() { tool.join("bin") } else { tool.parent().unwrap_or(tool).to_owned() });
    }
    let path = env::search_path(spec, &tool_steps, &programs);
    shown.extend(tool_steps);
    shown.extend(grants.read.iter().map(|p| tools::show(p, Access::Read)));
    shown.extend(grants.write.iter().map(|p| tools::show(p, Access::Write)));
    for (n, objects) in spec.history.iter().enumerate() {
        shown.push(bind(Raw::from(objects.as_path()), Raw::from(format!("{HISTORY}/{n}")), Access::Read));
    }
    shown.extend(grants.caches.iter().map(overlay));
    shown.sort_by_key(|step| depth(step.target()));
    dedup_targets(&mut shown);

    let mut root = etc::system();
    root.extend(toolconf::of_machine().into_iter().map(|(at, text)| Step::Cover { target: at.into(), contents: text.into() }));
    root.extend(etc::etc(identity, &home, &spec.hostname));
    root.extend(etc::machine(identity.uid, &grants.devices));
    let trusted = Trusted::of(grants);
    let java = trusted.as_ref().map(|t| t.java(&shown)).unwrap_or_default();
    root.extend(trusted.map(Trusted::steps).unwrap_or_default());
    root.extend(shown);
    root.extend(java);
    // The agent finds its own git directory whatever it does to this file: it can't be written, moved or removed.
    root.push(Step::Cover { target: below(&workspace, b".git"), contents: Raw::from(format!("gitdir: {GIT}\n")) });
    let hidden = hidden::steps(spec, grants, &root);
    root.extend(hidden);

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
        limits: Limits { file_size: grants.disk.map(largest_file), ..limits(grants.processes, grants.open_files) },
        landlock: Landlock {
            writable: writable.chain(grants.write.iter().map(|p| Raw::from(p.as_path()))).collect(),
            readable: vec![Raw::from("/")],
            listed: Vec::new(),
        },
        nested: grants.nested,
        notify: true,
        // Asking for namespaces inside is itself the word that accepts what they cost.
        require: Guarantee::REQUIRED
            .into_iter()
            .filter(|g| !(grants.accept.contains(g) || grants.nested && *g == Guarantee::Syscalls))
            .collect(),
        argv: spec.argv.iter().map(|a| Raw::from(a.as_str())).collect(),
        env: env::environment(spec, grants, &path, &of_tools, Path::new(authority::PLACE)),
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
    root.extend(etc::machine(identity.uid, &[]));
    let tree = if job.write_tree { Access::Write } else { Access::Read };
    root.extend([
        bind(Raw::from(job.tree.as_path()), at(inside::TREE), tree),
        bind(Raw::from(job.git.as_path()), at(inside::GIT), Access::Write),
        bind(Raw::from(job.objects.as_path()), at(inside::OBJECTS), Access::Read),
        bind(Raw::from(warden_program), at(inside::PROGRAM), Access::Read),
    ]);
    if let Some(source) = &job.source {
        root.push(bind(Raw::from(source.as_path()), at(inside::SOURCE), Access::Read));
        // The repository itself is no business of a keeper's. A link in its place leads nowhere here.
        if !source.join(".git").is_symlink() {
            root.push(Step::Mask { target: Raw::from(format!("{}/.git", inside::SOURCE)), must_exist: false });
        }
    }
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
        landlock: Landlock { writable, readable: vec![at("/")], listed: Vec::new() },
        require: Guarantee::REQUIRED.to_vec(),
        argv,
        env: env.map(|(k, v)| (at(k), at(v))).to_vec(),
        looks_beneath: true,
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
        nested: false,
        notify: false,
        looks_beneath: false,
        require: Vec::new(),
        fallback: None,
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
    Limits { processes, cpus: None, open_files, file_size: None, inotify_instances: 32, inotify_watches: 65_536 }
}

/// A little more than all may grow by, so that growth is told before a single file ends.
fn largest_file(disk: u64) -> u64 {
    disk.saturating_add(disk / 8)
}

fn bind(source: Raw, target: Raw, access: Access) -> Step {
    Step::Bind { source, target, access, recursive: false, idmapped: true, optional: false }
}

fn overlay(cache: &Layered) -> Step {
    let Layered { name, lower, private, target } = cache;
    let raw = |path: &Path| Raw::from(path);
    Step::Overlay { name: name.clone(), lower: raw(lower), private: raw(private), target: raw(target) }
}

/// A program that the system directories don't show already.
fn outside_system(program: &PathBuf) -> Option<&PathBuf> {
    let shown = ["/usr", "/bin", "/sbin", "/nix/store", "/gnu/store"];
    let outside = program.is_absolute() && !shown.iter().any(|s| program.starts_with(s));
    outside.then_some(program)
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
pub(crate) mod tests;
