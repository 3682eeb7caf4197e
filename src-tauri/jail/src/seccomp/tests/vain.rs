//! Rules that say nothing: each piece of each rule is taken away, and something must then be decided otherwise.

use super::list::{Call, Lists, Told};
use serde_json::{Value, json};

/// Calls of one meaning that are decided differently, and why that is right.
const DIFFER: &[(&str, &str, &str)] = &[
    ("open", "openat2", "a mode in memory, where a filter can't see it"),
    ("openat", "openat2", "likewise"),
    ("clone", "clone3", "the flags of clone3 lie in memory"),
];

/// Calls that do the same thing with other arguments: (name, which argument is the first that they share).
const SAME: &[&[(&str, usize)]] = &[
    &[("read", 0), ("readv", 0), ("pread64", 0), ("preadv", 0), ("preadv2", 0)],
    &[("write", 0), ("writev", 0), ("pwrite64", 0), ("pwritev", 0), ("pwritev2", 0)],
    &[("open", 0), ("openat", 1)],
    &[("stat", 0), ("lstat", 0), ("fstat", 0), ("newfstatat", 1), ("statx", 1)],
    &[("chmod", 0), ("fchmod", 0), ("fchmodat", 1), ("fchmodat2", 1)],
    &[("chown", 0), ("lchown", 0), ("fchown", 0), ("fchownat", 1)],
    &[("utime", 0), ("utimes", 0), ("futimesat", 1), ("utimensat", 1)],
    &[("access", 0), ("faccessat", 1), ("faccessat2", 1)],
    &[("mkdir", 0), ("mkdirat", 1)],
    &[("mknod", 0), ("mknodat", 1)],
    &[("link", 0), ("linkat", 1)],
    &[("symlink", 0), ("symlinkat", 0)],
    &[("unlink", 0), ("unlinkat", 1), ("rmdir", 0)],
    &[("rename", 0), ("renameat", 1), ("renameat2", 1)],
    &[("truncate", 0), ("ftruncate", 0)],
    &[("setxattr", 0), ("lsetxattr", 0), ("fsetxattr", 0), ("setxattrat", 1), ("file_setattr", 1)],
    &[("removexattr", 0), ("lremovexattr", 0), ("fremovexattr", 0), ("removexattrat", 1)],
    &[("getxattr", 0), ("lgetxattr", 0), ("fgetxattr", 0), ("getxattrat", 1), ("file_getattr", 1)],
    &[("listxattr", 0), ("llistxattr", 0), ("flistxattr", 0), ("listxattrat", 1)],
    &[
        ("mount", 0),
        ("umount2", 0),
        ("pivot_root", 0),
        ("chroot", 0),
        ("open_tree", 0),
        ("open_tree_attr", 0),
        ("move_mount", 0),
        ("fsopen", 0),
        ("fsconfig", 0),
        ("fsmount", 0),
        ("fspick", 0),
        ("mount_setattr", 0),
    ],
    &[("statmount", 0), ("listmount", 0)],
    &[("unshare", 0), ("setns", 0)],
    &[("init_module", 0), ("finit_module", 0), ("delete_module", 0)],
    &[("kexec_load", 0), ("kexec_file_load", 0), ("reboot", 0)],
    &[("settimeofday", 0), ("clock_settime", 0), ("adjtimex", 0), ("clock_adjtime", 0)],
    &[("swapon", 0), ("swapoff", 0), ("acct", 0), ("quotactl", 0), ("quotactl_fd", 0)],
    &[("add_key", 0), ("request_key", 0), ("keyctl", 0)],
    &[("io_setup", 0), ("io_destroy", 0), ("io_submit", 0), ("io_cancel", 0), ("io_getevents", 0), ("io_pgetevents", 0)],
    &[("io_uring_setup", 0), ("io_uring_enter", 0), ("io_uring_register", 0)],
    &[("fanotify_init", 0), ("fanotify_mark", 0)],
    &[("sethostname", 0), ("setdomainname", 0)],
    &[("iopl", 0), ("ioperm", 0)],
    // The flags: argument 3 of sendto and sendmmsg, 2 of sendmsg.
    &[("sendto", 1), ("sendmmsg", 1), ("sendmsg", 0)],
    &[("recvfrom", 0), ("recvmsg", 0), ("recvmmsg", 0)],
    &[("accept", 0), ("accept4", 0), ("connect", 0), ("bind", 0), ("listen", 0)],
    &[("execve", 0), ("execveat", 1)],
    &[("fork", 0), ("vfork", 0)],
    &[("process_vm_readv", 0), ("process_vm_writev", 0), ("ptrace", 0), ("pidfd_getfd", 0), ("process_madvise", 0)],
    &[("kill", 0), ("tkill", 0), ("tgkill", 0), ("rt_sigqueueinfo", 0), ("rt_tgsigqueueinfo", 0), ("pidfd_send_signal", 0)],
    &[("futex", 0), ("futex_wait", 0), ("futex_wake", 0), ("futex_requeue", 0), ("futex_waitv", 0)],
    &[("setrlimit", 0), ("prlimit64", 0)],
    &[("sched_setparam", 0), ("sched_setscheduler", 0), ("sched_setattr", 0), ("setpriority", 0)],
    &[("mbind", 0), ("set_mempolicy", 0), ("set_mempolicy_home_node", 0), ("migrate_pages", 0), ("move_pages", 0)],
    &[("landlock_create_ruleset", 0), ("landlock_add_rule", 0), ("landlock_restrict_self", 0), ("seccomp", 0)],
    &[("lsm_get_self_attr", 0), ("lsm_list_modules", 0)],
];

