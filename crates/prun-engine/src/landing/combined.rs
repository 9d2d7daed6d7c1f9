//! What all units of a run change together, before anything of the working tree comes into it.

use std::path::Path;

use prun_core::ids::UnitId;
use prun_core::reconcile::reconcile;
use prun_core::run::RunState;

use super::LandingError;
use crate::files::FileError;
use crate::integrate::combine::combine;
use crate::integrate::quarantine::Quarantine;
use crate::integrate::{IntegrateError, Refusal, Target};
use crate::workshop::Workshop;
use crate::workspace::PatchOptions;
use crate::workspace::patch::patch_by;

/// The combination of all units that go in, against the base, as git's plain diff. Units that block are not in it.
///
/// # Errors
/// They cannot be combined, or git fails.
pub fn combined(workshop: &Workshop, state: &RunState, options: &PatchOptions) -> Result<Vec<u8>, LandingError> {
    let setup = state.setup.as_ref().ok_or(LandingError::NoRepository)?;
    let (Some(repo), Some(base_tree)) = (&setup.repo, &setup.base_tree) else { return Err(LandingError::NoRepository) };
    let landing = reconcile(&state.units).landing;
    let units: Vec<(UnitId, String)> = landing.into_iter().map(|one| (one.unit, one.tree)).collect();
    let root = workshop.run_dir.root();
    let place = tempfile::Builder::new().prefix("trial-").tempdir_in(root);
    let place = place.map_err(FileError::at("create a directory in", root))?;
    let target = Target::of(&workshop.git, Path::new(repo)).map_err(IntegrateError::from)?;
    let store = workshop.run_dir.store();
    let quarantine = Quarantine::create(&workshop.git, &place.path().join("quarantine"), &store, &target)?;
    let found = combine(&quarantine, base_tree, &units)?;
    let tree = found.tree.ok_or(IntegrateError::Refused(Refusal::Conflicts))?;
    Ok(patch_by(|args| quarantine.bare(args), base_tree, &tree, options).map_err(IntegrateError::from)?)
}
