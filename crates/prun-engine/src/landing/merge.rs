//! The merge workspace of a run: made for what is at odds, taken in by `--continue`, dropped by `--abort`.

use std::collections::BTreeSet;
use std::path::PathBuf;

use prun_core::ids::UnitId;
use serde::{Deserialize, Serialize};

use super::{Desk, LandingError, Trial};
use crate::files::{FileError, write_atomically};
use crate::integrate::resolve::{self, Resolution};

/// A merge workspace, and what was merged in it: units that are decided otherwise since must not land by it.
#[derive(Debug, Serialize, Deserialize)]
pub(super) struct Merge {
    pub resolution: Resolution,
    pub units: Vec<(UnitId, String)>,
    /// The units that were named, where some were.
    #[serde(default)]
    pub only: BTreeSet<UnitId>,
}

impl Desk<'_> {
    /// Makes a workspace outside the repository in which the user resolves what is at odds.
    ///
    /// # Errors
    /// Nothing is at odds, or a workspace stands already.
    pub fn resolve(&self, trial: Trial) -> Result<Resolution, LandingError> {
        if let Some(resolution) = self.resolution()? {
            return Err(LandingError::MergeStands(resolution.dir));
        }
        if trial.dry_run.tree.is_some() {
            return Err(LandingError::NothingToResolve);
        }
        let Trial { prepared, material, place, .. } = trial;
        // The quarantine holds the merge's objects until the end.
        let place = place.keep();
        let dir = place.join("merge");
        let resolution = prepared.resolve(&material.base_tree, &material.units, &material.store, &dir)?;
        let merge = Merge { resolution, units: material.units, only: material.only };
        let text = serde_json::to_vec_pretty(&merge).expect("plain data with string keys");
        write_atomically(&self.resolution_file(), &text, self.workshop.durability)?;
        Ok(merge.resolution)
    }

    /// Drops the merge workspace.
    ///
    /// # Errors
    /// There is none, or it cannot be removed.
    pub fn abort(&self) -> Result<(), LandingError> {
        let resolution = self.resolution()?.ok_or(LandingError::NoLanding("abort"))?;
        resolve::abort(&resolution)?;
        let file = self.resolution_file();
        std::fs::remove_file(&file).map_err(FileError::at("remove", &file))?;
        Ok(())
    }

    /// The merge workspace that stands, where there is one.
    ///
    /// # Errors
    /// Its record cannot be read.
    pub fn resolution(&self) -> Result<Option<Resolution>, LandingError> {
        Ok(self.merge()?.map(|merge| merge.resolution))
    }

    pub(super) fn merge(&self) -> Result<Option<Merge>, LandingError> {
        let file = self.resolution_file();
        match std::fs::read(&file) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(FileError::at("read", &file)(error).into()),
            Ok(text) => {
                Ok(Some(serde_json::from_slice(&text).map_err(|error| FileError::at("read", &file)(error.into()))?))
            }
        }
    }

    fn resolution_file(&self) -> PathBuf {
        self.workshop.run_dir.root().join("resolution.json")
    }
}
