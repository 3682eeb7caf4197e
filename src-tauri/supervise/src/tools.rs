//! Tools of the person's home that a jail shows: a table of subpaths, never a dot-directory whole.
//!
//! A home is trusted by its person, so links in it are followed here, on the host: what a place of the table leads to is shown
//! under the table's own name and at the place where it really is, and so is what a link directly in such a place leads to, if
//! that is a program or a directory. What is, holds or lies in a place of credentials, of Airlock's own or of the policy's
//! `hide` is never shown, nor what is or holds a home, a repository or a directory of the system.

use crate::real::real;
use jail_plan::{Access, Raw, Step};
use model::run::RunSpec;
use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Component, Path, PathBuf};
use table::{Family, Part};

mod closed;
mod npm;
mod table;

pub(crate) use npm::prefix as npm_prefix;

/// Links in one directory that are looked at.
const ENTRIES: usize = 4096;
/// Links that lead from one to the next.
const HOPS: usize = 16;

/// What is shown, and what programs need to find it.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Shown {
    /// Binds, read-only.
    pub(crate) steps: Vec<Step>,
    /// Directories of programs, in the table's order.
    pub(crate) path: Vec<PathBuf>,
    /// Variables.
    pub(crate) env: Vec<(String, String)>,
    /// Variables for what lies where it usually does, for whoever has another home.
    pub(crate) usual: Vec<(String, String)>,
}

/// The variables of the person's environment that say where tools are. None is handed in as it is.
pub fn variables() -> impl Iterator<Item = &'static str> {
    ["PATH"].into_iter().chain(table::variables())
}

/// What of the table exists for this person.
pub(crate) fn of_home(spec: &RunSpec, hide: &[PathBuf]) -> Shown {
    let mut search = Search { spec, hide, places: Vec::new(), known: BTreeSet::new(), path: Vec::new() };
    let (mut env, mut usual) = (Vec::new(), Vec::new());
    for family in table::TABLE {
        for (root, named) in roots(family, spec) {
            let before = search.places.len();
            for part in family.parts {
                search.part(&root, part);
            }
            let found = search.places.len() > before;
            if let (true, true, Some(var), Some(text)) = (found, family.set, family.var, root.to_str()) {
                if named { &mut env } else { &mut usual }.push((var.to_owned(), text.to_owned()));
            }
        }
    }
    search.version_of_nvm();
    if let Some(java) = Some(spec.home.join(table::SDKMAN_JAVA)).filter(|j| search.shows(&j.join("bin"))) {
        env.extend(java.to_str().map(|j| ("JAVA_HOME".to_owned(), j.to_owned())));
    }
    // What came later may show what a link leads to, so links come last.
    for (_, place) in search.places.clone() {
        search.links_in(&place);
    }
    let Search { mut places, path, .. } = search;
    places.sort_by_key(|(_, at)| at.components().count());
    let mut steps: Vec<Step> = Vec::new();
    let mut kept: Vec<PathBuf> = Vec::new();
    for (source, at) in places {
        // What lies in a place that is shown is seen there.
        if !kept.iter().any(|k| at.starts_with(k)) {
            steps.push(bind(&source, &at));
            kept.push(at);
        }
    }
    usual.retain(|(var, _)| !env.iter().any(|(named, _)| named == var));
    Shown { steps, path, env, usual }
}

/// A bind of a host path at its own place, with the person's ids.
pub(crate) fn show(path: &Path, access: Access) -> Step {
    let raw = Raw::from(path);
    Step::Bind { source: raw.clone(), target: raw, access, recursive: false, idmapped: true, optional: true }
}

/// A tool's place; what is mounted below it belongs to it.
fn bind(source: &Path, target: &Path) -> Step {
    Step::Bind {
        source: source.into(),
        target: target.into(),
        access: Access::Read,
        recursive: true,
        idmapped: true,
        optional: true,
    }
}

/// Where a family lies: where the person's variable says, else where it usually is. True beside the former.
fn roots(family: &Family, spec: &RunSpec) -> Vec<(PathBuf, bool)> {
    let usual = spec.home.join(family.root);
    let value = |name: &str| spec.tool_env.iter().find(|(k, _)| k == name).map(|(_, v)| v.as_str());
    let mut named: Vec<PathBuf> = family.var.and_then(value).map(|v| std::env::split_paths(v).collect()).unwrap_or_default();
    if family.var == Some("NPM_CONFIG_PREFIX") {
        named.extend(npm::prefix(&spec.home, &|path| std::fs::read_to_string(path).ok()));
    }
    let plain = |p: &PathBuf| p.is_absolute() && p.components().all(|c| matches!(c, Component::RootDir | Component::Normal(_)));
    let mut roots: Vec<(PathBuf, bool)> =
        named.into_iter().filter(plain).filter(|p| *p != usual).map(|p| (p.components().collect(), true)).collect();
    roots.push((usual, false));
    roots
}

/// What was found so far.
struct Search<'a> {
    spec: &'a RunSpec,
    hide: &'a [PathBuf],
    /// Where something really is, and where it is shown.
    places: Vec<(PathBuf, PathBuf)>,
    known: BTreeSet<PathBuf>,
    path: Vec<PathBuf>,
}

