//! The kernel's other doors, and tables that everybody shares.

use crate::table::Control::{Apart, Nobody, Plain, Root, Unprivileged};
use crate::table::{Attack, Control, Program, Victim};

const fn kernel(
    name: &'static str,
    why: &'static str,
    words: &'static [&'static str],
    victim: Victim,
    control: Control,
) -> Attack {
    Attack::new(name, why, Program::C("kernel", words), victim, control)
}

const DOORS: &[Attack] = &[
    kernel("bpf", "OpenShell#578: programs in the kernel", &["bpf", "{name}"], Victim::Descriptor("anon_inode:bpf-map"), Root),
    kernel(
        "perf",
        "performance counters: a long list of faults",
        &["perf", "{name}"],
        Victim::Descriptor("anon_inode:[perf_event]"),
        Plain,
    )
    .or_lacks("kernel.perf_event_paranoid closes it to everybody"),
    kernel(
        "userfault",
        "page faults answered late win races in the kernel",
        &["userfault", "{name}"],
        Victim::Descriptor("anon_inode:[userfaultfd]"),
        Plain,
    )
    .or_lacks("this kernel has no userfaultfd"),
    kernel(
        "uring",
        "io_uring opens and connects where no filter looks",
        &["uring", "{name}"],
        Victim::Descriptor("anon_inode:[io_uring]"),
        Plain,
    )
    .or_lacks("this kernel has no io_uring, or it is off"),
    kernel(
        "fanotify",
        "watches of whole file systems",
        &["fanotify", "{name}"],
        Victim::Descriptor("anon_inode:[fanotify]"),
        Plain,
    )
    .or_lacks("this kernel lets nobody but root watch"),
    kernel(
        "listener",
        "a filter of the agent's own that answers calls before the warden hears of them",
        &["listener", "{name}"],
        Victim::Descriptor("anon_inode:seccomp notify"),
        Plain,
    ),
    kernel("keys", "the user's keyrings are one for all processes", &["keys", "{name}"], Victim::Keys, Plain),
    Attack::new(
        "old-keys",
        "the 32-bit table has other numbers",
        Program::C("calls", &["old-keys", "{name}"]),
        Victim::Keys,
        Plain,
    )
    .or_lacks("this kernel has no 32-bit calls"),
    Attack::new(
        "x32-keys",
        "the x32 table: the same numbers with a bit more",
        Program::C("calls", &["x32-keys", "{name}"]),
        Victim::Keys,
        Plain,
    )
    .or_lacks("this kernel has no x32 calls"),
    kernel("read-key", "a secret in the user's keyring", &["read-key", "{name}"], Victim::Key, Plain),
    kernel("log", "the kernel's log", &["log", "{name}"], Victim::Log, Root),
    kernel("memory", "the machine's memory", &["open", "{name}", "/dev/mem"], Victim::Descriptor("/dev/mem"), Root)
        .or_lacks("this kernel has no /dev/mem"),
    kernel("core", "the kernel's own memory", &["open", "{name}", "/proc/kcore"], Victim::Descriptor("/proc/kcore"), Root)
        .or_lacks("this kernel has no /proc/kcore, or shows it to nobody"),
    kernel("log-device", "the kernel's log as a file", &["open", "{name}", "/dev/kmsg"], Victim::Descriptor("/dev/kmsg"), Root),
    kernel(
        "loop",
        "disks made of files",
        &["open", "{name}", "/dev/loop-control"],
        Victim::Descriptor("/dev/loop-control"),
        Root,
    )
    .or_lacks("this machine has no loop devices"),
    kernel("fuse", "a file system of the agent's own", &["open", "{name}", "/dev/fuse"], Victim::Descriptor("/dev/fuse"), Plain)
        .or_lacks("/dev/fuse is closed to this user, or not there"),
    kernel(
        "host-name",
        "the machine's name",
        &["host-name", "{name}"],
        Victim::Setting("/proc/sys/kernel/hostname"),
        Apart("before=$(hostname); \"$@\"; [ \"$(hostname)\" = \"$before\" ] || { echo; echo fell; }"),
    ),
    kernel(
        "domain-name",
        "its domain",
        &["domain-name", "{name}"],
        Victim::Setting("/proc/sys/kernel/domainname"),
        Apart("\"$@\"; [ \"$(cat /proc/sys/kernel/domainname)\" = taken ] && { echo; echo fell; }"),
    ),
    kernel(
        "setting",
        "a setting below /proc/sys",
        &["setting", "{name}", "/proc/sys/net/ipv4/ip_default_ttl"],
        Victim::Setting("/proc/sys/net/ipv4/ip_default_ttl"),
        Apart("\"$@\"; [ \"$(cat /proc/sys/net/ipv4/ip_default_ttl)\" = 7 ] && { echo; echo fell; }"),
    ),
    kernel(
        "quota-setting",
        "the jail's own bounds",
        &["setting", "{name}", "/proc/sys/user/max_user_namespaces"],
        Victim::Setting("/proc/sys/user/max_user_namespaces"),
        Apart("\"$@\"; [ \"$(cat /proc/sys/user/max_user_namespaces)\" = 7 ] && { echo; echo fell; }"),
    ),
    Attack::new(
        "dump",
        "a core dump goes where the machine's handler is, as root",
        Program::C("kernel", &["dump", "{name}"]),
        Victim::Dump,
        Plain,
    )
    .or_lacks("core files go to a handler on this machine"),
];

