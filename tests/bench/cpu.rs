//! What a jail costs the work inside: CPU time of the same command outside and inside, in pairs, with a 95 % interval.

use crate::jail::{Task, cpu};
use crate::side::{Measured, Table, load};
use serde_json::{Value, json};
use std::path::Path;
use std::process::{Command, Stdio};
use testkit::Sandbox;

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

fn outside(work: &Work<'_>, dir: &Path, home: &Path) -> Measured {
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
        .map_err(|e| format!("outside: {e}"))?;
    if !ended.status.success() {
        return Err(format!("outside: {}; it said: {}", ended.status, String::from_utf8_lossy(&ended.stderr).trim()));
    }
    Ok(cpu() - before)
}

fn measure(work: &Work<'_>, task: &Task, repo: &Path, home: &Path) -> Measured<Value> {
    let fresh = |dir: &Path| {
        if let Some(name) = work.fresh {
            drop(std::fs::remove_dir_all(dir.join(name)));
        }
    };
    let mut told = 0;
    let mut inside = || -> Measured {
        fresh(&task.tree());
        let before = cpu();
        told = task.start(work.argv, &work.env)?.finish()?;
        Ok(cpu() - before)
    };
    let plain = || {
        fresh(repo);
        outside(work, repo, home)
    };
    inside()?;
    plain()?;
    let mut pairs = Vec::new();
    for round in 0..ROUNDS {
        let (i, o) = if round % 2 == 0 {
            let i = inside()?;
            (i, plain()?)
        } else {
            let o = plain()?;
            (inside()?, o)
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
    let load = load();
    let seconds = pairs.iter().map(|p| p.1).sum::<f64>() / n;
    println!(
        "  {:<28} {seconds:>8.2} s {ratio:>8.3} × [{low:.3}, {high:.3}] {told:>8} told   at most {:.2}: {verdict} (load {load})",
        work.name, work.bound
    );
    Ok(json!({
        "work": work.name, "load": load, "pairs": pairs, "ratio": ratio, "interval": [low, high], "told": told, "bound": work.bound
    }))
}

fn copy(from: &Path, to: &Path) {
    let ended = Command::new("cp").args(["-r", "--reflink=auto"]).arg(from).arg(to).status().expect("cp runs");
    assert!(ended.success(), "copying {} to {}", from.display(), to.display());
}

/// `path` says where the programs and packages are that the workloads need: `cargo` is a crate with its packages (`vendor`),
/// `toolchain` the sysroot of a Rust toolchain, `npm` a lock file, `npm-cache` npm's cache with all of it.
pub(crate) fn table<'a>(person: &Sandbox, path: &dyn Fn(&str) -> Measured<&'a Path>) -> Table {
    println!("\nCPU time inside against outside (user and system, with all watching), {ROUNDS} pairs, 95 % interval");
    println!("  {:<28} {:>10} {:>10}", "", "outside", "ratio");
    let rows: [(&str, Measured<Value>); 3] =
        [(CARGO, check(person, path)), (NPM, install(person, path)), (STATUS, status(person))];
    for (name, row) in &rows {
        if let Err(why) = row {
            println!("  {name:<28} FAILED: {why}");
        }
    }
    let whole = rows.iter().all(|(_, row)| row.is_ok());
    let rows: Vec<Value> = rows.into_iter().filter_map(|(_, row)| row.ok()).collect();
    Table { raw: json!({ "title": "CPU time inside against outside", "rows": rows }), whole }
}

const CARGO: &str = "cargo check";
const NPM: &str = "npm ci, from a cache";
const STATUS: &str = "git status, 50,000 files";

fn env(more: &[(&str, String)], path: &str) -> Vec<(String, String)> {
    let usual = [("PATH", path.to_owned()), ("LANG", "C.UTF-8".into())];
    usual.iter().chain(more).map(|(k, v)| ((*k).to_owned(), v.clone())).collect()
}

const SYSTEM_PATH: &str = "/usr/local/bin:/usr/bin:/bin";

fn check<'a>(person: &Sandbox, path: &dyn Fn(&str) -> Measured<&'a Path>) -> Measured<Value> {
    let (packages, toolchain) = (path("cargo")?, path("toolchain")?);
    let cargo = person.small_repo_at(person.projects().join("cargo"));
    for name in ["Cargo.toml", "Cargo.lock", "src", "vendor", ".cargo"] {
        copy(&packages.join(name), &cargo.path.join(name));
    }
    cargo.write(".gitignore", "target\n");
    // Packages bring lists of what is ignored, which name files of their own.
    cargo.git(["add", "--force", "vendor"]);
    cargo.commit("a program with its packages");
    let mut task = Task::new(person, &cargo.path);
    task.grants.read.push(toolchain.to_owned());
    let work = Work {
        name: CARGO,
        argv: &["cargo", "check", "--offline", "--quiet"],
        env: env(
            &[("CARGO_HOME", "/tmp/airlock-bench-cargo-home".into())],
            &format!("{}/bin:{SYSTEM_PATH}", toolchain.display()),
        ),
        fresh: Some("target"),
        bound: 1.05,
    };
    measure(&work, &task, &cargo.path, &person.home())
}

fn install<'a>(person: &Sandbox, path: &dyn Fn(&str) -> Measured<&'a Path>) -> Measured<Value> {
    let (packages, cache) = (path("npm")?, path("npm-cache")?);
    let npm = person.small_repo_at(person.projects().join("npm"));
    for name in ["package.json", "package-lock.json"] {
        copy(&packages.join(name), &npm.path.join(name));
    }
    npm.write(".gitignore", "node_modules\n");
    npm.commit("a lock file");
    let mut task = Task::new(person, &npm.path);
    task.grants.read.push(cache.to_owned());
    let work = Work {
        name: NPM,
        // Its cache is only to be read in a jail, so each round has a copy of its own, inside as outside.
        argv: &[
            "sh",
            "-c",
            "rm -rf c && cp -r \"$SEED\" c && exec npm ci --offline --ignore-scripts --no-audit --no-fund --cache c --loglevel error",
        ],
        env: env(&[("SEED", cache.display().to_string())], SYSTEM_PATH),
        fresh: Some("node_modules"),
        bound: 1.05,
    };
    measure(&work, &task, &npm.path, &person.home())
}

fn status(person: &Sandbox) -> Measured<Value> {
    let wide = person.small_repo_at(person.projects().join("wide"));
    for dir in 0..500 {
        for file in 0..100 {
            wide.write(format!("d{dir:03}/f{file:02}"), format!("{dir} {file}\n"));
        }
    }
    wide.commit("fifty thousand files");
    let task = Task::new(person, &wide.path);
    let work = Work { name: STATUS, argv: &["git", "status", "--short"], env: env(&[], SYSTEM_PATH), fresh: None, bound: 1.25 };
    measure(&work, &task, &wide.path, &person.home())
}
