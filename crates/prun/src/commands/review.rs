//! `prun accept`, `exclude`, `unreview`: the user's word on whether a unit takes part in landing.

use prun_core::supervise::Command;

use crate::context::{Context, Intent};
use crate::error::{CliError, CliResult};
use crate::exit_code::ExitCode;

/// Let a unit take part in landing although its outcome alone would not
#[derive(Debug, clap::Args)]
pub(crate) struct AcceptArgs {
    /// The unit, as UNIT or RUN/UNIT
    unit: String,
    /// Why; it is recorded
    #[arg(short = 'm', long = "message", value_name = "WHY")]
    why: String,
    /// Also where its result was only salvaged from its output
    #[arg(long)]
    salvaged: bool,
}

/// Keep a unit out of landing; it no longer blocks the others
#[derive(Debug, clap::Args)]
pub(crate) struct ExcludeArgs {
    /// The unit, as UNIT or RUN/UNIT
    unit: String,
    /// Why; it is recorded
    #[arg(short = 'm', long = "message", value_name = "WHY")]
    why: String,
}

/// Take an accept or exclude back
#[derive(Debug, clap::Args)]
pub(crate) struct UnreviewArgs {
    /// The unit, as UNIT or RUN/UNIT
    unit: String,
}

pub(crate) fn accept(context: &Context, args: &AcceptArgs) -> CliResult {
    let (why, salvaged) = (reason(&args.why)?, args.salvaged);
    decide(context, &args.unit, |unit| Command::Accept { unit, why, salvaged })
}

pub(crate) fn exclude(context: &Context, args: &ExcludeArgs) -> CliResult {
    let why = reason(&args.why)?;
    decide(context, &args.unit, |unit| Command::Exclude { unit, why })
}

pub(crate) fn unreview(context: &Context, args: &UnreviewArgs) -> CliResult {
    decide(context, &args.unit, |unit| Command::Unreview { unit })
}

/// The reason of a decision.
///
/// # Errors
/// It is empty.
pub(crate) fn reason(text: &str) -> CliResult<String> {
    if text.trim().is_empty() {
        return Err(CliError::usage("the reason is empty").hint("it is what you will read about this decision later"));
    }
    Ok(text.to_owned())
}

fn decide(context: &Context, unit: &str, command: impl FnOnce(prun_core::ids::UnitId) -> Command) -> CliResult {
    let (run, unit) = context.find_unit(unit, Intent::Change)?;
    let message = context.command(&run, &command(unit))?;
    context.ui.say(message);
    Ok(ExitCode::Ok)
}
