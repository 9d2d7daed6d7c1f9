//! What `prun doctor` tells of this machine: things that cost work or time later, found before a run.
//!
//! [`host`] judges what was seen, as values; [`look`] sees it. A new check is a function in a file of its own
//! that gives [`Finding`](prun_core::finding::Finding)s, called by whoever prints them.

mod executors;
mod host;
mod look;

pub use executors::executors;
pub use host::{Battery, GroupFacts, HostFacts, LoginFacts, host};
pub use look::look;
