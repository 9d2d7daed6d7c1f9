//! Puts several sides together over one base: disjoint changes are spliced, overlaps are merged by git.
//!
//! The sides are the units; then the user's working tree and the combined units. What git would pass over
//! in silence (an edit carried across a rename, a mode against a content) is reported all the same.

use std::collections::{BTreeMap, BTreeSet};

use prun_core::ids::UnitId;
use serde::Serialize;

use super::IntegrateError;
use super::merge::{Merged, merge, regions};
use super::path::RepoPath;
use super::quarantine::Quarantine;
use super::tree::{Change, Entry, GITLINK, TreeChanges, changes, nul_list, splice};

/// Whose change it is. The user comes first wherever sides are ordered.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Party {
    /// The working tree as it is.
    You,
    /// A unit.
    Unit(UnitId),
}

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

/// A path that two sides change and that could be combined.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Overlap {
    /// The path, lossy where not UTF-8.
    pub path: String,
    /// Who changes it.
    pub parties: Vec<Party>,
    /// In what way they overlap.
    pub kind: OverlapKind,
    /// It keeps the combination from landing until the user accepts it by its path.
    pub blocks: bool,
}

/// How changes overlap that could be combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum OverlapKind {
    /// All make the same change.
    Same,
    /// Different lines of one file.
    Content,
    /// One changes the mode, another the content.
    ModeAgainstContent,
    /// One deletes or renames what another edits; git carried the edit elsewhere.
    EditDelete,
    /// An edit that git carried to this path across a rename.
    EditAcrossRename,
    /// Attributes name a merge driver of the user's, which was not run.
    DriverNotRun,
}

impl OverlapKind {
    fn blocks(self) -> bool {
        !matches!(self, Self::Same | Self::Content)
    }
}

/// A path that cannot be combined.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Conflict {
    /// The path, lossy where not UTF-8.
    pub path: String,
    /// Who is at odds.
    pub parties: Vec<Party>,
    /// Over what.
    pub kind: ConflictKind,
    /// In a sentence.
    pub why: String,
    /// The regions of a text that clash.
    pub regions: Vec<Region>,
}

/// Why changes cannot be combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum ConflictKind {
    /// The same lines of a text.
    Content,
    /// Both add it, with different content.
    BothAdded,
    /// One deletes what another edits.
    EditDelete,
    /// A file for one, a link or a submodule for another.
    TypeChanged,
    /// A file for one, a directory for another.
    FileDirectory,
    /// Attributes say that it must not be merged as text, or it is binary.
    Unmergeable,
    /// Renamed in different ways.
    Rename,
    /// A submodule: a work tree alone cannot carry its change.
    Submodule,
    /// Two names that the user's file system takes for one.
    CaseClash,
    /// Something that git does not know stands in the way.
    InTheWay,
    /// Written through a filter of the user's, which is not run.
    Filter,
}

/// A clash inside a text, in the text with conflict markers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Region {
    /// Line of the opening marker, from 1.
    pub line: u32,
    /// Lines of the first party.
    pub first: u32,
    /// Lines of the second party.
    pub second: u32,
}

