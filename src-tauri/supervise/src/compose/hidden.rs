//! Which places are hidden, and how: a decoy each, over nothing or over what something shows.

use super::Grants;
use jail_plan::{Ground, Looks, Raw, Step};
use model::run::RunSpec;
use std::path::{Path, PathBuf};

/// Where credentials are known to lie in a home, and what lies there. A place belongs here when what it holds opens
/// something elsewhere (keys, tokens, cookies, passwords), attackers read it by its name, and no tool needs it to be
/// writable for daily work inside: `~/.npmrc` or `~/.config/pip` are configuration too, and `~/.cargo` holds caches.
const TABLE: &[(&str, Looks)] = &[
    (".ssh", Looks::Directory),
    (".gnupg", Looks::Directory),
    (".aws", Looks::Directory),
    (".azure", Looks::Directory),
    (".kube", Looks::Directory),
    (".docker", Looks::Directory),
    (".password-store", Looks::Directory),
    (".local/share/keyrings", Looks::Directory),
    (".config/gcloud", Looks::Directory),
    (".config/gh", Looks::Directory),
    (".config/glab-cli", Looks::Directory),
    (".config/op", Looks::Directory),
    (".config/rclone", Looks::Directory),
    (".config/google-chrome", Looks::Directory),
    (".config/chromium", Looks::Directory),
    (".config/BraveSoftware", Looks::Directory),
    (".mozilla", Looks::Directory),
    (".thunderbird", Looks::Directory),
    // Looked for by curl, git, pip and go at each download; go ends where it is there and can't be read.
    (".netrc", Looks::Gone),
    (".git-credentials", Looks::File),
    (".pypirc", Looks::File),
    (".vault-token", Looks::File),
    (".pgpass", Looks::File),
];

/// The steps that hide, after everything is shown. Each place that is left out lies in another one, or holds what the run
/// is to have.
pub(super) fn steps(spec: &RunSpec, grants: &Grants, shown: &[Step]) -> Vec<Step> {
    let known = |path: &Path| {
        let inside = path.strip_prefix(&spec.home).ok()?;
        TABLE.iter().find(|(known, _)| inside == Path::new(known)).map(|(_, looks)| *looks)
    };
    let mut hidden: Vec<(PathBuf, Ground)> = Vec::new();
    for path in &grants.hide {
        // Nothing of the home is in sight but the workspace.
        if spec.workspace.starts_with(path) {
            continue;
        }
        let on = if own(path, spec, shown) {
            Ground::Own { looks: known(path).unwrap_or_else(|| as_outside(path)) }
        } else {
            Ground::Shown { must_exist: grants.write.iter().any(|w| path.starts_with(w)) }
        };
        hidden.push((path.clone(), on));
    }
    for (name, looks) in TABLE {
        let path = spec.home.join(name);
        // What something else of the run's needs is no place that nobody needs.
        let needed = shown.iter().any(|step| step.target().as_path().starts_with(&path));
        if !needed && own(&path, spec, shown) {
            hidden.push((path, Ground::Own { looks: *looks }));
        }
    }
    let mut steps: Vec<Step> = Vec::new();
    for (path, on) in &hidden {
        let inner = hidden.iter().any(|(other, _)| other != path && path.starts_with(other));
        let target = Raw::from(path.as_path());
        if !inner && !steps.iter().any(|step| *step.target() == target) {
            steps.push(Step::Decoy { target, on: *on });
        }
    }
    steps.extend(airlocks_own(spec, grants));
    steps
}

/// Whether a place lies in the private home itself, and not in what something shows there.
fn own(path: &Path, spec: &RunSpec, shown: &[Step]) -> bool {
    let binds =
        shown.iter().filter(|step| matches!(step, Step::Bind { .. } | Step::Overlay { .. })).map(|step| step.target().as_path());
    let around = binds.filter(|target| path.starts_with(target)).max_by_key(|target| target.components().count());
    around == Some(spec.home.as_path())
}

/// What a place is in the person's home, for one that the table does not know.
fn as_outside(path: &Path) -> Looks {
    if path.is_file() { Looks::File } else { Looks::Directory }
}

/// Whatever a grant says, Airlock's own data are in no jail.
fn airlocks_own<'a>(spec: &'a RunSpec, grants: &'a Grants) -> impl Iterator<Item = Step> + 'a {
    let granted = |path: &Path| grants.read.iter().chain(&grants.write).chain(&spec.tools).any(|g| path.starts_with(g));
    let own = [&spec.layout.data, &spec.layout.config, &spec.layout.runtime];
    let visible = own.into_iter().filter(move |path| granted(path) || !path.starts_with(&spec.home));
    visible.map(|p| Step::Mask { target: Raw::from(p.as_path()), must_exist: grants.write.iter().any(|w| p.starts_with(w)) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn p2_what_is_known_to_hold_credentials_is_handed_in_by_no_policy() {
        let open: Vec<&str> =
            TABLE.iter().map(|(place, _)| *place).filter(|p| !policy::holds_credentials(Path::new(p))).collect();
        assert_eq!(open, [] as [&str; 0]);
    }
}
