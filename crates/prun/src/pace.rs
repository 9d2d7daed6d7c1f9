//! How often a viewer looks at a ledger: at once while things happen, seldom while nothing does.

use std::time::Duration;

/// The shortest pause between two looks.
const QUICK: Duration = Duration::from_millis(10);

/// The longest one. A look is one indexed query on an open database.
const SLOW: Duration = Duration::from_millis(160);

/// The pause before the next look.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pace(Duration);

impl Pace {
    /// A viewer that has just begun.
    pub(crate) fn new() -> Self {
        Self(QUICK)
    }

    /// The pause after a look, which doubles each time that nothing was new.
    pub(crate) fn after(&mut self, was_new: bool) -> Duration {
        self.0 = if was_new { QUICK } else { (self.0 * 2).min(SLOW) };
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_grow_rare_while_nothing_happens() {
        let mut pace = Pace::new();
        let quiet: Vec<u128> = (0..6).map(|_| pace.after(false).as_millis()).collect();
        assert_eq!(quiet, [20, 40, 80, 160, 160, 160]);
        assert_eq!(pace.after(true), QUICK);
    }
}
