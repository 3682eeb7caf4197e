//! Settings with secrets in them, of which a task gets what is left.

use model::path::hides;
use std::path::Path;

/// A settings file: what a task finds has its keys, and nothing of its values.
pub(crate) fn mask(bytes: &[u8]) {
    let masked = worktree::tried::masked(bytes);
    for line in masked.split_inclusive(|b| *b == b'\n') {
        let text = std::str::from_utf8(line).ok().and_then(|t| t.strip_suffix('\n')).expect("it is lines of text");
        let (key, value) = text.strip_prefix("export ").unwrap_or(text).split_once('=').expect("of settings");
        let quote = value.chars().next().filter(|c| "'\"`".contains(*c)).map(String::from).unwrap_or_default();
        assert_eq!(value, format!("{quote}placeholder-{key}{quote}"), "whose values are placeholders");
        assert!(!stores::is_secret("", key), "and whose names are none: {key}");
    }
    assert_eq!(worktree::tried::masked(&masked), masked, "what is masked is masked no further");
}

/// Text that may hold a secret.
pub(crate) fn secrets(bytes: &[u8]) {
    if stores::holds_secret(bytes) {
        assert!(stores::holds_secret(&[b"\n", bytes, b"\n"].concat()), "a line more hides no secret");
    }
    if let Some((key, value)) = std::str::from_utf8(bytes).ok().and_then(|text| text.split_once('=')) {
        let longer = format!("{value} https://jo:pw@host.test/");
        assert!(stores::is_secret(key, &longer), "whatever stands before a login: {key:?} = {longer:?}");
        std::hint::black_box(stores::is_secret(key, value));
    }
}

/// A tool's configuration, written anew.
pub(crate) fn toolconf(bytes: &[u8]) {
    const FILES: [&str; 15] = [
        ".npmrc",
        ".yarnrc",
        ".yarnrc.yml",
        ".config/pip/pip.conf",
        ".config/uv/uv.toml",
        ".cargo/config.toml",
        ".config/go/env",
        ".m2/settings.xml",
        ".gradle/gradle.properties",
        ".gemrc",
        ".gitconfig",
        ".config/git/config",
        ".config/git/ignore",
        ".config/git/attributes",
        ".config/pnpm/rc",
    ];
    let Some((which, text)) = bytes.split_first() else { return };
    let Ok(text) = std::str::from_utf8(text) else { return };
    let home = Path::new("/home/jo");
    let file = home.join(FILES[usize::from(*which) % FILES.len()]);
    for (at, anew) in supervise::toolconf::of_home(home, &|path| (path == file).then(|| text.to_owned())) {
        assert!(at.is_relative(), "it lies in the home: {}", at.display());
        assert!(anew.chars().all(|c| matches!(c, '\n' | '\t') || !hides(c)), "nothing in it hides: {anew:?}");
        for after in anew.split("://").skip(1) {
            let authority = after.split(['/', '?', '#', '"', '\'', '<', ' ', '\n']).next().unwrap_or_default();
            assert!(!authority.contains('@'), "no address in it has a login: {anew:?}");
        }
    }
}
