//! The policies that are shipped; a person's own file of the same name stands in their place, which the caller sees to.

const PRESETS: [(&str, &str); 3] = [
    ("standard", include_str!("../../../policies/presets/standard.toml")),
    ("careful", include_str!("../../../policies/presets/careful.toml")),
    ("offline", include_str!("../../../policies/presets/offline.toml")),
];

/// Names of the shipped policies, the usual one first.
pub fn presets() -> impl Iterator<Item = &'static str> {
    PRESETS.iter().map(|(name, _)| *name)
}

/// The text of a shipped policy.
pub fn preset(name: &str) -> Option<&'static str> {
    PRESETS.iter().find(|(n, _)| *n == name).map(|(_, text)| *text)
}
