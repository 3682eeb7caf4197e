//! Tools of the person's home: programs, and nothing that lies beside them.

use crate::room::{Room, SECRET, good};
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

fn program(path: &Path, says: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, format!("#!/bin/sh\necho {says}\n")).unwrap();
    fs::set_permissions(path, fs::Permissions::from_mode(0o755)).unwrap();
}

fn link(to: impl AsRef<Path>, at: &Path) {
    fs::create_dir_all(at.parent().unwrap()).unwrap();
    symlink(to, at).unwrap_or_else(|e| panic!("{}: {e}", at.display()));
}

/// A room whose person has `PATH` from these directories of the home.
fn with_path(room: &mut Room, below_home: &[&str]) {
    let path: Vec<String> = below_home.iter().map(|p| room.home.join(p).display().to_string()).collect();
    room.tool_env.push(("PATH".into(), format!("/evil:{}:/usr/bin:/bin", path.join(":"))));
}

#[test]
fn tools_run_and_their_secrets_stay_outside() {
    let mut room = Room::new();
    let home = room.home.clone();
    program(&home.join(".cargo/bin/mytool"), "cargo tool");
    program(&home.join(".nvm/versions/node/v1/bin/oldnode"), "old");
    program(&home.join(".nvm/versions/node/v2/bin/mynode"), "node two");
    program(&home.join("agent/bin/myagent"), "agent");
    for secret in [".cargo/credentials.toml", ".npmrc", ".nvm/.npmrc"] {
        fs::write(home.join(secret), SECRET).unwrap();
    }
    room.tools = vec![home.join("agent")];
    with_path(&mut room, &[".nvm/versions/node/v2/bin"]);
    let went = room.sh("mytool; mynode; myagent; oldnode 2>/dev/null && echo old; \
         (echo x > ~/.cargo/bin/mytool || rm -f ~/.cargo/bin/mytool || touch ~/.cargo/bin/new) 2>/dev/null && echo changed; \
         echo mine > ~/.cargo/config.toml; grep -rs SECRET ~; case $PATH in *evil*) echo evil;; esac; true");
    assert_eq!(good(&went), "cargo tool\nnode two\nagent\n", "{went:?}");
    assert!(room.task.home().join(".cargo/config.toml").exists(), "beside its tools the home is the jail's own");
    room.grants.tools = false;
    let went = room.sh("mytool 2>/dev/null || echo none");
    assert_eq!(good(&went), "none\n", "without the grant there are none");
}

#[test]
fn p2_links_are_followed_to_programs_and_no_further() {
    let room = Room::new();
    let home = room.home.clone();
    // As stow leaves it: one link to a program in a repository of dotfiles, and a folded directory.
    program(&home.join(".dotfiles/bin/stowed"), "stowed");
    fs::create_dir_all(home.join(".dotfiles/.git")).unwrap();
    fs::write(home.join(".dotfiles/bin/secrets"), SECRET).unwrap();
    link("../../.dotfiles/bin/stowed", &home.join(".local/bin/stowed"));
    program(&home.join(".dotfiles/deno/bin/folded"), "folded");
    link(".dotfiles/deno", &home.join(".deno"));
    // A whole tool elsewhere, and links over links.
    program(&room.root.join("other/cargo/bin/elsewhere"), "elsewhere");
    fs::write(room.root.join("other/cargo/credentials.toml"), SECRET).unwrap();
    link(room.root.join("other/cargo"), &home.join(".cargo"));
    link("second", &home.join(".local/bin/first"));
    link("../chain/third", &home.join(".local/bin/second"));
    link(home.join("real/third"), &home.join(".local/chain/third"));
    program(&home.join("real/third"), "third");
    // And what nobody should follow.
    program(&home.join(".ssh/run"), "ssh");
    program(&home.join(".config/gh/run"), "gh");
    program(&room.layout.data.join("own"), "own");
    fs::write(home.join("notes"), SECRET).unwrap();
    for (name, to) in [
        ("a-key", home.join(".ssh/run")),
        ("a-token", home.join(".config/gh/run")),
        ("own", room.layout.data.join("own")),
        ("notes", home.join("notes")),
        ("home", home.clone()),
        ("all", room.root.clone()),
        ("repository", home.join(".dotfiles")),
        ("in-repository", home.join(".dotfiles/bin")),
        ("machine", "/etc/hosts".into()),
        ("loop", home.join(".local/bin/loop")),
        ("nowhere", home.join("nothing")),
    ] {
        link(to, &home.join(".local/bin").join(name));
    }
    link(home.join(".ssh"), &home.join(".bun"));
    link(&home, &home.join(".volta"));
    let went = room.sh(
        "stowed; folded; elsewhere; first; \
         for f in a-key a-token own; do ~/.local/bin/$f 2>/dev/null; done; cat ~/.local/bin/notes ~/.local/bin/machine 2>/dev/null | head -1 | grep -v localhost; \
         for d in home all repository in-repository; do grep -Rs SECRET ~/.local/bin/$d/; done; \
         grep -rs SECRET ~ ; ls ~/.dotfiles/bin; \
         echo mine > ~/.cargo/config.toml && echo mine > ~/.local/share-of-mine && echo private",
    );
    assert_eq!(good(&went), "stowed\nfolded\nelsewhere\nthird\nstowed\nprivate\n", "{went:?}");
    let went = room.sh(&format!("ls {}/other/cargo; cat {0}/other/cargo/credentials.toml 2>/dev/null", room.root.display()));
    assert_eq!(went.out, "bin\n", "at the real place too only the table's part is shown: {went:?}");
    let again = room.sh("stowed && first");
    assert_eq!(good(&again), "stowed\nthird\n", "what a start makes is no hindrance to the next: {again:?}");
}

