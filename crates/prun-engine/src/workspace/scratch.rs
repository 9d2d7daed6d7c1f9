//! A scratch directory for a read unit: empty, or with a checkout of the base at `repo/`.

use std::path::{Path, PathBuf};

use super::clone::{self, ClonePlan};
use super::mirror::Mirror;
use super::store::Store;
use super::{Base, WorkspaceError};
use crate::files::create_private_dir;

/// The checkout's name in a scratch directory.
pub const CHECKOUT: &str = "repo";

/// What the checkout in a scratch directory is made from.
#[derive(Clone, Debug)]
pub struct Checkout<'a> {
    /// The run's store.
    pub store: &'a Store,
    /// The mirror that holds the base.
    pub mirror: &'a Mirror,
    /// The base.
    pub base: &'a Base,
    /// Where a copy of its index goes.
    pub trusted_index: &'a Path,
}

/// Makes the scratch directory `dir` and returns the checkout's place, where there is one.
///
/// # Errors
/// As for a clone.
pub fn prepare(dir: &Path, checkout: Option<&Checkout<'_>>) -> Result<Option<PathBuf>, WorkspaceError> {
    if dir.symlink_metadata().is_ok() {
        return Err(WorkspaceError::Exists(dir.to_owned()));
    }
    create_private_dir(dir)?;
    let Some(Checkout { store, mirror, base, trusted_index }) = checkout else { return Ok(None) };
    let repo = dir.join(CHECKOUT);
    clone::prepare(&ClonePlan { store, mirror, base, dir: &repo, trusted_index })?;
    Ok(Some(repo))
}
