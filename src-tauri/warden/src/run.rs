//! One run, from its spec to its end.

use crate::asks::{self, Whose};
use crate::clients::{self, Shared};
use crate::hold::Hold;
use crate::output::{Output, Which};
use crate::previews::Previews;
use crate::raise::{self, Raises};
use crate::reading::{self, Road, Secrets};
use crate::record::{self, Recorder};
use crate::refusal::Refusal;
use crate::{caches, gate, limits, terminal};
use db::{Database, EventLog};
use jail_plan::Guarantee;
use model::protocol::{PausedBy, Start, VERSION};
use model::run::{Outcome, RunSpec, Stdio};
use model::task::Step;
use policy::Policy;
use rustix::fs::{FlockOperation, Mode, OFlags};
use rustix::io::Errno;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::Duration;
use supervise::compose::Grants;
use supervise::{Jail, Stood, Together};
use tokio::sync::watch;
use zeroize::Zeroizing;

/// Between asking the command to end and ending everything.
const GRACE: Duration = Duration::from_secs(3);

/// With fewer descriptors than this a warden has none to spare.
const FEW: u64 = 512;

/// How long clients that stopped reading are waited for after the end.
const LINGER: Duration = Duration::from_secs(60);

/// Owns a run.
pub(crate) fn main() -> ExitCode {
    // It lives for hours: what the starter left open would stay open, and whoever waits for its end would wait as long.
    let shed = sys::inherit::close_from(3).and_then(|()| sys::inherit::keep_ended_children());
    if let Err(e) = shed {
        tracing::warn!(error = %e, "what the starter handed on stays");
    }
    // Out of the starter's terminal and job: its hang-up and its Ctrl-C are not for this process.
    if let Err(e) = nix::unistd::setsid() {
        tracing::debug!(error = %e, "already a session leader");
    }
    no_core();
    raise_descriptors();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let begun = runtime.map_err(|e| Refusal::machine("starting threads", e)).and_then(|runtime| {
        let (spec, secrets) = read_spec()?;
        Ok(runtime.block_on(own(&spec, secrets)))
    });
    match begun {
        Ok(Ok(())) => ExitCode::SUCCESS,
        Ok(Err(refusal)) | Err(refusal) => {
            tracing::warn!(?refusal, "refused");
            say(&refusal.start());
            ExitCode::from(4)
        }
    }
}

/// Connections of the jail cost descriptors here: the usual 1,024 would be used up by them.
/// What is in memory here comes into no file. One byte, since none at all still feeds a collector of cores behind a pipe.
fn no_core() {
    let limit = rustix::process::Rlimit { current: Some(1), maximum: Some(1) };
    if let Err(e) = rustix::process::setrlimit(rustix::process::Resource::Core, limit) {
        tracing::warn!(error = %e, "a core could be written");
    }
}

fn raise_descriptors() {
    let mut limit = rustix::process::getrlimit(rustix::process::Resource::Nofile);
    limit.current = limit.maximum;
    if let Err(e) = rustix::process::setrlimit(rustix::process::Resource::Nofile, limit) {
        tracing::warn!(error = %e, "the limit of open files stays as it was");
    }
}

/// The way out's bounds: two descriptors a connection and one for each that waits, and enough kept back for clients, sensors and a
/// freeze.
pub(crate) fn network_limits() -> egress::Limits {
    let usual = egress::Limits::default();
    let have = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.unwrap_or(u64::MAX);
    let room = usize::try_from(have.saturating_sub(500) / 3).unwrap_or(usize::MAX);
    egress::Limits { connections: usual.connections.min(room.max(16)), ..usual }
}

/// The spec, a line of JSON, and what is secret in another.
fn read_spec() -> Result<(RunSpec, Secrets), Refusal> {
    let failed = |e: String| Refusal::machine("reading the run's spec", e);
    let mut text = Zeroizing::new(Vec::new());
    std::io::stdin().take(16 << 20).read_to_end(&mut text).map_err(|e| failed(e.to_string()))?;
    let (spec, secret) = text.iter().position(|b| *b == b'\n').map_or((&text[..], &[][..]), |at| (&text[..at], &text[at + 1..]));
    let spec: RunSpec = serde_json::from_slice(spec).map_err(|e| failed(e.to_string()))?;
    if spec.version != VERSION {
        return Err(failed(format!(
            "it has version {}, this warden knows {VERSION}: airlock and airlock-warden must be of one installation",
            spec.version
        )));
    }
    let secrets = Secrets::read(secret).map_err(|e| failed(e.to_string()))?;
    Ok((spec, secrets))
}

