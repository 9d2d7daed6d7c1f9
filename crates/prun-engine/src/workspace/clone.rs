//! A throwaway clone: a git directory of its own that borrows objects from the mirror, and a checkout of
//! the base. It has no remote, no hook, no filter, and knows no path of the user's repository.

use std::collections::BTreeMap;
use std::fs::{self, FileTimes};
use std::path::{Path, PathBuf};

use super::gitdir::{GitDir, packed_refs};
use super::mirror::Mirror;
use super::store::Store;
use super::{Base, WorkspaceError};
use crate::files::FileError;

/// A clone to make. Several may be made at once.
#[derive(Clone, Debug)]
pub struct ClonePlan<'a> {
    /// The run's store.
    pub store: &'a Store,
    /// The mirror that holds the base.
    pub mirror: &'a Mirror,
    /// The base.
    pub base: &'a Base,
    /// Where the clone goes; must not be there.
    pub dir: &'a Path,
    /// Where a copy of its index goes, outside the worker's reach. A list of its refs goes beside it.
    pub trusted_index: &'a Path,
}

/// Makes the clone.
///
/// # Errors
/// The place is taken, the disk is full, or git cannot check the base out.
pub fn prepare(plan: &ClonePlan<'_>) -> Result<(), WorkspaceError> {
    if plan.dir.symlink_metadata().is_ok() {
        return Err(WorkspaceError::Exists(plan.dir.to_owned()));
    }
    crate::files::create_private_dir(plan.dir)?;
    let facts = &plan.store.facts;
    let refs = refs(plan);
    let git_dir = plan.dir.join(".git");
    GitDir {
        object_format: &facts.object_format,
        settings: settings(plan.store),
        head: &facts.branch,
        refs: refs.clone(),
        alternates: vec![plan.mirror.objects()],
        exclude: &facts.settings.local_exclude,
        attributes: &facts.settings.attributes,
        shallow: facts.shallow.as_deref(),
        ..GitDir::default()
    }
    .write(&git_dir)?;
    plan.store
        .git
        .command(["read-tree", "-m", "-u", plan.base.commit.as_str()])
        .git_dir(&git_dir)
        .work_tree(plan.dir)
        .dir(plan.dir)
        .env("GIT_ALLOW_PROTOCOL", "none")
        .run()?;
    copy_index(&git_dir.join("index"), plan.trusted_index)?;
    let list = trusted_refs(plan.trusted_index);
    fs::write(&list, packed_refs(&refs)).map_err(FileError::at("write", &list))?;
    Ok(())
}

/// The list of refs that a clone was made with, beside its trusted index.
pub(super) fn trusted_refs(trusted_index: &Path) -> PathBuf {
    trusted_index.with_extension("refs")
}

/// Copies an index with its time: a file that changed in the same tick as the index was written is told by
/// that time.
pub(super) fn copy_index(from: &Path, to: &Path) -> Result<(), FileError> {
    fs::copy(from, to).map_err(FileError::at("copy", from))?;
    let time = fs::metadata(from).and_then(|meta| meta.modified()).map_err(FileError::at("read", from))?;
    let set = |file: fs::File| file.set_times(FileTimes::new().set_modified(time));
    fs::OpenOptions::new().write(true).open(to).and_then(set).map_err(FileError::at("write", to))
}

/// The user's local branches where they were, and the current one at the base.
fn refs(plan: &ClonePlan<'_>) -> BTreeMap<String, String> {
    let mut refs = plan.mirror.branches.clone();
    refs.insert(plan.store.facts.branch.clone(), plan.base.commit.clone());
    refs
}

/// A worker can commit under the user's name; its git starts no background job, asks for no signing key and
/// watches no files.
fn settings(store: &Store) -> BTreeMap<String, String> {
    let user = &store.facts.settings;
    let mut settings = store.facts.repository_settings();
    let own = [
        ("user.name", user.user_name.as_deref().unwrap_or("prun")),
        ("user.email", user.user_email.as_deref().unwrap_or("prun@localhost")),
        ("commit.gpgsign", "false"),
        ("tag.gpgsign", "false"),
        ("gc.auto", "0"),
        ("maintenance.auto", "false"),
        ("core.fsmonitor", "false"),
    ];
    settings.extend(own.map(|(key, value)| (key.to_owned(), value.to_owned())));
    settings
}