impl Search<'_> {
    fn part(&mut self, root: &Path, part: &Part) {
        match part {
            Part::Programs(below) => {
                for place in spread(root, below) {
                    if self.add(&place) && place.is_dir() {
                        self.path.push(place);
                    }
                }
            }
            Part::Tools(below) => {
                for place in spread(root, below) {
                    self.add(&place);
                }
            }
            Part::Beside => {
                let programs: Vec<PathBuf> = entries(root).filter(|p| is_program(p)).collect();
                let found = programs.iter().filter(|p| self.add(p)).count();
                if found > 0 {
                    self.path.push(root.to_owned());
                }
            }
        }
    }

    /// Shows what a place leads to, under its own name and where it is.
    fn add(&mut self, place: &Path) -> bool {
        let Some(real) = real(place) else { return false };
        // A socket or a device is no tool.
        if !(real.is_dir() || real.is_file()) || self.closed(&real) {
            return false;
        }
        self.show(&real, place);
        true
    }

    fn show(&mut self, real: &Path, place: &Path) {
        for at in [place, real] {
            // In the workspace lies the task's own tree, and nothing is laid over it.
            if self.free(at) && self.known.insert(at.to_owned()) {
                self.places.push((real.to_owned(), at.to_owned()));
            }
        }
        let store = closed::store_of(real).filter(|s| !self.closed(s) && self.free(s));
        if let Some(store) = store.filter(|s| self.known.insert(s.clone())) {
            self.places.push((store.clone(), store));
        }
    }

    fn free(&self, place: &Path) -> bool {
        !place.starts_with(&self.spec.workspace) && !system(place)
    }

    fn closed(&self, real: &Path) -> bool {
        closed::is(real, self.spec, self.hide)
    }

    fn shows(&self, place: &Path) -> bool {
        system(place) || self.places.iter().any(|(_, at)| place.starts_with(at))
    }

    /// Shows what the links directly in a place lead to.
    fn links_in(&mut self, place: &Path) {
        let Some(host) = real(place).filter(|p| p.is_dir()) else { return };
        for link in entries(&host).filter(|p| p.is_symlink()) {
            if let Some(name) = link.file_name() {
                self.follow(&place.join(name), link.clone());
            }
        }
    }

    /// Follows a link that is shown at `inside` and is `host` outside, until what it leads to is in sight.
    fn follow(&mut self, inside: &Path, host: PathBuf) {
        let (mut inside, mut host) = (inside.to_owned(), host);
        for _ in 0..HOPS {
            let (Ok(text), Some(above), Some(host_above)) = (std::fs::read_link(&host), inside.parent(), host.parent()) else {
                return;
            };
            // The kernel goes up from where the link really is; inside, places are mounts and hence real.
            let (next, host_next) = (plain(&above.join(&text)), host_above.join(&text));
            let Some(leads_to) = real(&host_next) else { return };
            if !self.shows(&next) {
                // A program alone may be a repository's: dotfiles are kept in one.
                let useful = is_program(&leads_to) || (leads_to.is_dir() && !closed::in_repository(&leads_to));
                if useful && !self.closed(&leads_to) {
                    self.show(&leads_to, &next);
                }
                return;
            }
            let Some(resolved_above) = host_next.parent().and_then(real) else { return };
            let Some(name) = next.file_name() else { return };
            (host, inside) = (resolved_above.join(name), next);
        }
    }

    /// The programs of the node that nvm would use: its shell function, which would put them into `PATH`, does not run inside.
    fn version_of_nvm(&mut self) {
        let (usual, alias, versions) = table::NVM;
        let moved = self.spec.tool_env.iter().find(|(k, _)| k == "NVM_DIR").map(|(_, v)| PathBuf::from(v));
        let root = moved.unwrap_or_else(|| self.spec.home.join(usual));
        let wanted = std::fs::read_to_string(root.join(alias)).unwrap_or_default();
        let numbers =
            |name: &str| -> Vec<u64> { name.trim().trim_start_matches('v').split('.').map_while(|n| n.parse().ok()).collect() };
        let wanted = numbers(&wanted);
        let of = |p: &PathBuf| p.file_name().and_then(|n| n.to_str()).map(numbers).unwrap_or_default();
        let installed = entries(&root.join(versions)).filter(|p| p.join("bin").is_dir());
        let newest = installed.filter(|p| of(p).starts_with(&wanted)).max_by_key(of);
        if let Some(bin) = newest.map(|p| p.join("bin")).filter(|b| self.shows(b)) {
            self.path.push(bin);
        }
    }
}

/// What every jail shows of the system.
fn system(place: &Path) -> bool {
    ["/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/nix/store", "/gnu/store"].iter().any(|s| place.starts_with(s))
}

/// The places that a line of the table names.
fn spread(root: &Path, below: &str) -> Vec<PathBuf> {
    let mut found = vec![root.to_owned()];
    for name in below.split('/').filter(|n| !n.is_empty()) {
        found = found.iter().flat_map(|p| if name == "*" { entries(p).collect() } else { vec![p.join(name)] }).collect();
    }
    found
}

/// What lies in a directory, by name.
fn entries(directory: &Path) -> std::vec::IntoIter<PathBuf> {
    let mut all: Vec<PathBuf> =
        std::fs::read_dir(directory).into_iter().flatten().flatten().take(ENTRIES).map(|e| e.path()).collect();
    all.sort();
    all.into_iter()
}

fn is_program(path: &Path) -> bool {
    path.metadata().is_ok_and(|m| m.is_file() && m.permissions().mode() & 0o111 != 0)
}

/// A path without `.` and `..`, by its letters.
fn plain(path: &Path) -> PathBuf {
    let mut out = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(out.pop()),
            Component::CurDir => {}
            other => out.push(other),
        }
    }
    out
}
