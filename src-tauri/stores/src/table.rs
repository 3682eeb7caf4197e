//! Which caches there are, where tools keep them, and what of each is fit to be shown: content that is named by its hash or
//! version, and the lists that lead to it. Never settings, credentials, or clones of other repositories.

use crate::tree::Wish;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// One cache.
pub(crate) struct Cache {
    /// Name of its directory of generations, and in words.
    pub(crate) name: &'static str,
    /// Files of a repository that say that its tool is used; `*` stands for any run of characters.
    manifests: &'static [&'static str],
    /// Where tools look below the home.
    home: &'static str,
    /// Variables that move it, and where below their value it is then.
    moved: &'static [(&'static str, &'static str)],
    /// What is to become of a file, by its path below.
    pub(crate) wish: fn(&[&str]) -> Wish,
    /// Whether packages lie in it unpacked, where a file may have any name.
    pub(crate) unpacked: bool,
}

const NOT_CONTENT: Wish = Wish::Skip("not content of the cache");
const PYTHON: &[&str] = &["requirements*.txt", "pyproject.toml", "uv.lock", "poetry.lock", "Pipfile.lock", "setup.py"];
const CARGO: &[&str] = &["Cargo.lock", "Cargo.toml"];

/// All of them. `Share` stands where the tool itself never writes to a file again and never links it to where a person works;
/// `Read` where a list is rewritten in place or may name a login.
pub(crate) const CACHES: [Cache; 12] = [
    Cache {
        name: "cargo-index",
        manifests: CARGO,
        home: ".cargo/registry/index",
        moved: &[("CARGO_HOME", "registry/index")],
        // A git clone of an index names its remote, and a list that is fetched over HTTP needs none.
        wish: |path| if path.contains(&".git") { NOT_CONTENT } else { Wish::Read },
        unpacked: false,
    },
    Cache {
        name: "cargo-crates",
        manifests: CARGO,
        home: ".cargo/registry/cache",
        moved: &[("CARGO_HOME", "registry/cache")],
        wish: |path| if ends(path, ".crate") { Wish::Share } else { NOT_CONTENT },
        unpacked: false,
    },
    Cache {
        name: "npm",
        manifests: &["package-lock.json", "npm-shrinkwrap.json"],
        home: ".npm/_cacache",
        moved: &[("npm_config_cache", "_cacache"), ("NPM_CONFIG_CACHE", "_cacache")],
        wish: |path| match path {
            ["content-v2", ..] => Wish::Share,
            ["index-v5", ..] => Wish::Read,
            _ => NOT_CONTENT,
        },
        unpacked: false,
    },
    Cache {
        name: "pnpm",
        manifests: &["pnpm-lock.yaml"],
        home: ".local/share/pnpm/store",
        moved: &[("XDG_DATA_HOME", "pnpm/store")],
        // pnpm links these files into `node_modules`, where a person may edit them.
        wish: |path| match path {
            [_, "files", ..] => Wish::Own,
            [_, "index", ..] => Wish::Read,
            _ => NOT_CONTENT,
        },
        unpacked: false,
    },
    Cache {
        name: "yarn",
        manifests: &["yarn.lock"],
        home: ".cache/yarn",
        moved: &[("YARN_CACHE_FOLDER", ""), ("XDG_CACHE_HOME", "yarn")],
        wish: |path| match path {
            [_, ".tmp", ..] | [_] => NOT_CONTENT,
            _ if ends(path, ".yarn-metadata.json") => Wish::Read,
            _ => Wish::Share,
        },
        unpacked: true,
    },
    Cache {
        name: "yarn-berry",
        manifests: &["yarn.lock"],
        home: ".yarn/berry/cache",
        moved: &[("YARN_GLOBAL_FOLDER", "cache")],
        wish: |path| if ends(path, ".zip") { Wish::Share } else { NOT_CONTENT },
        unpacked: false,
    },
    Cache {
        name: "go",
        manifests: &["go.mod", "go.sum"],
        home: "go/pkg/mod/cache/download",
        moved: &[("GOMODCACHE", "cache/download"), ("GOPATH", "pkg/mod/cache/download")],
        wish: |path| match path {
            [.., "@v", name] if name.ends_with(".lock") => NOT_CONTENT,
            [.., "@v", "list"] | ["sumdb", ..] => Wish::Read,
            [.., "@v", _] => Wish::Share,
            _ => NOT_CONTENT,
        },
        unpacked: false,
    },
    Cache {
        name: "pip",
        manifests: PYTHON,
        home: ".cache/pip",
        moved: &[("PIP_CACHE_DIR", ""), ("XDG_CACHE_HOME", "pip")],
        // The answer's head is kept beside its body, with the request's credentials where the server says that they matter.
        wish: |path| match path {
            ["http-v2", ..] if ends(path, ".body") => Wish::Share,
            ["wheels", ..] if ends(path, ".whl") => Wish::Share,
            ["http-v2" | "wheels", ..] => Wish::Read,
            _ => NOT_CONTENT,
        },
        unpacked: false,
    },
    Cache {
        name: "uv",
        manifests: PYTHON,
        home: ".cache/uv",
        moved: &[("UV_CACHE_DIR", ""), ("XDG_CACHE_HOME", "uv")],
        // uv links these files into `.venv`, where a person may edit them.
        wish: |path| match path {
            [first, ..] if first.starts_with("archive-v") => Wish::Own,
            [first, ..] if ["wheels-v", "simple-v", "flat-index-v"].iter().any(|p| first.starts_with(p)) => Wish::Read,
            ["CACHEDIR.TAG" | ".gitignore"] => Wish::Own,
            _ => NOT_CONTENT,
        },
        unpacked: true,
    },
    Cache {
        name: "maven",
        manifests: &["pom.xml"],
        home: ".m2/repository",
        moved: &[],
        wish: |path| match path {
            [.., name] if name.starts_with("maven-metadata") || name.starts_with('_') || name.ends_with(".properties") => {
                Wish::Read
            }
            [.., name] if name.ends_with(".lastUpdated") || name.ends_with(".part") || name.ends_with(".lock") => NOT_CONTENT,
            // A version that is published again and again under one name.
            _ if path.iter().any(|p| p.ends_with("-SNAPSHOT")) => Wish::Own,
            _ => Wish::Share,
        },
        unpacked: false,
    },
    Cache {
        name: "gradle",
        manifests: &["build.gradle", "build.gradle.kts", "settings.gradle", "settings.gradle.kts"],
        home: ".gradle/caches/modules-2",
        moved: &[("GRADLE_USER_HOME", "caches/modules-2")],
        wish: |path| match path {
            ["files-2.1", ..] => Wish::Share,
            [first, ..] if first.starts_with("metadata-2") => Wish::Read,
            _ => NOT_CONTENT,
        },
        unpacked: false,
    },
    Cache {
        name: "bun",
        manifests: &["bun.lock", "bun.lockb"],
        home: ".bun/install/cache",
        moved: &[("BUN_INSTALL", "install/cache")],
        // bun links these files into `node_modules`, where a person may edit them.
        wish: |path| match path {
            [name] if name.ends_with(".npm") => Wish::Read,
            [_] => NOT_CONTENT,
            _ => Wish::Own,
        },
        unpacked: true,
    },
];

