//! Host paths as a policy writes them, and the places that no policy may touch.

use model::decision::Decision;
use model::layout::Layout;
use std::fmt;
use std::path::{Path, PathBuf};

/// Where the programs of a home keep credentials.
const CREDENTIALS: [&[&str]; 30] = [
    &[".ssh"],
    &[".gnupg"],
    &[".aws"],
    &[".azure"],
    &[".kube"],
    &[".docker"],
    &[".netrc"],
    &[".git-credentials"],
    &[".config", "git", "credentials"],
    &[".config", "gh"],
    &[".config", "glab-cli"],
    &[".config", "gcloud"],
    &[".config", "op"],
    &[".config", "rclone"],
    &[".config", "containers", "auth.json"],
    &[".config", "google-chrome"],
    &[".config", "chromium"],
    &[".config", "BraveSoftware"],
    &[".mozilla"],
    &[".thunderbird"],
    &[".password-store"],
    &[".local", "share", "keyrings"],
    &[".npmrc"],
    &[".pypirc"],
    &[".vault-token"],
    &[".pgpass"],
    &[".cargo", "credentials.toml"],
    &[".claude", ".credentials.json"],
    &[".codex", "auth.json"],
    &[".terraform.d"],
];

/// Whether a path below a home is, holds or lies in a place where programs keep credentials.
pub fn holds_credentials(below_home: &Path) -> bool {
    let parts: Vec<&str> = below_home.components().filter_map(|c| c.as_os_str().to_str()).collect();
    CREDENTIALS.iter().any(|c| parts.starts_with(c) || c.starts_with(&parts))
}

/// A path of the host: absolute, or under the person's home (`~/…`); no `.`, `..`, empty component, glob or character that hides.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostPath {
    home: bool,
    parts: Vec<String>,
}