/// The one line on stdout.
fn say(start: &Start) {
    let mut line = serde_json::to_vec(start).unwrap_or_default();
    line.push(b'\n');
    let mut out = std::io::stdout();
    if let Err(e) = out.write_all(&line).and_then(|()| out.flush()) {
        tracing::debug!(error = %e, "the starter is gone");
    }
}

fn lock(spec: &RunSpec) -> Result<OwnedFd, Refusal> {
    let path = spec.dir.lock();
    let fd =
        rustix::fs::open(&path, OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::from_raw_mode(0o600))
            .map_err(|e| Refusal::machine("opening the run's lock", e))?;
    rustix::fs::flock(&fd, FlockOperation::NonBlockingLockExclusive).map_err(|e| match e {
        Errno::WOULDBLOCK => Refusal::conflict("the task is running already: stop it first"),
        e => Refusal::machine("taking the run's lock", e),
    })?;
    // For whoever must end a warden that does not answer; who owns the run is the lock's word alone.
    let name = format!("{}\n", std::process::id());
    rustix::fs::ftruncate(&fd, 0)
        .and_then(|()| rustix::io::pwrite(&fd, name.as_bytes(), 0))
        .map_err(|e| Refusal::machine("writing the run's lock", e))?;
    Ok(fd)
}

/// The command's three pipes: what the jail gets, and what stays here.
struct Pipes {
    inside: [OwnedFd; 3],
    input: OwnedFd,
    sources: Vec<(Which, OwnedFd)>,
}

fn pipes() -> std::io::Result<Pipes> {
    let pipe = || rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC);
    let (stdin, input) = pipe()?;
    let (out, stdout) = pipe()?;
    let (err, stderr) = pipe()?;
    Ok(Pipes { inside: [stdin, stdout, stderr], input, sources: vec![(Which::Out, out), (Which::Err, err)] })
}

