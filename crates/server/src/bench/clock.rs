//! The one clock of the measurements. It measures how long something took and decides nothing.

use std::time::Instant;

/// The time now, to be subtracted from a later one.
pub(super) fn now() -> Instant {
    #[expect(clippy::disallowed_methods, reason = "a measurement needs the clock and decides nothing by it")]
    Instant::now()
}

/// Milliseconds since `start`.
pub(super) fn millis_since(start: Instant) -> f64 {
    now().duration_since(start).as_secs_f64() * 1e3
}
