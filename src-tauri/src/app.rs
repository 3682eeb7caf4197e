//! What commands share: the engine, opened when first needed, and the views that are open.

use crate::views::Views;
use crate::wire::error::CommandError;
use engine::{Engine, Host};
use std::sync::{Arc, Mutex, PoisonError};

/// Shared by all commands; a clone is the same one.
#[derive(Clone, Default)]
pub(crate) struct App {
    engine: Arc<Mutex<Option<Arc<Engine>>>>,
    pub(crate) views: Views,
}

impl App {
    /// The engine. One that could not be opened is tried again at the next call, so that Retry in the window means something.
    pub(crate) fn engine(&self) -> Result<Arc<Engine>, CommandError> {
        let mut slot = self.engine.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(engine) = &*slot {
            return Ok(engine.clone());
        }
        let engine = Arc::new(Engine::open(Host::discover()?)?);
        *slot = Some(engine.clone());
        Ok(engine)
    }

    /// Runs a verb on a thread of its own, so that the window stays alive, and hands its result back as a DTO.
    pub(crate) async fn run<T, D>(
        &self,
        verb: impl FnOnce(&Engine) -> Result<T, CommandError> + Send + 'static,
    ) -> Result<D, CommandError>
    where
        T: Send + 'static,
        D: From<T>,
    {
        let app = self.clone();
        tauri::async_runtime::spawn_blocking(move || verb(&*app.engine()?)).await.map_err(CommandError::window)?.map(D::from)
    }
}
