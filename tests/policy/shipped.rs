//! The shipped presets and kits, and the shape of a whole file.

use model::decision::Decision;
use policy::{Form, Program, Request, Target, Tools};
use std::path::Path;
use std::time::Duration;

#[test]
fn every_preset_loads_and_allows_nothing_by_itself() {
    let names: Vec<&str> = policy::presets().collect();
    assert_eq!(names, ["standard", "careful", "offline"]);
    for name in names {
        let p = policy::parse(name, policy::preset(name).unwrap()).unwrap_or_else(|e| panic!("{name}: {e:#?}"));
        assert_eq!(p.name, name, "a preset goes by its own name");
        assert_eq!(p.not_in_force(), [], "{name}: what is shipped is in force");
        assert_eq!(p.allowed_targets(), [], "{name}: hosts come from kits and from the person");
        assert_eq!((p.files.read.len(), p.files.write.len()), (0, 0), "{name}");
        assert!(p.files.hide.iter().any(|h| h.path.to_string() == "~/.ssh"), "{name} hides ~/.ssh");
        let target = Target::parse("example.org:443").unwrap();
        assert_ne!(policy::decide(&p, &Request::Connect(target)).decision, Decision::Allow, "{name}");
        assert!(!p.env.passes("AWS_SECRET_ACCESS_KEY") && !p.env.passes("SSH_AUTH_SOCK") && p.env.passes("LANG"), "{name}");
    }
    let standard = policy::parse("standard", policy::preset("standard").unwrap()).unwrap();
    assert_eq!(
        (standard.files.tools, standard.limits.processes, standard.limits.wall),
        (Tools::Auto, 1024, Duration::from_secs(4 * 3600))
    );
    assert_eq!((standard.limits.memory, standard.limits.cpus, standard.limits.disk), (8 << 30, 4, 20 << 30));
    let shown = policy::show(&standard).join("\n");
    for figure in ["8 GiB of memory", "4 CPUs", "1024 processes", "20 GiB of growth on disk", "2 GiB sent", "20 GiB received"] {
        assert!(shown.contains(figure), "{figure} is in force and shown:\n{shown}");
    }
    assert!(standard.env.passes("LC_TIME") && !standard.env.passes("LC"));
}

#[test]
fn every_kit_says_how_its_agent_starts() {
    let kits = policy::kits().unwrap_or_else(|e| panic!("{e:#?}"));
    assert_eq!(kits.iter().map(|k| k.name.as_str()).collect::<Vec<_>>(), ["claude-code", "shell"]);
    let claude = &kits[0];
    assert_eq!(claude.program, [Program::OnPath("claude".into())]);
    assert!(
        claude.note.contains("ANTHROPIC_API_KEY") && claude.note.contains("attached outside"),
        "a person is told where the key goes"
    );
    let standard = policy::preset("standard").unwrap();
    let with = |has: bool| claude.add_to("standard", standard, &|name| has && name == "ANTHROPIC_API_KEY").unwrap();
    let bound = policy::parse("x", &with(true)).unwrap().credentials;
    assert_eq!(bound.len(), 1, "who has the key has it attached");
    assert!(policy::parse("x", &with(false)).unwrap().credentials.is_empty(), "who has none logs in inside");
    assert_eq!(claude.env.pass, Vec::<String>::new(), "no secret is handed in");
    let argv = claude.argv("/opt/claude", Form::Print, Some("-x; $(y)")).unwrap();
    assert_eq!(argv.first().map(String::as_str), Some("/opt/claude"));
    assert_eq!(argv.last().map(String::as_str), Some("-x; $(y)"), "the prompt is one word, whatever is in it");
    assert!(argv.contains(&"--".to_owned()), "a prompt that begins with a hyphen is no option");
    assert_eq!(claude.argv("/opt/claude", Form::Print, None), None);
    assert_eq!(claude.argv("c", Form::Interactive, None).unwrap(), ["c", "--dangerously-skip-permissions"]);
    let shell = &kits[1];
    assert_eq!(shell.network.rules, []);
    assert_eq!(shell.argv("/bin/zsh", Form::Interactive, None).unwrap(), ["/bin/zsh"]);
    assert_eq!(shell.argv("/bin/zsh", Form::Interactive, Some("p")), None, "a shell has no place for a first prompt");
    assert_eq!(policy::kit("nobody").unwrap(), None);
}

#[test]
fn a_file_with_every_key_is_read_and_says_what_is_not_in_force() {
    let p = policy::parse("all.toml", include_str!("all-keys.toml")).unwrap_or_else(|e| panic!("{e:#?}"));
    let keys: Vec<&str> = p.not_in_force().iter().map(|n| n.key.as_str()).collect();
    let want = [
        "events.reads",
        "events.bodies",
        "git.history",
        "git.lfs",
        "git.push",
        "git.other",
        "git.tags",
        "git.force",
        "git.delete",
        "git.ref[0]",
        "service[0]",
        "verify[0]",
        "review.sensitive",
        "review.require_evidence",
    ];
    assert_eq!(keys, want);
    let shown = policy::show(&p).join("\n");
    for key in want {
        assert!(shown.contains(&format!("NOT IN FORCE: {key} ")), "{key} is shown as not in force:\n{shown}");
    }
    assert!(shown.contains("Nothing starts where one of these can't be kept in full: "), "{shown}");
    assert!(
        shown.contains("DEVICES handed in, read-write: /dev/dri.") && shown.contains("NAMESPACES may be made inside"),
        "{shown}"
    );
    assert!(shown.contains("ACCEPTED LOSS: a run starts without `network`, on which rests promise 4"), "{shown}");
    assert!(shown.contains("allow db.test on port 5432, carried unread, leading to 127.0.0.1:5432"), "{shown}");
}

#[test]
fn what_a_file_says_can_hide_nothing_on_a_terminal() {
    let text = "version = 1\n[env]\nset = { A = \"\\u001b[2J\" }\n[[network.rule]]\nhost = \"a.test\"\ndecision = \"allow\"\nreason = \"\\u202egnp\"\n";
    let p = policy::parse("x", text).unwrap();
    let request = Request::Connect(Target::parse("a.test:443").unwrap());
    let lines = policy::show(&p).into_iter().chain(policy::explain(&p, &request));
    assert!(lines.into_iter().all(|l| !l.chars().any(model::path::hides)));
    let problems = policy::parse("x", "version = 1\n\"a\\u001b\" = 1\n[network]\ndefault = \"\\u202e\"\n").unwrap_err();
    assert_eq!(problems.len(), 2);
    assert!(problems.iter().all(|p| !p.to_string().chars().any(model::path::hides)), "{problems:?}");
}

#[test]
fn a_policy_may_not_touch_where_state_really_is() {
    let text = "version = 1\n[files]\nread = [\"/srv/state/airlock\", \"/srv/data\"]\nwrite = [\"/people/bob/.bashrc\", \"/srv/state\"]\n";
    let p = policy::parse("x", text).unwrap();
    let layout =
        model::layout::Layout { data: "/srv/state/airlock".into(), config: "/c/airlock".into(), runtime: "/r/airlock".into() };
    let conflicts = p.conflicts(&layout, Path::new("/people/bob"));
    assert_eq!(conflicts.len(), 3, "{conflicts:#?}");
    assert!(conflicts[1].contains("/people/bob/.bashrc") && conflicts[1].contains("start-up files"), "{conflicts:#?}");
}