/// Calls that change the same thing in the file system or start the same thing; if one is told, all are.
const TOLD_ALIKE: &[&[&str]] = &[
    &["execve", "execveat"],
    &["open", "openat", "creat"],
    &["mkdir", "mkdirat", "mknod", "mknodat", "link", "linkat", "symlink", "symlinkat"],
    &["unlink", "unlinkat", "rmdir"],
    &["rename", "renameat", "renameat2"],
];

/// Endings that make another call of a call.
const ENDINGS: &[&str] = &["at", "at2", "2", "3", "4", "1", "64", "_fd", "_attr", "v", "v2", "_file"];

#[test]
fn no_rule_is_in_vain() {
    let both = Lists::both();
    for lists in both.iter().chain(&Lists::both().map(Lists::nested)) {
        let found: Vec<String> = lists.calls.iter().flat_map(in_vain).collect();
        assert!(found.is_empty(), "{}: without these nothing would be decided otherwise: {found:#?}", lists.arch);
        let found: Vec<String> = lists.told.iter().flat_map(|told| told_in_vain(told, lists.call(&told.name))).collect();
        assert!(found.is_empty(), "{}: telling in vain: {found:#?}", lists.arch);
    }
    for lists in Lists::both().map(Lists::fallback) {
        let found: Vec<String> = lists.calls.iter().flat_map(in_vain).collect();
        assert!(found.is_empty(), "{}: without these nothing would be decided otherwise: {found:#?}", lists.arch);
        let found: Vec<String> = lists.made.iter().flat_map(|made| told_in_vain(made, lists.call(&made.name))).collect();
        assert!(found.is_empty(), "{}: made in vain: {found:#?}", lists.arch);
    }
    for told in both[0].told.iter().chain(&both[0].made) {
        assert!(both.iter().any(|lists| lists.call(&told.name).is_some()), "no architecture has {}", told.name);
    }
}

