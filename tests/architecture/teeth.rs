//! Each patch of `tests/teeth` still fits the code: one that does not shows nothing, and only the long tier would say so.

use std::io::Write as _;
use std::process::{Command, Stdio};

/// Why a patch does not fit the checkout; nothing where it does.
pub(crate) fn misfit(patch: &str) -> Option<String> {
    let mut git = Command::new("git")
        .args(["apply", "--check", "-"])
        .current_dir(testkit::program::checkout())
        .stdin(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("git starts");
    git.stdin.take().expect("a pipe").write_all(patch.as_bytes()).expect("git reads the patch");
    let ended = git.wait_with_output().expect("git ends");
    (!ended.status.success()).then(|| String::from_utf8_lossy(&ended.stderr).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Tree;

    #[test]
    fn every_tooth_fits_the_code() {
        let tree = Tree::checkout();
        let teeth: Vec<_> = tree.with(&["patch"]).filter(|(path, _)| path.starts_with("tests/teeth/")).collect();
        assert!(!teeth.is_empty(), "there are teeth");
        let loose: Vec<_> = teeth.iter().filter_map(|(path, patch)| Some((*path, misfit(patch)?))).collect();
        assert!(loose.is_empty(), "{loose:#?}");
    }

    #[test]
    fn a_loose_tooth_is_seen() {
        let patch = "# test: x y\n--- a/LICENSE\n+++ b/LICENSE\n@@ -1,1 +1,1 @@\n-no such line\n+another\n";
        assert!(misfit(patch).is_some_and(|why| why.contains("does not apply")));
    }
}
