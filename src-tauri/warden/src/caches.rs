//! Caches of the person's tools: copied in the background, held while a run stands on a copy.

use jail_plan::{Cache, Report};
use model::protocol::{CacheCopy, CopyCaches};
use model::run::RunSpec;
use std::cell::Cell;
use std::io::{Read as _, Write as _};
use std::process::ExitCode;
use std::time::{Duration, Instant};
use stores::{Counts, Held, Limits};
use supervise::compose::{Grants, Layered};

/// A cache of more is not copied, and the run goes without it or with an older copy.
const FILES: u64 = 1_000_000;
const BYTES: u64 = 4 << 30;
/// So much stays free on the disk.
const RESERVE: u64 = 2 << 30;
/// A copy ends after this, whatever it has.
const TIME: Duration = Duration::from_secs(600);
/// A word on how far it is, so often at most.
const SAY: Duration = Duration::from_millis(100);

/// Copies what stdin names, one after the other, at the lowest priority; says on stdout how it goes.
pub(crate) fn copy() -> ExitCode {
    // Its starter's hang-up and Ctrl-C are not for this process.
    nix::unistd::setsid().ok();
    rustix::process::setpriority_process(None, 19).ok();
    let mut text = Vec::new();
    let words = std::io::stdin().take(1 << 20).read_to_end(&mut text).ok().and_then(|_| serde_json::from_slice(&text).ok());
    let Some(CopyCaches { root, caches }) = words else { return ExitCode::from(2) };
    for cache in caches {
        let limits = Limits { files: FILES, bytes: BYTES, reserve: RESERVE, until: Instant::now().checked_add(TIME) };
        let (files, said) = (Cell::new(0), Cell::new(Instant::now()));
        let watch = |so_far: &Counts| {
            files.set(so_far.files);
            if said.get().elapsed() >= SAY {
                said.set(Instant::now());
                say(&CacheCopy { name: cache.name.clone(), files: so_far.files, ended: false, problem: None });
            }
            true
        };
        let now = sys::clock::unix_millis() / 1000;
        let made = stores::refresh(&root, &cache.name, &cache.source, &limits, now, &watch);
        let files = made.as_ref().map_or(files.get(), |made| made.counts.files);
        say(&CacheCopy { name: cache.name, files, ended: true, problem: made.err().map(|e| e.to_string()) });
    }
    ExitCode::SUCCESS
}

fn say(word: &CacheCopy) {
    let Ok(mut line) = serde_json::to_vec(word) else { return };
    line.push(b'\n');
    // Whoever started this may have heard enough.
    let mut out = std::io::stdout().lock();
    drop(out.write_all(&line).and_then(|()| out.flush()));
}

/// The copies that a run stands on. They stay for as long as this lives.
pub(crate) struct Taken {
    /// What the plan shows.
    pub(crate) layered: Vec<Layered>,
    missing: Vec<Cache>,
    notes: Vec<(String, String)>,
    _held: Vec<Held>,
}

/// Takes the newest copy of each cache that the run is to find, with a layer of the task's own over it. None is needed.
pub(crate) fn take(spec: &RunSpec, grants: &Grants) -> Taken {
    let mut taken = Taken { layered: Vec::new(), missing: Vec::new(), notes: Vec::new(), _held: Vec::new() };
    for cache in &spec.caches {
        let mut lost =
            |reason: String| taken.missing.push(Cache { name: cache.name.clone(), shown: false, reason: Some(reason) });
        let touches = |place: &std::path::Path| grants.hide.iter().find(|h| h.starts_with(place) || place.starts_with(h));
        if let Some(hidden) = touches(&cache.target).or_else(|| touches(&cache.source)) {
            lost(format!("`files.hide` names {}", hidden.display()));
            continue;
        }
        let Some(held) = stores::hold(&spec.layout.caches(), &cache.name) else {
            lost(cache.note.clone().unwrap_or_else(|| "there is no copy of it yet".into()));
            continue;
        };
        let private = spec.dir.cache(&cache.name);
        if let Err(e) = stores::layer(&private) {
            lost(format!("{}: {e}", private.display()));
            continue;
        }
        taken.layered.push(Layered { name: cache.name.clone(), lower: held.path.clone(), private, target: cache.target.clone() });
        taken.notes.extend(cache.note.clone().map(|note| (cache.name.clone(), note)));
        taken._held.push(held);
    }
    taken
}

impl Taken {
    /// Says of those that were to be shown that they are not.
    pub(crate) fn without_mounts(&self, report: &mut Report) {
        let reason = || Some("a layer over it needs a mount, and so namespaces".to_owned());
        report.caches.extend(self.layered.iter().map(|l| Cache { name: l.name.clone(), shown: false, reason: reason() }));
    }

    /// Adds to a jail's report what was known before it started.
    pub(crate) fn complete(&self, report: &mut Report) {
        for (name, note) in &self.notes {
            if let Some(row) = report.caches.iter_mut().find(|c| c.name == *name && c.reason.is_none()) {
                row.reason = Some(note.clone());
            }
        }
        report.caches.extend(self.missing.iter().cloned());
    }
}

/// What became of the caches, in a line.
pub(crate) fn words(report: &Report) -> Option<String> {
    let one = |c: &Cache| {
        let reason = c.reason.as_ref().map_or_else(String::new, |why| format!(" ({why})"));
        format!("{}{}{reason}", c.name, if c.shown { "" } else { " not shown" })
    };
    let list: Vec<String> = report.caches.iter().map(one).collect();
    (!list.is_empty()).then(|| list.join("; "))
}