async fn own(spec: &RunSpec, secrets: Secrets) -> Result<(), Refusal> {
    let held = lock(spec)?;
    let policy = Arc::new(policy::load(&spec.policy).map_err(|(file, problems)| {
        let first = problems.first().map_or_else(String::new, |p| format!("{}:{}: {}", p.line, p.column, p.message));
        Refusal::policy(format!("the policy {file} is refused: {first}"))
    })?);
    let database = Arc::new(Database::open(&spec.layout.database()).map_err(|e| Refusal::machine("opening the database", e))?);
    let events = EventLog::open(&spec.dir.events()).map_err(|e| Refusal::machine("opening the event log", e))?;
    let output =
        Output::create(&spec.dir.log(&spec.run), policy.limits.output).map_err(|e| Refusal::machine("making the log", e))?;
    let output = Arc::new(output);

    let mut grants = Grants::of(spec, &policy);
    let caches = caches::take(spec, &grants);
    grants.caches.clone_from(&caches.layered);
    let missing = secrets.missing(&policy);
    let reading = reading::prepare(spec, &policy, secrets, &mut grants)?;
    let proxies = reading::proxies(&policy)?;
    let plan = supervise::compose::agent(spec, &grants).map_err(|c| Refusal::policy(c.to_string()))?;
    let (inside, kept) = match spec.stdio {
        Stdio::Terminal { .. } => (None, None),
        Stdio::Pipes => {
            let p = pipes().map_err(|e| Refusal::machine("making pipes", e))?;
            (Some(p.inside), Some((p.input, p.sources)))
        }
    };
    let weaker = policy.fallback.then_some(|| {
        supervise::prepare(spec).map_err(|e| format!("its places in {}: {e}", spec.dir.path().display()))?;
        supervise::compose::agent_without_namespaces(spec, &grants).map_err(|e| e.to_string())
    });
    let together = Together::of(&policy);
    let Stood { mut jail, plan } = supervise::stand(plan, weaker, &spec.jail_program, inside, Some(&together))?;
    // Where descriptors are few the run has them all, and nobody looks in.
    let few = rustix::process::getrlimit(rustix::process::Resource::Nofile).current.is_some_and(|n| n < FEW);
    let inward = std::mem::take(&mut jail.inward);
    let inward = if few { Vec::new() } else { inward };
    jail.report.accepted.clone_from(&grants.accept);
    if plan.fallback.is_some() {
        jail.report.accepted.extend(supervise::compose::LOST_IN_PART);
        caches.without_mounts(&mut jail.report);
    }
    if policy.nested {
        jail.report.accepted.push(Guarantee::Syscalls);
    }
    let bounded = supervise::limits::held_by_file_system(&limits::places(spec), policy.limits.disk);
    supervise::limits::kept_by_warden(&mut jail.report, bounded);
    reading::told(&proxies, &mut jail.report);
    limits::required(&policy, &jail.report)?;
    caches.complete(&mut jail.report);
    let (recorder, writer) = record::start(events, spec.run.clone());
    let repo = database
        .task(&spec.task)
        .map_err(|e| Refusal::machine("reading the task", e))?
        .ok_or_else(|| Refusal::conflict("the task is gone"))?
        .repo;
    let whose = Whose { task: spec.task.clone(), repo, run: spec.run.clone() };
    let (asks, desk) =
        asks::start(whose, Arc::clone(&database), recorder.clone()).map_err(|e| Refusal::machine("starting a thread", e))?;

    let raises = Raises::new(asks.clone(), spec.policy.name.clone());

    // Everything that answers the jail stands before its command may make a call.
    let sensors = gate::Sensors::start(spec, &policy, &plan, &mut jail, (&asks, &raises), Road { reading, proxies }, &recorder)
        .map_err(|e| Refusal::machine("starting the sensors", e))?;
    let (sources, sink) = match kept {
        Some((input, sources)) => (sources, Some(input)),
        None => {
            let master = jail.pty.as_ref().ok_or_else(|| Refusal::machine("taking the terminal", "the jail handed none out"))?;
            let copy = || master.try_clone().map_err(|e| Refusal::machine("sharing the terminal", e));
            (vec![(Which::Out, copy()?)], Some(copy()?))
        }
    };
    let (pumps, input) =
        terminal::start(sources, sink, matches!(spec.stdio, Stdio::Terminal { .. }), &output, &raises, &recorder);

    let socket = spec.layout.socket(&spec.task);
    let listener = clients::bind(&socket).map_err(|e| Refusal::machine("making the run's socket", e))?;
    let report = serde_json::to_value(&jail.report).map_err(|e| Refusal::machine("writing the report", e))?;
    let now = sys::clock::unix_millis();
    database.set_report(now, &spec.run, &report).map_err(|e| Refusal::machine("recording the run", e))?;
    database
        .step(now, &spec.task, Step::Started, None, Some(&spec.run))
        .map_err(|e| Refusal::machine("recording the run", e))?
        .map_err(|e| Refusal::conflict(e.to_string()))?;
    recorder.lifecycle("started", brief(&spec.argv));
    for words in missing {
        recorder.lifecycle("credential", words);
    }
    if let Some(words) = caches::words(&jail.report) {
        recorder.lifecycle("caches", words);
    }

    let previews = Previews::new(inward, spec.task.clone(), recorder.clone());
    let jail = Arc::new(jail);
    let (ended_sender, ended) = watch::channel(None);
    let stop = watch::Sender::new(false);
    let room = clients::room();
    let hold = Arc::new(Hold::new(Arc::clone(&jail), recorder.clone(), Arc::clone(&database), spec.task.clone()));
    let looked_at = limits::watch(spec, &policy, &jail, &sensors.who, sensors.stir.clone(), &hold, (&raises, &recorder));
    let stands = plan.fallback.is_none().then(|| limits::mounts(&jail, &hold, &recorder)).flatten();
    let shared = Arc::new(Shared {
        task: spec.task.clone(),
        run: spec.run.clone(),
        jail: Arc::clone(&jail),
        hold: Arc::clone(&hold),
        allowance: looked_at.as_ref().map(|w| w.allowance()),
        raises: raises.clone(),
        previews,
        output,
        asks,
        recorder: recorder.clone(),
        events: spec.dir.events(),
        input,
        stop: stop.clone(),
        ended,
        freezer: tokio::sync::Semaphore::new(1),
    });
    let serving = tokio::spawn(clients::serve(listener, shared, Arc::clone(&room)));
    jail.go().map_err(|e| Refusal::machine("letting the command run", e))?;
    say(&Start::Started { report });

    let outcome = until_ended(&jail, &hold, &policy, &stop, &raises, &recorder).await;
    tokio::task::block_in_place(|| pumps.finish());
    drop((looked_at, stands));
    drop(sensors);
    tokio::task::block_in_place(|| desk.close());
    recorder.lifecycle("ended", words(&outcome));
    tokio::task::block_in_place(|| writer.finish());
    let now = sys::clock::unix_millis();
    if let Err(e) = database.end_run(now, &spec.run, &outcome) {
        tracing::error!(error = %e, "the end of the run could not be recorded");
    }
    match database.step(now, &spec.task, Step::RunEnded, outcome.refused.as_deref(), None) {
        Ok(Ok(_)) => {}
        Ok(Err(e)) => tracing::error!(error = %e, "the task did not take the run's end"),
        Err(e) => tracing::error!(error = %e, "the task's step could not be recorded"),
    }
    serving.abort();
    std::fs::remove_file(&socket).ok();
    drop((held, caches));
    ended_sender.send_replace(Some(outcome));
    if tokio::time::timeout(LINGER, clients::all_served(&room)).await.is_err() {
        tracing::warn!("a client did not read to the end");
    }
    Ok(())
}

