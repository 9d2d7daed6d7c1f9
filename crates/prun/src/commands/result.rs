//! `prun result`: what a unit answered.

use std::path::Path;

use prun_core::answer::{BriefView, ResultView};
use prun_core::ids::UnitId;
use prun_core::outcome::Channel;
use prun_core::view::VIEW_VERSION;
use prun_engine::executor::escape_line;
use prun_engine::files::read_regular;

use crate::context::{Context, Intent, OpenRun};
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
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    if args.brief {
        let run = context.find_run(args.what.as_deref(), Intent::Look)?;
        context.warn_if_lost(&run);
        let view = BriefView::of(&run.view(), run.card.run.short());
        if args.json {
            context.ui.json(&view)?;
        }
        for line in brief_lines(&view).into_iter().filter(|_| !args.json) {
            context.ui.line(line)?;
        }
        return Ok(ExitCode::Ok);
    }
    let (run, unit) = context.find_unit(args.what.as_deref().unwrap_or_default(), Intent::Look)?;
    let (view, bytes) = read(&run, &unit, LIMIT)?;
    if args.json {
        context.ui.json(&view)?;
        return Ok(ExitCode::Ok);
    }
    if view.salvaged {
        context.ui.warn("no result was delivered; this was salvaged from the output");
    }
    context.ui.foreign(&bytes)?;
    Ok(ExitCode::Ok)
}

/// A unit's result, its first `most` bytes.
///
/// # Errors
/// There is none, or its file cannot be read.
pub(crate) fn read(run: &OpenRun, unit: &UnitId, most: u64) -> CliResult<(ResultView, Vec<u8>)> {
    let known = run.unit(unit);
    let name = run.card.run.short();
    let Some(result) = known.facts().and_then(|facts| facts.result.as_ref()) else {
        let message = format!("{unit} has no result; it is {}", known.state.name());
        let hint = format!("`prun explain {name}/{unit}` tells more");
        return Err(CliError::new(ExitCode::Attention, message).hint(hint));
    };
    let path = Path::new(&result.path);
    let fail = |error| CliError::new(ExitCode::Attention, format!("cannot read {}: {error}", path.display()));
    let mut bytes = read_regular(path, LIMIT).map_err(fail)?;
    let size = bytes.len() as u64;
    bytes.truncate(usize::try_from(most).unwrap_or(usize::MAX));
    let view = ResultView {
        version: VIEW_VERSION,
        run: name.to_owned(),
        unit: unit.to_string(),
        outcome: known.outcome().map(ToString::to_string),
        salvaged: result.channel == Channel::Salvage,
        path: result.path.clone(),
        bytes: size,
        text: String::from_utf8_lossy(&bytes).into_owned(),
        cut: size > most,
    };
    Ok((view, bytes))
}

/// Two lines for each unit: conclusion, and open items where there are any.
pub(crate) fn brief_lines(view: &BriefView) -> Vec<String> {
    let mut lines = Vec::new();
    for unit in &view.units {
        let salvaged = if unit.salvaged { " (salvaged)" } else { "" };
        let conclusion = escape_line(unit.conclusion.as_deref().unwrap_or("-"));
        lines.push(format!("{}  {}{salvaged}: {conclusion}", unit.unit, unit.outcome));
        lines.extend(unit.open_items.as_deref().map(|open| format!("    open: {}", escape_line(open))));
    }
    lines
}
