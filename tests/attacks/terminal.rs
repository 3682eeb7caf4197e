//! The terminal on which a person types `airlock run`.

use serde_json::Value;
use std::fs;
use std::process::Command;
use testkit::{Sandbox, not_tested_here};

const SHELL: &str = include_str!("programs/terminal.py");
/// Attack, and what a shell on the terminal finds otherwise afterwards.
const ATTACKS: [(&str, &str); 6] = [
    ("type", "typed"),
    ("raw", "modes"),
    ("foreground", "foreground"),
    ("no-wait", "flags"),
    ("size", "size"),
    ("exclusive", "exclusive"),
];

#[test]
fn p6_the_persons_terminal_is_as_it_was() {
    if !std::path::Path::new("/usr/bin/python3").exists() {
        return not_tested_here("python3");
    }
    let person = Sandbox::new();
    let repo = person.small_repo();
    let program = crate::compile::program("terminal");
    repo.write("hostile", fs::read(&program).unwrap());
    fs::set_permissions(repo.path.join("hostile"), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    repo.commit("a hostile program");
    let (mut controls, mut held, mut none) = (0, 0, Vec::new());
    for (attack, harm) in ATTACKS {
        let outside = on_terminal(&person, &[program.to_str().unwrap(), attack]);
        let airlock = testkit::program("airlock");
        let repo = repo.path.to_str().unwrap();
        let inside = on_terminal(&person, &[airlock.to_str().unwrap(), "run", "--rm", "--repo", repo, "--", "./hostile", attack]);
        assert_eq!(inside, on_terminal(&person, &["/bin/true"]), "{attack} from inside");
        // Typing into a terminal is off in newer kernels.
        if attack == "type" && outside[harm] == false {
            none.push("type: dev.tty.legacy_tiocsti is 0");
            continue;
        }
        assert_eq!(outside[harm], true, "{attack} outside: {outside}");
        controls += 1;
        held += 1;
    }
    for why in &none {
        println!("no control here: {why}");
    }
    println!(
        "attacks: {controls} controls succeeded, {held} held inside ({}; {} without a control here)",
        testkit::wait::column(),
        none.len()
    );
}

/// What a shell on a terminal finds after this command.
fn on_terminal(person: &Sandbox, command: &[&str]) -> Value {
    let report = person.root().join("report.json");
    drop(fs::remove_file(&report));
    let mut c: Command = person.command("/usr/bin/python3");
    c.arg("-c").arg(SHELL).arg(&report).args(command);
    person.finish(c, b"").ok();
    serde_json::from_str(&fs::read_to_string(&report).unwrap()).unwrap()
}
