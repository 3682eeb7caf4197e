//! Programs that make connections, each in its own way: let out, asked about, refused, and read, without a proxy variable.

use crate::reading::World;
use crate::steps::text;
use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::airlock::LIMIT;
use testkit::tls::{Seen, TlsServer};
use testkit::{Ended, Live, Repo, Sandbox, eventually, not_tested_here};

/// A client, what must be on the machine for it, and what it asks of a web server, which sees a request that ends with its name.
const CLIENTS: [(&str, &str, &str); 14] = [
    ("curl", "/usr/bin/curl", "curl -sSf -m 30 $B/of-curl"),
    ("git", "/usr/bin", "git ls-remote $B/of-git"),
    (
        "openssl",
        "/usr/bin/openssl",
        "printf 'GET /of-openssl HTTP/1.0\\r\\nHost: other.test\\r\\n\\r\\n' | openssl s_client -quiet -verify_return_error -connect other.test:443",
    ),
    ("python", "/usr/bin/python3", "/usr/bin/python3 -c 'import urllib.request as u; u.urlopen(\"'$B'/of-python\")'"),
    (
        "requests",
        "/usr/lib/python3/dist-packages/requests",
        "/usr/bin/python3 -c 'import requests; requests.get(\"'$B'/of-requests\").raise_for_status()'",
    ),
    ("wget", "/usr/bin/wget", "wget -qO- $B/of-wget"),
    (
        "pip",
        "/usr/lib/python3/dist-packages/pip",
        "/usr/bin/python3 -m pip download --retries 0 --no-deps --trusted-host plain.test -i $B/simple of-pip",
    ),
    (
        "perl",
        "/usr/share/perl5/IO/Socket/SSL.pm",
        "perl -MHTTP::Tiny -e '$r = HTTP::Tiny->new(verify_SSL => 1)->get(\"'$B'/of-perl\"); exit !$r->{success}'",
    ),
    ("java", "/usr/bin/java", "java Get.java $B/of-java"),
    ("fetch", "/usr/bin/node", "node -e \"fetch('$B/of-fetch').then(r => r.text())\""),
    ("http", "/usr/bin/node", "node -e \"require('${B%%:*}').get('$B/of-http', r => r.resume()).on('error', e => { throw e })\""),
    ("npm", "/usr/bin/npm", "npm view of-npm --fetch-retries 0 --registry $B/"),
    (
        "cargo",
        "",
        "cargo --config net.retry=0 --config 'registries.it.index=\"sparse+'$B'/of-cargo/\"' info of-cargo --registry it",
    ),
    ("browser", "/usr/bin/chromium", "chromium --headless=new --dump-dom $B/of-browser"),
];

/// Clients of no web server; that on `plain.test` knows them all the same.
const OTHERS: [(&str, &str); 2] =
    [("ssh", "ssh -o StrictHostKeyChecking=no git@plain.test"), ("static", "./static plain.test 7777")];

const JAVA: &str = "public class Get { public static void main(String[] a) throws Exception { \
                    new java.net.URL(a[0]).openStream().readAllBytes(); } }";

/// Asks 9.9.9.9 for the name by itself, without the C library's resolver, and says its own name there.
const STATIC: &str = r#"
#include <arpa/inet.h>
#include <string.h>
#include <stdlib.h>
#include <unistd.h>
int main(int n, char **words) {
    unsigned char ask[300] = {7, 7, 1, 0, 0, 1}, answer[512], *at = ask + 12;
    char name[200];
    strcpy(name, words[1]);
    for (char *part = strtok(name, "."); part; part = strtok(0, ".")) {
        *at++ = strlen(part);
        memcpy(at, part, strlen(part));
        at += strlen(part);
    }
    memcpy(at, "\0\0\1\0\1", 5);
    struct sockaddr_in to = {.sin_family = AF_INET, .sin_port = htons(53)};
    inet_pton(AF_INET, "9.9.9.9", &to.sin_addr);
    int s = socket(AF_INET, SOCK_DGRAM, 0);
    sendto(s, ask, at + 5 - ask, 0, (void *)&to, sizeof to);
    int got = recv(s, answer, sizeof answer, 0);
    if (got < 16 || !answer[7]) return 2;
    to.sin_port = htons(atoi(words[2]));
    memcpy(&to.sin_addr, answer + got - 4, 4);
    s = socket(AF_INET, SOCK_STREAM, 0);
    if (connect(s, (void *)&to, sizeof to) || write(s, "of-static\n", 10) != 10) return 3;
    return read(s, answer, 1) != 1;
}
"#;