#[test]
fn p2_a_profile_into_a_store_of_packages_works() {
    let mut room = Room::new();
    let home = room.home.clone();
    let store = room.root.join("nix/store");
    let hash = |n: u32| format!("{n:032}");
    let package = store.join(format!("{}-hello-1.0", hash(1)));
    let library = store.join(format!("{}-greetings-2.0", hash(2)));
    fs::create_dir_all(library.join("lib")).unwrap();
    fs::write(library.join("lib/words"), "words from another package").unwrap();
    fs::create_dir_all(package.join("bin")).unwrap();
    fs::write(package.join("bin/hello"), format!("#!/bin/sh\ncat '{}/lib/words'\n", library.display())).unwrap();
    fs::set_permissions(package.join("bin/hello"), fs::Permissions::from_mode(0o755)).unwrap();
    let profile = store.join(format!("{}-profile", hash(3)));
    link(package.join("bin/hello"), &profile.join("bin/hello"));
    let profiles = room.root.join("nix/var/nix/profiles/per-user/person");
    link(&profile, &profiles.join("profile-1-link"));
    link("profile-1-link", &profiles.join("profile"));
    link(profiles.join("profile"), &home.join(".nix-profile"));
    fs::write(room.root.join("nix/var/nix/secret"), SECRET).unwrap();
    with_path(&mut room, &[".nix-profile/bin"]);
    let went = room.sh(&format!("hello; cat '{}/nix/var/nix/secret' 2>/dev/null; true", room.root.display()));
    assert_eq!(good(&went), "words from another package", "{went:?}");
}

#[test]
fn tools_that_variables_and_npm_moved_are_found() {
    let mut room = Room::new();
    let (home, opt) = (room.home.clone(), room.root.join("opt"));
    program(&opt.join("cargo/bin/moved-cargo"), "cargo");
    program(&opt.join("gopath/bin/moved-go"), "go");
    program(&opt.join("npm/bin/moved-npm"), "npm");
    program(&home.join("packages/bin/by-config"), "config");
    fs::create_dir_all(opt.join("rustup/toolchains/stable/bin")).unwrap();
    fs::write(opt.join("rustup/secret"), SECRET).unwrap();
    fs::write(home.join(".npmrc"), "//registry.example.org/:_authToken=x\nprefix=${HOME}/packages\n").unwrap();
    for (name, at) in [("CARGO_HOME", "cargo"), ("GOPATH", "gopath"), ("RUSTUP_HOME", "rustup"), ("NPM_CONFIG_PREFIX", "npm")] {
        room.tool_env.push((name.into(), opt.join(at).display().to_string()));
    }
    room.tool_env.push(("PYENV_ROOT".into(), "../relative".into()));
    let went = room.sh(
        "moved-cargo; moved-go; moved-npm; by-config; ls \"$RUSTUP_HOME\"; echo \"${CARGO_HOME-unset} ${GOPATH-unset} ${PYENV_ROOT-unset}\"",
    );
    assert_eq!(good(&went), "cargo\ngo\nnpm\nconfig\ntoolchains\nunset unset unset\n", "{went:?}");
}

