//! Tools of the person's home: programs, and nothing that lies beside them.

use crate::room::{Room, SECRET, good};
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

fn program(path: &std::path::Path, says: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("#!/bin/sh\necho {says}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

#[test]
fn tools_run_and_their_secrets_stay_outside() {
    let mut room = Room::new();
    let home = room.home.clone();
    program(&home.join(".cargo/bin/mytool"), "cargo tool");
    program(&home.join(".nvm/versions/node/v1/bin/oldnode"), "old");
    program(&home.join(".nvm/versions/node/v2/bin/mynode"), "node two");
    program(&home.join("agent/bin/myagent"), "agent");
    program(&home.join("elsewhere/bin/stray"), "stray");
    symlink(home.join("elsewhere"), home.join(".deno")).unwrap();
    symlink("../../elsewhere/bin/stray", home.join(".cargo/bin/stray")).unwrap();
    for secret in [".cargo/credentials.toml", ".npmrc", ".nvm/.npmrc"] {
        fs::write(home.join(secret), SECRET).unwrap();
    }
    room.tools = vec![home.join("agent")];
    room.host_env = vec![("PATH".into(), format!("/evil:{}/.nvm/versions/node/v2/bin:/usr/bin", home.display()))];
    let went = room.sh(
        "mytool; mynode; myagent; stray 2>/dev/null && echo strayed; oldnode 2>/dev/null && echo old; ls ~/.deno 2>/dev/null; \
         (echo x > ~/.cargo/bin/mytool || rm -f ~/.cargo/bin/mytool || touch ~/.cargo/bin/new) 2>/dev/null && echo changed; \
         echo mine > ~/.cargo/config.toml; grep -rs SECRET ~; case $PATH in *evil*) echo evil;; esac; true",
    );
    assert_eq!(good(&went), "cargo tool\nnode two\nagent\n", "{went:?}");
    assert!(room.task.home().join(".cargo/config.toml").exists(), "beside its tools the home is the jail's own");
    room.grants.tools = false;
    let went = room.sh("mytool 2>/dev/null || echo none");
    assert_eq!(good(&went), "none\n", "without the grant there are none");
}

#[test]
fn a_missing_command_is_refused_before_anything_runs() {
    let room = Room::new();
    fs::write(room.task.tree().join("plain"), "text").unwrap();
    for (command, why) in
        [("no-such-agent", "PATH"), ("/no/such/agent", "no such file"), ("./plain", "not executable"), ("/tmp", "not a file")]
    {
        match room.start(&[command], |_| ()) {
            Err(supervise::SpawnError::Refused(refusal)) => {
                assert_eq!(refusal.kind, jail_plan::Kind::NotFound, "{command}: {refusal}");
                assert!(refusal.reason.contains(command), "{command} is named: {refusal}");
                assert!(why == "PATH" || refusal.reason.contains(why), "{command}: {refusal}");
            }
            Err(other) => panic!("{command}: {other}"),
            Ok(_) => panic!("{command} must not start"),
        }
    }
}
