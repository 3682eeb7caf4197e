//! What comes along: carried trees and masked settings from the working copy, caches of tools from the home.

use crate::steps::{apply, approve, candidate, look, run_of, show, text, untouched};
use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::time::Duration;
use testkit::treehash::treehash;
use testkit::{Repo, Sandbox, eventually};

const POLICY: &str = "version = 1\nname = \"mine\"\n[files]\ntools = \"auto\"\ncaches = \"auto\"\ncarry = [\"node_modules\"]\nmask = [\".env\", \".env.*\"]\n";

fn log(person: &Sandbox, task: &str) -> String {
    std::fs::read_to_string(text(&run_of(person, task), "log")).unwrap()
}

/// A repository that ignores `node_modules` and `.env`, with both in its working copy.
fn web(person: &Sandbox) -> Repo<'_> {
    let repo = person.small_repo();
    repo.write(".gitignore", "node_modules/\n.env\n.env.*\n");
    repo.commit("rules");
    repo.write("node_modules/left/index.js", "module.exports = 1\n");
    repo.write("node_modules/left/.env", "K=s3cret-in-a-package\n");
    repo.write(".env", "# mine\nAPI_KEY='s3cret'\nPORT=3000\n");
    repo
}

#[test]
fn p3_what_comes_along_is_the_tasks_own_and_leaves_with_nothing() {
    let person = Sandbox::new();
    let repo = web(&person);
    let before = look(&repo.path);
    let policy = person.file("mine.toml", POLICY);
    let script = "cat node_modules/left/index.js .env node_modules/left/.env; echo changed > node_modules/left/index.js; \
                  printf '!.env\\n!node_modules\\n' > .gitignore; echo 'API_KEY=of-the-agent' > .env; git add -f .env node_modules; \
                  git commit -qm all; echo new > new.txt";
    let ran = person.run_script(&repo.path, &["--policy", policy.to_str().unwrap()], script).ok();
    let said = ran.err();
    assert!(said.contains("carried 1 files, 0 MiB in") && said.contains("masked: .env, node_modules/left/.env:"), "{said}");
    let ran = ran.json();
    let (task, tree) = (text(&ran, "task"), text(&ran, "tree"));
    let log = log(&person, &task);
    assert_eq!(log, "module.exports = 1\nAPI_KEY='placeholder-API_KEY'\nPORT=placeholder-PORT\nK=placeholder-K\n", "{log}");
    untouched(&before, &repo.path, "after a run that wrote over all of it");
    let diff = person.airlock(["diff", &task]).ok().out();
    assert!(diff.contains("+new") && !diff.contains("API_KEY") && !diff.contains("left/index.js"), "{diff}");
    let result = text(&approve(&person, &task, &tree, &[".gitignore", "new.txt"], &[]), "result");
    apply(&person, &task, &result, &[]).ok();
    assert_eq!(repo.read(".env"), "# mine\nAPI_KEY='s3cret'\nPORT=3000\n", "no placeholder gets onto the person's own file");
    assert_eq!(repo.read("node_modules/left/index.js"), "module.exports = 1\n");
    assert_eq!(repo.read("new.txt"), "new\n");
    assert_eq!(candidate(&person, &task), tree);
}