#[test]
fn the_persons_own_order_of_programs_counts() {
    let mut room = Room::new();
    let home = room.home.clone();
    program(&home.join(".volta/bin/which-one"), "volta");
    program(&home.join(".local/bin/which-one"), "local");
    program(&home.join(".nvm/versions/node/v9.1.0/bin/nodish"), "nine");
    program(&home.join(".nvm/versions/node/v10.0.0/bin/nodish"), "ten");
    program(&home.join(".nvm/versions/node/v20.3.1/bin/nodish"), "twenty");
    fs::create_dir_all(home.join(".nvm/alias")).unwrap();
    fs::write(home.join(".nvm/alias/default"), "10\n").unwrap();
    assert_eq!(good(&room.sh("which-one; nodish")), "volta\nten\n", "the table's order, and the version that nvm would use");
    fs::write(home.join(".nvm/alias/default"), "lts/*\n").unwrap();
    assert_eq!(good(&room.sh("nodish")), "twenty\n", "of no number, the newest");
    with_path(&mut room, &[".local/bin", ".volta/bin", ".nvm/versions/node/v9.1.0/bin"]);
    assert_eq!(good(&room.sh("which-one; nodish")), "local\nnine\n");
    room.tool_env = vec![("PATH".into(), format!("/usr/bin:/bin:{}", home.join(".local/bin").display()))];
    program(&home.join(".local/bin/env"), "not the system's");
    assert_eq!(good(&room.sh("command -v env")), "/usr/bin/env\n", "where the system comes first, it does inside");
}

/// The machine's own toolchain: `rustc`'s directory and pyenv's, where this user may read them.
fn of_the_machine(variable: &str, below_home: &str) -> Option<PathBuf> {
    let named = std::env::var_os(variable).map(PathBuf::from);
    let home = std::env::var_os("HOME").map(PathBuf::from).map(|h| h.join(below_home));
    named.into_iter().chain(home).find(|p| p.read_dir().is_ok())
}

#[test]
fn the_machines_own_rust_runs_through_links() {
    let Some(rustup) = of_the_machine("AIRLOCK_TEST_RUSTUP", ".rustup") else {
        testkit::not_tested_here("a Rust toolchain by rustup");
        return;
    };
    let mut room = Room::new();
    let home = room.home.clone();
    let toolchain =
        fs::read_dir(rustup.join("toolchains")).unwrap().map(|e| e.unwrap().path()).find(|p| p.join("bin/rustc").exists());
    let toolchain = toolchain.unwrap_or_else(|| panic!("{} has no toolchain", rustup.display()));
    // ~/.rustup is a link, and so is what cargo's programs are.
    link(&rustup, &home.join(".rustup"));
    for name in ["rustc", "cargo"] {
        link(
            home.join(".rustup/toolchains").join(toolchain.file_name().unwrap()).join("bin").join(name),
            &home.join(".cargo/bin").join(name),
        );
    }
    with_path(&mut room, &[".cargo/bin"]);
    let went = room.sh("rustc --version && cargo --version && echo 'fn main() { println!(\"built inside\") }' > main.rs && \
         rustc main.rs -o built && ./built && cargo init -q --vcs none --name probe-crate probe-crate && cd probe-crate && \
         cargo build -q --offline && ./target/debug/probe-crate && ls -d ~/.cargo/.package-cache ~/.cargo/bin");
    let said = good(&went);
    assert!(said.starts_with("rustc 1.") && said.contains("\ncargo 1."), "{went:?}");
    assert!(said.contains("\nbuilt inside\nHello, world!\n"), "{went:?}");
}