/// Names of files that hold credentials wherever they lie.
const CREDENTIALS: [&str; 9] = [
    "credentials",
    "credentials.toml",
    ".npmrc",
    ".netrc",
    ".pypirc",
    "auth.json",
    "settings.xml",
    "settings-security.xml",
    "gradle.properties",
];

/// Whether a file's name says that it is no cache's.
pub(crate) fn is_credential(name: &str) -> bool {
    CREDENTIALS.contains(&name)
}

/// A cache of the person's that a task's repository has a use for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Live {
    /// Its name.
    pub name: &'static str,
    /// Where the person's tools keep it.
    pub source: PathBuf,
    /// Where tools in a jail look for it.
    pub target: PathBuf,
}

/// The caches that are there and whose tool a repository uses, by the names of its files.
pub fn live(home: &Path, env: &[(OsString, OsString)], files: &BTreeSet<String>) -> Vec<Live> {
    let var = |name: &str| env.iter().find(|(k, _)| k == name).map(|(_, v)| PathBuf::from(v)).filter(|p| p.is_absolute());
    let used = |cache: &&Cache| cache.manifests.iter().any(|m| files.iter().any(|f| is_called(f, m)));
    let found = CACHES.iter().filter(used).filter_map(|cache| {
        let moved = cache.moved.iter().find_map(|(name, below)| Some(var(name)?.join(below)));
        let target = home.join(cache.home);
        let source = moved.unwrap_or_else(|| target.clone());
        crate::open_dir(&source).is_ok().then_some(Live { name: cache.name, source, target })
    });
    found.collect()
}

