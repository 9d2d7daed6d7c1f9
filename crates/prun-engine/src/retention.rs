//! `prun clean`: which workspaces may go. Never the only copy of anything, unless its unit was named.

use std::fs::File;
use std::path::{Path, PathBuf};

use prun_core::ids::UnitId;
use prun_core::outcome::{AttemptFacts, Changes};
use prun_core::run::RunState;
use prun_core::unit::{AttemptRecord, Disposition, Unit};
use rustix::fs::{FlockOperation, flock};
use serde::{Serialize, Serializer};

use crate::driver::{DriverError, read_state};
use crate::files::FileError;
use crate::home::AttemptDir;
use crate::ledger::RunLock;
use crate::remove::{disk_use, processes_in, remove_tree};
use crate::spec::AttemptSpec;
use crate::workshop::Workshop;
use crate::workspace::harvest::harvest;
use crate::workspace::scratch::CHECKOUT;

/// One workspace, or a directory that was left behind.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Item {
    /// Its unit and attempt as `UNIT/ATTEMPT`, or what it is.
    pub name: String,
    /// Where it is, lossy where not UTF-8.
    #[serde(serialize_with = "lossy")]
    #[schemars(with = "String")]
    pub path: PathBuf,
    /// Bytes on the disk.
    pub bytes: u64,
    /// Why it stays; `None`: it may go.
    pub keeps: Option<Keeps>,
}

/// Why a workspace stays.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, schemars::JsonSchema)]
pub struct Keeps {
    /// Why, in a phrase.
    pub why: String,
    /// Naming the unit with `--discard` removes it all the same.
    pub discard: Option<UnitId>,
}

fn lossy<S: Serializer>(path: &Path, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(&path.to_string_lossy())
}

/// A run that is being cleaned: its lock is held, so nothing of it begins.
#[derive(Debug)]
pub struct Cleaning<'a> {
    workshop: &'a Workshop,
    state: RunState,
    _lock: RunLock,
}

impl<'a> Cleaning<'a> {
    /// Takes the run's lock and reads its ledger.
    ///
    /// # Errors
    /// A supervisor drives the run, or its ledger cannot be read.
    pub fn open(workshop: &'a Workshop) -> Result<Self, DriverError> {
        let driven = || DriverError::Driven(workshop.run.to_string());
        let lock = RunLock::try_take(&workshop.run_dir)?.ok_or_else(driven)?;
        workshop.end_combination_check();
        Ok(Self { workshop, state: read_state(workshop)?, _lock: lock })
    }

    /// Everything that takes room, and what of it may go. `discard` names units whose workspaces may go though they
    /// were not landed.
    #[must_use]
    pub fn look(&self, discard: &[UnitId]) -> Vec<Item> {
        let mut items = Vec::new();
        for unit in &self.state.units {
            for record in &unit.attempts {
                let dir = self.workshop.run_dir.attempt(&record.dir);
                let places =
                    [dir.clone_dir(), dir.scratch()].into_iter().filter(|path| path.symlink_metadata().is_ok());
                for path in places {
                    let keeps = self.keeps(unit, record, &dir, &path, discard.contains(&unit.setup.id));
                    let name = format!("{}/{}", unit.setup.id, record.attempt.0);
                    items.push(Item { name, bytes: disk_use(&path, None).0, path, keeps });
                }
            }
        }
        items.extend(self.left_behind());
        items
    }

    /// Removes what may go, and looks whether it is gone.
    ///
    /// # Errors
    /// Of one item each: it could not be removed whole.
    #[must_use]
    pub fn remove(&self, items: &[Item]) -> Vec<FileError> {
        let may_go = items.iter().filter(|item| item.keeps.is_none());
        may_go.filter_map(|item| remove_tree(&item.path).err()).collect()
    }

    fn keeps(
        &self,
        unit: &Unit,
        record: &AttemptRecord,
        dir: &AttemptDir,
        path: &Path,
        is_discarded: bool,
    ) -> Option<Keeps> {
        let never = |why: String| Some(Keeps { why, discard: None });
        if !unit.is_settled() {
            return never("the unit is not settled".to_owned());
        }
        if is_held(dir) {
            return never("its dispatcher is still alive".to_owned());
        }
        if let Some(why) = is_worked_in(path) {
            return never(why);
        }
        if is_discarded {
            return None;
        }
        let facts = record.facts.as_deref();
        let why = only_copy(unit, facts).or_else(|| not_harvested(path, facts)).or_else(|| self.changed(dir, facts))?;
        Some(Keeps { why, discard: Some(unit.setup.id.clone()) })
    }

