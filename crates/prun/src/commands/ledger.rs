//! `prun ledger`: what is done with a run's ledger itself.

use prun_engine::files::Durability;
use prun_engine::rebuild::{RebuildError, Rebuilt, rebuild_ledger};

use crate::context::Context;
use crate::error::{CliError, CliResult};
use crate::exit_code::ExitCode;
use crate::supervisor;

/// Look after a run's ledger
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    act: Act,
}

#[derive(Debug, clap::Subcommand)]
enum Act {
    /// Make a damaged ledger again from what can be read of it and from the attempts' directories
    Rebuild {
        /// The run
        run: String,
    },
}

pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    let Act::Rebuild { run } = &args.act;
    let card = context.find_card(run)?;
    let (dir, name) = (context.home.run(&card.run), card.run.short());
    let rebuilt = rebuild_ledger(&dir, Durability::from_env()).map_err(|error| match error {
        RebuildError::Driven => supervisor::under_way(&card.run),
        RebuildError::Ledger(error) => CliError::from(error),
        RebuildError::File(error) => CliError::new(ExitCode::NotWritten, error),
        bug @ RebuildError::Bug(_) => CliError::new(ExitCode::Unexpected, bug),
    })?;
    match rebuilt {
        Rebuilt::Sound => context.ui.line(format!("the ledger of run {name} is sound; nothing was changed"))?,
        Rebuilt::Again { trouble, kept, added, attempts, aside } => {
            context.ui.say(format!("the old ledger was damaged: {trouble}"));
            context.ui.line(format!(
                "rebuilt: {kept} events were read back, {added} follow from the directories of {attempts} attempts"
            ))?;
            context.ui.line(format!("the old ledger is kept in {}", aside.display()))?;
            context.ui.line(
                "what only it knew after those events is gone: accept, exclude and holds have to be said again",
            )?;
            context.ui.line(format!("next: prun status {name}, then prun resume {name}"))?;
        }
    }
    Ok(ExitCode::Ok)
}
