//! A scope of a service manager's, asked for over D-Bus.

use super::{Together, of_process};
use std::path::PathBuf;
use std::time::{Duration, Instant};
use zbus::connection::Builder;
use zbus::zvariant::Value;

/// A manager that takes longer is taken for none: the run starts without.
const ANSWER: Duration = Duration::from_secs(3);

/// Which manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Whose {
    /// The person's own.
    User,
    /// The machine's.
    System,
}

/// Starts a scope around a process and waits until it is inside; its path from the root of the hierarchy.
pub(super) fn scope(whose: Whose, pid: u32, limits: &Together) -> Result<PathBuf, String> {
    let unit = format!("airlock-{:016x}.scope", u64::from_le_bytes(sys::random::bytes()));
    // On a thread of its own: the caller's may belong to a runtime, which can't run another.
    let asked = std::thread::scope(|s| s.spawn(|| ask(whose, &unit, pid, limits)).join());
    asked.map_err(|_| "asking the service manager failed")??;
    let until = Instant::now() + ANSWER;
    loop {
        match of_process(&pid.to_string()) {
            Some(path) if path.ends_with(&unit) => return Ok(path),
            _ if Instant::now() > until => return Err(format!("the service manager did not put the jail into {unit}")),
            _ => std::thread::sleep(Duration::from_millis(1)),
        }
    }
}

fn ask(whose: Whose, unit: &str, pid: u32, limits: &Together) -> Result<(), String> {
    let no = |e: &dyn std::fmt::Display| {
        let manager = if whose == Whose::User { "your service manager (systemd --user)" } else { "the system's service manager" };
        format!("{manager} gives no cgroup: {e}")
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(|e| no(&e))?;
    runtime.block_on(async {
        let bus = if whose == Whose::User { Builder::session() } else { Builder::system() };
        let connect = bus.map_err(|e| no(&e))?.method_timeout(ANSWER).build();
        let bus = tokio::time::timeout(ANSWER, connect).await.map_err(|e| no(&e))?.map_err(|e| no(&e))?;
        // Before version 253 scopes knew no policy for memory, and did nothing at its end, which is what is wanted.
        let mut last = String::new();
        for with_policy in [true, false] {
            let body = (unit, "fail", properties(pid, limits, with_policy), Vec::<(&str, Vec<(&str, Value<'_>)>)>::new());
            let manager = ("org.freedesktop.systemd1", "/org/freedesktop/systemd1", "org.freedesktop.systemd1.Manager");
            match bus.call_method(Some(manager.0), manager.1, Some(manager.2), "StartTransientUnit", &body).await {
                Ok(_) => return Ok(()),
                Err(e) => last = no(&e),
            }
        }
        Err(last)
    })
}

fn properties(pid: u32, limits: &Together, with_policy: bool) -> Vec<(&'static str, Value<'static>)> {
    let mut all = vec![
        ("Description", Value::from("a jail of Airlock's")),
        ("Slice", Value::from("airlock.slice")),
        ("PIDs", Value::from(vec![pid])),
        ("Delegate", Value::from(true)),
        ("CollectMode", Value::from("inactive-or-failed")),
        ("MemoryMax", Value::from(limits.memory)),
        ("MemorySwapMax", Value::from(0u64)),
        ("TasksMax", Value::from(limits.tasks())),
        ("CPUQuotaPerSecUSec", Value::from(limits.cpus.saturating_mul(1_000_000))),
    ];
    if with_policy {
        // One process ends for memory, as without a manager; not the whole run.
        all.push(("OOMPolicy", Value::from("continue")));
    }
    all
}
