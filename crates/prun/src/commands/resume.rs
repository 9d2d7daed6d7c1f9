//! `prun resume`: takes over a run that nobody drives, with every result so far.

use prun_core::budget::{Budget, parse_count, parse_money};
use prun_core::plan::duration;
use prun_core::supervise::Command;
use prun_engine::hooks::Wishes;

use super::run::view;
use crate::context::{Context, Intent};
use crate::error::{CliError, CliResult};
use crate::exit_code::ExitCode;
use crate::supervisor::{self, Beside};

/// Go on with a run that was stopped or whose supervisor is gone
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The run; the newest one of this repository by default
    run: Option<String>,
    /// Let the run spend so much in all: tokens=30M, money=$20, turns=500, time=8h; repeatable
    #[arg(long, value_name = "WHAT=LIMIT", value_parser = parse_limit)]
    budget: Vec<Limit>,
    /// Print the run's id alone and leave it to itself
    #[arg(short, long)]
    detach: bool,
    #[command(flatten)]
    beside: Beside,
}

/// One limit of a budget.
#[derive(Clone, Copy, Debug)]
enum Limit {
    Tokens(u64),
    Money(u64),
    Turns(u64),
    Time(u64),
}

fn parse_limit(text: &str) -> Result<Limit, String> {
    let (what, limit) = text.split_once('=').ok_or("WHAT=LIMIT, such as tokens=30M")?;
    match what {
        "tokens" => parse_count(limit).map(Limit::Tokens),
        "money" => parse_money(limit).map(Limit::Money),
        "turns" => parse_count(limit).map(Limit::Turns),
        "time" => duration::parse(limit).map(Limit::Time).map_err(|error| error.to_string()),
        _ => Err("tokens, money, turns or time".to_owned()),
    }
}

pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    let mut run = context.find_run(args.run.as_deref(), Intent::Change)?;
    let name = run.card.run.short().to_owned();
    if !args.budget.is_empty() {
        let budget = args.budget.iter().fold(run.state.budget, with);
        context.command(&run, &Command::SetBudget { budget })?;
        run.refresh()?;
        if run.driven {
            context.ui.say(format!("run {name} goes on with the new budget"));
            return Ok(ExitCode::Ok);
        }
    }
    if run.driven {
        return Err(supervisor::under_way(&run.card.run));
    }
    if run.state.is_spent() {
        let hint = format!("`prun resume {name} --budget tokens=…` raises it; `prun usage {name}` tells where it went");
        return Err(CliError::usage(format!("the budget of run {name} is spent")).hint(hint));
    }
    if run.state.ended == Some(false) && !run.state.has_stopped_units() {
        let hint = format!("`prun retry {name}/UNIT` tries a unit again");
        return Err(CliError::usage(format!("run {name} has ended; nothing is left to resume")).hint(hint));
    }
    if args.detach {
        supervisor::refuse_short_life()?;
    }
    args.beside.or(context.ui, Wishes::load(&run.dir)).save(&run.dir)?;
    supervisor::start(&context.home, &run.card.run, true)?;
    if args.detach {
        context.ui.line(name)?;
        return Ok(ExitCode::Ok);
    }
    view(context, &run.card.run, run.state.seq)
}

fn with(budget: Budget, limit: &Limit) -> Budget {
    match *limit {
        Limit::Tokens(limit) => Budget { tokens: Some(limit), ..budget },
        Limit::Money(limit) => Budget { money_micro_usd: Some(limit), ..budget },
        Limit::Turns(limit) => Budget { turns: Some(limit), ..budget },
        Limit::Time(limit) => Budget { time_millis: Some(limit), ..budget },
    }
}
