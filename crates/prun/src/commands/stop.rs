//! `prun stop`: ends a unit, or a whole run.

use prun_core::ids::UnitId;
use prun_core::supervise::Command;

use super::run::lost;
use crate::context::{Context, Intent, OpenRun};
use crate::error::CliResult;
use crate::exit_code::ExitCode;

/// End a unit or a whole run; what was done is kept
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A run, or a unit as UNIT or RUN/UNIT; the newest run of this repository by default
    what: Option<String>,
    /// Leave the workers no time to end by themselves
    #[arg(long)]
    now: bool,
}

pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    let (run, unit) = context.find_either(args.what.as_deref(), Intent::Change)?;
    context.ui.say(act(context, &run, unit, args.now)?);
    Ok(ExitCode::Ok)
}

/// Ends a unit, or the whole run; what was done, in a sentence.
///
/// # Errors
/// It was refused, or nobody drives the run who could end its workers.
pub(crate) fn act(context: &Context, run: &OpenRun, unit: Option<UnitId>, now: bool) -> CliResult<String> {
    if !run.driven && run.state.ended.is_none() && anything_active(&run.state, unit.as_ref()) {
        // Somebody has to see to the workers; a stop that only stands in the ledger ends none.
        return Err(lost(context, &run.card.run));
    }
    context.command(run, &Command::Stop { unit, now })
}

fn anything_active(state: &prun_core::run::RunState, unit: Option<&UnitId>) -> bool {
    state.active().any(|active| unit.is_none_or(|unit| active.setup.id == *unit))
}
