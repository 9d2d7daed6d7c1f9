//! `prun diff`: what a unit changed, as git says it; of a run, unit by unit.

use prun_core::ids::UnitId;
use prun_engine::workspace::{PatchOptions, patch};

use crate::context::{Context, Intent, OpenRun};
use crate::error::{CliError, CliResult};
use crate::exit_code::ExitCode;

/// Show what a unit changed, or every unit of a run, as a git diff
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A unit as UNIT or RUN/UNIT, or a run; the newest run of this repository by default
    what: Option<String>,
    /// Show a summary of each file
    #[arg(long, conflicts_with = "name_only")]
    stat: bool,
    /// Show the paths alone
    #[arg(long)]
    name_only: bool,
}

pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    let (run, unit) = context.find_either(args.what.as_deref(), Intent::Look)?;
    if let Some(unit) = unit {
        let changes = run.unit(&unit).facts().and_then(|facts| facts.changes.as_ref());
        if changes.is_none() {
            let state = run.unit(&unit).state.name();
            return Err(CliError::usage(format!("nothing was harvested of {unit}; it is {state}")));
        }
        show(context, &run, &unit, args)?;
        return Ok(ExitCode::Ok);
    }
    let units: Vec<UnitId> = run.state.units.iter().map(|unit| unit.setup.id.clone()).collect();
    for unit in units {
        let changed = run.unit(&unit).facts().and_then(|facts| facts.changes.as_ref()).is_some_and(|it| !it.is_empty());
        if changed {
            // `git apply` and pagers skip what stands between two diffs.
            context.ui.line(format!("unit {unit}"))?;
            show(context, &run, &unit, args)?;
        }
    }
    Ok(ExitCode::Ok)
}

fn show(context: &Context, run: &OpenRun, unit: &UnitId, args: &Args) -> CliResult<()> {
    let workshop = context.workshop(&run.card.run)?;
    let changes = run.unit(unit).facts().and_then(|facts| facts.changes.as_ref());
    let (Some(store), Some(changes)) = (workshop.store(), changes) else { return Ok(()) };
    let options = PatchOptions { stat: args.stat, name_only: args.name_only, ..PatchOptions::default() };
    context.ui.foreign(&patch(store, &changes.base_tree, &changes.tree, &options)?)
}
