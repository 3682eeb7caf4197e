//! Candidates, decisions, apply and undo.

use crate::app::App;
use crate::wire::error::CommandError;
use crate::wire::review::{Applied, Changes, FileDiff, Review};
use engine::{ApplyRequest, Code, Error};
use model::id::{TaskId, TreeId};
use model::path::RawPath;
use tauri::State;

/// Unchanged lines around a change.
const CONTEXT: u32 = 5;

type Answer<T> = Result<T, CommandError>;

fn paths(texts: &[String]) -> Vec<RawPath> {
    texts.iter().map(|t| RawPath::from_text(t)).collect()
}

/// Freezes the workspace as a candidate and reads what changed.
#[tauri::command]
pub(crate) async fn look(app: State<'_, App>, task: String) -> Answer<Changes> {
    app.run(move |e| {
        let id = TaskId::parse(&task)?;
        let look = e.look(&id)?;
        let review = e.review(&id, &look.candidate.tree)?;
        Ok((look, review))
    })
    .await
}

/// One file's difference.
#[tauri::command]
pub(crate) async fn file_diff(app: State<'_, App>, task: String, tree: String, path: String) -> Answer<FileDiff> {
    app.run(move |e| Ok(e.file_diff(&TaskId::parse(&task)?, &TreeId::parse(&tree)?, &RawPath::from_text(&path), CONTEXT)?)).await
}

/// Accepts and rejects files.
#[tauri::command]
pub(crate) async fn decide(
    app: State<'_, App>,
    task: String,
    tree: String,
    accept: Vec<String>,
    reject: Vec<String>,
) -> Answer<Review> {
    app.run(move |e| Ok(e.decide(&TaskId::parse(&task)?, &TreeId::parse(&tree)?, &paths(&accept), &paths(&reject))?)).await
}

/// Approves exactly what the page shows, a candidate and the tree that its decisions give, and applies it.
#[tauri::command]
pub(crate) async fn apply(
    app: State<'_, App>,
    task: String,
    tree: String,
    result: String,
    onto: String,
    message: String,
) -> Answer<Applied> {
    app.run(move |e| {
        let (id, tree, shown) = (TaskId::parse(&task)?, TreeId::parse(&tree)?, TreeId::parse(&result)?);
        // Another window or the command line may have decided since: then this is not what the person saw.
        if e.review(&id, &tree)?.result != shown || e.approve(&id, &tree)?.result != shown {
            return Err(Error::new(Code::Stale, "the decisions changed since you looked: take a new look").into());
        }
        Ok(e.apply(&id, &ApplyRequest { tree: shown, onto: Some(onto), message: Some(message) })?)
    })
    .await
}

/// Takes the newest apply back.
#[tauri::command]
pub(crate) async fn undo(app: State<'_, App>, task: String) -> Answer<Applied> {
    app.run(move |e| Ok(e.undo(&TaskId::parse(&task)?)?)).await
}
