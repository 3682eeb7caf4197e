//! Where attacks happen: a person's machine in miniature with everything that an attack may go against.

use crate::canary::Canary;
use crate::room::Room;
use crate::table::{Attack, Program, Victim};
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// Everything is made anew for each run of a program, outside and inside.
pub(crate) struct Stage {
    pub(crate) room: Room,
    /// What may never come out.
    pub(crate) secret: String,
    /// Where the program works outside.
    pub(crate) scratch: PathBuf,
    /// The person's process.
    pub(crate) process: Child,
    memory: [String; 2],
    sockets: Vec<Canary>,
    tcp: u16,
    udp: u16,
    vsock: Option<(Canary, u32)>,
    screen: Option<testkit::window::Display>,
    /// Where a cache is seen: outside, where its files are, until a jail shows it.
    cache: PathBuf,
    name: String,
    before: Before,
    huge_pages: bool,
}

struct Before {
    outside: String,
    shown: String,
    process: String,
    runtime: Vec<u8>,
    jail: Vec<u8>,
    setting: Option<String>,
    huge_pages: u64,
    since_start: u64,
}

impl Stage {
    pub(crate) fn new(attack: &Attack) -> Self {
        let mut room = Room::new();
        let name = room.root.file_name().unwrap().to_str().unwrap().to_owned();
        let secret = format!("SECRET-{name}");
        let at = |place: &str| room.root.join(place);
        for place in ["outside", "shown/hidden", "shared", "scratch", "sockets"] {
            fs::create_dir_all(at(place)).unwrap();
        }
        for file in ["outside/secret", "shown/hidden/secret"] {
            fs::write(at(file), &secret).unwrap();
        }
        for file in ["outside/file", "shown/file"] {
            fs::write(at(file), "as it was\n").unwrap();
        }
        let runtime = at("outside/runtime");
        fs::copy(crate::compile::program("victim"), &runtime).unwrap();
        let mut process = Command::new(&runtime);
        process
            .arg(at("outside/secret"))
            .env_clear()
            .env("TOKEN", &secret)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .process_group(0);
        let mut process = start(process);
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let (memory, word) = line.trim().split_once(' ').expect("the victim says where its memory is");
        let gift = || fs::File::open(at("outside/secret")).unwrap().into();
        let ((tcp, tcp_port), (udp, udp_port)) = (Canary::tcp(), Canary::udp());
        let sockets = vec![
            Canary::stream(&at("sockets/stream"), gift()),
            Canary::datagram(&at("sockets/datagram")),
            Canary::abstract_stream(&format!("{name}-stream"), gift()),
            Canary::abstract_datagram(&format!("{name}-datagram")),
            tcp,
            udp,
        ];
        // A copy, so that an attack that gets through spoils no other test.
        fs::copy(testkit::program("airlock-jail"), at("airlock-jail")).unwrap();
        room.grants.read = vec![at("shown")];
        room.grants.write = vec![at("shared")];
        room.grants.hide.push(at("shown/hidden"));
        room.grants.processes = 64;
        if attack.victim == Victim::Cache {
            fs::create_dir_all(at("outside/cache/content")).unwrap();
            for file in ["content/one", "content/two", "top"] {
                fs::write(at("outside/cache").join(file), "a file of the cache\n").unwrap();
            }
            let private = room.task.path().join("caches/npm");
            for dir in ["upper", "work"] {
                fs::create_dir_all(private.join(dir)).unwrap();
            }
            let target = room.home.join(".npm/_cacache");
            room.grants.caches =
                vec![supervise::compose::Layered { name: "npm".into(), lower: at("outside/cache"), private, target }];
        }
        crate::machine::prepare(attack);
        prepare(attack, &room, &secret, &name);
        // What an attack changes is what is there now, not before it was prepared.
        let setting = match attack.victim {
            Victim::Setting(path) => fs::read_to_string(path).ok(),
            _ => None,
        };
        let before = Before {
            outside: about(&at("outside")),
            shown: about(&at("shown")),
            process: about_process(&process, word),
            runtime: fs::read(&runtime).unwrap(),
            jail: fs::read(at("airlock-jail")).unwrap(),
            setting,
            huge_pages: huge_pages_left(),
            since_start: since_start(),
        };
        let huge_pages = attack.victim == Victim::HugePages;
        let screen = (attack.victim == Victim::Screen).then(testkit::window::Display::start);
        let vsock = (attack.victim == Victim::Vsock).then(Canary::vsock).flatten();
        let (scratch, cache) = (at("scratch"), at("outside/cache"));
        let memory = [memory.to_owned(), word.to_owned()];
        Self {
            room,
            secret,
            scratch,
            process,
            memory,
            sockets,
            tcp: tcp_port,
            udp: udp_port,
            vsock,
            screen,
            cache,
            name,
            before,
            huge_pages,
        }
    }

