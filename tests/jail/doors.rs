//! Hidden places that are asked about: refused until somebody opens them, then served read-only and no further.

use crate::decoys::watched;
use crate::room::{Room, Went, good};
use model::event::{FileOp, Process, Verdict};
use model::path::RawPath;
use std::collections::HashSet;
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use supervise::decoy::{Doorkeeper, Pass};
use supervise::fact::Fact;

/// Opens what it was told to open, until it is shut; remembers what was asked for.
#[derive(Default)]
struct Keeper {
    open: Mutex<HashSet<RawPath>>,
    /// The next opening only.
    once: Mutex<HashSet<RawPath>>,
    shut: Arc<AtomicBool>,
    asked: Mutex<Vec<(String, String, String)>>,
}

impl Keeper {
    fn opens(paths: &[&str]) -> Arc<Self> {
        let keeper = Self::default();
        keeper.open.lock().unwrap().extend(paths.iter().map(|p| RawPath::from(*p)));
        Arc::new(keeper)
    }

    fn asked(&self) -> Vec<(String, String, String)> {
        self.asked.lock().unwrap().clone()
    }
}

impl Doorkeeper for Keeper {
    fn pass(&self, path: &RawPath, place: &RawPath, who: Option<&Process>) -> Option<Pass> {
        let who = who.map_or_else(String::new, |p| p.program.to_string());
        self.asked.lock().unwrap().push((path.to_string(), place.to_string(), who));
        let open = self.open.lock().unwrap();
        if !(open.contains(path) || open.contains(place) || self.once.lock().unwrap().remove(path)) {
            return None;
        }
        let shut = Arc::clone(&self.shut);
        let live = move || !shut.load(Ordering::SeqCst);
        live().then(|| Box::new(live) as Pass)
    }
}

fn room(keeper: &Arc<Keeper>) -> Room {
    let mut room = Room::new();
    let place = room.home.join(".tool");
    fs::create_dir_all(place.join("deep/er")).unwrap();
    fs::write(place.join("config"), "colour = blue\n").unwrap();
    fs::write(place.join("deep/er/file"), "deep\n").unwrap();
    fs::write(place.join("key"), "of the tool\n").unwrap();
    fs::write(room.home.join(".token"), "token of the person\n").unwrap();
    let file = room.home.join(".token");
    room.grants.hide.extend([place.clone(), file.clone()]);
    room.asked = Some((vec![place, file, room.home.join(".ssh")], Arc::clone(keeper) as Arc<dyn Doorkeeper>));
    room
}

fn went(room: &Room, script: &str) -> Option<(Went, Vec<Fact>)> {
    let (running, told) = watched(room, &["/bin/bash", "-c", script])?;
    let went = running.finish();
    Some((went, told.facts()))
}

