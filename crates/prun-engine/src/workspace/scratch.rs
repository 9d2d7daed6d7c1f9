//! A scratch directory for a read unit: empty, or with a checkout of the base at `repo/`.

use std::path::{Path, PathBuf};

use super::clone::{self, ClonePlan};
use super::mirror::Mirror;
use super::store::Store;
use super::template::Template;
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
    /// A checkout to copy, where one of this base is at hand.
    pub template: Option<&'a Template>,
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
    let Some(&Checkout { store, mirror, base, trusted_index, template }) = checkout else { return Ok(None) };
    let repo = dir.join(CHECKOUT);
    clone::prepare(&ClonePlan { store, mirror, base, dir: &repo, trusted_index, template })?;
    Ok(Some(repo))
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::mirror;
    use super::super::testing::{Fixture, gits, letters, put, state_of};
    use super::*;
    use crate::spec::HarvestSpec;

    #[test]
    fn a_scratch_is_empty_or_has_a_checkout_of_which_edits_are_seen() {
        for git in gits() {
            let fixture = Fixture::new(&git);
            let before = state_of(&fixture.repo);
            let source = fixture.source();
            let base = source.resolve("HEAD").unwrap();
            let store = Store::create(&fixture.temp.path().join("store.git"), &source).unwrap();
            let mirror = mirror::ensure(&fixture.home(), &store, &base).unwrap();
            let empty = fixture.temp.path().join("empty");
            assert_eq!(prepare(&empty, None).unwrap(), None);
            assert_eq!(fs::read_dir(&empty).unwrap().count(), 0);
            assert!(matches!(prepare(&empty, None), Err(WorkspaceError::Exists(_))));

            let (dir, trusted_index) = (fixture.temp.path().join("scratch"), fixture.temp.path().join("index"));
            let (trusted, template) = (&trusted_index, None);
            let checkout = Checkout { store: &store, mirror: &mirror, base: &base, trusted_index: trusted, template };
            let repo = prepare(&dir, Some(&checkout)).unwrap().unwrap();
            assert_eq!(fs::read(repo.join("README")).unwrap(), b"hello\n");
            put(&repo.join("README"), "edited");
            put(&dir.join("notes"), "beside the checkout");
            let spec = HarvestSpec {
                work_tree: repo,
                store: store.git_dir.clone(),
                trusted_index,
                base_tree: base.tree,
                base: base.commit,
                exclude: Vec::new(),
            };
            assert_eq!(letters(&super::super::harvest::harvest(&git, &spec).unwrap()), ["M README"]);
            assert!(state_of(&fixture.repo) == before);
        }
    }
}
