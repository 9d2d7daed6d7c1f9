//! What attempts used, added up: `prun usage`, its JSON, and the tool of the same name.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::outcome::Usage;

/// The version of the shape of [`UsageView`].
pub const USAGE_VERSION: u32 = 1;

/// What is added up together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum By {
    /// All attempts of a run.
    Run,
    /// All attempts on an executor.
    Executor,
    /// All attempts with a model.
    Model,
    /// All attempts that ended on a day, in local time.
    Day,
    /// All attempts of a unit.
    Unit,
}

/// What attempts used.
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct UsageView {
    /// [`USAGE_VERSION`].
    pub version: u32,
    /// What each row adds up.
    pub by: By,
    /// Runs and units in the order of their attempts, all else by name.
    pub rows: Vec<Sum>,
    /// All of it.
    pub total: Sum,
}

/// Some attempts together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, JsonSchema)]
pub struct Sum {
    /// What they have in common.
    pub name: String,
    /// How many there were.
    pub attempts: u64,
    /// Tokens, money and turns of all of them.
    #[serde(flatten)]
    pub usage: Usage,
    /// Milliseconds that their workers lived.
    pub worker_millis: u64,
}

impl Sum {
    fn add(&mut self, usage: &Usage, worker_millis: u64) {
        self.attempts += 1;
        self.usage = self.usage.plus(usage);
        self.worker_millis = self.worker_millis.saturating_add(worker_millis);
    }
}

/// Adds attempts up by their names: of each its name, what it used, and the milliseconds that its worker lived.
#[must_use]
pub fn add_up(by: By, attempts: impl IntoIterator<Item = (String, Usage, u64)>) -> UsageView {
    let mut total = Sum { name: "total".to_owned(), ..Sum::default() };
    let mut rows: Vec<Sum> = Vec::new();
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    for (name, usage, worker_millis) in attempts {
        let place = *places.entry(name.clone()).or_insert(rows.len());
        if place == rows.len() {
            rows.push(Sum { name, ..Sum::default() });
        }
        rows[place].add(&usage, worker_millis);
        total.add(&usage, worker_millis);
    }
    if !matches!(by, By::Run | By::Unit) {
        rows.sort_by(|one, other| one.name.cmp(&other.name));
    }
    UsageView { version: USAGE_VERSION, by, rows, total }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(input: u64) -> Usage {
        Usage { input_tokens: input, ..Usage::default() }
    }

    fn summed(by: By) -> Vec<(String, u64, u64)> {
        let attempts = [("b", 1), ("a", 10), ("b", 100)].map(|(name, used)| (name.to_owned(), tokens(used), 7));
        let view = add_up(by, attempts);
        assert_eq!((view.total.attempts, view.total.usage.total_tokens(), view.total.worker_millis), (3, 111, 21));
        view.rows.into_iter().map(|row| (row.name, row.attempts, row.usage.total_tokens())).collect()
    }

    #[test]
    fn attempts_of_one_name_are_one_row_in_the_order_of_what_they_are() {
        let (a, b) = (("a".to_owned(), 1, 10), ("b".to_owned(), 2, 101));
        assert_eq!(summed(By::Executor), [a.clone(), b.clone()]);
        assert_eq!(summed(By::Unit), [b, a]);
    }

    #[test]
    fn nothing_adds_up_to_nothing() {
        let view = add_up(By::Run, []);
        assert_eq!((view.rows.len(), view.total.attempts), (0, 0));
    }
}
