//! Runs inside a jail and tries one thing; prints `ok …` or `refused ERROR`. Outside, it is a starter to be killed, or one
//! that has no descriptor left.
#![allow(
    clippy::print_stdout,
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "a probe's whole work is to print how it went"
)]

use nix::sys::socket::{AddressFamily, SockFlag, SockType, UnixAddr};
use rustix::net::{Protocol, SocketFlags, SocketType};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream, UdpSocket};
use std::num::NonZeroU32;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::ffi::OsStringExt as _;
use std::time::Duration;

type Tried = Result<String, String>;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let tried = match words[..] {
        ["connect", address] => tcp(address),
        ["udp", address] => udp(address),
        ["family", number] => family(number.parse().unwrap()),
        ["netlink", number] => netlink(number.parse().unwrap()),
        ["unix", path] => std::os::unix::net::UnixStream::connect(path).map(|_| String::new()).map_err(|e| e.to_string()),
        ["abstract", name] => abstract_socket(name),
        ["kill", pid] => {
            nix::sys::signal::kill(nix::unistd::Pid::from_raw(pid.parse().unwrap()), nix::sys::signal::Signal::SIGKILL)
                .map(|()| String::new())
                .map_err(|e| e.to_string())
        }
        ["processes", most] => processes(most.parse().unwrap()),
        ["inotify"] => inotify(),
        ["terminals"] => terminals(),
        ["touch", place, threads, rounds, name] => touch(place, threads.parse().unwrap(), rounds.parse().unwrap(), name),
        ["hold-places", ref places @ ..] => hold_places(places),
        ["row", plan, program] => row(plan, program),
        ["hold", plan, program] => hold(plan, program),
        ["hold-bare", plan, program] => hold_bare(plan, program),
        ["starved", plan, program] => starved(plan, program),
        _ => panic!("no such probe: {words:?}"),
    };
    match tried {
        Ok(text) => println!("ok {text}"),
        Err(text) => println!("refused {text}"),
    }
}

fn says(e: impl std::fmt::Display) -> String {
    e.to_string()
}

fn tcp(address: &str) -> Tried {
    let address: SocketAddr = address.parse().map_err(says)?;
    let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(5)).map_err(says)?;
    stream.write_all(b"canary").map_err(says)?;
    stream.set_read_timeout(Some(Duration::from_secs(5))).map_err(says)?;
    let mut answer = String::new();
    drop(stream.read_to_string(&mut answer));
    Ok(answer)
}

fn udp(address: &str) -> Tried {
    let address: SocketAddr = address.parse().map_err(says)?;
    let socket = UdpSocket::bind(if address.is_ipv6() { "[::]:0" } else { "0.0.0.0:0" }).map_err(says)?;
    socket.connect(address).map_err(says)?;
    socket.send(b"canary").map_err(says)?;
    // An unreachable port is told at the next call.
    socket.set_read_timeout(Some(Duration::from_millis(500))).map_err(says)?;
    socket.recv(&mut [0; 16]).map(|n| format!("{n} bytes")).map_err(says)
}

/// Every socket type of a family; the first that can be made.
fn family(number: u16) -> Tried {
    let family = rustix::net::AddressFamily::from_raw(number);
    let mut last = String::new();
    for kind in 1..=5 {
        match rustix::net::socket_with(family, SocketType::from_raw(kind), SocketFlags::CLOEXEC, None) {
            Ok(_) => return Ok(format!("a socket of type {kind}")),
            Err(e) => last = e.to_string(),
        }
    }
    Err(last)
}

fn netlink(number: u32) -> Tried {
    let protocol = NonZeroU32::new(number).map(Protocol::from_raw);
    rustix::net::socket_with(rustix::net::AddressFamily::NETLINK, SocketType::RAW, SocketFlags::CLOEXEC, protocol)
        .map(|_| String::new())
        .map_err(says)
}

fn abstract_socket(name: &str) -> Tried {
    let socket = nix::sys::socket::socket(AddressFamily::Unix, SockType::Stream, SockFlag::empty(), None).map_err(says)?;
    let address = UnixAddr::new_abstract(name.as_bytes()).map_err(says)?;
    nix::sys::socket::connect(socket.as_raw_fd(), &address).map(|()| String::new()).map_err(says)
}

