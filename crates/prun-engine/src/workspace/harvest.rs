//! Placeholder of this worktree; the workspace founder owns this file.

use prun_core::outcome::Changes;

use crate::spec::HarvestSpec;

/// Placeholder.
#[derive(Debug, thiserror::Error)]
#[error("harvest is not there yet")]
pub struct HarvestError;

/// Placeholder.
///
/// # Errors
/// Always.
pub fn harvest(_spec: &HarvestSpec) -> Result<Changes, HarvestError> {
    Err(HarvestError)
}