/// A command in one line that fits a row.
fn brief(argv: &[String]) -> String {
    let line: String = argv.join(" ").chars().map(|c| if c.is_control() { ' ' } else { c }).take(200).collect();
    let words: Vec<&str> = line.split_whitespace().collect();
    words.join(" ")
}

fn words(outcome: &Outcome) -> String {
    match outcome {
        Outcome { refused: Some(why), .. } => why.clone(),
        Outcome { limit: Some(limit), .. } => format!("ended by the limit `{limit}`"),
        Outcome { signal: Some(signal), .. } => format!("ended by signal {signal}"),
        Outcome { exit: Some(code), .. } => format!("exit {code}"),
        Outcome { .. } => "ended".into(),
    }
}

async fn until_ended(
    jail: &Arc<Jail>,
    hold: &Arc<Hold>,
    policy: &Policy,
    stop: &watch::Sender<bool>,
    raises: &Raises,
    recorder: &Recorder,
) -> Outcome {
    let waiter = Arc::clone(jail);
    let mut over = tokio::task::spawn_blocking(move || waiter.wait());
    let mut asked = stop.subscribe();
    let mut terminate = tokio::signal::unix::signal(tokio::signal::unix::SignalKind::terminate()).ok();
    let terminated = async {
        match &mut terminate {
            Some(t) => t.recv().await,
            None => std::future::pending().await,
        }
    };
    let mut limit = None;
    let ended = tokio::select! {
        ended = &mut over => Some(ended),
        whole = raise::wall(policy.limits.wall, raises) => {
            limit = Some("wall".to_owned());
            let over = format!("the run reached its {} seconds and was ended; `limits.wall` raises it", whole.as_secs());
            limits::tell(recorder, "wall", over, None);
            jail.kill();
            None
        }
        _ = asked.wait_for(|s| *s) => None,
        _ = terminated => None,
    };
    let ended = match ended {
        Some(e) => e,
        None => {
            if limit.is_none() {
                recorder.lifecycle("stopped", "by the person");
                if let Err(e) = jail.signal(15) {
                    tracing::debug!(error = %e, "no command to ask");
                }
                match hold.paused() {
                    // Nothing that is stopped can end by itself.
                    Some(PausedBy::Person) => _ = tokio::task::block_in_place(|| hold.proceed()),
                    // Whoever was stopped for what it takes takes no more.
                    Some(PausedBy::Limit) => jail.kill(),
                    None => {}
                }
            }
            match tokio::time::timeout(GRACE, &mut over).await {
                Ok(e) => e,
                Err(_) => {
                    jail.kill();
                    over.await
                }
            }
        }
    };
    match ended {
        Ok(Ok(e)) => Outcome { exit: e.exit, signal: e.signal, limit, refused: None },
        Ok(Err(e)) => Outcome { exit: None, signal: None, limit, refused: Some(e.to_string()) },
        Err(e) => Outcome { exit: None, signal: None, limit, refused: Some(format!("waiting for the jail failed: {e}")) },
    }
}