/// What came of putting sides together.
#[derive(Clone, Debug, Default)]
pub struct Combination {
    /// The combined tree; `None` where there are conflicts.
    pub tree: Option<String>,
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
    let mut sides = Vec::new();
    let mut units: Vec<&(UnitId, String)> = units.iter().collect();
    units.sort();
    for (unit, tree) in units {
        let changes = changes(quarantine, base_tree, tree)?;
        refuse_hazards(unit, &changes)?;
        let parties = changes.keys().map(|path| (path.clone(), vec![Party::Unit(unit.clone())])).collect();
        sides.push(Side { parties, tree: tree.clone(), changes });
    }
    combine_sides(quarantine, base_tree, &sides)
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
    for pair in pairs.iter().filter(|pair| pair.need != Need::Conflict) {
        found.overlaps.extend(pair.overlap(sides));
    }
    tidy(&mut found);
    if found.conflicts.is_empty() {
        let alone = sides.iter().enumerate().filter(|(at, _)| !merged.sides.contains(at)).map(|(_, side)| side);
        let all = alone.flat_map(|side| &side.changes).chain(&merged.changes);
        found.tree = Some(splice(quarantine, base, all.map(|(path, change)| (path, change.new.as_ref())))?);
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

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Clash {
    Same,
    BothDeleted,
    Content,
    EditDelete,
    ModeAgainstContent,
    BothAdded,
    TypeChanged,
    Submodule,
    Unmergeable,
    Driver,
}

/// What has to be done about a pair.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Need {
    Nothing,
    Merge,
    Conflict,
}

impl Clash {
    fn of(first: &Change, second: &Change) -> Self {
        let (Some(a), Some(b)) = (&first.new, &second.new) else {
            return match (&first.new, &second.new) {
                (None, None) => Self::BothDeleted,
                _ if is_gitlink(first) || is_gitlink(second) => Self::Submodule,
                _ => Self::EditDelete,
            };
        };
        let Some(old) = first.old.as_ref().filter(|_| a != b) else {
            return if a == b { Self::Same } else { Self::BothAdded };
        };
        if is_gitlink(first) || is_gitlink(second) {
            return Self::Submodule;
        }
        if a.file_type() != b.file_type() || a.file_type() != old.file_type() {
            return Self::TypeChanged;
        }
        let only_mode = |new: &Entry| new.oid == old.oid;
        if only_mode(a) != only_mode(b) { Self::ModeAgainstContent } else { Self::Content }
    }

    fn need(self) -> Need {
        match self {
            Self::Same => Need::Nothing,
            // Git tells whether both renamed it, to different places.
            Self::BothDeleted | Self::Content | Self::EditDelete | Self::ModeAgainstContent | Self::Driver => {
                Need::Merge
            }
            Self::BothAdded | Self::TypeChanged | Self::Submodule | Self::Unmergeable => Need::Conflict,
        }
    }

    fn overlap_kind(self) -> Option<OverlapKind> {
        match self {
            Self::Same | Self::BothDeleted => Some(OverlapKind::Same),
            Self::Content => Some(OverlapKind::Content),
            Self::EditDelete => Some(OverlapKind::EditDelete),
            Self::ModeAgainstContent => Some(OverlapKind::ModeAgainstContent),
            Self::Driver => Some(OverlapKind::DriverNotRun),
            Self::BothAdded | Self::TypeChanged | Self::Submodule | Self::Unmergeable => None,
        }
    }

    fn conflict_kind(self) -> ConflictKind {
        match self {
            Self::BothAdded => ConflictKind::BothAdded,
            Self::TypeChanged => ConflictKind::TypeChanged,
            Self::Submodule => ConflictKind::Submodule,
            Self::Unmergeable => ConflictKind::Unmergeable,
            Self::EditDelete => ConflictKind::EditDelete,
            Self::BothDeleted => ConflictKind::Rename,
            Self::Same | Self::Content | Self::ModeAgainstContent | Self::Driver => ConflictKind::Content,
        }
    }
}

fn is_gitlink(change: &Change) -> bool {
    [&change.old, &change.new].into_iter().flatten().any(|entry| entry.mode == GITLINK)
}

impl Pair<'_> {
    fn parties(&self, sides: &[Side]) -> Vec<Party> {
        parties_of(self.path, [&sides[self.first], &sides[self.second]])
    }

    fn conflict(&self, sides: &[Side], kind: ConflictKind, regions: Vec<Region>) -> Conflict {
        let why = kind.sentence().to_owned();
        Conflict { path: self.path.to_string(), parties: self.parties(sides), kind, why, regions }
    }

