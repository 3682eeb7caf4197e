//! What the lists in `policies/seccomp` say, for both architectures, on whichever this runs.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod list;
mod vain;

use super::{ENOSYS, aarch64, x86_64};
use list::{Call, Lists, decided};
use std::collections::BTreeMap;
use sys::bpf::{Action, Entry, Program, Table};

/// Of each architecture: its name, `AUDIT_ARCH_*`, and the tables that `build.rs` made.
const COMPILED: [(&str, u32, &[Entry], &[Entry]); 2] =
    [("x86_64", x86_64::ARCH, x86_64::CONFINE, x86_64::NOTIFY), ("aarch64", aarch64::ARCH, aarch64::CONFINE, aarch64::NOTIFY)];
/// As [`COMPILED`], where namespaces may be made inside.
const NESTED: [(&str, u32, &[Entry], &[Entry]); 2] = [
    ("x86_64", x86_64::ARCH, x86_64::CONFINE_NESTED, x86_64::NOTIFY),
    ("aarch64", aarch64::ARCH, aarch64::CONFINE_NESTED, aarch64::NOTIFY),
];
/// As [`COMPILED`], where a jail has no namespaces.
const FALLBACK: [(&str, u32, &[Entry], &[Entry]); 2] = [
    ("x86_64", x86_64::ARCH, x86_64::CONFINE_FALLBACK, x86_64::NOTIFY_FALLBACK),
    ("aarch64", aarch64::ARCH, aarch64::CONFINE_FALLBACK, aarch64::NOTIFY_FALLBACK),
];

fn confine(arch: u32, entries: &[Entry]) -> Program {
    Program::assemble(&Table { arch, entries, unlisted: Action::Errno(ENOSYS) }).unwrap()
}

fn observe(arch: u32, entries: &[Entry]) -> Program {
    Program::assemble(&Table { arch, entries, unlisted: Action::Allow }).unwrap()
}

/// The kernel's own numbers and names, up to the last that this list has.
fn kernels(arch: &str) -> BTreeMap<u32, &'static str> {
    let name = |number: usize| match arch {
        "x86_64" => syscalls::x86_64::Sysno::new(number).map(|call| call.name()),
        _ => syscalls::aarch64::Sysno::new(number).map(|call| match call.name() {
            // One call, two names in the kernel's sources.
            "fstatat" => "newfstatat",
            name => name,
        }),
    };
    // Calls with 64-bit times for machines of 32 bits; no other machine has these numbers.
    let of_32_bits = |number: &u32| (403..=423).contains(number);
    let numbers = (0..2000).filter(|number| !of_32_bits(number));
    numbers.filter_map(|number| Some((number, name(usize::try_from(number).ok()?)?))).collect()
}

#[test]
fn every_call_of_the_kernel_is_listed_and_no_other() {
    for lists in Lists::both() {
        let listed: BTreeMap<u32, &str> = lists.calls.iter().map(|call| (call.number, call.name.as_str())).collect();
        assert_eq!(listed.len(), lists.calls.len(), "{}: no number is listed twice", lists.arch);
        let kernels = kernels(lists.arch);
        assert!(kernels.len() > 300, "the kernel's own list is whole");
        assert_eq!(listed, kernels, "{}: Linux {} has these calls", lists.arch, lists.kernel);
    }
}