#[test]
fn p2_a_hidden_place_is_served_as_far_as_it_was_opened_and_never_to_be_changed() {
    let keeper = Keeper::opens(&["~/.tool/config", "~/.tool/deep", "~/.token"]);
    let room = room(&keeper);
    let script = "cat ~/.tool/config ~/.tool/deep/er/file ~/.token; ls -A ~/.tool/deep; wc -c < ~/.tool/config; \
                  stat -c '%s %a %F' ~/.tool/config; grep -r deep ~/.tool/deep | wc -l; \
                  python3 -c 'import mmap,os; f=open(os.path.expanduser(\"~/.tool/config\"),\"rb\"); print(mmap.mmap(f.fileno(),0,prot=mmap.PROT_READ,flags=mmap.MAP_PRIVATE)[:6])'; \
                  for f in ~/.tool/key ~/.ssh/id_ed25519; do cat $f && echo OPEN $f; done; ls ~/.tool && echo LISTED; \
                  for try in 'echo x > ~/.tool/config' 'echo x >> ~/.tool/config' 'rm ~/.tool/config' 'mv ~/.tool/config ~/.tool/deep' 'chmod 777 ~/.tool/config' \
                             'ln ~/.tool/config ~/.tool/deep/l' 'mkdir ~/.tool/deep/d' 'truncate -s 0 ~/.token' 'touch ~/.tool/deep/new' 'ln -s x ~/.tool/deep/s'; do \
                      eval \"$try\" && echo \"CHANGED $try\"; done; true";
    let Some((went, facts)) = went(&room, script) else { return };
    let lines: Vec<&str> = good(&went).lines().collect();
    assert_eq!(
        lines[..8],
        ["colour = blue", "deep", "token of the person", "er", "14", "14 644 regular file", "1", "b'colour'"],
        "{went:?}"
    );
    assert_eq!(lines.len(), 8, "nothing else is open, nothing can be changed: {went:?}");
    assert_eq!(fs::read_to_string(room.home.join(".tool/config")).unwrap(), "colour = blue\n");
    assert!(!room.home.join(".tool/deep/new").exists());
    let asked = keeper.asked();
    for (path, place, who) in
        [("~/.tool/key", "~/.tool", "cat"), ("~/.tool", "~/.tool", "ls"), ("~/.ssh/id_ed25519", "~/.ssh", "cat")]
    {
        let row = (path.to_owned(), place.to_owned(), who.to_owned());
        assert!(asked.contains(&row), "{row:?} is asked about: {asked:?}");
    }
    let opened = |wanted: &str| {
        facts.iter().any(|f| {
            matches!(f, Fact::File { op: FileOp::Read, path, verdict: Verdict::Allowed, process: Some(who), .. }
            if path.to_string() == wanted && who.program == RawPath::from("cat"))
        })
    };
    assert!(opened("~/.tool/deep/er/file") && opened("~/.token"), "what was opened is told with who: {facts:?}");
    let refused = facts.iter().any(|f| matches!(f, Fact::Decoy { path, .. } if path.to_string() == "~/.tool/key"));
    assert!(refused, "what was refused as before: {facts:?}");
}

#[test]
fn p2_nothing_beyond_the_place_is_served() {
    let keeper = Keeper::opens(&["~/.tool"]);
    let room = room(&keeper);
    let place = room.home.join(".tool");
    symlink("../diary", place.join("link")).unwrap();
    symlink(room.home.join(".ssh"), place.join("keys")).unwrap();
    symlink("/", place.join("root")).unwrap();
    nix::unistd::mkfifo(&place.join("pipe"), nix::sys::stat::Mode::from_bits_truncate(0o600)).unwrap();
    let _listener = std::os::unix::net::UnixListener::bind(place.join("socket")).unwrap();
    let script = "readlink ~/.tool/link; for f in link keys/id_ed25519 root/etc/passwd pipe socket deep/er/../../../diary; do \
                  timeout 5 cat ~/.tool/$f && echo \"READ $f\"; done; ls -A ~/.tool | wc -l";
    let Some((went, _)) = went(&room, script) else { return };
    // A link is followed inside: there `/etc/passwd` is the jail's own.
    let out: Vec<&str> = good(&went).lines().filter(|l| !l.contains(':')).collect();
    assert_eq!(out, ["../diary", "READ root/etc/passwd", "8"], "{went:?}");
    assert!(!went.out.contains(crate::room::SECRET), "{went:?}");
}

#[test]
fn p2_a_place_that_is_shut_again_gives_no_byte_more() {
    let keeper = Keeper::opens(&["~/.tool"]);
    let room = room(&keeper);
    let script = "repo=$PWD; exec 7< ~/.tool/key; dd bs=3 count=1 status=none <&7; echo; cd ~/.tool/deep; touch $repo/ready; \
                  until [ -e $repo/go ]; do sleep 0.05; done; read -r -u 7 rest && echo $rest; cat <&7; cat ~/.tool/config; ls; ls er; cat er/file; echo end";
    let Some((running, _)) = watched(&room, &["/bin/bash", "-c", script]) else { return };
    let ready = room.task.tree().join("ready");
    testkit::eventually("the first bytes are read", std::time::Duration::from_secs(20), || ready.exists().then_some(()));
    keeper.open.lock().unwrap().clear();
    keeper.shut.store(true, Ordering::SeqCst);
    fs::write(room.task.tree().join("go"), "").unwrap();
    let went = running.finish();
    assert_eq!(good(&went), "of \nend\n", "only what was read before: {went:?}");
    assert!(went.err.matches("ermission denied").count() >= 4, "{went:?}");
}

