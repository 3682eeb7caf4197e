//! Runs a command on a machine that lacks one thing: `without FEATURE COMMAND ARG…`. What is hidden is hidden by the kernel (a
//! system call filter, a tracer, namespaces) around the command and all that it starts; the command knows nothing of it.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a wrapper ends where it can't hide what it should")]

use nix::libc;
use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::ptrace;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule, TargetArch,
};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [feature, command @ ..] = &words[..] else { panic!("without FEATURE COMMAND ARG…") };
    match feature.as_str() {
        // A kernel without nf_netlink has no such socket.
        "nftables" => calls(libc::SYS_socket, libc::EPROTONOSUPPORT, &[(0, 16), (2, 12)]),
        "listener" => masked(libc::SYS_seccomp, libc::EINVAL, 1, libc::SECCOMP_FILTER_FLAG_NEW_LISTENER),
        "seccomp" => calls(libc::SYS_seccomp, libc::EINVAL, &[(0, u64::from(libc::SECCOMP_SET_MODE_FILTER))]),
        "clone3" => calls(libc::SYS_clone3, libc::ENOSYS, &[]),
        "landlock" => calls(libc::SYS_landlock_create_ruleset, libc::ENOSYS, &[]),
        "fuse" => dev_without("fuse"),
        "user-namespaces" => no_user_namespaces(),
        "cgroup" => own_mounts(|| cover("/sys/fs/cgroup")),
        "proc" => own_mounts(|| cover("/proc/irq")),
        older => match older.strip_prefix("landlock-after-").and_then(|n| n.parse().ok()) {
            Some(version) => std::process::exit(older_landlock(version, command)),
            None => match older {
                // The traced half of the above: waits for the tracer, then asks to be stopped at the question.
                "traced" => {
                    std::io::stdin().lines().next();
                    install(libc::SYS_landlock_create_ruleset, vec![rule(&[equals(2, 1)])], SeccompAction::Trace(1));
                }
                _ => panic!("nothing is known of {feature}"),
            },
        },
    }
    let error = Command::new(&command[0]).args(&command[1..]).exec();
    panic!("{command:?}: {error}");
}

fn equals(argument: u8, value: u64) -> SeccompCondition {
    SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::Eq, value).unwrap()
}

fn rule(conditions: &[SeccompCondition]) -> SeccompRule {
    SeccompRule::new(conditions.to_vec()).unwrap()
}

/// The call fails where these arguments have these values.
fn calls(number: libc::c_long, errno: i32, arguments: &[(u8, u64)]) {
    let conditions: Vec<SeccompCondition> = arguments.iter().map(|(n, value)| equals(*n, *value)).collect();
    let rules = if conditions.is_empty() { vec![] } else { vec![rule(&conditions)] };
    install(number, rules, SeccompAction::Errno(errno.unsigned_abs()));
}

/// The call fails where this argument has all these bits.
fn masked(number: libc::c_long, errno: i32, argument: u8, bits: u64) {
    let condition = SeccompCondition::new(argument, SeccompCmpArgLen::Dword, SeccompCmpOp::MaskedEq(bits), bits).unwrap();
    install(number, vec![rule(&[condition])], SeccompAction::Errno(errno.unsigned_abs()));
}

fn install(number: libc::c_long, rules: Vec<SeccompRule>, action: SeccompAction) {
    let arch = TargetArch::try_from(std::env::consts::ARCH).unwrap();
    let filter = SeccompFilter::new([(number, rules)].into_iter().collect(), SeccompAction::Allow, action, arch).unwrap();
    let program: BpfProgram = filter.try_into().unwrap();
    seccompiler::apply_filter(&program).unwrap();
}

/// A mount namespace of its own; an ordinary user needs a user namespace for it, in which it stays who it is.
fn own_mounts(change: impl FnOnce()) {
    if nix::unistd::geteuid().is_root() {
        unshare(CloneFlags::CLONE_NEWNS).unwrap();
    } else {
        own_user(CloneFlags::CLONE_NEWNS);
    }
    mount(None::<&str>, "/", None::<&str>, MsFlags::MS_PRIVATE | MsFlags::MS_REC, None::<&str>).unwrap();
    change();
}

