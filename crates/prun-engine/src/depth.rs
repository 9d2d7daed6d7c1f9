//! How deep prun runs inside prun. A worker must not fan out again unless its plan says so: each level multiplies
//! what a run costs.
//!
//! The level is a variable that a dispatcher sets for its worker. Some clients keep most variables from the servers
//! that they start, so the environments of the ancestors are asked as well.

use std::fmt;

use crate::process::inherited_values;

/// The variable that counts how deep prun runs inside prun.
pub const DEPTH_VARIABLE: &str = "PRUN_DEPTH";

/// The variable that says below which level runs may be started.
pub const LIMIT_VARIABLE: &str = "PRUN_DEPTH_LIMIT";

/// The limit where nothing is said: only who is no worker may start a run.
pub const DEFAULT_LIMIT: u32 = 1;

/// Where this process stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Depth {
    /// 0 outside of any worker; one more in each worker.
    pub level: u32,
    /// Runs may be started below this level.
    pub limit: u32,
}

/// This is a worker that may not start a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub struct TooDeep(pub Depth);

impl fmt::Display for TooDeep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "this is a worker of prun at depth {}; it may not start a run of its own", self.0.level)
    }
}

impl Depth {
    /// Where this process stands, by its own environment, or else those of its ancestors.
    #[must_use]
    pub fn current() -> Self {
        Self::of(&inherited_values(DEPTH_VARIABLE.as_bytes()), &inherited_values(LIMIT_VARIABLE.as_bytes()))
    }

    /// The nearest level and limit that anybody names.
    #[must_use]
    pub fn of(levels: &[Vec<u8>], limits: &[Vec<u8>]) -> Self {
        let number = |text: &Vec<u8>| std::str::from_utf8(text).ok()?.trim().parse::<u32>().ok();
        Self {
            level: levels.iter().find_map(number).unwrap_or(0),
            limit: limits.iter().find_map(number).unwrap_or(DEFAULT_LIMIT),
        }
    }

    /// Refuses a run that must not be started here.
    ///
    /// # Errors
    /// This is a worker whose plan allows no run of its own.
    pub fn check(self) -> Result<(), TooDeep> {
        if self.level < self.limit { Ok(()) } else { Err(TooDeep(self)) }
    }

    /// Where a worker of a run stands that is started here, if its plan allows `more` levels. A run inside of a run
    /// cannot allow more than the outer one did.
    #[must_use]
    pub fn of_worker(self, more: u32) -> Self {
        let level = self.level.saturating_add(1);
        let own = level.saturating_add(more);
        Self { level, limit: if self.level == 0 { own } else { own.min(self.limit) } }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn depth(level: u32, limit: u32) -> Depth {
        Depth { level, limit }
    }

    #[test]
    fn the_nearest_level_counts_whoever_names_it() {
        let values = |of: &[&str]| of.iter().map(|text| text.as_bytes().to_vec()).collect::<Vec<_>>();
        assert_eq!(Depth::of(&[], &[]), depth(0, 1));
        assert_eq!(Depth::of(&values(&["2", "1"]), &values(&["2", "3"])), depth(2, 2));
        assert_eq!(Depth::of(&values(&["x", ""]), &values(&["\u{1}"])), depth(0, 1));
    }

    #[test]
    fn a_worker_starts_nothing_unless_the_outermost_plan_allows_it() {
        let outside = depth(0, 1);
        assert!(outside.check().is_ok());
        assert!(outside.of_worker(0).check().is_err());
        let allowed = outside.of_worker(1);
        assert!(allowed.check().is_ok());
        assert_eq!(allowed.of_worker(5), depth(2, 2), "the inner plan allows itself nothing");
        assert!(allowed.of_worker(5).check().is_err());
    }
}
