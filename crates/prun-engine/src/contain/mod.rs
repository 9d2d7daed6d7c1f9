//! Ends a worker's whole tree, and says what vouches for it. One set of names for every platform.
//!
//! The ladder, all rungs that a system has at once: a control group, which what is born in it cannot leave;
//! a subreaper, to which every orphan of the worker comes back, so that the kernel's "no child left" is
//! proof; and a token in the environment, by which what descends from the worker is found where the
//! dispatcher itself is gone. The token proves nothing.

mod births;
mod cgroup;
mod hunt;
mod ladder;
mod linux;
mod rungs;
mod scope;

use std::time::Duration;

use prun_core::outcome::Exit;

pub use cgroup::{Group, GroupUsage, own_place};
pub use ladder::{Containment, lives_in, reap_by_token, reap_marked, remove_group};
pub use linux::{become_subreaper, keep_descriptors_private, reap_one};
pub use rungs::{CONTAIN_VARIABLE, Rungs};
pub use scope::enter_scope;

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