#[test]
fn p2_a_secret_in_history_refuses_a_task_and_says_the_way_out() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    repo.write("web/.env", "NODE_ENV=development\nPORT=3000\n");
    repo.commit("as many repositories have it");
    let ran = person.run_script(&repo.path, &[], "cat web/.env").ok();
    assert!(ran.err().contains("not masked") && ran.err().contains("web/.env"), "a harmless one is told: {}", ran.err());
    repo.write("config/.env", "DB_PASSWORD=Tr0ub4dor&3\n");
    repo.commit("a secret");
    let before = look(&repo.path);
    let tasks = || std::fs::read_dir(person.data().join("airlock/tasks")).unwrap().count();
    let made = tasks();
    let refused = person.run_script(&repo.path, &[], "true").exits(3);
    let told = refused.err();
    for part in ["`config/.env`", "DB_PASSWORD", "history", "\"!config/.env\""] {
        assert!(told.contains(part), "{part}: {told}");
    }
    assert!(!told.contains("Tr0ub4dor"), "the value is not repeated: {told}");
    assert_eq!(tasks(), made, "nothing is left of it");
    untouched(&before, &repo.path, "after a refusal");
    let policy = person.file("mine.toml", &POLICY.replace("\".env.*\"]", "\".env.*\", \"!config/.env\"]"));
    person.run_script(&repo.path, &["--policy", policy.to_str().unwrap()], "cat config/.env").ok();
}

/// Serves one package as a registry does, until the test ends.
struct Registry {
    port: u16,
}

impl Registry {
    fn start(tarball: Vec<u8>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let mut head = [0; 8192];
                let n = stream.read(&mut head).unwrap_or(0);
                let path = String::from_utf8_lossy(&head[..n]).split(' ').nth(1).unwrap_or("").to_owned();
                let about = format!(
                    "{{\"name\":\"left\",\"dist-tags\":{{\"latest\":\"1.0.0\"}},\"versions\":{{\"1.0.0\":{{\"name\":\"left\",\"version\":\"1.0.0\",\
                     \"dist\":{{\"tarball\":\"http://127.0.0.1:{port}/left/-/left-1.0.0.tgz\"}}}}}}}}"
                );
                let (kind, body) = match path.as_str() {
                    "/left" => ("application/json", about.into_bytes()),
                    "/left/-/left-1.0.0.tgz" => ("application/octet-stream", tarball.clone()),
                    _ => ("text/plain", b"{}".to_vec()),
                };
                let head = format!(
                    "HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nCache-Control: max-age=3600\r\nConnection: close\r\n\r\n",
                    body.len()
                );
                drop(stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(&body)));
            }
        });
        Self { port }
    }

    fn url(&self) -> String {
        format!("http://127.0.0.1:{}/", self.port)
    }
}

/// Runs the person's npm.
fn npm(person: &Sandbox, dir: &Path, args: &[&str]) {
    let mut command = person.command("npm");
    command.args(args).args(["--no-audit", "--no-fund", "--no-update-notifier"]).current_dir(dir);
    let out = command.output().expect("npm is installed, as `npm test` runs this");
    assert!(out.status.success(), "npm {args:?}: {}", String::from_utf8_lossy(&out.stderr));
}