#[test]
fn what_is_compiled_decides_as_the_list_says() {
    let mut tried = 0;
    let (nested, fallback) = (Lists::both().map(Lists::nested), Lists::both().map(Lists::fallback));
    let lists = Lists::both();
    let compiled = COMPILED.into_iter().chain(NESTED).chain(FALLBACK);
    for (lists, (arch, audit, entries, _)) in lists.iter().chain(&nested).chain(&fallback).zip(compiled) {
        assert_eq!(lists.arch, arch);
        let program = confine(audit, entries);
        let listed: BTreeMap<u32, &Call> = lists.calls.iter().map(|call| (call.number, call)).collect();
        let beyond = [1000, 0x3fff_ffff, 0x4000_0000, 0x7fff_ffff, 0x8000_0000, u32::MAX];
        // Calls of x32 carry bit 30.
        for number in (0..700).chain(beyond).flat_map(|n| [n, n | 0x4000_0000]) {
            let call = listed.get(&number);
            for args in call.map_or_else(|| vec![[0; 6]], |call| call.points()) {
                let want = call.map_or(Action::Errno(ENOSYS), |call| decided(call.decide(&args)));
                // The kernel reads these arguments as 32 bits, so what stands above them must not decide.
                for above in [0, 1 << 32, 0xdead_beef << 32] {
                    let args = args.map(|low| u64::from(low) | above);
                    let (value, _) = program.run(audit, number, args).unwrap();
                    assert_eq!(value, want.value(), "{arch}: {number} ({:?}) with {args:x?}", call.map(|c| &c.name));
                    tried += 1;
                }
            }
            for other in [sys::bpf::X86_64, sys::bpf::AARCH64, 0x4000_0003, 0x4000_0028, 0, u32::MAX] {
                if other != audit {
                    let (value, _) = program.run(other, number, [0; 6]).unwrap();
                    assert_eq!(value, Action::Kill.value(), "{arch}: {number} of architecture {other:#x} means another call");
                }
            }
        }
    }
    println!("{tried} calls were tried against both tables");
    assert!(tried > 10_000, "{tried}");
}

#[test]
fn what_is_told_is_what_the_list_says() {
    let fallback = Lists::both().map(Lists::fallback);
    for (lists, (arch, audit, _, entries)) in Lists::both().iter().chain(&fallback).zip(COMPILED.into_iter().chain(FALLBACK)) {
        let program = observe(audit, entries);
        for call in &lists.calls {
            let told = lists.told.iter().find(|told| told.name == call.name);
            for args in told.map_or_else(|| vec![[0; 6]], |told| told.points()) {
                let want = told.is_some_and(|told| told.told(&args));
                let (value, _) = program.run(audit, call.number, args.map(u64::from)).unwrap();
                let want = if want { Action::Notify } else { Action::Allow };
                assert_eq!(value, want.value(), "{arch}: {} with {args:x?}", call.name);
            }
        }
    }
}

