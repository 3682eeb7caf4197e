//! Builds the one window and wires commands to it.

use crate::app::App;
use crate::commands::{events, review, tasks, terminal};
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
            tasks::stop,
            tasks::discard,
            review::look,
            review::file_diff,
            review::decide,
            review::apply,
            review::undo,
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
