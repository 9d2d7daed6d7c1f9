//! The verbs of the old scripts that look at dispatches: `gather`, `monitor`, `report-state`,
//! `reap-orphans`. Each is a pure decision over what was observed, and the loop that observes.
//!
//! Nothing here runs a worker. Only `reap-orphans` acts, on processes alone; no verb writes a file.

mod arguments;
pub mod gather;
mod landing;
pub mod monitor;
pub mod of_runs;
mod place;
pub mod reap_orphans;
mod record;
pub mod report_state;
mod waker;

pub use self::arguments::UsageError;
