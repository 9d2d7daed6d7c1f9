//! The two clocks of the machine.

use std::time::{Instant, SystemTime, UNIX_EPOCH};

use prun_core::time::{Now, Timestamp};

/// Gives the time; the monotonic clock counts from its making and stands still while the machine sleeps.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    origin: Instant,
}

impl Clock {
    /// A clock that starts now.
    #[must_use]
    pub fn start() -> Self {
        Self { origin: Instant::now() }
    }

    /// Both clocks.
    #[must_use]
    pub fn now(self) -> Now {
        Now { wall: wall_now(), mono: u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX) }
    }
}

/// The wall clock.
#[must_use]
pub fn wall_now() -> Timestamp {
    let millis = match SystemTime::now().duration_since(UNIX_EPOCH) {
        Ok(since) => i64::try_from(since.as_millis()).unwrap_or(i64::MAX),
        Err(before) => -i64::try_from(before.duration().as_millis()).unwrap_or(i64::MAX),
    };
    Timestamp(millis)
}
