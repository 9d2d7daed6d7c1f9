//! `prun explain`: how a unit came to where it is.

use prun_core::answer::{StoryStep, StoryView};
use prun_core::event::Event;
use prun_core::explain::{next_steps, story, waits_for};
use prun_core::view::VIEW_VERSION;
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
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    let (run, unit) = context.find_unit(&args.unit, Intent::Look)?;
    let events = story(&run.events, &unit);
    let name = format!("{}/{unit}", run.card.run.short());
    let state = &run.unit(&unit).state;
    let waits = waits_for(&run.state, run.unit(&unit), wall_now());
    if args.json {
        let step = |(event, what): &(Event, String)| StoryStep { seq: event.seq.0, at: event.at.0, what: what.clone() };
        context.ui.json(&StoryView {
            version: VIEW_VERSION,
            run: run.card.run.short().to_owned(),
            unit: unit.to_string(),
            state: state.name().to_owned(),
            steps: events.iter().map(step).collect(),
            waits_for: waits,
            next: next_steps(run.unit(&unit), &name, run.is_lost()),
        })?;
        return Ok(ExitCode::Ok);
    }
    for (event, sentence) in events {
        context.ui.line(format!("{} {}", clock(event.at), escape_line(&sentence)))?;
    }
    if let Some(waits) = waits {
        context.ui.line(format!("now      {unit} waits: {waits}"))?;
    }
    if run.is_lost() {
        let seen = run.presence(run.unit(&unit)).map(|presence| format!(": {}", presence.sentence()));
        context.ui.line(format!("now      the supervisor of its run is gone{}", seen.unwrap_or_default()))?;
    }
    for line in next_steps(run.unit(&unit), &name, run.is_lost()) {
        context.ui.line(line)?;
    }
    Ok(ExitCode::Ok)
}
