//! Connections whose requests are read: each is judged by itself, and what is attached outside is nowhere inside.

use crate::steps::{events, text};
use serde_json::Value;
use std::path::PathBuf;
use testkit::airlock::LIMIT;
use testkit::tls::TlsServer;
use testkit::{Ended, Live, Repo, Sandbox, eventually};

const KEY: &str = "sk-test-REAL-0123456789";

pub(crate) struct World<'s> {
    pub(crate) person: &'s Sandbox,
    pub(crate) repo: Repo<'s>,
    pub(crate) server: TlsServer,
    policy: PathBuf,
}

impl<'s> World<'s> {
    pub(crate) fn new(person: &'s Sandbox, rules: &str) -> Self {
        Self::with(person, rules, TlsServer::start(&["api.test", "other.test", "login.test"], person.root()))
    }

    fn with(person: &'s Sandbox, rules: &str, server: TlsServer) -> Self {
        let address = server.at.to_string();
        let rule = |host: &str, more: &str| {
            format!("[[network.rule]]\nhost = \"{host}\"\nports = [443]\naddress = \"{address}\"\ndecision = \"allow\"\n{more}\n")
        };
        let policy = format!(
            "version = 1\nname = \"reads\"\n[network]\ndefault = \"deny\"\nhold = \"50s\"\n{}{}{}",
            rule("api.test", "methods = [\"GET\", \"POST\"]\npaths = [\"/open/**\", \"/echo\", \"/switch/**\"]"),
            rule("other.test", "inspect = true"),
            rules.replace("ADDRESS", &address)
        );
        Self { repo: person.small_repo(), policy: person.file("policy.toml", &policy), server, person }
    }

    pub(crate) fn command(&self, script: &str) -> std::process::Command {
        let mut c = self.person.airlock_command(["run", "--repo"]);
        c.arg(&self.repo.path).arg("--policy").arg(&self.policy).args(["--", "bash", "-c", script]);
        c.env("SSL_CERT_FILE", &self.server.authority).env("TEST_KEY", KEY);
        c
    }

    pub(crate) fn run(&self, script: &str) -> Ended {
        self.person.finish(self.command(script), b"")
    }

    pub(crate) fn lines(&self) -> Vec<String> {
        self.server.seen().into_iter().map(|s| s.line).collect()
    }

    fn requests(&self) -> Vec<Value> {
        let task = text(&self.person.airlock(["task", "list", "--json"]).ok().json_lines()[0], "id");
        events(self.person, &task).into_iter().filter(|e| e["op"] == "request").collect()
    }
}

#[test]
fn p8_heads_count_as_bytes_that_leave_by_the_run_and_by_a_rule() {
    let person = Sandbox::new();
    let rule = "[[network.rule]]\nhost = \"api.test\"\nports = [443]\naddress = \"ADDRESS\"\ndecision = \"allow\"\nmethods = [\"HEAD\", \"PATCH\"]\n\
                paths = [\"/capped/**\"]\nbytes_out = \"2000B\"\n[limits]\nbytes_out = \"7000B\"\n";
    let world = World::new(&person, rule);
    let long = "x".repeat(1500);
    let curl = "curl -sS -m 30 -o /dev/null -w '%{http_code}\\n'";
    let script = format!(
        "{curl} -X PATCH https://api.test/capped/a; {curl} -X PATCH 'https://api.test/capped/a?{long}'; \
         {curl} -X PATCH -H 'x: {long}' https://api.test/capped/b; {curl} https://api.test/open/a; \
         for i in 1 2 3 4 5; do {curl} -H 'x: {long}' https://api.test/open/$i; done; {curl} https://other.test/; true"
    );
    let ran = world.run(&script).ok();
    let lines = world.lines();
    let short: Vec<&str> = lines.iter().map(|l| l.split('?').next().unwrap_or(l)).collect();
    assert_eq!(
        short,
        ["PATCH /capped/a", "PATCH /capped/a", "GET /open/a", "GET /open/1", "GET /open/2", "GET /open/3"],
        "what a rule lets out is used up by heads, and so are the run's bytes: {}",
        ran.said()
    );
    assert!(ran.out().starts_with("200\n200\n403\n200\n"), "the program hears of it: {}", ran.said());
}

