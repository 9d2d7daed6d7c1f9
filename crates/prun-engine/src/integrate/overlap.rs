//! Words for what several sides do to one path, and what their changes alone tell of it.

use prun_core::ids::UnitId;
use serde::Serialize;

use super::tree::{Change, Entry, GITLINK};

/// Whose change it is. The user comes first wherever sides are ordered.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, schemars::JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Party {
    /// The working tree as it is.
    You,
    /// A unit.
    Unit(UnitId),
}

impl Party {
    /// The unit, where it is one.
    #[must_use]
    pub fn unit(&self) -> Option<UnitId> {
        match self {
            Self::Unit(unit) => Some(unit.clone()),
            Self::You => None,
        }
    }
}

/// A path that two sides change and that could be combined.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, schemars::JsonSchema)]
pub struct Overlap {
    /// The path, lossy where not UTF-8.
    pub path: String,
    /// Who changes it.
    pub parties: Vec<Party>,
    /// In what way they overlap.
    pub kind: OverlapKind,
    /// It keeps the combination from landing until the user accepts it by its path.
    pub blocks: bool,
    /// What each edits in a text, at most 50 edits a side: lines of the file as it was before.
    pub edits: Vec<Edit>,
}

/// Lines that are edited.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, schemars::JsonSchema)]
pub struct Edit {
    /// The first line, from 1.
    pub line: u32,
    /// How many; with 0, lines are put in behind `line`.
    pub lines: u32,
    /// Who edits them.
    pub parties: Vec<Party>,
}

/// How changes overlap that could be combined.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, schemars::JsonSchema)]
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
    pub(super) fn blocks(self) -> bool {
        !matches!(self, Self::Same | Self::Content)
    }
}

/// A path that cannot be combined.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, schemars::JsonSchema)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, schemars::JsonSchema)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, schemars::JsonSchema)]
pub struct Region {
    /// Line of the opening marker, from 1.
    pub line: u32,
    /// Lines of the first party.
    pub first: u32,
    /// Lines of the second party.
    pub second: u32,
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

/// What two sides do to one path, from their changes alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Clash {
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
pub(super) enum Need {
    Nothing,
    Merge,
    Conflict,
}

impl Clash {
    pub(super) fn of(first: &Change, second: &Change) -> Self {
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

    pub(super) fn need(self) -> Need {
        match self {
            Self::Same => Need::Nothing,
            // Git tells whether both renamed it, to different places.
            Self::BothDeleted | Self::Content | Self::EditDelete | Self::ModeAgainstContent | Self::Driver => {
                Need::Merge
            }
            Self::BothAdded | Self::TypeChanged | Self::Submodule | Self::Unmergeable => Need::Conflict,
        }
    }

    pub(super) fn overlap_kind(self) -> Option<OverlapKind> {
        match self {
            Self::Same | Self::BothDeleted => Some(OverlapKind::Same),
            Self::Content => Some(OverlapKind::Content),
            Self::EditDelete => Some(OverlapKind::EditDelete),
            Self::ModeAgainstContent => Some(OverlapKind::ModeAgainstContent),
            Self::Driver => Some(OverlapKind::DriverNotRun),
            Self::BothAdded | Self::TypeChanged | Self::Submodule | Self::Unmergeable => None,
        }
    }

    pub(super) fn conflict_kind(self) -> ConflictKind {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_alone_tell_how_two_sides_clash() {
        let entry = |text: &str| {
            let (mode, oid) = text.split_once(' ')?;
            Some(Entry { mode: u32::from_str_radix(mode, 8).unwrap(), oid: oid.to_owned() })
        };
        for (old, first, second, expected) in [
            ("100644 a", "100644 b", "100644 b", Clash::Same),
            ("", "100644 b", "100644 b", Clash::Same),
            ("", "100644 b", "100644 c", Clash::BothAdded),
            ("", "100644 b", "100755 b", Clash::BothAdded),
            ("100644 a", "", "", Clash::BothDeleted),
            ("100644 a", "", "100644 b", Clash::EditDelete),
            ("100644 a", "100644 b", "100644 c", Clash::Content),
            ("100644 a", "100755 b", "100644 c", Clash::Content),
            ("100644 a", "100755 a", "100644 c", Clash::ModeAgainstContent),
            ("100644 a", "100755 a", "100755 c", Clash::ModeAgainstContent),
            ("100644 a", "120000 b", "100644 c", Clash::TypeChanged),
            ("100644 a", "120000 b", "120000 c", Clash::TypeChanged),
            ("120000 a", "120000 b", "120000 c", Clash::Content),
            ("160000 a", "160000 b", "160000 c", Clash::Submodule),
            ("160000 a", "", "160000 c", Clash::Submodule),
            ("160000 a", "100644 b", "160000 c", Clash::Submodule),
        ] {
            let first = Change { old: entry(old), new: entry(first) };
            let second = Change { old: entry(old), new: entry(second) };
            assert_eq!(Clash::of(&first, &second), expected, "{first:?} {second:?}");
            assert_eq!(Clash::of(&second, &first), expected, "{second:?} {first:?}");
        }
    }
}