impl HostPath {
    /// Reads `/a/b` or `~/a/b`.
    ///
    /// # Errors
    /// Why it can't be, in words.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        if text.chars().any(model::path::hides) {
            return Err("it holds a control or hiding character");
        }
        if text.contains(['*', '?', '[']) {
            return Err("globs are not read here; name one path");
        }
        if text.len() > 4_000 {
            return Err("it is longer than 4,000 bytes");
        }
        let (home, rest) = match (text.strip_prefix('~'), text.strip_prefix('/')) {
            (Some(""), _) => (true, ""),
            (Some(rest), _) => (true, rest.strip_prefix('/').ok_or("`~` stands for your own home only, as in `~/projects`")?),
            (None, Some(rest)) => (false, rest),
            (None, None) => return Err("it must begin with `/` or `~/`"),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        let parts: Vec<String> = if rest.is_empty() { Vec::new() } else { rest.split('/').map(str::to_owned).collect() };
        if parts.iter().any(|p| p.is_empty() || p == "." || p == "..") {
            return Err("it holds an empty component, `.` or `..`");
        }
        Ok(Self { home, parts })
    }

    /// The path for a person whose home is `home`.
    pub fn under(&self, home: &Path) -> PathBuf {
        let start = if self.home { home.to_owned() } else { PathBuf::from("/") };
        self.parts.iter().fold(start, |path, part| path.join(part))
    }

    /// Whether this is `other` or lies inside it.
    pub(crate) fn within(&self, other: &Self) -> bool {
        self.home == other.home && self.parts.starts_with(&other.parts)
    }

    /// Components after the home, whoever's home it is; [`None`] outside any home.
    fn in_home(&self) -> Option<Vec<&str>> {
        let parts: Vec<&str> = self.parts.iter().map(String::as_str).collect();
        if self.home {
            return Some(parts);
        }
        match parts.as_slice() {
            ["home", _, rest @ ..] | ["var", "home", _, rest @ ..] | ["root", rest @ ..] => Some(rest.to_vec()),
            _ => None,
        }
    }

    /// Why neither reading nor writing may be allowed here.
    pub(crate) fn closed(&self) -> Option<&'static str> {
        const STATE: &str = "Airlock's own state lies there";
        match self.in_home().as_deref() {
            Some([] | [".local"] | [".local", "share"] | [".config"]) => {
                return Some("a whole home or settings directory holds Airlock's own state");
            }
            Some([".local", "share", "airlock", ..] | [".config", "airlock", ..]) => return Some(STATE),
            Some(inside) if CREDENTIALS.iter().any(|c| inside.starts_with(c) || c.starts_with(inside)) => {
                return Some("credentials lie there, and no policy hands one in");
            }
            _ => {}
        }
        match self.parts.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            _ if self.home => None,
            [] | ["home"] | ["var"] | ["var", "home"] => Some("it holds whole homes and with them Airlock's own state"),
            ["run", ..] | ["var", "run", ..] => Some("sockets of the machine's services lie there"),
            ["proc" | "sys" | "dev", ..] => Some("the jail makes its own; devices go into `files.devices`"),
            ["tmp", ..] => Some("the jail has its own /tmp"),
            _ => None,
        }
    }

    /// Why the place can't be hidden: it is the jail's own, or nothing runs without it.
    pub(crate) fn system(&self) -> Option<&'static str> {
        if self.home {
            return None;
        }
        match self.parts.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
            ["proc" | "sys" | "dev" | "run", ..] | ["tmp"] | ["var", "tmp"] => {
                Some("the jail has its own there, and nothing of the machine's is in it")
            }
            ["usr" | "etc" | "nix" | "gnu"] | ["nix" | "gnu", "store"] => {
                Some("the system lies there, and no program runs without it")
            }
            ["bin" | "sbin" | "lib" | "lib32" | "lib64" | "libx32" | "libo32", ..]
            | ["usr", "bin" | "sbin" | "lib" | "lib32" | "lib64" | "libx32" | "libexec", ..] => {
                Some("the system's programs and libraries lie there, which are no secret")
            }
            ["home"] | ["var"] | ["var", "home"] => Some("homes lie there, and the jail has its own; name places inside"),
            _ => None,
        }
    }

    /// Whether a jail that may write `place` could move this out of the way: it lies in it, but not directly.
    pub(crate) fn movable_in(&self, place: &Self) -> bool {
        self.within(place) && self.parts.len() > place.parts.len() + 1
    }

    /// Why writing may not be allowed here, beyond [`HostPath::closed`]: something outside any jail runs what lies there.
    pub(crate) fn executes(&self) -> Option<&'static str> {
        if let Some(inside) = self.in_home() {
            return match inside.as_slice() {
                [first, ..] if first.starts_with('.') => {
                    Some("start-up files, settings and programs of your home lie behind a dot, and they run outside the jail")
                }
                ["bin" | "snap" | "Applications" | "Desktop" | "Templates", ..] | ["go", "bin", ..] | ["go"] => {
                    Some("programs and launchers there run outside the jail")
                }
                _ => None,
            };
        }
        match self.parts.first().map(String::as_str) {
            Some(
                "etc" | "usr" | "bin" | "sbin" | "lib" | "lib32" | "lib64" | "libx32" | "opt" | "boot" | "nix" | "gnu" | "snap"
                | "root" | "home" | "efi",
            ) => Some("the system and its programs lie there, and they run outside the jail"),
            Some("var") if self.parts.get(1).is_none_or(|p| ["lib", "spool", "cache", "snap", "log"].contains(&p.as_str())) => {
                Some("services of the machine run what lies there")
            }
            _ => None,
        }
    }

    /// Why this can't be handed in as a device: only such are that compute, show, record, or lead to a board on the desk.
    pub(crate) fn device(&self) -> Option<&'static str> {
        const WHOLE: [&str; 6] = ["dri", "accel", "kfd", "kvm", "snd", "dma_heap"];
        const NUMBERED: [&str; 6] = ["nvidia", "mali", "video", "media", "ttyUSB", "ttyACM"];
        let parts: Vec<&str> = self.parts.iter().map(String::as_str).collect();
        match parts.as_slice() {
            ["dev", name, ..] if !self.home => {
                let known = WHOLE.contains(name) || NUMBERED.iter().any(|n| name.starts_with(n));
                (!known).then_some(
                    "the kinds known here are /dev/dri, accel, kfd, nvidia*, mali*, kvm, dma_heap, video*, media*, snd, ttyUSB* and \
                     ttyACM*; others reach the machine's memory, disks, terminals, keys or input",
                )
            }
            ["dev"] if !self.home => Some("those are all devices of the machine; name one"),
            _ => Some("it is no device: devices lie in /dev"),
        }
    }

    /// Whether this and `path` are the same or one lies inside the other, for a person whose home is `home`.
    pub(crate) fn touches(&self, path: &Path, home: &Path) -> bool {
        let own = self.under(home);
        own.starts_with(path) || path.starts_with(&own)
    }
}

impl fmt::Display for HostPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let start = if self.home { "~" } else { "" };
        if self.parts.is_empty() {
            return f.write_str(if self.home { "~" } else { "/" });
        }
        write!(f, "{start}/{}", self.parts.join("/"))
    }
}