#[test]
fn a_rule_in_vain_is_found() {
    let call = |clauses: Value| Call {
        name: "x".into(),
        number: 1,
        line: json!({"nr": 1, "name": "x", "do": "check", "clauses": clauses, "else": "EPERM", "why": "-"}),
    };
    let one = |arg: u32, values: Value, then: &str| json!({"if": [{"arg": arg, "one_of": values}], "then": then, "why": "-"});
    let found = |clauses: Value| in_vain(&call(clauses));
    assert!(found(json!([one(0, json!([1, 2]), "allow")])).is_empty());
    assert_eq!(
        found(json!([one(0, json!([1]), "allow"), one(0, json!([1]), "EINVAL")])).len(),
        2,
        "never reached: clause and value"
    );
    assert!(!found(json!([one(0, json!([1]), "EPERM")])).is_empty(), "as without it");
    assert!(!found(json!([one(0, json!([1, 2]), "allow"), one(0, json!([2, 3]), "allow")])).is_empty(), "2 was decided before");
    assert!(
        !found(json!([{"if": [{"arg": 0, "one_of": [1]}, {"arg": 0, "any_bit": "0x1"}], "then": "allow", "why": "-"}]))
            .is_empty()
    );
    assert!(
        !found(json!([{"if": [{"arg": 0, "any_bit": "0x3"}], "then": "allow", "why": "-"}, one(0, json!([2]), "allow")]))
            .is_empty()
    );
    let told = |line: Value| Told { name: "x".into(), line };
    let refused = Call { line: json!({"do": "refuse", "errno": "EPERM"}), ..call(json!([])) };
    assert_eq!(told_in_vain(&told(json!({"why": "-"})), Some(&refused)).len(), 1, "a call that never goes on");
    let zero_only = call(json!([one(0, json!([0]), "allow")]));
    assert_eq!(told_in_vain(&told(json!({"if": {"arg": 0, "any_bit": "0x2"}})), Some(&zero_only)).len(), 1);
}

#[test]
fn calls_of_one_meaning_are_decided_alike() {
    for lists in Lists::both() {
        for group in SAME {
            let there: Vec<_> = group.iter().filter_map(|(name, shift)| Some((lists.call(name)?, *shift))).collect();
            // aarch64 has no call that x86_64 has not.
            assert!(there.len() == group.len() || lists.arch == "aarch64", "{}: not all of {group:?}", lists.arch);
            let points: Vec<[u32; 6]> = there.iter().flat_map(|(call, shift)| moved(&call.points(), *shift, 0)).collect();
            for (call, shift) in there.iter().skip(1) {
                for point in &points {
                    let (first, first_shift) = there[0];
                    let at = |shift| moved(&[*point], 0, shift)[0];
                    let (a, b) = (first.decide(&at(first_shift)), call.decide(&at(*shift)));
                    assert_eq!(a, b, "{}: {} and {} at {point:x?}", lists.arch, first.name, call.name);
                }
            }
        }
        for call in &lists.calls {
            for twin in ENDINGS.iter().filter_map(|ending| lists.call(&format!("{}{ending}", call.name))) {
                let known = DIFFER.iter().any(|(a, b, _)| (*a, *b) == (call.name.as_str(), twin.name.as_str()));
                let grouped = SAME.iter().any(|g| [call, twin].iter().all(|c| g.iter().any(|(name, _)| *name == c.name)));
                let alike = call.line["do"] == twin.line["do"] && call.line["errno"] == twin.line["errno"];
                assert!(known || grouped || alike, "{}: {} and {} are decided differently", lists.arch, call.name, twin.name);
            }
        }
        for (a, b, why) in DIFFER {
            let line = |name| lists.call(name).map(|call| &call.line["do"]);
            assert_ne!(line(a), line(b), "{}: {a} and {b} are no exception ({why})", lists.arch);
        }
        for group in TOLD_ALIKE {
            let told = |name: &&&str| lists.told.iter().any(|told| told.name == **name);
            let (told, not): (Vec<&&str>, Vec<&&str>) = group.iter().filter(|name| lists.call(name).is_some()).partition(told);
            assert!(told.is_empty() || not.is_empty(), "{}: {told:?} are told, {not:?} are not", lists.arch);
        }
    }
}

