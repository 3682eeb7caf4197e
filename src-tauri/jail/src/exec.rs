//! The last stage: no rights left; the command.

use crate::error::{OrRefuse as _, PLANTED, Step, UNEXPECTED};
use crate::link::Link;
use crate::mounts::Mounted;
use crate::seccomp::Tier;
use crate::{Context, init, limits, privileges, seccomp, second_lock, terminal};
use jail_plan::{Answer, Guarantee, Handed, Kind, Raw, Refusal, Say, Stage, Status, Stdio};
use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags};
use rustix::process::DumpableBehavior;
use std::convert::Infallible;
use std::ffi::{CString, OsStr};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};
use sys::clone::Side;

/// As the command will be: without capabilities, under Landlock and the filter, in its own session.
pub(crate) struct Confined {
    pub(crate) context: Context,
}

impl Mounted {
    /// Gives everything up and forks: init stays behind as PID 1 and never returns from here, the command-to-be does.
    pub(crate) fn confine(self, link: &Link) -> Step<Confined> {
        let Self { mut context } = self;
        terminal::make(&mut context)?;
        rustix::process::chdir(context.plan.cwd.as_path())
            .or_refuse(Stage::Exec, PLANTED, || format!("entering the working directory `{}`", context.plan.cwd))?;
        limits::set(&context.plan.limits, &mut context.report)?;
        privileges::drop_all()?;
        second_lock::close(&context.plan.landlock, &mut context.report)?;
        let null = rustix::fs::openat(CWD, "/dev/null", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).or_refuse(
            Stage::Exec,
            UNEXPECTED,
            || "opening /dev/null".into(),
        )?;
        // The plan is at descriptor 1 and a copy of the link at 0: neither is for what comes.
        rustix::stdio::dup2_stdin(&null).and_then(|()| rustix::stdio::dup2_stdout(&null)).or_refuse(
            Stage::Exec,
            UNEXPECTED,
            || "closing the plan".into(),
        )?;
        let side = sys::clone::fork(0).or_refuse(Stage::Exec, UNEXPECTED, || "forking init and command".into())?;
        // Each for itself: the filter would refuse the fork's own clone3. Init needs no call that it refuses.
        seccomp::confine(&context.plan, &mut context.report)?;
        context.report.keep(Guarantee::Ends, "own pid namespace, which ends with its init", Status::Full);
        match side {
            Side::Parent { pid, pidfd } => {
                drop((context, pidfd));
                rustix::stdio::dup2_stderr(&null)
                    .or_refuse(Stage::Exec, UNEXPECTED, || "letting the starter's stderr go".into())?;
                drop(null);
                init::run(link, pid)
            }
            Side::Child => Ok(Confined { context }),
        }
    }
}

