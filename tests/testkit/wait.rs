//! Bounded waits, and what this machine can't test.

use std::time::{Duration, Instant};

/// A limit on a wait, as long as this machine needs it: `AIRLOCK_TEST_PATIENCE` is by how much it is slower than others.
pub fn patiently(limit: Duration) -> Duration {
    let times = std::env::var("AIRLOCK_TEST_PATIENCE").ok().and_then(|n| n.parse().ok()).unwrap_or(1);
    limit.saturating_mul(times)
}

/// Asks again and again until there is an answer; ends the test after `limit` with what was waited for.
pub fn eventually<T>(what: &str, limit: Duration, mut ask: impl FnMut() -> Option<T>) -> T {
    let limit = patiently(limit);
    let start = Instant::now();
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(start.elapsed() < limit, "waited {limit:?} in vain for this: {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Says that this machine lacks a feature that a test needs; the runner counts it and compares it with `tests/absent.toml`.
pub fn not_tested_here(feature: &str) {
    println!("not tested here: {feature}");
}

/// Which user the tests run as, as the runner's table names it.
pub fn column() -> &'static str {
    if nix::unistd::Uid::effective().is_root() { "root" } else { "user" }
}
