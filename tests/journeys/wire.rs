//! Protocols on top of HTTP, by their own clients and servers: gRPC and WebSocket, whose requests are read.

use crate::steps::{events, text};
use testkit::agent::npm_cache;
use testkit::airlock::LIMIT;
use testkit::program::checkout;
use testkit::tls::Identity;
use testkit::{Live, Sandbox};

/// Runs both clients in a jail, under rules with this in it; gives what they said.
fn ran(rule: &str, requests: &str) -> (String, Vec<String>) {
    let person = Sandbox::new();
    let identity = Identity::new(&["grpc.test", "ws.test"], person.root());
    let fixture = checkout().join("tests/fixtures/clients/wire");
    let modules = npm_cache("wire", &fixture).join("node_modules");
    let mut server = person.command("node");
    server.arg(fixture.join("server.cjs")).args(&identity.files).env("NODE_PATH", &modules);
    let mut server = Live::start(server);
    server.until_out("ready");
    let said = server.out();
    let port = |kind: &str| said.split(' ').skip_while(|w| *w != kind).nth(1).expect("it says its ports").to_owned();

    let repo = person.small_repo();
    let copied = person.command("cp").arg("-r").arg(&modules).arg(&repo.path).status().unwrap();
    assert!(copied.success());
    std::fs::copy(fixture.join("client.cjs"), repo.path.join("client.cjs")).unwrap();
    // Its own lists of what is ignored name parts of packages.
    repo.git(["add", "--force", "node_modules"]);
    repo.commit("with the clients");
    let of = |host: &str, kind: &str| {
        format!(
            "[[network.rule]]\nhost = \"{host}\"\nports = [443]\naddress = \"127.0.0.1:{}\"\ndecision = \"allow\"\n",
            port(kind)
        )
    };
    let policy = format!(
        "version = 1\nname = \"wire\"\n[network]\ndefault = \"deny\"\n{}{rule}{requests}{}{rule}",
        of("grpc.test", "grpc"),
        of("ws.test", "ws")
    );
    let mut c = person.airlock_command(["run", "--repo"]);
    let script = "node client.cjs grpc Say Stream Fail /other.Service/Call; node client.cjs ws";
    c.arg(&repo.path).arg("--policy").arg(person.file("wire.toml", &policy)).args(["--", "bash", "-c", script]);
    c.env("SSL_CERT_FILE", &identity.authority).env("NODE_EXTRA_CA_CERTS", &identity.authority);
    let ended = person.finish(c, b"").ok();
    server.signal(nix::sys::signal::Signal::SIGTERM);
    server.end(LIMIT);
    let task = text(&person.airlock(["task", "list", "--json"]).ok().json_lines()[0], "id");
    let told = events(&person, &task)
        .iter()
        .filter(|e| e["op"] == "request")
        .map(|e| format!("{} {} {}", text(e, "verdict"), text(&e["http"], "path"), e["http"]["status"]))
        .collect();
    (ended.out(), told)
}

const GOOD: &str = "Say 0 hello Say\nStream 0 piece 3,piece 2,piece 1\nFail 5 not here nothing is there\n";
const SOCKET: &str = "text hello\nbinary true\nclosed 4001\n";

#[test]
fn grpc_and_web_sockets_work_where_their_requests_are_read_and_each_call_is_judged() {
    if !std::path::Path::new("/usr/bin/node").exists() {
        return testkit::not_tested_here("node");
    }
    let (out, told) = ran("inspect = true\n", "methods = [\"POST\"]\npaths = [\"/pair.Echo/*\"]\n");
    // A refusal of HTTP is one of gRPC: PERMISSION_DENIED.
    assert!(out.starts_with(GOOD) && out.ends_with(SOCKET), "{out}");
    assert!(out.contains("/other.Service/Call 7 "), "{out}");
    assert_eq!(
        told,
        [
            "allowed /pair.Echo/Say 200",
            "allowed /pair.Echo/Stream 200",
            "allowed /pair.Echo/Fail 200",
            "denied /other.Service/Call 403",
            "allowed /live 101"
        ]
    );
}
