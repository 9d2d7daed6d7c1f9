//! `prun result`: what a unit answered.

use std::path::{Path, PathBuf};

use prun_core::answer::{BriefView, ResultView};
use prun_core::digest::counted;
use prun_core::ids::UnitId;
use prun_core::outcome::Channel;
use prun_core::view::VIEW_VERSION;
use prun_engine::executor::escape_line;
use prun_engine::export::{Format, export};
use prun_engine::files::{Durability, read_regular, write_atomically};

use crate::context::{Context, Intent, OpenRun};
use crate::error::{CliError, CliResult};
use crate::exit_code::ExitCode;

/// No result is shown that is larger: 64 MiB.
const LIMIT: u64 = 64 << 20;

/// Show a unit's result, or in brief those of a whole run
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The unit, as UNIT or RUN/UNIT; with --brief a run
    #[arg(value_name = "UNIT", required_unless_present_any = ["brief", "export"])]
    what: Option<String>,
    /// Show two lines for each unit of the run: conclusion and open items
    #[arg(long)]
    brief: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Write the results of units from rows to a file (.csv or .jsonl) or to stdout (`-`, as JSON Lines)
    #[arg(long, value_name = "FILE", conflicts_with_all = ["brief", "json"])]
    export: Option<PathBuf>,
    /// Of these, only the units of this map
    #[arg(long, value_name = "NAME", requires = "export")]
    map: Option<String>,
}

pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    if let Some(file) = &args.export {
        return export_rows(context, args, file);
    }
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

fn export_rows(context: &Context, args: &Args, file: &Path) -> CliResult {
    const TOLD: usize = 20;
    let run = context.find_run(args.what.as_deref(), Intent::Look)?;
    let format = match file.extension().and_then(|extension| extension.to_str()) {
        Some("csv") => Format::Csv,
        Some("jsonl" | "ndjson") => Format::JsonLines,
        _ if file.as_os_str() == "-" => Format::JsonLines,
        _ => return Err(CliError::usage(format!("{} ends in neither .csv nor .jsonl", file.display()))),
    };
    let plan = context.workshop(&run.card.run)?.plan;
    let exported = export(&plan, &run.state, args.map.as_deref(), format).map_err(CliError::usage)?;
    if file.as_os_str() == "-" {
        context.ui.foreign(&exported.bytes)?;
    } else {
        write_atomically(&context.cwd.join(file), &exported.bytes, Durability::Synced)?;
        context.ui.say(format!("{} in {}", counted(exported.rows, "row"), file.display()));
    }
    for (unit, why) in exported.invalid.iter().take(TOLD) {
        context.ui.warn(format!("{unit}: {}", escape_line(why)));
    }
    if exported.invalid.len() > TOLD {
        context.ui.warn(format!("and {} more", exported.invalid.len() - TOLD));
    }
    Ok(if exported.invalid.is_empty() { ExitCode::Ok } else { ExitCode::Attention })
}
