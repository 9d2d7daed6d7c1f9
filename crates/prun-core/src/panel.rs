//! Panels: units that do the same work beside each other, of which at most one lands, by name.
//!
//! What the user said of the members decides: the one that was accepted is the panel's, and so is the only one that
//! was not excluded. Nothing is chosen by how well it went.

use std::collections::HashMap;

use crate::event::Mode;
use crate::ids::UnitId;
use crate::unit::{Disposition, Unit};

/// The members of one panel.
#[derive(Clone, Debug)]
pub struct Panel<'a> {
    /// Its name: the unit of the plan that its members stand for.
    pub name: &'a UnitId,
    /// Its members, in the plan's order.
    pub members: Vec<&'a Unit>,
}

/// Which member of a panel may land.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Choice<'a> {
    /// Nobody said.
    Open,
    /// This one; it has landed, was accepted, or is the only one that was not excluded.
    Member(&'a UnitId),
    /// None: all were excluded.
    Nobody,
    /// More than one is named, and so none may: these, in the plan's order.
    Several(Vec<&'a UnitId>),
}

/// The panels of some units, in the order of their first members.
#[must_use]
pub fn panels<'a>(units: impl IntoIterator<Item = &'a Unit>) -> Vec<Panel<'a>> {
    let mut panels: Vec<Panel<'a>> = Vec::new();
    let mut places = HashMap::new();
    for unit in units {
        let Some(name) = &unit.setup.panel else { continue };
        let place = *places.entry(name).or_insert_with(|| {
            panels.push(Panel { name, members: Vec::new() });
            panels.len() - 1
        });
        panels[place].members.push(unit);
    }
    panels
}

impl<'a> Panel<'a> {
    /// Which of its members may land.
    #[must_use]
    pub fn choice(&self) -> Choice<'a> {
        let of = |wanted: fn(&Disposition) -> bool| -> Vec<&'a UnitId> {
            self.members.iter().filter(|unit| wanted(&unit.disposition)).map(|unit| &unit.setup.id).collect()
        };
        let named = of(|it| matches!(it, Disposition::Applied { .. } | Disposition::Accepted { .. }));
        let left = of(|it| !matches!(it, Disposition::Excluded { .. }));
        match (named.as_slice(), left.as_slice()) {
            ([one], _) | ([], [one]) => Choice::Member(one),
            ([], []) => Choice::Nobody,
            ([], _) => Choice::Open,
            _ => Choice::Several(named),
        }
    }

    /// Whether the user has to choose before the run can land: its members change code, all of them are over, and
    /// nobody said which one is taken.
    #[must_use]
    pub fn is_open(&self) -> bool {
        let writes = self.members.iter().any(|unit| unit.setup.mode == Mode::Write);
        writes && self.choice() == Choice::Open && self.members.iter().all(|unit| unit.is_settled())
    }
}