    pub(crate) fn at(&self, place: &str) -> PathBuf {
        self.room.root.join(place)
    }

    /// From here on words are filled in for a program inside.
    pub(crate) fn go_inside(&mut self) {
        self.room.tools = vec![];
        self.cache = self.room.home.join(".npm/_cacache");
    }

    pub(crate) fn secret_file(&self, victim: Victim) -> PathBuf {
        self.at(if victim == Victim::Hidden { "shown/hidden/secret" } else { "outside/secret" })
    }

    pub(crate) fn spoiled_file(&self, victim: Victim) -> PathBuf {
        self.at(if victim == Victim::Shown { "shown/file" } else { "outside/file" })
    }

    /// A program's argument with the stage's values in it. Process ids of the host mean nothing inside, so an attack on a
    /// process is tried there a second time, on the jail's own init: `pid`.
    pub(crate) fn filled(&self, word: &str, victim: Victim, pid: u32) -> String {
        let path = |p: PathBuf| p.to_str().unwrap().to_owned();
        let file = self.spoiled_file(victim);
        [
            ("{secret}", path(self.secret_file(victim))),
            ("{dir}", path(file.parent().unwrap().to_owned())),
            ("{file}", path(file)),
            ("{shared}", path(self.at("shared"))),
            ("{shown}", path(self.at("shown"))),
            ("{pid}", pid.to_string()),
            ("{memory}", self.memory[0].clone()),
            ("{word}", self.memory[1].clone()),
            ("{stream}", path(self.at("sockets/stream"))),
            ("{datagram}", path(self.at("sockets/datagram"))),
            ("{abstract}", format!("{}-stream", self.name)),
            ("{abstract-datagram}", format!("{}-datagram", self.name)),
            ("{tcp}", self.tcp.to_string()),
            ("{udp}", self.udp.to_string()),
            ("{vsock}", self.vsock.as_ref().map_or(0, |(_, port)| *port).to_string()),
            ("{display}", self.screen.as_ref().map_or_else(String::new, |screen| screen.name().to_owned())),
            ("{cache}", path(self.cache.clone())),
            ("{runtime}", path(self.at("outside/runtime"))),
            ("{name}", self.name.clone()),
            ("{handle}", self.handle(victim, word)),
            ("{setting}", if let Victim::Setting(file) = victim { file.to_owned() } else { String::new() }),
        ]
        .iter()
        .fold(word.to_owned(), |text, (key, value)| text.replace(key, value))
    }

    /// The handle of the secret, as a program that once saw the file could know it.
    fn handle(&self, victim: Victim, word: &str) -> String {
        if !word.contains("{handle}") {
            return String::new();
        }
        let out = Command::new(crate::compile::program("files")).arg("handle-of").arg(self.secret_file(victim)).output().unwrap();
        assert!(out.status.success(), "the file system of {} knows handles", self.room.root.display());
        String::from_utf8(out.stdout).unwrap()
    }

    /// The command line; `bring` makes a program reachable where the attack runs and says by which path.
    pub(crate) fn argv(&self, attack: &Attack, pid: u32, bring: impl Fn(&Path) -> String) -> Vec<String> {
        let fill = |words: &[&str]| -> Vec<String> { words.iter().map(|w| self.filled(w, attack.victim, pid)).collect() };
        match attack.program {
            Program::C(name, words) => [vec![bring(&crate::compile::program(name))], fill(words)].concat(),
            Program::Probe(words) => [vec![bring(&testkit::program("probe"))], fill(words)].concat(),
            Program::Python(script, words) => {
                [vec!["/usr/bin/python3".to_owned(), "-c".to_owned(), script.to_owned()], fill(words)].concat()
            }
            Program::Shell(script) => vec!["/bin/sh".into(), "-c".into(), self.filled(script, attack.victim, pid)],
        }
    }

