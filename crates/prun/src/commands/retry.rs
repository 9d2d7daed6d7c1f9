//! `prun retry`: another attempt at a settled unit.

use prun_core::event::RetryHow;
use prun_core::outcome::CheckFacts;
use prun_core::supervise::Command;
use prun_core::unit::Unit;

use crate::context::{Context, Intent};
use crate::error::{CliError, CliResult};
use crate::exit_code::ExitCode;
use crate::supervisor;

/// Bytes of a failed check's output that go into the next prompt: its last 4 KiB.
const CHECK_OUTPUT: usize = 4096;

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

/// Why the last attempt was not good enough, with the output of a check that failed.
fn reason(unit: &Unit) -> Option<String> {
    let outcome = unit.outcome()?;
    let why = prun_core::explain::outcome_sentence(outcome, unit.facts());
    let failed = unit.facts().and_then(|facts| facts.verify.as_ref()).filter(|check| !check.ok);
    let output = failed.and_then(output_of);
    Some(match output {
        Some(output) => format!("Your last attempt was not accepted: {why}.\n\n{output}"),
        None => format!("Your last attempt was not accepted: {why}."),
    })
}

fn output_of(check: &CheckFacts) -> Option<String> {
    let bytes = std::fs::read(&check.log).ok()?;
    let end = bytes.get(bytes.len().saturating_sub(CHECK_OUTPUT)..)?;
    Some(String::from_utf8_lossy(end).into_owned())
}
