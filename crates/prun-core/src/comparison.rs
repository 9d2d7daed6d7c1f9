//! The members of a panel beside each other, as data.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::Serialize;

use crate::outcome::{ChangeKind, FileChange, Usage};
use crate::panel::{Choice, Panel};
use crate::time::Timestamp;
use crate::unit::Unit;
use crate::view::{UnitView, VIEW_VERSION};

/// The members of a panel beside each other.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct CompareView {
    /// [`VIEW_VERSION`].
    pub version: u32,
    /// The run's short name.
    pub run: String,
    /// The panel.
    pub panel: String,
    /// The member that lands, where the user has said so.
    pub chosen: Option<String>,
    /// Each member, in the plan's order.
    pub members: Vec<MemberView>,
    /// Each file that a member changed, sorted by path.
    pub files: Vec<FileRow>,
    /// Files that are left out here.
    pub files_left_out: usize,
}

/// A member of a panel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct MemberView {
    /// Where it stands.
    #[serde(flatten)]
    pub unit: UnitView,
    /// The model, where it is known.
    pub model: Option<String>,
    /// Whether its own check passed; `None`: it has none, or it did not run.
    pub check_passed: Option<bool>,
    /// What all its attempts used.
    pub usage: Usage,
    /// The tree it made: members with the same one changed the same. `None`: nothing was harvested.
    pub tree: Option<String>,
    /// Its result. `None`: it has none, or it was not asked for.
    pub result: Option<Text>,
}

/// A file that members changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct FileRow {
    /// Its path in the repository.
    pub path: String,
    /// What each member made of it that changed it.
    pub changes: Vec<MemberChange>,
}

/// What a member made of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct MemberChange {
    /// The member.
    pub unit: String,
    /// What happened to the file.
    pub kind: ChangeKind,
    /// Lines added; `None` for binary files.
    pub added: Option<u64>,
    /// Lines removed; `None` for binary files.
    pub removed: Option<u64>,
    /// The patch. `None`: it was not asked for, or there was no room for it.
    pub patch: Option<Text>,
}

/// A text, or its beginning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Text {
    /// The text; bytes that are no UTF-8 are replaced.
    pub text: String,
    /// Bytes of all of it.
    pub bytes: u64,
    /// Only its beginning.
    pub cut: bool,
}

impl Text {
    /// The first `most` bytes of a text.
    #[must_use]
    pub fn beginning(bytes: &[u8], most: usize) -> Self {
        let shown = &bytes[..bytes.len().min(most)];
        Self {
            text: String::from_utf8_lossy(shown).into_owned(),
            bytes: bytes.len() as u64,
            cut: shown.len() < bytes.len(),
        }
    }
}

impl CompareView {
    /// The members beside each other, without results and patches; at most `files` files.
    #[must_use]
    pub fn of(panel: &Panel<'_>, run: &str, now: Timestamp, files: usize) -> Self {
        let mut rows = rows(panel);
        let files_left_out = rows.len().saturating_sub(files);
        rows.truncate(files);
        Self {
            version: VIEW_VERSION,
            run: run.to_owned(),
            panel: panel.name.to_string(),
            chosen: match panel.choice() {
                Choice::Member(unit) => Some(unit.to_string()),
                Choice::Open | Choice::Nobody | Choice::Several(_) => None,
            },
            members: panel.members.iter().map(|unit| member(unit, now)).collect(),
            files: rows,
            files_left_out,
        }
    }
}

fn member(unit: &Unit, now: Timestamp) -> MemberView {
    let facts = unit.facts();
    let all = unit.attempts.iter().filter_map(|attempt| attempt.facts.as_ref()?.usage);
    MemberView {
        unit: UnitView::of(unit, now),
        model: facts.and_then(|facts| facts.model.clone()),
        check_passed: facts.and_then(|facts| facts.verify.as_ref()).map(|check| check.ok),
        usage: all.fold(Usage::default(), |sum, usage| sum.plus(&usage)),
        tree: facts.and_then(|facts| facts.changes.as_ref()).map(|changes| changes.tree.clone()),
        result: None,
    }
}

fn rows(panel: &Panel<'_>) -> Vec<FileRow> {
    let mut rows: BTreeMap<&str, Vec<MemberChange>> = BTreeMap::new();
    for unit in &panel.members {
        let changes = unit.facts().and_then(|facts| facts.changes.as_ref());
        for FileChange { path, kind, added, removed } in changes.into_iter().flat_map(|changes| &changes.files) {
            rows.entry(path).or_default().push(MemberChange {
                unit: unit.setup.id.to_string(),
                kind: *kind,
                added: *added,
                removed: *removed,
                patch: None,
            });
        }
    }
    rows.into_iter().map(|(path, changes)| FileRow { path: path.to_owned(), changes }).collect()
}