    /// Whether the attack came through, by the state of this machine. `output` is all that the program said, `processes` are
    /// the host's numbers of its processes, `writable` are the places that it may write.
    pub(crate) fn fell(&mut self, victim: Victim, output: &str, processes: &[i32], writable: &[PathBuf]) -> bool {
        let secret = self.secret.clone();
        match victim {
            Victim::Secret | Victim::Hidden | Victim::Memory | Victim::Key | Victim::Log => {
                output.contains(&secret) || writable.iter().any(|w| holds(w, secret.as_bytes()))
            }
            Victim::File | Victim::Cache => about(&self.at("outside")) != self.before.outside,
            Victim::Shown => about(&self.at("shown")) != self.before.shown,
            Victim::Process => about_process(&self.process, &self.memory[1]) != self.before.process,
            Victim::Stream => self.sockets[0].sang(),
            Victim::Datagram => self.sockets[1].sang(),
            Victim::Abstract => self.sockets[2].sang(),
            Victim::AbstractDatagram => self.sockets[3].sang(),
            Victim::Screen => self.screen.as_ref().is_some_and(|screen| is_named(screen.name(), &self.name)),
            Victim::Vsock => self.vsock.as_mut().is_some_and(|(canary, _)| canary.sang()),
            Victim::Tcp => self.sockets[4].sang(),
            Victim::Udp => self.sockets[5].sang(),
            Victim::Descriptor(kind) => processes.iter().any(|pid| links(*pid).iter().any(|l| is_kind(*pid, l, kind))),
            Victim::Rights => processes.iter().any(|pid| has_rights(*pid)),
            Victim::Left => writable.iter().any(|w| left_in(w)),
            Victim::Processes(most) => processes.len() > most,
            Victim::Descriptors(most) => processes.iter().any(|pid| links(*pid).len() > most),
            Victim::Runtime => {
                fs::read(self.at("outside/runtime")).ok().as_ref() != Some(&self.before.runtime)
                    || fs::read(self.at("airlock-jail")).ok().as_ref() != Some(&self.before.jail)
            }
            Victim::Table(name) => none_left(name),
            Victim::HugePages => huge_pages_left() < self.before.huge_pages,
            Victim::Setting(path) => fs::read_to_string(path).ok() != self.before.setting,
            Victim::Clock => since_start().abs_diff(self.before.since_start) > 3600,
            Victim::Keys => fs::read_to_string("/proc/keys").is_ok_and(|keys| keys.contains(&self.name)),
            Victim::Dump => writable.iter().any(|w| dumped(w)),
            Victim::Shared => fs::read_to_string("/proc/sysvipc/shm").is_ok_and(|t| t.contains(&0x4152_4c4b.to_string())),
            Victim::Apart => false,
        }
    }
}

impl Drop for Stage {
    fn drop(&mut self) {
        if self.huge_pages {
            drop(fs::write(HUGE_PAGES, "0"));
        }
        // Dead already where an attack on it came through.
        drop(self.process.kill());
        drop(self.process.wait());
    }
}

/// Whether an X server knows an atom of this name. It is asked by its own protocol: two requests, of which the first has the order
/// of bytes and no authority.
fn is_named(display: &str, word: &str) -> bool {
    let path = format!("/tmp/.X11-unix/X{}", display.trim_start_matches(':'));
    let mut server = std::os::unix::net::UnixStream::connect(path).unwrap();
    server.write_all(b"l\0\x0b\0\0\0\0\0\0\0\0\0").unwrap();
    let mut head = [0; 8];
    server.read_exact(&mut head).unwrap();
    let mut rest = vec![0; usize::from(u16::from_le_bytes([head[6], head[7]])) * 4];
    server.read_exact(&mut rest).unwrap();
    let word: Vec<u8> = word.bytes().chain(std::iter::repeat_n(0, word.len().wrapping_neg() % 4)).collect();
    let [length, letters] = [2 + word.len() / 4, word.iter().filter(|b| **b != 0).count()].map(|n| u16::try_from(n).unwrap());
    // InternAtom, only if it exists.
    server.write_all(&[&[16, 1][..], &length.to_le_bytes(), &letters.to_le_bytes(), &[0, 0], &word].concat()).unwrap();
    let mut answer = [0; 32];
    server.read_exact(&mut answer).unwrap();
    assert_eq!(answer[0], 1, "the server answers");
    answer[8..12] != [0; 4]
}