/// Servers, a repository with what clients need, and those that are here.
struct Scene<'s> {
    person: &'s Sandbox,
    repo: Repo<'s>,
    web: TlsServer,
    plain: TlsServer,
    here: Vec<(&'static str, &'static str)>,
    /// Where cargo is.
    rust: Option<PathBuf>,
}

impl<'s> Scene<'s> {
    fn new(person: &'s Sandbox) -> Self {
        let web = TlsServer::start(&["other.test"], person.root());
        let plain = TlsServer::plain();
        let repo = person.small_repo();
        repo.write("Get.java", JAVA);
        repo.write("static.c", STATIC);
        let made = Command::new("cc").args(["-static", "-o", "static", "static.c"]).current_dir(&repo.path).status();
        assert!(made.is_ok_and(|s| s.success()), "a C compiler makes a static program");
        repo.commit("clients");
        let rust = crate::brought::cargo().map(|(sysroot, ..)| sysroot);
        let there =
            |(_, needs, _): &(&str, &str, &str)| if needs.is_empty() { rust.is_some() } else { Path::new(needs).exists() };
        let (here, missing): (Vec<_>, Vec<_>) = CLIENTS.into_iter().partition(there);
        let feature = |name| match name {
            "browser" => "chromium",
            "cargo" => "cargo with a crate in its cache",
            "fetch" | "http" => "node",
            name => name,
        };
        missing.into_iter().for_each(|(name, ..)| not_tested_here(feature(name)));
        let here = here.into_iter().map(|(name, _, script)| (name, script)).collect();
        Self { person, repo, web, plain, here, rust }
    }

    /// A policy that says this of the plain server, and that of the one over TLS.
    fn policy(&self, plain: &str, read: &str) -> PathBuf {
        let rule = |host: &str, ports: &str, at: String, decision: &str, more: &str| {
            let at = if decision == "deny" { String::new() } else { format!("address = \"{at}\"\n") };
            format!("[[network.rule]]\nhost = \"{host}\"\nports = [{ports}]\n{at}decision = \"{decision}\"\n{more}\n")
        };
        let text = format!(
            "version = 1\nname = \"clients\"\n[files]\ntools = \"auto\"\nread = [{}]\n[jail]\nnested = true\n[network]\ndefault = \"deny\"\n{}{}",
            self.rust.iter().map(|path| format!("\"{}\"", path.display())).collect::<String>(),
            rule("plain.test", "80, 22, 7777", self.plain.at.to_string(), plain, ""),
            rule("other.test", "443", self.web.at.to_string(), read, "inspect = true"),
        );
        self.person.file("clients.toml", &text)
    }

    fn command(&self, plain: &str, read: &str, script: &str) -> Command {
        let mut c = self.person.airlock_command(["run", "--repo"]);
        c.arg(&self.repo.path).arg("--policy").arg(self.policy(plain, read));
        let path = self.rust.as_ref().map_or_else(String::new, |path| format!("PATH={}/bin:$PATH\n", path.display()));
        c.args(["--", "bash", "-c", &format!("{path}{script}")]).env("SSL_CERT_FILE", &self.web.authority);
        c
    }

    fn run(&self, plain: &str, read: &str, script: &str) -> Ended {
        self.person.finish(self.command(plain, read, script), b"")
    }

