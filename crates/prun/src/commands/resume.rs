//! `prun resume`: takes over a run that nobody drives, with every result so far.

use super::run::view;
use crate::context::{Context, Intent};
use crate::error::{CliError, CliResult};
use crate::exit_code::ExitCode;
use crate::supervisor;

/// Go on with a run that was stopped or whose supervisor is gone
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The run; the newest one of this repository by default
    run: Option<String>,
    /// Print the run's id alone and leave it to itself
    #[arg(short, long)]
    detach: bool,
}

pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    let run = context.find_run(args.run.as_deref(), Intent::Change)?;
    let name = run.card.run.short();
    if run.driven {
        return Err(supervisor::under_way(&run.card.run));
    }
    if run.state.ended == Some(false) && !run.state.has_stopped_units() {
        let hint = format!("`prun retry {name}/UNIT` tries a unit again");
        return Err(CliError::usage(format!("run {name} has ended; nothing is left to resume")).hint(hint));
    }
    supervisor::start(&context.home, &run.card.run, true)?;
    if args.detach {
        context.ui.line(name)?;
        return Ok(ExitCode::Ok);
    }
    view(context, &run.card.run, run.state.seq)
}
