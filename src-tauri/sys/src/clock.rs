//! The one wall clock.

/// Unix time in milliseconds.
pub fn unix_millis() -> u64 {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Realtime);
    u64::try_from(now.tv_sec).unwrap_or(0) * 1000 + u64::try_from(now.tv_nsec).unwrap_or(0) / 1_000_000
}
