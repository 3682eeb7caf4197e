//! Runs attacks: outside, where they must come through, then in a jail, where they must not. Prints both counts.

use crate::stage::Stage;
use crate::table::{Attack, Control, Program, Victim};
use std::fmt::Write as _;
use std::io::Read;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};
use testkit::wait::column;

/// Far more than any of them needs.
const LIMIT: Duration = Duration::from_secs(30);

/// What a program prints when it stays as it is until it was looked at.
const HOLDING: &str = "holding\n";

/// What a control's script says when the harm is there for itself alone to see.
const FELL: &str = "\nfell\n";

/// Runs a family; what went otherwise than promised, in words.
pub(crate) fn all(family: &[Attack]) -> String {
    let (mut controls, mut held, mut wrong, mut none) = (0, 0, String::new(), Vec::new());
    for attack in family {
        let control = outside(attack);
        let shown = match control {
            Shown::Fell => true,
            Shown::Not(said) if attack.lacks.is_empty() => {
                writeln!(wrong, "{}: its control must come through outside, and did not:\n{said}", attack.name).unwrap();
                continue;
            }
            Shown::Not(_) => {
                none.push((attack.name, attack.lacks.to_owned()));
                false
            }
            Shown::Never(why) => {
                none.push((attack.name, why));
                false
            }
        };
        controls += usize::from(shown);
        match inside(attack) {
            Ok(()) => held += usize::from(shown),
            Err(said) => writeln!(wrong, "{} ({}) came through from inside:\n{said}", attack.name, attack.why).unwrap(),
        }
    }
    for (name, why) in &none {
        println!("no control here: {name}: {why}");
    }
    println!("attacks: {controls} controls succeeded, {held} held inside ({}; {} without a control here)", column(), none.len());
    wrong
}

enum Shown {
    Fell,
    Not(String),
    Never(String),
}

fn outside(attack: &Attack) -> Shown {
    let root = nix::unistd::geteuid().is_root();
    let never = match attack.control {
        Control::Never(why) => Some(why),
        Control::Root | Control::Nobody if !root => Some("only root can show it"),
        _ => None,
    };
    if let Some(why) = never {
        return Shown::Never(why.to_owned());
    }
    let mut stage = Stage::new(attack);
    let pid = stage.process.id();
    let mut argv = stage.argv(attack, pid, |program| {
        let there = stage.scratch.join("hostile");
        std::fs::copy(program, &there).unwrap();
        there.to_str().unwrap().to_owned()
    });
    match attack.control {
        Control::Apart(script) => {
            let apart =
                "unshare --user --map-root-user --mount --pid --fork --kill-child --net --ipc --uts --mount-proc /bin/sh -c";
            let words = apart.split(' ').chain([script, "sh"]).map(str::to_owned);
            argv = words.chain(argv).collect();
        }
        Control::Nobody | Control::Unprivileged if root => {
            for place in ["", "outside", "shown", "shown/hidden", "scratch"] {
                std::fs::set_permissions(stage.at(place), std::fs::Permissions::from_mode(0o755)).unwrap();
            }
            let as_nobody = "setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all --bounding-set=+all";
            argv = as_nobody.split(' ').map(str::to_owned).chain(argv).collect();
        }
        Control::Plain | Control::Root | Control::Nobody | Control::Unprivileged | Control::Never(_) => {}
    }
    let path = |place: &str| stage.at(place);
    let mut command = Command::new(&argv[0]);
    command
        .args(&argv[1..])
        .current_dir(&stage.scratch)
        .envs([("SECRET", stage.secret_file(attack.victim)), ("FILE", stage.spoiled_file(attack.victim))])
        .envs([("SHOWN", path("shown")), ("HIDDEN", path("shown/hidden")), ("SHARED", path("shared"))])
        .env("VICTIM", path("outside/runtime"))
        .env("SOCKET", path("sockets/stream"))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    let mut child = crate::stage::start(command);
    let (said, _) = listen(vec![Box::new(child.stdout.take().unwrap()), Box::new(child.stderr.take().unwrap())]);
    let writable = vec![stage.scratch.clone(), stage.at("shared")];
    let mut fell = || {
        let processes = tree(i32::try_from(child.id()).unwrap());
        said.contains(FELL) || stage.fell(attack.victim, &said, &processes, &writable)
    };
    // A child of the program may need a moment more than the program on a machine that has much to do.
    let fell = fell()
        || (0..20).any(|_| {
            std::thread::sleep(Duration::from_millis(50));
            fell()
        });
    end(&mut child);
    if fell { Shown::Fell } else { Shown::Not(said) }
}