#[test]
fn both_architectures_say_the_same() {
    let [x86, arm] = Lists::both();
    assert_eq!(x86.kernel, arm.kernel);
    let without_number = |call: &Call| {
        let mut line = call.line.clone();
        line.as_object_mut().unwrap().remove("nr");
        line
    };
    for call in &arm.calls {
        let other = x86.call(&call.name).unwrap_or_else(|| panic!("aarch64 has no call of its own, but {}", call.name));
        assert_eq!(without_number(call), without_number(other));
    }
}

/// The pieces of a line without which everything would be decided as with them.
fn in_vain(call: &Call) -> Vec<String> {
    let points = call.points();
    let mut found = Vec::new();
    for (what, line) in without_a_piece(&call.line) {
        let less = Call { line, ..call.clone() };
        if points.iter().all(|point| call.decide(point) == less.decide(point)) {
            found.push(format!("{}: {what}", call.name));
        }
    }
    if call.line["do"] == "check" && points.iter().all(|point| call.decide(point) == call.decide(&points[0])) {
        found.push(format!("{}: every case is decided alike, so there is nothing to check", call.name));
    }
    found
}

/// A line without one clause, one test, one value or one bit: all of these, with their names.
fn without_a_piece(line: &Value) -> Vec<(String, Value)> {
    let mut all = Vec::new();
    let Some(clauses) = line["clauses"].as_array() else { return all };
    let mut less = |what: String, cut: &dyn Fn(&mut Value)| {
        let mut line = line.clone();
        cut(&mut line["clauses"]);
        all.push((what, line));
    };
    for (c, clause) in clauses.iter().enumerate() {
        less(format!("clause {c}"), &|clauses| drop(clauses.as_array_mut().unwrap().remove(c)));
        let tests = clause["if"].as_array().unwrap();
        for (t, test) in tests.iter().enumerate() {
            // The only test of a clause is the clause.
            if tests.len() > 1 {
                less(format!("clause {c}, test {t}"), &|clauses| drop(clauses[c]["if"].as_array_mut().unwrap().remove(t)));
            }
            for v in 0..test["one_of"].as_array().map_or(0, Vec::len) {
                less(format!("clause {c}, test {t}, value {v}"), &|clauses| {
                    drop(clauses[c]["if"][t]["one_of"].as_array_mut().unwrap().remove(v));
                });
            }
            for bit in test.get("any_bit").into_iter().flat_map(bits) {
                less(format!("clause {c}, test {t}, bit {bit:#x}"), &|clauses| {
                    let rest = super::list::number(&clauses[c]["if"][t]["any_bit"]) & !bit;
                    clauses[c]["if"][t]["any_bit"] = json!(rest);
                });
            }
        }
    }
    all
}

fn bits(mask: &Value) -> impl Iterator<Item = u32> {
    let mask = super::list::number(mask);
    (0..32).map(|bit| 1 << bit).filter(move |bit| mask & bit != 0)
}

/// Why telling of this call is in vain, if it is: the call is never let on, or never where it would be told.
fn told_in_vain(told: &Told, call: Option<&Call>) -> Vec<String> {
    // The other architecture has it.
    let Some(call) = call else { return Vec::new() };
    let points: Vec<[u32; 6]> = told.points().into_iter().chain(call.points()).collect();
    let goes_on = points.iter().any(|point| told.told(point) && call.decide(point) == "allow");
    if goes_on { Vec::new() } else { vec![format!("{} is never let on where it is told", told.name)] }
}

/// Arguments counted from another first one.
fn moved(points: &[[u32; 6]], from: usize, to: usize) -> Vec<[u32; 6]> {
    let one = |point: &[u32; 6]| {
        let mut moved = [0; 6];
        for (n, value) in point.iter().skip(from).enumerate().take(6 - to) {
            moved[n + to] = *value;
        }
        moved
    };
    points.iter().map(one).collect()
}