fn dumped(dir: &Path) -> bool {
    fs::read_dir(dir).into_iter().flatten().flatten().any(|e| e.file_name().to_string_lossy().starts_with("core"))
}

/// By how many seconds the clock is ahead of the time since the machine's start.
fn since_start() -> u64 {
    let up = fs::read_to_string("/proc/uptime").unwrap();
    let up: u64 = up.split('.').next().and_then(|s| s.parse().ok()).unwrap();
    std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs().saturating_sub(up)
}

const HUGE_PAGES: &str = "/proc/sys/vm/nr_hugepages";

fn huge_pages_left() -> u64 {
    let table = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let field =
        |name: &str| table.lines().find_map(|l| l.strip_prefix(name)).and_then(|v| v.trim().parse::<u64>().ok()).unwrap_or(0);
    field("HugePages_Free:").saturating_sub(field("HugePages_Rsvd:"))
}

/// Whether a program of the same user gets nothing of a table, with the limits that a session has.
fn none_left(table: &str) -> bool {
    let mut come = Command::new("prlimit");
    come.args(["--nofile=1024:1024", "--"]).arg(crate::compile::program("quotas")).args([table, "1"]);
    let mut come = come.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(come.stdout.take().unwrap()).read_line(&mut line).unwrap();
    come.kill().unwrap();
    come.wait().unwrap();
    assert!(line.starts_with("took "), "the second one says what it got: {line}");
    line.starts_with("took 0:")
}

/// Starts a program that was just written: another thread's child may still hold it open for writing, until it execs.
pub(crate) fn start(mut command: Command) -> Child {
    testkit::eventually("a program can be started", std::time::Duration::from_secs(10), || match command.spawn() {
        Err(e) if e.kind() == std::io::ErrorKind::ExecutableFileBusy => None,
        other => Some(other.unwrap_or_else(|e| panic!("{command:?}: {e}"))),
    })
}

/// What single attacks need.
fn prepare(attack: &Attack, room: &Room, secret: &str, name: &str) {
    let run = |program: &Path, words: &[&str]| {
        let done = Command::new(program).args(words).stdout(Stdio::null()).status();
        assert!(done.is_ok_and(|s| s.success()), "{} {words:?}", program.display());
    };
    match attack.victim {
        Victim::Key => run(&crate::compile::program("kernel"), &["plant-key", name, secret]),
        // An ordinary user can't write there, nor show that the log can be read.
        Victim::Log => drop(fs::write("/dev/kmsg", format!("airlock test: {secret}\n"))),
        // Four of them, given back when the stage goes; an ordinary user has what there is.
        Victim::HugePages => drop(fs::write(HUGE_PAGES, "4")),
        Victim::Rights if nix::unistd::geteuid().is_root() => {
            for (program, mode) in [("set-uid", 0o4755), ("capable", 0o755)] {
                let made = room.root.join("shown").join(program);
                fs::copy(crate::compile::program("calls"), &made).unwrap();
                fs::set_permissions(&made, fs::Permissions::from_mode(mode)).unwrap();
            }
            run(
                Path::new("/sbin/setcap"),
                &["cap_dac_read_search,cap_net_raw+ep", room.root.join("shown/capable").to_str().unwrap()],
            );
        }
        _ => {}
    }
}

/// A directory with everything about what is in it, and how many names each file has.
fn about(dir: &Path) -> String {
    let mut names: Vec<String> = fs::read_dir(dir)
        .map(|d| {
            d.flatten().map(|e| format!("{:?} {:?}", e.path(), e.metadata().map(|m| (m.nlink(), m.mode(), m.ino())))).collect()
        })
        .unwrap_or_default();
    names.sort();
    let tree = testkit::treehash::treehash(dir).map(|t| t.lines).map_err(|e| e.to_string());
    format!("{names:?} {tree:?}")
}