pub(crate) fn cache(name: &str) -> Option<&'static Cache> {
    CACHES.iter().find(|c| c.name == name)
}

fn is_called(name: &str, pattern: &str) -> bool {
    match pattern.split_once('*') {
        None => name == pattern,
        Some((start, end)) => name.len() >= start.len() + end.len() && name.starts_with(start) && name.ends_with(end),
    }
}

/// Whether a file of this name is a manifest of some cache's.
pub fn is_manifest(name: &str) -> bool {
    CACHES.iter().flat_map(|c| c.manifests).any(|m| is_called(name, m))
}

fn ends(path: &[&str], end: &str) -> bool {
    path.last().is_some_and(|name| name.ends_with(end))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn p2_settings_credentials_and_clones_are_in_no_cache() {
        let wish = |name: &str, path: &str| (cache(name).unwrap().wish)(&path.split('/').collect::<Vec<_>>());
        for (name, path) in [
            ("cargo-index", "git.test-1/.git/FETCH_HEAD"),
            ("cargo-crates", "reg/credentials"),
            ("npm", "tmp/x"),
            ("pnpm", "v10/projects/x"),
            ("pip", "selfcheck.json"),
            ("uv", "git-v0/db/x/config"),
            ("uv", "interpreter-v4/x"),
            ("go", "cache/vcs/x/config"),
            ("yarn", "v6/.tmp/x"),
            ("gradle", "modules-2.lock"),
        ] {
            assert!(matches!(wish(name, path), Wish::Skip(_)), "{name}: {path}");
        }
        for cache in &CACHES {
            let own = cache.home.split('/').next().unwrap();
            assert!(cache.home != own && !["", ".ssh"].contains(&own), "{}: never a dot-directory whole", cache.name);
        }
    }

    #[test]
    fn what_a_tool_links_to_where_a_person_works_is_never_shared() {
        let wish = |name: &str, path: &str| (cache(name).unwrap().wish)(&path.split('/').collect::<Vec<_>>());
        for (name, path) in [
            ("pnpm", "v10/files/aa/bb"),
            ("uv", "archive-v0/x/y.py"),
            ("bun", "a@1.0.0/index.js"),
            ("maven", "a/b/1-SNAPSHOT/b.jar"),
        ] {
            assert_eq!(wish(name, path), Wish::Own, "{name}: {path}");
        }
        for (name, path) in
            [("cargo-index", "i/.cache/a/b"), ("npm", "index-v5/aa/bb/x"), ("maven", "a/maven-metadata-central.xml")]
        {
            assert_eq!(wish(name, path), Wish::Read, "{name}: {path} is rewritten in place");
        }
        assert_eq!(wish("npm", "content-v2/sha512/aa/bb/c"), Wish::Share);
    }

    #[test]
    fn a_repository_says_which_caches_it_uses() {
        let home = tempfile::tempdir().unwrap();
        for dir in [".cargo/registry/cache", ".npm/_cacache", ".cache/pip", "elsewhere/_cacache"] {
            std::fs::create_dir_all(home.path().join(dir)).unwrap();
        }
        let names = |files: &[&str], env: &[(OsString, OsString)]| {
            let files = files.iter().map(|f| (*f).to_owned()).collect();
            live(home.path(), env, &files)
        };
        let found = names(&["Cargo.lock", "src"], &[]);
        assert_eq!(found.iter().map(|l| l.name).collect::<Vec<_>>(), ["cargo-crates"], "what is not there is not named");
        assert_eq!(names(&["requirements-dev.txt"], &[])[0].name, "pip");
        assert_eq!(names(&["README"], &[]), []);
        let moved = home.path().join("elsewhere");
        let found = names(&["package-lock.json"], &[("npm_config_cache".into(), moved.clone().into())]);
        assert_eq!((&found[0].source, &found[0].target), (&moved.join("_cacache"), &home.path().join(".npm/_cacache")));
        assert!(is_manifest("requirements.txt") && !is_manifest("requirements.in"));
    }
}