const CREDENTIAL: &str = "[[credential]]\nhost = \"api.test\"\nmethods = [\"POST\"]\npaths = [\"/echo\"]\nheader = \"x-api-key\"\n\
                          from = { env = \"TEST_KEY\" }\n";

#[test]
fn p4_each_request_is_judged_by_itself_and_told() {
    let person = Sandbox::new();
    let world = World::new(&person, "");
    let curl = "curl -sS -m 30 -w ' %{http_code} %{http_version}\\n'";
    let ran = world
        .run(&format!(
            "{curl} https://api.test/open/a?secret=1; {curl} https://api.test/closed; {curl} -X DELETE https://api.test/open/a; \
             {curl} --path-as-is https://api.test/open/../closed; {curl} --http1.1 https://api.test/open/%2e%2e/closed; \
             {curl} https://api.test/open%2fa; {curl} -H 'Host: other.test' https://api.test/open/a; \
             {curl} --http1.1 https://api.test/open/a https://api.test/open/b; {curl} https://other.test/anything; \
             {curl} -k --resolve x.test:443:$(getent hosts api.test | cut -d' ' -f1) https://x.test/open/a; true"
        ))
        .ok()
        .out();
    let codes: Vec<&str> = ran.lines().filter_map(|l| l.rsplit(' ').nth(1).filter(|c| c.len() == 3)).collect();
    assert_eq!(codes, ["200", "403", "403", "400", "400", "400", "421", "200", "200", "200", "000"], "{ran}");
    assert!(ran.contains("served 200 2") && ran.contains("served 200 1.1"), "both versions of the protocol: {ran}");
    assert!(
        ran.contains("Airlock: no rule names this request of api.test (network.default, "),
        "it says who refused and why: {ran}"
    );
    assert_eq!(
        world.lines(),
        ["GET /open/a?secret=1", "GET /open/a", "GET /open/b", "GET /anything"],
        "nothing else went out: {ran}"
    );
    let told: Vec<String> = world
        .requests()
        .iter()
        .map(|e| {
            format!("{} {} {} {}", text(e, "verdict"), text(&e["http"], "method"), text(&e["http"], "path"), e["http"]["status"])
        })
        .collect();
    assert_eq!(told[..2], ["allowed GET /open/a 200", "denied GET /closed 403"], "{told:#?}");
    assert!(!told.iter().any(|l| l.contains("secret")), "a query is told to nobody: {told:#?}");

    // As other programs read it.
    let task = text(&person.airlock(["task", "list", "--json"]).ok().json_lines()[0], "id");
    let file = person.root().join("out.har");
    person.airlock(["export", &task, "--as", "har", "-o", file.to_str().unwrap()]).ok();
    let har: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let entries = har["log"]["entries"].as_array().unwrap();
    assert_eq!(entries.len(), told.len(), "{har:#}");
    let first = &entries[0];
    assert_eq!(
        (&first["request"]["url"], &first["response"]["status"]),
        (&"https://api.test/open/a".into(), &200.into()),
        "{first}"
    );
    assert!(text(first, "startedDateTime").ends_with('Z') && first["_verdict"] == "allowed", "{first}");
    let lines = person.airlock(["export", &task]).ok().json_lines();
    assert!(lines.len() > entries.len() && lines.iter().all(|l| l["kind"] == "network"), "every connection too: {}", lines.len());
    person.airlock(["export", &task, "-o", "/not/there/x"]).exits(7);
}

