//! Files outside: reading what no jail shows, changing what is not the task's, and leaving traps in what is.

use crate::table::Control::{Plain, Root};
use crate::table::{Attack, Program, Victim};

const fn files(name: &'static str, why: &'static str, words: &'static [&'static str], victim: Victim) -> Attack {
    Attack::new(name, why, Program::C("files", words), victim, Plain)
}

macro_rules! at {
    ($name:literal) => {
        &[$name, "{secret}", "{file}", "{shared}"]
    };
}

const READS: &[Attack] = &[
    files("open", "a path outside", at!("open"), Victim::Secret),
    files("self-root", "/proc/self/root leads to the root of the process", at!("self-root"), Victim::Secret),
    files("thread-root", "/proc/thread-self/root does too", at!("thread-root"), Victim::Secret),
    files("every-process", "root, cwd, map_files and task links of every process in /proc", at!("every-process"), Victim::Secret),
    files("dot-dot", "upwards, out of a root that is only a directory", at!("dot-dot"), Victim::Secret),
    files("fd-link", "from an open descriptor of / by its magic link", at!("fd-link"), Victim::Secret),
    files("openat2", "magic links and RESOLVE_IN_ROOT", at!("openat2"), Victim::Secret),
    files("inherited", "CVE-2024-21626: a directory that was left open", at!("inherited"), Victim::Secret),
    files("memfd-exec", "a program without a file", at!("memfd-exec"), Victim::Secret),
    Attack::new(
        "planted-link",
        "CVE-2026-39861, CVE-2026-25724: a link in the workspace that points out",
        Program::Shell("ln -s {secret} link; cat link; ln -s / root; cat root{secret}; tar -ch link; cp -L link copy"),
        Victim::Secret,
        Plain,
    ),
    Attack::new(
        "builtin",
        "CVE-2026-22708: what a shell does itself is no command that a list knows",
        Program::Shell("while read -r line || [ -n \"$line\" ]; do echo \"$line\"; done < {secret}"),
        Victim::Secret,
        Plain,
    ),
    Attack::new(
        "long-line",
        "ADVISORY-CC-2026-002: rules dropped after fifty commands",
        Program::Shell("i=0; while [ $i -lt 80 ]; do true; i=$((i+1)); done; cat {secret}/ {secret}"),
        Victim::Secret,
        Plain,
    ),
    Attack::new(
        "handle",
        "CVE-2015-3627 kind (shocker): a file handle needs no path",
        Program::C("files", &["handle", "{secret}", "{file}", "{shared}", "{handle}"]),
        Victim::Secret,
        Root,
    ),
    files("hidden-open", "a hidden file in a place that is shown", at!("open"), Victim::Hidden),
    files("hidden-self-root", "likewise, by the root's link", at!("self-root"), Victim::Hidden),
    files("hidden-openat2", "likewise, by openat2", at!("openat2"), Victim::Hidden),
    Attack::new(
        "hidden-everywhere",
        "likewise, by a search of all that is in sight",
        Program::Shell("cat {secret}; find {shown} /proc/self/cwd /proc/self/root{shown} -name secret -exec cat {} +"),
        Victim::Hidden,
        Plain,
    ),
    Attack::new(
        "hidden-handle",
        "likewise, by a handle",
        Program::C("files", &["handle", "{secret}", "{file}", "{shown}", "{handle}"]),
        Victim::Hidden,
        Root,
    ),
];

