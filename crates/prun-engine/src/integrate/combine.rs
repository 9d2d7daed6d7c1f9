//! Puts several sides together over one base: disjoint changes are spliced, overlaps are merged by git.
//!
//! The sides are the units; then the user's working tree and the combined units. What git would pass over
//! in silence (an edit carried across a rename, a mode against a content) is reported all the same.

use std::collections::{BTreeMap, BTreeSet};

use prun_core::ids::UnitId;

use super::IntegrateError;
use super::attribute::attribute;
use super::edits::Edits;
use super::merge::{Base, Merged, regions};
use super::overlap::{Clash, Conflict, ConflictKind, Need, Overlap, OverlapKind, Party, Region};
use super::path::RepoPath;
use super::quarantine::Quarantine;
use super::tree::{Entry, TreeChanges, changes, changes_of_each, splice};

/// One side of a combination.
#[derive(Clone, Debug)]
pub struct Side {
    /// Who changed a path, for reports: several where the side is a combination itself.
    pub parties: BTreeMap<RepoPath, Vec<Party>>,
    /// Its tree.
    pub tree: String,
    /// What it changes.
    pub changes: TreeChanges,
}

/// What came of putting sides together.
#[derive(Clone, Debug, Default)]
pub struct Combination {
    /// The combined tree; `None` where there are conflicts.
    pub tree: Option<String>,
    /// What that tree changes.
    pub changes: TreeChanges,
    /// Overlaps, sorted.
    pub overlaps: Vec<Overlap>,
    /// Conflicts, sorted.
    pub conflicts: Vec<Conflict>,
    /// Who changes which path.
    pub parties: BTreeMap<RepoPath, Vec<Party>>,
}

/// Combines the units' trees over their base. The order of `units` does not matter.
///
/// # Errors
/// Git fails, or a unit's tree holds a path that no worker may bring.
pub fn combine(
    quarantine: &Quarantine,
    base_tree: &str,
    units: &[(UnitId, String)],
) -> Result<Combination, IntegrateError> {
    combine_sides(quarantine, base_tree, &unit_sides(quarantine, base_tree, units)?)
}

/// The units as sides, sorted by their names.
pub(super) fn unit_sides(
    quarantine: &Quarantine,
    base_tree: &str,
    units: &[(UnitId, String)],
) -> Result<Vec<Side>, IntegrateError> {
    let mut units: Vec<&(UnitId, String)> = units.iter().collect();
    units.sort();
    let each = changes_of_each(quarantine, base_tree, units.iter().map(|(_, tree)| tree.as_str()))?;
    let mut sides = Vec::new();
    for ((unit, tree), changes) in units.into_iter().zip(each) {
        refuse_hazards(unit, &changes)?;
        let parties = changes.keys().map(|path| (path.clone(), vec![Party::Unit(unit.clone())])).collect();
        sides.push(Side { parties, tree: tree.clone(), changes });
    }
    Ok(sides)
}

fn refuse_hazards(unit: &UnitId, changes: &TreeChanges) -> Result<(), IntegrateError> {
    let added = changes.iter().filter(|(_, change)| change.old.is_none());
    match added.filter_map(|(path, _)| Some((path, path.hazard()?))).next() {
        None => Ok(()),
        Some((path, why)) => Err(IntegrateError::Hazard { unit: unit.clone(), path: path.clone(), why }),
    }
}

