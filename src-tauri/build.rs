//! Gives every command of the window a permission of its own; without this list Tauri would allow them all.

/// The commands, as in `src/setup.rs` and `capabilities/main.json`.
const COMMANDS: &[&str] = &[
    "overview",
    "machine",
    "repo_add",
    "branches",
    "kits",
    "policies",
    "policy",
    "task",
    "create",
    "demo",
    "launch",
    "pause",
    "proceed",
    "ports",
    "preview",
    "browse",
    "stop",
    "discard",
    "look",
    "file_diff",
    "decide",
    "apply",
    "undo",
    "asks",
    "answer",
    "grants",
    "revoke",
    "watch",
    "events",
    "view_close",
    "terminal_open",
    "terminal_input",
    "terminal_resize",
    "terminal_drawn",
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let manifest = tauri_build::AppManifest::new().commands(COMMANDS);
    Ok(tauri_build::try_build(tauri_build::Attributes::new().app_manifest(manifest))?)
}
