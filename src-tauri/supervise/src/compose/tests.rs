//! What a plan holds, and what is refused before there is one.
#![allow(clippy::unwrap_used, reason = "tests")]
use super::*;
use jail_plan::{Ground, Looks};
use model::id::{RunId, TaskId};
use model::layout::{Layout, TaskDir};
use model::run::PolicyText;

pub(crate) fn spec(workspace: &str) -> RunSpec {
    RunSpec {
        version: 1,
        task: TaskId::from_random([0; 8]),
        run: RunId::from_random([0; 8]),
        layout: Layout { data: "/home/u/data".into(), config: "/home/u/config".into(), runtime: "/run/user/1/airlock".into() },
        dir: TaskDir("/home/u/data/tasks/t".into()),
        workspace: workspace.into(),
        home: "/home/u".into(),
        history: vec!["/home/u/data/store/objects".into()],
        policy: PolicyText { name: String::new(), text: String::new(), repository: None },
        argv: vec!["agent".into()],
        env: vec![("PATH".into(), "/mine".into())],
        host_env: vec![("SECRET".into(), "x".into())],
        tool_env: vec![("PATH".into(), "/home/u/agent/bin:/home/u/.ssh/bin:/usr/bin".into())],
        tools: vec!["/home/u/agent".into()],
        caches: Vec::new(),
        stdio: model::run::Stdio::Pipes,
        hostname: "h".into(),
        jail_program: PathBuf::new(),
        git_program: "/usr/bin/git".into(),
    }
}

fn grants() -> Grants {
    Grants {
        read: vec!["/home".into(), "/data".into()],
        hide: vec!["/data/secret".into()],
        env: vec![("A".into(), "b".into())],
        processes: 9,
        open_files: 8,
        network: true,
        accept: vec![Guarantee::Network],
        ..Grants::default()
    }
}

#[test]
fn a_place_below_another_is_mounted_after_it() {
    for workspace in ["/home/u/src/repo", "/data/repo", "/repo"] {
        let plan = agent(&spec(workspace), &grants()).unwrap();
        plan.check().unwrap();
        let binds: Vec<&Raw> = plan.root.iter().filter(|s| matches!(s, Step::Bind { .. })).map(Step::target).collect();
        for (at, later) in binds.iter().enumerate() {
            for earlier in &binds[..at] {
                assert!(!earlier.as_path().starts_with(later.as_path()), "{later} would cover {earlier}");
            }
        }
        let on = Ground::Shown { must_exist: false };
        let masked = plan.root.iter().position(|s| *s == Step::Decoy { target: Raw::from("/data/secret"), on });
        let shown = plan.root.iter().position(|s| s.target() == &Raw::from("/data"));
        assert!(masked > shown, "what hides comes last");
        let own = plan.root.contains(&Step::Mask { target: Raw::from("/home/u/data"), must_exist: false });
        assert!(own, "a grant of /home does not show Airlock's own data");
    }
}

#[test]
fn the_environment_is_composed_and_not_inherited() {
    let plan = agent(&spec("/repo"), &grants()).unwrap();
    let value = |key: &str| plan.env.iter().find(|(k, _)| k.as_bytes() == key.as_bytes()).map(|(_, v)| v.to_string());
    assert_eq!(value("SECRET"), None, "the host's variables are only picked by a policy");
    assert_eq!(value("A").as_deref(), Some("b"));
    assert_eq!(value("PATH").as_deref(), Some("/mine"), "the person's own word for this run counts");
    let mut spec = spec("/repo");
    spec.env.clear();
    let plan = agent(&spec, &grants()).unwrap();
    let path = plan.env.iter().find(|(k, _)| k.as_bytes() == b"PATH").unwrap().1.to_string();
    assert!(path.starts_with("/home/u/agent/bin:") && !path.contains(".ssh"), "the host's PATH, as far as it is shown: {path}");
}

#[test]
fn a_loss_that_is_accepted_is_not_required() {
    let plan = agent(&spec("/repo"), &grants()).unwrap();
    assert!(!plan.require.contains(&Guarantee::Network) && plan.require.contains(&Guarantee::Writes));
}