/// In a throw-away user namespace with small tables the program takes all, and whoever comes then gets none.
macro_rules! taken {
    ($limits:literal) => {
        Apart(concat!(
            $limits,
            "; w() { until grep -q holding \"$1\"; do sleep 0.1; done; }; \"$@\" > said & w said; \"$1\" \"$2\" 1 > mine & w mine; \
             grep -q 'took 0:' mine && { echo; echo fell; }; cat said; kill %1 %2 2>/dev/null"
        ))
    };
}

const fn quota(
    name: &'static str,
    why: &'static str,
    words: &'static [&'static str],
    victim: Victim,
    control: Control,
) -> Attack {
    Attack::new(name, why, Program::C("quotas", words), victim, control)
}

const QUOTAS: &[Attack] = &[
    quota("processes", "a fork bomb, of daemons", &["processes", "300"], Victim::Processes(70), Plain),
    quota("threads-of-daemons", "likewise, by vfork and exec", &["threads-of-daemons", "200"], Victim::Processes(70), Plain),
    quota("descriptors", "open files", &["descriptors", "900"], Victim::Descriptors(710), Plain)
        .or_lacks("the machine itself allows no more than that"),
    quota(
        "inotify",
        "instances of watches: 128 of a user's",
        &["inotify", "1000"],
        Victim::Table("inotify"),
        taken!("echo 40 > /proc/sys/user/max_inotify_instances"),
    ),
    quota(
        "queues",
        "POSIX message queues: 800 kB of a user's",
        &["queues", "1000"],
        Victim::Table("queues"),
        taken!("echo 1000 > /proc/sys/fs/mqueue/queues_max"),
    ),
    quota(
        "signals",
        "signals that wait",
        &["signals", "1000000"],
        Victim::Table("signals"),
        taken!("prlimit --pid $$ --sigpending=200:200"),
    ),
    quota(
        "locked",
        "locked memory: 8 MiB of a user's",
        &["locked", "10000"],
        Victim::Table("locked"),
        taken!("prlimit --pid $$ --memlock=2097152:2097152"),
    ),
    quota(
        "in-flight",
        "descriptors sent and never taken: as many of a user's as one process may have open",
        // Fewer than other tests of the same user may have: they send descriptors too.
        &["in-flight", "900"],
        Victim::Table("in-flight"),
        taken!("prlimit --pid $$ --nofile=60:60"),
    ),
    quota("huge-pages", "the machine's huge pages", &["huge-pages", "1000"], Victim::HugePages, Root),
    quota(
        "shared-memory",
        "System V objects that others meet by their keys",
        &["shared-memory", "0"],
        Victim::Shared,
        Apart(
            "\"$@\" > said & until grep -q holding said; do sleep 0.1; done; grep -q 1095912523 /proc/sysvipc/shm && { echo; echo fell; }; kill %1 2>/dev/null",
        ),
    ),
];

const RIGHTS: &[Attack] = &[
    Attack::new(
        "set-uid",
        "a set-uid program of the system's",
        Program::Shell("{shown}/set-uid rights {name}"),
        Victim::Rights,
        Nobody,
    ),
    Attack::new(
        "file-capability",
        "a program with capabilities",
        Program::Shell("{shown}/capable rights {name}"),
        Victim::Rights,
        Nobody,
    ),
    Attack::new(
        "replace-exe",
        "CVE-2019-5736: the program file of whoever confines",
        Program::C("calls", &["replace-exe", "{name}", "{pid}", "{runtime}"]),
        Victim::Runtime,
        Plain,
    ),
    Attack::new(
        "own-namespace-rights",
        "uid 0 of one's own",
        Program::Shell("unshare -Ur sh -c 'echo; echo holding; sleep 20'"),
        Victim::Rights,
        Unprivileged,
    ),
];

#[test]
fn p6_no_other_door_of_the_kernel_opens() {
    assert_eq!(crate::run::all(DOORS), "", "each comes through outside and none from inside");
}

#[test]
fn p6_no_shared_table_is_used_up() {
    assert_eq!(crate::run::all(QUOTAS), "", "each comes through outside and none from inside");
}

#[test]
fn p6_nobody_gains_a_right() {
    assert_eq!(crate::run::all(RIGHTS), "", "each comes through outside and none from inside");
}
