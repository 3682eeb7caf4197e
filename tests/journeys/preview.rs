//! The way in: a page that a program of the jail serves, in the person's own browser.

use crate::steps::{events, text};
use std::process::Command;
use testkit::airlock::LIMIT;
use testkit::{Live, Sandbox, eventually};

/// What a browser gets: follows, and keeps cookies in a file.
fn browse(person: &Sandbox, jar: &str, link: &str) -> String {
    let port = link.split(':').nth(2).unwrap().split('/').next().unwrap();
    let host = link.strip_prefix("http://").unwrap().split(':').next().unwrap();
    let jar = person.root().join(jar);
    let mut c: Command = person.command("curl");
    c.args(["-sS", "-m", "20", "-L", "-i", "--resolve", &format!("{host}:{port}:127.0.0.1"), "-b"])
        .arg(&jar)
        .arg("-c")
        .arg(&jar)
        .arg(link);
    let out = c.output().unwrap();
    String::from_utf8_lossy(&[out.stdout, out.stderr].concat()).into_owned()
}

#[test]
fn p6_a_page_of_the_jail_is_seen_by_whoever_has_its_link_and_ends_with_the_run() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    let policy = person.file("policy.toml", "version = 1\nname = \"preview\"\n[network]\ndefault = \"deny\"\n");
    let script = "mkdir site; echo 'a page' > site/index.html; python3 -m http.server 3000 --bind 127.0.0.1 --directory site 2>log & \
                  python3 -m http.server 3001 --bind ::1 --directory site 2>log & until curl -s http://[::1]:3001/ > /dev/null && curl -s http://127.0.0.1:3000/ > /dev/null; do sleep 0.1; done; \
                  echo served; while read at; do curl -sS -m 5 -o /dev/null $at 2>&1 && echo reached || echo closed; done";
    let mut c = person.airlock_command(["run", "--repo"]);
    c.arg(&repo.path).arg("--policy").arg(&policy).args(["--", "bash", "-c", script]);
    let mut run = Live::start(c);
    run.until_out("served");
    let task = text(&person.airlock(["task", "list", "--json"]).ok().json_lines()[0], "id");
    let many = person.airlock(["preview", &task]).exits(2).err();
    assert!(many.contains("3000") && many.contains("3001"), "it names the ports that were taken: {many}");
    let mut seen = Vec::new();
    for port in ["3000", "3001"] {
        let link = text(&person.airlock(["preview", &task, port, "--json"]).ok().json(), "link");
        assert!(link.starts_with(&format!("http://{task}.localhost:")), "{link}");
        let page = browse(&person, port, &link);
        assert!(page.contains("a page"), "{port}: {page}");
        let again = browse(&person, "stranger", &link);
        assert!(again.contains("403") && !again.contains("a page"), "a link is for one use: {again}");
        let front = link.split("?").next().unwrap().to_owned();
        assert!(browse(&person, port, &front).contains("a page"), "who came by it stays in");
        assert!(!browse(&person, "stranger", &front).contains("a page"), "nobody else does");
        seen.push(front);
    }
    // One browser looks at both.
    for port in ["3000", "3001", "3000"] {
        let link = text(&person.airlock(["preview", &task, port, "--json"]).ok().json(), "link");
        assert!(browse(&person, "both", &link).contains("a page"), "{port}");
    }
    assert!(seen.iter().all(|front| browse(&person, "both", front).contains("a page")), "neither shuts the other out");
    // Another user of this machine does not even get an answer.
    if nix::unistd::geteuid().is_root() {
        let link = text(&person.airlock(["preview", &task, "3000", "--json"]).ok().json(), "link");
        let port = link.split(':').nth(2).unwrap().split('/').next().unwrap();
        let mut c = person.command("setpriv");
        c.args(["--reuid", "65534", "--clear-groups", "curl", "-sS", "-m", "10", "-i", &format!("http://127.0.0.1:{port}/")]);
        let out = c.output().unwrap();
        assert!(out.stdout.is_empty() && !out.status.success(), "{}", String::from_utf8_lossy(&out.stdout));
    }
    let nothing = text(&person.airlock(["preview", &task, "3999", "--json"]).ok().json(), "link");
    assert!(browse(&person, "nothing", &nothing).contains("Is the server running?"));
    person.airlock(["preview", &task, "0"]).exits(2);

    assert_eq!(person.airlock(["preview", &task, "3001", "--close", "--json"]).ok().json()["was"], true);
    assert!(browse(&person, "both", &seen[1]).contains("onnect"), "closed by hand");
    assert_eq!(person.airlock(["preview", &task, "3001", "--close", "--json"]).ok().json()["was"], false);

    // From inside there is nothing to be had there.
    let port = seen[0].split(':').nth(2).unwrap().trim_end_matches('/').to_owned();
    run.write(format!("http://127.0.0.1:{port}/\n").as_bytes());
    run.until_out("closed");
    assert!(!run.out().contains("reached"), "{}", run.out());
    let told: Vec<String> =
        events(&person, &task).iter().filter(|e| e["phase"] == "preview").map(|e| text(e, "detail")).collect();
    assert!(told.len() == 4 && told[0].contains("port 3000"), "{told:?}");
    person.airlock(["task", "stop", &task]).ok();
    run.end(LIMIT);
    eventually("it is closed", LIMIT, || browse(&person, "3000", &seen[0]).contains("onnect").then_some(()));
    person.airlock(["preview", &task, "3000"]).exits(5);
}
