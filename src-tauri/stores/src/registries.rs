//! Registries of packages: which ones the person's tools use, by their user-level settings or what their own caches hold.
//!
//! Nothing of a repository counts here but which tools it has a use for, and no host is built in.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};

/// Largest settings file, and bytes that are read of an entry of a cache.
const SETTINGS: u64 = 256 << 10;
const ENTRY: u64 = 4 << 10;
/// Entries of a cache that are looked at.
const ENTRIES: usize = 200;

/// A registry.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Registry {
    /// Name of the host, as it is written.
    pub host: String,
    /// Port.
    pub port: u16,
    /// Where it is known from, for a person.
    pub from: String,
}

/// The kinds of packages that files of these names speak of.
pub fn ecosystems(files: &BTreeSet<String>) -> Vec<&'static str> {
    const LOCKS: [(&str, &[&str]); 5] = [
        ("cargo", &["Cargo.lock"]),
        ("npm", &["package-lock.json", "npm-shrinkwrap.json", "yarn.lock", "pnpm-lock.yaml", "bun.lock", "bun.lockb"]),
        ("pip", &["requirements.txt", "Pipfile.lock", "poetry.lock", "pdm.lock"]),
        ("uv", &["uv.lock"]),
        ("go", &["go.sum"]),
    ];
    LOCKS.into_iter().filter(|(_, locks)| locks.iter().any(|l| files.contains(*l))).map(|(name, _)| name).collect()
}

/// Whether a file of this name says which packages a project uses.
pub fn is_lock(name: &str) -> bool {
    !ecosystems(&BTreeSet::from([name.to_owned()])).is_empty()
}

/// The registries of one ecosystem, by the person's home; none where nobody can tell.
pub fn of(ecosystem: &str, home: &Path) -> Vec<Registry> {
    let found = match ecosystem {
        "npm" => npm(home),
        "cargo" => cargo(home),
        "pip" => pip(home),
        "uv" => uv(home),
        "go" => go(home),
        _ => Vec::new(),
    };
    found.into_iter().collect::<BTreeSet<_>>().into_iter().collect()
}

fn text(path: &Path) -> Option<String> {
    let file = fs::File::open(path).ok()?;
    if !file.metadata().ok()?.is_file() {
        return None;
    }
    let mut text = String::new();
    file.take(SETTINGS).read_to_string(&mut text).ok()?;
    Some(text)
}

