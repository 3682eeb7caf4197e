//! The plans of jails without namespaces. They see the host's own root, so places are where they really are, and what is shown
//! is all a matter of Landlock's rules, which only ever add: nothing can be hidden or closed to writing in a place that is open.

use super::authority::Trusted;
use super::check::{self, Conflict};
use super::{Grants, SYSTEM_PATH, depth, env, identity, largest_file, limits, outside_system};
use crate::real::real;
use crate::tools::{self, Shown};
use crate::{etc, toolconf};
use jail_plan::{Access, Fallback, Guarantee, Landlock, Limits, Net, Plan, Raw, Stdio, Step};
use model::keeper::Job;
use model::run::RunSpec;
use std::path::{Path, PathBuf};

/// What is lost in part by all that are such, and accepted with them; any further loss has to be accepted by its own name.
pub const LOST_IN_PART: [Guarantee; 2] = [Guarantee::Reads, Guarantee::Control];

/// Devices that keep nothing, written and read.
const DEVICES: [&str; 4] = ["/dev/null", "/dev/zero", "/dev/full", "/dev/tty"];
/// What is read of the kernel's. `/proc` whole, as no rule can follow a process that is yet to start.
const MACHINE: [&str; 4] = ["/dev/random", "/dev/urandom", "/proc", "/sys/devices/system/cpu"];
/// Who a number is; the jail's other accounts are files of its own only where it has a root of its own.
const ACCOUNTS: [&str; 2] = ["/etc/passwd", "/etc/group"];

/// The plan of an agent's jail.
///
/// # Errors
/// As [`super::agent`], and what can't be kept without mounts.
pub fn agent_without_namespaces(spec: &RunSpec, grants: &Grants) -> Result<Plan, Conflict> {
    check::check(spec, grants)?;
    let Shown { steps: mut tool_steps, path: mut programs, env: mut of_tools, usual } =
        if grants.tools { tools::of_home(spec, &grants.hide) } else { Shown::default() };
    for tool in spec.tools.iter().chain(outside_system(&spec.git_program)) {
        tool_steps.push(tools::show(tool, Access::Read));
        programs.push(if tool.is_dir() { tool.join("bin") } else { tool.parent().unwrap_or(tool).to_owned() });
    }
    let path = env::search_path(spec, &tool_steps, &programs);
    // The home is another one, so what lies where it usually does has to be named.
    of_tools.extend(usual);
    let tools: Vec<PathBuf> = sources(&tool_steps);
    closed(spec, grants, &tools)?;

    let place = Places::of(spec);
    let anew = toolconf::of_machine();
    let mut carved = Carved::around(closed_places(spec, grants).chain(anew.iter().map(|(at, _)| at.clone())).collect());
    system(&Raw::from(place.home.as_path()), &spec.hostname).iter().for_each(|p| carved.show(p));
    tools.iter().chain(&grants.read).filter_map(|p| real(p)).for_each(|p| carved.show(&p));
    let Carved { mut readable, listed, .. } = carved;
    readable.extend(spec.history.iter().filter_map(|p| real(p)).map(Raw::from));
    let mut writable: Vec<Raw> = place.all().map(|p| Raw::from(p.as_path())).collect();
    writable.extend(grants.write.iter().filter_map(|p| real(p)).map(Raw::from));
    writable.extend(DEVICES.map(Raw::from));
    sort(&mut readable);
    let lost = |g: &Guarantee| grants.accept.contains(g);
    Ok(Plan {
        hostname: spec.hostname.clone(),
        stdio: match spec.stdio {
            model::run::Stdio::Terminal { cols, rows } => Stdio::Terminal { cols, rows },
            model::run::Stdio::Pipes => Stdio::Inherit,
        },
        limits: Limits { file_size: grants.disk.map(largest_file), ..limits(grants.processes, grants.open_files) },
        landlock: Landlock { writable, readable, listed },
        notify: true,
        require: Guarantee::REQUIRED.into_iter().filter(|g| !lost(g) && !LOST_IN_PART.contains(g)).collect(),
        fallback: Some(Fallback {
            files: [
                vec![
                    (
                        Raw::from(place.tree.join(".git")),
                        Raw::from([b"gitdir: ", place.git.as_os_str().as_encoded_bytes(), b"\n"].concat()),
                    ),
                    (Raw::from(place.npmrc()), Raw::from(anew.into_iter().map(|(_, text)| text).collect::<String>())),
                ],
                Trusted::of(grants).map(|t| t.files(&place.trusted())).unwrap_or_default(),
            ]
            .concat(),
            partly: LOST_IN_PART.into_iter().filter(|g| !lost(g)).collect(),
        }),
        argv: spec.argv.iter().map(|a| Raw::from(a.as_str())).collect(),
        env: environment(spec, grants, &path, &of_tools, &place),
        cwd: Raw::from(place.tree.as_path()),
        net: Net::None,
        ..super::empty(identity())
    })
}

