//! What the built programs are linked with: only the window may need a web view.

use std::process::Command;

/// Libraries of a web view or toolkit in the words of `ldd`.
pub(crate) fn toolkits(words: &str) -> Vec<String> {
    let names = ["webkit", "gtk", "javascriptcore", "soup", "libX11", "wayland"];
    words.lines().filter(|line| names.iter().any(|n| line.contains(n))).map(|line| line.trim().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_without_a_window_link_no_toolkit() {
        for name in ["airlock", "airlock-warden", "airlock-jail"] {
            let path = testkit::program::profile_dir().join(name);
            if !path.is_file() {
                testkit::not_tested_here("what the programs are linked with, since they are not built");
                continue;
            }
            let asked = Command::new("ldd").arg(&path).output().unwrap();
            let words = String::from_utf8_lossy(&asked.stdout);
            assert!(words.contains("libc.so"), "ldd understands {}: {words}", path.display());
            assert_eq!(toolkits(&words), Vec::<String>::new(), "{name} runs where no desktop is installed");
        }
    }

    #[test]
    fn a_toolkit_is_seen() {
        assert_eq!(toolkits("\tlibc.so.6 => /lib/libc.so.6\n\tlibwebkit2gtk-4.1.so.0 => /usr/lib/x\n").len(), 1);
    }
}
