//! `prun undo`: takes a landing back.

use super::integrate::{failure, open_desk};
use crate::context::{Context, Intent};
use crate::error::CliResult;
use crate::exit_code::ExitCode;

/// Take a landing back; paths that changed since are named, and nothing is touched
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The run; the newest one of this repository by default
    run: Option<String>,
}

pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    let run = match &args.run {
        Some(part) => context.find_run(Some(part), Intent::Change)?,
        // The last landing is the one to take back, however many runs there are.
        None => context.find_run(None, Intent::Look)?,
    };
    let workshop = context.workshop(&run.card.run)?;
    let mut desk = open_desk(context, &workshop, &run).map_err(|error| failure(context, error, &run))?;
    let number = desk.undo().map_err(|error| failure(context, error, &run))?;
    context.ui.line(format!("landing {number} is taken back; the working tree is as it was before"))?;
    Ok(ExitCode::Ok)
}