/// The plan of a keeper's jail: as [`super::keeper`], with every place where it really is, which its arguments say.
pub fn keeper_without_namespaces(job: &Job, warden_program: &Path) -> Plan {
    let here = |path: &Path| real(path).unwrap_or_else(|| path.to_owned());
    let (tree, git, objects) = (here(&job.tree), here(&job.git), here(&job.objects));
    let program = here(warden_program);
    let mut readable: Vec<Raw> = system(&Raw::from(git.as_path()), "keeper").into_iter().map(Raw::from).collect();
    readable.extend([&program, &tree, &objects].map(|p| Raw::from(p.as_path())));
    readable.extend(job.history.iter().map(|p| Raw::from(here(p))));
    let mut listed = Vec::new();
    let mut argv = vec![Raw::from(program), Raw::from("keeper"), Raw::from("--at"), Raw::from(tree.as_path())];
    argv.push(Raw::from(git.as_path()));
    argv.push(Raw::from(objects.as_path()));
    if let Some(source) = job.source.as_deref().map(here) {
        argv.extend([Raw::from("--source"), Raw::from(source.as_path())]);
        // The repository itself is no business of a keeper's: beside it, everything of the working copy by its own rule.
        let entries = std::fs::read_dir(&source).into_iter().flatten().flatten().filter(|e| e.file_name() != ".git");
        readable.extend(entries.filter(|e| e.file_type().is_ok_and(|t| !t.is_symlink())).map(|e| Raw::from(e.path())));
        listed.push(Raw::from(source));
    }
    for history in &job.history {
        argv.extend([Raw::from("--history"), Raw::from(here(history))]);
    }
    argv.push(Raw::from("--"));
    argv.extend(job.args.iter().cloned().map(Raw::from));
    let mut writable: Vec<Raw> = DEVICES.map(Raw::from).to_vec();
    writable.push(Raw::from(git.as_path()));
    if job.write_tree {
        writable.push(Raw::from(tree));
    }
    let own = Raw::from(git.as_path());
    let env = [("PATH", Raw::from(SYSTEM_PATH)), ("HOME", own.clone()), ("TMPDIR", own), ("LANG", Raw::from("C.UTF-8"))];
    sort(&mut readable);
    Plan {
        hostname: "keeper".into(),
        limits: limits(256, 1024),
        landlock: Landlock { writable, readable, listed },
        notify: true,
        // What runs is Airlock's own, so signals of its are no danger, and it ends by itself.
        require: Guarantee::REQUIRED.into_iter().filter(|g| !LOST_IN_PART.contains(g) && *g != Guarantee::Ends).collect(),
        looks_beneath: true,
        fallback: Some(Fallback { files: Vec::new(), partly: vec![Guarantee::Reads, Guarantee::Ends] }),
        argv,
        env: env.map(|(k, v)| (Raw::from(k), v)).to_vec(),
        ..super::empty(identity())
    }
}

/// Where a run's own places really are.
struct Places {
    tree: PathBuf,
    home: PathBuf,
    git: PathBuf,
    tmp: PathBuf,
}

impl Places {
    fn of(spec: &RunSpec) -> Self {
        let here = |path: PathBuf| real(&path).unwrap_or(path);
        let dir = &spec.dir;
        Self { tree: here(dir.tree()), home: here(dir.home()), git: here(dir.git()), tmp: here(dir.tmp()) }
    }

    /// The machine's own settings of npm, written anew.
    /// Where the run's own list of trusted authorities is.
    fn trusted(&self) -> PathBuf {
        self.tmp.clone()
    }

    fn npmrc(&self) -> PathBuf {
        self.tmp.join("npmrc")
    }

    fn all(&self) -> impl Iterator<Item = &PathBuf> {
        [&self.tree, &self.home, &self.git, &self.tmp].into_iter()
    }
}

/// What of the system can be read.
fn system(home: &Raw, hostname: &str) -> Vec<PathBuf> {
    let mut steps = etc::system();
    steps.extend(etc::etc(identity(), home, hostname));
    let named = MACHINE.iter().chain(&ACCOUNTS).filter_map(|p| real(Path::new(p)));
    sources(&steps).iter().filter_map(|p| real(p)).chain(named).collect()
}

