//! `prun usage`: what attempts used, by run, executor, model, day or unit.

use std::collections::BTreeMap;

use prun_core::budget::usd;
use prun_core::digest::{count, duration};
use prun_core::outcome::Usage;
use prun_engine::executor::escape_line;
use prun_engine::ledger::{AttemptUsage, Reader};
use prun_engine::runs;
use serde::Serialize;

use crate::context::{Context, Intent};
use crate::error::CliResult;
use crate::exit_code::ExitCode;
use crate::print::date;

/// The version of what `--json` prints.
const VERSION: u32 = 1;

/// Show what attempts used: tokens, money, turns and time
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The run; all runs of this home by default
    run: Option<String>,
    /// What is added up together; by default executor for one run, run for all
    #[arg(long, value_enum)]
    by: Option<By>,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What is added up together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
enum By {
    Run,
    Executor,
    Model,
    /// The day of an attempt's end, in local time
    Day,
    Unit,
}

/// Some attempts together.
#[derive(Clone, Debug, Default, Serialize)]
struct Sum {
    name: String,
    attempts: u64,
    input_tokens: u64,
    cached_input_tokens: u64,
    output_tokens: u64,
    cost_micro_usd: Option<u64>,
    turns: Option<u32>,
    worker_millis: u64,
}

#[derive(Serialize)]
struct Report {
    version: u32,
    by: By,
    rows: Vec<Sum>,
    total: Sum,
}

pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    let by = args.by.unwrap_or(if args.run.is_some() { By::Executor } else { By::Run });
    let report = report(by, &attempts(context, args.run.as_deref())?);
    if args.json {
        context.ui.json(&report)?;
        return Ok(ExitCode::Ok);
    }
    let width = report.rows.iter().map(|row| row.name.chars().count()).max().unwrap_or(0).max("total".len());
    for row in report.rows.iter().chain([&report.total]) {
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

fn report(by: By, attempts: &[(String, AttemptUsage)]) -> Report {
    let mut rows: BTreeMap<String, Sum> = BTreeMap::new();
    let mut total = Sum { name: "total".to_owned(), ..Sum::default() };
    let mut order = Vec::new();
    for (run, attempt) in attempts {
        let name = match by {
            By::Run => run.clone(),
            By::Executor => attempt.executor.clone(),
            By::Model => attempt.model.clone().unwrap_or_else(|| "unknown".to_owned()),
            By::Day => date(attempt.ended_at).chars().take(10).collect(),
            By::Unit => format!("{run}/{}", attempt.unit),
        };
        let row = rows.entry(name.clone()).or_insert_with(|| {
            order.push(name.clone());
            Sum { name, ..Sum::default() }
        });
        row.add(attempt);
        total.add(attempt);
    }
    // Runs and units in their own order, all else by name.
    if !matches!(by, By::Run | By::Unit) {
        order.sort();
    }
    let rows = order.into_iter().filter_map(|name| rows.remove(&name)).collect();
    Report { version: VERSION, by, rows, total }
}

impl Sum {
    fn add(&mut self, attempt: &AttemptUsage) {
        let before = Usage {
            input_tokens: self.input_tokens,
            cached_input_tokens: self.cached_input_tokens,
            output_tokens: self.output_tokens,
            cost_micro_usd: self.cost_micro_usd,
            turns: self.turns,
        };
        let sum = before.plus(&attempt.usage);
        self.attempts += 1;
        self.input_tokens = sum.input_tokens;
        self.cached_input_tokens = sum.cached_input_tokens;
        self.output_tokens = sum.output_tokens;
        self.cost_micro_usd = sum.cost_micro_usd;
        self.turns = sum.turns;
        self.worker_millis = self.worker_millis.saturating_add(attempt.worker_millis);
    }
}

fn line(sum: &Sum, width: usize) -> String {
    let name = escape_line(&sum.name);
    let tokens = sum.input_tokens.saturating_add(sum.output_tokens);
    let mut line = format!("{name:<width$}  {:>5} attempts  {:>6} tok", sum.attempts, count(tokens));
    line.push_str(&format!(
        " (in {}, of these cached {}, out {})",
        count(sum.input_tokens),
        count(sum.cached_input_tokens),
        count(sum.output_tokens)
    ));
    if let Some(turns) = sum.turns {
        line.push_str(&format!("  {turns} turns"));
    }
    if let Some(money) = sum.cost_micro_usd {
        line.push_str(&format!("  {}", usd(money)));
    }
    line.push_str(&format!("  {} of work", duration(sum.worker_millis)));
    line
}
