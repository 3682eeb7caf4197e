//! Credentials that are not sent as they are: what signs a request, and what is changed for a token.

use crate::reading::World;
use crate::steps::{events, text};
use sha2::{Digest as _, Sha256};
use testkit::Sandbox;
use testkit::tls::Seen;

const KEY: &str = "wJalrXUtnFEMI/K7MDENG+SIGNING0123456789";
const SESSION: &str = "session/TOKEN+0123456789==";

fn hmac(key: &[u8], text: &str) -> Vec<u8> {
    let mut block = [0; 64];
    block[..key.len()].copy_from_slice(key);
    let half = |pad: u8, rest: &[u8]| Sha256::digest([&block.map(|b| b ^ pad), rest].concat());
    half(0x5c, &half(0x36, text.as_bytes())).to_vec()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|b| format!("{b:02x}")).collect()
}

/// The signature that AWS would make of a request that came to `host` (their "Signature Version 4 signing process"), and the one it has.
fn signatures(seen: &Seen, host: &str) -> (String, String) {
    let authorization = seen.header("authorization").expect("it is signed");
    let part = |name: &str| authorization.split([' ', ',']).find_map(|p| p.strip_prefix(name)?.strip_prefix('=')).unwrap();
    let scope = part("Credential").split_once('/').unwrap().1;
    let (method, address) = seen.line.split_once(' ').unwrap();
    let (path, query) = address.split_once('?').unwrap_or((address, ""));
    let value = |name: &str| if name == "host" { host } else { seen.header(name).unwrap_or_else(|| panic!("{name} is sent")) };
    let headers: String = part("SignedHeaders").split(';').map(|name| format!("{name}:{}\n", value(name))).collect();
    let body = hex(&Sha256::digest(&seen.body));
    let canonical = format!("{method}\n{path}\n{query}\n{headers}\n{}\n{body}", part("SignedHeaders"));
    let date = seen.header("x-amz-date").unwrap();
    let text = format!("AWS4-HMAC-SHA256\n{date}\n{scope}\n{}", hex(&Sha256::digest(canonical)));
    let key = scope.split('/').fold(format!("AWS4{KEY}").into_bytes(), |key, part| hmac(&key, part));
    (hex(&hmac(&key, &text)), part("Signature").to_owned())
}

#[test]
fn p5_a_request_that_was_signed_with_the_placeholder_is_signed_outside_and_no_other() {
    let person = Sandbox::new();
    let printed = format!(
        "{{\\n \\\"Version\\\": 1,\\n \\\"AccessKeyId\\\": \\\"AKIDEXAMPLE\\\",\\n \\\"SecretAccessKey\\\": \\\"{KEY}\\\",\\n \\\"SessionToken\\\": \\\"{SESSION}\\\"\\n}}"
    );
    let credential = format!(
        "[[credential]]\nhost = \"api.test\"\nmethods = [\"GET\", \"POST\"]\npaths = [\"/open/**\", \"/echo\"]\nsigv4 = \"eu-west-1/execute-api\"\n\
         from = {{ command = [\"printf\", '%b', '{}'] }}\n",
        printed.replace("\\\"", "\"")
    );
    let world = World::new(&person, &credential);
    let curl = "curl -sS -m 30 --aws-sigv4 aws:amz:eu-west-1:execute-api -u \"$AWS_ACCESS_KEY_ID:$AWS_SECRET_ACCESS_KEY\"";
    let script = format!(
        "{curl} -d hello https://api.test/echo; echo; {curl} 'https://api.test/open/a?b=1&c=2'; echo; \
         curl -sS -m 30 --aws-sigv4 aws:amz:eu-west-1:execute-api -u AKIDFOREIGN:word https://api.test/open/foreign; \
         {} https://api.test/open/scope; curl -sS -m 30 https://api.test/open/unsigned; \
         {curl} 'https://api.test/open/before?X-Amz-Signature=00'; {curl} -H 'x-amz-copy-source: /other/key' https://api.test/open/copy; \
         {curl} 'https://api.test/open/odd?x=%FF'; {curl} 'https://api.test/open/keys?session'; \
         {curl} \"https://api.test/open/long?$(head -c 22000 /dev/zero | tr '\\0' /)\"; {curl} -H 'Range: bytes=0-3' https://api.test/open/piece; \
         env; tr '\\0' '\\n' < /proc/self/environ; grep -rs 'SIGNIN[G]' ~ /tmp . && echo FO''UND; true",
        curl.replace("eu-west-1", "us-east-1")
    );
    let ran = world.run(&script).ok();
    let seen = world.server.seen();
    let lines: Vec<&str> = seen.iter().map(|s| s.line.as_str()).collect();
    assert_eq!(lines, ["POST /echo", "GET /open/a?b=1&c=2", "GET /open/piece"], "{}", ran.said());
    assert_eq!(seen[2].header("range"), Some("bytes=0-3"), "large objects are read in pieces");
    for request in &seen {
        let (want, has) = signatures(request, "api.test");
        assert_eq!(has, want, "{request:?}");
        assert!(request.header("authorization").unwrap().contains("Credential=AKIDEXAMPLE/"), "{request:?}");
        assert_eq!(request.header("x-amz-security-token"), Some(SESSION));
    }
    let out = ran.out();
    for why in [
        "`x-amz-copy-source` has another object read than the one that is judged",
        "its query is no text",
        "keys of a session would come back",
        "its address is too long to be signed",
        "brings a key of its own in `authorization`",
        "is signed for \"us-east-1/execute-api\"",
        "the request is not signed",
    ] {
        assert!(out.contains(why), "{why}: {out}");
    }
    assert!(out.contains("brings a key of its own in the parameter `X-Amz-Signature`"), "{out}");
    assert!(!ran.said().contains(KEY) && !ran.said().contains(SESSION) && !out.contains("FOUND"), "{}", ran.said());
    assert!(out.contains("AWS_ACCESS_KEY_ID=airlock-placeholder-"), "{out}");
}