/// The host's state after an attack from inside.
fn inside(attack: &Attack) -> Result<(), String> {
    let against_process = match attack.program {
        Program::C(_, words) | Program::Probe(words) | Program::Python(_, words) => words.contains(&"{pid}"),
        Program::Shell(script) => script.contains("{pid}"),
    };
    // A number of the host's means nothing inside; the jail's init is the one process there that is not the agent's.
    let targets: &[Option<u32>] = if against_process { &[None, Some(1)] } else { &[None] };
    for target in targets {
        let mut stage = Stage::new(attack);
        stage.go_inside();
        let pid = target.unwrap_or_else(|| stage.process.id());
        let tree_dir = stage.room.task.tree();
        let argv = stage.argv(attack, pid, |program| {
            std::fs::copy(program, tree_dir.join("hostile")).unwrap();
            "./hostile".to_owned()
        });
        let words: Vec<&str> = argv.iter().map(String::as_str).collect();
        let mut spec = stage.room.spec(&words);
        spec.jail_program = stage.at("airlock-jail");
        let plan = supervise::compose::agent(&spec, &stage.room.grants).unwrap_or_else(|e| panic!("no plan: {e}"));
        let mut running = stage.room.start_plan(&plan, |_| ()).unwrap_or_else(|e| panic!("{}: no jail: {e}", attack.name));
        let streams = vec![Box::new(running.out.take().unwrap()) as Box<dyn Read + Send>, Box::new(running.err.take().unwrap())];
        let (said, held_still) = listen(streams);
        let processes = running.jail.processes();
        let lives = running.jail.processes().first() == Some(&running.jail.pid);
        let writable = vec![stage.room.task.tree(), stage.room.task.home(), stage.at("shared")];
        let fell = stage.fell(attack.victim, &said, &processes, &writable);
        running.jail.kill();
        drop(running.jail.wait());
        if fell {
            return Err(said);
        }
        let upper = stage.room.task.path().join("caches/npm/upper");
        let worked = attack.victim != Victim::Cache || upper.read_dir().is_ok_and(|mut d| d.next().is_some());
        assert!(worked, "{}: what it does to a cache arrives in the task's own layer: {said}", attack.name);
        assert!(lives || !held_still, "{}: the jail's init is gone before its command: {said}", attack.name);
    }
    Ok(())
}

/// All that is said until both streams end, or one says that it holds still; whether it did.
fn listen(streams: Vec<Box<dyn Read + Send>>) -> (String, bool) {
    let (send, receive) = channel::<Vec<u8>>();
    for mut stream in streams {
        let send = send.clone();
        std::thread::spawn(move || {
            let mut part = [0; 4096];
            while let Ok(n @ 1..) = stream.read(&mut part) {
                if send.send(part[..n].to_vec()).is_err() {
                    break;
                }
            }
        });
    }
    drop(send);
    collect(&receive)
}

fn collect(receive: &Receiver<Vec<u8>>) -> (String, bool) {
    let (mut said, end) = (Vec::new(), Instant::now() + testkit::wait::patiently(LIMIT));
    let text = |said: &[u8]| format!("\n{}", String::from_utf8_lossy(said));
    loop {
        match receive.recv_timeout(end.saturating_duration_since(Instant::now())) {
            Ok(part) => said.extend(part),
            Err(_) => return (text(&said), false),
        }
        if text(&said).contains(&format!("\n{HOLDING}")) {
            return (text(&said), true);
        }
    }
}

/// A process and all that come from it.
pub(crate) fn tree(root: i32) -> Vec<i32> {
    let parents: Vec<(i32, i32)> = std::fs::read_dir("/proc")
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(|entry| {
            let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
            let stat = std::fs::read_to_string(entry.path().join("stat")).ok()?;
            Some((pid, stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse().ok()?))
        })
        .collect();
    let mut found = vec![root];
    let mut at = 0;
    while let Some(parent) = found.get(at).copied() {
        found.extend(parents.iter().filter(|(_, p)| *p == parent).map(|(pid, _)| *pid));
        at += 1;
    }
    found
}

fn end(child: &mut Child) {
    for pid in tree(i32::try_from(child.id()).unwrap()) {
        // It may have ended by itself.
        let _ = nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid), nix::sys::signal::Signal::SIGKILL);
    }
    drop(child.wait());
}