/// Combines sides over their base, in their order.
///
/// # Errors
/// Git fails.
pub fn combine_sides(quarantine: &Quarantine, base: &str, sides: &[Side]) -> Result<Combination, IntegrateError> {
    let mut found = Combination::default();
    for side in sides {
        for (path, parties) in &side.parties {
            found.parties.entry(path.clone()).or_default().extend(parties.iter().cloned());
        }
    }
    let mut pairs = clashing_pairs(sides);
    apply_attributes(quarantine, base, &mut pairs)?;
    directory_clashes(sides, &mut found);
    for pair in pairs.iter().filter(|pair| pair.need == Need::Conflict) {
        found.conflicts.push(pair.conflict(sides, pair.clash.conflict_kind(), Vec::new()));
    }
    let merged = merge_components(quarantine, base, sides, &pairs, &mut found)?;
    let in_text = |pair: &&Pair<'_>| matches!(pair.clash, Clash::Content | Clash::Driver);
    let edits = Edits::find(quarantine, base, sides, &pairs.iter().filter(in_text).map(|pair| pair.path).collect())?;
    for pair in pairs.iter().filter(|pair| pair.need != Need::Conflict) {
        found.overlaps.extend(pair.overlap(sides, &edits));
    }
    tidy(&mut found);
    if found.conflicts.is_empty() {
        let alone = sides.iter().enumerate().filter(|(at, _)| !merged.sides.contains(at)).map(|(_, side)| side);
        let all = alone.flat_map(|side| &side.changes).chain(&merged.changes);
        found.changes = all.map(|(path, change)| (path.clone(), change.clone())).collect();
        let changing: Vec<&Side> = sides.iter().filter(|side| !side.changes.is_empty()).collect();
        found.tree = Some(match changing.as_slice() {
            [] => base.to_owned(),
            [only] => only.tree.clone(),
            _ => splice(quarantine, base, found.changes.iter().map(|(path, change)| (path, change.new.as_ref())))?,
        });
    }
    Ok(found)
}

fn tidy(found: &mut Combination) {
    found.conflicts.sort();
    found.conflicts.dedup();
    let stuck: BTreeSet<&String> = found.conflicts.iter().map(|conflict| &conflict.path).collect();
    found.overlaps.retain(|overlap| !stuck.contains(&overlap.path));
    found.overlaps.sort();
    found.overlaps.dedup();
}

/// What two sides do to one path.
struct Pair<'a> {
    path: &'a RepoPath,
    first: usize,
    second: usize,
    clash: Clash,
    need: Need,
}

impl Pair<'_> {
    fn parties(&self, sides: &[Side]) -> Vec<Party> {
        parties_of(self.path, [&sides[self.first], &sides[self.second]])
    }

    fn conflict(&self, sides: &[Side], kind: ConflictKind, regions: Vec<Region>) -> Conflict {
        let why = kind.sentence().to_owned();
        Conflict { path: self.path.to_string(), parties: self.parties(sides), kind, why, regions }
    }

    fn overlap(&self, sides: &[Side], edits: &Edits) -> Option<Overlap> {
        let kind = self.clash.overlap_kind()?;
        let (path, parties) = (self.path.to_string(), self.parties(sides));
        let edits = edits.of(self.path, [&sides[self.first], &sides[self.second]]);
        Some(Overlap { path, parties, kind, blocks: kind.blocks(), edits })
    }
}

fn parties_of<'a>(path: &RepoPath, sides: impl IntoIterator<Item = &'a Side>) -> Vec<Party> {
    let all: BTreeSet<Party> = sides.into_iter().filter_map(|side| side.parties.get(path)).flatten().cloned().collect();
    all.into_iter().collect()
}

/// Every path that two sides change, by pairs of sides.
fn clashing_pairs(sides: &[Side]) -> Vec<Pair<'_>> {
    let mut touched: BTreeMap<&RepoPath, Vec<usize>> = BTreeMap::new();
    for (at, side) in sides.iter().enumerate() {
        for path in side.changes.keys() {
            touched.entry(path).or_default().push(at);
        }
    }
    let mut pairs = Vec::new();
    for (path, who) in touched {
        for (at, &first) in who.iter().enumerate() {
            for &second in &who[at + 1..] {
                let clash = Clash::of(&sides[first].changes[path], &sides[second].changes[path]);
                pairs.push(Pair { path, first, second, clash, need: clash.need() });
            }
        }
    }
    pairs
}