/// Of each: name, arguments, and the error, or 0 where the call goes on. Written by hand, so that a list that changes by
/// mistake is noticed; without a number, as the two architectures number differently.
const BY_HAND: &[(&str, [u32; 6], u16)] = &[
    ("socket", [1, 1, 0, 0, 0, 0], 0),
    ("socket", [2, 1, 0, 0, 0, 0], 0),
    ("socket", [2, 0x80801, 6, 0, 0, 0], 0),
    ("socket", [10, 2, 17, 0, 0, 0], 0),
    ("socket", [2, 2, 1, 0, 0, 0], 93),
    ("socket", [2, 1, 262, 0, 0, 0], 93),
    ("socket", [2, 1, 132, 0, 0, 0], 93),
    ("socket", [10, 2, 136, 0, 0, 0], 93),
    ("socket", [2, 1, 256, 0, 0, 0], 93),
    ("socket", [2, 3, 6, 0, 0, 0], 1),
    ("socket", [10, 3, 58, 0, 0, 0], 1),
    ("socket", [2, 5, 132, 0, 0, 0], 1),
    ("socket", [2, 6, 33, 0, 0, 0], 1),
    ("socket", [2, 10, 0x0300, 0, 0, 0], 1),
    ("socket", [16, 3, 0, 0, 0, 0], 0),
    ("socket", [16, 3, 2, 0, 0, 0], 97),
    ("socket", [16, 3, 12, 0, 0, 0], 97),
    ("socket", [17, 3, 0x0300, 0, 0, 0], 97),
    ("socket", [38, 5, 0, 0, 0, 0], 97),
    ("socket", [40, 1, 0, 0, 0, 0], 97),
    ("socket", [43, 1, 0, 0, 0, 0], 97),
    ("socket", [44, 3, 0, 0, 0, 0], 97),
    ("socketpair", [1, 1, 0, 0, 0, 0], 0),
    ("socketpair", [30, 1, 0, 0, 0, 0], 97),
    ("sendto", [3, 0, 0, 0x4000, 0, 0], 0),
    ("sendto", [3, 0, 0, 0x2000_4000, 0, 0], 95),
    ("sendmsg", [3, 0, 0x2000_0000, 0, 0, 0], 95),
    ("sendmmsg", [3, 0, 1, 0x2000_0000, 0, 0], 95),
    ("setsockopt", [3, 6, 30, 0, 0, 0], 92),
    ("setsockopt", [3, 6, 31, 0, 0, 0], 92),
    ("setsockopt", [3, 41, 32, 0, 0, 0], 92),
    ("setsockopt", [3, 1, 30, 0, 0, 0], 0),
    ("setsockopt", [3, 6, 1, 0, 0, 0], 0),
    ("setsockopt", [3, 0, 32, 0, 0, 0], 0),
    ("setsockopt", [3, 41, 26, 0, 0, 0], 0),
    ("clone", [0x11, 0, 0, 0, 0, 0], 0),
    ("clone", [0x003d_0f00, 0, 0, 0, 0, 0], 0),
    ("clone", [0x1000_0011, 0, 0, 0, 0, 0], 1),
    ("clone", [0x0002_0011, 0, 0, 0, 0, 0], 1),
    ("clone", [0x91, 0, 0, 0, 0, 0], 1),
    ("clone3", [0; 6], ENOSYS),
    ("unshare", [0; 6], 1),
    ("mount", [0; 6], 1),
    ("open_tree_attr", [0; 6], 1),
    ("io_uring_setup", [0; 6], ENOSYS),
    ("openat", [0, 0, 0x41, 0o2666, 0, 0], 1),
    ("openat", [0, 0, 0x41_0001, 0o4755, 0, 0], 1),
    ("openat", [0, 0, 0x41, 0o1666, 0, 0], 0),
    // Without a file to be made nobody has to say a mode.
    ("openat", [0, 0, 0, 0o6777, 0, 0], 0),
    ("openat2", [0; 6], ENOSYS),
    ("mknodat", [0, 0, 0o100_4755, 0, 0, 0], 1),
    ("mknodat", [0, 0, 0x1180, 0, 0, 0], 0),
    ("mknodat", [0, 0, 0x2180, 0x103, 0, 0], 1),
    ("mknodat", [0, 0, 0x6180, 0x800, 0, 0], 1),
    // The kernel takes 16 bits of a mode.
    ("mknodat", [0, 0, 0x0001_2180, 0x103, 0, 0], 1),
    ("personality", [0xffff_ffff, 0, 0, 0, 0, 0], 0),
    ("personality", [8, 0, 0, 0, 0, 0], 1),
    ("ioctl", [0, 0x5412, 0, 0, 0, 0], 1),
    ("ioctl", [0, 0x5413, 0, 0, 0, 0], 0),
    ("fcntl", [0, 1024, 0, 0, 0, 0], 22),
    ("fcntl", [0, 1030, 0, 0, 0, 0], 0),
    ("ptrace", [0; 6], 0),
    ("keyctl", [0; 6], 1),
    ("bpf", [0; 6], 1),
    ("execve", [0; 6], 0),
];

#[test]
fn calls_that_matter_are_decided_as_written_by_hand_on_both() {
    for (lists, (arch, audit, entries, _)) in Lists::both().iter().zip(COMPILED) {
        let program = confine(audit, entries);
        for (name, args, error) in BY_HAND {
            let number = lists.call(name).unwrap_or_else(|| panic!("{arch} has {name}")).number;
            let want = if *error == 0 { Action::Allow } else { Action::Errno(*error) };
            let (value, _) = program.run(audit, number, args.map(u64::from)).unwrap();
            assert_eq!(value, want.value(), "{arch}: {name} with {args:x?}");
        }
    }
}

/// As [`BY_HAND`], where namespaces may be made inside.
const BY_HAND_NESTED: &[(&str, [u32; 6], u16)] = &[
    // NEWUSER with NEWPID and NEWNET, as a browser makes them.
    ("clone", [0x7000_0011, 0, 0, 0, 0, 0], 0),
    ("clone", [0x1002_0011, 0, 0, 0, 0, 0], 1),
    ("clone", [0x1800_0011, 0, 0, 0, 0, 0], 1),
    ("clone", [0x1400_0011, 0, 0, 0, 0, 0], 1),
    ("clone", [0x1200_0011, 0, 0, 0, 0, 0], 1),
    ("clone", [0x1000_0091, 0, 0, 0, 0, 0], 1),
    ("clone3", [0; 6], ENOSYS),
    ("unshare", [0x7000_0000, 0, 0, 0, 0, 0], 0),
    ("unshare", [0x1002_0000, 0, 0, 0, 0, 0], 1),
    ("setns", [0; 6], 1),
    ("chroot", [0; 6], 0),
    ("mount", [0; 6], 1),
    ("umount2", [0; 6], 1),
    ("pivot_root", [0; 6], 1),
    ("open_tree", [0; 6], 1),
    ("move_mount", [0; 6], 1),
    ("fsopen", [0; 6], 1),
    ("fsmount", [0; 6], 1),
    ("mount_setattr", [0; 6], 1),
    ("socket", [16, 3, 12, 0, 0, 0], 97),
    ("socket", [17, 3, 0x0300, 0, 0, 0], 97),
    ("bpf", [0; 6], 1),
];

