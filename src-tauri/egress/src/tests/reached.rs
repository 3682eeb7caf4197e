//! Whatever a policy says and a program tries: no byte reaches an address whose name and address were not both allowed.

use super::*;
use std::net::Ipv4Addr;

const HOSTS: [&str; 5] = ["a.test", "b.test", "x.c.test", "y.c.test", "127.0.0.1"];
const PATTERNS: [&str; 6] = ["a.test", "b.test", "x.c.test", "*.c.test", "*.test", "127.0.0.1"];
const PORTS: [u16; 3] = [1001, 1002, 1003];
const DECISIONS: [&str; 3] = ["allow", "ask", "deny"];

#[derive(Debug, Clone)]
struct Rule {
    pattern: usize,
    ports: Vec<u16>,
    decision: usize,
    /// Which server it leads to, if any.
    leads: Option<usize>,
}

/// What is dialled: a name's address or an address as it is; where to.
#[derive(Debug, Clone)]
enum Try {
    Name(usize, u16),
    /// A server's own address.
    Server(usize),
    Raw(u32, u16),
}

fn rules() -> impl Strategy<Value = Vec<Rule>> {
    let rule = (
        0..PATTERNS.len(),
        proptest::sample::subsequence(PORTS.to_vec(), 1..=3),
        proptest::sample::select(vec![0usize, 0, 0, 0, 0, 0, 1, 2, 2]),
        proptest::option::of(0..3usize),
    );
    let rule = rule.prop_map(|(pattern, ports, decision, leads)| Rule { pattern, ports, decision, leads });
    proptest::collection::vec(rule, 0..6)
}

fn tries() -> impl Strategy<Value = Vec<Try>> {
    let one = prop_oneof![
        4 => (0..HOSTS.len(), proptest::sample::select(PORTS.to_vec())).prop_map(|(host, port)| Try::Name(host, port)),
        1 => (0..3usize).prop_map(Try::Server),
        1 => (any::<u32>(), proptest::sample::select(PORTS.to_vec())).prop_map(|(ip, port)| Try::Raw(ip, port)),
    ];
    proptest::collection::vec(one, 1..8)
}

fn text(rules: &[Rule], servers: &[SocketAddr]) -> String {
    let one = |rule: &Rule| {
        let leads = rule.leads.map_or_else(String::new, |n| format!("address = \"{}\"\n", servers[n]));
        format!(
            "[[network.rule]]\nhost = \"{}\"\nports = {:?}\n{leads}decision = \"{}\"\n",
            PATTERNS[rule.pattern], rule.ports, DECISIONS[rule.decision]
        )
    };
    rules.iter().map(one).collect()
}

/// Said once more, in other words than the product's: whether some server may be reached under this name.
fn may(rules: &[Rule], host: &str, port: u16, server: usize) -> bool {
    let means = |pattern: &str| match pattern.strip_prefix("*.") {
        Some(domain) => host.ends_with(&format!(".{domain}")),
        None => host == pattern,
    };
    let matching: Vec<&Rule> = rules.iter().filter(|r| means(PATTERNS[r.pattern]) && r.ports.contains(&port)).collect();
    !matching.is_empty() && matching.iter().all(|r| r.decision == 0) && matching.iter().any(|r| r.leads == Some(server))
}

/// Three servers that say their number, as long as they are needed.
async fn servers() -> Vec<SocketAddr> {
    let mut all = Vec::new();
    for number in 0..3u8 {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        all.push(listener.local_addr().unwrap());
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                stream.write_all(&[b'0' + number]).await.unwrap_or(());
            }
        });
    }
    all
}

async fn attempt(door: &Arc<Door>, servers: &[SocketAddr], one: &Try) -> (String, u16, Option<usize>) {
    let (host, dst) = match one {
        Try::Name(host, port) => {
            let host = HOSTS[*host];
            let at = match host.parse::<Ipv4Addr>() {
                Ok(ip) => Some(IpAddr::V4(ip)),
                Err(_) => {
                    let name = Name::from_ascii(format!("{host}.")).unwrap();
                    ask(&door.gate, &name, RecordType::A).answers.first().and_then(|a| match &a.data {
                        RData::A(a) => Some(IpAddr::V4(a.0)),
                        _ => None,
                    })
                }
            };
            (host.to_owned(), at.map(|ip| SocketAddr::new(ip, *port)))
        }
        Try::Server(n) => (servers[*n].ip().to_string(), Some(servers[*n])),
        Try::Raw(ip, port) => (Ipv4Addr::from(*ip).to_string(), Some(SocketAddr::new(Ipv4Addr::from(*ip).into(), *port))),
    };
    let Some(dst) = dst else { return (host, 0, None) };
    let mut program = dial(door, dst).await;
    let mut said = [0; 1];
    let got = tokio::time::timeout(Duration::from_secs(10), program.read_exact(&mut said)).await;
    let reached = matches!(got, Ok(Ok(_))).then(|| usize::from(said[0] - b'0'));
    (host, dst.port(), reached)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn p4_nothing_is_reached_whose_name_and_address_were_not_both_allowed(rules in rules(), tries in tries()) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let reached = runtime.block_on(async {
            let servers = servers().await;
            let Ok(policy) = policy::parse("test", &format!("version = 1\n[network]\ndefault = \"deny\"\nhold = \"1s\"\n{}", text(&rules, &servers)))
            else {
                return Vec::new();
            };
            let limits = Limits { connect: Duration::from_millis(300), ..Limits::default() };
            let door = Arc::new(Door::new(Arc::new(policy), Log::new(false), limits, None, Proxies::default()));
            let mut all = Vec::new();
            for one in &tries {
                all.push(attempt(&door, &servers, one).await);
            }
            all
        });
        for (host, port, server) in reached {
            if let Some(server) = server {
                prop_assert!(may(&rules, &host, port, server), "{host}:{port} reached server {server}");
            }
        }
    }
}

#[tokio::test]
async fn what_is_allowed_is_reached() {
    let servers = servers().await;
    let rules = [Rule { pattern: 0, ports: vec![1001], decision: 0, leads: Some(2) }];
    let policy = policy(&text(&rules, &servers));
    let door = Arc::new(Door::new(policy, Log::new(false), Limits::default(), None, Proxies::default()));
    let (host, port, server) = attempt(&door, &servers, &Try::Name(0, 1001)).await;
    assert!(
        server == Some(2) && may(&rules, &host, port, 2) && !may(&rules, &host, port, 1),
        "the test itself can see: {server:?}"
    );
}