#[test]
fn p5_a_credential_is_attached_outside_and_is_nowhere_inside() {
    let person = Sandbox::new();
    let world = World::new(&person, CREDENTIAL);
    let script = "curl -sS -m 30 -d hello -H \"x-api-key: $TEST_KEY\" https://api.test/echo; echo; \
                  curl -sS -m 30 https://api.test/open/a; echo; \
                  curl -sS -m 30 -H 'x-api-key: sk-of-the-attackers' https://api.test/open/a; \
                  curl -sS -m 30 -H 'Authorization: Bearer sk-of-the-attackers' -d x https://api.test/echo; \
                  curl -sS -m 30 -b session=1 -d cookie https://api.test/echo; echo; \
                  env; tr '\\0' '\\n' < /proc/self/environ; cat /proc/*/cmdline | tr '\\0' ' '; grep -rs 'RE[A]L' ~ /tmp . && echo FO''UND; true";
    let ran = world.run(script).ok();
    let seen = world.server.seen();
    let keys: Vec<_> = seen.iter().map(|s| (s.line.as_str(), s.header("x-api-key"), s.header("cookie"))).collect();
    assert_eq!(
        keys,
        [("POST /echo", Some(KEY), None), ("GET /open/a", None, None), ("POST /echo", Some(KEY), None)],
        "it is attached to its own requests, another key goes nowhere, and a cookie is taken away: {}",
        ran.said()
    );
    let out = ran.out();
    assert!(!ran.said().contains(KEY) && !out.contains("FOUND"), "it is nowhere inside: {}", ran.said());
    assert!(out.contains(&format!("x-api-key: {}", "*".repeat(KEY.len()))), "not even where the server repeats it: {out}");
    assert!(out.contains("TEST_KEY=airlock-placeholder-"), "{out}");
    assert_eq!(out.matches("the request brings a key of its own").count(), 2, "{out}");

    // Nor is it in what is kept.
    let grep = person.command("grep").args(["-rl", KEY]).arg(person.data()).arg(person.runtime()).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&grep.stdout), "", "no database, log or note has it");
    let given = world.person.finish(
        {
            let mut c = world.person.airlock_command(["run", "--env", "TEST_KEY=sk-by-hand", "--repo"]);
            c.arg(&world.repo.path).arg("--policy").arg(&world.policy);
            c.args(["--", "sh", "-c", "curl -sS -d x -H \"x-api-key: $TEST_KEY\" https://api.test/echo"]);
            c.env("SSL_CERT_FILE", &world.server.authority).env("TEST_KEY", KEY);
            c
        },
        b"",
    );
    assert!(given.ok().out().contains("x-api-key: sk-by-hand"), "a key that the person gave by hand is used as it is");
}

#[test]
fn p5_a_credential_that_is_not_to_be_had_lets_nothing_through_in_its_place() {
    let person = Sandbox::new();
    let world = World::new(&person, CREDENTIAL);
    let mut c = world.command("curl -sS -d x https://api.test/echo; curl -sS https://api.test/open/a");
    c.env_remove("TEST_KEY");
    let ran = person.finish(c, b"").ok().out();
    assert!(
        ran.contains("credential[0] can't be attached: TEST_KEY was not set in the environment when the run started")
            && ran.ends_with("served"),
        "{ran}"
    );
    assert_eq!(world.lines(), ["GET /open/a"]);
}

#[test]
fn p7_nothing_is_pushed_through_a_connection_that_is_read() {
    let person = Sandbox::new();
    let world = World::new(&person, "");
    let script = "git push https://other.test/a/b.git HEAD:refs/heads/x 2>&1; \
                  curl -sS -d '{\"operation\":\"upload\"}' https://other.test/a/b.git/info/lfs/objects/batch; \
                  curl -sS -d '{\"operation\":\"download\"}' https://other.test/a/b.git/info/lfs/objects/batch; echo; \
                  curl -sS -d '{\"operation\":\"download\",\"Operation\":\"upload\"}' https://other.test/a/b.git/info/l%66s/objects/batch; \
                  curl -sS -T /dev/null https://other.test/a/b.git/info/lfs/objects/0123; \
                  curl -sS 'https://other.test/a/b.git/info/refs?service=git%2Dreceive-pack'; \
                  for end in git-receive-pack git%2Dreceive-pack git-receive-pac%6B Git-Receive-Pack/; do \
                  curl -sS -X POST https://other.test/a/b.git/$end; done; true";
    let ran = world.run(script).ok().out();
    assert_eq!(ran.matches("nothing is pushed from inside").count(), 9, "{ran}");
    assert!(ran.contains("remote: Airlock: nothing is pushed"), "git says what it got: {ran}");
    assert_eq!(world.lines(), ["POST /a/b.git/info/lfs/objects/batch"], "only the list of downloads went out: {ran}");
}

