//! The terminal of a task's newest run.

use crate::app::App;
use crate::terminal::{Sink, Terminal};
use crate::wire::error::CommandError;
use crate::wire::task::Outcome;
use model::id::TaskId;
use tauri::State;
use tauri::ipc::{Channel, InvokeResponseBody};

/// Opens it: what was printed, then what is printed, as raw bytes.
#[tauri::command]
pub(crate) async fn terminal_open(
    app: State<'_, App>,
    task: String,
    cols: u16,
    rows: u16,
    output: Channel<InvokeResponseBody>,
    ended: Channel<Option<Outcome>>,
) -> Result<u32, CommandError> {
    let id = TaskId::parse(&task)?;
    let shared = app.inner().clone();
    let opened =
        tauri::async_runtime::spawn_blocking(move || Terminal::open(shared.engine()?, id, cols, rows, Sink { output, ended }));
    Ok(app.views.terminal(opened.await.map_err(CommandError::window)??))
}

/// Types bytes into it.
#[tauri::command]
pub(crate) async fn terminal_input(app: State<'_, App>, view: u32, bytes: Vec<u8>) -> Result<(), CommandError> {
    let Some(terminal) = app.views.find_terminal(view) else { return Ok(()) };
    tauri::async_runtime::spawn_blocking(move || terminal.input(&bytes)).await.map_err(CommandError::window)?
}

/// Tells its size.
#[tauri::command]
pub(crate) async fn terminal_resize(app: State<'_, App>, view: u32, cols: u16, rows: u16) -> Result<(), CommandError> {
    let Some(terminal) = app.views.find_terminal(view) else { return Ok(()) };
    tauri::async_runtime::spawn_blocking(move || terminal.resize(cols, rows)).await.map_err(CommandError::window)?
}

/// Tells how many bytes were drawn.
#[tauri::command]
pub(crate) async fn terminal_drawn(app: State<'_, App>, view: u32, bytes: usize) -> Result<(), CommandError> {
    app.views.find_terminal(view).inspect(|t| t.drawn(bytes));
    Ok(())
}
