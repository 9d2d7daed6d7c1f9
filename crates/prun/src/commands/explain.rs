//! `prun explain`: how a unit came to where it is.

use prun_core::explain::{story, waits_for};
use prun_core::unit::UnitState;
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
    for line in next_steps(&run.unit(&unit).state, &name) {
        context.ui.line(line)?;
    }
    Ok(ExitCode::Ok)
}

fn next_steps(state: &UnitState, name: &str) -> Vec<String> {
    match state {
        UnitState::Settled { outcome, .. } if *outcome != prun_core::outcome::Outcome::Succeeded => vec![
            format!("you can: prun logs {name} · prun retry {name} [--continue -m TEXT]"),
            format!("     or: prun accept {name} -m WHY · prun exclude {name} -m WHY"),
        ],
        UnitState::Settled { .. } => vec![format!("you can: prun result {name} · prun diff {name}")],
        UnitState::Running(running) if running.handed_over => {
            vec![format!("you can: prun brief {name} · prun submit {name}")]
        }
        _ => vec![format!("you can: prun logs {name} -f · prun stop {name}")],
    }
}
