//! Executors: how a unit's worker is started and how its output is understood.

pub mod claude;
pub mod codex;
pub mod command;
pub mod errors;
pub mod escape;
mod gemini;
pub mod launch;
mod opencode;
pub mod preflight;
pub mod program;
pub mod registry;
mod reset;
pub mod stream;
pub mod version;

pub use escape::{escape_line, escape_text};
pub use launch::{LaunchError, LaunchRequest, launch};
pub use registry::{ConfigError, Executor, Kind, Registry, UnknownExecutor};
