//! A new connection through the way out, against a relay that judges nothing, against bare loopback: open, send a byte, get
//! it back. The client is the same program on every side; the way out's runs in a jail.

use crate::side::{Measured, Side, Table, compare};
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use testkit::{Repo, Sandbox};

/// The side that judges nothing.
pub(crate) const RELAY: &str = "through a relay without judgement";

/// The client: resolves once, then one connection for each line on stdin; answers with nanoseconds.
pub(crate) fn client(host: &str, port: &str) {
    let address = address(host, port);
    for line in std::io::stdin().lines() {
        line.expect("stdin can be read");
        let start = Instant::now();
        let mut connection = TcpStream::connect(address).expect("the connection opens");
        let mut byte = [42];
        connection.write_all(&byte).expect("a byte goes out");
        connection.read_exact(&mut byte).expect("a byte comes back");
        println!("{}", start.elapsed().as_nanos());
    }
}

/// Where a name leads, as the client's own machine says.
pub(crate) fn address(host: &str, port: &str) -> SocketAddr {
    let port: u16 = port.parse().expect("a port");
    (host, port).to_socket_addrs().expect("the name has an address").next().expect("at least one")
}

/// A repository with this program in it as `bench`.
pub(crate) fn with_client<'p>(person: &'p Sandbox, name: &str) -> Repo<'p> {
    let me = std::env::current_exe().expect("this program has a path");
    let repo = person.small_repo_at(person.projects().join(name));
    std::fs::copy(me, repo.path.join("bench")).expect("the client can be copied");
    repo.commit("with the client");
    repo
}

/// A client that waits for lines.
pub(crate) struct Asked {
    child: Child,
    answers: BufReader<std::process::ChildStdout>,
}

impl Asked {
    pub(crate) fn start(mut command: Command) -> Self {
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("the client starts");
        let answers = BufReader::new(child.stdout.take().expect("a pipe"));
        Self { child, answers }
    }

    pub(crate) fn once(&mut self) -> Measured {
        self.child.stdin.as_mut().expect("a pipe").write_all(b"go\n").map_err(|e| format!("the client is gone: {e}"))?;
        let mut line = String::new();
        self.answers.read_line(&mut line).map_err(|e| e.to_string())?;
        Ok(Duration::from_nanos(line.trim().parse().map_err(|_| format!("the client answered {line:?}"))?))
    }
}

impl Drop for Asked {
    fn drop(&mut self) {
        drop(self.child.stdin.take());
        drop(self.child.wait());
    }
}

/// Answers each connection with the byte that it brings.
pub(crate) fn echo() -> u16 {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
    let port = listener.local_addr().expect("an address").port();
    std::thread::spawn(move || {
        for mut connection in listener.incoming().flatten() {
            std::thread::spawn(move || {
                let mut byte = [0];
                if connection.read_exact(&mut byte).is_ok() {
                    drop(connection.write_all(&byte));
                }
            });
        }
    });
    port
}

/// Two sockets and a copy loop.
fn relay(to: u16) -> u16 {
    let (tell, port) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        runtime.block_on(async move {
            let listener = tokio::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.expect("a free port");
            tell.send(listener.local_addr().expect("an address").port()).expect("somebody waits");
            while let Ok((mut from, _)) = listener.accept().await {
                tokio::spawn(async move {
                    let Ok(mut to) = tokio::net::TcpStream::connect((Ipv4Addr::LOCALHOST, to)).await else { return };
                    drop(tokio::io::copy_bidirectional(&mut from, &mut to).await);
                });
            }
        });
    });
    port.recv().expect("the relay listens")
}

/// Clients of a server that say `word`: through the way out, through the relay, and bare.
pub(crate) fn three(person: &Sandbox, word: &str, host: &str, server: u16, limits: &str) -> [Asked; 3] {
    let relay = relay(server);
    let me = std::env::current_exe().expect("this program has a path");
    let repo = with_client(person, word);
    let policy = person.file(
        &format!("{word}.toml"),
        &format!(
            "version = 1\nname = \"bench\"\n[network]\ndefault = \"deny\"\n[[network.rule]]\nhost = \"{host}\"\nports = [{server}]\n\
             address = \"127.0.0.1:{server}\"\ndecision = \"allow\"\nreason = \"the bench's own server\"\n{limits}"
        ),
    );
    let mut inside = person.airlock_command(["run", "--repo"]);
    inside.arg(&repo.path).arg("--policy").arg(policy).args(["--", "./bench", word, host, &server.to_string()]);
    let outside = |port: u16| {
        let mut c = Command::new(&me);
        c.args([word, "127.0.0.1", &port.to_string()]);
        c
    };
    [inside, outside(relay), outside(server)].map(Asked::start)
}

pub(crate) fn table(person: &Sandbox, rounds: usize) -> Table {
    let [mut way_out, mut plain, mut bare] = three(person, "client", "echo.test", echo(), "");
    compare(
        "a new connection: open, a byte there and back",
        rounds,
        &mut [
            Side::new("through the way out", || way_out.once()).at_most(1.5, RELAY),
            Side::new(RELAY, || plain.once()),
            Side::new("bare loopback", || bare.once()),
        ],
    )
}
