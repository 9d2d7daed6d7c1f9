//! Tools that change what becomes of a unit: retry, stop, accept, exclude, submit.

use prun_core::answer::DoneView;
use prun_core::supervise::Command;
use schemars::JsonSchema;
use serde::Deserialize;

use super::super::answer::Answer;
use super::super::call::Call;
use super::super::shared::Shared;
use super::UnitArgs;
use crate::commands::review::reason;
use crate::commands::{retry as again, stop as ending};
use crate::context::Intent;
use crate::error::CliResult;

/// What to try again.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RetryArgs {
    /// Run id. Default: the newest run of this repository.
    run: Option<String>,
    /// Unit id.
    unit: String,
    /// Go on in its own clone and session.
    #[serde(rename = "continue")]
    continues: Option<bool>,
    /// What to tell the worker. With continue the failed check's output by default.
    message: Option<String>,
}

pub(super) fn retry(shared: &Shared, args: &RetryArgs, _: &Call) -> CliResult<Answer> {
    let (mut run, unit) = shared.unit(args.run.as_deref(), &args.unit, Intent::Change)?;
    let continues = args.continues == Some(true);
    let said = again::act(&shared.context, &mut run, &unit, continues, args.message.clone())?;
    Ok(done(said.join("\n")))
}

/// What to end.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct StopArgs {
    /// Run id. Default: the newest run of this repository.
    run: Option<String>,
    /// Unit id. Left out: the whole run.
    unit: Option<String>,
    /// Leave the workers no time to end by themselves.
    now: Option<bool>,
}

pub(super) fn stop(shared: &Shared, args: &StopArgs, _: &Call) -> CliResult<Answer> {
    let (run, unit) = match &args.unit {
        Some(unit) => {
            let (run, unit) = shared.unit(args.run.as_deref(), unit, Intent::Change)?;
            (run, Some(unit))
        }
        None => (shared.context.find_run(args.run.as_deref(), Intent::Change)?, None),
    };
    Ok(done(ending::act(&shared.context, &run, unit, args.now == Some(true))?))
}

/// Whom to accept, and why.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct AcceptArgs {
    /// Run id. Default: the newest run of this repository.
    run: Option<String>,
    /// Unit id.
    unit: String,
    /// The reason.
    why: String,
    /// Also where its result was only salvaged from its output.
    salvaged: Option<bool>,
}

pub(super) fn accept(shared: &Shared, args: &AcceptArgs, _: &Call) -> CliResult<Answer> {
    let why = reason(&args.why)?;
    let (run, unit) = shared.unit(args.run.as_deref(), &args.unit, Intent::Change)?;
    let command = Command::Accept { unit, why, salvaged: args.salvaged == Some(true) };
    Ok(done(shared.context.command(&run, &command)?))
}

/// Whom to exclude, and why.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct ExcludeArgs {
    /// Run id. Default: the newest run of this repository.
    run: Option<String>,
    /// Unit id.
    unit: String,
    /// The reason.
    why: String,
}

pub(super) fn exclude(shared: &Shared, args: &ExcludeArgs, _: &Call) -> CliResult<Answer> {
    let why = reason(&args.why)?;
    let (run, unit) = shared.unit(args.run.as_deref(), &args.unit, Intent::Change)?;
    Ok(done(shared.context.command(&run, &Command::Exclude { unit, why })?))
}

pub(super) fn submit(shared: &Shared, args: &UnitArgs, _: &Call) -> CliResult<Answer> {
    let (run, unit) = shared.unit(args.run.as_deref(), &args.unit, Intent::Change)?;
    Ok(done(shared.context.command(&run, &Command::Submit { unit })?))
}

fn done(message: String) -> Answer {
    let view = DoneView::new(message.clone());
    Answer::new(message, &view)
}
