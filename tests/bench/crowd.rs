//! Many connections at once through the way out, against a relay that judges nothing: the slowest of them, and what one that
//! says nothing holds.

use crate::connect::{RELAY, address, echo, three};
use crate::fleet::{mib, pss};
use crate::side::{Side, Table, compare, load};
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};
use testkit::{Sandbox, eventually};

/// Clients at once.
const CROWD: usize = 200;
/// Tunnels that stand and say nothing, of two processes.
const IDLE: usize = 1000;

/// The client: for each line on stdin as many connections at once, each with a byte there and back; answers with the nanoseconds that
/// 99 of 100 took at most.
pub(crate) fn client(host: &str, port: &str) {
    let at = address(host, port);
    for line in std::io::stdin().lines() {
        line.expect("stdin can be read");
        let go = std::sync::Barrier::new(CROWD);
        let mut took: Vec<Duration> = std::thread::scope(|s| {
            let one = || {
                go.wait();
                let start = Instant::now();
                let mut connection = TcpStream::connect(at).expect("the connection opens");
                let mut byte = [42];
                connection.write_all(&byte).expect("a byte goes out");
                connection.read_exact(&mut byte).expect("a byte comes back");
                start.elapsed()
            };
            let threads: Vec<_> = (0..CROWD).map(|_| s.spawn(one)).collect();
            threads.into_iter().map(|t| t.join().expect("a client ends")).collect()
        });
        took.sort_unstable();
        println!("{}", took[CROWD * 99 / 100 - 1].as_nanos());
    }
}

/// Opens half of the idle tunnels, says so, and holds them until its stdin ends.
pub(crate) fn idle(host: &str, port: &str) {
    let at = address(host, port);
    let held: Vec<TcpStream> = (0..IDLE / 2).map(|_| TcpStream::connect(at).expect("the connection opens")).collect();
    println!("{} stand", held.len());
    drop(std::io::stdin().read(&mut [0]));
}

pub(crate) fn table(person: &Sandbox, rounds: usize) -> Table {
    let server = echo();
    let [mut way_out, mut plain, mut bare] = three(person, "crowd", "echo.test", server, "");
    let mut table = compare(
        "200 clients at once: the slowest but two, open, a byte there and back",
        rounds,
        &mut [
            Side::new("through the way out", || way_out.once()).at_most(1.5, RELAY),
            Side::new(RELAY, || plain.once()),
            Side::new("bare loopback", || bare.once()),
        ],
    );
    drop((way_out, plain, bare));
    let (kib, each) = standing(person, server);
    table.raw = json!([table.raw, { "title": "idle tunnels", "load": load(), "pss_kib": kib, "each_kib": each }]);
    table
}

/// What a warden holds before and with the idle tunnels, and what one of them takes, in KiB.
fn standing(person: &Sandbox, server: u16) -> ([u64; 2], f64) {
    let repo = person.projects().join("crowd");
    let script =
        "read go; (./bench idle echo.test \"$1\" < <(sleep 1000) & ./bench idle echo.test \"$1\" < <(sleep 1000) & wait)";
    let mut c = person.airlock_command(["run", "--repo"]);
    c.arg(&repo).arg("--policy").arg(person.root().join("crowd.toml")).args([
        "--",
        "bash",
        "-c",
        script,
        "bash",
        &server.to_string(),
    ]);
    let mut run = testkit::Live::start(c);
    let patience = Duration::from_secs(60);
    let warden = eventually("a warden", patience, || person.wardens().first().copied());
    std::thread::sleep(Duration::from_secs(2));
    let before = pss(warden);
    run.write(b"go\n");
    eventually("the tunnels stand", patience, || (run.out().matches("stand").count() == 2).then_some(()));
    std::thread::sleep(Duration::from_secs(2));
    let with = pss(warden);
    #[expect(clippy::cast_precision_loss, reason = "kibibytes")]
    let each = with.saturating_sub(before) as f64 / IDLE as f64;
    println!("\n{IDLE} idle tunnels of one jail, of two processes, load {}", load());
    let verdict = if each <= 20.0 { "within" } else { "over" };
    println!(
        "  the warden holds {} before, {} with them (PSS): {each:.1} KiB each, at most 20: {verdict}",
        mib(before),
        mib(with)
    );
    drop(run);
    ([before, with], each)
}