impl Confined {
    /// Reports, waits for the word, and becomes the command.
    pub(crate) fn run_command(self, link: &Link) -> Step<Infallible> {
        let Context { plan, mut report, mut handed, streams } = self.context;
        let tier = Tier::of(&plan);
        let what = || "preparing the command".to_owned();
        let streams = streams.ok_or("it has no standard streams").or_refuse(Stage::Exec, UNEXPECTED, what)?;
        rustix::process::setsid().or_refuse(Stage::Exec, UNEXPECTED, || "starting a session".into())?;
        if let Stdio::Terminal { .. } = plan.stdio {
            rustix::process::ioctl_tiocsctty(&streams[0])
                .or_refuse(Stage::Terminal, UNEXPECTED, || "taking the terminal".into())?;
        }
        let program = find(&plan.argv[0], &plan.env)?;
        let c = |word: &[u8]| CString::new(word).or_refuse(Stage::Exec, UNEXPECTED, what);
        let path = c(program.as_os_str().as_bytes())?;
        let argv = plan.argv.iter().map(|a| c(a.as_bytes())).collect::<Step<Vec<_>>>()?;
        let env = plan.env.iter().map(|(k, v)| c(&[k.as_bytes(), b"=", v.as_bytes()].concat())).collect::<Step<Vec<_>>>()?;
        if plan.notify {
            handed.extend(seccomp::observe(tier, &mut report)?.map(|listener| (Handed::Notify, listener)));
        }
        // What is left of the person's is closed below, before the exec: where that fails, nothing runs.
        report.keep(Guarantee::Inherited, "variables by list, descriptors closed, own session", Status::Full);
        let partly = plan.fallback.as_ref().and_then(|f| report.absent(&f.partly));
        if let Some(refusal) = report.missing(&plan.require).or(partly) {
            return Err(refusal);
        }
        let names = handed.iter().map(|(name, _)| *name).collect();
        let fds: Vec<BorrowedFd<'_>> = handed.iter().map(|(_, fd)| fd.as_fd()).collect();
        link.say(&Say::Ready { report, handed: names }, &fds).or_refuse(Stage::Start, UNEXPECTED, || "reporting".into())?;
        // The ends that were handed out are the starter's alone; the command holds none of them.
        drop(handed);
        match link.hear() {
            Ok((Answer::Go, _)) => {}
            other => {
                return Err(format!("{other:?}")).or_refuse(Stage::Start, UNEXPECTED, || "waiting for the word to go".into());
            }
        }
        let [stdin, stdout, stderr] = &streams;
        rustix::stdio::dup2_stdin(stdin).or_refuse(Stage::Exec, UNEXPECTED, what)?;
        rustix::stdio::dup2_stdout(stdout).or_refuse(Stage::Exec, UNEXPECTED, what)?;
        rustix::stdio::dup2_stderr(stderr).or_refuse(Stage::Exec, UNEXPECTED, what)?;
        sys::signal::reset_all().or_refuse(Stage::Exec, UNEXPECTED, what)?;
        sys::fd::close_on_exec_from(3).or_refuse(Stage::Exec, UNEXPECTED, what)?;
        // The starter reads the arguments of the very first exec from this process, as it will of every later one.
        rustix::process::set_dumpable_behavior(DumpableBehavior::Dumpable).or_refuse(Stage::Exec, UNEXPECTED, what)?;
        nix::unistd::execve(&path, &argv, &env).map_err(|e| not_runnable(&plan.argv[0], format!("`{}`: {e}", program.display())))
    }
}

/// Looks the command up before anything is reported, so that a missing one is a refusal and not the end of a run.
fn find(command: &Raw, env: &[(Raw, Raw)]) -> Step<PathBuf> {
    if command.as_bytes().contains(&b'/') {
        return match runnable(command.as_path()) {
            Ok(()) => Ok(command.as_path().to_owned()),
            Err(why) => Err(not_runnable(command, why.to_owned())),
        };
    }
    let path = env.iter().find(|(k, _)| k.as_bytes() == b"PATH").map(|(_, v)| v.as_bytes()).unwrap_or_default();
    let mut why = format!("it is in none of `{}`", Raw::from(path));
    for directory in path.split(|b| *b == b':').filter(|d| !d.is_empty()) {
        let candidate = Path::new(OsStr::from_bytes(directory)).join(command.as_path());
        match runnable(&candidate) {
            Ok(()) => return Ok(candidate),
            Err(MISSING) => {}
            Err(reason) => why = format!("`{}`: {reason}", candidate.display()),
        }
    }
    Err(not_runnable(command, why))
}

const MISSING: &str = "there is no such file inside the jail";

fn runnable(path: &Path) -> Result<(), &'static str> {
    let stat = rustix::fs::stat(path).map_err(|_| MISSING)?;
    if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
        return Err("it is not a file");
    }
    rustix::fs::accessat(CWD, path, rustix::fs::Access::EXEC_OK, AtFlags::EACCESS).map_err(|_| "it is not executable")
}

fn not_runnable(command: &Raw, why: String) -> Refusal {
    let hint = "inside are the system's programs, the tools of the home that the policy shows, and the workspace; \
         `files.read` in a policy shows more";
    Refusal::new(Stage::Exec, Kind::NotFound, format!("`{command}` can't be run: {why}"), hint)
}
