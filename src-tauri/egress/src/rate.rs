//! How often something may happen.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// A bucket that fills at a steady rate and holds at most two seconds' worth.
pub(crate) struct Rate {
    each: f64,
    state: Mutex<(f64, Instant)>,
}

impl Rate {
    pub(crate) fn per_second(n: u32) -> Self {
        let each = f64::from(n.max(1));
        Self { each, state: Mutex::new((each * 2.0, Instant::now())) }
    }

    /// Takes one; otherwise says how long until there is one.
    pub(crate) fn take(&self) -> Result<(), Duration> {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let filled = state.0 + now.duration_since(state.1).as_secs_f64() * self.each;
        *state = (filled.min(self.each * 2.0), now);
        if state.0 >= 1.0 {
            state.0 -= 1.0;
            return Ok(());
        }
        Err(Duration::from_secs_f64((1.0 - state.0) / self.each))
    }

    /// Waits for one.
    pub(crate) async fn wait(&self) {
        while let Err(left) = self.take() {
            tokio::time::sleep(left).await;
        }
    }
}
