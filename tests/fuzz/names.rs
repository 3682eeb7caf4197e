//! Names: of hosts that are asked for, of processes, of files that a pattern means.

use model::event::What;
use model::path::hides;
use model::pattern::Pattern;
use std::sync::{Arc, OnceLock};
use sys::proc::Stat;

const POLICY: &str = "version = 1\n[network]\ndefault = \"deny\"\n[[network.rule]]\nhost = \"*.example.org\"\nports = [443]\n\
                      decision = \"allow\"\nreason = \"some names are given\"\n";

/// A packet that a jail sends to its server for names.
pub(crate) fn dns(bytes: &[u8]) {
    static RULES: OnceLock<Arc<policy::Policy>> = OnceLock::new();
    let rules = RULES.get_or_init(|| Arc::new(policy::parse("fuzz", POLICY).expect("the policy is one")));
    let heard = |fact: egress::Fact| {
        if let What::Network { host, .. } = fact.what {
            assert!(!host.chars().any(hides), "no name acts on a terminal: {host:?}");
        }
    };
    if let Some(answer) = egress::answered(Arc::clone(rules), bytes, heard) {
        assert!(bytes.len() >= 12 && bytes[2] & 0x80 == 0, "an answer answers a question, so that no two servers talk for ever");
        assert!(answer.len() >= 12 && answer[..2] == bytes[..2] && answer[2] & 0x80 != 0, "an answer is one to this question");
        assert!(answer.len() <= 1024, "a small question has a small answer: {}", answer.len());
    }
}

/// Where a request of HTTP goes, and what a person's environment says of proxies.
pub(crate) fn requests(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    let (method, path) = text.split_once(' ').unwrap_or(("GET", text));
    if let Ok(request) = policy::HttpRequest::new(method, path) {
        let plain = request.path();
        let again = policy::HttpRequest::new(request.method(), plain).expect("a plain path is one");
        assert_eq!(again.path(), plain, "and stays as it is, so that what is judged is what is sent");
        let segments: Vec<&str> = plain.split('/').collect();
        let last = segments.len().saturating_sub(1);
        let odd = |(i, s): (usize, &&str)| matches!(*s, "." | "..") || (s.is_empty() && i != 0 && i != last);
        assert!(
            plain == "*" || (plain.starts_with('/') && !segments.iter().enumerate().any(odd)),
            "one way to read it: {plain:?}"
        );
        let lower = plain.to_ascii_lowercase();
        assert!(
            !["%2f", "%2e", "%5c", "%00", "\\", "?", "#"].iter().any(|bad| lower.contains(bad)),
            "no server reads more: {plain:?}"
        );
    }
    drop(policy::Request::parse(text));
    if let Ok((proxy, _)) = policy::ProxyAddress::parse(text) {
        let said = policy::ProxyAddress::parse(&proxy.to_string()).expect("what is said is read again");
        assert_eq!(said, (proxy, None), "and names nobody");
    }
    if let Ok(range) = policy::Range::parse(text) {
        assert_eq!(policy::Range::parse(&range.to_string()), Ok(range));
    }
    let direct = policy::Direct::parse(text);
    let asked = policy::Target::parse("x.wild.test:443").expect("it is one");
    if direct.means(&asked) {
        assert!(text.contains('*') || text.contains("test"), "a list that says nothing of it does not mean it: {text:?}");
    }
}

/// What the kernel says of a process, whose name is what the process made it.
pub(crate) fn stat(bytes: &[u8]) {
    drop(Stat::parse(bytes));
    let name: Vec<u8> = bytes.iter().copied().filter(|b| *b != 0).take(15).collect();
    let rest = b") S 4 7 7 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 1 0 99 4096 1 18446744073709551615 1 1 140737488347136 0 0 0 0 0 0 0 0 0 17 \
                 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n";
    let read = Stat::parse(&[b"7 (", name.as_slice(), rest].concat());
    assert_eq!(read.map(|s| (s.comm, s.parent, s.begun)), Some((name, 4, 99)), "no name is taken for what follows it");
}