/// Starts children until it can't, and says how many there are.
fn processes(most: usize) -> Tried {
    let mut children = Vec::new();
    for _ in 0..most {
        match std::process::Command::new("/bin/sleep").arg("100").spawn() {
            Ok(child) => children.push(child),
            Err(e) => return Err(format!("{} {e}", children.len())),
        }
    }
    Ok(children.len().to_string())
}

fn inotify() -> Tried {
    let mut held = Vec::new();
    loop {
        match rustix::fs::inotify::init(rustix::fs::inotify::CreateFlags::CLOEXEC) {
            Ok(one) => held.push(one),
            Err(e) => return Err(format!("{} {e}", held.len())),
        }
        if held.len() > 1000 {
            return Ok(held.len().to_string());
        }
    }
}

fn terminals() -> Tried {
    let mut held = Vec::new();
    loop {
        match std::fs::File::options().read(true).write(true).open("/dev/ptmx") {
            Ok(one) => held.push(one),
            Err(e) => return Err(format!("{} {e}", held.len())),
        }
        if held.len() > 600 {
            return Ok(held.len().to_string());
        }
    }
}

/// Touches a name in a place so often on so many threads, and says how often it was refused. `*` stands for every odd name.
fn touch(place: &str, threads: usize, rounds: usize, name: &str) -> Tried {
    let odd = name == "*";
    let long = "n".repeat(255);
    let odd_names: [&[u8]; 6] = [b"a\nb", b"\xff\xfe", long.as_bytes(), b"\x1b[2J\x07", b"x/y/z/../..", b" "];
    let refused = std::thread::scope(|scope| {
        let one = |thread: usize| {
            let mut refused = 0;
            for round in 0..rounds {
                let mut path = [place.as_bytes(), b"/"].concat();
                match odd {
                    true => path.extend([odd_names[round % 6], format!("{thread}.{round}").as_bytes()].concat()),
                    false => path.extend(name.as_bytes()),
                }
                let path = std::path::PathBuf::from(std::ffi::OsString::from_vec(path));
                let error = std::fs::File::open(path).err().and_then(|e| e.raw_os_error());
                refused += usize::from(error == Some(nix::libc::EACCES) || error == Some(nix::libc::ENAMETOOLONG));
            }
            refused
        };
        let all: Vec<_> = (0..threads).map(|thread| scope.spawn(move || one(thread))).collect();
        all.into_iter().map(|t| t.join().unwrap()).sum::<usize>()
    });
    Ok(refused.to_string())
}

/// Holds places in every way there is, stops some of those that touch them, and never ends.
fn hold_places(places: &[&str]) -> Tried {
    let mut held = Vec::new();
    let watch = rustix::fs::inotify::init(rustix::fs::inotify::CreateFlags::CLOEXEC).map_err(says)?;
    for place in places {
        for _ in 0..20 {
            let flags = rustix::fs::OFlags::PATH | rustix::fs::OFlags::CLOEXEC;
            held.push(rustix::fs::open(*place, flags, rustix::fs::Mode::empty()).map_err(says)?);
        }
        rustix::fs::inotify::add_watch(&watch, *place, rustix::fs::inotify::WatchFlags::ALL_EVENTS).map_err(says)?;
        if let Ok(file) = std::fs::File::open(place) {
            return Err(format!("{place} could be opened to be mapped: {file:?}"));
        }
    }
    std::env::set_current_dir(places[0]).map_err(says)?;
    for number in 0..8 {
        let place = places[0].to_owned();
        // A process of its own, so that it can be stopped in the middle of a touch.
        let child = std::process::Command::new("/bin/sh")
            .args(["-c", "while :; do cat \"$0/x\"; cat \"$0/y\"; done 2>/dev/null"])
            .arg(place)
            .current_dir("/")
            .spawn()
            .map_err(says)?;
        if number % 2 == 0 {
            std::thread::sleep(Duration::from_millis(30));
            let pid = nix::unistd::Pid::from_raw(i32::try_from(child.id()).unwrap());
            nix::sys::signal::kill(pid, nix::sys::signal::Signal::SIGSTOP).map_err(says)?;
        }
    }
    let place = places[0].to_owned();
    std::thread::spawn(move || touch(&place, 16, usize::MAX, "*"));
    println!("ok holding {}", held.len());
    loop {
        std::thread::sleep(Duration::from_secs(100));
    }
}

