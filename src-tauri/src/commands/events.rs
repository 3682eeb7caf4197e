//! Feeds: what went stale, and a task's events.

use crate::app::App;
use crate::wire::error::CommandError;
use crate::wire::event::EventBatch;
use model::id::TaskId;
use std::time::Duration;
use tauri::State;
use tauri::ipc::Channel;

/// Most events in one message: what the page takes in one frame.
const BATCH: usize = 500;
/// Between two messages while there is more.
const BEHIND: Duration = Duration::from_millis(33);
/// Between two looks while there is nothing new.
const IDLE: Duration = Duration::from_millis(100);
/// Between two looks at the database's version.
const WATCH: Duration = Duration::from_millis(500);

/// Says each time when repositories or tasks are not what they were, by whatever process.
#[tauri::command]
pub(crate) async fn watch(app: State<'_, App>, channel: Channel<()>) -> Result<u32, CommandError> {
    let shared = app.inner().clone();
    app.views.feed(move |open| {
        let mut seen = None;
        while !open.closed() {
            let now = shared.engine().ok().and_then(|e| e.version().ok());
            if now != seen && seen.replace(now.unwrap_or_default()).is_some() && channel.send(()).is_err() {
                return;
            }
            std::thread::sleep(WATCH);
        }
    })
}

/// Sends a task's events from a number on, and goes on as they come.
#[tauri::command]
pub(crate) async fn events(
    app: State<'_, App>,
    task: String,
    from: u64,
    channel: Channel<EventBatch>,
) -> Result<u32, CommandError> {
    let id = TaskId::parse(&task)?;
    let shared = app.inner().clone();
    app.run::<_, ()>({
        let id = id.clone();
        move |e| {
            e.events(&id, from, 1, &[])?;
            Ok(())
        }
    })
    .await?;
    app.views.feed(move |open| {
        let Ok(engine) = shared.engine() else { return };
        let (mut next, mut told) = (from, false);
        while !open.closed() {
            // A log that can't be read now (the disk is full, say) is read at the next turn.
            let list = engine.events(&id, next, BATCH, &[]).unwrap_or_default();
            let caught_up = list.len() < BATCH;
            if let Some(last) = list.last() {
                next = last.seq + 1;
            }
            if !list.is_empty() || caught_up != told {
                told = caught_up;
                if channel.send(EventBatch { events: list.into_iter().map(Into::into).collect(), caught_up }).is_err() {
                    return;
                }
            }
            std::thread::sleep(if caught_up { IDLE } else { BEHIND });
        }
    })
}

/// Ends a feed or a terminal's view.
#[tauri::command]
pub(crate) async fn view_close(app: State<'_, App>, view: u32) -> Result<(), CommandError> {
    app.views.close(view);
    Ok(())
}
