//! Which executor takes a unit, and the sentence that says why.

use crate::ids::ExecutorName;

/// An executor as it stands at this moment.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Candidate {
    /// Which.
    pub executor: ExecutorName,
    /// How many more units it can take now.
    pub free_slots: u32,
    /// Why no unit starts on it for now, in a phrase ("usage limit until 03:40").
    pub held: Option<String>,
}

/// Where a unit goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Route {
    /// This executor takes it.
    Take {
        /// Which.
        executor: ExecutorName,
        /// Why this one, in a sentence.
        why: String,
    },
    /// None can take it now.
    Wait {
        /// Why none, in a sentence.
        why: String,
    },
}

/// Sends a unit to the first executor of its `order` that is not held and has a free slot.
///
/// An executor that is not among the `candidates` cannot take anything.
#[must_use]
pub fn route(order: &[ExecutorName], candidates: &[Candidate]) -> Route {
    let mut passed = Vec::new();
    for executor in order {
        match obstacle(executor, candidates) {
            None => return Route::Take { executor: executor.clone(), why: why_taken(executor, order, &passed) },
            Some(obstacle) => passed.push(obstacle),
        }
    }
    let why = if passed.is_empty() { "the unit names no executor".to_owned() } else { passed.join(", ") };
    Route::Wait { why }
}

fn obstacle(executor: &ExecutorName, candidates: &[Candidate]) -> Option<String> {
    match candidates.iter().find(|candidate| candidate.executor == *executor) {
        None => Some(format!("{executor} is not available")),
        Some(Candidate { held: Some(why), .. }) => Some(format!("{executor} is held ({why})")),
        Some(Candidate { free_slots: 0, .. }) => Some(format!("{executor} has no free slot")),
        Some(_) => None,
    }
}

fn why_taken(executor: &ExecutorName, order: &[ExecutorName], passed: &[String]) -> String {
    match (order.len(), passed) {
        (1, _) => format!("{executor} is the unit's only executor"),
        (_, []) => format!("{executor} is the first of the unit's executors"),
        (_, passed) => format!("{executor} takes it because {}", passed.join(" and ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(text: &str) -> ExecutorName {
        text.parse().unwrap()
    }

    fn candidate(executor: &str, free_slots: u32, held: Option<&str>) -> Candidate {
        Candidate { executor: name(executor), free_slots, held: held.map(str::to_owned) }
    }

    #[test]
    fn the_first_executor_that_can_take_a_unit_takes_it() {
        let limit = Some("usage limit until 03:40");
        for (order, candidates, expected) in [
            (&["codex"][..], &[candidate("codex", 1, None)][..], "codex: codex is the unit's only executor"),
            (
                &["codex", "other"],
                &[candidate("other", 1, None), candidate("codex", 1, None)],
                "codex: codex is the first of the unit's executors",
            ),
            (
                &["codex", "other"],
                &[candidate("codex", 0, None), candidate("other", 2, None)],
                "other: other takes it because codex has no free slot",
            ),
            (
                &["codex", "far", "other"],
                &[candidate("codex", 3, limit), candidate("other", 2, None)],
                "other: other takes it because codex is held (usage limit until 03:40) and far is not available",
            ),
            (
                &["codex", "other"],
                &[candidate("codex", 3, limit), candidate("other", 0, None)],
                "wait: codex is held (usage limit until 03:40), other has no free slot",
            ),
            (&[], &[candidate("codex", 3, None)], "wait: the unit names no executor"),
        ] {
            let order: Vec<ExecutorName> = order.iter().map(|text| name(text)).collect();
            let said = match route(&order, candidates) {
                Route::Take { executor, why } => format!("{executor}: {why}"),
                Route::Wait { why } => format!("wait: {why}"),
            };
            assert_eq!(said, expected);
        }
    }
}
