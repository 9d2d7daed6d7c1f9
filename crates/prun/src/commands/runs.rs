//! `prun runs`: what runs there are.

use prun_core::answer::RunsView;
use prun_core::digest::header;
use prun_core::view::{RunView, RunViewState, VIEW_VERSION};
use prun_engine::runs;

use crate::context::{Context, Intent};
use crate::error::CliResult;
use crate::exit_code::ExitCode;
use crate::print::date;

/// List the runs of this home, newest last
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Only those of the current repository
    #[arg(long)]
    here: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What to do about a run that nobody drives.
fn way_out(view: &RunView, run: &str) -> String {
    if view.state == RunViewState::SupervisorLost { format!("   prun resume {run}") } else { String::new() }
}

pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    let here = if args.here { context.repository() } else { None };
    let mut views = Vec::new();
    for card in runs::list(&context.home) {
        if args.here && card.repo != here {
            continue;
        }
        let name = card.run.as_str();
        match context.find_run(Some(name), Intent::Look) {
            Ok(run) => views.push((card, run.view())),
            // One damaged run must not hide the others.
            Err(error) => context.ui.warn(format!("run {name}: {}", error.message)),
        }
    }
    if args.json {
        let runs = views.into_iter().map(|(_, view)| view).collect();
        context.ui.json(&RunsView { version: VIEW_VERSION, runs })?;
        return Ok(ExitCode::Ok);
    }
    for (card, view) in views {
        let state = serde_json::to_value(view.state).ok().and_then(|value| value.as_str().map(str::to_owned));
        let state = state.unwrap_or_default();
        context.ui.line(format!(
            "{}  {:<15}  {}  {}{}",
            date(card.began),
            state,
            header(&view, card.run.short()),
            card.title,
            way_out(&view, card.run.short())
        ))?;
    }
    Ok(ExitCode::Ok)
}
