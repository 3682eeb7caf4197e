//! Side by side with peers, in one run, as the same user: `bench --out FILE [--rounds N] [--only TABLE] [--MATERIAL PATH]…`.
//!
//! Every figure is a series of raw samples (nanoseconds), taken in turns so that all sides see the same machine; the table
//! shows median, least and 99th percentile, and ratios of medians. Nothing here is asserted.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for the terminal that ends where it can't measure"
)]

mod connect;
mod cpu;
mod fleet;
mod jail;
mod kill;
mod start;

use serde_json::{Value, json};
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

/// One side of a comparison.
struct Side<'a> {
    name: &'static str,
    once: Box<dyn FnMut() -> Duration + 'a>,
    samples: Vec<Duration>,
}

impl<'a> Side<'a> {
    fn new(name: &'static str, once: impl FnMut() -> Duration + 'a) -> Self {
        Self { name, once: Box::new(once), samples: Vec::new() }
    }

    fn at(&self, part: f64) -> Duration {
        let mut sorted = self.samples.clone();
        sorted.sort();
        let last = sorted.len() - 1;
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "an index below the length"
        )]
        sorted[((last as f64) * part).ceil() as usize]
    }
}

/// Takes `rounds` samples of each side, in turns, after a warm-up; prints the table.
fn compare(title: &str, rounds: usize, sides: &mut [Side<'_>]) -> Value {
    for side in &mut *sides {
        for _ in 0..3 {
            (side.once)();
        }
    }
    for round in 0..rounds {
        // Each round begins with another side, so that none always follows the same one.
        for i in 0..sides.len() {
            let side = &mut sides[(i + round) % sides.len()];
            let sample = (side.once)();
            side.samples.push(sample);
        }
    }
    let base = sides[0].at(0.5).as_secs_f64();
    println!("\n{title}, {rounds} rounds\n  {:<50} {:>11} {:>11} {:>11}  of the first", "", "median", "least", "p99");
    for side in &*sides {
        let ms = |d: Duration| format!("{:.3} ms", d.as_secs_f64() * 1e3);
        let ratio = side.at(0.5).as_secs_f64() / base;
        println!("  {:<50} {:>11} {:>11} {:>11}  {ratio:.2} ×", side.name, ms(side.at(0.5)), ms(side.at(0.0)), ms(side.at(0.99)));
    }
    let raw =
        |s: &Side<'_>| json!({ "name": s.name, "ns": s.samples.iter().map(|d| d.as_nanos().to_string()).collect::<Vec<_>>() });
    json!({ "title": title, "sides": sides.iter().map(raw).collect::<Vec<_>>() })
}

fn main() {
    let mut words = std::env::args().skip(1);
    let (mut out, mut rounds, mut only, mut material) = (None, 200, None, HashMap::new());
    while let Some(word) = words.next() {
        let mut value = || words.next().unwrap_or_else(|| panic!("{word} needs a value"));
        match word.as_str() {
            "client" => return connect::client(&value(), &value()),
            "--out" => out = Some(PathBuf::from(value())),
            "--rounds" => rounds = value().parse().expect("a number of rounds"),
            "--only" => only = Some(value()),
            "--srt" | "--codex" | "--cargo" | "--toolchain" | "--npm" | "--npm-cache" => {
                material.insert(word[2..].to_owned(), PathBuf::from(value()));
            }
            _ => panic!("usage: bench --out FILE [--rounds N] [--only start|connect|cpu|kill|fleet] [--MATERIAL PATH]…"),
        }
    }
    let path = |name: &str| material.get(name).cloned();
    let peers = path("srt").zip(path("codex")).map(|(srt, codex)| start::Peers { srt, codex });
    let work = || {
        Some(cpu::Material {
            cargo: path("cargo")?,
            toolchain: path("toolchain")?,
            npm: path("npm")?,
            npm_cache: path("npm-cache")?,
        })
    };
    let person = testkit::Sandbox::new();
    println!("as uid {}, programs of {}", nix::unistd::getuid(), testkit::program::profile_dir().display());
    let wanted = |name: &str| only.as_deref().is_none_or(|o| o == name);
    let mut tables = Vec::new();
    if wanted("start") {
        tables.push(start::table(&person, peers.as_ref(), rounds));
    }
    if wanted("kill") {
        tables.push(kill::table(&person));
    }
    if wanted("fleet") {
        tables.push(fleet::table(&person));
    }
    if wanted("connect") {
        tables.push(connect::table(&person, rounds));
    }
    if wanted("cpu") {
        match work() {
            Some(material) => tables.push(cpu::table(&person, &material)),
            None => println!("\nCPU time inside was not measured: it needs --cargo, --toolchain, --npm and --npm-cache"),
        }
    }
    if let Some(out) = out {
        std::fs::write(&out, serde_json::to_vec_pretty(&tables).expect("JSON"))
            .unwrap_or_else(|e| panic!("{}: {e}", out.display()));
    }
}
