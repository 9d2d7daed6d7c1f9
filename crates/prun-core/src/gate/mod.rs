//! The gate between a plan and a run: are the units independent and checkable, and can they start here?
//!
//! [`check`] is a pure function of the plan and of what the caller saw of the world ([`GateWorld`]). It looks at
//! nothing itself and starts nothing.

mod check;
mod owns;
mod summary;
mod world;

pub use check::{Gate, Warning, check, executors_of, must_say_dirty};
pub use summary::{executor_lines, guard_line, summary};
pub use world::{DiskFacts, ExecutorFacts, ExecutorProblem, GateWorld, Login, RepoFacts};
