//! `prun retry`: another attempt at a settled unit.

use prun_core::event::RetryHow;
use prun_core::ids::UnitId;
use prun_core::supervise::Command;
use prun_core::unit::Unit;

use crate::context::{Context, Intent, OpenRun};
use crate::error::{CliError, CliResult};
use crate::exit_code::ExitCode;
use crate::supervisor;

/// Try a settled unit again; the old attempt is kept
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The unit, as UNIT or RUN/UNIT
    unit: String,
    /// Go on in its own workspace and session, with the reason in the prompt
    #[arg(long = "continue")]
    continues: bool,
    /// What to tell the worker
    #[arg(short, long, value_name = "TEXT")]
    message: Option<String>,
}

pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    let (mut run, unit) = context.find_unit(&args.unit, Intent::Change)?;
    for line in act(context, &mut run, &unit, args.continues, args.message.clone())? {
        context.ui.say(line);
    }
    Ok(ExitCode::Ok)
}

/// Has a unit tried again, and the run driven on where nobody drives it; what was done, in sentences.
///
/// # Errors
/// It was refused, or no supervisor could be started.
pub(crate) fn act(
    context: &Context,
    run: &mut OpenRun,
    unit: &UnitId,
    continues: bool,
    message: Option<String>,
) -> CliResult<Vec<String>> {
    if continues
        && let Ok(workspace) = super::path::workspace(&run.last_attempt(unit)?)
        && !workspace.exists()
    {
        let message = format!("{unit} cannot be continued: its workspace {} is gone", workspace.display());
        return Err(CliError::usage(message).hint(format!("prun retry {unit} starts it afresh")));
    }
    if !run.driven {
        supervisor::refuse_short_life()?;
    }
    let how = if continues { RetryHow::Continue } else { RetryHow::Fresh };
    let reason = continues.then(|| reason(run.unit(unit))).flatten();
    let message = message.or(reason);
    let mut said = vec![context.command(run, &Command::Retry { unit: unit.clone(), how, message })?];
    run.refresh()?;
    if !run.driven {
        supervisor::start(&context.home, &run.card.run, false)?;
        let name = run.card.run.short();
        said.push(format!("run {name} goes on; `prun attach {name}` shows it"));
    }
    Ok(said)
}

/// Why the last attempt was not good enough. What a check said to it is added where the prompt is made.
fn reason(unit: &Unit) -> Option<String> {
    let why = prun_core::explain::outcome_sentence(unit.outcome()?, unit.facts());
    Some(format!("Your last attempt was not accepted: {why}."))
}