/// Host and port of an `https` address; what it holds beside them is left out.
fn registry(url: &str, from: &str) -> Option<Registry> {
    let url = url.trim().trim_matches(['"', '\'']);
    let rest = url.strip_prefix("sparse+").unwrap_or(url).strip_prefix("https://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = authority.rsplit('@').next()?;
    let (host, port) = host.rsplit_once(':').map_or(Some((host, 443)), |(h, p)| Some((h, p.parse().ok()?)))?;
    let good = !host.is_empty() && host.len() < 254 && host.bytes().all(|b| b.is_ascii_alphanumeric() || b"-.".contains(&b));
    good.then(|| Registry { host: host.to_ascii_lowercase(), port, from: from.to_owned() })
}

fn npm(home: &Path) -> Vec<Registry> {
    let mut found = Vec::new();
    let mut own = false;
    for line in text(&home.join(".npmrc")).unwrap_or_default().lines() {
        let Some((key, value)) = line.split_once('=') else { continue };
        let key = key.trim();
        if key == "registry" || key.ends_with(":registry") {
            own |= key == "registry";
            found.extend(registry(value, "your ~/.npmrc"));
        }
    }
    if !own {
        found.extend(cached(&home.join(".npm/_cacache/index-v5"), "make-fetch-happen:request-cache:", "npm's own cache"));
    }
    found
}

fn cargo(home: &Path) -> Vec<Registry> {
    let mut found = Vec::new();
    let settings = [".cargo/config.toml", ".cargo/config"].into_iter().find_map(|name| text(&home.join(name)));
    let settings: toml::Table = settings.and_then(|t| toml::from_str(&t).ok()).unwrap_or_default();
    let of = |table: &toml::Table, key: &str| registry(table.get(key)?.as_str()?, "your ~/.cargo/config.toml");
    let tables = |key: &str| settings.get(key).and_then(toml::Value::as_table).into_iter().flatten();
    for (_, table) in tables("registries") {
        found.extend(table.as_table().and_then(|t| of(t, "index")));
    }
    let sources = tables("source").filter_map(|(name, table)| Some((name, table.as_table()?)));
    let mut replaced = false;
    for (name, table) in sources {
        replaced |= name == "crates-io" && table.contains_key("replace-with");
        found.extend(of(table, "registry"));
    }
    if !replaced {
        // One directory an index, and in it what the index says of where packages lie.
        for entry in fs::read_dir(home.join(".cargo/registry/index")).into_iter().flatten().flatten().take(ENTRIES) {
            let name = entry.file_name().to_string_lossy().into_owned();
            let from = "cargo's own cache";
            found.extend(name.rsplit_once('-').and_then(|(host, _)| registry(&format!("https://{host}/"), from)));
            let config: Option<serde_json::Value> =
                text(&entry.path().join("config.json")).and_then(|t| serde_json::from_str(&t).ok());
            found.extend(config.and_then(|c| registry(c.get("dl")?.as_str()?, from)));
        }
    }
    found
}

fn pip(home: &Path) -> Vec<Registry> {
    let mut found = Vec::new();
    for (path, from) in [(".config/pip/pip.conf", "your ~/.config/pip/pip.conf"), (".pip/pip.conf", "your ~/.pip/pip.conf")] {
        for line in text(&home.join(path)).unwrap_or_default().lines() {
            let Some((key, value)) = line.split_once(['=', ':']) else { continue };
            if ["index-url", "extra-index-url"].contains(&key.trim().replace('_', "-").as_str()) {
                found.extend(value.split_whitespace().filter_map(|url| registry(url, from)));
            }
        }
    }
    found
}

fn uv(home: &Path) -> Vec<Registry> {
    let settings: toml::Table = text(&home.join(".config/uv/uv.toml")).and_then(|t| toml::from_str(&t).ok()).unwrap_or_default();
    let from = "your ~/.config/uv/uv.toml";
    let one = |value: &toml::Value| registry(value.as_str()?, from);
    let mut found: Vec<Registry> = ["index-url", "default-index"].iter().filter_map(|k| one(settings.get(*k)?)).collect();
    let list = |key: &str| settings.get(key).and_then(toml::Value::as_array).into_iter().flatten();
    found.extend(list("extra-index-url").filter_map(one));
    found.extend(list("index").filter_map(|index| one(index.get("url")?)));
    if found.is_empty() { pip(home) } else { found }
}

fn go(home: &Path) -> Vec<Registry> {
    let mut found = Vec::new();
    for line in text(&home.join(".config/go/env")).unwrap_or_default().lines() {
        if let Some((key, value)) = line.split_once('=')
            && ["GOPROXY", "GOSUMDB"].contains(&key.trim())
        {
            let addresses = value.split([',', '|', ' ']);
            found.extend(addresses.filter_map(|url| registry(url, "your go env")));
        }
    }
    found
}

/// The host that most entries of a cache are of: what somebody once fetched from elsewhere is no registry.
fn cached(dir: &Path, before: &str, from: &str) -> Option<Registry> {
    let mut hosts: BTreeMap<Registry, usize> = BTreeMap::new();
    let mut left = ENTRIES;
    let mut open = vec![dir.to_owned()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(&dir).into_iter().flatten().flatten() {
            let Ok(kind) = entry.file_type() else { continue };
            if kind.is_dir() {
                open.push(entry.path());
            } else if kind.is_file() {
                left = left.checked_sub(1)?;
                if let Some(found) = entry_of(&entry.path(), before, from) {
                    *hosts.entry(found).or_default() += 1;
                }
                if left == 0 {
                    open.clear();
                    break;
                }
            }
        }
    }
    hosts.into_iter().max_by_key(|(_, count)| *count).map(|(registry, _)| registry)
}

fn entry_of(path: &PathBuf, before: &str, from: &str) -> Option<Registry> {
    let mut bytes = Vec::new();
    fs::File::open(path).ok()?.take(ENTRY).read_to_end(&mut bytes).ok()?;
    let text = String::from_utf8_lossy(&bytes);
    registry(text.split_once(before)?.1.split('"').next()?, from)
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn home(files: &[(&str, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (path, text) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        dir
    }

    fn hosts(ecosystem: &str, files: &[(&str, &str)]) -> Vec<String> {
        of(ecosystem, home(files).path()).into_iter().map(|r| format!("{}:{} {}", r.host, r.port, r.from)).collect()
    }

    #[test]
    fn a_registry_is_the_persons_own_setting_or_what_their_cache_holds() {
        let npmrc = "registry=https://user:secret@npm.corp.test:8443/repo/\n@own:registry=https://own.test/\n//npm.corp.test/:_authToken=x\n";
        assert_eq!(hosts("npm", &[(".npmrc", npmrc)]), ["npm.corp.test:8443 your ~/.npmrc", "own.test:443 your ~/.npmrc"]);
        let entry =
            |host: &str| format!("abc\t{{\"key\":\"make-fetch-happen:request-cache:https://{host}/left-pad\",\"time\":1}}");
        let (usual, other) = (entry("npm.usual.test"), entry("other.test"));
        let cache = [
            (".npm/_cacache/index-v5/00/01/a", usual.as_str()),
            (".npm/_cacache/index-v5/00/02/b", usual.as_str()),
            (".npm/_cacache/index-v5/00/03/c", other.as_str()),
        ];
        assert_eq!(hosts("npm", &cache), ["npm.usual.test:443 npm's own cache"]);
        let index = [
            (
                ".cargo/registry/index/index.crates.test-1949cf8c6b5b557f/config.json",
                "{\"dl\":\"https://static.crates.test/crates\"}",
            ),
            (".cargo/config.toml", "[registries.own]\nindex = \"sparse+https://own.crates.test/\"\n"),
        ];
        assert_eq!(
            hosts("cargo", &index),
            [
                "index.crates.test:443 cargo's own cache",
                "own.crates.test:443 your ~/.cargo/config.toml",
                "static.crates.test:443 cargo's own cache"
            ]
        );
        let replaced =
            "[source.crates-io]\nreplace-with = \"mirror\"\n[source.mirror]\nregistry = \"sparse+https://mirror.test/\"\n";
        let both = [(".cargo/config.toml", replaced), index[0]];
        assert_eq!(hosts("cargo", &both), ["mirror.test:443 your ~/.cargo/config.toml"]);
        assert_eq!(
            hosts("pip", &[(".config/pip/pip.conf", "[global]\nindex-url = https://u:p@pip.test/simple\n")]),
            ["pip.test:443 your ~/.config/pip/pip.conf"]
        );
        assert_eq!(
            hosts("uv", &[(".config/uv/uv.toml", "[[index]]\nurl = \"https://uv.test/simple\"\n")]),
            ["uv.test:443 your ~/.config/uv/uv.toml"]
        );
        assert_eq!(hosts("go", &[(".config/go/env", "GOPROXY=https://go.test,direct\n")]), ["go.test:443 your go env"]);
        for ecosystem in ["npm", "cargo", "pip", "uv", "go", "maven"] {
            assert!(hosts(ecosystem, &[]).is_empty(), "{ecosystem}: nothing is built in");
        }
    }

    #[test]
    fn what_is_odd_is_no_registry() {
        for odd in ["http://plain.test/", "https://", "https://a b/", "https://x:99999/", "file:///x", "", "https://[::1]/"] {
            assert_eq!(registry(odd, ""), None, "{odd}");
        }
        assert!(hosts("npm", &[(".npmrc", "registry\n=\nregistry=javascript:x\n\0\u{ff}")]).is_empty());
        assert!(hosts("cargo", &[(".cargo/config.toml", "[[["), (".cargo/registry/index/x/config.json", "{")]).is_empty());
    }

    #[test]
    fn a_lock_says_which_packages() {
        let names = |files: &[&str]| ecosystems(&files.iter().map(|f| (*f).to_owned()).collect());
        assert_eq!(names(&["Cargo.lock", "pnpm-lock.yaml", "x"]), ["cargo", "npm"]);
        assert!(names(&["package.json", "Cargo.toml"]).is_empty() && is_lock("go.sum") && !is_lock("go.mod"));
    }
}