#[test]
fn p2_once_is_one_opening() {
    let keeper = Arc::new(Keeper::default());
    keeper.once.lock().unwrap().insert("~/.tool/config".into());
    let room = room(&keeper);
    let Some((went, _)) = went(&room, "stat -c %s ~/.tool/config; cat ~/.tool/config; cat ~/.tool/config; echo end") else {
        return;
    };
    assert_eq!(good(&went), "14\ncolour = blue\nend\n", "{went:?}");
}

#[test]
fn p8_a_jail_that_opens_without_end_is_bounded_and_others_are_served() {
    let keeper = Keeper::opens(&["~/.tool"]);
    let room = room(&keeper);
    let place = room.home.join(".tool/many");
    fs::create_dir(&place).unwrap();
    for n in 0..300 {
        let mut file = fs::File::create(place.join(format!("f{n}"))).unwrap();
        file.write_all(&[b'x'; 4096]).unwrap();
    }
    // Whatever else is asked of a file that is served has an answer, and the file goes on.
    let odd = "python3 - <<'E'\nimport os,fcntl,array\nf=open(os.path.expanduser('~/.tool/many/f1'),'rb')\nn=f.fileno()\n\
               tries=[lambda: fcntl.ioctl(n,0x80086601,array.array('l',[0])), lambda: fcntl.ioctl(n,2,0), lambda: os.listxattr(n), lambda: os.fsync(n), \
               lambda: os.lseek(n,0,os.SEEK_HOLE), lambda: os.posix_fadvise(n,0,0,os.POSIX_FADV_WILLNEED), lambda: fcntl.flock(n,fcntl.LOCK_SH), \
               lambda: fcntl.lockf(n,fcntl.LOCK_SH), lambda: os.ftruncate(n,0), lambda: os.fchmod(n,0), lambda: os.utime(n), lambda: os.link('/proc/self/fd/%d'%n,'/tmp/l')]\n\
               for t in tries:\n  try: t()\n  except (OSError,ValueError): pass\n\
               os.lseek(n,0,0)\nprint(len(f.read()))\nE";
    let Some((served, _)) = went(&room, odd) else { return };
    assert_eq!(good(&served), "4096\n", "{served:?}");
    let script = "python3 - <<'E'\nimport os\nd=os.path.expanduser('~/.tool/many/')\nheld=[]\nrefused=0\n\
                  for n in range(300):\n  try: held.append(open(d+f'f{n}','rb'))\n  except OSError as e: refused+=1\n\
                  print(len(held)<=64, refused>=236)\n[f.close() for f in held]\n\
                  print(sum(len(open(d+f'f{n}','rb').read()) for n in range(300)))\nE";
    let Some((went, _)) = went(&room, script) else { return };
    assert_eq!(good(&went), format!("True True\n{}\n", 300 * 4096), "{went:?}");
}

#[test]
fn p2_a_link_that_a_jail_planted_in_a_place_of_its_own_opens_nothing() {
    let keeper = Arc::new(Keeper::default());
    let mut room = room(&keeper);
    let shared = room.root.join("shared");
    fs::create_dir(&shared).unwrap();
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o777)).unwrap();
    // As an earlier run left it.
    symlink(room.home.join(".ssh"), shared.join("vault")).unwrap();
    room.grants.write = vec![shared.clone()];
    let opened = |places: &[std::path::PathBuf], closed: &[std::path::PathBuf]| {
        let keeper = Arc::clone(&keeper) as Arc<dyn Doorkeeper>;
        supervise::decoy::Doors::open(places, &room.grants.write, closed, keeper).places().len()
    };
    assert_eq!(opened(&[shared.join("vault")], &[]), 0, "it is not even asked about");
    let mut text = String::new();
    fs::File::open(shared.join("vault/id_ed25519")).unwrap().read_to_string(&mut text).unwrap();
    assert_eq!(text, crate::room::SECRET, "although it leads there");

    // What holds Airlock's own data, lies in them, or leads there by a link of the person's.
    let data = room.layout.data.clone();
    let link = room.home.join("link");
    symlink(data.join("tasks"), &link).unwrap();
    let near = [data.parent().unwrap().to_owned(), data.clone(), data.join("tasks/other"), link];
    assert_eq!((opened(&near, &[]), opened(&near, &[data])), (4, 0), "Airlock's own state is served to nobody");
}
