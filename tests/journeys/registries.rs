//! Registries of packages: what a task reads from by its lock files and the person's own tools, and nothing else.

use crate::steps::text;
use std::fs;
use testkit::Sandbox;

#[test]
fn p4_a_task_reads_from_the_registries_that_its_locks_and_the_persons_tools_name() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    fs::write(person.home().join(".npmrc"), "registry=https://me:word@npm.corp.test:8443/repo/\n").unwrap();
    for (name, content) in [
        ("package-lock.json", "{\"packages\":{\"\":{},\"node_modules/x\":{\"resolved\":\"https://planted.test/x.tgz\"}}}"),
        (".npmrc", "registry=https://planted.test/\n"),
        ("Cargo.lock", "version = 4\n"),
    ] {
        fs::write(repo.path.join(name), content).unwrap();
    }
    repo.git(["add", "."]);
    repo.git(["commit", "-qm", "locks"]);
    let ran = person.run_script(&repo.path, &[], "true").ok();
    assert!(ran.err().contains("npm is read from npm.corp.test, by your ~/.npmrc"), "it says so: {}", ran.said());
    assert!(ran.err().contains("cargo: its registry is not known here"), "and what nobody knows: {}", ran.said());
    let task = text(&person.airlock(["task", "list", "--json"]).ok().json_lines()[0], "id");
    let shown = person.airlock(["policy", "show", &task]).ok().out();
    assert!(shown.contains("npm.corp.test") && !shown.contains("planted.test") && !shown.contains(":word"), "{shown}");
    let answer = |request: &str| person.airlock(["policy", "explain", &task, request]).ok().out();
    for (request, decision, rule) in [
        ("GET https://npm.corp.test:8443/repo/x", "allow", "a registry of npm, by your ~/.npmrc"),
        ("PUT https://npm.corp.test:8443/repo/x", "deny", "a registry is only read from"),
        ("POST https://npm.corp.test:8443/-/npm/v1/security/audits", "deny", "a registry is only read from"),
        ("GET https://planted.test/x.tgz", "ask", "network.default"),
    ] {
        let said = answer(request);
        let first = said.lines().next().unwrap_or_default();
        assert!(first.contains(decision) && said.contains(rule), "{request}: {said}");
    }

    // What the policy says of that host itself counts, and without the key nothing is added.
    let own = "version = 1\nname = \"own\"\n[network]\ndefault = \"deny\"\necosystems = [\"npm\"]\n\
               [[network.rule]]\nhost = \"npm.corp.test\"\nports = [8443]\nmethods = [\"GET\"]\npaths = [\"/only/**\"]\ndecision = \"allow\"\n";
    for policy in [own, &own.replace("ecosystems = [\"npm\"]\n", "")] {
        let file = person.file("own.toml", policy);
        person.run_script(&repo.path, &["--policy", file.to_str().unwrap()], "true").ok();
        let task = text(&person.airlock(["task", "list", "--json"]).ok().json_lines()[0], "id");
        let answer = person.airlock(["policy", "explain", &task, "GET https://npm.corp.test:8443/x"]).ok().out();
        assert!(answer.lines().next().unwrap_or_default().contains("deny"), "{answer}");
    }
}
