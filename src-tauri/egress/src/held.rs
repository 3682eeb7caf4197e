//! A connection that waits for the person's answer. Nothing of it has left: its name is not even resolved.

use crate::arbiter::Permit;
use std::time::Duration;
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;
use tokio::sync::oneshot;

/// First bytes of the program that are taken while it waits, so that its hang-up is seen behind them.
const FIRST: usize = 16 * 1024;

/// How long an answer that needs nobody may take.
pub(crate) const AT_ONCE: Duration = Duration::from_millis(50);

/// What came of the wait.
#[derive(Debug)]
pub(crate) enum Waited {
    /// The person's word.
    Answered(Permit),
    /// Nobody answered in time; or nobody is there any more who could.
    Unanswered,
    /// The program hung up.
    GivenUp,
}

/// Waits. What the program says meanwhile is kept in `first`, to be passed on before all else.
pub(crate) async fn wait(
    inside: &mut TcpStream,
    first: &mut Vec<u8>,
    answer: &mut oneshot::Receiver<Permit>,
    within: Duration,
) -> Waited {
    let over = tokio::time::sleep(within);
    tokio::pin!(over);
    first.reserve(FIRST);
    loop {
        tokio::select! {
            biased;
            answer = &mut *answer => return answer.map_or(Waited::Unanswered, Waited::Answered),
            () = &mut over => return Waited::Unanswered,
            read = inside.read_buf(first), if first.len() < FIRST => if matches!(read, Ok(0) | Err(_)) {
                return Waited::GivenUp;
            },
        }
    }
}
