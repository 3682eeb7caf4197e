//! Protocols that are not HTTP, by their own clients and servers, on the host and port that a rule names.

use std::path::PathBuf;
use std::process::Command;
use testkit::{Live, Sandbox};

/// A program of the database's that is on no PATH.
fn of_postgres(name: &str) -> PathBuf {
    let versions = std::fs::read_dir("/usr/lib/postgresql").expect("PostgreSQL is installed");
    versions.flatten().map(|v| v.path().join("bin").join(name)).find(|p| p.exists()).expect("its programs are there")
}

/// A command that is not root's: the database refuses that one.
fn modest(program: PathBuf) -> Command {
    if !nix::unistd::geteuid().is_root() {
        return Command::new(program);
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid", "postgres", "--regid", "postgres", "--clear-groups"]).arg(program);
    command
}

fn free_port() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    listener.local_addr().unwrap().port().to_string()
}

#[test]
#[ignore = "long: it starts two databases"]
fn databases_are_spoken_to_where_a_rule_names_them_and_nowhere_else() {
    let person = Sandbox::new();
    let data = tempfile::tempdir().unwrap();
    if nix::unistd::geteuid().is_root() {
        let owner = nix::unistd::User::from_name("postgres").unwrap().expect("PostgreSQL's own user");
        nix::unistd::chown(data.path(), Some(owner.uid), Some(owner.gid)).unwrap();
    }
    let made = modest(of_postgres("initdb")).args(["-U", "airlock", "-A", "trust", "--no-sync", "-D"]).arg(data.path()).output();
    let made = made.unwrap();
    assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    let (rows, keys) = (free_port(), free_port());
    let mut server = modest(of_postgres("postgres"));
    server.arg("-D").arg(data.path()).args(["-h", "127.0.0.1", "-k", "", "-p", &rows]);
    let mut server = Live::start(server);
    server.until_err("ready to accept connections");
    let mut cache = Command::new("redis-server");
    cache.args(["--port", &keys, "--bind", "127.0.0.1", "--save", ""]);
    let mut cache = Live::start(cache);
    cache.until_out("Ready to accept connections");

    let repo = person.small_repo();
    let rule = |host: &str, port: u16, at: &str| {
        format!(
            "[[network.rule]]\nhost = \"{host}\"\nports = [{port}]\nprotocol = \"tcp\"\naddress = \"127.0.0.1:{at}\"\ndecision = \"allow\"\n"
        )
    };
    let policy = person.file(
        "databases.toml",
        &format!(
            "version = 1\nname = \"databases\"\n[network]\ndefault = \"deny\"\n{}{}",
            rule("rows.test", 5432, &rows),
            rule("keys.test", 6379, &keys)
        ),
    );
    let script = "psql -h rows.test -U airlock -d postgres -Atc 'select 6 * 7'; redis-cli -h keys.test set answer 42; redis-cli -h keys.test get answer; \
                  psql -h rows.test -p 5433 -U airlock -d postgres -Atc 'select 1'; redis-cli -h rows.test ping; \
                  psql -h 127.0.0.1 -p \"$1\" -U airlock -d postgres -Atc 'select 2'; true";
    let mut c = person.airlock_command(["run", "--repo"]);
    c.arg(&repo.path).arg("--policy").arg(policy).args(["--", "bash", "-c", script, "bash", &rows]);
    let ran = person.finish(c, b"").ok();
    assert_eq!(ran.out(), "42\nOK\n42\n", "{}", ran.said());
    for live in [server, cache] {
        live.signal(nix::sys::signal::Signal::SIGINT);
        live.end(testkit::airlock::LIMIT);
    }
}