    /// Somebody worked in it after it was harvested.
    fn changed(&self, dir: &AttemptDir, facts: Option<&AttemptFacts>) -> Option<String> {
        let harvested = facts?.changes.as_ref()?;
        let spec = std::fs::read(dir.spec()).map_err(|error| error.to_string());
        let spec =
            spec.and_then(|text| serde_json::from_slice::<AttemptSpec>(&text).map_err(|error| error.to_string()));
        let spec = match spec {
            Ok(spec) => spec.harvest?,
            // Nobody can say whether it changed.
            Err(error) => return Some(format!("cannot read {}: {error}", dir.spec().display())),
        };
        match harvest(&self.workshop.git, &spec) {
            Ok(now) if now.tree == harvested.tree && kept(&now).eq(kept(harvested)) => None,
            Ok(_) => Some("it changed after it was harvested".to_owned()),
            Err(error) => Some(error.to_string()),
        }
    }

    /// Directories of trials and checks that were cut short. A merge workspace that stands is somebody's work.
    fn left_behind(&self) -> Vec<Item> {
        let root = self.workshop.run_dir.root();
        let resolution = match std::fs::read_to_string(root.join("resolution.json")) {
            Ok(text) => text,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => String::new(),
            // What cannot be read may name any of them.
            Err(_) => return Vec::new(),
        };
        let entries = std::fs::read_dir(root).into_iter().flatten().flatten();
        let is_left = |name: &str| name == "base-check" || (name.starts_with("trial-") && !resolution.contains(name));
        entries
            .filter_map(|entry| {
                let name = entry.file_name().to_str().filter(|name| is_left(name))?.to_owned();
                let path = entry.path();
                // A check outlives the command that started it where that was killed.
                let keeps = is_worked_in(&path).map(|why| Keeps { why, discard: None });
                Some(Item { name, bytes: disk_use(&path, None).0, path, keeps })
            })
            .collect()
    }
}

fn is_worked_in(path: &Path) -> Option<String> {
    processes_in(path).first().map(|first| format!("process {first} works in it"))
}

/// What would be lost with a workspace; `None` where all of it is in the user's working tree, or there is nothing.
fn only_copy(unit: &Unit, facts: Option<&AttemptFacts>) -> Option<String> {
    let facts = facts?;
    if let Some(error) = &facts.harvest_error {
        return Some(format!("it was not harvested: {error}"));
    }
    let changes = facts.changes.as_ref()?;
    let is_landed = matches!(unit.disposition, Disposition::Applied { .. });
    if !changes.is_empty() && !is_landed {
        return Some("its changes are not landed".to_owned());
    }
    let kept: Vec<&str> = kept(changes).take(3).collect();
    (!kept.is_empty()).then(|| format!("the only copy of {}", kept.join(", ")))
}

/// What no tree holds and somebody may miss. Ignored files are what a build leaves.
fn kept(changes: &Changes) -> impl Iterator<Item = &str> {
    changes.unseen.iter().map(String::as_str).filter(|what| !what.starts_with("ignored: "))
}

/// Files that no harvest looked at: in a scratch directory, those beside its checkout.
fn not_harvested(workspace: &Path, facts: Option<&AttemptFacts>) -> Option<String> {
    let is_harvested = facts.is_some_and(|facts| facts.changes.is_some());
    let is_clone = workspace.join(".git").symlink_metadata().is_ok();
    if is_clone && is_harvested {
        return None;
    }
    let entries = match std::fs::read_dir(workspace) {
        Ok(entries) => entries.flatten(),
        Err(error) => return Some(format!("it cannot be read: {error}")),
    };
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let left: Vec<String> = names.filter(|name| !(is_harvested && name == CHECKOUT)).take(3).collect();
    (!left.is_empty()).then(|| format!("the only copy of {}", left.join(", ")))
}

/// Somebody of the attempt lives.
fn is_held(dir: &AttemptDir) -> bool {
    match File::open(dir.lock()) {
        Ok(lock) => flock(&lock, FlockOperation::NonBlockingLockExclusive).is_err(),
        // A fence that is there and cannot be looked at may be held.
        Err(error) => error.kind() != std::io::ErrorKind::NotFound,
    }
}