const WRITES: &[Attack] = &[
    files("write", "a path outside", at!("write"), Victim::File),
    files("write-root-link", "through /proc/self/root", at!("append-root-link"), Victim::File),
    files("link", "a hard link in the workspace to a file outside", at!("link"), Victim::File),
    files("link-fd", "a hard link by a descriptor", at!("link-fd"), Victim::File),
    files("rename-over", "a rename over a file outside", at!("rename-over"), Victim::File),
    files("rename-away", "a rename of a file outside into the workspace", at!("rename-away"), Victim::File),
    files("exchange", "an exchange with a file outside", at!("exchange"), Victim::File),
    files("symlink-follow", "CVE-2025-55345: writing through a link in the workspace", at!("symlink-follow"), Victim::File),
    files("unlink", "removing a file outside", at!("unlink"), Victim::File),
    files("beside", "a new directory beside a file outside", at!("beside"), Victim::File),
    files("shown-write", "writing what is shown to be read only", at!("write"), Victim::Shown),
    files("shown-truncate", "truncating it", at!("truncate"), Victim::Shown),
    files("shown-chmod", "its mode", at!("chmod"), Victim::Shown),
    files("shown-utime", "its times", at!("utime"), Victim::Shown),
    files("shown-xattr", "its attributes", at!("xattr"), Victim::Shown).or_lacks("the file system has no user attributes"),
    files("shown-unlink", "removing it", at!("unlink"), Victim::Shown),
    files("shown-beside", "something new beside it", at!("beside"), Victim::Shown),
    files("shown-link", "a hard link to it", at!("link"), Victim::Shown),
    files("shown-link-fd", "a hard link to it by a descriptor", at!("link-fd"), Victim::Shown),
    files("shown-rename-over", "a rename over it", at!("rename-over"), Victim::Shown),
    files("shown-rename-away", "a rename away from it", at!("rename-away"), Victim::Shown),
    files("shown-exchange", "an exchange with it", at!("exchange"), Victim::Shown),
    files("shown-mmap", "a shared mapping of it", at!("mmap-write"), Victim::Shown),
    files("shown-reopen", "open for reading, reopened for writing by its magic link", at!("reopen-rw"), Victim::Shown),
    Attack::new(
        "shown-tools",
        "what tools do: sed -i, cp, dd, tee, git",
        Program::Shell(
            "sed -i s/as/was/ {file}; cp /etc/hostname {file}; dd if=/dev/zero of={file} count=1; echo x | tee -a {file}; git init {dir}",
        ),
        Victim::Shown,
        Plain,
    ),
    Attack::new(
        "config",
        "CBSE class, CVE-2025-53773, CVE-2026-25725: a setting that a tool outside obeys later",
        Program::Shell("mkdir -p {dir}/.claude {dir}/.vscode; echo '{}' > {dir}/.claude/settings.json; echo x >> {dir}/.bashrc"),
        Victim::File,
        Plain,
    ),
];

const CACHES: &[Attack] = &[
    Attack::new(
        "copy-up",
        "CVE-2021-3493, CVE-2023-0386 kind: races with an overlay that copies a file up",
        Program::Python(include_str!("programs/copyup.py"), &["{cache}"]),
        Victim::Cache,
        Plain,
    ),
    Attack::new(
        "copy-up-tools",
        "what tools do there",
        Program::Shell(
            "cd {cache} && mv content c2; cp -a c2 content; chmod -R 777 .; sed -i s/a/b/ top; rm -rf c2; git init -q .",
        ),
        Victim::Cache,
        Plain,
    ),
];

const LEAVES: &[Attack] = &[
    Attack::new("device", "a device node opens the machine's disks", Program::C("files", at!("device")), Victim::Left, Root),
    files("set-id", "a set-uid program lends the person's id to every local user", at!("set-id"), Victim::Left),
    files("set-id-fd", "likewise, by a descriptor", at!("set-id-fd"), Victim::Left),
    files("set-id-at", "a set-gid program, likewise", at!("set-id-at"), Victim::Left),
    files("set-id-made", "likewise, at its making", at!("set-id-made"), Victim::Left),
    files("set-id-node", "likewise, made as a node", at!("set-id-node"), Victim::Left),
    files("set-id-openat2", "likewise, made with a mode that no filter sees", at!("set-id-openat2"), Victim::Left),
    files("set-id-unnamed", "likewise, named once it is made", at!("set-id-unnamed"), Victim::Left),
    files(
        "set-id-list",
        "likewise, with something in it, and made a program by an access list",
        at!("set-id-list"),
        Victim::Left,
    ),
    files("set-id-at2", "likewise, by fchmodat2", at!("set-id-at2"), Victim::Left).or_lacks("Linux before 6.6 has no fchmodat2"),
];

#[test]
fn p2_nothing_reads_a_file_that_no_jail_shows() {
    assert_eq!(crate::run::all(READS), "", "each comes through outside and none from inside");
}

#[test]
fn p1_nothing_changes_a_file_outside() {
    assert_eq!(crate::run::all(WRITES), "", "each comes through outside and none from inside");
}

#[test]
fn p1_nothing_changes_what_lies_below_a_cache() {
    assert_eq!(crate::run::all(CACHES), "", "each comes through outside and none from inside");
}

#[test]
fn p1_what_is_left_in_a_writable_place_gives_nobody_rights() {
    assert_eq!(crate::run::all(LEAVES), "", "each comes through outside and none from inside");
}
