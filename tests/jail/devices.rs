//! Device nodes that a policy names, and no others.

use crate::room::{Room, good};
use std::os::unix::fs::MetadataExt as _;

/// A device that is in no jail by itself, in a directory of its own, and one that anybody may open on most machines.
const NODE: &str = "/dev/net/tun";
const USABLE: &str = "/dev/fuse";

#[test]
fn p6_a_named_device_is_there_and_no_other() {
    let mut room = Room::new();
    let script = "ls /dev; ls /dev/net 2>/dev/null; stat -c '%F %t:%T' /dev/net/tun 2>/dev/null; \
                  (exec 3<>/dev/net/tun) 2>/dev/null && echo opened; (echo x > /dev/net/more) 2>/dev/null && echo wrote; true";
    let without = good(&room.sh(script)).to_owned();
    assert!(!without.contains("net") && !without.contains("opened"), "no device is there unnamed: {without}");
    let meta = std::fs::metadata(NODE).unwrap();
    let opened = if meta.mode() & 0o006 == 0o006 { "opened\n" } else { "" };
    let (major, minor) = (nix::sys::stat::major(meta.rdev()), nix::sys::stat::minor(meta.rdev()));
    for named in [NODE, "/dev/net"] {
        room.grants.devices = vec![named.into()];
        let with = good(&room.sh(script)).to_owned();
        assert!(
            with.ends_with(&format!("tun\ncharacter special file {major:x}:{minor:x}\n{opened}")),
            "{named}: itself, and it can be used: {with}"
        );
        let more: Vec<&str> = with.lines().filter(|l| !without.lines().any(|w| w == *l)).collect();
        assert_eq!(more.len(), 3 + opened.lines().count(), "{named}: `net`, `tun` and what was done with it: {more:?}");
    }
    if !std::fs::metadata(USABLE).is_ok_and(|m| m.mode() & 0o006 == 0o006) {
        return testkit::not_tested_here(USABLE);
    }
    let script = "(exec 3<>/dev/fuse) 2>/dev/null && echo opened; true";
    assert_eq!(good(&room.sh(script)), "");
    room.grants.devices = vec![USABLE.into()];
    assert_eq!(good(&room.sh(script)), "opened\n", "what is named can be used");
}

#[test]
fn p6_what_is_no_character_device_is_refused() {
    let mut room = Room::new();
    for (named, why) in [
        ("/dev/loop0", "no character device"),
        ("/dev/not-there", "No such file"),
        ("/dev/shm", "no character device"),
        ("/dev/stdin", "no character device"),
        ("/dev/fd/0", "Too many levels of symbolic links"),
    ] {
        room.grants.devices = vec![named.into()];
        let refusal = room.refusal();
        assert!(refusal.reason.contains(named) && refusal.reason.contains(why), "{named}: {refusal}");
        assert!(refusal.hint.contains("files.devices"), "{refusal}");
    }
}