    fn overlap(&self, sides: &[Side]) -> Option<Overlap> {
        let kind = self.clash.overlap_kind()?;
        let (path, parties) = (self.path.to_string(), self.parties(sides));
        Some(Overlap { path, parties, kind, blocks: kind.blocks() })
    }
}

fn parties_of<'a>(path: &RepoPath, sides: impl IntoIterator<Item = &'a Side>) -> Vec<Party> {
    let all: BTreeSet<Party> = sides.into_iter().filter_map(|side| side.parties.get(path)).flatten().cloned().collect();
    all.into_iter().collect()
}

impl ConflictKind {
    /// The kind in a sentence.
    #[must_use]
    pub fn sentence(self) -> &'static str {
        match self {
            Self::Content => "the same lines are changed in different ways",
            Self::BothAdded => "both add it with different content",
            Self::EditDelete => "one deletes what the other edits",
            Self::TypeChanged => "one changes its type (file, link), the other changes it too",
            Self::FileDirectory => "it is a file for one and a directory for the other",
            Self::Unmergeable => "its attributes or its content forbid a merge as text",
            Self::Rename => "it is renamed in different ways",
            Self::Submodule => "a change of a submodule cannot be carried by the working tree alone",
            Self::CaseClash => "the target's file system takes two names for one",
            Self::InTheWay => "something that git does not know stands in the way",
            Self::Filter => "a filter of yours writes this file, and no filter is run",
        }
    }
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

/// The value of an attribute for paths, by the `.gitattributes` of `tree` and the user's own files.
pub(super) fn attribute<'a>(
    quarantine: &Quarantine,
    tree: &str,
    name: &str,
    paths: impl Iterator<Item = &'a RepoPath>,
) -> Result<BTreeMap<RepoPath, String>, IntegrateError> {
    let list = nul_list(paths);
    if list.is_empty() {
        return Ok(BTreeMap::new());
    }
    let index = quarantine.scratch_file("attributes.index");
    quarantine.bare(["read-tree", tree]).index(&index).run()?;
    let dir = quarantine.scratch_file("empty");
    let output =
        quarantine.beside(&dir, ["check-attr", "--cached", "-z", "--stdin", name]).index(&index).input(list).run()?;
    let fields: Vec<&[u8]> = output.fields().collect();
    let value =
        |triple: &[&[u8]]| Some((RepoPath::new(triple.first()?), String::from_utf8_lossy(triple.get(2)?).into()));
    Ok(fields.chunks(3).filter_map(value).collect())
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
    for component in components(sides.len(), pairs) {
        let mut tree = sides[component[0]].tree.clone();
        let mut clean = true;
        for &at in &component[1..] {
            let step = merge(quarantine, base, &tree, &sides[at].tree)?;
            clean &= step.conflicts.is_empty();
            tree = step.tree;
        }
        if !clean {
            blame_pairs(quarantine, base, sides, &component, pairs, found)?;
            continue;
        }
        let together = changes(quarantine, base, &tree)?;
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
    quarantine: &Quarantine,
    base: &str,
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
        let step = merge(quarantine, base, &sides[first].tree, &sides[second].tree)?;
        report(quarantine, sides, &[first, second], pairs, &step, found)?;
    }
    if found.conflicts.len() == before && !has_stuck_pair(component, pairs) {
        blame_all(quarantine, base, sides, component, pairs, found)?;
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
    quarantine: &Quarantine,
    base: &str,
    sides: &[Side],
    component: &[usize],
    pairs: &[Pair<'_>],
    found: &mut Combination,
) -> Result<(), IntegrateError> {
    let mut tree = sides[component[0]].tree.clone();
    for (count, &at) in component.iter().enumerate().skip(1) {
        let step = merge(quarantine, base, &tree, &sides[at].tree)?;
        report(quarantine, sides, &component[..=count], pairs, &step, found)?;
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
    };
    paths.into_iter().filter(|path| is_carried(path)).map(overlap).collect()
}
