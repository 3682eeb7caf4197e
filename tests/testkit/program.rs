//! Where the programs under test are: next to the running test.

use std::path::PathBuf;

/// Path of one of Airlock's programs (`airlock`, `airlock-warden`, `airlock-jail`, `airlock-window`), as built beside the
/// running test. Ends the test with the command that builds it where it is missing.
pub fn program(name: &str) -> PathBuf {
    let path = profile_dir().join(name);
    assert!(
        path.is_file(),
        "{} is missing: build it with `cargo build -p {} --bin {name}` (the same target directory and profile as this test)",
        path.display(),
        name.strip_prefix("airlock-").map_or("cli", |n| if n == "window" { "app" } else { n }),
    );
    path
}

/// Cargo's directory of the running test's profile, e.g. `target/debug`.
pub fn profile_dir() -> PathBuf {
    let test = std::env::current_exe().expect("the running test has a path");
    let dir = test.parent().expect("a program is in a directory");
    let dir = if dir.ends_with("deps") { dir.parent().expect("`deps` is in the profile's directory") } else { dir };
    dir.to_owned()
}

/// Where tests leave what a person may want to look at (`shots`, `transcripts`, `bench`): `target/NAME`.
pub fn kept_dir(name: &str) -> PathBuf {
    let dir = profile_dir().parent().expect("the profile's directory is in target").join(name);
    std::fs::create_dir_all(&dir).unwrap_or_else(|e| panic!("{} can't be made: {e}", dir.display()));
    dir
}

/// The checkout under test.
pub fn checkout() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).parent().expect("tests is in the checkout").to_owned()
}
