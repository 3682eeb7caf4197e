//! Attacks whose control changes the whole machine: only in a guest that was booted to be broken.

use crate::table::Control::Root;
use crate::table::{Attack, Program, Victim};
use std::process::{Command, Stdio};
use testkit::not_tested_here;

/// A word on the kernel's command line, which no machine of a person's has.
const MAY_BE_BROKEN: &str = "airlock.breakable=1";

const fn kernel(name: &'static str, why: &'static str, words: &'static [&'static str], victim: Victim) -> Attack {
    Attack::new(name, why, Program::C("kernel", words), victim, Root)
}

macro_rules! setting {
    ($name:literal, $why:literal, $file:literal) => {
        kernel($name, $why, &["setting", "{name}", $file], Victim::Setting($file))
    };
}

const DUMPED: &str = "/var/airlock-dumped";

const MACHINE: &[Attack] = &[
    setting!("core-pattern", "runs a program as root, outside, at the next crash", "/proc/sys/kernel/core_pattern"),
    setting!("modprobe", "runs a program as root, outside, for the next unknown format", "/proc/sys/kernel/modprobe"),
    setting!("hotplug", "likewise, at the next device", "/proc/sys/kernel/hotplug")
        .or_lacks("this kernel calls no helper for devices"),
    setting!("uevent-helper", "likewise", "/sys/kernel/uevent_helper").or_lacks("this kernel calls no helper for devices"),
    setting!("panic", "what a panic does", "/proc/sys/kernel/panic"),
    setting!("sysrq", "which magic keys there are", "/proc/sys/kernel/sysrq"),
    setting!("swappiness", "how memory is kept", "/proc/sys/vm/swappiness"),
    setting!("ctrl-alt-del", "what three keys do", "/proc/sys/kernel/ctrl-alt-del").or_lacks("the value is what it was"),
    setting!("ksm", "a setting in /sys", "/sys/kernel/mm/ksm/pages_to_scan").or_lacks("this kernel merges no pages"),
    setting!("trace", "what the kernel traces", "/sys/kernel/debug/tracing/buffer_size_kb").or_lacks("nothing is mounted there"),
    Attack::new(
        "sysrq-trigger",
        "a magic key: the mildest, which says how much the console shows",
        Program::Shell("echo 3 > /proc/sysrq-trigger; echo 6 > /proc/sysrq-trigger"),
        Victim::Setting("/proc/sys/kernel/printk"),
        Root,
    )
    .or_lacks("this kernel has no magic keys"),
    Attack::new(
        "release-agent",
        "CVE-2022-0492: the kernel starts what a cgroup names, as root, outside, when its last process ends",
        Program::Shell(
            "work='mkdir -p {shared}/cg; mount -t cgroup -o none,name=airlock none {shared}/cg; for cg in {shared}/cg /sys/fs/cgroup /sys/fs/cgroup/*; do \
             echo {shared}/agent > $cg/release_agent && mkdir $cg/x && echo 1 > $cg/x/notify_on_release && sh -c \"echo \\$\\$ > $cg/x/cgroup.procs\"; done'; \
             printf '#!/bin/sh\necho fell >> {file}\n' > {shared}/agent; chmod 755 {shared}/agent; unshare --mount sh -c \"$work\" || sh -c \"$work\"; sleep 0.5",
        ),
        Victim::File,
        Root,
    ),
    kernel("clock", "the machine's clock", &["clock", "{name}"], Victim::Clock),
    kernel(
        "reboot",
        "reboot: the mildest, what three keys do",
        &["reboot", "{name}"],
        Victim::Setting("/proc/sys/kernel/ctrl-alt-del"),
    ),
    kernel("next-kernel", "another kernel", &["next-kernel", "{name}"], Victim::Setting("/sys/kernel/kexec_loaded"))
        .or_lacks("this kernel starts no other"),
    kernel("account", "an account of every process, into a file", &["account", "{name}", "{file}"], Victim::File)
        .or_lacks("this kernel keeps no accounts"),
    Attack::new(
        "module",
        "code in the kernel",
        Program::Shell("m=$(find /lib/modules/ /usr/lib/modules/ -name 'dummy.ko*' | head -1); insmod \"$m\" || modprobe dummy"),
        Victim::Setting("/sys/module/dummy/refcnt"),
        Root,
    )
    .or_lacks("this kernel has no such module"),
    Attack::new(
        "swap",
        "swap into a file of the agent's",
        Program::Shell("dd if=/dev/zero of=swap bs=4096 count=64 2>/dev/null; chmod 600 swap; mkswap swap; swapon \"$PWD/swap\""),
        Victim::Setting("/proc/swaps"),
        Root,
    )
    .or_lacks("this file system holds no swap"),
    kernel(
        "dump-to-handler",
        "a crash hands what the program wrote to the machine's handler, as root, outside",
        &["dump", "{name}"],
        Victim::Setting(DUMPED),
    ),
];

/// What single attacks need of the machine.
pub(crate) fn prepare(attack: &Attack) {
    if !may_be_broken() {
        return;
    }
    let quietly = |program: &str, words: &[&str]| {
        // What is not there needs not be taken away.
        drop(Command::new(program).args(words).stdout(Stdio::null()).stderr(Stdio::null()).status());
    };
    match attack.name {
        "dump-to-handler" => {
            drop(std::fs::remove_file(DUMPED));
            drop(std::fs::write("/proc/sys/kernel/core_pattern", format!("|/usr/bin/touch {DUMPED}")));
        }
        "module" => quietly("rmmod", &["dummy"]),
        "sysrq-trigger" => quietly("/bin/sh", &["-c", "echo 1 > /proc/sys/kernel/sysrq; echo 5 > /proc/sysrq-trigger"]),
        "reboot" => drop(std::fs::write("/proc/sys/kernel/ctrl-alt-del", "0")),
        "next-kernel" => quietly(crate::compile::program("kernel").to_str().unwrap(), &["no-next-kernel", "-"]),
        _ => {}
    }
}

fn may_be_broken() -> bool {
    std::fs::read_to_string("/proc/cmdline").is_ok_and(|words| words.split_whitespace().any(|w| w == MAY_BE_BROKEN))
}

#[test]
fn p6_nothing_changes_the_machine() {
    if !may_be_broken() {
        return not_tested_here("a machine that may be broken");
    }
    assert_eq!(crate::run::all(MACHINE), "", "each comes through outside and none from inside");
}
