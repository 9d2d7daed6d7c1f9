//! `panel` and `samples`: the same work done several times beside each other, by units of which at most one lands.

use std::ops::RangeInclusive;

use crate::ids::{ExecutorName, UnitId};
use crate::plan::fields::{Fields, Given};
use crate::plan::model::{COMMAND_EXECUTOR, ResultFrom, UnitPlan};
use crate::plan::problem::{Place, Problem, quoted};
use crate::plan::settings;

/// How many members a panel has: each costs a whole unit.
const MEMBERS: RangeInclusive<u32> = 2..=8;

/// What a unit says of its members, with the place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Ask {
    /// One on each of these executors: `unit-codex`, `unit-claude`.
    Executors(Vec<ExecutorName>, Place),
    /// So many alike: `unit-1`, `unit-2`.
    Samples(u32, Place),
}

impl Ask {
    /// Takes the keys of a unit. `None`: it is no panel, or a problem was noted.
    pub(super) fn read(fields: &mut Fields, problems: &mut Vec<Problem>) -> Option<Self> {
        let before = problems.len();
        let executors = fields.read("panel", problems, settings::executors);
        if problems.len() > before {
            // Left over, a bad name would count as too few.
            fields.take("samples");
            return None;
        }
        let samples = fields.read("samples", problems, |item| item.integer(&MEMBERS));
        match (executors, samples) {
            (Given::Value(..), Given::Value(_, place)) => {
                let problem = Problem::new(place, "the unit has both `panel` and `samples`");
                problems.push(problem.hint("leave one out: `panel` names executors, `samples` asks one several times"));
                None
            }
            (Given::Value(names, place), Given::Missing) => {
                let count = u32::try_from(names.len()).unwrap_or(u32::MAX);
                if MEMBERS.contains(&count) {
                    return Some(Self::Executors(names, place));
                }
                let (least, most) = (MEMBERS.start(), MEMBERS.end());
                let problem = Problem::new(place, format!("`panel` has {least} to {most} executors, not {count}"));
                problems.push(match count {
                    1 => problem.hint("executor = … names a single one; samples = 3 asks it three times"),
                    _ => problem,
                });
                None
            }
            (Given::Missing, Given::Value(count, place)) => Some(Self::Samples(count, place)),
            _ => None,
        }
    }

    /// The executors of all members, where it names them.
    pub(super) fn executors(&self) -> Option<(Vec<ExecutorName>, Option<Place>)> {
        match self {
            Self::Executors(names, place) => Some((names.clone(), Some(*place))),
            Self::Samples(..) => None,
        }
    }

    /// The units that `unit` stands for. Their ids are taken from `ids`.
    pub(super) fn members(
        &self,
        unit: &UnitPlan,
        problems: &mut Vec<Problem>,
        mut taken: impl FnMut(&UnitId, Place) -> Option<Problem>,
    ) -> Vec<UnitPlan> {
        let (ends, place): (Vec<String>, Place) = match self {
            Self::Executors(names, place) => (names.iter().map(ToString::to_string).collect(), *place),
            Self::Samples(count, place) => ((1..=*count).map(|number| number.to_string()).collect(), *place),
        };
        let mut members = Vec::new();
        for (at, end) in ends.iter().enumerate() {
            let id: UnitId = match format!("{}-{end}", unit.id).parse() {
                Ok(id) => id,
                Err(error) => {
                    problems.push(Problem::new(place, format!("a member of the panel has no usable id: {error}")));
                    continue;
                }
            };
            problems.extend(taken(&id, place));
            let mut member = UnitPlan { id, panel: Some(unit.id.clone()), ..unit.clone() };
            if let Self::Executors(names, _) = self {
                member.executors = vec![names[at].clone()];
                if names[at].as_str() != COMMAND_EXECUTOR {
                    (member.command, member.result) = (None, ResultFrom::File);
                }
            }
            members.push(member);
        }
        members
    }
}

/// Refuses the keys in a table of rows.
pub(super) fn refuse(fields: &mut Fields, problems: &mut Vec<Problem>) {
    for key in ["panel", "samples"] {
        if let Some(entry) = fields.take_stray(key) {
            let problem = Problem::new(entry.place, format!("{}: a row is done by one unit", quoted(key)));
            problems.push(problem.hint("give a unit of its own to what is to be asked several times"));
        }
    }
}
