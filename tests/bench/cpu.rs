//! What a jail costs the work inside: CPU time of the same command outside and inside, in pairs, with a 95 % interval.

use crate::jail::{Task, cpu};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;
use testkit::Sandbox;

/// Where the programs and packages are that the workloads need.
pub(crate) struct Material {
    /// A directory with `Cargo.toml`, `Cargo.lock`, `src/` and `vendor/`.
    pub(crate) cargo: PathBuf,
    /// Sysroot of a Rust toolchain.
    pub(crate) toolchain: PathBuf,
    /// A directory with `package.json`, `package-lock.json`.
    pub(crate) npm: PathBuf,
    /// npm's cache with all of that lock file.
    pub(crate) npm_cache: PathBuf,
}

struct Work<'a> {
    name: &'static str,
    argv: &'a [&'a str],
    env: Vec<(String, String)>,
    /// A directory below the workspace that is removed before each round.
    fresh: Option<&'static str>,
    /// The most that the issue of the jail allows.
    bound: f64,
}

const ROUNDS: usize = 20;
/// Student's t for 19 degrees of freedom, both sides of 95 %.
const T: f64 = 2.093;

fn outside(work: &Work<'_>, dir: &Path, home: &Path) -> Duration {
    let before = cpu();
    let ended = Command::new(work.argv[0])
        .args(&work.argv[1..])
        .current_dir(dir)
        .env_clear()
        .envs(work.env.iter().map(|(k, v)| (k.as_str(), v.as_str())))
        .env("HOME", home)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .output()
        .unwrap_or_else(|e| panic!("{}: {e}", work.name));
    assert!(ended.status.success(), "{} outside: {}", work.name, String::from_utf8_lossy(&ended.stderr));
    cpu() - before
}

fn measure(work: &Work<'_>, task: &Task, repo: &Path, home: &Path) -> Value {
    let fresh = |dir: &Path| {
        if let Some(name) = work.fresh {
            drop(std::fs::remove_dir_all(dir.join(name)));
        }
    };
    let mut told = 0;
    let mut inside = || {
        fresh(&task.tree());
        let before = cpu();
        told = task.start(work.argv, &work.env).finish(work.name);
        cpu() - before
    };
    let plain = || {
        fresh(repo);
        outside(work, repo, home)
    };
    inside();
    plain();
    let mut pairs = Vec::new();
    for round in 0..ROUNDS {
        let (i, o) = if round % 2 == 0 {
            let i = inside();
            (i, plain())
        } else {
            let o = plain();
            (inside(), o)
        };
        pairs.push((i.as_secs_f64(), o.as_secs_f64()));
    }
    #[expect(clippy::cast_precision_loss, reason = "twenty")]
    let n = ROUNDS as f64;
    let logs: Vec<f64> = pairs.iter().map(|(i, o)| (i / o).ln()).collect();
    let mean = logs.iter().sum::<f64>() / n;
    let deviation = (logs.iter().map(|l| (l - mean).powi(2)).sum::<f64>() / (n - 1.0)).sqrt();
    let half = T * deviation / n.sqrt();
    let (low, ratio, high) = ((mean - half).exp(), mean.exp(), (mean + half).exp());
    let verdict = match () {
        () if high - low > 0.05 && work.bound < 1.1 => "not resolved: the interval is wider than 0.05",
        () if high <= work.bound => "within",
        () if low > work.bound => "over",
        () => "the interval holds the bound",
    };
    let seconds = pairs.iter().map(|p| p.1).sum::<f64>() / n;
    println!(
        "  {:<28} {seconds:>8.2} s {ratio:>8.3} × [{low:.3}, {high:.3}] {told:>8} told   at most {:.2}: {verdict}",
        work.name, work.bound
    );
    json!({ "work": work.name, "pairs": pairs, "ratio": ratio, "interval": [low, high], "told": told, "bound": work.bound })
}

fn copy(from: &Path, to: &Path) {
    let ended = Command::new("cp").args(["-r", "--reflink=auto"]).arg(from).arg(to).status().expect("cp runs");
    assert!(ended.success(), "copying {} to {}", from.display(), to.display());
}

pub(crate) fn table(person: &Sandbox, material: &Material) -> Value {
    println!("\nCPU time inside against outside (user and system, with all watching), {ROUNDS} pairs, 95 % interval");
    println!("  {:<28} {:>10} {:>10}", "", "outside", "ratio");
    let toolchain = material.toolchain.display().to_string();
    let path = format!("{toolchain}/bin:/usr/local/bin:/usr/bin:/bin");
    let env = |more: &[(&str, String)]| -> Vec<(String, String)> {
        let usual = [("PATH", path.clone()), ("LANG", "C.UTF-8".into())];
        usual.iter().chain(more).map(|(k, v)| ((*k).to_owned(), v.clone())).collect()
    };
    let mut rows = Vec::new();

    let cargo = person.small_repo_at(person.projects().join("cargo"));
    for name in ["Cargo.toml", "Cargo.lock", "src", "vendor", ".cargo"] {
        copy(&material.cargo.join(name), &cargo.path.join(name));
    }
    cargo.write(".gitignore", "target\n");
    cargo.commit("a program with its packages");
    let mut task = Task::new(person, &cargo.path);
    task.grants.read.push(material.toolchain.clone());
    let work = Work {
        name: "cargo check",
        argv: &["cargo", "check", "--offline", "--quiet"],
        env: env(&[("CARGO_HOME", "/tmp/airlock-bench-cargo-home".into())]),
        fresh: Some("target"),
        bound: 1.05,
    };
    rows.push(measure(&work, &task, &cargo.path, &person.home()));

    let npm = person.small_repo_at(person.projects().join("npm"));
    for name in ["package.json", "package-lock.json"] {
        copy(&material.npm.join(name), &npm.path.join(name));
    }
    npm.write(".gitignore", "node_modules\n");
    npm.commit("a lock file");
    let mut task = Task::new(person, &npm.path);
    task.grants.read.push(material.npm_cache.clone());
    let work = Work {
        name: "npm ci, from a cache",
        // Its cache is only to be read in a jail, so each round has a copy of its own, inside as outside.
        argv: &[
            "sh",
            "-c",
            "rm -rf c && cp -r \"$SEED\" c && exec npm ci --offline --ignore-scripts --no-audit --no-fund --cache c --loglevel error",
        ],
        env: env(&[("SEED", material.npm_cache.display().to_string())]),
        fresh: Some("node_modules"),
        bound: 1.05,
    };
    rows.push(measure(&work, &task, &npm.path, &person.home()));

    let wide = person.small_repo_at(person.projects().join("wide"));
    for dir in 0..500 {
        for file in 0..100 {
            wide.write(format!("d{dir:03}/f{file:02}"), format!("{dir} {file}\n"));
        }
    }
    wide.commit("fifty thousand files");
    let task = Task::new(person, &wide.path);
    let work =
        Work { name: "git status, 50,000 files", argv: &["git", "status", "--short"], env: env(&[]), fresh: None, bound: 1.25 };
    rows.push(measure(&work, &task, &wide.path, &person.home()));
    json!({ "title": "CPU time inside against outside", "rows": rows })
}
