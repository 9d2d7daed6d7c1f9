//! `wait`: the coordinator's sleep, in pieces that every client's time limit allows.

use std::time::{Duration, Instant};

use prun_core::answer::Woke;
use prun_core::digest::header;
use prun_core::ids::Seq;
use schemars::JsonSchema;
use serde::Deserialize;

use super::super::answer::Answer;
use super::super::call::{Call, Progress};
use super::super::shared::Shared;
use crate::commands::wait as sleep;
use crate::context::{Intent, OpenRun};
use crate::error::{CliError, CliResult};
use crate::exit_code::ExitCode;

/// The longest sleep of one call, in seconds: some clients give a call no more than 60.
pub(super) const LONGEST: u64 = 55;

/// How often a client hears that the call is alive.
const SIGN_OF_LIFE: Duration = Duration::from_secs(5);

/// What to wait for.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct Args {
    /// Run id. Default: the newest run of this repository.
    run: Option<String>,
    /// Only what happened after this number counts: `next` of the last digest.
    since: Option<u64>,
    /// Seconds to sleep at most. Default and most: 55.
    #[schemars(range(max = 55))]
    timeout_s: Option<u64>,
}

pub(super) fn wait(shared: &Shared, args: &Args, call: &Call) -> CliResult<Answer> {
    let mut run = shared.context.find_run(args.run.as_deref(), Intent::Look)?;
    let limit = Duration::from_secs(args.timeout_s.unwrap_or(LONGEST).min(LONGEST));
    let mut told = Told::default();
    let woke = sleep::watch(&mut run, Seq(args.since.unwrap_or(0)), Some(Instant::now() + limit), |run, pause| {
        told.tell(run, call);
        call.pause(pause)
    })?;
    let Some(woke) = woke else {
        return Err(CliError::new(ExitCode::Interrupted, "the call was cancelled; the run goes on"));
    };
    let mut data = serde_json::to_value(sleep::view(&run, woke)).expect("plain data with string keys");
    // The header has them, and what a unit costs besides.
    data["counts"].take();
    let answer = Answer::new(sleep::text(&run, woke), &data);
    Ok(if woke == Woke::SupervisorLost { answer.failed() } else { answer })
}

/// What the client was told last.
#[derive(Default)]
struct Told {
    settled: usize,
    at: Option<Instant>,
}

impl Told {
    fn tell(&mut self, run: &OpenRun, call: &Call) {
        let settled = run.state.units.iter().filter(|unit| unit.is_settled()).count();
        let is_due = self.at.is_none_or(|at| at.elapsed() >= SIGN_OF_LIFE);
        if settled == self.settled && !is_due {
            return;
        }
        (self.settled, self.at) = (settled, Some(Instant::now()));
        let total = run.state.units.len();
        call.tell(|| Progress { done: settled, total, message: header(&run.view(), run.card.run.short()) });
    }
}
