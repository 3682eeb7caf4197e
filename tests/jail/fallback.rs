//! The jail without namespaces: what it keeps, by what it says it keeps. Only an ordinary user can have it.

mod counted;
mod ends;
mod flows;
mod reach;
mod whole;

use crate::room::{Room, Running, Went};
use jail_plan::Plan;
use std::fs::File;
use std::net::TcpListener;
use std::os::fd::OwnedFd;
use std::sync::Arc;
use supervise::SpawnError;
use supervise::broker::{Flows, Reach, WayOut, roots};
use supervise::compose;
use supervise::notify::Notify;
use supervise::who::{JailRef, Who};
use testkit::{not_tested_here, program};

/// Whether this column can have such a jail; says so where not.
pub(crate) fn here() -> bool {
    if nix::unistd::geteuid().is_root() {
        not_tested_here("an ordinary user's jail without namespaces");
        return false;
    }
    true
}

/// Whether this kernel's Landlock keeps signals in (Linux 6.12); says so where not.
pub(crate) fn signals_stay_in() -> bool {
    let there = scoped();
    if !there {
        not_tested_here("Landlock that keeps signals in");
    }
    there
}

/// The same without a word.
pub(crate) fn scoped() -> bool {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    let mut numbers = release.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse::<u32>().ok());
    (numbers.next(), numbers.next()) >= (Some(6), Some(12))
}

/// Whatever is lost is accepted.
fn accept_all(plan: &mut Plan) {
    plan.require.clear();
    plan.fallback.iter_mut().for_each(|f| f.partly.clear());
}

/// A jail without namespaces with everything that serves it.
pub(crate) struct Bare {
    pub(crate) running: Running,
    /// Where its connections arrive, and what they were meant to be.
    pub(crate) inlet: TcpListener,
    pub(crate) flows: Arc<Flows>,
}

impl Room {
    pub(crate) fn bare_plan(&self, argv: &[&str]) -> Plan {
        let spec = self.spec(argv);
        supervise::prepare(&spec).expect("its places can be made");
        let mut plan = compose::agent_without_namespaces(&spec, &self.grants).unwrap_or_else(|e| panic!("no plan: {e}"));
        // A kernel before 6.12 loses more, which the tests that can stand it accept.
        if !scoped() {
            accept_all(&mut plan);
        }
        plan
    }

    /// Starts a command without namespaces and serves its jail, as the warden does.
    pub(crate) fn start_bare(&self, plan: &Plan) -> Result<Bare, SpawnError> {
        let stdin = File::open("/dev/null").expect("/dev/null can be opened");
        let (out, inner_out) = std::io::pipe().expect("a pipe can be made");
        let (err, inner_err) = std::io::pipe().expect("a pipe can be made");
        let streams: [OwnedFd; 3] = [stdin.into(), inner_out.into(), inner_err.into()];
        let mut jail = supervise::spawn(plan, &program("airlock-jail"), Some(streams))?;
        let init_pid = u32::try_from(jail.pid).expect("a pid is positive");
        let who = Who::new(JailRef { init_pid, ..JailRef::default() }).expect("the guard can be looked at");
        let inlet = TcpListener::bind("127.0.0.1:0").expect("loopback");
        let way_out = self.grants.network.then(|| WayOut { v4: inlet.local_addr().expect("bound"), v6: None });
        let listener = jail.notify.take().expect("a jail without namespaces has a listener");
        let reach = Reach { roots: roots(plan), way_out };
        let notify = Notify::serve_making(listener, who, reach, |_| ()).expect("its calls are made");
        let flows = notify.flows().expect("a broker makes connections");
        jail.go().expect("the jail hears");
        Ok(Bare { running: Running::of(jail, Some(out), Some(err), Some(notify)), inlet, flows })
    }

    /// Runs a shell script without namespaces to its end.
    pub(crate) fn bare_sh(&self, script: &str) -> Went {
        let plan = self.bare_plan(&["/bin/sh", "-c", script]);
        self.start_bare(&plan).unwrap_or_else(|e| panic!("{script} did not start: {e}")).running.finish()
    }
}
