//! The person's processes: their lives, their memory, what they hold, and how the machine treats them.

use crate::table::Control::{Apart, Never, Plain};
use crate::table::{Attack, Program, Victim};

macro_rules! attack {
    ($name:literal, $why:literal, $victim:expr) => {
        attack!($name, $why, $victim, Plain)
    };
    ($name:literal, $why:literal, $victim:expr, $control:expr) => {
        Attack::new($name, $why, Program::C("processes", &[$name, "{pid}", "{memory}", "{word}", "{secret}"]), $victim, $control)
    };
}

/// All processes of a user would be all of root's, so the user is one of a throw-away pid namespace.
const MANY: &str = "\"$VICTIM\" \"$SECRET\" > up & until [ -s up ]; do sleep 0.1; done; before=$(cut -d' ' -f19 /proc/$!/stat)$(ionice -p $!); \"$@\"; \
                    [ \"$before\" != \"$(cut -d' ' -f19 /proc/$!/stat)$(ionice -p $!)\" ] && echo && echo fell; kill $! 2>/dev/null";
/// Whether the victim is dead, reaped or not.
macro_rules! dies {
    ($script:literal) => {
        Apart(concat!($script, "; case $(cut -d' ' -f3 /proc/$(cat pid)/stat 2>/dev/null) in ''|Z) echo; echo fell;; esac"))
    };
}

const PROCESSES: &[Attack] = &[
    attack!("kill", "a signal", Victim::Process),
    attack!("stop", "a signal that stops", Victim::Process),
    attack!("kill-group", "a signal to a group", Victim::Process),
    attack!("tgkill", "a signal to a thread", Victim::Process),
    attack!("tkill", "likewise, the older call", Victim::Process),
    attack!("queue", "a queued signal", Victim::Process),
    attack!("pidfd-signal", "a signal by pidfd", Victim::Process),
    attack!("proc-pidfd-signal", "a signal by a directory of /proc", Victim::Process),
    attack!("owner-signal", "a signal that the kernel sends for one", Victim::Process),
    attack!("ptrace-poke", "a tracer writes memory", Victim::Process),
    attack!("ptrace-seize", "a tracer that takes the process along when it ends", Victim::Process),
    attack!("vm-write", "process_vm_writev", Victim::Process),
    attack!("mem-write", "/proc/PID/mem", Victim::Process),
    attack!("prlimit", "its limits", Victim::Process),
    attack!("nice", "its priority", Victim::Process),
    attack!("nice-group", "the priority of its group", Victim::Process),
    attack!("ioprio", "its turn at the disk", Victim::Process),
    attack!("scheduler", "its scheduler", Victim::Process),
    attack!("affinity", "its processors", Victim::Process).or_lacks("there is one processor only"),
    attack!("oom", "it goes first when memory ends", Victim::Process),
    attack!(
        "advise",
        "its memory put aside",
        Victim::Process,
        Never("what it does to another process changes nothing that can be seen")
    ),
    attack!("nice-user", "the priority of all processes of the user", Victim::Process, Apart(MANY)),
    attack!("ioprio-user", "their turn at the disk", Victim::Process, Apart(MANY)),
    Attack::new(
        "kill-everybody",
        "a signal to everybody",
        Program::Shell("trap '' TERM; kill -TERM -1; kill -KILL -1"),
        Victim::Process,
        dies!("\"$VICTIM\" \"$SECRET\" > up & echo $! > pid; until [ -s up ]; do sleep 0.1; done; (\"$@\")"),
    ),
    Attack::new(
        "kill-own-group",
        "a signal to one's own group, which a starter may share",
        Program::Shell("kill -KILL 0"),
        Victim::Process,
        dies!(
            "setsid sh -c '\"$VICTIM\" \"$SECRET\" > up & echo $! > pid; until [ -s up ]; do sleep 0.1; done; \"$@\"' sh \"$@\""
        ),
    ),
    Attack::new("probe-kill", "a signal, from Rust", Program::Probe(&["kill", "{pid}"]), Victim::Process, Plain),
];

const HELD: &[Attack] = &[
    attack!("vm-read", "process_vm_readv", Victim::Memory),
    attack!("mem-read", "/proc/PID/mem", Victim::Memory),
    attack!("proc-cwd", "/proc/PID/cwd", Victim::Memory),
    attack!("proc-root", "/proc/PID/root", Victim::Memory),
    attack!("proc-fd", "/proc/PID/fd", Victim::Memory),
    attack!("proc-task-fd", "/proc/PID/task/TID/fd", Victim::Memory),
    attack!("proc-environ", "/proc/PID/environ", Victim::Memory),
    attack!("pidfd-getfd", "a copy of its descriptor", Victim::Memory),
    Attack::new(
        "every-environ",
        "a token in the environment of any process",
        Program::Shell("cat /proc/[0-9]*/environ /proc/[0-9]*/cmdline | tr '\\0' '\\n'"),
        Victim::Memory,
        Plain,
    ),
];

#[test]
fn p6_no_process_outside_is_touched() {
    assert_eq!(crate::run::all(PROCESSES), "", "each comes through outside and none from inside");
}

#[test]
fn p2_no_process_outside_is_looked_into() {
    assert_eq!(crate::run::all(HELD), "", "each comes through outside and none from inside");
}
