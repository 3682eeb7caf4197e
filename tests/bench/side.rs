//! The sides of a comparison, sampled in turns, and the table of them.

use serde_json::{Value, json};
use std::time::Duration;

/// What was measured, or why it could not be.
pub(crate) type Measured<T = Duration> = Result<T, String>;

/// One side of a comparison.
pub(crate) struct Side<'a> {
    name: &'static str,
    once: Box<dyn FnMut() -> Measured + 'a>,
    samples: Vec<Duration>,
    /// Why it was measured no more.
    failed: Option<String>,
    /// The most that its median may be, as parts of another side's.
    at_most: Vec<(f64, &'static str)>,
}

impl<'a> Side<'a> {
    pub(crate) fn new(name: &'static str, once: impl FnMut() -> Measured + 'a) -> Self {
        Self { name, once: Box::new(once), samples: Vec::new(), failed: None, at_most: Vec::new() }
    }

    pub(crate) fn at_most(mut self, part: f64, of: &'static str) -> Self {
        self.at_most.push((part, of));
        self
    }

    /// One sample; after a failure there are no more, since a second one would tell nothing new.
    fn sample(&mut self) -> Option<Duration> {
        if self.failed.is_some() {
            return None;
        }
        (self.once)().map_err(|why| self.failed = Some(why)).ok()
    }

    /// The sample at a part of all, the least first.
    fn at(&self, part: f64) -> Option<Duration> {
        let mut sorted = self.samples.clone();
        sorted.sort();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "an index below the length"
        )]
        let index = (sorted.len().checked_sub(1)? as f64 * part).ceil() as usize;
        sorted.get(index).copied().filter(|_| self.failed.is_none())
    }

    /// How many times its median is another's.
    fn times(&self, other: &Self) -> Option<f64> {
        Some(self.at(0.5)?.as_secs_f64() / other.at(0.5)?.as_secs_f64())
    }
}

/// Takes `rounds` samples of each side, in turns, after a warm-up; prints the table.
pub(crate) fn compare(title: &str, rounds: usize, sides: &mut [Side<'_>]) -> Table {
    for side in &mut *sides {
        for _ in 0..3 {
            side.sample();
        }
    }
    for round in 0..rounds {
        // Each round begins with another side, so that none always follows the same one.
        for i in 0..sides.len() {
            let side = &mut sides[(i + round) % sides.len()];
            let sample = side.sample();
            side.samples.extend(sample);
        }
    }
    let load = load();
    println!(
        "\n{title}, {rounds} rounds, load {load}\n  {:<50} {:>11} {:>11} {:>11}  of the first",
        "", "median", "least", "p99"
    );
    let ms = |d: Option<Duration>| d.map_or("-".into(), |d| format!("{:.3} ms", d.as_secs_f64() * 1e3));
    let ratio = |r: Option<f64>| r.map_or("-".into(), |r| format!("{r:.2} ×"));
    for side in &*sides {
        match &side.failed {
            None => println!(
                "  {:<50} {:>11} {:>11} {:>11}  {}",
                side.name,
                ms(side.at(0.5)),
                ms(side.at(0.0)),
                ms(side.at(0.99)),
                ratio(side.times(&sides[0]))
            ),
            Some(why) => println!("  {:<50} FAILED after {} samples: {why}", side.name, side.samples.len()),
        }
    }
    for side in &*sides {
        for (bound, of) in &side.at_most {
            let times = sides.iter().find(|s| s.name == *of).and_then(|other| side.times(other));
            let verdict = times.map_or("not measured", |t| if t <= *bound { "within" } else { "over" });
            println!(
                "  {}: {} of {of}, at most {bound:.2}: {verdict}",
                side.name,
                times.map_or("-".into(), |t| format!("{t:.3}"))
            );
        }
    }
    let raw = |s: &Side<'_>| json!({ "name": s.name, "ns": s.samples.iter().map(|d| d.as_nanos().to_string()).collect::<Vec<_>>(), "failed": s.failed });
    Table {
        whole: sides.iter().all(|s| s.failed.is_none()),
        raw: json!({ "title": title, "load": load, "sides": sides.iter().map(raw).collect::<Vec<_>>() }),
    }
}

/// The machine's load now: whatever else runs is part of every figure.
pub(crate) fn load() -> String {
    let text = std::fs::read_to_string("/proc/loadavg").unwrap_or_default();
    text.split(' ').take(3).collect::<Vec<_>>().join(" ")
}

/// A table that was printed.
pub(crate) struct Table {
    pub(crate) raw: Value,
    /// No row failed.
    pub(crate) whole: bool,
}