fn own_user(more: CloneFlags) {
    let (uid, gid) = (nix::unistd::geteuid(), nix::unistd::getegid());
    unshare(CloneFlags::CLONE_NEWUSER | more).unwrap();
    std::fs::write("/proc/self/setgroups", "deny").unwrap();
    std::fs::write("/proc/self/uid_map", format!("{uid} {uid} 1")).unwrap();
    std::fs::write("/proc/self/gid_map", format!("{gid} {gid} 1")).unwrap();
}

fn no_user_namespaces() {
    // Where the machine itself gives none, nothing is left to hide.
    if !nix::unistd::geteuid().is_root() && none_here() {
        return;
    }
    own_user(CloneFlags::empty());
    std::fs::write("/proc/sys/user/max_user_namespaces", "0").unwrap();
}

/// Whether an ordinary user gets no user namespace here, by the settings that close them.
fn none_here() -> bool {
    let closed = |setting: &str| std::fs::read_to_string(setting).is_ok_and(|text| text.trim() == "0");
    ["/proc/sys/kernel/unprivileged_userns_clone", "/proc/sys/user/max_user_namespaces"].into_iter().any(closed)
}

fn cover(place: &str) {
    mount(Some("none"), place, Some("tmpfs"), MsFlags::empty(), None::<&str>).unwrap();
}

/// Everything of `/dev` but one node.
fn dev_without(hidden: &str) {
    own_mounts(|| {
        let old = tempfile::tempdir().unwrap();
        let bind = |from: &Path, to: &Path| {
            mount(Some(from), to, None::<&str>, MsFlags::MS_BIND | MsFlags::MS_REC, None::<&str>).unwrap();
        };
        bind(Path::new("/dev"), old.path());
        cover("/dev");
        for entry in std::fs::read_dir(old.path()).unwrap().map(Result::unwrap).filter(|e| e.file_name() != hidden) {
            let (from, to) = (entry.path(), Path::new("/dev").join(entry.file_name()));
            let kind = entry.file_type().unwrap();
            if kind.is_symlink() {
                std::os::unix::fs::symlink(std::fs::read_link(from).unwrap(), to).unwrap();
            } else if kind.is_dir() {
                std::fs::create_dir(&to).unwrap();
                bind(&from, &to);
            } else {
                std::fs::write(&to, "").unwrap();
                bind(&from, &to);
            }
        }
        nix::mount::umount2(old.path(), nix::mount::MntFlags::MNT_DETACH).unwrap();
    });
}

/// Traces the command and all that it starts, and answers each question for Landlock's version with this one.
#[expect(clippy::zombie_processes, reason = "it is waited for below, with all that it starts")]
fn older_landlock(version: u64, command: &[String]) -> i32 {
    let own = std::env::current_exe().unwrap();
    let mut child = Command::new(own).arg("traced").args(command).stdin(Stdio::piped()).spawn().unwrap();
    let traced = Pid::from_raw(i32::try_from(child.id()).unwrap());
    let options = ptrace::Options::PTRACE_O_TRACEFORK
        | ptrace::Options::PTRACE_O_TRACEVFORK
        | ptrace::Options::PTRACE_O_TRACECLONE
        | ptrace::Options::PTRACE_O_TRACESECCOMP
        | ptrace::Options::PTRACE_O_EXITKILL;
    ptrace::seize(traced, options).unwrap();
    std::io::Write::write_all(&mut child.stdin.take().unwrap(), b"go\n").unwrap();
    loop {
        match waitpid(None, Some(WaitPidFlag::__WALL)).unwrap() {
            WaitStatus::Exited(pid, code) if pid == traced => return code,
            WaitStatus::Signaled(pid, signal, _) if pid == traced => return 128 + signal as i32,
            WaitStatus::PtraceEvent(pid, _, event) => {
                if event == libc::PTRACE_EVENT_SECCOMP {
                    answer(pid, version);
                }
                // It may have been killed meanwhile.
                _ = ptrace::cont(pid, None);
            }
            WaitStatus::Stopped(pid, signal) => _ = ptrace::cont(pid, Some(signal)),
            _ => {}
        }
    }
}

#[cfg(target_arch = "x86_64")]
fn answer(pid: Pid, version: u64) {
    let mut registers = ptrace::getregs(pid).unwrap();
    // No call has the number -1: it is passed over, and what stands in the register is its result.
    registers.orig_rax = u64::MAX;
    registers.rax = version;
    ptrace::setregs(pid, registers).unwrap();
}

#[cfg(not(target_arch = "x86_64"))]
fn answer(_: Pid, _: u64) {
    panic!("the registers of this architecture are not known here");
}