/// Everything about a process that another one could change.
fn about_process(process: &Child, word: &str) -> String {
    let pid = process.id();
    let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let stat = read("stat");
    let fields: Vec<&str> = stat.rsplit_once(") ").map(|(_, rest)| rest.split(' ').collect()).unwrap_or_default();
    // Priority, nice, policy; and whether it runs or sleeps, which is the same here, or is stopped or dead.
    let chosen: Vec<&str> = [15, 16, 38].iter().filter_map(|i| fields.get(*i).copied()).collect();
    let lives = fields.first().is_some_and(|s| ["R", "S", "D"].contains(s));
    let limits: Vec<String> = read("limits").lines().map(str::to_owned).collect();
    let status = read("status");
    let allowed = status.lines().find(|l| l.starts_with("Cpus_allowed_list")).unwrap_or_default();
    let ionice = Command::new("ionice").args(["-p", &pid.to_string()]).output().map(|o| o.stdout).unwrap_or_default();
    let mut value = [0; 8];
    let address = u64::from_str_radix(word.trim_start_matches("0x"), 16).unwrap_or(0);
    let read_word = fs::File::open(format!("/proc/{pid}/mem"))
        .and_then(|f| std::os::unix::fs::FileExt::read_exact_at(&f, &mut value, address));
    format!("{lives} {chosen:?} {limits:?} {allowed} {:?} {:?} {:?} {value:?}", read("oom_score_adj"), ionice, read_word.is_ok())
}

fn holds(dir: &Path, word: &[u8]) -> bool {
    fs::read_dir(dir).into_iter().flatten().flatten().any(|entry| {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => holds(&path, word),
            Ok(kind) if kind.is_file() => fs::read(&path).is_ok_and(|b| b.windows(word.len()).any(|w| w == word)),
            _ => false,
        }
    })
}

fn left_in(dir: &Path) -> bool {
    fs::read_dir(dir).into_iter().flatten().flatten().any(|entry| {
        let Ok(about) = entry.metadata() else { return false };
        let kind = about.mode() & 0o170_000;
        let device = kind == 0o020_000 || kind == 0o060_000;
        let set_id = about.is_file() && about.permissions().mode() & 0o6000 != 0;
        device || set_id || (about.is_dir() && left_in(&entry.path()))
    })
}

fn links(pid: i32) -> Vec<String> {
    let entries = fs::read_dir(format!("/proc/{pid}/fd")).into_iter().flatten().flatten();
    entries.filter_map(|e| fs::read_link(e.path()).ok()).map(|l| l.to_string_lossy().into_owned()).collect()
}

/// By the beginning of its link, or, for `packet` and `netlink`, by the tables of the process's network namespace.
fn is_kind(pid: i32, link: &str, kind: &str) -> bool {
    let Some(inode) = link.strip_prefix("socket:[").map(|l| l.trim_end_matches(']')) else { return link.starts_with(kind) };
    let table = match kind {
        "packet" => "packet",
        "raw" => "raw",
        "icmp" => "icmp",
        "netlink" => "netlink",
        _ => return false,
    };
    let table = fs::read_to_string(format!("/proc/{pid}/net/{table}")).unwrap_or_default();
    // NETLINK_ROUTE is every program's.
    let lines = table.lines().skip(1).filter(|l| kind != "netlink" || l.split_whitespace().nth(1) != Some("0"));
    lines.map(|l| l.split_whitespace().collect::<Vec<_>>()).any(|l| l.contains(&inode))
}

fn has_rights(pid: i32) -> bool {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let field = |name: &str| status.lines().find_map(|l| l.strip_prefix(name)).unwrap_or_default().trim().to_owned();
    let ids = [field("Uid:"), field("Gid:")].join("\t");
    let all: Vec<&str> = ids.split('\t').collect();
    // One id throughout, and no capability: that is what the program began with.
    !status.is_empty() && (all[..4].iter().any(|i| *i != all[0]) || all[0] == "0" || !field("CapEff:").chars().all(|c| c == '0'))
}