/// A pattern, and a path that it may mean.
pub(crate) fn patterns(bytes: &[u8]) {
    let Some(at) = bytes.iter().position(|b| *b == b'\n') else { return };
    let (pattern, path) = (&bytes[..at], &bytes[at + 1..]);
    let Ok(text) = std::str::from_utf8(pattern) else { return };
    let Ok(pattern) = Pattern::parse(text) else { return };
    let said = pattern.matches(path);
    // The table says it again in the plainest way, for which only short ones are small enough.
    if text.len() * path.len() < 1 << 16 {
        let text = text.strip_prefix('!').unwrap_or(text);
        let parts: Vec<&[u8]> = path.split(|b| *b == b'/').collect();
        let wanted: Vec<&str> = text.split('/').collect();
        let expected = match wanted.as_slice() {
            [name] => parts.last().is_some_and(|last| fits(name.as_bytes(), last)),
            all => all.len() == parts.len() && all.iter().zip(&parts).all(|(p, part)| fits(p.as_bytes(), part)),
        };
        assert_eq!(said, expected, "{text:?} and {path:?}");
    }
}

fn fits(pattern: &[u8], name: &[u8]) -> bool {
    // Which beginnings of the name the pattern so far stands for.
    let mut ends = vec![false; name.len() + 1];
    ends[0] = true;
    for p in pattern {
        let before = ends.clone();
        for n in 0..=name.len() {
            ends[n] = match p {
                b'*' => before[n] || (n > 0 && ends[n - 1]),
                b'?' => n > 0 && before[n - 1],
                c => n > 0 && before[n - 1] && name[n - 1] == *c,
            };
        }
    }
    ends[name.len()]
}

/// Documents of GraphQL: nothing but the word itself makes a mutation, and one that is asked about is named.
pub(crate) fn graphql(bytes: &[u8]) {
    let Some((kind, bytes)) = bytes.split_first() else { return };
    let (body, query) = if *kind & 2 == 0 { (bytes, None) } else { (&b""[..], std::str::from_utf8(bytes).ok()) };
    if let egress::Does::Asks(names) = egress::does(body, query, *kind & 1 == 0) {
        assert!(!names.is_empty() && names.iter().all(|n| n.bytes().all(|b| b.is_ascii_alphanumeric())), "{names:?}");
        let text = String::from_utf8_lossy(bytes);
        assert!(text.contains("mutation") || text.contains(['\\', '%']), "only a mutation is asked about: {text}");
    }
}

/// What runs a future of this file, on this thread.
fn block<T>(future: impl Future<Output = T>) -> T {
    static RUNTIME: OnceLock<tokio::runtime::Runtime> = OnceLock::new();
    let runtime = RUNTIME
        .get_or_init(|| tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime"));
    runtime.block_on(future)
}

/// The first bytes of a tunnel.
pub(crate) fn hello(bytes: &[u8]) {
    let target = policy::Target::parse("model.test:443").expect("it is one");
    let (carried, kept) = block(egress::hello(&target, bytes));
    assert_eq!(kept, bytes, "not one is lost or made up");
    assert!(!carried || bytes.first().is_none_or(|b| *b == 0x16), "on 443 nothing but TLS goes on");
}

/// What a program sends on a connection whose requests are read.
pub(crate) fn heads(bytes: &[u8]) {
    let target = policy::Target::parse("api.test:80").expect("it is one");
    for (judged, uri, headers) in block(egress::heads(&target, bytes)) {
        assert_eq!(uri.split('?').next(), Some(judged.path()), "what goes on is what was judged");
        let hosts: Vec<&[u8]> = headers.get_all("host").iter().map(|v| v.as_bytes()).collect();
        assert_eq!(hosts, [b"api.test"], "for the host that was judged");
        for hop in
            ["connection", "upgrade", "transfer-encoding", "proxy-connection", "keep-alive", "x-forwarded-host", "forwarded"]
        {
            assert!(!headers.contains_key(hop), "{hop} goes no further");
        }
    }
}