#[test]
fn p4_a_request_that_is_asked_about_waits_alone() {
    let person = Sandbox::new();
    let ask = "[[network.rule]]\nhost = \"api.test\"\nports = [443]\naddress = \"ADDRESS\"\ndecision = \"ask\"\nmethods = [\"PUT\"]\n\
               paths = [\"/asked/**\"]\n";
    let world = World::new(&person, ask);
    let script = "curl -sS -m 60 -X PUT -d one https://api.test/asked/a & curl -sS -m 30 https://api.test/open/a; echo; wait; echo; \
                  curl -sS -m 60 -X PUT -d two https://api.test/asked/a; echo; curl -sS -m 60 -X PUT -d x https://api.test/asked/b; echo over";
    let mut run = Live::start(world.command(script));
    run.until_out("served");
    let open = || person.airlock(["ask", "list", "--json"]).ok().json_lines().into_iter().next();
    let ask = eventually("the ask", LIMIT, open);
    assert_eq!((&ask["about"], &ask["method"], &ask["path"]), (&"request".into(), &"PUT".into(), &"/asked/a".into()), "{ask}");
    assert_eq!(world.lines(), ["GET /open/a"], "another request of the same host goes on meanwhile");
    person.airlock(["ask", "allow", &text(&ask, "id"), "--scope", "task"]).ok();
    run.until_out("served\nserved\nserved\n");
    let next = eventually("another ask", LIMIT, open);
    assert_eq!(next["path"], "/asked/b", "what was allowed is that path alone: {next}");
    person.airlock(["ask", "deny", &text(&next, "id")]).ok();
    run.until_out("you denied it");
    run.end(LIMIT).ok();
    let bodies: Vec<_> = world.server.seen().into_iter().map(|s| String::from_utf8(s.body).unwrap()).collect();
    assert_eq!(bodies, ["", "one", "two"]);
}

#[test]
fn clients_of_all_kinds_trust_the_reader_inside_and_switch_protocols() {
    let person = Sandbox::new();
    let world = World::new(&person, "");
    let python = "import urllib.request as u; print(u.urlopen('https://other.test/python').read().decode())";
    let switch = "import socket, ssl; s = ssl.create_default_context().wrap_socket(socket.create_connection(('api.test', 443)), server_hostname='api.test'); \
                  s.sendall(b'GET /switch/it HTTP/1.1\\r\\nHost: api.test\\r\\nConnection: upgrade\\r\\nUpgrade: websocket\\r\\n\\r\\n'); \
                  h = b''\nwhile not h.endswith(b'\\r\\n\\r\\n'): h += s.recv(1)\n\
                  print(h.split(b' ')[1].decode())\nfor w in (b'one', b'two'):\n  s.sendall(w); b = b''\n  while len(b) < 3: b += s.recv(3)\n  print(b.decode())";
    std::fs::write(world.repo.path.join("switch.py"), switch).unwrap();
    world.repo.commit("a client that switches");
    let script = format!(
        "/usr/bin/python3 -c \"{python}\"; /usr/bin/python3 switch.py; git ls-remote https://other.test/git 2>&1 | head -3; \
         if command -v node >/dev/null; then node -e \"fetch('https://other.test/node').then(r => r.text()).then(console.log)\"; fi; true"
    );
    let ran = world.run(&script).ok().out();
    assert!(ran.contains("served\n101\none\ntwo\n"), "{ran}");
    let lines = world.lines();
    for line in ["GET /python", "GET /switch/it", "GET /git/info/refs?service=git-upload-pack"] {
        assert!(lines.iter().any(|l| l == line), "{line} in {lines:?}: {ran}");
    }
    let certificate = "certificate";
    assert!(!ran.contains(certificate), "none of them complains: {ran}");
}

/// Sends bytes as they are, each on a connection of its own, and says the first line of what comes back, and how many answers there were.
const RAW: &str = r#"import socket, ssl, sys
def say(data, wait=3):
    s = ssl.create_default_context().wrap_socket(socket.create_connection(('api.test', 443)), server_hostname='api.test')
    s.settimeout(wait)
    s.sendall(data)
    got = b''
    try:
        while True:
            more = s.recv(65536)
            if not more: break
            got += more
    except OSError: pass
    return got
