//! Builds the one window and wires commands to it.

use crate::app::App;
use crate::commands::{asks, events, review, tasks, terminal};
use tauri::webview::{NewWindowResponse, PageLoadEvent};
use tauri::{Manager, WebviewWindowBuilder};

/// Opens the window and runs until it is closed. Runs go on: each is owned by its warden.
pub(crate) fn run() -> tauri::Result<()> {
    tauri::Builder::default()
        .manage(App::default())
        .invoke_handler(tauri::generate_handler![
            tasks::overview,
            tasks::machine,
            tasks::repo_add,
            tasks::branches,
            tasks::kits,
            tasks::policies,
            tasks::policy,
            tasks::task,
            tasks::create,
            tasks::demo,
            tasks::launch,
            tasks::pause,
            tasks::proceed,
            tasks::ports,
            tasks::preview,
            tasks::browse,
            tasks::stop,
            tasks::discard,
            review::look,
            review::file_diff,
            review::decide,
            review::apply,
            review::undo,
            asks::asks,
            asks::answer,
            asks::grants,
            asks::revoke,
            events::watch,
            events::events,
            events::view_close,
            terminal::terminal_open,
            terminal::terminal_input,
            terminal::terminal_resize,
            terminal::terminal_drawn,
        ])
        .setup(|app| {
            for config in &app.config().app.windows.clone() {
                let shared = app.state::<App>().inner().clone();
                WebviewWindowBuilder::from_config(app.handle(), config)?
                    // The page never leaves itself: no link, drop or script of hostile text leads anywhere.
                    .on_navigation(|url| url.scheme() == "tauri")
                    .on_new_window(|_, _| NewWindowResponse::Deny)
                    // A page that is loaded anew knows nothing of the views of the one before.
                    .on_page_load(move |_, load| {
                        if load.event() == PageLoadEvent::Started {
                            shared.views.close_all();
                        }
                    })
                    .build()?;
            }
            Ok(())
        })
        .run(tauri::generate_context!())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    fn between<'a>(text: &'a str, start: &str, end: &str) -> &'a str {
        let from = text.find(start).map_or(0, |at| at + start.len());
        let rest = &text[from..];
        &rest[..rest.find(end).unwrap_or(rest.len())]
    }

    fn set<'a>(names: impl Iterator<Item = &'a str>) -> BTreeSet<String> {
        names.map(str::trim).filter(|n| !n.is_empty()).map(str::to_owned).collect()
    }

    #[test]
    fn handler_manifest_capability_and_page_name_the_same_commands() {
        let handler =
            set(between(include_str!("setup.rs"), "generate_handler![", "]").split(',').filter_map(|l| l.rsplit("::").next()));
        let manifest = set(between(include_str!("../build.rs"), "COMMANDS: &[&str] = &[", "]").split('"').skip(1).step_by(2));
        let capability: serde_json::Value = serde_json::from_str(include_str!("../capabilities/main.json")).unwrap_or_default();
        let allowed: Vec<String> = capability["permissions"]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|p| p.as_str()?.strip_prefix("allow-").map(|c| c.replace('-', "_")))
            .collect();
        let client = include_str!("../../ui/src/ipc/client.ts");
        let asked: BTreeSet<String> = ["call(", "call<void>(", "call<number>(", "view(", "send("]
            .iter()
            .flat_map(|word| client.split(word).skip(1))
            .filter_map(|rest| rest.strip_prefix('"')?.split('"').next())
            .map(str::to_owned)
            .collect();
        assert_eq!(handler, manifest, "a handled command without a permission can never be called");
        assert_eq!(manifest, set(allowed.iter().map(String::as_str)), "the capability allows each command, and nothing else");
        assert_eq!(
            allowed.len(),
            capability["permissions"].as_array().map_or(0, Vec::len),
            "no permission but the window's own commands"
        );
        assert_eq!(manifest, asked, "the page asks for what there is");
        assert!(handler.len() > 20, "the lists were found");
    }

    #[test]
    fn the_content_policy_has_no_way_around() {
        let config: serde_json::Value = serde_json::from_str(include_str!("../tauri.conf.json")).unwrap_or_default();
        let csp = config["app"]["security"]["csp"].as_str().unwrap_or_default();
        assert!(csp.starts_with("default-src 'none';"), "what is not named is closed");
        for open in ["unsafe-inline", "unsafe-eval", "https:", "*", "data:", "blob:"] {
            assert!(!csp.contains(open), "`{open}` would let hostile text act");
        }
        assert!(config["build"]["devUrl"].is_null(), "a build without Vite running would be a white page");
    }
}
