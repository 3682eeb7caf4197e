//! The other jail: no namespace, the host's own root; Landlock, filter and listener alone. Used only where a plan asks for it,
//! which its starter does only where the person's policy accepts that.

mod fence;
mod guard;

use crate::error::{OrRefuse as _, PLANTED, Step, UNEXPECTED};
use crate::exec::Confined;
use crate::fresh::Fresh;
use crate::link::Link;
use crate::{Context, REFUSED, limits, privileges, seccomp, terminal};
use jail_plan::{Guarantee, Handed, Raw, Say, Stage, Status};
use rustix::fs::{CWD, Mode, OFlags};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, PidfdFlags, Signal};
use std::io::Write as _;
use std::os::fd::AsFd as _;
use sys::clone::{SIBLING, Side};

const READS: &str = "names, sizes, times and link targets of your files can be asked for by their paths, /proc shows the command lines of \
     your programs and the machine's addresses, /etc its accounts; contents and directories stay closed";
const CONTROL: &str = "it sees your programs in /proc and shares the machine's network and account with them; it can signal, trace or \
     connect to none";
const NO_SCOPE: &str = "this kernel's Landlock keeps no signals in (Linux 6.12 does): it can end your programs";
const QUOTAS: &str = "namespaces, message queues, shared memory and inotify are closed; processes, pending signals, locked memory, epoll \
     watches and pipe pages count as your own programs' do, memory for TCP as the machine's";

impl Fresh {
    /// Forks into a guard, which stays outside and ends everything, and the command-to-be, which returns here.
    pub(crate) fn enter_fence(self, link: &Link) -> Step<Confined> {
        let what = || "starting a jail without namespaces".to_owned();
        let ordinary = if rustix::process::geteuid().is_root() { Err("uid 0 owns what it would be kept from") } else { Ok(()) };
        ordinary.or_refuse(Stage::Identity, "start it as an ordinary user", what)?;
        let (wait, go) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).or_refuse(Stage::Start, UNEXPECTED, what)?;
        match sys::clone::fork_plain(SIBLING).or_refuse(Stage::Start, UNEXPECTED, what)? {
            Side::Parent { pid, pidfd } => {
                drop(wait);
                let named = link.say(&Say::Born { pid }, &[pidfd.as_fd()]);
                if named.is_ok() {
                    _ = rustix::io::write(&go, b".");
                }
                std::process::exit(if named.is_ok() { 0 } else { i32::from(REFUSED) })
            }
            Side::Child => {
                drop(go);
                if rustix::io::read(&wait, &mut [0; 1]) != Ok(1) {
                    std::process::exit(i32::from(REFUSED));
                }
                drop(wait);
                guarded(self.context, link)
            }
        }
    }
}

/// In the guard-to-be, the starter's child.
fn guarded(mut context: Context, link: &Link) -> Step<Confined> {
    let what = || "starting the guard of a jail without namespaces".to_owned();
    // A stopped guard goes on when its starter dies, and then ends everything.
    link.signal_with_starter(Signal::CONT)?;
    rustix::thread::set_name(c"airlock-guard").or_refuse(Stage::Start, UNEXPECTED, what)?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).or_refuse(Stage::Identity, UNEXPECTED, what)?;
    // Whatever loses its parent gets this process for one, so that all of the jail descends from it.
    rustix::process::set_child_subreaper(rustix::process::Pid::from_raw(1)).or_refuse(Stage::Start, UNEXPECTED, what)?;
    rustix::process::umask(Mode::from_raw_mode(0o022));
    terminal::make_at(&mut context, "/dev/ptmx")?;
    privileges::drop_own()?;
    let signals = guard::hold_signals()?;
    let guard = guard::Guard::new(link)?;
    report(&mut context, guard.scoped());
    let null = rustix::fs::open("/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).or_refuse(
        Stage::Exec,
        UNEXPECTED,
        || "opening /dev/null".into(),
    )?;
    // The plan is at descriptor 1 and a copy of the link at 0: neither is for what comes.
    rustix::stdio::dup2_stdin(&null).and_then(|()| rustix::stdio::dup2_stdout(&null)).or_refuse(Stage::Exec, UNEXPECTED, what)?;
    match sys::clone::fork_plain(0).or_refuse(Stage::Exec, UNEXPECTED, what)? {
        Side::Parent { pid, .. } => {
            drop(context);
            rustix::stdio::dup2_stderr(&null).or_refuse(Stage::Exec, UNEXPECTED, what)?;
            drop(null);
            guard.run(link, &signals, pid)
        }
        Side::Child => {
            drop((guard, signals, null));
            confined(context)
        }
    }
}