#[test]
fn p6_nested_opens_three_calls_and_no_mount() {
    for (lists, ((arch, audit, entries, _), (_, _, usual, _))) in Lists::both().iter().zip(NESTED.into_iter().zip(COMPILED)) {
        let program = confine(audit, entries);
        for (name, args, error) in BY_HAND_NESTED {
            let number = lists.call(name).unwrap_or_else(|| panic!("{arch} has {name}")).number;
            let want = if *error == 0 { Action::Allow } else { Action::Errno(*error) };
            let (value, _) = program.run(audit, number, args.map(u64::from)).unwrap();
            assert_eq!(value, want.value(), "{arch}: {name} with {args:x?}");
        }
        let differ = usual.iter().zip(entries).filter(|(a, b)| a != b).map(|(a, _)| a.number);
        let name = |number| lists.calls.iter().find(|call| call.number == number).unwrap().name.as_str();
        let mut differ: Vec<&str> = differ.map(name).collect();
        differ.sort_unstable();
        assert_eq!(differ, ["chroot", "clone", "unshare"], "{arch}");
    }
}

/// As [`BY_HAND`], where a jail has no namespaces.
const BY_HAND_FALLBACK: &[(&str, [u32; 6], u16)] = &[
    ("socket", [1, 1, 0, 0, 0, 0], 0),
    ("socket", [1, 5, 0, 0, 0, 0], 0),
    ("socket", [1, 2, 0, 0, 0, 0], 1),
    // What SOCK_RAW of AF_UNIX is.
    ("socket", [1, 3, 0, 0, 0, 0], 1),
    ("socket", [2, 0x80801, 6, 0, 0, 0], 0),
    ("socket", [10, 1, 0, 0, 0, 0], 0),
    ("socket", [2, 2, 0, 0, 0, 0], 1),
    ("socket", [10, 2, 17, 0, 0, 0], 1),
    ("socket", [2, 1, 262, 0, 0, 0], 1),
    ("socket", [16, 3, 0, 0, 0, 0], 0),
    ("socket", [16, 3, 2, 0, 0, 0], 97),
    ("socketpair", [1, 1, 0, 0, 0, 0], 0),
    ("socketpair", [1, 2, 0, 0, 0, 0], 1),
    ("shmget", [0; 6], ENOSYS),
    ("msgsnd", [0; 6], ENOSYS),
    ("semtimedop", [0; 6], ENOSYS),
    ("mq_open", [0; 6], ENOSYS),
    ("openat", [0, 0, 0x8_0000, 0, 0, 0], 0),
    ("openat", [0, 0, 0x241, 0, 0, 0], 0),
    ("openat", [0, 0, 0x241, 0o2666, 0, 0], 1),
    ("openat", [0, 0, 0x200, 0, 0, 0], 22),
    ("openat", [0, 0, 0x8_0240, 0, 0, 0], 22),
    ("openat", [0, 0, 3, 0, 0, 0], 22),
    ("openat2", [0; 6], ENOSYS),
    ("truncate", [0; 6], 1),
    ("setxattr", [0; 6], 95),
    ("fremovexattr", [0; 6], 95),
    ("file_setattr", [0; 6], 95),
    ("fchown", [0; 6], 1),
    ("ioctl", [0, 0x5401, 0, 0, 0, 0], 0),
    ("ioctl", [0, 0x5412, 0, 0, 0, 0], 1),
    // FS_IOC_SETFLAGS, FS_IOC_FSSETXATTR, FS_IOC_ENABLE_VERITY.
    ("ioctl", [0, 0x4008_6602, 0, 0, 0, 0], 25),
    ("ioctl", [0, 0x401c_5820, 0, 0, 0, 0], 25),
    ("ioctl", [0, 0x4080_6685, 0, 0, 0, 0], 25),
    ("ioctl", [0, 0x4004_9409, 0, 0, 0, 0], 0),
    ("ioctl", [0, 0x8912, 0, 0, 0, 0], 0),
    // A driver's own.
    ("ioctl", [0, 0x89f0, 0, 0, 0, 0], 25),
    ("setsockopt", [0, 1, 2, 0, 0, 0], 0),
    ("setsockopt", [0, 6, 1, 0, 0, 0], 0),
    ("setsockopt", [0, 6, 30, 0, 0, 0], 92),
    // SO_BINDTODEVICE; IP_OPTIONS, IP_TRANSPARENT; IPV6_RTHDR, IPV6_ADDRFORM; NETLINK_ADD_MEMBERSHIP.
    ("setsockopt", [0, 1, 25, 0, 0, 0], 92),
    ("setsockopt", [0, 0, 4, 0, 0, 0], 92),
    ("setsockopt", [0, 0, 19, 0, 0, 0], 92),
    ("setsockopt", [0, 41, 57, 0, 0, 0], 92),
    ("setsockopt", [0, 41, 1, 0, 0, 0], 92),
    ("setsockopt", [0, 41, 26, 0, 0, 0], 0),
    ("setsockopt", [0, 270, 1, 0, 0, 0], 92),
    ("setsockopt", [0, 263, 1, 0, 0, 0], 92),
    ("setpriority", [0; 6], 0),
    ("setpriority", [0, 77, 0, 0, 0, 0], 1),
    ("setpriority", [2, 0, 0, 0, 0, 0], 1),
    ("prlimit64", [0; 6], 0),
    ("prlimit64", [77, 0, 0, 0, 0, 0], 1),
    ("sched_setattr", [77, 0, 0, 0, 0, 0], 1),
    ("ioprio_set", [1, 0, 0, 0, 0, 0], 0),
    ("ioprio_set", [3, 0, 0, 0, 0, 0], 1),
    ("chmod", [0, 0o4755, 0, 0, 0, 0], 1),
    ("unshare", [0; 6], 1),
    ("clone3", [0; 6], ENOSYS),
    ("io_uring_setup", [0; 6], ENOSYS),
];

