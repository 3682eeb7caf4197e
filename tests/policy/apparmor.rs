//! The profile that a package ships: it compiles, names one path, and its two forms say the same.

use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::not_tested_here;

fn form(name: &str) -> (PathBuf, String) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../policies/apparmor").join(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    (path, text)
}

/// The lines that a parser reads.
fn rules(text: &str) -> Vec<&str> {
    text.lines().map(str::trim).filter(|l| !l.is_empty() && !l.starts_with('#')).collect()
}

fn compile(path: &Path) -> Result<(), String> {
    let parser = ["/usr/sbin/apparmor_parser", "/sbin/apparmor_parser"].into_iter().find(|p| Path::new(p).exists());
    let parser = parser.ok_or("there is no apparmor_parser: install the package apparmor")?;
    // Neither loaded into a kernel nor kept in a cache.
    let output = Command::new(parser).args(["--skip-kernel-load", "--skip-cache"]).arg(path).output().unwrap();
    if output.status.success() { Ok(()) } else { Err(String::from_utf8_lossy(&output.stderr).into_owned()) }
}

#[test]
fn the_profile_compiles_in_the_form_of_this_parser() {
    assert_eq!(compile(&form("airlock-jail.before-4").0), Ok(()), "parsers of any version read it");
    if !Path::new("/etc/apparmor.d/abi/4.0").exists() {
        return not_tested_here("an AppArmor parser of version 4");
    }
    assert_eq!(compile(&form("airlock-jail").0), Ok(()), "this parser knows user namespaces");
}

#[test]
fn p6_the_profile_names_the_installed_program_and_gives_it_user_namespaces_alone() {
    let (_, now) = form("airlock-jail");
    let expected = [
        "abi <abi/4.0>,",
        "include <tunables/global>",
        &format!("profile airlock-jail {} flags=(unconfined) {{", jail_plan::INSTALLED),
        "userns,",
        "include if exists <local/airlock-jail>",
        "}",
    ];
    assert_eq!(rules(&now), expected, "no other path, no glob, no further right");
    let (_, before) = form("airlock-jail.before-4");
    let without: Vec<&str> = expected.into_iter().filter(|l| *l != "userns,").collect();
    let as_now: Vec<String> = rules(&before).iter().map(|l| l.replace("abi/3.0", "abi/4.0")).collect();
    assert_eq!(as_now, without, "the older form differs in the one rule that its parsers don't know");
}
