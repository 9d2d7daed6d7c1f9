//! Where units work, and what they leave there.
//!
//! [`source`] looks at the user's repository and never writes to it; [`store`] is the run's own repository;
//! [`mirror`] holds the objects that clones borrow; [`clone`] and [`scratch`] prepare a unit's workspace,
//! from a [`template`] where many are alike;
//! [`extras`] adds what a tree does not hold; [`guard`] keeps commands from writing to the user's repository;
//! [`harvest`] takes a workspace's changes, running nothing that it names; [`fingerprint`] tells whether somebody
//! touched the user's repository meanwhile.

pub mod clone;
pub mod dirty;
mod encode;
pub mod extras;
pub mod fingerprint;
mod gitdir;
pub mod guard;
pub mod harvest;
mod ignored;
mod index_file;
pub mod mirror;
pub mod patch;
pub mod place;
mod refs;
pub mod scratch;
pub mod settings;
pub mod source;
pub mod store;
pub mod template;
#[cfg(test)]
mod testing;
mod worktree;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::files::FileError;
use crate::git::GitError;

pub use patch::{PatchOptions, patch};
pub use place::{HomeError, MIN_FREE, check_home, check_space, disk_free, filesystem_kind};

/// What a unit's work is compared with: a commit, and its tree.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Base {
    /// The commit id.
    pub commit: String,
    /// The id of its tree.
    pub tree: String,
}

/// A workspace, a store or a mirror that could not be made or read.
#[derive(Debug, thiserror::Error)]
pub enum WorkspaceError {
    /// Git failed.
    #[error(transparent)]
    Git(#[from] GitError),
    /// A file operation failed.
    #[error(transparent)]
    File(#[from] FileError),
    /// A directory that must be new is already there.
    #[error("cannot create {}: it is already there", .0.display())]
    Exists(PathBuf),
    /// What should be one of our stores is none.
    #[error("cannot read the store {}: {why}", path.display())]
    Store {
        /// Where.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// The base differs from HEAD in files that also hold uncommitted work.
    #[error("cannot carry uncommitted work onto {base}: {} also changed between it and HEAD", paths.join(", "))]
    DirtyOnOtherBase {
        /// The base.
        base: String,
        /// The first ten paths.
        paths: Vec<String>,
    },
    /// Files that git or the system refuses to read.
    #[error("cannot read {} in {}", paths.join(", "), dir.display())]
    Unreadable {
        /// The work tree.
        dir: PathBuf,
        /// The first ten paths.
        paths: Vec<String>,
    },
}

impl WorkspaceError {
    pub(crate) fn unexpected(act: &str, what: impl Into<String>) -> Self {
        Self::Git(GitError::Unexpected { act: act.to_owned(), what: what.into() })
    }
}