#[test]
fn p6_without_namespaces_calls_are_decided_as_written_by_hand_and_some_are_made_outside() {
    for (lists, (arch, audit, entries, told)) in Lists::both().iter().zip(FALLBACK) {
        let (program, observer) = (confine(audit, entries), observe(audit, told));
        for (name, args, error) in BY_HAND_FALLBACK {
            // aarch64 has no older spellings.
            let Some(call) = lists.call(name) else { continue };
            let want = if *error == 0 { Action::Allow } else { Action::Errno(*error) };
            let (value, _) = program.run(audit, call.number, args.map(u64::from)).unwrap();
            assert_eq!(value, want.value(), "{arch}: {name} with {args:x?}");
        }
        let mut made = 0;
        for name in ["connect", "bind", "listen", "chmod", "fchmod", "fchmodat", "fchmodat2", "utimensat"] {
            let Some(call) = lists.call(name) else { continue };
            for args in [[0; 6], [u64::MAX; 6]] {
                assert_eq!(observer.run(audit, call.number, args).unwrap().0, Action::Notify.value(), "{arch}: {name} waits");
            }
            made += 1;
        }
        assert!(made >= 7, "{arch}: {made}");
    }
}

#[test]
fn finding_a_call_takes_a_search_and_no_walk() {
    for (arch, audit, confined, told) in COMPILED {
        for (name, program) in [("confine", confine(audit, confined)), ("observe", observe(audit, told))] {
            let longest = (0..500).map(|number| program.run(audit, number, [0; 6]).unwrap().1).max().unwrap();
            println!("{arch} {name}: {} instructions, at most {longest} for a call", program.instructions().len());
            assert!(longest <= 40, "{arch} {name}: {longest} instructions for one call");
            assert!(program.instructions().len() < 1000, "{arch} {name}: {} instructions", program.instructions().len());
        }
    }
}