#[test]
fn p5_a_refresh_token_is_changed_outside_for_one_that_is_attached() {
    let person = Sandbox::new();
    let credential = "[[credential]]\nhost = \"api.test\"\nmethods = [\"GET\", \"POST\"]\npaths = [\"/open/**\", \"/echo\"]\n\
                      oauth = { token = \"https://login.test/token\", client = \"airlock test\", address = \"ADDRESS\" }\n\
                      from = { env = \"TEST_KEY\" }\n";
    let world = World::new(&person, credential);
    let script = "curl -sS -m 30 -d hello https://api.test/echo; echo; curl -sS -m 30 https://api.test/open/a; \
                  curl -sS -m 30 https://api.test/open/unauthorized; curl -sS -m 30 https://api.test/open/b; \
                  curl -sS -m 30 https://login.test/token; curl -sS -m 30 -H 'Authorization: Bearer mine' https://api.test/open/c; \
                  env; grep -rs 'TOKE[N]-' ~ /tmp . && echo FO''UND; true";
    let ran = world.run(script).ok();
    let seen = world.server.seen();
    let told: Vec<(&str, Option<&str>)> = seen.iter().map(|s| (s.line.as_str(), s.header("authorization"))).collect();
    let (first, second) = (Some("Bearer access-TOKEN-1"), Some("Bearer access-TOKEN-2"));
    assert_eq!(
        told,
        [
            ("POST /token", None),
            ("POST /echo", first),
            ("GET /open/a", first),
            ("GET /open/unauthorized", first),
            ("POST /token", None),
            ("GET /open/b", second),
        ],
        "{}",
        ran.said()
    );
    let bodies: Vec<String> =
        seen.iter().filter(|s| s.line == "POST /token").map(|s| String::from_utf8_lossy(&s.body).into_owned()).collect();
    let real = "grant_type=refresh_token&refresh_token=sk%2Dtest%2DREAL%2D0123456789&client_id=airlock%20test";
    let next = "grant_type=refresh_token&refresh_token=refresh%2DTOKEN%2D1&client_id=airlock%20test";
    assert_eq!(bodies, [real, next], "a token that was given anew is used from then on");
    let out = ran.out();
    assert!(!ran.said().contains("TOKEN-1") && !ran.said().contains("sk-test-REAL") && !out.contains("FOUND"), "{}", ran.said());
    assert!(out.contains(&format!("authorization: Bearer {}", "*".repeat("access-TOKEN-1".len()))), "it is scrubbed: {out}");
    let task = text(&person.airlock(["task", "list", "--json"]).ok().json_lines()[0], "id");
    let own: Vec<String> = events(&person, &task)
        .iter()
        .filter(|e| e["host"] == "login.test" && e["op"] == "request")
        .map(|e| text(e, "reason"))
        .collect();
    assert_eq!(own.len(), 2, "what Airlock asks for by itself is told: {own:?}");

    // An endpoint that is not there: the request goes nowhere, and the program hears why.
    let person = Sandbox::new();
    let world = World::new(&person, &credential.replace("ADDRESS", "127.0.0.1:1"));
    let ran = world.run("curl -sS -m 30 https://api.test/open/a; true").ok();
    assert!(ran.out().contains("the token endpoint at login.test gives none"), "{}", ran.said());
    assert_eq!(world.server.seen(), []);
}

#[test]
fn p5_what_an_endpoint_gave_is_kept_though_nobody_waited_for_it_and_one_token_is_one_in_two_tables() {
    let person = Sandbox::new();
    let credential = |requests: &str| {
        format!(
            "[[credential]]\nhost = \"api.test\"\n{requests}\noauth = {{ token = \"https://login.test/token-slow\", client = \"x\", \
             address = \"ADDRESS\" }}\nfrom = {{ env = \"TEST_KEY\" }}\n"
        )
    };
    let both =
        credential("methods = [\"GET\"]\npaths = [\"/open/**\"]") + &credential("methods = [\"POST\"]\npaths = [\"/echo\"]");
    let world = World::new(&person, &both);
    let script = "curl -sS -m 1 https://api.test/open/a; sleep 3; curl -sS -m 30 https://api.test/open/b; curl -sS -m 30 -d x https://api.test/echo; true";
    let ran = world.run(script).ok();
    let seen = world.server.seen();
    let told: Vec<(&str, Option<&str>)> = seen.iter().map(|s| (s.line.as_str(), s.header("authorization"))).collect();
    let first = Some("Bearer access-TOKEN-1");
    assert_eq!(told, [("POST /token-slow", None), ("GET /open/b", first), ("POST /echo", first)], "{}", ran.said());
}
