//! Mounts are the walls: what lies below one, what one makes read-only, and new ones.

use crate::table::Control::{Apart, Unprivileged};
use crate::table::{Attack, Control, Program, Victim};

/// Below a mount of a throw-away namespace, something is hidden as in a jail.
const COVERED: &str = "mount -t tmpfs none \"$HIDDEN\"; \"$@\"";
/// Something is read-only by its mount, as in a jail.
const READ_ONLY: &str = "mount --bind \"$SHOWN\" \"$SHOWN\" && mount -o remount,bind,ro \"$SHOWN\"; \"$@\"";
/// A root that is only a directory, from before namespaces.
const CHROOTED: &str = "mkdir root && cp \"$1\" root/ && shift && chroot root /hostile \"$@\"";

const fn mounts(
    name: &'static str,
    why: &'static str,
    words: &'static [&'static str],
    victim: Victim,
    control: Control,
) -> Attack {
    Attack::new(name, why, Program::C("mounts", words), victim, control)
}

macro_rules! at {
    ($name:literal) => {
        &[$name, "{secret}", "{file}", "{shown}", "{shown}/hidden"]
    };
}

const MOUNTS: &[Attack] = &[
    mounts("umount", "taking a cover away", at!("umount"), Victim::Hidden, Apart(COVERED)),
    mounts("umount-all", "taking every cover away that the table names", at!("umount-all"), Victim::Hidden, Apart(COVERED)),
    mounts("bind", "a plain bind of the place leaves the covers behind", at!("bind"), Victim::Hidden, Apart(COVERED)),
    mounts("clone-tree", "a detached copy of the mount likewise", at!("clone-tree"), Victim::Hidden, Apart(COVERED)),
    mounts("move", "moving the cover away", at!("move"), Victim::Hidden, Apart(COVERED)),
    mounts("move-fd", "moving the cover away by a descriptor", at!("move-fd"), Victim::Hidden, Apart(COVERED)),
    mounts("overlay", "CVE-2021-26910 kind: an overlay over the place", at!("overlay"), Victim::Hidden, Apart(COVERED))
        .or_lacks("this kernel's overlays take no such lower directory"),
    mounts("unshare-private", "mounts of one's own first", at!("unshare-private"), Victim::Hidden, Apart(COVERED)),
    mounts("remount", "remounting for writing", at!("remount"), Victim::Shown, Apart(READ_ONLY)),
    mounts("set-attributes", "mount_setattr", at!("set-attributes"), Victim::Shown, Apart(READ_ONLY)),
    mounts("bind-writable", "a detached copy of the mount, made writable", at!("bind-writable"), Victim::Shown, Apart(READ_ONLY)),
    mounts("fsopen", "a file system in the making", at!("fsopen"), Victim::Descriptor("anon_inode:[fscontext]"), Apart("\"$@\"")),
    mounts("chroot-escape", "a second chroot below the first", at!("chroot-escape"), Victim::Secret, Apart(CHROOTED)),
    mounts("pivot", "another root", at!("pivot"), Victim::Apart, Apart("\"$@\"")),
];

const NAMESPACES: &[Attack] = &[
    mounts(
        "user-namespace",
        "a user namespace gives every capability over new kernel code",
        at!("user-namespace"),
        Victim::Rights,
        Unprivileged,
    ),
    mounts("clone-namespace", "likewise, by clone", at!("clone-namespace"), Victim::Rights, Unprivileged),
    mounts("clone3-namespace", "likewise, by clone3", at!("clone3-namespace"), Victim::Rights, Unprivileged),
    mounts("set-namespace", "into the namespaces of a child or of init", at!("set-namespace"), Victim::Rights, Unprivileged),
    Attack::new(
        "upper-half",
        "a filter that compares 64 bits where the kernel takes 32",
        Program::C("calls", &["upper-half", "{name}"]),
        Victim::Rights,
        Unprivileged,
    )
    .or_lacks("this kernel refuses flags in the upper half"),
    Attack::new(
        "old-namespace",
        "the 32-bit table has other numbers",
        Program::C("calls", &["old-namespace", "{name}"]),
        Victim::Rights,
        Unprivileged,
    )
    .or_lacks("this kernel has no 32-bit calls"),
    Attack::new(
        "tools-for-it",
        "what scripts use for it",
        Program::Shell(
            "unshare -Ur sh -c 'echo holding; sleep 20' || bwrap --dev-bind / / --unshare-user --uid 0 sh -c 'echo holding; sleep 20'",
        ),
        Victim::Rights,
        Unprivileged,
    ),
];

#[test]
fn p2_no_cover_is_lifted_and_no_wall_is_moved() {
    assert_eq!(crate::run::all(MOUNTS), "", "each comes through outside and none from inside");
}

#[test]
fn p6_no_namespace_is_entered_or_made() {
    assert_eq!(crate::run::all(NAMESPACES), "", "each comes through outside and none from inside");
}
