//! Files, processes and kernel tables of the person: nothing of them is reached, though all are in the same root.

use super::{here, scoped};
use crate::room::{Room, SECRET, good};
use crate::ways;
use jail_plan::{Guarantee, Status};
use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use testkit::not_tested_here;
use testkit::treehash::treehash;

/// Tries in `reach.c` that need a victim of their own.
const VICTIMS: usize = 64;

/// A directory of files of the person's, one for each try.
fn victims(at: &Path) -> PathBuf {
    fs::create_dir_all(at).unwrap();
    for n in 0..VICTIMS {
        fs::write(at.join(n.to_string()), SECRET).unwrap();
    }
    fs::write(at.join("program"), "#!/bin/sh\n").unwrap();
    fs::set_permissions(at.join("program"), fs::Permissions::from_mode(0o755)).unwrap();
    let value = rustix::fs::setxattr(at.join("program"), "user.secret", b"x", rustix::fs::XattrFlags::empty());
    value.unwrap_or_else(|e| panic!("a file system with extended attributes is needed: {e}"));
    at.to_owned()
}

fn outside() -> Child {
    Command::new("/bin/sleep").arg("100").stdin(Stdio::null()).process_group(0).spawn().unwrap()
}

fn lines(out: &str) -> BTreeMap<String, String> {
    out.lines().filter_map(|l| l.split_once(' ')).map(|(name, how)| (name.to_owned(), how.to_owned())).collect()
}

#[test]
fn p1_p2_p6_whatever_reaches_the_persons_files_and_programs_outside_reaches_none_from_inside() {
    if !here() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let Some(program) = ways::compiled(dir.path(), "reach", include_bytes!("../reach.c")) else {
        return not_tested_here("a C compiler");
    };
    // The control: the same program, free, with victims of its own.
    let free = victims(&dir.path().join("victims"));
    let (shown, own) = (dir.path().join("shown"), dir.path().join("own"));
    for d in [&shown, &own] {
        fs::create_dir(d).unwrap();
    }
    fs::write(shown.join("file"), SECRET).unwrap();
    let mut victim = outside();
    let pid = victim.id().to_string();
    let control = Command::new(&program).args([&free, &shown, &own]).arg(&pid).output().unwrap();
    victim.kill().unwrap();
    victim.wait().unwrap();
    let control = lines(&String::from_utf8_lossy(&control.stdout));
    let works: Vec<&String> = control.iter().filter(|(_, how)| *how == "ok").map(|(name, _)| name).collect();
    for (name, how) in &control {
        // What depends on the machine's own rules for tracers, or on its file system; calls that an older kernel does not know.
        let unknown = !scoped() && how == "Function not implemented";
        let may = name.starts_with("may:") || name == "shown-xflags" || unknown;
        assert!(how == "ok" || may, "without a jail {name} works, so that it shows something: {how}");
    }
    assert!(works.len() > if scoped() { 60 } else { 50 }, "{}: {works:?}", works.len());

    let mut room = Room::new();
    let held = victims(&room.home.join("victims"));
    let shown = room.home.join("shown");
    fs::create_dir(&shown).unwrap();
    fs::write(shown.join("file"), SECRET).unwrap();
    room.grants.read = vec![shown.clone()];
    fs::copy(&program, room.task.tree().join("reach")).unwrap();
    let before = [&held, &shown].map(|d| treehash(d).unwrap().total);
    let mut victim = outside();
    let inside = room.bare_sh(&format!(
        "mkdir own; ./reach '{}' '{}' \"$PWD/own\" {}; ls -l /proc/self/fd | grep -c 'victims\\|shown'",
        held.display(),
        shown.display(),
        victim.id()
    ));
    let alive = victim.try_wait().unwrap().is_none();
    victim.kill().unwrap();
    victim.wait().unwrap();
    let inside_lines = lines(&inside.out);
    assert!(control.keys().eq(inside_lines.keys()), "each was tried: {inside:#?}");
    // An older kernel's Landlock does not judge signals, which the table says.
    let told = |name: &str| !scoped() && (name.contains("kill") || name == "sigqueue" || name == "pidfd-signal");
    let reached: Vec<&String> =
        inside_lines.iter().filter(|(name, how)| *how == "ok" && !told(name)).map(|(name, _)| name).collect();
    assert!(reached.is_empty(), "{reached:?} reached something from inside: {inside:#?}");
    assert!(alive, "the person's program lives on");
    let after = [&held, &shown].map(|d| treehash(d).unwrap().total);
    assert_eq!(before, after, "not a mode, time, owner or attribute of the person's files changed");
    println!("reach: {} tries, {} of them work without a jail, none from inside", control.len(), works.len());
}

