//! Ends a worker's whole tree, and says what vouches for it. One set of names for every platform.
//!
//! A dispatcher is a subreaper: every orphan of its worker comes back to it, so that the kernel's "no
//! child left" is proof. Where the dispatcher itself is gone, a token in the environment finds what
//! descends from its worker; that proves nothing.

mod linux;

use std::time::Duration;

use prun_core::outcome::Exit;

pub use linux::{become_subreaper, keep_descriptors_private, reap_by_token, reap_marked, reap_one, sweep};

/// The variable that marks a worker and what it starts.
pub const TOKEN_VARIABLE: &str = "PRUN_TOKEN";

/// How long a sweep goes on before what is left counts as survivors.
pub const SWEEP_BOUND: Duration = Duration::from_secs(10);

/// A child that has ended and was collected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reaped {
    /// Its number.
    pub pid: u32,
    /// How it ended.
    pub exit: Exit,
    /// Peak resident memory of it or the largest child that it waited for, in KiB.
    pub peak_rss_kib: u64,
    /// CPU time of it and the children that it waited for, in milliseconds.
    pub cpu_millis: u64,
}

/// What a look for ended children found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Collected {
    /// This one; there may be more.
    Child(Reaped),
    /// Children live, and none of them has ended.
    NoneEnded,
    /// The kernel vouches that there is no child, and under a subreaper no descendant.
    NoChildren,
}