#[test]
fn node_runs_from_nvms_layout() {
    let mut room = Room::new();
    let Ok(node) = fs::canonicalize("/usr/bin/node") else { return testkit::not_tested_here("node") };
    let version = Command::new(&node).arg("--version").output().unwrap();
    let version = String::from_utf8(version.stdout).unwrap();
    let bin = room.home.join(".nvm/versions/node").join(version.trim()).join("bin");
    fs::create_dir_all(&bin).unwrap();
    if fs::hard_link(&node, bin.join("node")).is_err() {
        fs::copy(&node, bin.join("node")).unwrap();
    }
    with_path(&mut room, &[&format!(".nvm/versions/node/{}/bin", version.trim())]);
    let went = room.sh("command -v node; node --version; node -e 'console.log(require(\"os\").homedir())'");
    assert_eq!(good(&went), format!("{}\n{version}{}\n", bin.join("node").display(), room.home.display()), "{went:?}");
}

#[test]
fn python_runs_through_pyenvs_shims() {
    let Some(pyenv) = of_the_machine("AIRLOCK_TEST_PYENV", ".pyenv") else {
        testkit::not_tested_here("pyenv");
        return;
    };
    let mut room = Room::new();
    link(&pyenv, &room.home.join(".pyenv"));
    with_path(&mut room, &[".pyenv/shims", ".pyenv/bin"]);
    let went =
        room.sh("command -v python3; python3 --version; pyenv --version; python3 -c 'import sys, json; print(sys.prefix)'");
    let lines: Vec<&str> = good(&went).lines().collect();
    assert_eq!(lines[0], room.home.join(".pyenv/shims/python3").display().to_string(), "{went:?}");
    assert!(lines[1].starts_with("Python 3.") && lines[2].starts_with("pyenv "), "{went:?}");
    assert!(lines[3].contains("/versions/"), "pyenv's own python: {went:?}");
}

#[test]
fn a_tool_on_another_mount_is_shown_with_all_that_is_mounted_in_it() {
    if !nix::unistd::geteuid().is_root() {
        testkit::not_tested_here("mounting a disk");
        return;
    }
    let room = Room::new();
    let images = ["first", "second"].map(|name| room.root.join(name));
    let run = |words: &[&str]| {
        let out = Command::new(words[0]).args(&words[1..]).output().unwrap();
        assert!(out.status.success(), "{words:?}: {}", String::from_utf8_lossy(&out.stderr));
    };
    let text = |p: &Path| p.display().to_string();
    for image in &images {
        fs::File::create(image).unwrap().set_len(16 << 20).unwrap();
        run(&["mkfs.ext4", "-q", "-F", &text(image)]);
    }
    let (rustup, stable) = (room.home.join(".rustup"), room.home.join(".rustup/toolchains/stable"));
    fs::create_dir_all(&rustup).unwrap();
    let _first = Mounted::new(&["mount", "-o", "loop", &text(&images[0]), &text(&rustup)], &rustup);
    fs::create_dir_all(&stable).unwrap();
    fs::write(rustup.join("settings.toml"), "version = \"12\"\n").unwrap();
    fs::write(rustup.join("secret"), SECRET).unwrap();
    let _second = Mounted::new(&["mount", "-o", "loop", &text(&images[1]), &text(&stable)], &stable);
    program(&stable.join("bin/rustish"), "from a mount in a mount");
    let went = room.sh("cat ~/.rustup/settings.toml; ~/.rustup/toolchains/stable/bin/rustish; ls ~/.rustup; touch ~/.rustup/toolchains/stable/x 2>/dev/null && echo wrote; true");
    assert_eq!(good(&went), "version = \"12\"\nfrom a mount in a mount\nsettings.toml\ntoolchains\n", "{went:?}");
}

/// A mount that goes with the test.
struct Mounted(PathBuf);

impl Mounted {
    fn new(words: &[&str], at: &Path) -> Self {
        let out = Command::new(words[0]).args(&words[1..]).output().unwrap();
        assert!(out.status.success(), "{words:?}: {}", String::from_utf8_lossy(&out.stderr));
        Self(at.to_owned())
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        drop(Command::new("umount").arg(&self.0).output());
    }
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
