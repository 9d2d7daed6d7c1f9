//! `prun result`: what a unit answered.

use std::path::Path;

use prun_core::outcome::Channel;
use prun_engine::executor::escape_line;
use prun_engine::files::read_regular;

use crate::context::{Context, Intent};
use crate::error::{CliError, CliResult};
use crate::exit_code::ExitCode;

/// No result is shown that is larger: 64 MiB.
const LIMIT: u64 = 64 << 20;

/// Show a unit's result, or in brief those of a whole run
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The unit, as UNIT or RUN/UNIT; with --brief a run
    #[arg(value_name = "UNIT", required_unless_present = "brief")]
    what: Option<String>,
    /// Show two lines for each unit of the run: conclusion and open items
    #[arg(long)]
    brief: bool,
}

pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    if args.brief {
        return brief(context, args.what.as_deref());
    }
    let what = args.what.as_deref().unwrap_or_default();
    let (run, unit) = context.find_unit(what, Intent::Look)?;
    let facts = run.unit(&unit).facts();
    let Some(result) = facts.and_then(|facts| facts.result.as_ref()) else {
        let state = run.unit(&unit).state.name();
        let message = format!("{unit} has no result; it is {state}");
        return Err(CliError::new(ExitCode::Attention, message).hint(format!("`prun explain {what}` tells more")));
    };
    if result.channel == Channel::Salvage {
        context.ui.warn("no result was delivered; this was salvaged from the output");
    }
    let path = Path::new(&result.path);
    let bytes = read_regular(path, LIMIT)
        .map_err(|error| CliError::new(ExitCode::Attention, format!("cannot read {}: {error}", path.display())))?;
    context.ui.foreign(&bytes)?;
    Ok(ExitCode::Ok)
}

fn brief(context: &Context, run: Option<&str>) -> CliResult {
    let run = context.find_run(run, Intent::Look)?;
    context.warn_if_lost(&run);
    for unit in run.view().units {
        let outcome = unit.outcome.as_deref().unwrap_or(&unit.state);
        let salvaged = if unit.salvaged { " (salvaged)" } else { "" };
        let conclusion = unit.conclusion.as_deref().or(unit.why.as_deref()).unwrap_or("-");
        context.ui.line(format!("{}  {outcome}{salvaged}: {}", unit.unit, escape_line(conclusion)))?;
        if let Some(open) = unit.open_items.as_deref().filter(|open| !open.eq_ignore_ascii_case("none")) {
            context.ui.line(format!("    open: {}", escape_line(open)))?;
        }
    }
    Ok(ExitCode::Ok)
}
