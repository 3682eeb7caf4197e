//! A forge that a policy allows: what writes refs, contents or merges goes to it by no rule, and what is said there is asked about.

use crate::steps::{events, text};
use testkit::airlock::LIMIT;
use testkit::tls::TlsServer;
use testkit::{Live, Sandbox, eventually};

#[test]
fn p7_no_call_writes_on_a_forge_and_a_mutation_that_speaks_is_asked_about() {
    let person = Sandbox::new();
    let server = TlsServer::start(&["api.github.com", "git.corp.test"], person.root());
    let repo = person.small_repo();
    let rule = |host: &str| {
        format!(
            "[[network.rule]]\nhost = \"{host}\"\nports = [443]\naddress = \"{}\"\ninspect = true\ndecision = \"allow\"\n",
            server.at
        )
    };
    let policy = person.file(
        "policy.toml",
        &format!(
            "version = 1\nname = \"forges\"\n[network]\ndefault = \"deny\"\nhold = \"50s\"\n{}{}",
            rule("api.github.com"),
            rule("git.corp.test")
        ),
    );
    let script = r#"
call() { printf '%s %s ' "$1" "$2"; curl -sS -m 55 -o out -w '%{http_code}\n' -X "$1" "https://$2" "${@:3}"; }
query() { printf 'graphql '; curl -sS -m 55 -o out -w '%{http_code}\n' -H 'Content-Type: application/json' "https://$1" -d "$2"; }
call GET api.github.com/repos/a/b/contents/x
call PUT api.github.com/repos/a/b/contents/x -d '{}'
call POST api.github.com/repos/a/b/git/refs -d '{}'
grep -o 'the person applies or pushes' out
call PATCH api.github.com/repos/a/b/git/refs/heads/main/ -d '{}'
call PUT api.github.com/repos/a/b/pulls/1/merge
call POST git.corp.test/api/v4/projects/1/repository/commits -d '{}'
call POST git.corp.test/api/v1/repos/a/b/push_mirrors -d '{}'
call POST api.github.com/repos/a/b/issues/1/comments -d '{}'
query api.github.com/graphql '{"query":"{ viewer { login } }"}'
query api.github.com/graphql '{"query":"mutation { createCommitOnBranch(input: {}) { commit { oid } } }"}'
query git.corp.test/api/graphql '{"query":"mutation { a: addNote { id } ...F } fragment F on Mutation { commitCreate { id } }"}'
query api.github.com/graphql '{"id":"stored"}'
query api.github.com/graphql '{"query":"mutation { addComment(input: {body: \"hello\"}) { id } }"}'
query api.github.com/graphql '{"query":"mutation { closeIssue(input: {}) { id } }"}'
"#;
    let mut c = person.airlock_command(["run", "--repo"]);
    c.arg(&repo.path).arg("--policy").arg(&policy).args(["--", "bash", "-c", script]).env("SSL_CERT_FILE", &server.authority);
    let run = Live::start(c);
    let asked = |what: &str| {
        eventually(what, LIMIT, || {
            let open = person.airlock(["ask", "list", "--json"]).ok().json_lines();
            open.into_iter().find(|a| text(a, "path").contains(what))
        })
    };
    let ask = asked("addComment");
    assert_eq!(ask["path"], "/graphql:mutation(addComment)", "{ask}");
    assert!(text(&ask, "reason").contains("can lie there for others to fetch"), "a host that stores is marked: {ask}");
    person.airlock(["ask", "allow", &text(&ask, "id"), "--scope", "task"]).ok();
    let other = asked("closeIssue");
    person.airlock(["ask", "deny", &text(&other, "id")]).ok();
    let ran = run.end(LIMIT).ok();
    let codes: Vec<&str> = "GET api.github.com/repos/a/b/contents/x 200|PUT api.github.com/repos/a/b/contents/x 403|\
        POST api.github.com/repos/a/b/git/refs 403|the person applies or pushes|PATCH api.github.com/repos/a/b/git/refs/heads/main/ 403|\
        PUT api.github.com/repos/a/b/pulls/1/merge 403|POST git.corp.test/api/v4/projects/1/repository/commits 403|\
        POST git.corp.test/api/v1/repos/a/b/push_mirrors 403|POST api.github.com/repos/a/b/issues/1/comments 200|graphql 200|graphql 403|graphql 403|\
        graphql 403|graphql 200|graphql 403"
        .split('|')
        .collect();
    assert_eq!(ran.out().lines().collect::<Vec<_>>(), codes, "{}", ran.said());
    let seen: Vec<String> =
        server.seen().into_iter().map(|s| format!("{} {}", s.line, String::from_utf8_lossy(&s.body))).collect();
    assert_eq!(seen.len(), 4, "nothing that was refused left: {seen:?}");
    assert!(seen[3].contains("addComment") && seen[3].contains("hello"), "the body goes on as it was: {seen:?}");
    let refused =
        events(&person, &text(&ask, "task")).iter().filter(|e| e["rule"] == "git.forge" && e["verdict"] == "denied").count();
    assert!(refused >= 9, "each is told: {refused}");
}
