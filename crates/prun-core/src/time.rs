//! Points in time as plain numbers, so that tests can move the clock.

use serde::{Deserialize, Serialize};

/// A wall-clock time in milliseconds since the Unix epoch. Recorded and shown, never used to measure.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(transparent)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// The time `millis` later.
    #[must_use]
    pub fn plus(self, millis: i64) -> Self {
        Self(self.0.saturating_add(millis))
    }

    /// Milliseconds from `earlier` to this time; 0 where the wall clock was set back in between.
    #[must_use]
    pub fn since(self, earlier: Self) -> u64 {
        u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0)
    }
}

/// Both clocks of one moment.
///
/// `mono` (milliseconds, any origin, stands still while the machine sleeps) measures and arms timers;
/// `wall` is what is recorded.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Now {
    /// The wall clock.
    pub wall: Timestamp,
    /// The monotonic clock in milliseconds.
    pub mono: u64,
}
