//! `prun clone`: the safe clone for users of the old verbs, who need no run. What the harvest must know of it is
//! kept in the home, where the clone's worker does not look.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::files::{Durability, FileError, create_private_dir, read_regular, write_atomically};
use crate::home::Home;
use crate::workspace::clone::{self, ClonePlan};
use crate::workspace::extras::Extras;
use crate::workspace::source::Source;
use crate::workspace::store::Store;
use crate::workspace::{Base, WorkspaceError, mirror};

/// The version of the record.
pub const CLONE_VERSION: u32 = 1;

/// A clone that `prun clone` made.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CloneRecord {
    /// [`CLONE_VERSION`].
    pub version: u32,
    /// Where it is, links resolved.
    pub dir: PathBuf,
    /// The top of the repository it was made from.
    pub repo: PathBuf,
    /// What it was made at.
    pub base: Base,
}

/// A clone that was made.
#[derive(Clone, Debug)]
pub struct Made {
    /// Its record.
    pub record: CloneRecord,
    /// What the user's repository has and it has not.
    pub unseen: Vec<String>,
}

/// Makes a clone of `source` at `base` in `dest`, which must not be there.
///
/// # Errors
/// The place is taken, the disk is full, or git fails. What was half made is removed.
pub fn make(home: &Home, source: &Source, base: &Base, dest: &Path) -> Result<Made, WorkspaceError> {
    if dest.symlink_metadata().is_ok() {
        return Err(WorkspaceError::Exists(dest.to_owned()));
    }
    let parent = dest.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or(Path::new("."));
    std::fs::create_dir_all(parent).map_err(FileError::at("create", parent))?;
    let parent = parent.canonicalize().map_err(FileError::at("open", parent))?;
    let dir = parent.join(dest.file_name().unwrap_or_default());
    let record = CloneRecord { version: CLONE_VERSION, dir, repo: source.top.clone(), base: base.clone() };
    let place = home.clone_record(&record.dir);
    // A clone that stood here before is gone, and what was remembered of it says nothing any more.
    let _ = std::fs::remove_dir_all(&place);
    let made = fill(home, source, &record, &place);
    if made.is_err() {
        for dir in [&record.dir, &place] {
            // The first error is the one to tell.
            let _ = std::fs::remove_dir_all(dir);
        }
    }
    made
}

fn fill(home: &Home, source: &Source, record: &CloneRecord, place: &Path) -> Result<Made, WorkspaceError> {
    let CloneRecord { dir, base, .. } = record;
    create_private_dir(place)?;
    let temp = tempfile::tempdir_in(place).map_err(FileError::at("create a directory in", place))?;
    let store = Store::create(&temp.path().join("store.git"), source)?;
    let mirror = &mirror::ensure(home, &store, base)?;
    let trusted_index = &trusted_index(place);
    clone::prepare(&ClonePlan { store: &store, mirror, base, dir, trusted_index, template: None })?;
    let extras = Extras::find(source, base, &|args| store.command(args.iter().copied()))?;
    extras.add(home, dir, trusted_index)?;
    let text = serde_json::to_vec_pretty(record).expect("plain data with string keys");
    write_atomically(&place.join("clone.json"), &text, Durability::Cached)?;
    Ok(Made { record: record.clone(), unseen: extras.unseen })
}

/// The clone that was made at `dir`, with the directory that holds what is remembered of it.
#[must_use]
pub fn find(home: &Home, dir: &Path) -> Option<(CloneRecord, PathBuf)> {
    let dir = dir.canonicalize().ok()?;
    let place = home.clone_record(&dir);
    let text = read_regular(&place.join("clone.json"), 1 << 20).ok()?;
    let record: CloneRecord = serde_json::from_slice(&text).ok()?;
    (record.version == CLONE_VERSION && record.dir == dir).then_some((record, place))
}

/// The index of a clone as it was made.
#[must_use]
pub fn trusted_index(place: &Path) -> PathBuf {
    place.join("trusted.index")
}
