//! What all calls of one server share.

use std::sync::{Arc, RwLock, Weak};

use prun_engine::contain::{TOKEN_VARIABLE, reap_marked};
use prun_engine::process::environment_values;

use super::tools::integrate::Trials;
use crate::context::{Context, Intent, OpenRun};
use crate::error::CliResult;
use prun_core::ids::UnitId;

/// What all calls share.
#[derive(Debug)]
pub(super) struct Shared {
    /// What every command starts from.
    pub(super) context: Context,
    /// Trials that were made or are under way.
    pub(super) trials: Trials,
    /// Held to read while the working tree is written to.
    pub(super) landing: RwLock<()>,
    own: Weak<Shared>,
}

impl Shared {
    /// Before the first call.
    pub(super) fn new(context: Context) -> Arc<Self> {
        Arc::new_cyclic(|own| Self { context, trials: Trials::default(), landing: RwLock::default(), own: own.clone() })
    }

    /// For a thread that outlives the call.
    pub(super) fn handle(&self) -> Arc<Self> {
        self.own.upgrade().expect("whoever calls holds one")
    }

    /// The unit that a call names, in the run that it names or the newest one.
    ///
    /// # Errors
    /// No such run or unit.
    pub(super) fn unit(&self, run: Option<&str>, unit: &str, intent: Intent) -> CliResult<(OpenRun, UnitId)> {
        match run {
            Some(run) if !unit.contains('/') => self.context.find_unit(&format!("{run}/{unit}"), intent),
            _ => self.context.find_unit(unit, intent),
        }
    }

    /// The client has left. Waits for a landing that has begun, lets none begin any more, and ends checks of
    /// combinations, which nobody would hear of.
    pub(super) fn close(&self) {
        // Poisoned or not: it is held to the end of the process.
        std::mem::forget(self.landing.write());
        let own = std::process::id();
        // A server inside of a worker carries that worker's mark itself, as all its children do.
        let inherited = std::env::var_os(TOKEN_VARIABLE).unwrap_or_default().into_encoded_bytes();
        for (process, token) in environment_values(TOKEN_VARIABLE.as_bytes()) {
            if process.parent == own && token != inherited {
                reap_marked(&String::from_utf8_lossy(&token));
            }
        }
    }
}
