//! What waits for the person, their answers, and what these permit.

use crate::app::App;
use crate::wire::ask::{Answer, Ask, Grant, Revoked};
use crate::wire::error::CommandError;
use model::id::{AskId, GrantId};
use tauri::State;

type Answered<T> = Result<T, CommandError>;

/// Open asks of all tasks, and those that were closed at or after a moment (unix milliseconds).
#[tauri::command]
pub(crate) async fn asks(app: State<'_, App>, since: u64) -> Answered<Vec<Ask>> {
    app.run(move |e| Ok(e.inbox(since)?.into_iter().map(Into::into).collect::<Vec<_>>())).await
}

/// Answers an ask whose digest is that of what was shown.
#[tauri::command]
pub(crate) async fn answer(app: State<'_, App>, ask: String, digest: String, answer: Answer) -> Answered<()> {
    app.run(move |e| {
        e.answer(&AskId::parse(&ask)?, &digest, &answer.into())?;
        Ok(())
    })
    .await
}

/// Grants, newest first.
#[tauri::command]
pub(crate) async fn grants(app: State<'_, App>) -> Answered<Vec<Grant>> {
    app.run(|e| Ok(e.grants(None)?.into_iter().map(Into::into).collect::<Vec<_>>())).await
}

/// Takes a grant back and closes what lives by it.
#[tauri::command]
pub(crate) async fn revoke(app: State<'_, App>, grant: String) -> Answered<Revoked> {
    app.run(move |e| Ok(e.revoke_grant(&GrantId::parse(&grant)?)?)).await
}
