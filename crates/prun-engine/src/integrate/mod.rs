//! Combines what units changed, checks it, and lands it in the user's working tree: all or nothing.
//!
//! It never commits and never touches HEAD, refs or the index. The user's edits, commits and untracked
//! files are a side of the combination; their bytes survive. [`prepare`] says what would happen and changes
//! nothing; [`Prepared::verify`] checks the combination; [`land::land`] puts it into the working tree.

mod add_lines;
mod attribute;
pub mod combine;
mod edits;
mod exchange;
pub mod journal;
pub mod land;
mod merge;
mod obstacle;
pub mod overlap;
pub mod path;
mod plan;
pub mod prepare;
pub mod quarantine;
pub mod resolve;
pub mod root;
pub mod side;
pub mod stage;
pub mod tree;
mod verify;

#[cfg(test)]
mod tests;

use prun_core::ids::UnitId;

pub use self::add_lines::add_lines;
pub use self::land::LandError;
use self::path::RepoPath;
pub use self::prepare::{DryRun, Landed, Prepared, Request, Verified, prepare};
pub use self::quarantine::Target;
pub use self::verify::Check;
use crate::files::FileError;
use crate::git::GitError;

/// Why nothing could be combined. Conflicts are no error: they are part of a [`DryRun`].
#[derive(Debug, thiserror::Error)]
pub enum IntegrateError {
    /// A precondition does not hold.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// A unit's tree holds a path that no worker may bring.
    #[error("unit {unit} brings the path {path:?}, which is refused: {why}", path = path.to_string())]
    Hazard {
        /// The unit.
        unit: UnitId,
        /// The path.
        path: RepoPath,
        /// Why.
        why: &'static str,
    },
    /// A file changed while it was read. Try again.
    #[error("{path} changed while it was read; nothing was changed, try again")]
    Moving {
        /// The path.
        path: RepoPath,
    },
    /// The landing did not come to its end.
    #[error(transparent)]
    Land(#[from] LandError),
    /// Git failed.
    #[error(transparent)]
    Git(#[from] GitError),
    /// A file operation failed.
    #[error(transparent)]
    File(#[from] FileError),
}

/// A precondition of integrating that does not hold. Nothing was changed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The repository is in the middle of something.
    #[error("the repository is in the middle of a {0}")]
    InTheMiddle(&'static str),
    /// The index holds unmerged paths.
    #[error("the index holds unmerged paths: {}", .0.join(", "))]
    Unmerged(Vec<String>),
    /// No unit brings a change, or all of it is in the working tree already.
    #[error("there is nothing to land")]
    NothingToLand,
    /// Everything that these units change is in the working tree already.
    #[error("already in the working tree: {}", .0.iter().map(UnitId::as_str).collect::<Vec<_>>().join(", "))]
    AppliedBefore(Vec<UnitId>),
    /// What would land is not what was shown.
    #[error("what would land is tree {now}, not the tree {shown} that was shown")]
    NotAsShown {
        /// The tree that the user named.
        shown: String,
        /// The tree that it would be now.
        now: String,
    },
    /// Conflict markers are left in a merge workspace.
    #[error("conflict markers are left in {}", .0.join(", "))]
    Unresolved(Vec<String>),
    /// There are conflicts, or overlaps that nobody accepted.
    #[error("there are conflicts or overlaps that were not accepted")]
    Conflicts,
}

impl IntegrateError {
    /// What the user may do about it, where there is something.
    #[must_use]
    pub fn hint(&self) -> Option<&'static str> {
        match self {
            Self::Refused(refusal) => Some(refusal.hint()),
            Self::Hazard { .. } => Some("exclude the unit, or retry it"),
            Self::Moving { .. } => Some("try again when nothing writes there"),
            Self::Land(LandError::Conflict { .. }) => Some("look at the path, then make a new dry run"),
            Self::Land(LandError::ChangedSince { .. }) => Some("commit or take back what was done to them since"),
            Self::Land(_) | Self::Git(_) | Self::File(_) => None,
        }
    }
}

impl Refusal {
    /// What the user may do about it.
    #[must_use]
    pub fn hint(&self) -> &'static str {
        match self {
            Self::InTheMiddle(_) | Self::Unmerged(_) => "finish or abort that first; git status tells how",
            Self::NothingToLand => "the units changed nothing that is not there already",
            Self::AppliedBefore(_) => "exclude them to land the others",
            Self::NotAsShown { .. } => "the working tree or the units changed since: make a new dry run",
            Self::Unresolved(_) => "resolve them in the merge workspace, then continue",
            Self::Conflicts => "exclude a unit, accept the overlap, or resolve the conflicts by hand",
        }
    }
}
