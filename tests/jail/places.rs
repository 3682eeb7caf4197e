//! Machines as people have them: a repository behind a link, a root that is not merged into `/usr`, thousands of places.

use crate::room::{Room, good};
use jail_plan::{Access, Raw, Step};
use std::ffi::OsStr;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::Path;
use testkit::Sandbox;

#[test]
fn a_repository_behind_a_link_is_worked_on_and_taken() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    let link = person.home().join("by-link");
    symlink(repo.path.parent().unwrap(), &link).unwrap();
    let through = link.join(repo.path.file_name().unwrap());
    let ran = person
        .run_script(&through, &[], "pwd; git status --porcelain; cat README.md; echo more >> README.md; git commit -qam more")
        .ok();
    let task = ran.json()["task"].as_str().unwrap().to_owned();
    let shown = person.airlock(["diff", &task]).ok().out();
    assert!(shown.contains("+more"), "its work is seen: {shown}");
    let ended = person.airlock(["task", "show", &task, "--json"]).ok();
    assert!(ended.out().contains("by-link") || ended.out().contains(repo.path.to_str().unwrap()), "{}", ended.said());
    assert_eq!(
        fs::read_to_string(repo.path.join("README.md")).unwrap().matches("more").count(),
        0,
        "and is not in the repository"
    );
}

#[test]
fn a_workspace_whose_path_is_a_link_on_the_host_is_a_plain_place_inside() {
    let room = Room::at(OsStr::new("links/repo"));
    fs::create_dir_all(room.root.join("really/repo")).unwrap();
    fs::write(room.root.join("really/secret"), crate::room::SECRET).unwrap();
    symlink(room.root.join("really"), room.root.join("links")).unwrap();
    let went = room.sh("pwd -P; cat file; ls ..; echo x > made");
    assert_eq!(good(&went), format!("{}\nof the task\nrepo\n", room.workspace.display()), "{went:?}");
    assert!(room.task.tree().join("made").exists() && !room.root.join("really/repo/made").exists());
}

/// The system as the plan has it, with `/bin` and its like as links or as directories of their own.
fn with_root(plan: &mut jail_plan::Plan, merged: bool) {
    for name in ["bin", "sbin", "lib", "lib64"] {
        let target = Raw::from(format!("/{name}"));
        let below = Raw::from(format!("/usr/{name}"));
        if !Path::new("/usr").join(name).exists() {
            continue;
        }
        plan.root.retain(|s| *s.target() != target);
        let step = if merged {
            Step::Symlink { target, points_to: below }
        } else {
            Step::Bind { source: below, target, access: Access::Read, recursive: true, idmapped: false, optional: false }
        };
        // After /usr itself, before anything below the home.
        plan.root.insert(1, step);
    }
}

#[test]
fn programs_run_in_a_root_that_is_merged_into_usr_and_in_one_that_is_not() {
    for merged in [true, false] {
        let room = Room::new();
        let script = "[ -L /bin ] && echo links; [ -d /bin ] && /bin/ls -d /lib64 >/dev/null && /usr/bin/env sh -c 'echo runs'; \
                      (echo x > /bin/new || echo x > /lib/new) 2>/dev/null && echo wrote; git --version >/dev/null && echo git";
        let mut plan = room.plan(&["/bin/sh", "-c", script]);
        with_root(&mut plan, merged);
        let went = room.start_plan(&plan, |_| ()).unwrap_or_else(|e| panic!("merged {merged}: {e}")).finish();
        let want = if merged { "links\nruns\ngit\n" } else { "runs\ngit\n" };
        assert_eq!(good(&went), want, "merged {merged}: {went:?}");
    }
}

#[test]
fn three_thousand_places_are_shown_and_a_file_that_is_too_large_is_refused() {
    let person = Sandbox::new();
    let repo = person.small_repo();
    let policy = |count: usize| {
        let list: String = (0..count).map(|n| format!("  \"~/many/{n:05}\",\n")).collect();
        let text = format!("version = 1\n[files]\ntools = \"auto\"\nread = [\n{list}]\n[network]\ndefault = \"deny\"\n");
        person.file("many.toml", &text)
    };
    for n in 0..3000 {
        person.file(&format!("home/many/{n:05}/n"), &format!("{n}\n"));
    }
    let run = |file: &Path| {
        let mut c = person.airlock_command(["run", "--repo"]);
        c.arg(&repo.path).arg("--policy").arg(file).args([
            "--",
            "sh",
            "-c",
            "cat ~/many/*/n | sort -n | tail -1; ls ~/many | wc -l",
        ]);
        person.finish(c, b"")
    };
    let file = policy(3000);
    let many = run(&file);
    assert_eq!((many.code(), many.out().as_str()), (0, "2999\n3000\n"), "{}", many.said());
    let more = run(&policy(20_000));
    assert_eq!(more.code(), 2, "{}", more.said());
    assert!(more.err().contains("262144 bytes") || more.err().contains("a policy has at most"), "in words: {}", more.said());
}