/// In the command-to-be.
fn confined(mut context: Context) -> Step<Confined> {
    sys::signal::reset_all().or_refuse(Stage::Exec, UNEXPECTED, || "giving signals their meaning".into())?;
    rustix::process::chdir(context.plan.cwd.as_path())
        .or_refuse(Stage::Exec, PLANTED, || format!("entering the working directory `{}`", context.plan.cwd))?;
    limits::set_beside_others(&context.plan.limits, &mut context.report)?;
    let terminal = context.streams.as_ref().and_then(|[stdin, ..]| rustix::termios::ttyname(stdin, Vec::new()).ok());
    fence::close(&context.plan.landlock, terminal.as_deref().map(|t| Raw::from(t.to_bytes())), &mut context.report)?;
    for (path, contents) in context.plan.fallback.iter().flat_map(|f| &f.files) {
        write(path, contents)?;
    }
    seccomp::confine(&context.plan, &mut context.report)?;
    let what = || "naming the command to the starter".to_owned();
    let own =
        rustix::process::pidfd_open(rustix::process::getpid(), PidfdFlags::empty()).or_refuse(Stage::Exec, UNEXPECTED, what)?;
    context.handed.push((Handed::Command, own));
    Ok(Confined { context })
}

/// Puts a file in the place of whatever is there, with no more rights than the command has.
fn write(path: &Raw, contents: &Raw) -> Step<()> {
    let what = || format!("writing `{path}`");
    let beside = Raw::from([path.as_bytes(), b".airlock"].concat());
    match rustix::fs::unlink(beside.as_path()) {
        Ok(()) | Err(Errno::NOENT) => {}
        other => other.or_refuse(Stage::Exec, PLANTED, what)?,
    }
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file =
        rustix::fs::openat(CWD, beside.as_path(), flags, Mode::from_raw_mode(0o644)).or_refuse(Stage::Exec, PLANTED, what)?;
    std::fs::File::from(file).write_all(contents.as_bytes()).or_refuse(Stage::Exec, UNEXPECTED, what)?;
    rustix::fs::rename(beside.as_path(), path.as_path()).or_refuse(Stage::Exec, PLANTED, what)
}

/// What this tier keeps, as it is; Landlock, limits, filter and listener say their own.
fn report(context: &mut Context, scoped: bool) {
    let report = &mut context.report;
    report.keep(
        Guarantee::Writes,
        "Landlock, and calls that it does not judge are refused, or made by the warden beneath what may be written",
        Status::Full,
    );
    report.keep(Guarantee::Reads, "Landlock: only what the plan names can be opened", Status::partial(READS));
    let control = if scoped { Status::partial(CONTROL) } else { Status::absent(NO_SCOPE) };
    report.keep(Guarantee::Control, "Landlock's scopes, and connections made by the warden", control);
    let how = "the warden makes each connection on the caller's own socket; nothing listens; no datagrams; names by libc alone";
    report.keep(Guarantee::Network, how, Status::Full);
    let (ends, how) = if scoped {
        (Status::Full, "one domain, ended at once by a guard outside of it, and by a second one when the first is gone")
    } else {
        let hole = "found by descent: what forks fast enough while it is ended, or is there when its guard is killed, may stay";
        (Status::partial(hole), "a guard outside of it, from which all descend")
    };
    report.keep(Guarantee::Ends, how, ends);
    report.keep(Guarantee::Quotas, "calls that the filter refuses, and resource limits", Status::partial(QUOTAS));
    report.set(
        Guarantee::Decoys,
        Status::absent("nothing can be put over hidden places: they are closed, and a touch is not told"),
    );
}