#[test]
fn what_a_run_could_lift_is_refused() {
    let refused = |change: &dyn Fn(&mut Grants, &mut RunSpec)| {
        let (mut grants, mut spec) = (grants(), spec("/repos/deep/repo"));
        grants.read = vec!["/data".into()];
        grants.hide = vec![];
        change(&mut grants, &mut spec);
        agent(&spec, &grants).err().map(|e| (e.key, e.place))
    };
    let at = |key, place: &str| Some((key, PathBuf::from(place)));
    assert_eq!(refused(&|_, _| ()), None);
    let in_write = |hidden: &'static str, write: &'static [&'static str]| {
        refused(&|g, _| {
            g.hide = vec![hidden.into()];
            g.write = write.iter().map(PathBuf::from).collect();
        })
    };
    assert_eq!(in_write("/w/secret", &["/w"]), None, "its place is a mount, which can't be moved");
    assert_eq!(in_write("/w/a/secret", &["/w"]), at("files.hide", "/w/a/secret"), "/w/a can be moved");
    assert_eq!(in_write("/w/a/secret", &["/w/a", "/w"]), at("files.hide", "/w/a/secret"), "/w/a is a mount, in /w it is not");
    assert_eq!(in_write("/wide/a/secret", &["/w"]), None);
    assert_eq!(refused(&|g, _| g.write = vec!["/data".into()]), None, "of two at one place the first counts");
    assert_eq!(refused(&|g, _| g.write = vec!["/".into()]), at("files.write", "/home/u/data"), "Airlock's own, /data is direct");
    assert_eq!(refused(&|g, _| g.write = vec!["/repos".into()]), at("files.write", "/repos/deep/repo"), "the person's own tree");
    assert_eq!(refused(&|g, _| g.write = vec!["/repos/deep".into()]), None);
    assert_eq!(
        refused(&|g, _| {
            g.write = vec!["/srv".into()];
            g.read = vec!["/srv/a/b".into()];
        }),
        at("files.read", "/srv/a/b"),
        "what is only to be read would be written under another name"
    );
}

#[test]
fn what_a_grant_shows_by_another_name_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let at = |p: &str| dir.path().join(p);
    std::fs::create_dir_all(at("disk/data/keys")).unwrap();
    std::fs::create_dir_all(at("airlock")).unwrap();
    std::os::unix::fs::symlink(at("disk"), at("link")).unwrap();
    std::os::unix::fs::symlink(at("airlock"), at("disk/state")).unwrap();
    let refused = |read: &str, hide: &str| {
        let grants = Grants { read: vec![at(read)], hide: vec![at(hide)], ..grants() };
        agent(&spec("/repo"), &grants).err().map(|e| e.place)
    };
    assert_eq!(refused("disk/data", "disk/data/keys"), None);
    assert_eq!(refused("link/data", "link/data/keys"), None, "both by one name");
    assert_eq!(refused("link/data", "disk/data/keys"), Some(at("disk/data/keys")));
    assert_eq!(refused("disk/data", "link/data/keys"), Some(at("link/data/keys")));
    assert_eq!(refused("disk/data/keys", "link/never"), None, "what leads nowhere is not in sight");
    let mut spec = spec("/repo");
    spec.layout.data = at("disk/state");
    let own = Grants { read: vec![at("airlock")], ..grants() };
    assert_eq!(agent(&spec, &own).err().map(|e| e.place), Some(at("disk/state")), "nor Airlock's own");
}

#[test]
fn a_hide_that_no_jail_on_the_repository_can_keep_is_refused() {
    for workspace in ["/home/u/src/repo", "/data/src/repo"] {
        let hide = |place: PathBuf| {
            agent(&spec(workspace), &Grants { hide: vec![place], read: vec![], ..grants() }).err().map(|e| e.to_string())
        };
        let inside = hide(Path::new(workspace).join("keys/k")).unwrap();
        assert!(inside.contains("history") && inside.contains("keys/k"), "{inside}");
        assert!(hide(workspace.into()).is_some());
    }
    let hide = |place: &str| agent(&spec("/data/src/repo"), &Grants { hide: vec![place.into()], ..grants() }).err();
    assert!(hide("/data/src").unwrap().why.contains("repository"));
    assert!(hide("/home").unwrap().why.contains("home"));
    let beside = agent(&spec("/home/u/src/repo"), &Grants { hide: vec!["/home/u/src".into()], ..grants() });
    assert!(beside.is_ok(), "below the private home nothing of it is but the workspace");
}

