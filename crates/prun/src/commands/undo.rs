//! `prun undo`: takes a landing back.

use prun_engine::landing::Desk;

use super::integrate::failure;
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
    let mut desk = Desk::open(&workshop).map_err(|error| failure(context, error, &run))?;
    let number = desk.undo().map_err(|error| failure(context, error, &run))?;
    context.ui.line(format!("landing {number} is taken back; the working tree is as it was before"))?;
    Ok(ExitCode::Ok)
}
