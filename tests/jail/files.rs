//! Where a jail writes, and what it can't read.

use crate::room::{Room, SECRET, good};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};

/// Every path below with its mode, owner, size and content.
pub(crate) fn listing(root: &Path, but: &[PathBuf]) -> BTreeMap<PathBuf, String> {
    let mut found = BTreeMap::new();
    let mut todo = vec![root.to_owned()];
    while let Some(path) = todo.pop() {
        if but.contains(&path) {
            continue;
        }
        let meta = fs::symlink_metadata(&path).unwrap();
        let content = if meta.is_file() { fs::read(&path).unwrap_or_default() } else { Vec::new() };
        found.insert(path.clone(), format!("{:o} {} {} {content:?}", meta.mode(), meta.uid(), meta.gid()));
        if meta.is_dir() {
            todo.extend(fs::read_dir(&path).unwrap().map(|e| e.unwrap().path()));
        }
    }
    found
}

#[test]
fn it_writes_in_its_workspace_home_and_scratch_and_nowhere_else() {
    let room = Room::new();
    let written = [room.task.tree(), room.task.home(), room.task.git()];
    let before = listing(&room.root, &written);
    let beside = room.root.join("beside");
    let script = format!(
        "for d in / /usr /usr/bin /bin /etc /etc/ssl /run /run/airlock /run/airlock/cover /var /sys/devices/system/cpu /dev /proc /proc/sys/kernel \
           '{data}' '{beside}' /home /root /opt /boot /mnt; do \
           (echo x > \"$d/airlock-was-here\") 2>/dev/null && echo \"wrote $d\"; \
           mkdir \"$d/airlock-was-here-too\" 2>/dev/null && echo \"made $d\"; done; \
         for d in . \"$HOME\" /tmp /var/tmp /dev/shm \"$XDG_RUNTIME_DIR\" /run/airlock/git; do \
           echo x > \"$d/mine\" || echo \"could not write $d\"; done; \
         rm -rf /usr/bin/env /etc/passwd 2>/dev/null; [ -e /usr/bin/env ] && [ -e /etc/passwd ] && echo still there",
        data = room.layout.data.display(),
        beside = beside.display(),
    );
    let went = room.sh(&script);
    assert_eq!(good(&went), "still there\n", "only the places of the task may be written: {went:?}");
    assert_eq!(listing(&room.root, &written), before, "nothing of the person's may change");
    assert!(
        room.task.tree().join("mine").exists() && room.task.home().join("mine").exists(),
        "what it writes is kept with the task"
    );
    assert!(!Path::new("/tmp/mine").exists() && !Path::new("/dev/shm/mine").exists(), "its scratch is its own");
}

#[test]
fn what_it_makes_belongs_to_the_person() {
    let room = Room::new();
    good(&room.sh("echo x > made; mkdir -p dir/sub; ln -s made link; chmod 750 made; echo y > \"$HOME/h\"; chown $(id -u) made"));
    let me = nix::unistd::geteuid().as_raw();
    for path in ["tree/made", "tree/dir/sub", "tree/link", "home/h"] {
        let meta = fs::symlink_metadata(room.task.path().join(path)).unwrap();
        assert_eq!(meta.uid(), me, "{path} must belong to whoever started the jail");
        assert_eq!(meta.gid(), nix::unistd::getegid().as_raw(), "{path} must have their group");
    }
    assert_eq!(fs::metadata(room.task.tree().join("made")).unwrap().permissions().mode() & 0o7777, 0o750);
}

#[test]
fn it_sees_what_belongs_to_the_person_as_its_own() {
    let room = Room::new();
    fs::set_permissions(room.task.tree().join("file"), fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(good(&room.sh("cat file && [ \"$(stat -c %u file)\" = \"$(id -u)\" ] && echo mine")), "of the task\nmine\n");
}

#[test]
fn it_reads_nothing_of_the_person() {
    let room = Room::new();
    let marker = tempfile::NamedTempFile::new().unwrap();
    fs::write(marker.path(), SECRET).unwrap();
    let paths = [
        room.home.join("diary"),
        room.home.join(".config/gh/hosts.yml"),
        room.home.join("src/other/file"),
        room.layout.data.join("airlock.db"),
        room.layout.data.join("tasks/other/tree/file"),
        room.task.path().to_owned(),
        room.root.join("config"),
        marker.path().to_owned(),
        "/root/.bashrc".into(),
        "/etc/shadow".into(),
        "/etc/machine-id".into(),
        "/var/log".into(),
        "/boot".into(),
        "/proc/kcore".into(),
        "/proc/kallsyms".into(),
        "/proc/keys".into(),
    ];
    let list: String = paths.iter().map(|p| format!(" '{}'", p.display())).collect();
    let went = room.sh(&format!(
        "for p in{list}; do if [ -d \"$p\" ]; then ls \"$p\" 2>/dev/null | sed \"s|^|$p: |\"; else cat \"$p\" 2>/dev/null; fi; done; \
         grep -rsl {SECRET} \"$HOME\" . /tmp /run /etc /var /home /root /srv 2>/dev/null; echo done"
    ));
    assert_eq!(good(&went), "done\n", "nothing may be found: {went:?}");
}

#[test]
fn a_grant_shows_exactly_what_it_says_and_hides_what_is_hidden() {
    let mut room = Room::new();
    let (read, write) = (room.root.join("granted/read"), room.root.join("granted/write"));
    for d in [&read.join("keys"), &write] {
        fs::create_dir_all(d).unwrap();
    }
    for f in [read.join("plain"), read.join("keys/k"), read.join("token"), write.join("old"), room.root.join("granted/beside")] {
        fs::write(f, SECRET).unwrap();
    }
    room.grants.read = vec![read.clone(), room.root.join("granted/not-there")];
    room.grants.write = vec![write.clone()];
    room.grants.hide = vec![read.join("keys"), read.join("token"), read.join("never-was")];
    let went = room.sh(&format!(
        "cd '{}'; cat read/plain; echo; cat write/old; echo; ls; echo x > write/new; \
         for f in read/x read/plain; do (echo x > $f) 2>/dev/null && echo wrote $f; done; \
         cat read/token read/keys/k 2>/dev/null; ls read/keys 2>/dev/null; (rm -rf read/keys || mv read/token read/t) 2>/dev/null; true",
        room.root.join("granted").display()
    ));
    assert_eq!(good(&went), format!("{SECRET}\n{SECRET}\nread\nwrite\n"), "a grant is its path and no more: {went:?}");
    assert!(write.join("new").exists() && read.join("keys/k").exists(), "and writing is what the other one allows");
}

#[test]
fn a_grant_of_everything_shows_nothing_of_airlocks_own() {
    let mut room = Room::new();
    room.grants.read = vec![room.root.clone()];
    let went = room.sh(&format!(
        "cat '{data}/airlock.db' '{data}/tasks/other/tree/file' 2>/dev/null; ls '{data}' '{config}' '{runtime}' 2>/dev/null; cat file; cat '{diary}' 2>/dev/null",
        data = room.layout.data.display(),
        config = room.layout.config.display(),
        runtime = room.layout.runtime.display(),
        diary = room.home.join("diary").display(),
    ));
    assert_eq!(went.out, "of the task\n", "neither databases nor other tasks, and the home is still the private one: {went:?}");
}
