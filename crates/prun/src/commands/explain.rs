//! `prun explain`: how a unit came to where it is.

use prun_core::explain::{next_steps, story, waits_for};
use prun_engine::clock::wall_now;
use prun_engine::executor::escape_line;

use crate::context::{Context, Intent};
use crate::error::CliResult;
use crate::exit_code::ExitCode;
use crate::print::clock;

/// Tell how a unit came to where it is
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The unit, as UNIT or RUN/UNIT
    unit: String,
}

pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    let (run, unit) = context.find_unit(&args.unit, Intent::Look)?;
    let events = story(&run.events, &unit);
    for (event, sentence) in events {
        context.ui.line(format!("{} {}", clock(event.at), escape_line(&sentence)))?;
    }
    if let Some(waits) = waits_for(&run.state, run.unit(&unit), wall_now()) {
        context.ui.line(format!("now      {unit} waits: {waits}"))?;
    }
    let name = format!("{}/{unit}", run.card.run.short());
    if run.is_lost() {
        let seen = run.presence(run.unit(&unit)).map(|presence| format!(": {}", presence.sentence()));
        context.ui.line(format!("now      the supervisor of its run is gone{}", seen.unwrap_or_default()))?;
    }
    for line in next_steps(run.unit(&unit), &name, run.is_lost()) {
        context.ui.line(line)?;
    }
    Ok(ExitCode::Ok)
}
