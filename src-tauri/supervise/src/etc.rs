//! The system of a jail: its directories, and an `/etc` of which every entry is named or written anew.

use jail_plan::{Access, Identity, Raw, Step};
use std::fs::FileType;
use std::path::{Path, PathBuf};

/// Where names are asked; the way out answers there, whichever server a program asks.
const RESOLVER: &str = "198.18.0.1";

/// Entries of `/etc` that hold settings of programs and nothing of the person or the machine. A host entry would go past
/// the check of names, accounts would name the machine's users: `hosts`, `resolv.conf`, `passwd` and `group` are not here.
const SHOWN: [&str; 41] = [
    "alternatives",
    "bash.bashrc",
    "bash_completion.d",
    "bashrc",
    "ca-certificates",
    "ca-certificates.conf",
    "chromium.d",
    "crypto-policies",
    "debian_version",
    "fedora-release",
    "fonts",
    "gai.conf",
    "host.conf",
    "inputrc",
    "java",
    "ld.so.cache",
    "ld.so.conf",
    "ld.so.conf.d",
    "locale.alias",
    "locale.conf",
    "localtime",
    "lsb-release",
    "magic",
    "magic.mime",
    "mime.types",
    "networks",
    "nanorc",
    "os-release",
    "perl",
    "pki/ca-trust",
    "pki/java",
    "pki/tls/certs",
    "pki/tls/openssl.cnf",
    "protocols",
    "python3",
    "services",
    "shells",
    "ssl/certs",
    "ssl/openssl.cnf",
    "terminfo",
    "timezone",
];

/// Read-only system directories.
pub(crate) fn system() -> Vec<Step> {
    let mut steps = vec![read_only("/usr")];
    for name in ["bin", "sbin", "lib", "lib32", "lib64", "libx32", "libo32"] {
        steps.extend(as_on_the_host(&format!("/{name}")));
    }
    // Where a distribution keeps its programs elsewhere.
    for store in ["/nix/store", "/gnu/store", "/run/current-system", "/etc/static"] {
        steps.extend(as_on_the_host(store));
    }
    steps
}

/// `/etc` of a jail whose only account is `agent`.
pub(crate) fn etc(identity: Identity, home: &Raw, hostname: &str) -> Vec<Step> {
    let mut steps = vec![Step::Dir { target: Raw::from("/etc"), mode: 0o755 }];
    for name in SHOWN {
        steps.extend(as_on_the_host(&format!("/etc/{name}")));
    }
    let java = std::fs::read_dir("/etc").into_iter().flatten().flatten().filter_map(|e| e.file_name().into_string().ok());
    let mut java: Vec<String> = java.filter(|n| n.starts_with("java-")).collect();
    java.sort();
    for name in java {
        steps.extend(as_on_the_host(&format!("/etc/{name}")));
    }
    let Identity { uid, gid, .. } = identity;
    let shell = if Path::new("/bin/bash").exists() { "/bin/bash" } else { "/bin/sh" };
    let passwd = [
        b"root:x:0:0:root:/:/bin/false\n".as_slice(),
        format!("agent:x:{uid}:{gid}:agent:").as_bytes(),
        home.as_bytes(),
        format!(":{shell}\nnobody:x:65534:65534:nobody:/:/bin/false\n").as_bytes(),
    ]
    .concat();
    let file = |name: &str, contents: Vec<u8>| Step::File {
        target: Raw::from(format!("/etc/{name}")),
        contents: Raw::from(contents),
        mode: 0o644,
    };
    steps.extend([
        file("passwd", passwd),
        file("group", format!("root:x:0:\nagent:x:{gid}:\nnogroup:x:65534:\n").into_bytes()),
        file("hostname", format!("{hostname}\n").into_bytes()),
        file("hosts", format!("127.0.0.1 localhost {hostname}\n::1 localhost ip6-localhost ip6-loopback\n").into_bytes()),
        file("resolv.conf", format!("nameserver {RESOLVER}\noptions timeout:5 attempts:2\n").into_bytes()),
        file(
            "nsswitch.conf",
            b"passwd: files\ngroup: files\nshadow: files\nhosts: files dns\nnetworks: files\nprotocols: files\nservices: files\n"
                .to_vec(),
        ),
    ]);
    steps
}

/// The kernel's interfaces and scratch space, the same in every jail.
pub(crate) fn machine(uid: u32, devices: &[PathBuf]) -> Vec<Step> {
    let at = Raw::from;
    vec![
        Step::Proc { target: at("/proc") },
        Step::Dev { target: at("/dev"), more: devices.iter().map(|d| Raw::from(d.as_path())).collect() },
        Step::Devpts { target: at("/dev/pts") },
        Step::Bind {
            source: at("/sys/devices/system/cpu"),
            target: at("/sys/devices/system/cpu"),
            access: Access::Read,
            recursive: false,
            idmapped: false,
            optional: true,
        },
        Step::Tmpfs { target: at("/tmp"), mode: 0o1777, size: 4 << 30 },
        Step::Tmpfs { target: at("/var/tmp"), mode: 0o1777, size: 1 << 30 },
        Step::Tmpfs { target: Raw::from(runtime_dir(uid)), mode: 0o700, size: 64 << 20 },
        Step::Symlink { target: at("/var/run"), points_to: at("/run") },
    ]
}

/// The jail's own `XDG_RUNTIME_DIR`.
pub(crate) fn runtime_dir(uid: u32) -> String {
    format!("/run/user/{uid}")
}

fn read_only(path: &str) -> Step {
    Step::Bind {
        source: Raw::from(path),
        target: Raw::from(path),
        access: Access::Read,
        // What is mounted below a system directory is system too.
        recursive: true,
        idmapped: false,
        optional: true,
    }
}

/// A system path as the host has it: the same symlink, or a read-only bind, or nothing.
fn as_on_the_host(path: &str) -> Option<Step> {
    let kind = std::fs::symlink_metadata(path).ok().map(|m| m.file_type());
    if kind.as_ref().is_some_and(FileType::is_symlink) {
        let points_to = std::fs::read_link(path).ok()?;
        return Some(Step::Symlink { target: Raw::from(path), points_to: Raw::from(points_to) });
    }
    kind.map(|_| read_only(path))
}