for line in open('raw.txt'):
    name, data = line.rstrip('\n').split(' ', 1)
    got = say(eval("b'" + data + "'"))
    print(name, got.split(b'\r\n')[0].decode('latin-1').replace('HTTP/1.1 ', '')[:3] or 'closed', got.count(b'HTTP/1.1 '), flush=True)
"#;

#[test]
fn p4_no_second_request_hides_in_a_judged_one() {
    let person = Sandbox::new();
    let world = World::new(&person, "");
    let hidden = "DELETE /closed HTTP/1.1\\r\\nHost: api.test\\r\\n\\r\\n";
    let head = "POST /open/x HTTP/1.1\\r\\nHost: api.test\\r\\n";
    let cases = [
        ("both-lengths", format!("{head}Content-Length: 6\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n0\\r\\n\\r\\n{hidden}")),
        ("two-lengths", format!("{head}Content-Length: 0\\r\\nContent-Length: 60\\r\\n\\r\\n{hidden}")),
        ("odd-length", format!("{head}Content-Length: +0\\r\\n\\r\\n{hidden}")),
        ("coded", format!("{head}Transfer-Encoding: gzip, chunked\\r\\n\\r\\n0\\r\\n\\r\\n")),
        ("not-chunked", format!("{head}Transfer-Encoding: chunked, x\\r\\n\\r\\n0\\r\\n\\r\\n{hidden}")),
        ("odd-chunked", format!("{head}Transfer-Encoding: \\x0bchunked\\r\\n\\r\\n0\\r\\n\\r\\n{hidden}")),
        ("folded", format!("{head}X: a\\r\\n Transfer-Encoding: chunked\\r\\n\\r\\n{hidden}")),
        ("space-before-colon", format!("{head}Transfer-Encoding : chunked\\r\\n\\r\\n0\\r\\n\\r\\n{hidden}")),
        ("bare-line-feed", "GET /open/x HTTP/1.1\\nHost: api.test\\n\\nDELETE /closed HTTP/1.1\\nHost: api.test\\n\\n".into()),
        ("chunk-extension", format!("{head}Transfer-Encoding: chunked\\r\\n\\r\\n1;a=\\n\\r\\nx\\r\\n0\\r\\n\\r\\n{hidden}")),
        (
            "trailers",
            format!(
                "{head}Trailer: x-api-key\\r\\nTransfer-Encoding: chunked\\r\\n\\r\\n0\\r\\nx-api-key: sk-foreign\\r\\n\\r\\n"
            ),
        ),
        ("absolute-other", "GET https://other.test/open/x HTTP/1.1\\r\\nHost: api.test\\r\\n\\r\\n".into()),
        ("two-hosts", format!("{head}Host: other.test\\r\\n\\r\\n")),
        ("user-in-host", "GET /open/x HTTP/1.1\\r\\nHost: api.test@other.test\\r\\n\\r\\n".into()),
        ("no-host", "GET /open/x HTTP/1.0\\r\\n\\r\\n".into()),
        ("tunnel", "CONNECT api.test:443 HTTP/1.1\\r\\nHost: api.test:443\\r\\n\\r\\n".into()),
        ("parameters", "GET /open/..;/closed HTTP/1.1\\r\\nHost: api.test\\r\\n\\r\\n".into()),
        ("other-method", format!("{head}X_HTTP-Method-Override: DELETE\\r\\n\\r\\n")),
        ("other-path", format!("{head}X-Original-URL: /closed\\r\\n\\r\\n")),
        (
            "switch",
            format!(
                "GET /switch/h2c HTTP/1.1\\r\\nHost: api.test\\r\\nConnection: Upgrade, HTTP2-Settings\\r\\nUpgrade: h2c\\r\\nHTTP2-Settings: AAMAAABkAAQAoAAAAAIAAAAA\\r\\n\\r\\n{hidden}"
            ),
        ),
        (
            "after-refused",
            format!(
                "GET /closed HTTP/1.1\\r\\nHost: api.test\\r\\n\\r\\n{hidden}GET /open/last HTTP/1.1\\r\\nHost: api.test\\r\\n\\r\\n"
            ),
        ),
    ];
    let text: String = cases.iter().map(|(name, data)| format!("{name} {data}\n")).collect();
    std::fs::write(world.repo.path.join("raw.txt"), text).unwrap();
    std::fs::write(world.repo.path.join("raw.py"), RAW).unwrap();
    world.repo.commit("a client that says odd things");
    let ran = world.run("/usr/bin/python3 raw.py").ok().out();
    let seen = world.server.seen();
    let told = |name: &str| ran.lines().find_map(|l| l.strip_prefix(&format!("{name} "))).unwrap_or_default().to_owned();
    assert!(!seen.iter().any(|s| s.line.contains("/closed")), "what was not judged left: {ran}\n{seen:#?}");
    let keys = ["x-api-key", "upgrade", "x-http-method-override", "x-original-url"];
    assert!(!seen.iter().any(|s| keys.iter().any(|k| s.header(k).is_some())), "{ran}\n{seen:#?}");
    for odd in ["two-lengths", "odd-length", "not-chunked", "odd-chunked", "folded", "space-before-colon"] {
        assert_eq!(told(odd), "400 1", "{odd}: {ran}");
    }
    for (name, answer) in [
        ("coded", "501 1"),
        ("absolute-other", "421 1"),
        ("two-hosts", "421 1"),
        ("user-in-host", "421 1"),
        ("tunnel", "405 1"),
        ("parameters", "400 1"),
        ("other-method", "400 1"),
        ("other-path", "400 1"),
        ("trailers", "200 1"),
        ("after-refused", "403 3"),
    ] {
        assert_eq!(told(name), answer, "{name}: {ran}");
    }
}

