//! Executors: how a unit's worker is started and how its output is understood.

pub mod codex;
pub mod escape;
pub mod stream;
