//! Codex.

pub mod errors;
pub(super) mod events;