#[test]
fn p4_a_request_that_lives_by_a_grant_ends_with_it() {
    let person = Sandbox::new();
    let ask = "[[network.rule]]\nhost = \"api.test\"\nports = [443]\naddress = \"ADDRESS\"\ndecision = \"ask\"\nmethods = [\"PUT\"]\n\
               paths = [\"/asked/**\", \"/asked-too/**\"]\n";
    let world = World::new(&person, ask);
    let put = "curl -sSN -m 100 -X PUT -d x";
    let rest = "{ head -c 5; cat > rest; }";
    let script = format!(
        "{put} https://api.test/asked/drip | {rest}; echo \"one ${{PIPESTATUS[0]}}\"; \
         {put} --http1.1 https://api.test/asked-too/drip | {rest}; echo \"two ${{PIPESTATUS[0]}}\"; true"
    );
    let mut run = Live::start(world.command(&script));
    let allow = |ways: &[&str]| {
        let ask = eventually("the ask", LIMIT, || person.airlock(["ask", "list", "--json"]).ok().json_lines().into_iter().next());
        person.airlock([&["ask", "allow", &text(&ask, "id"), "--scope", "task"], ways].concat()).ok();
    };
    allow(&[]);
    run.until_out("drip\n");
    let grant = &person.airlock(["grant", "list", "--json"]).ok().json_lines()[0];
    let taken = person.airlock(["grant", "revoke", &text(grant, "id"), "--json"]).ok().json();
    assert_eq!((&taken["was"], &taken["closed"]), (&true.into(), &1.into()), "{taken}");
    run.until_out("one ");
    allow(&["--for", "3s"]);
    run.until_out("drip\n");
    run.until_out("two ");
    let out = run.end(LIMIT).ok().out();
    for given_up in ["one 0", "two 0", "one 28", "two 28"] {
        assert!(!out.contains(given_up), "each broke off when its grant ended: {out}");
    }
}

