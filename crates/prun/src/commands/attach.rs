//! `prun attach`: views a run that goes on without us.

use prun_core::ids::Seq;

use super::run::{finish, lost};
use crate::context::{Context, Intent};
use crate::error::CliResult;
use crate::exit_code::ExitCode;
use crate::live::{OnInterrupt, ViewEnd, follow};

/// View a run; leaving changes nothing
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The run; the newest one of this repository by default
    run: Option<String>,
}

pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    let run = context.find_run(args.run.as_deref(), Intent::Look)?.card.run;
    match follow(context, &run, Seq(0), OnInterrupt::Leave)? {
        ViewEnd::Ended => finish(context, &run),
        ViewEnd::Interrupted | ViewEnd::Detached => Ok(ExitCode::Interrupted),
        ViewEnd::SupervisorLost => Err(lost(context, &run)),
    }
}