impl crate::Policy {
    /// Paths of `files.read`, `files.write` and, where it asks, `files.hide` that touch where Airlock really keeps its state,
    /// which only the caller knows, or that name the home in full and are closed there. Not empty: nothing may start.
    pub fn conflicts(&self, layout: &Layout, home: &Path) -> Vec<String> {
        let state = [&layout.data, &layout.config, &layout.runtime];
        let mut out = Vec::new();
        let asked = self.files.hide.iter().filter(|h| h.on_touch == Decision::Ask).map(|h| ("hide", &h.path));
        let shown = self.files.read.iter().map(|p| ("read", p)).chain(self.files.write.iter().map(|p| ("write", p)));
        for (key, place) in shown.chain(asked) {
            if let Some(s) = state.iter().find(|s| place.touches(s, home)) {
                let cure = if key == "hide" { "say `on_touch = \"deny\"`" } else { "take it out of the policy" };
                out.push(format!("files.{key}: {place} touches Airlock's own state in {}; {cure}", s.display()));
                continue;
            }
            let Ok(rest) = place.under(home).strip_prefix(home).map(Path::to_owned) else {
                if home.starts_with(place.under(home)) {
                    out.push(format!("files.{key}: {place} holds your whole home; name what is needed"));
                }
                continue;
            };
            if key == "hide" {
                continue;
            }
            let as_home = HostPath { home: true, parts: rest.iter().map(|p| p.to_string_lossy().into_owned()).collect() };
            let why = as_home.closed().or_else(|| if key == "write" { as_home.executes() } else { None });
            out.extend(why.map(|why| format!("files.{key}: {place}: {why}")));
        }
        out
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn p(text: &str) -> HostPath {
        HostPath::parse(text).unwrap()
    }

    #[test]
    fn a_path_is_written_in_one_way_only() {
        for bad in ["", "a", "./a", "~bob/x", "/a/../b", "/a//b", "/a/.", "~/..", "/a*", "~/a\u{202e}b", "/a\nb"] {
            assert!(HostPath::parse(bad).is_err(), "{bad:?}");
        }
        assert_eq!((p("~/a/b/").to_string(), p("/").to_string(), p("~").to_string()), ("~/a/b".into(), "/".into(), "~".into()));
        assert_eq!(p("~/a").under(Path::new("/home/x")), Path::new("/home/x/a"));
    }

    #[test]
    fn nothing_may_be_written_where_something_outside_runs_it() {
        for bad in [
            "~/.bashrc",
            "~/.config/autostart",
            "~/.local/bin",
            "~/.ssh",
            "~/bin",
            "~/go/bin",
            "~/go",
            "/etc",
            "/etc/cron.d",
            "/usr/local/bin",
            "/home/bob/.profile",
            "/root/.bashrc",
            "/var",
            "/var/spool/cron",
            "/opt/x",
            "~/.git-templates",
            "/home/bob/bin/x",
        ] {
            assert!(p(bad).executes().is_some() || p(bad).closed().is_some(), "{bad}");
        }
        for good in ["~/projects/shared", "/srv/data", "/mnt/disk/x", "/home/bob/data"] {
            assert_eq!((p(good).executes(), p(good).closed()), (None, None), "{good}");
        }
    }

    #[test]
    fn no_credential_is_handed_in() {
        for bad in
            ["~/.ssh", "~/.ssh/id_ed25519", "~/.cargo", "/home/bob/.aws/credentials", "~/.config/gh", "~/.claude", "~/.netrc"]
        {
            assert!(p(bad).closed().is_some(), "{bad}");
        }
        assert_eq!((p("~/.cargo/bin").closed(), p("~/.claude/local").closed()), (None, None));
    }

    #[test]
    fn p6_only_devices_that_reach_nothing_else_are_handed_in() {
        for good in ["/dev/dri", "/dev/dri/renderD128", "/dev/nvidia0", "/dev/nvidia-uvm", "/dev/kfd", "/dev/kvm", "/dev/video2"]
        {
            assert_eq!(p(good).device(), None, "{good}");
        }
        for bad in [
            "/dev",
            "/dev/mem",
            "/dev/kmsg",
            "/dev/sda",
            "/dev/nvme0",
            "/dev/sg0",
            "/dev/input/event3",
            "/dev/uinput",
            "/dev/hidraw0",
            "/dev/tty1",
            "/dev/ttyS0",
            "/dev/pts",
            "/dev/ptmx",
            "/dev/tpm0",
            "/dev/fuse",
            "/dev/net/tun",
            "/dev/shm",
            "/dev/bus/usb",
            "~/dev/dri",
            "/srv/dev/dri",
            "/",
        ] {
            assert!(p(bad).device().is_some(), "{bad}");
        }
    }

    #[test]
    fn airlocks_own_state_can_be_neither_read_nor_written() {
        for bad in [
            "/",
            "~",
            "/home",
            "/home/bob",
            "~/.config",
            "~/.local/share/airlock/tasks",
            "~/.config/airlock",
            "/run/user/1000/airlock",
            "/root",
        ] {
            assert!(p(bad).closed().is_some(), "{bad}");
        }
        assert_eq!(p("~/.config/nvim").closed(), None);
    }
}