    /// All that speak to the plain server, each in the background with how it ended.
    fn all(&self, between: &str) -> String {
        let web = self.here.iter().filter(|(name, _)| *name != "openssl").copied();
        let one =
            |(name, script): (&str, &str)| format!("{{ ({script}) >{name}.said 2>&1; echo {name} $? >> ended; }}{between}\n");
        let every: String = web.chain(OTHERS).map(one).collect();
        format!("B=http://plain.test\n{every}wait; cat ended; for f in *.said; do echo \"$f:\"; tail -n 3 $f; done")
    }
}

fn came(seen: &[Seen], name: &str) -> bool {
    let name = format!("of-{name}");
    seen.iter().any(|s| s.line.split(['?', ' ', '/']).any(|part| part == name))
}

#[test]
fn every_client_gets_out_as_the_policy_says_and_no_other_way() {
    let person = Sandbox::new();
    let scene = Scene::new(&person);
    let read = scene.run(
        "deny",
        "allow",
        &format!("B=https://other.test\n{}true", scene.here.iter().map(|(_, script)| format!("{script}\n")).collect::<String>()),
    );
    // Refused: at once, and nothing of it is heard.
    let denied = scene.run("deny", "deny", &scene.all("")).ok();
    assert_eq!(scene.plain.seen(), [], "{}", denied.said());
    let ends =
        |ended: &Ended, name: &str| ended.out().lines().find_map(|l| l.strip_prefix(&format!("{name} "))?.parse::<i32>().ok());
    let plainly: Vec<&str> =
        scene.here.iter().map(|(name, _)| *name).filter(|n| *n != "openssl").chain(OTHERS.map(|(n, _)| n)).collect();
    for name in &plainly {
        // A browser shows a page that says so.
        assert!(*name == "browser" || ends(&denied, name).is_some_and(|code| code != 0), "{name} is refused: {}", denied.said());
    }

    // Asked about: all of them are held, one ask a port, and go on.
    let asked = Live::start(scene.command("ask", "deny", &scene.all(" &")));
    let asks = eventually("an ask a port", LIMIT, || {
        Some(person.airlock(["ask", "list", "--json"]).ok().json_lines()).filter(|asks| asks.len() == 3)
    });
    assert_eq!(scene.plain.seen(), [], "nothing before the answer");
    for ask in asks {
        assert_eq!(ask["host"], "plain.test", "{ask}");
        person.airlock(["ask", "allow", &text(&ask, "id"), "--scope", "task"]).ok();
    }
    let asked = asked.end(LIMIT * 3).ok();
    for name in &plainly {
        assert!(came(&scene.plain.seen(), name), "{name} went on: {}", asked.said());
    }
    let before = scene.plain.seen().len();
    let allowed = scene.run("allow", "deny", &scene.all("")).ok();
    println!("{:<10} {:<8} {:<8} {:<8} {:<8}", "client", "allow", "ask", "deny", "inspect");
    for (name, _) in scene.here.iter().copied().chain(OTHERS) {
        let (speaks, is_read) = (plainly.contains(&name), OTHERS.iter().all(|(n, _)| *n != name));
        let (plain, inside) = (came(&scene.plain.seen()[before..], name), came(&scene.web.seen(), name));
        let word = |is: bool, word| if is { word } else { "-" };
        let row = [word(plain, "through"), word(speaks, "through"), word(speaks, "refused"), word(inside, "through")];
        println!("{name:<10} {:<8} {:<8} {:<8} {:<8}", row[0], row[1], row[2], row[3]);
        assert!(plain || !speaks, "{name}: {}", allowed.said());
        assert!(inside || !is_read, "{name} trusts the reader: {}", read.said());
    }
}

#[test]
fn a_browser_trusts_the_reader_inside() {
    if !Path::new("/usr/bin/chromium").exists() {
        return not_tested_here("chromium");
    }
    let person = Sandbox::new();
    let world = World::new(&person, "[jail]\nnested = true\n");
    let ran = world.run("chromium --headless=new --dump-dom https://other.test/of-chromium");
    assert!(ran.out().contains(">served<"), "{}", ran.said());
    assert_eq!(world.lines()[0], "GET /of-chromium");
}
