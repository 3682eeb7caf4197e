//! Keepers: jails without network or home for whatever must read or write a workspace's files.

use crate::broker::{Reach, roots};
use crate::notify::Notify;
use crate::tier::{Stood, stand};
use crate::who::{JailRef, Who};
use crate::{Ended, Jail, SpawnError, compose};
use jail_plan::Plan;
use model::keeper::{Job, Keeper, KeeperError, Running};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{PipeReader, Read};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

/// How much of a keeper's stderr is kept: the end, where the reason is.
const TAIL: usize = 16 << 10;

/// Starts keepers as jails.
#[derive(Debug, Clone)]
pub struct JailKeeper {
    /// The program `airlock-jail`.
    pub jail_program: PathBuf,
    /// The program `airlock-warden`, which a keeper runs as `airlock-warden keeper …`.
    pub warden_program: PathBuf,
    /// Whether one without namespaces will do, where the machine gives none.
    pub fallback: bool,
}

/// A keeper's jail. Dropping it kills it.
struct KeeperJail {
    jail: Arc<Jail>,
    stdout: Option<PipeReader>,
    stderr: Arc<Mutex<VecDeque<u8>>>,
    reader: Option<JoinHandle<()>>,
    limit: Duration,
    overdue: Arc<AtomicBool>,
    /// Closing it tells the clock that there is nothing to end any more.
    done: Option<Sender<()>>,
    /// Makes its calls, where it has no namespaces. Dropped after its end.
    _calls: Option<Notify>,
}

impl Keeper for JailKeeper {
    fn start(&self, job: Job) -> Result<Box<dyn Running>, KeeperError> {
        let plan = compose::keeper(&job, &self.warden_program);
        let failed = |e: std::io::Error| KeeperError::Failed(e.to_string());
        let stdin = File::open("/dev/null").map_err(failed)?;
        let (stdout, jail_stdout) = std::io::pipe().map_err(failed)?;
        let (errors, jail_stderr) = std::io::pipe().map_err(failed)?;
        let streams: [OwnedFd; 3] = [stdin.into(), jail_stdout.into(), jail_stderr.into()];
        let weaker = self.fallback.then_some(|| Ok(compose::keeper_without_namespaces(&job, &self.warden_program)));
        let Stood { mut jail, plan } = stand(plan, weaker, &self.jail_program, Some(streams), None).map_err(refused)?;
        let calls = calls(&mut jail, &plan).map_err(failed)?;
        let jail = Arc::new(jail);
        let stderr = Arc::new(Mutex::new(VecDeque::new()));
        let reader = {
            let stderr = Arc::clone(&stderr);
            std::thread::spawn(move || keep_tail(errors, &stderr))
        };
        let overdue = Arc::new(AtomicBool::new(false));
        let (done, ended) = channel::<()>();
        {
            let (jail, overdue, limit) = (Arc::clone(&jail), Arc::clone(&overdue), job.time_limit);
            std::thread::spawn(move || {
                if ended.recv_timeout(limit) == Err(RecvTimeoutError::Timeout) {
                    overdue.store(true, Ordering::SeqCst);
                    jail.kill();
                }
            });
        }
        jail.go().map_err(failed)?;
        let (stdout, done) = (Some(stdout), Some(done));
        Ok(Box::new(KeeperJail {
            jail,
            stdout,
            stderr,
            reader: Some(reader),
            limit: job.time_limit,
            overdue,
            done,
            _calls: calls,
        }))
    }
}

impl Running for KeeperJail {
    fn stdout(&mut self) -> Option<Box<dyn Read + Send>> {
        self.stdout.take().map(|pipe| Box::new(pipe) as _)
    }

    fn wait(&mut self) -> Result<(i32, String), KeeperError> {
        // Nobody will read it any more; a keeper that still writes gets a broken pipe and not a full one.
        self.stdout = None;
        let ended = self.jail.wait().map_err(refused);
        self.done = None;
        if let Some(reader) = self.reader.take() {
            drop(reader.join());
        }
        let Ended { exit, signal } = ended?;
        if self.overdue.load(Ordering::SeqCst) {
            return Err(KeeperError::Timeout(self.limit));
        }
        let tail: Vec<u8> = self.stderr.lock().unwrap_or_else(PoisonError::into_inner).iter().copied().collect();
        let code = exit.or_else(|| signal.map(|s| 128 + s)).unwrap_or(-1);
        Ok((code, String::from_utf8_lossy(&tail).into_owned()))
    }
}

impl Drop for KeeperJail {
    fn drop(&mut self) {
        self.jail.kill();
        self.done = None;
    }
}

/// Serves the calls of a keeper that has no namespaces; no other has any.
fn calls(jail: &mut Jail, plan: &Plan) -> std::io::Result<Option<Notify>> {
    let Some(listener) = jail.notify.take() else { return Ok(None) };
    let init_pid = u32::try_from(jail.pid).map_err(std::io::Error::other)?;
    let who = Who::new(JailRef { init_pid, ..JailRef::default() }).map_err(std::io::Error::other)?;
    let reach = Reach { roots: roots(plan), way_out: None };
    Notify::serve_making(listener, who, reach, drop).map(Some).map_err(std::io::Error::other)
}

fn refused(error: SpawnError) -> KeeperError {
    match error {
        SpawnError::Refused(refusal) => {
            let message = refusal.to_string();
            KeeperError::Refused { message, refusal: serde_json::to_value(refusal).unwrap_or_default() }
        }
        other => KeeperError::Failed(other.to_string()),
    }
}

fn keep_tail(mut from: PipeReader, into: &Mutex<VecDeque<u8>>) {
    let mut buffer = [0; 4096];
    while let Ok(n @ 1..) = from.read(&mut buffer) {
        let mut kept = into.lock().unwrap_or_else(PoisonError::into_inner);
        kept.extend(&buffer[..n]);
        let over = kept.len().saturating_sub(TAIL);
        kept.drain(..over);
    }
}
