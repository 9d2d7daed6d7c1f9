//! `prun import`: a run of what `dispatch-task` left.

use std::path::PathBuf;

use prun_engine::files::Durability;
use prun_engine::git::Git;
use prun_engine::import::{ImportError, ImportOptions, import};

use crate::context::Context;
use crate::error::{CliError, CliResult};
use crate::exit_code::ExitCode;

/// Make a settled run of state directories that `dispatch-task` left
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// State directories, as `dispatch-task` prints them
    #[arg(value_name = "STATE-DIR", required = true)]
    state_dirs: Vec<PathBuf>,
    /// The repository; by default the one that the clones were made from
    #[arg(long, value_name = "DIR")]
    repo: Option<PathBuf>,
    /// What the clones were made at, where `prun clone` did not make them
    #[arg(long, value_name = "REV")]
    base: Option<String>,
}

pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    let options = ImportOptions { repo: args.repo.clone(), base: args.base.clone() };
    let made =
        import(&context.home, &Git::from_env(), &context.cwd, &args.state_dirs, &options, Durability::from_env());
    let run = made.map_err(|error| {
        let hint = match &error {
            ImportError::NoBase(_) => Some("name it with --base; clones that `prun clone` makes are remembered"),
            ImportError::Alive { .. } => Some("wait for it: prun monitor STATE-DIR"),
            ImportError::Mixed { .. } => Some("import the units of each base by themselves"),
            ImportError::NotAStateDir(_) => Some("`dispatch-task` prints it as STATE-DIR"),
            _ => None,
        };
        let error = CliError::usage(error);
        hint.into_iter().fold(error, CliError::hint)
    })?;
    context.ui.say(format!("next: prun reconcile {}", run.short()));
    context.ui.line(run.short())?;
    Ok(ExitCode::Ok)
}
