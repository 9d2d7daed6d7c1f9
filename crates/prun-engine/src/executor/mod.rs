//! Executors: how a unit's worker is started and how its output is understood.

pub mod codex;
mod command;
pub mod escape;
pub mod launch;
pub mod preflight;
pub mod program;
pub mod registry;
pub mod stream;

pub use escape::{escape_line, escape_text};
pub use launch::{LaunchError, LaunchRequest, launch};
pub use registry::{ConfigError, Executor, Kind, Registry, UnknownExecutor};