/// Attributes that forbid a merge as text, or name a driver, are the user's word and are kept.
fn apply_attributes(quarantine: &Quarantine, base: &str, pairs: &mut [Pair<'_>]) -> Result<(), IntegrateError> {
    let edited: BTreeSet<&RepoPath> =
        pairs.iter().filter(|pair| pair.clash == Clash::Content).map(|pair| pair.path).collect();
    let values = attribute(quarantine, base, "merge", edited.into_iter())?;
    for pair in pairs.iter_mut().filter(|pair| pair.clash == Clash::Content) {
        pair.clash = match values.get(pair.path).map(String::as_str) {
            Some("unset" | "binary") => Clash::Unmergeable,
            None | Some("unspecified" | "set" | "text" | "union") => Clash::Content,
            Some(_) => Clash::Driver,
        };
        pair.need = pair.clash.need();
    }
    Ok(())
}

/// A name that is a file for one side and a directory for another.
fn directory_clashes(sides: &[Side], found: &mut Combination) {
    for (at, side) in sides.iter().enumerate() {
        for (path, _) in side.changes.iter().filter(|(_, change)| change.new.is_some()) {
            for other in sides.iter().enumerate().filter(|(other, _)| *other != at).map(|(_, other)| other) {
                let below = other.changes.range(path.as_prefix()..).take_while(|(below, _)| below.is_below(path));
                let Some((below, _)) = below.into_iter().find(|(_, change)| change.new.is_some()) else { continue };
                let mut parties = parties_of(path, [side]);
                parties.extend(parties_of(below, [other]));
                let kind = ConflictKind::FileDirectory;
                let why = format!("{} ({below})", kind.sentence());
                found.conflicts.push(Conflict { path: path.to_string(), parties, kind, why, regions: Vec::new() });
            }
        }
    }
}

/// The sides that had to be merged, and what they come to together.
#[derive(Default)]
struct MergedSides {
    sides: BTreeSet<usize>,
    changes: TreeChanges,
}

fn merge_components(
    quarantine: &Quarantine,
    base: &str,
    sides: &[Side],
    pairs: &[Pair<'_>],
    found: &mut Combination,
) -> Result<MergedSides, IntegrateError> {
    let mut all = MergedSides::default();
    let components = components(sides.len(), pairs);
    if components.is_empty() {
        return Ok(all);
    }
    let base = Base::of(quarantine, base)?;
    for component in components {
        let mut tree = sides[component[0]].tree.clone();
        let mut clean = true;
        for &at in &component[1..] {
            let step = base.merge(&tree, &sides[at].tree)?;
            clean &= step.conflicts.is_empty();
            tree = step.tree;
        }
        if !clean {
            blame_pairs(&base, sides, &component, pairs, found)?;
            continue;
        }
        let together = changes(quarantine, base.tree(), &tree)?;
        found.overlaps.extend(carried(sides, &component, &together));
        all.sides.extend(component);
        all.changes.extend(together);
    }
    Ok(all)
}

/// Groups of sides that overlap, directly or by way of others; each in order.
fn components(count: usize, pairs: &[Pair<'_>]) -> Vec<Vec<usize>> {
    let mut group: Vec<usize> = (0..count).collect();
    for pair in pairs.iter().filter(|pair| pair.need == Need::Merge) {
        let (from, to) = (group[pair.first].max(group[pair.second]), group[pair.first].min(group[pair.second]));
        for entry in &mut group {
            if *entry == from {
                *entry = to;
            }
        }
    }
    let members = |leader: usize| (0..count).filter(|at| group[*at] == leader).collect::<Vec<_>>();
    (0..count).map(members).filter(|members| members.len() > 1).collect()
}

/// Names the pairs that are at odds, each merged alone: the same whatever the order of the sides.
fn blame_pairs(
    base: &Base<'_>,
    sides: &[Side],
    component: &[usize],
    pairs: &[Pair<'_>],
    found: &mut Combination,
) -> Result<(), IntegrateError> {
    let before = found.conflicts.len();
    let merging: BTreeSet<(usize, usize)> = pairs
        .iter()
        .filter(|pair| pair.need == Need::Merge && component.contains(&pair.first))
        .map(|pair| (pair.first, pair.second))
        .collect();
    for (first, second) in merging {
        let step = base.merge(&sides[first].tree, &sides[second].tree)?;
        report(base.quarantine(), sides, &[first, second], pairs, &step, found)?;
    }
    if found.conflicts.len() == before && !has_stuck_pair(component, pairs) {
        blame_all(base, sides, component, pairs, found)?;
    }
    Ok(())
}

/// Whether a conflict between two of them is known without a merge.
fn has_stuck_pair(component: &[usize], pairs: &[Pair<'_>]) -> bool {
    pairs
        .iter()
        .any(|pair| pair.need == Need::Conflict && component.contains(&pair.first) && component.contains(&pair.second))
}

/// No two of them are at odds, only more together.
fn blame_all(
    base: &Base<'_>,
    sides: &[Side],
    component: &[usize],
    pairs: &[Pair<'_>],
    found: &mut Combination,
) -> Result<(), IntegrateError> {
    let mut tree = sides[component[0]].tree.clone();
    for (count, &at) in component.iter().enumerate().skip(1) {
        let step = base.merge(&tree, &sides[at].tree)?;
        report(base.quarantine(), sides, &component[..=count], pairs, &step, found)?;
        tree = step.tree;
    }
    Ok(())
}

fn report(
    quarantine: &Quarantine,
    sides: &[Side],
    who: &[usize],
    pairs: &[Pair<'_>],
    step: &Merged,
    found: &mut Combination,
) -> Result<(), IntegrateError> {
    for path in &step.conflicts {
        let known =
            pairs.iter().find(|pair| pair.path == path && who.contains(&pair.first) && who.contains(&pair.second));
        if known.is_some_and(|pair| pair.need == Need::Conflict) {
            continue;
        }
        let regions = regions(quarantine, &step.tree, path)?;
        let kind = match known.map(|pair| pair.clash.conflict_kind()) {
            Some(ConflictKind::Content) if regions.is_empty() => ConflictKind::Unmergeable,
            Some(kind) => kind,
            None => ConflictKind::Rename,
        };
        let mut parties = parties_of(path, who.iter().map(|at| &sides[*at]));
        if parties.len() < 2 {
            // A rename brought them together here: all that take part in the merge are named.
            let all = who.iter().flat_map(|at| sides[*at].parties.values().flatten());
            parties = all.cloned().collect::<BTreeSet<_>>().into_iter().collect();
        }
        let why = kind.sentence().to_owned();
        found.conflicts.push(Conflict { path: path.to_string(), parties, kind, why, regions });
    }
    Ok(())
}

/// Paths where a clean merge did something that no side asked for there: edits carried across renames.
fn carried(sides: &[Side], component: &[usize], together: &TreeChanges) -> Vec<Overlap> {
    let members = || component.iter().map(|at| &sides[*at]);
    let mut paths: BTreeSet<&RepoPath> = together.keys().collect();
    paths.extend(members().flat_map(|side| side.changes.keys()));
    let is_carried = |path: &RepoPath| {
        let mut wanted: Vec<Option<&Entry>> =
            members().filter_map(|side| side.changes.get(path)).map(|change| change.new.as_ref()).collect();
        wanted.dedup();
        let got = together.get(path).map(|change| change.new.as_ref());
        match wanted.as_slice() {
            [] => true,
            [one] => got.is_none_or(|got| got != *one),
            _ => false,
        }
    };
    let overlap = |path: &RepoPath| Overlap {
        path: path.to_string(),
        parties: members()
            .flat_map(|side| side.parties.values().flatten())
            .cloned()
            .collect::<BTreeSet<_>>()
            .into_iter()
            .collect(),
        kind: OverlapKind::EditAcrossRename,
        blocks: true,
        edits: Vec::new(),
    };
    paths.into_iter().filter(|path| is_carried(path)).map(overlap).collect()
}