/// The decoys of a plan, by path.
fn decoys(workspace: &str, grants: &Grants) -> Vec<(String, Ground)> {
    let plan = agent(&spec(workspace), grants).unwrap();
    plan.check().unwrap();
    let of = |step: &Step| match step {
        Step::Decoy { target, on } => Some((target.to_string(), *on)),
        _ => None,
    };
    plan.root.iter().filter_map(of).collect()
}

#[test]
fn every_hidden_place_is_a_decoy_once() {
    let own = |looks| Some(Ground::Own { looks });
    let hide = ["/home/u/.ssh", "/home/u/secrets", "/home/u/.config/gh/deeper", "/data/secret", "/srv/none"];
    let read = vec!["/data".into()];
    let found = decoys("/home/u/src/repo", &Grants { hide: hide.map(PathBuf::from).to_vec(), read, ..grants() });
    let on = |path: &str| {
        let all: Vec<Ground> = found.iter().filter(|(p, _)| p == path).map(|(_, on)| *on).collect();
        assert!(all.len() <= 1, "{path} is hidden once: {all:?}");
        all.first().copied()
    };
    assert_eq!(on("/home/u/.ssh"), own(Looks::Directory), "named and known");
    assert_eq!(on("/home/u/secrets"), own(Looks::Directory), "named, and not there");
    assert_eq!(on("/home/u/.aws"), own(Looks::Directory), "known without being named");
    assert_eq!(on("/home/u/.git-credentials"), own(Looks::File));
    assert_eq!(on("/home/u/.netrc"), own(Looks::Gone));
    assert_eq!(on("/data/secret"), Some(Ground::Shown { must_exist: false }), "a grant shows it");
    assert_eq!(on("/srv/none"), Some(Ground::Shown { must_exist: false }), "where nothing shows it, nothing is made");
    assert_eq!(on("/home/u/.config/gh/deeper"), None, "it lies in another one");
    let outer = found.iter().map(|(p, _)| Path::new(p));
    for path in outer.clone() {
        assert!(!outer.clone().any(|other| other != path && path.starts_with(other)), "{} is below another", path.display());
    }
}

#[test]
fn no_decoy_covers_what_the_run_is_to_have() {
    let hides = |workspace: &str, hide: &[&str], path: &str| {
        let grants = Grants { hide: hide.iter().map(PathBuf::from).collect(), read: vec![], ..grants() };
        decoys(workspace, &grants).iter().any(|(p, _)| p == path)
    };
    assert!(!hides("/home/u/src/repo", &["/home/u/src"], "/home/u/src"), "the workspace is in it");
    assert!(!hides("/home/u/.password-store", &[], "/home/u/.password-store"), "a repository of passwords can be worked on");
    assert!(!hides("/home/u/.aws/tool", &[], "/home/u/.aws"), "nor is a known place above a workspace");
    assert!(hides("/home/u/.aws/tool", &[], "/home/u/.ssh"));
    // What a policy names counts more than a tool that lies in it; what only the table names counts less.
    assert!(hides("/repo", &["/home/u/agent"], "/home/u/agent"));
    let write = Grants { write: vec!["/w".into()], hide: vec!["/w/key".into()], read: vec![], ..grants() };
    let found = decoys("/repo", &write);
    assert!(found.contains(&("/w/key".to_owned(), Ground::Shown { must_exist: true })), "what a run could move must be there");
}

#[test]
fn a_java_that_the_person_installed_trusts_the_reader_too() {
    let dir = tempfile::tempdir().unwrap();
    let list = "21-tem/lib/security/cacerts";
    let at = dir.path().join("java").join(list);
    std::fs::create_dir_all(at.parent().unwrap()).unwrap();
    std::fs::write(&at, "").unwrap();
    let tools = [bind(Raw::from(dir.path()), Raw::from("/home/u/.sdkman/candidates"), Access::Read)];
    let grants = Grants { authority: Some("none".into()), ..grants() };
    let covered = Trusted::of(&grants).unwrap().java(&tools);
    let Some(Step::Cover { target, contents }) = covered.last() else { unreachable!("{covered:?}") };
    assert_eq!(target, &Raw::from(format!("/home/u/.sdkman/candidates/java/{list}")));
    assert!(contents.as_bytes().starts_with(&[0xfe, 0xed, 0xfe, 0xed, 0, 0, 0, 2]), "a keystore");
    assert_eq!(std::fs::read(&at).unwrap(), b"", "the person's own is as it was");
}
