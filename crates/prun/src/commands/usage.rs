//! `prun usage`: what attempts used, by run, executor, model, day or unit.

use prun_core::budget::usd;
use prun_core::digest::{count, duration};
use prun_core::usage::{self, By, Sum, UsageView};
use prun_engine::executor::escape_line;
use prun_engine::ledger::{AttemptUsage, Reader};
use prun_engine::runs;

use crate::context::{Context, Intent};
use crate::error::CliResult;
use crate::exit_code::ExitCode;
use crate::print::date;

/// Show what attempts used: tokens, money, turns and time
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The run; all runs of this home by default
    run: Option<String>,
    /// What is added up together; by default executor for one run, run for all
    #[arg(long, value_enum)]
    by: Option<ByArg>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// [`By`] as it is typed.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
enum ByArg {
    Run,
    Executor,
    Model,
    /// The day of an attempt's end, in local time
    Day,
    Unit,
}

impl From<ByArg> for By {
    fn from(by: ByArg) -> Self {
        match by {
            ByArg::Run => Self::Run,
            ByArg::Executor => Self::Executor,
            ByArg::Model => Self::Model,
            ByArg::Day => Self::Day,
            ByArg::Unit => Self::Unit,
        }
    }
}

pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    let by = args.by.map(By::from).unwrap_or(if args.run.is_some() { By::Executor } else { By::Run });
    let view = add_up(by, attempts(context, args.run.as_deref())?);
    if args.json {
        context.ui.json(&view)?;
        return Ok(ExitCode::Ok);
    }
    let width = view.rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0).max("total".len());
    for row in view.rows.iter().chain([&view.total]) {
        context.ui.line(line(row, width))?;
    }
    Ok(ExitCode::Ok)
}

/// Each attempt with the name of its run.
fn attempts(context: &Context, run: Option<&str>) -> CliResult<Vec<(String, AttemptUsage)>> {
    let cards = match run {
        Some(run) => vec![context.find_run(Some(run), Intent::Look)?.card],
        None => runs::list(&context.home),
    };
    let is_one = run.is_some();
    let mut all = Vec::new();
    for card in cards {
        let name = card.run.short();
        match Reader::open(&context.home.run(&card.run)).and_then(|reader| reader.usage()) {
            Ok(attempts) => all.extend(attempts.into_iter().map(|attempt| (name.to_owned(), attempt))),
            // One damaged run must not hide the others.
            Err(error) if !is_one => context.ui.warn(format!("run {name}: {error}")),
            Err(error) => return Err(error.into()),
        }
    }
    Ok(all)
}

/// Adds attempts up, each with the name of its run.
fn add_up(by: By, attempts: Vec<(String, AttemptUsage)>) -> UsageView {
    let named = attempts.into_iter().map(|(run, attempt)| {
        let name = match by {
            By::Run => run,
            By::Executor => attempt.executor,
            By::Model => attempt.model.unwrap_or_else(|| "unknown".to_owned()),
            By::Day => date(attempt.ended_at).chars().take(10).collect(),
            By::Unit => format!("{run}/{}", attempt.unit),
        };
        (name, attempt.usage, attempt.worker_millis)
    });
    usage::add_up(by, named)
}

/// What the attempts of one run used that have ended.
pub(crate) fn of_run(context: &Context, run: &str, by: By) -> CliResult<UsageView> {
    Ok(add_up(by, attempts(context, Some(run))?))
}

/// One line of the table.
fn line(sum: &Sum, width: usize) -> String {
    let (name, usage) = (escape_line(&sum.name), &sum.usage);
    let mut line = format!("{name:<width$}  {:>5} attempts  {:>6} tok", sum.attempts, count(usage.total_tokens()));
    line.push_str(&format!(
        " (in {}, of these cached {}, out {})",
        count(usage.input_tokens),
        count(usage.cached_input_tokens),
        count(usage.output_tokens)
    ));
    if let Some(turns) = usage.turns {
        line.push_str(&format!("  {turns} turns"));
    }
    if let Some(money) = usage.cost_micro_usd {
        line.push_str(&format!("  {}", usd(money)));
    }
    line.push_str(&format!("  {} of work", duration(sum.worker_millis)));
    line
}
