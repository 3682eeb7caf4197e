//! `gradle.properties`; scripts that Gradle would run at its start are never handed on.

use super::ini;
use super::value::{Kind, keep};

const KEYS: &[(&str, Kind)] = &[
    ("org.gradle.caching", Kind::Flag),
    ("org.gradle.configuration-cache", Kind::Flag),
    ("org.gradle.configureondemand", Kind::Flag),
    ("org.gradle.console", Kind::OneOf(&["auto", "plain", "rich", "verbose"])),
    ("org.gradle.daemon", Kind::Flag),
    ("org.gradle.daemon.idletimeout", Kind::Number),
    ("org.gradle.logging.level", Kind::OneOf(&["quiet", "warn", "lifecycle", "info", "debug"])),
    ("org.gradle.parallel", Kind::Flag),
    ("org.gradle.priority", Kind::OneOf(&["low", "normal"])),
    ("org.gradle.vfs.watch", Kind::Flag),
    ("org.gradle.warning.mode", Kind::OneOf(&["all", "fail", "summary", "none"])),
    ("org.gradle.welcome", Kind::OneOf(&["always", "never", "once"])),
    ("org.gradle.workers.max", Kind::Number),
];

pub(super) fn anew(text: &str) -> String {
    let mut out = String::new();
    for line in ini::lines(text, false) {
        let value = match line.key {
            "org.gradle.jvmargs" => Some(line.value.split_whitespace().filter(|w| memory(w)).collect::<Vec<_>>().join(" ")),
            key => KEYS.iter().find(|(k, _)| *k == key).and_then(|(_, kind)| keep(*kind, &line.value)),
        };
        if let Some(value) = value.filter(|v| !v.is_empty()) {
            out.push_str(&format!("{}={value}\n", line.key));
        }
    }
    out
}

/// Sizes of the Java machine; others of its options load programs.
fn memory(word: &str) -> bool {
    let size = ["-Xmx", "-Xms", "-Xss", "-XX:MaxMetaspaceSize="].iter().find_map(|head| word.strip_prefix(head));
    size.is_some_and(|s| keep(Kind::Number, s).is_some())
}
