//! A jail with a way out, a shell in it, and servers of the test outside.

use egress::{Arbiter, Fact, Inlets, Limits};
use model::event::{NetOp, Process, What};
use model::id::{RunId, TaskId};
use model::layout::Layout;
use model::run::{PolicyText, RunSpec, Stdio};
use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use supervise::compose::{self, Grants};
use supervise::notify::{Announced, Notify};
use supervise::who::{JailRef, Who};

/// What is needed for one run.
pub(crate) struct Inside {
    policy: Arc<policy::Policy>,
    pub(crate) limits: Limits,
}

/// How it went.
#[derive(Debug)]
pub(crate) struct Went {
    /// Stdout and stderr.
    pub(crate) out: String,
    pub(crate) facts: Vec<Fact>,
}

impl Went {
    /// Facts about the network of one kind.
    pub(crate) fn network(&self, op: NetOp) -> Vec<&Fact> {
        self.facts.iter().filter(|f| matches!(&f.what, What::Network { op: o, .. } if *o == op)).collect()
    }
}

struct Owner {
    announced: Arc<Announced>,
    facts: Arc<Mutex<Vec<Fact>>>,
}

impl Arbiter for Owner {
    fn announced(&self, dst: SocketAddr) -> Option<Process> {
        self.announced.take(dst)
    }
    fn record(&self, fact: Fact) {
        self.facts.lock().unwrap().push(fact);
    }
}

impl Inside {
    /// A policy that denies what these rules don't name.
    pub(crate) fn new(rules: &str) -> Self {
        let text = format!("version = 1\n[network]\ndefault = \"deny\"\n{rules}");
        let policy = policy::parse("test", &text).unwrap_or_else(|p| panic!("{text}: {p:#?}"));
        Self { policy: Arc::new(policy), limits: Limits::default() }
    }

    /// Runs a bash script in a jail to its end.
    pub(crate) fn bash(&self, script: &str) -> Went {
        let dir = tempfile::Builder::new().prefix("airlock-egress-").tempdir().unwrap();
        let root = dir.path().to_owned();
        let layout = Layout { data: root.join("data"), config: root.join("config"), runtime: root.join("run") };
        let task = layout.task(&TaskId::from_random([1; 8]));
        let (home, workspace) = (root.join("home"), root.join("home/repo"));
        for d in [&home.join(".ssh"), &task.tree(), &task.git(), &task.home()] {
            fs::create_dir_all(d).unwrap();
        }
        fs::write(task.tree().join(".git"), "gitdir: /nowhere\n").unwrap();
        let spec = RunSpec {
            version: model::protocol::VERSION,
            task: TaskId::from_random([1; 8]),
            run: RunId::from_random([2; 8]),
            layout,
            dir: task,
            workspace,
            home: home.clone(),
            history: vec![],
            policy: PolicyText { name: "test".into(), text: String::new(), repository: None },
            argv: ["/bin/bash", "-c", script].map(str::to_owned).to_vec(),
            env: vec![],
            host_env: vec![],
            tool_env: vec![],
            tools: vec![],
            caches: Vec::new(),
            stdio: Stdio::Pipes,
            hostname: "inside".into(),
            jail_program: testkit::program("airlock-jail"),
            git_program: "/usr/bin/git".into(),
        };
        let grants = Grants { processes: 128, network: true, ..Grants::default() };
        let mut plan = compose::agent(&spec, &grants).unwrap();
        plan.root.retain(|s| !matches!(s, jail_plan::Step::Decoy { .. }));
        self.run(&plan, &spec)
    }

    fn run(&self, plan: &jail_plan::Plan, spec: &RunSpec) -> Went {
        let (mut out, inner_out) = std::io::pipe().unwrap();
        let inner_err = inner_out.try_clone().unwrap();
        let streams: [OwnedFd; 3] = [File::open("/dev/null").unwrap().into(), inner_out.into(), inner_err.into()];
        let mut jail =
            supervise::spawn(plan, &spec.jail_program, Some(streams)).unwrap_or_else(|e| panic!("the jail did not start: {e}"));
        let init_pid = u32::try_from(jail.pid).unwrap();
        let who = Who::new(JailRef { init_pid, ..JailRef::default() }).unwrap();
        let notify = Notify::serve(jail.notify.take().expect("notifications"), who, |_| ()).unwrap();
        let facts = Arc::new(Mutex::new(Vec::new()));
        let owner = Arc::new(Owner { announced: notify.announced(), facts: Arc::clone(&facts) });
        let inlets =
            Inlets::Own { listener: jail.listener.take().expect("a listener"), dns: jail.dns.take().expect("a DNS socket") };
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let way_out = runtime.spawn(egress::serve(
            inlets,
            Arc::clone(&self.policy),
            owner,
            self.limits.clone(),
            None,
            egress::Proxies::default(),
        ));
        jail.go().unwrap();
        let mut text = String::new();
        out.read_to_string(&mut text).unwrap();
        jail.wait().unwrap();
        way_out.abort();
        // Dropping the runtime ends every connection, and with it the last facts are told.
        drop(runtime);
        let facts = std::mem::take(&mut *facts.lock().unwrap());
        Went { out: text, facts }
    }
}

/// A server of the test.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    heard: Arc<Mutex<String>>,
    most: Arc<AtomicUsize>,
}

/// Starts a server on loopback that hears one line of each connection, answers after a moment, and closes.
pub(crate) fn server(answer: &'static str) -> Server {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let (heard, most, open) = (Arc::new(Mutex::new(String::new())), Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let server = Server { address, heard: Arc::clone(&heard), most: Arc::clone(&most) };
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let (heard, most, open) = (Arc::clone(&heard), Arc::clone(&most), Arc::clone(&open));
            std::thread::spawn(move || {
                let mut stream = stream.unwrap();
                most.fetch_max(open.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                let mut line = String::new();
                if BufReader::new(stream.try_clone().unwrap()).read_line(&mut line).is_ok() {
                    heard.lock().unwrap().push_str(&line);
                    std::thread::sleep(testkit::wait::patiently(Duration::from_millis(500)).min(Duration::from_secs(2)));
                    open.fetch_sub(1, Ordering::SeqCst);
                    stream.write_all(answer.as_bytes()).unwrap_or(());
                }
            });
        }
    });
    server
}

impl Server {
    /// A rule that leads a name to this server.
    pub(crate) fn rule(&self, host: &str, port: u16) -> String {
        format!("[[network.rule]]\nhost = \"{host}\"\nports = [{port}]\naddress = \"{}\"\ndecision = \"allow\"\n", self.address)
    }

    /// All lines that were heard.
    pub(crate) fn heard(&self) -> String {
        self.heard.lock().unwrap().clone()
    }

    /// The most connections that were open at once.
    pub(crate) fn most_at_once(&self) -> usize {
        self.most.load(Ordering::SeqCst)
    }
}
