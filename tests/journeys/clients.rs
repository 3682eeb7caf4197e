//! Programs that make connections, each with its own way to trust a server: all of them get through the reader.

use crate::reading::World;
use std::path::Path;
use testkit::{Sandbox, not_tested_here};

/// A client, what must be on the machine for it, and what it does; the inspected host sees a request that ends with its name.
const CLIENTS: [(&str, &str, &str); 10] = [
    ("curl", "/usr/bin/curl", "curl -sS -m 30 https://other.test/of-curl"),
    ("git", "/usr/bin", "git ls-remote https://other.test/of-git"),
    (
        "openssl",
        "/usr/bin/openssl",
        "printf 'GET /of-openssl HTTP/1.0\\r\\nHost: other.test\\r\\n\\r\\n' | openssl s_client -quiet -verify_return_error -connect other.test:443",
    ),
    (
        "python",
        "/usr/bin/python3",
        "/usr/bin/python3 -c 'import urllib.request as u; u.urlopen(\"https://other.test/of-python\")'",
    ),
    ("wget", "/usr/bin/wget", "wget -qO- https://other.test/of-wget"),
    (
        "pip",
        "/usr/lib/python3/dist-packages/pip",
        "/usr/bin/python3 -m pip download --no-deps -i https://other.test/simple of-pip",
    ),
    (
        "perl",
        "/usr/share/perl5/IO/Socket/SSL.pm",
        "perl -MHTTP::Tiny -e 'print HTTP::Tiny->new(verify_SSL => 1)->get(\"https://other.test/of-perl\")->{content}'",
    ),
    ("java", "/usr/bin/java", "java Get.java"),
    ("node", "/usr/bin/node", "node -e \"fetch('https://other.test/of-node').then(r => r.text()).then(console.log)\""),
    ("npm", "/usr/bin/npm", "npm view of-npm --registry https://other.test/"),
];

const JAVA: &str = "public class Get { public static void main(String[] a) throws Exception { \
                    new java.net.URL(\"https://other.test/of-java\").openStream().readAllBytes(); } }";

#[test]
fn every_client_trusts_the_reader_inside() {
    let person = Sandbox::new();
    let world = World::new(&person, "");
    world.repo.write("Get.java", JAVA);
    world.repo.commit("a client in Java");
    let (here, missing): (Vec<_>, Vec<_>) = CLIENTS.into_iter().partition(|(_, needs, _)| Path::new(needs).exists());
    missing.into_iter().for_each(|(name, ..)| not_tested_here(name));
    let scripts: Vec<&str> = here.iter().map(|(.., script)| *script).collect();
    let ran = world.run(&format!("{}\ntrue", scripts.join("\n"))).ok();
    let lines = world.lines();
    for (name, ..) in here {
        let asked = |l: &String| l.split(['?', ' ', '/']).any(|part| part == format!("of-{name}"));
        assert!(lines.iter().any(asked), "{name} is in {lines:?}: {}", ran.said());
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
