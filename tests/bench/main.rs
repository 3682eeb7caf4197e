//! Side by side with peers, in one run, as the same user: `bench --out FILE [--rounds N] [--only TABLE] [--MATERIAL PATH]…`.
//!
//! Every figure is a series of raw samples (nanoseconds), taken in turns so that all sides see the same machine; the table
//! shows median, least and 99th percentile, and ratios of medians beside what they may be at most. Whether a bound is
//! kept is said and not asserted; what could not be measured is a failed row, and the exit code says that there was one.
//!
//! Each table is a process of its own: one that ends too early takes no other with it, and its person is tidied up after it.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for the terminal that ends where it can't measure"
)]

mod carry;
mod connect;
mod cpu;
mod crowd;
mod fleet;
mod jail;
mod kill;
mod read;
mod side;
mod start;
mod steady;

use crate::side::{Measured, Table};
use serde_json::Value;
use std::collections::HashMap;
use std::path::PathBuf;
use std::process::{Command, ExitCode};
use testkit::Sandbox;

const TABLES: [&str; 9] = ["start", "kill", "fleet", "connect", "crowd", "carry", "read", "steady", "cpu"];

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let (mut out, mut rounds, mut only, mut person, mut material) = (None, None, None, None, HashMap::new());
    while let Some(word) = words.next() {
        let mut value = || words.next().unwrap_or_else(|| panic!("{word} needs a value"));
        match word.as_str() {
            "client" | "pull" | "crowd" | "idle" | "read" | "steady" => {
                let client = match word.as_str() {
                    "client" => connect::client,
                    "pull" => carry::client,
                    "crowd" => crowd::client,
                    "idle" => crowd::idle,
                    "steady" => steady::client,
                    _ => read::client,
                };
                client(&value(), &value());
                return ExitCode::SUCCESS;
            }
            "--out" => out = Some(PathBuf::from(value())),
            "--rounds" => rounds = Some(value().parse().expect("a number of rounds")),
            "--only" => only = Some(value()),
            "--person" => person = Some(PathBuf::from(value())),
            "--srt" | "--codex" | "--cargo" | "--toolchain" | "--npm" | "--npm-cache" => {
                material.insert(word[2..].to_owned(), PathBuf::from(value()));
            }
            _ => panic!("usage: bench --out FILE [--rounds N] [--only {}] [--MATERIAL PATH]…", TABLES.join("|")),
        }
    }
    if let (Some(only), Some(person)) = (&only, person) {
        let table = table(only, &Sandbox::of(person), rounds, &material);
        let out = out.expect("a table is written somewhere");
        std::fs::write(&out, table.raw.to_string()).unwrap_or_else(|e| panic!("{}: {e}", out.display()));
        return if table.whole { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    println!("as uid {}, programs of {}", nix::unistd::getuid(), testkit::program::profile_dir().display());
    let wanted: Vec<&str> = TABLES.into_iter().filter(|t| only.as_deref().is_none_or(|o| o == *t)).collect();
    assert!(!wanted.is_empty(), "no table is called so; there are {}", TABLES.join(", "));
    let tables: Vec<Measured<(Value, bool)>> = wanted.iter().map(|table| apart(table)).collect();
    let raw: Vec<&Value> = tables.iter().flatten().map(|(raw, _)| raw).collect();
    if let Some(out) = out {
        std::fs::write(&out, serde_json::to_vec_pretty(&raw).expect("JSON")).unwrap_or_else(|e| panic!("{}: {e}", out.display()));
    }
    let failed: Vec<String> = wanted
        .iter()
        .zip(&tables)
        .filter_map(|(name, table)| match table {
            Ok((_, true)) => None,
            Ok((_, false)) => Some(format!("{name}: a row failed")),
            Err(why) => Some(format!("{name}: {why}")),
        })
        .collect();
    for line in &failed {
        println!("\nFAILED {line}");
    }
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// One table by a process of its own, for a person of its own; answers with what it wrote and whether no row failed.
fn apart(name: &str) -> Measured<(Value, bool)> {
    // codex puts its helpers into a home, but into none below a directory for temporary files.
    let home = std::env::var_os("HOME").map(PathBuf::from).ok_or("there is no HOME to make a person's home in")?;
    let person = Sandbox::below(&home);
    let out = person.root().join("table.json");
    let me = std::env::current_exe().map_err(|e| format!("this program has no path: {e}"))?;
    let mut command = Command::new(me);
    // Of two words the last one counts.
    command.args(std::env::args_os().skip(1)).args(["--only", name, "--person"]).arg(person.root()).arg("--out").arg(&out);
    let ended = command.status().map_err(|e| e.to_string())?;
    let text = std::fs::read(&out).map_err(|_| format!("it ended with {ended} before it was printed"))?;
    Ok((serde_json::from_slice(&text).map_err(|e| e.to_string())?, ended.success()))
}

fn table(name: &str, person: &Sandbox, rounds: Option<usize>, material: &HashMap<String, PathBuf>) -> Table {
    let need = |name: &str| material.get(name).map(PathBuf::as_path).ok_or_else(|| format!("it needs --{name} PATH"));
    match name {
        "start" => start::table(person, &need, rounds.unwrap_or(200)),
        "kill" => kill::table(person, rounds.unwrap_or(20)),
        "fleet" => fleet::table(person),
        "connect" => connect::table(person, rounds.unwrap_or(200)),
        "crowd" => crowd::table(person, rounds.unwrap_or(20)),
        "carry" => carry::table(person, rounds.unwrap_or(10)),
        "read" => read::table(person, rounds.unwrap_or(10)),
        "steady" => steady::table(person),
        "cpu" => cpu::table(person, &need),
        _ => panic!("{name} is no table"),
    }
}