/// The host's places behind binds.
fn sources(steps: &[Step]) -> Vec<PathBuf> {
    let source = |step: &Step| match step {
        Step::Bind { source, .. } => Some(source.as_path().to_owned()),
        _ => None,
    };
    steps.iter().filter_map(source).collect()
}

fn sort(paths: &mut Vec<Raw>) {
    paths.sort_by(|a, b| (depth(a), a).cmp(&(depth(b), b)));
    paths.dedup();
}

/// Places that stay closed, where they really are.
fn closed_places<'a>(spec: &'a RunSpec, grants: &'a Grants) -> impl Iterator<Item = PathBuf> + 'a {
    let own = [&spec.layout.data, &spec.layout.config, &spec.layout.runtime, &spec.workspace];
    grants.hide.iter().chain(own).map(|p| real(p).unwrap_or_else(|| p.clone()))
}

/// What can be read, around places that stay closed: a directory that holds one is replaced by what else is in it. What comes to
/// be there later is closed too.
struct Carved {
    closed: Vec<PathBuf>,
    readable: Vec<Raw>,
    listed: Vec<Raw>,
}

impl Carved {
    fn around(closed: Vec<PathBuf>) -> Self {
        Self { closed, readable: Vec::new(), listed: Vec::new() }
    }

    fn show(&mut self, place: &Path) {
        if self.closed.iter().any(|c| place.starts_with(c)) {
            return;
        }
        if !self.closed.iter().any(|c| c.starts_with(place)) {
            return self.readable.push(Raw::from(place));
        }
        // To list is a right over all below it: only for what everybody may know, so not where something of the person's is.
        if place.starts_with("/usr") {
            self.listed.push(Raw::from(place));
        }
        for entry in std::fs::read_dir(place).into_iter().flatten().flatten() {
            // A link has no rule of its own: what it leads to has one or not.
            if entry.file_type().is_ok_and(|kind| !kind.is_symlink()) {
                self.show(&entry.path());
            }
        }
    }
}

/// Refuses what mounts would keep and rules can't.
fn closed(spec: &RunSpec, grants: &Grants, tools: &[PathBuf]) -> Result<(), Conflict> {
    let conflict = |key, place: &Path, why: String| Err(Conflict { key, place: place.to_owned(), why });
    const WITHOUT: &str = "which a jail without namespaces can't keep";
    if let Some(device) = grants.devices.first() {
        return conflict(
            "files.devices",
            device,
            format!("a device of its own is something {WITHOUT}: take it out of the policy"),
        );
    }
    if grants.nested {
        return conflict("jail.nested", Path::new("true"), format!("programs inside can't make namespaces either, {WITHOUT}"));
    }
    let written: Vec<PathBuf> = grants.write.iter().filter_map(|p| real(p)).collect();
    for place in closed_places(spec, grants) {
        if let Some(write) = written.iter().find(|w| place.starts_with(w) || w.starts_with(&place)) {
            let why = format!("it may be written together with {}, which is to stay closed, {WITHOUT}", place.display());
            return conflict("files.write", write, why);
        }
    }
    for place in tools.iter().chain(&grants.read).filter_map(|p| real(p)) {
        if let Some(write) = written.iter().find(|w| place.starts_with(w)) {
            let why = format!("it is to be only read and lies in {}, which may be written, {WITHOUT}", write.display());
            return conflict("files.read", &place, why);
        }
    }
    Ok(())
}

fn environment(
    spec: &RunSpec,
    grants: &Grants,
    path: &[PathBuf],
    of_tools: &[(String, String)],
    place: &Places,
) -> Vec<(Raw, Raw)> {
    let mut env = env::environment(spec, grants, path, of_tools, &place.trusted());
    let own = [
        ("HOME", Raw::from(place.home.as_path())),
        ("TMPDIR", Raw::from(place.tmp.as_path())),
        ("XDG_RUNTIME_DIR", Raw::from(place.tmp.join("run"))),
        ("CHROME_CONFIG_HOME", Raw::from(place.home.join(".local/state"))),
        ("PWD", Raw::from(place.tree.as_path())),
        // libc asks for names over TCP, which the warden carries; nobody outside is asked.
        ("RES_OPTIONS", Raw::from("use-vc timeout:5 attempts:2")),
        ("NPM_CONFIG_GLOBALCONFIG", Raw::from(place.npmrc())),
        // The system's own is not shown, and git ends where it is there and can't be read.
        ("GIT_CONFIG_NOSYSTEM", Raw::from("1")),
    ];
    for (key, value) in own {
        let named = spec.env.iter().any(|(k, _)| k == key);
        if !named {
            env.retain(|(k, _)| k.as_bytes() != key.as_bytes());
            env.push((Raw::from(key), value));
        }
    }
    env
}