/// Outside: starts a jail, says how far its decoys go, and lets its command say the rest.
fn row(plan: &str, program: &str) -> Tried {
    let plan = jail_plan::Plan::from_json(&std::fs::read(plan).map_err(says)?).map_err(says)?;
    let copy = || std::io::stdout().as_fd().try_clone_to_owned().map_err(says);
    let null = std::fs::File::open("/dev/null").map_err(says)?;
    let jail = supervise::spawn(&plan, std::path::Path::new(program), Some([null.into(), copy()?, copy()?])).map_err(says)?;
    println!("{:?}", jail.report.status(jail_plan::Guarantee::Decoys));
    jail.go().map_err(says)?;
    jail.wait().map(|ended| format!("{:?}", ended.exit)).map_err(says)
}

/// Outside: starts a jail and holds it until killed.
fn hold(plan: &str, program: &str) -> Tried {
    let plan = jail_plan::Plan::from_json(&std::fs::read(plan).map_err(says)?).map_err(says)?;
    let null = || std::fs::File::options().read(true).write(true).open("/dev/null").map(std::os::fd::OwnedFd::from);
    let streams = [null().map_err(says)?, null().map_err(says)?, null().map_err(says)?];
    let jail = supervise::spawn(&plan, std::path::Path::new(program), Some(streams)).map_err(says)?;
    println!("{}", jail.pid);
    jail.go().map_err(says)?;
    jail.wait().map(|ended| format!("{ended:?}")).map_err(says)
}

/// Outside: the same for a jail without namespaces, whose calls have to be made.
fn hold_bare(plan: &str, program: &str) -> Tried {
    use supervise::{broker, notify::Notify, who};
    let plan = jail_plan::Plan::from_json(&std::fs::read(plan).map_err(says)?).map_err(says)?;
    let null = || std::fs::File::options().read(true).write(true).open("/dev/null").map(std::os::fd::OwnedFd::from);
    let streams = [null().map_err(says)?, null().map_err(says)?, null().map_err(says)?];
    let mut jail = supervise::spawn(&plan, std::path::Path::new(program), Some(streams)).map_err(says)?;
    let init_pid = u32::try_from(jail.pid).map_err(says)?;
    let who = who::Who::new(who::JailRef { init_pid, ..Default::default() }).map_err(says)?;
    let listener = jail.notify.take().ok_or("it has no listener")?;
    let reach = broker::Reach { roots: broker::roots(&plan), way_out: None };
    let _notify = Notify::serve_making(listener, who, reach, |_| ()).map_err(says)?;
    jail.go().map_err(says)?;
    jail.wait().map(|ended| format!("{ended:?}")).map_err(says)
}

/// Outside: starts a jail, takes every descriptor that there is, and freezes and thaws it, each time at a line of stdin.
fn starved(plan: &str, program: &str) -> Tried {
    let plan = jail_plan::Plan::from_json(&std::fs::read(plan).map_err(says)?).map_err(says)?;
    let null = || std::fs::File::options().read(true).write(true).open("/dev/null").map(std::os::fd::OwnedFd::from);
    let streams = [null().map_err(says)?, null().map_err(says)?, null().map_err(says)?];
    let jail = supervise::spawn(&plan, std::path::Path::new(program), Some(streams)).map_err(says)?;
    jail.go().map_err(says)?;
    let mut lines = std::io::stdin().lines();
    let mut next = || lines.next().and_then(Result::ok).ok_or_else(|| "nobody asks any more".to_owned());
    next()?;
    let few = rustix::process::Rlimit { current: Some(64), maximum: Some(64) };
    rustix::process::setrlimit(rustix::process::Resource::Nofile, few).map_err(says)?;
    let mut taken = Vec::new();
    let none_left = loop {
        match null() {
            Ok(one) => taken.push(one),
            Err(e) => break e,
        }
    };
    for _ in 0..3 {
        println!("frozen {} {none_left}", jail.freeze());
        next()?;
        jail.thaw();
        println!("thawed {} {}", jail.processes().len(), jail.signal(0).is_ok());
        next()?;
    }
    Ok(taken.len().to_string())
}
