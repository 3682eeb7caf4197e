//! Where credentials come from: a program of the person's, and their desktop's keyring.

use crate::reading::World;
use testkit::Sandbox;

const KEY: &str = "sk-test-SOURCE-0123456789";

fn credential(from: &str) -> String {
    format!(
        "[[credential]]\nhost = \"api.test\"\nmethods = [\"POST\"]\npaths = [\"/echo\"]\nheader = \"x-api-key\"\nfrom = {{ {from} }}\n"
    )
}

const POST: &str = "curl -sS -m 30 -d x https://api.test/echo; echo";

/// What the server was sent as a key, request by request.
fn keys(world: &World<'_>) -> Vec<Option<String>> {
    world.server.seen().iter().map(|s| s.header("x-api-key").map(str::to_owned)).collect()
}

#[test]
fn p5_a_program_of_the_persons_gives_a_credential_for_as_long_as_it_is_good() {
    let person = Sandbox::new();
    let world = World::new(&person, &credential("command = [\"sh\", \"-c\", \"echo $TEST_SOURCE; echo more\"], lease = \"4s\""));
    let mut c = world.command(&format!("{POST}; sleep 4.5; {POST}; env; grep -rs 'SOURC[E]-0' ~ /tmp . && echo FO''UND; true"));
    c.env("TEST_SOURCE", KEY);
    let ran = person.finish(c, b"").ok();
    assert_eq!(keys(&world), [Some(KEY.to_owned())], "once, and not when its time was over: {}", ran.said());
    assert!(ran.out().contains("credential[0] can't be attached: it was good for 4 s"), "{}", ran.said());
    assert!(!ran.said().contains(KEY) && !ran.out().contains("FOUND"), "it is nowhere inside: {}", ran.said());
    for (from, why) in [
        ("command = [\"sh\", \"-c\", \"printf sk-%s half; exit 3\"]", "`sh` ended with exit status: 3"),
        ("command = [\"/not/there\"]", "`/not/there` could not be started"),
        ("command = [\"true\"]", "of what `true` said"),
    ] {
        let person = Sandbox::new();
        let world = World::new(&person, &credential(from));
        let ran = world.run(POST).ok();
        assert_eq!(keys(&world), [], "{from}");
        let task = &person.airlock(["task", "list", "--json"]).ok().json_lines()[0]["id"];
        let told = crate::steps::events(&person, task.as_str().unwrap());
        let detail =
            told.iter().find(|e| e["phase"] == "credential").map(|e| crate::steps::text(e, "detail")).unwrap_or_default();
        assert!(detail.contains(why) && !detail.contains("sk-half"), "{from}: {detail}");
        assert!(!ran.said().contains("sk-half"), "{}", ran.said());
    }
}

#[test]
fn p5_the_desktops_keyring_gives_a_credential_and_says_why_where_it_does_not() {
    let from = "keyring = { service = \"airlock-test\", username = \"me\" }";
    let ran = |before: &str| {
        let person = Sandbox::new();
        let world = World::new(&person, &credential(from));
        let run = world.command(POST);
        let words: Vec<String> =
            std::iter::once(run.get_program()).chain(run.get_args()).map(|w| w.to_string_lossy().into_owned()).collect();
        let mut c = person.command("dbus-run-session");
        c.args(["--", "bash", "-c", &format!("{before}; \"$@\"; kill %1 2>/dev/null; true"), "bash"]).args(words);
        c.env("SSL_CERT_FILE", &world.server.authority).env("KEY", KEY);
        let ended = person.finish(c, b"");
        (keys(&world), ended.said())
    };
    let unlocked = "echo -n pw | gnome-keyring-daemon --foreground --unlock --components=secrets >/dev/null 2>&1 & sleep 1; \
                    for i in $(seq 50); do printf %s \"$KEY\" | secret-tool store --label=test service airlock-test username me && break; sleep 0.2; done";
    let (found, said) = ran(unlocked);
    assert_eq!(found, [Some(KEY.to_owned())], "{said}");
    assert!(!said.contains(KEY), "{said}");
    let (found, said) = ran(&unlocked.replace("airlock-test", "another"));
    assert!(found.is_empty() && said.contains("can't be attached"), "{said}");
    let (found, said) = ran("true");
    assert!(found.is_empty() && said.contains("can't be attached"), "no keyring at all: {said}");
}