#[test]
fn p2_it_reads_nothing_of_the_person_by_any_name() {
    if !here() {
        return;
    }
    let room = Room::new();
    let home = room.home.display();
    let data = room.layout.data.display();
    let went = room.bare_sh(&format!(
        "for f in {home}/.ssh/id_ed25519 {home}/.config/gh/hosts.yml {home}/src/other/file {home}/diary {data}/airlock.db \
         {data}/tasks/other/tree/file ../../../airlock.db ../../other/tree/file /proc/self/root{home}/diary /proc/self/cwd/../../../airlock.db; \
         do cat $f 2>/dev/null && echo \"read $f\"; cp $f copy 2>/dev/null && echo \"copied $f\"; done; \
         ln -s {home}/diary link; cat link 2>/dev/null && echo 'read by a link'; \
         for d in {home} {data} {home}/.ssh / /home /root /run /tmp /var /dev/shm /dev/pts; do ls $d 2>/dev/null && echo \"listed $d\"; done; \
         cat ~/file 2>/dev/null; echo mine > ~/file && cat ~/file; touch $TMPDIR/a $XDG_RUNTIME_DIR/b && echo own"
    ));
    assert_eq!(good(&went), "mine\nown\n", "only its own can be read: {went:#?}");
    assert!(!went.out.contains(SECRET));
}

#[test]
fn p2_what_is_hidden_in_a_shown_place_stays_closed() {
    if !here() {
        return;
    }
    let mut room = Room::new();
    fs::create_dir_all(&room.workspace).unwrap();
    fs::write(room.workspace.join("file"), SECRET).unwrap();
    fs::create_dir_all(room.home.join("data/inner/secret")).unwrap();
    for f in ["data/shown", "data/inner/shown", "data/inner/secret/file"] {
        fs::write(room.home.join(f), f).unwrap();
    }
    room.grants.read = vec![room.home.clone()];
    room.grants.hide.push(room.home.join("data/inner/secret"));
    let (home, repo) = (room.home.display(), room.workspace.display());
    let went = room.bare_sh(&format!(
        "cd {home}; cat data/shown data/inner/shown; for f in data/inner/secret/file .ssh/id_ed25519 {repo}/file; do cat $f 2>/dev/null; done; \
         mv data/inner/secret data/out 2>/dev/null; for d in . .ssh data data/inner data/inner/secret {repo}; do ls $d 2>/dev/null; done; \
         cat src/other/file"
    ));
    let want = format!("data/showndata/inner/shown{SECRET}");
    assert_eq!(good(&went), want, "what is shown is shown, and nothing of what is hidden: {went:#?}");
}

#[test]
fn p1_what_is_its_own_it_changes_as_everywhere() {
    if !here() {
        return;
    }
    let room = Room::new();
    let went = room.bare_sh(
        "set -e
        mkdir -p a/b; echo '#!/bin/sh' > a/run; echo 'echo ran' >> a/run; chmod 755 a/run; a/run
        chmod 600 file; stat -c %a file; cd a; chmod 700 ../file; stat -c %a ../file; cd ..
        ln -s a/run link; chmod 711 link; stat -c %a a/run
        touch -d @7 file; stat -c %Y file; touch -h -d @8 link; stat -c %Y link
        chmod 644 /proc/self/fd/3 3<file; stat -c %a file
        cp -p file copy; stat -c '%a %Y' copy; tar cf t.tar a; rm -r a; tar xpf t.tar; stat -c %a a/run
        mv file ~/moved; ln ~/moved ~/linked; mkfifo pipe; : > /dev/null; head -c 4 /dev/urandom | wc -c
        chmod 4755 copy 2>/dev/null && echo 'lent an id'; git init -q sub && cd sub && git config a.b c && echo done",
    );
    let want = "ran\n600\n700\n711\n7\n8\n644\n644 7\n711\n4\ndone\n";
    assert_eq!(good(&went), want, "{went:#?}");
}

