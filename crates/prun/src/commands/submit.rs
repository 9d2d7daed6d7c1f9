//! `prun submit`: a session unit is finished.

use prun_core::supervise::Command;

use crate::context::{Context, Intent};
use crate::error::CliResult;
use crate::exit_code::ExitCode;

/// Say that a handed-over unit is finished
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The unit, as UNIT or RUN/UNIT
    unit: String,
}

pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    let (run, unit) = context.find_unit(&args.unit, Intent::Change)?;
    let message = context.command(&run, &Command::Submit { unit })?;
    context.ui.say(message);
    Ok(ExitCode::Ok)
}