#[test]
fn p5_a_web_socket_of_a_bound_host_is_looked_through() {
    let person = Sandbox::new();
    let bound = CREDENTIAL.replace("POST", "GET").replace("/echo", "/switch/**");
    // A server that would rather speak HTTP/2 is not asked to switch in that.
    let server = TlsServer::offering(&["api.test"], person.root(), &[b"h2", b"http/1.1"]);
    let world = World::with(&person, &bound, server);
    let switch = "import socket, ssl\ns = ssl.create_default_context().wrap_socket(socket.create_connection(('api.test', 443)), server_hostname='api.test')\n\
                  s.sendall(b'GET /switch/told HTTP/1.1\\r\\nHost: api.test\\r\\nConnection: upgrade\\r\\nUpgrade: websocket\\r\\n\
                  Sec-WebSocket-Extensions: permessage-deflate\\r\\n\\r\\n'); b = b''\n\
                  while b.count(b'\\r\\n\\r\\n') < 2: b += s.recv(1)\nprint(b.decode())\nfor w in (b'one-s', b'k-'):\n  s.sendall(w); b = b''\n  \
                  while len(b) < len(w): b += s.recv(9)\n  print('heard', b.decode())\n";
    std::fs::write(world.repo.path.join("switch.py"), switch).unwrap();
    world.repo.commit("a client that switches");
    let ran = world.run("/usr/bin/python3 switch.py").ok().out();
    let seen = &world.server.seen()[0];
    assert_eq!((seen.header("x-api-key"), seen.header("sec-websocket-extensions")), (Some(KEY), None), "{seen:?}");
    assert!(ran.contains(&format!("x-api-key: {}", "*".repeat(KEY.len()))) && !ran.contains(KEY), "{ran}");
    assert!(ran.contains("heard one-s") && ran.contains("heard k-"), "what only begins like it comes, if a little later: {ran}");
}

#[test]
fn p4_a_server_that_is_another_is_refused_and_the_program_told_why() {
    let person = Sandbox::new();
    let rule = "[[network.rule]]\nhost = \"wrong.test\"\naddress = \"ADDRESS\"\ndecision = \"allow\"\ninspect = true\n";
    let world = World::new(&person, rule);
    let ran = world.run("curl -sS -m 30 -w ' %{http_code}\\n' https://wrong.test/").ok().out();
    assert!(ran.contains("TLS with wrong.test failed") && ran.contains("not valid for name") && ran.contains(" 502"), "{ran}");
    let mut distrusted = world.command("curl -sS -m 30 -w ' %{http_code}\\n' https://other.test/");
    distrusted.env_remove("SSL_CERT_FILE");
    let ran = person.finish(distrusted, b"").ok().out();
    assert!(ran.contains("TLS with other.test failed") && ran.contains("UnknownIssuer") && ran.contains(" 502"), "{ran}");
    assert_eq!(world.lines(), [""; 0]);
}

#[test]
fn what_left_is_told_though_nobody_waited_for_its_answer() {
    let person = Sandbox::new();
    let world = World::new(&person, "");
    world.run("curl -sS -m 1 https://api.test/open/silent || curl -sS https://api.test/open/a").ok();
    let told: Vec<_> = world.requests().iter().map(|e| (text(&e["http"], "path"), e["http"]["status"].as_u64())).collect();
    assert_eq!(told, [("/open/silent".into(), None), ("/open/a".into(), Some(200))]);
}

#[test]
fn p5_a_warden_has_no_key_in_its_environment_and_leaves_no_core() {
    let person = Sandbox::new();
    let world = World::new(&person, CREDENTIAL);
    let mut run = Live::start(world.command("curl -sS -d x https://api.test/echo; echo up; read go"));
    run.until_out("up");
    let wardens = person.wardens();
    assert!(!wardens.is_empty());
    for pid in wardens {
        let of = |name: &str| String::from_utf8_lossy(&std::fs::read(format!("/proc/{pid}/{name}")).unwrap()).into_owned();
        assert!(!of("environ").contains(KEY) && !of("cmdline").contains(KEY), "{}", of("environ"));
        let limits = of("limits");
        let core: Vec<&str> =
            limits.lines().find_map(|l| l.strip_prefix("Max core file size")).unwrap().split_whitespace().collect();
        assert_eq!(core[..2], ["1", "1"], "{limits}");
    }
    run.write(b"go\n");
    run.end(LIMIT).ok();
}