#[test]
fn p10_the_table_says_what_is_lost_and_what_is_kept() {
    if !here() {
        return;
    }
    let room = Room::new();
    let bare = room.start_bare(&room.bare_plan(&["/bin/true"])).unwrap();
    let report = &bare.running.jail.report;
    for kept in [Guarantee::Writes, Guarantee::Network, Guarantee::Syscalls, Guarantee::Inherited] {
        assert_eq!(report.status(kept), Some(&Status::Full), "{kept} is kept in full");
    }
    for lost in [Guarantee::Reads, Guarantee::Processes, Guarantee::Quotas] {
        assert!(matches!(report.status(lost), Some(Status::Partial { .. })), "{lost}: {:?}", report.status(lost));
    }
    assert!(matches!(report.status(Guarantee::Decoys), Some(Status::Absent { .. })), "nothing is put over hidden places");
    let (control, ends) = (report.status(Guarantee::Control), report.status(Guarantee::Ends));
    if scoped() {
        assert!(matches!(control, Some(Status::Partial { .. })) && ends == Some(&Status::Full), "{control:?} {ends:?}");
    } else {
        assert!(matches!(control, Some(Status::Absent { .. })) && ends != Some(&Status::Full), "{control:?} {ends:?}");
    }
    bare.running.finish();
}

#[test]
fn p10_what_rules_can_t_keep_refuses_the_start() {
    let room = |change: &dyn Fn(&mut Room)| {
        let mut room = Room::new();
        fs::create_dir_all(room.home.join("data/inner/secret")).unwrap();
        change(&mut room);
        let refused = supervise::compose::agent_without_namespaces(&room.spec(&["/bin/true"]), &room.grants);
        refused.err().map(|e| e.key)
    };
    assert_eq!(room(&|_| ()), None, "a plain one starts");
    let data = |r: &Room| r.home.join("data");
    assert_eq!(room(&|r| (r.grants.write, r.grants.hide) = (vec![data(r)], vec![])), None);
    assert_eq!(
        room(&|r| (r.grants.write, r.grants.hide) = (vec![data(r)], vec![data(r).join("inner")])),
        Some("files.write"),
        "what is hidden in it would be open"
    );
    assert_eq!(
        room(&|r| (r.grants.write, r.grants.read) = (vec![data(r)], vec![data(r).join("inner")])),
        Some("files.read"),
        "what is only to be read in it would be written"
    );
    assert_eq!(room(&|r| r.grants.write = vec![r.home.join("src")]), Some("files.write"), "the repository would be open");
    assert_eq!(room(&|r| r.grants.write = vec![r.root.clone()]), Some("files.hide"), "Airlock's own data would be");
    assert_eq!(room(&|r| r.grants.devices = vec!["/dev/kvm".into()]), Some("files.devices"));
    assert_eq!(room(&|r| r.grants.nested = true), Some("jail.nested"));
}

#[test]
fn p10_root_has_no_such_jail() {
    if !nix::unistd::geteuid().is_root() {
        // The other column tries it as root; here it is what all other tests stand on.
        let room = Room::new();
        return assert!(room.start_bare(&room.bare_plan(&["/bin/true"])).is_ok(), "an ordinary user has one");
    }
    let room = Room::new();
    let mut plan = room.bare_plan(&["/bin/true"]);
    plan.identity = jail_plan::Identity { uid: 1000, gid: 1000, mapped: None };
    let refused = room.start_bare(&plan).err().map(|e| e.to_string()).unwrap_or_default();
    assert!(refused.contains("uid 0 owns what it would be kept from"), "the jail itself: {refused}");
    let person = testkit::Sandbox::new();
    super::whole::accepting(&person, "");
    let repo = person.small_repo();
    let refused = super::whole::run(&person, &repo.path, "true").exits(4);
    assert!(refused.err().contains("root has none, as uid 0 owns"), "{}", refused.err());
}
