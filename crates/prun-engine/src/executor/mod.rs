//! Executors: how a unit's worker is started and how its output is understood.

pub mod stream;
