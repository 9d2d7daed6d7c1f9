//! `prun retry`: another attempt at a settled unit.

use prun_core::event::RetryHow;
use prun_core::supervise::Command;
use prun_core::unit::Unit;

use crate::context::{Context, Intent};
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
    if args.continues
        && let Ok(workspace) = super::path::workspace(&run.last_attempt(&unit)?)
        && !workspace.exists()
    {
        let message = format!("{unit} cannot be continued: its workspace {} is gone", workspace.display());
        return Err(CliError::usage(message).hint(format!("prun retry {unit} starts it afresh")));
    }
    if !run.driven {
        supervisor::refuse_short_life()?;
    }
    let how = if args.continues { RetryHow::Continue } else { RetryHow::Fresh };
    let reason = args.continues.then(|| reason(run.unit(&unit))).flatten();
    let message = args.message.clone().or(reason);
    let said = context.command(&run, &Command::Retry { unit, how, message })?;
    context.ui.say(said);
    run.refresh()?;
    if !run.driven {
        supervisor::start(&context.home, &run.card.run, false)?;
        context.ui.say(format!(
            "run {} goes on; `prun attach {}` shows it",
            run.card.run.short(),
            run.card.run.short()
        ));
    }
    Ok(ExitCode::Ok)
}

/// Why the last attempt was not good enough. What a check said to it is added where the prompt is made.
fn reason(unit: &Unit) -> Option<String> {
    let why = prun_core::explain::outcome_sentence(unit.outcome()?, unit.facts());
    Some(format!("Your last attempt was not accepted: {why}."))
}