/// A home whose npm cache holds one package, and a repository that is locked to it.
fn with_npm_cache(person: &Sandbox) -> (Repo<'_>, PathBuf) {
    let package = person.root().join("package");
    std::fs::create_dir(&package).unwrap();
    std::fs::write(package.join("package.json"), r#"{"name":"left","version":"1.0.0","main":"index.js"}"#).unwrap();
    std::fs::write(package.join("index.js"), "module.exports = 'from the cache'\n").unwrap();
    npm(person, &package, &["pack", "--silent"]);
    let registry = Registry::start(std::fs::read(package.join("left-1.0.0.tgz")).unwrap());
    let repo = person.small_repo();
    repo.write("package.json", r#"{"name":"app","version":"1.0.0","dependencies":{"left":"1.0.0"}}"#);
    repo.write(".gitignore", "node_modules/\n");
    npm(person, &repo.path, &["install", "--registry", &registry.url()]);
    std::fs::remove_dir_all(repo.path.join("node_modules")).unwrap();
    repo.commit("locked");
    (repo, person.home().join(".npm/_cacache"))
}

#[test]
fn p1_npm_installs_from_the_persons_cache_without_a_network() {
    if !Path::new("/usr/bin/node").exists() {
        return testkit::not_tested_here("node");
    }
    let person = Sandbox::new();
    let (repo, live) = with_npm_cache(&person);
    let before = treehash(&live).unwrap();
    let policy =
        person.file("mine.toml", "version = 1\n[files]\ntools = \"auto\"\ncaches = \"auto\"\n[network]\ndefault = \"deny\"\n");
    let script = "npm ci --offline --no-audit --no-fund --no-update-notifier >&2 && node -e 'console.log(require(\"left\"))' && \
                  echo mine > ~/.npm/_cacache/mine && ls ~/.npm/_cacache | tr '\\n' ' '";
    let run = || {
        let mut command = person.airlock_command(["run", "--policy"]);
        command.arg(&policy).arg("--repo").arg(&repo.path).args(["--", "sh", "-c", script]);
        person.finish(command, b"")
    };
    // Where the copy took longer than a start waits, a later run has it.
    let ran = eventually("the cache is copied", Duration::from_secs(120), || {
        Some(run()).filter(|ran| !ran.err().contains("the cache npm is not shown"))
    })
    .ok();
    assert!(ran.out().starts_with("from the cache\n") && ran.out().contains("mine"), "{}", ran.said());
    let after = treehash(&live).unwrap();
    assert_eq!(before.total, after.total, "the person's cache is as it was: {:#?}", before.difference(&after));
    let copies = person.data().join("airlock/caches/npm");
    let copy = treehash(&copies).unwrap();
    // The next task finds the same and nothing of this one's.
    let next = person
        .run_script(&repo.path, &["--policy", policy.to_str().unwrap()], "ls ~/.npm/_cacache; cat ~/.npm/_cacache/mine")
        .json();
    let task = text(&next, "task");
    assert!(!log(&person, &task).contains("mine"), "{}", log(&person, &task));
    assert_eq!(copy.total, treehash(&copies).unwrap().total, "and the copy is as it was");
    let told = show(&person, &task);
    let caches = &told["runs"][0]["report"]["caches"];
    assert_eq!(caches[0]["name"], "npm", "{told}");
    assert_eq!(caches[0]["shown"], true, "{told}");
    person.airlock(["task", "discard", &task]).ok();
    assert!(!person.task_dir(&task).exists(), "what a task added goes with it");

    // A policy without caches, or one that hides the place, shows none.
    for policy in
        ["version = 1\n[files]\ncaches = \"none\"\n", "version = 1\n[files]\ncaches = \"auto\"\nhide = [{ path = \"~/.npm\" }]\n"]
    {
        let policy = person.file("none.toml", policy);
        let ran = person.run_script(&repo.path, &["--policy", policy.to_str().unwrap()], "test ! -e ~/.npm/_cacache").ok().json();
        assert_eq!(ran["exit"], 0, "{ran}");
        let told = show(&person, &text(&ran, "task"));
        let rows = told["runs"][0]["report"]["caches"].as_array().cloned().unwrap_or_default();
        let why = |row: &serde_json::Value| row["shown"] == false && text(row, "reason").contains("files.hide");
        assert!(rows.iter().all(why), "one that is hidden is told so, and is not there below: {rows:?}");
    }
    assert_eq!(before.total, treehash(&live).unwrap().total);
}

#[test]
fn p11_a_killed_copy_of_a_cache_is_gone_with_the_next_command() {
    let person = Sandbox::new();
    let half = person.data().join("airlock/caches/npm/.making/content-v2");
    std::fs::create_dir_all(&half).unwrap();
    std::fs::write(half.join("x"), "half").unwrap();
    person.airlock(["task", "list"]).ok();
    assert!(!half.exists(), "what a killed copy left is removed");
}

/// The toolchain of whoever runs this, and a crate without dependencies from their own cache: its directory of the registry, name
/// and version.
pub(crate) fn cargo() -> Option<(PathBuf, PathBuf, String, String)> {
    let said = std::process::Command::new("rustc").args(["--print", "sysroot"]).output().ok().filter(|o| o.status.success())?;
    let sysroot = PathBuf::from(String::from_utf8(said.stdout).ok()?.trim());
    let home = std::env::var_os("CARGO_HOME")
        .map(PathBuf::from)
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".cargo")))?;
    for registry in std::fs::read_dir(home.join("registry/cache")).ok()?.flatten() {
        let crates = std::fs::read_dir(registry.path()).ok()?.flatten().filter_map(|e| e.file_name().into_string().ok());
        // What this very workspace is built from is there.
        if let Some(version) = crates.filter_map(|n| Some(n.strip_prefix("cfg-if-")?.strip_suffix(".crate")?.to_owned())).max() {
            return Some((sysroot, registry.path(), "cfg-if".into(), version));
        }
    }
    None
}