/// Speaks HTTP/2 by hand, so that it can say what no library would.
const FLOOD: &str = r#"import socket, ssl, sys, time, threading
def connect():
    c = ssl.create_default_context(); c.set_alpn_protocols(['h2'])
    s = c.wrap_socket(socket.create_connection(('api.test', 443)), server_hostname='api.test')
    s.sendall(b'PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n' + frame(4, 0, 0, b''))
    s.settimeout(10)
    return s
def frame(kind, flags, stream, data):
    return len(data).to_bytes(3, 'big') + bytes([kind, flags]) + stream.to_bytes(4, 'big') + data
def text(t):
    n = len(t); out = b''
    if n < 127: return bytes([n]) + t
    n -= 127; out = bytes([127])
    while n >= 128: out += bytes([n % 128 + 128]); n //= 128
    return out + bytes([n]) + t
def field(name, value): return b'\x00' + text(name) + text(value)
def head(path, *more):
    return b''.join(field(n, v) for n, v in ((b':method', b'GET'), (b':scheme', b'https'), (b':authority', b'api.test'), (b':path', path)) + more)
def until_closed(s, make, seconds=2):
    # Reads beside it, as a peer that is full would be waited for.
    got = [0]
    def read():
        try:
            while True:
                more = s.recv(65536)
                if not more: return
                got[0] += len(more)
        except OSError: pass
    t = threading.Thread(target=read, daemon=True); t.start()
    end = time.time() + seconds; n = 0
    try:
        while time.time() < end: s.sendall(make(n)); n += 1
        return n, 'open'
    except OSError as e: return n, type(e).__name__
def reset(n): return b''.join(frame(1, 5, 2 * (n * 50 + i) + 1, head(b'/open/a')) + frame(3, 0, 2 * (n * 50 + i) + 1, b'\0\0\0\x08') for i in range(50))
def more(n): return frame(1, 0, 1, head(b'/open/a')) if n == 0 else frame(9, 0, 1, field(b'x', b'y' * 16000))
def settings(n): return frame(4, 0, 0, b'\0\4\0\0\xff\xff') * 500
def large(n): return b''.join(frame(1, 1, 2 * n + 1, head(b'/asked/b', (b'x', b'z' * 15000)))+frame(9, 0, 2*n+1, field(b'y', b'z'*15000))+frame(9, 4, 2*n+1, field(b'w', b'z'*15000)) for n in [n])
for name in sys.argv[1:]:
    s = connect(); print(name, *until_closed(s, globals()[name]), flush=True); s.close()
"#;

#[test]
fn p8_a_flood_on_one_connection_leaves_the_others_and_the_warden_as_they_are() {
    let person = Sandbox::new();
    let ask = "[[network.rule]]\nhost = \"api.test\"\nports = [443]\naddress = \"ADDRESS\"\ndecision = \"ask\"\nmethods = [\"GET\"]\n\
               paths = [\"/asked/**\"]\n";
    let world = World::new(&person, ask);
    std::fs::write(world.repo.path.join("flood.py"), FLOOD).unwrap();
    world.repo.commit("a flood");
    let script = "for f in reset more settings large; do /usr/bin/python3 flood.py $f & p=$!; sleep 0.5; \
                  curl -sS -m 30 -w ' beside\\n' https://other.test/; wait $p; done; echo over; read go";
    let mut run = Live::start(world.command(script));
    run.until_out("over");
    let status = std::fs::read_to_string(format!("/proc/{}/status", person.wardens()[0])).unwrap();
    let of =
        |key: &str| status.lines().find_map(|l| l.strip_prefix(key)?.split_whitespace().next()?.parse::<u64>().ok()).unwrap();
    let (most, threads) = (of("VmHWM:"), of("Threads:"));
    assert!(most < 150_000 && threads < 40, "{most} kB and {threads} threads at most");
    run.write(b"go\n");
    let out = run.end(LIMIT).ok().out();
    assert_eq!(out.matches("served beside").count(), 4, "{out}");
    // Heads without end and requests that are called off at once close their connection.
    for closed in ["reset", "more"] {
        assert!(
            out.contains(&format!("{closed} ")) && !out.lines().any(|l| l.starts_with(closed) && l.ends_with("open")),
            "{out}"
        );
    }
}