#[test]
fn p1_cargo_builds_from_the_persons_registry_without_a_network() {
    let Some((sysroot, registry, name, version)) = cargo() else {
        return testkit::not_tested_here("cargo with a crate in its cache");
    };
    let person = Sandbox::new();
    let (id, root) = (registry.file_name().unwrap(), registry.parent().unwrap().parent().unwrap());
    let live = person.home().join(".cargo/registry");
    for file in [
        Path::new("cache").join(id).join(format!("{name}-{version}.crate")),
        Path::new("index").join(id).join("config.json"),
        Path::new("index").join(id).join(".cache/cf/g-").join(&name),
    ] {
        std::fs::create_dir_all(live.join(file.parent().unwrap())).unwrap();
        std::fs::copy(root.join(&file), live.join(&file)).unwrap_or_else(|e| panic!("{}: {e}", file.display()));
    }
    std::fs::write(person.home().join(".cargo/credentials.toml"), "[registry]\ntoken = \"CANARY-TOKEN\"\n").unwrap();
    let repo = person.small_repo();
    repo.write("Cargo.toml", format!("[package]\nname = \"app\"\nedition = \"2021\"\n[dependencies]\n{name} = \"={version}\"\n"));
    repo.write(
        "src/main.rs",
        "cfg_if::cfg_if! { if #[cfg(unix)] { fn main() { println!(\"built inside\") } } else { fn main() {} } }\n",
    );
    repo.write(".gitignore", "target/\n");
    // The control: it builds outside, from the same cache.
    let path = format!("{}/bin:/usr/bin:/bin", sysroot.display());
    let mut outside = person.command(sysroot.join("bin/cargo"));
    outside
        .args(["build", "--offline", "--target-dir"])
        .arg(person.root().join("out"))
        .env("PATH", &path)
        .current_dir(&repo.path);
    person.finish(outside, b"").ok();
    repo.commit("locked");
    drop(std::fs::remove_dir_all(live.join("src")));
    let before = treehash(&live).unwrap();
    let text = format!(
        "version = 1\n[files]\ntools = \"auto\"\ncaches = \"auto\"\nread = [\"{}\"]\n[network]\ndefault = \"deny\"\n",
        sysroot.display()
    );
    let policy = person.file("mine.toml", &text);
    let script =
        format!("{}/bin/cargo build --offline >&2 && target/debug/app; cat ~/.cargo/credentials.toml", sysroot.display());
    let run = || {
        let mut command = person.airlock_command(["run", "--policy"]);
        command.arg(&policy).arg("--repo").arg(&repo.path).args(["--env", &format!("PATH={path}"), "--", "sh", "-c", &script]);
        person.finish(command, b"")
    };
    let ran = eventually("the caches are copied", Duration::from_secs(120), || {
        Some(run()).filter(|r| !r.err().contains("is not shown"))
    });
    assert_eq!(ran.out(), "built inside\n", "{}", ran.said());
    let after = treehash(&live).unwrap();
    assert_eq!(before.total, after.total, "the person's registry is as it was: {:#?}", before.difference(&after));
}
