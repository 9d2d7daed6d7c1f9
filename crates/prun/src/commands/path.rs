//! `prun path`: where things are.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use prun_core::ids::UnitId;
use prun_engine::files::{Durability, write_atomically};
use prun_engine::home::AttemptDir;
use prun_engine::spec::AttemptSpec;
use prun_engine::state_dir;
use prun_engine::workspace::{PatchOptions, patch};

use crate::context::{Context, Intent, OpenRun};
use crate::error::{CliError, CliResult};
use crate::exit_code::ExitCode;

/// Print where a unit's workspace is, another part of it, or a run's directory
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// A unit as UNIT or RUN/UNIT, or a run
    #[arg(value_name = "UNIT")]
    what: String,
    /// Print the result file
    #[arg(long, group = "part")]
    result: bool,
    /// Print the file with its worker's output
    #[arg(long, group = "part")]
    tail: bool,
    /// Print a file with its changes as a git patch
    #[arg(long, group = "part")]
    patch: bool,
    /// Print the state directory
    #[arg(long, group = "part")]
    state_dir: bool,
}

pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    let path = match context.find_either(Some(&args.what), Intent::Look)? {
        (run, None) => run.dir.root().to_owned(),
        (run, Some(unit)) => part(context, &run, &unit, args)?,
    };
    context.ui.bytes(&[path.as_os_str().as_bytes(), b"\n"].concat())?;
    Ok(ExitCode::Ok)
}

fn part(context: &Context, run: &OpenRun, unit: &UnitId, args: &Args) -> CliResult<PathBuf> {
    let dir = run.last_attempt(unit)?;
    if args.result {
        let result = run.unit(unit).facts().and_then(|facts| facts.result.as_ref());
        Ok(result.map_or_else(|| dir.result(), |result| PathBuf::from(&result.path)))
    } else if args.tail {
        Ok(state_dir(&dir)?.join("tail"))
    } else if args.state_dir {
        state_dir(&dir)
    } else if args.patch {
        write_patch(context, run, unit, &dir)
    } else {
        workspace(&dir)
    }
}

fn state_dir(dir: &AttemptDir) -> CliResult<PathBuf> {
    state_dir::find_in(dir.root()).ok_or_else(|| CliError::usage("its dispatcher has not begun yet"))
}

/// The patch is made from the harvested tree when somebody wants it.
fn write_patch(context: &Context, run: &OpenRun, unit: &UnitId, dir: &AttemptDir) -> CliResult<PathBuf> {
    let workshop = context.workshop(&run.card.run)?;
    let changes = run.unit(unit).facts().and_then(|facts| facts.changes.as_ref());
    let (Some(store), Some(changes)) = (workshop.store(), changes) else {
        return Err(CliError::usage(format!("nothing was harvested of {unit}")));
    };
    let path = dir.root().join("changes.patch");
    let bytes = patch(store, &changes.base_tree, &changes.tree, &PatchOptions::default())?;
    write_atomically(&path, &bytes, Durability::Cached)?;
    Ok(path)
}

/// The checkout where there is one, else the directory that the worker was started in.
pub(super) fn workspace(dir: &AttemptDir) -> CliResult<PathBuf> {
    let text = std::fs::read(dir.spec()).map_err(|_| CliError::usage("its workspace was not prepared"))?;
    let spec: AttemptSpec = serde_json::from_slice(&text).map_err(|error| {
        CliError::new(ExitCode::Unexpected, format!("cannot read {}: {error}", dir.spec().display()))
    })?;
    let checkout = spec.harvest.map(|harvest| harvest.work_tree);
    checkout.or(spec.cwd).ok_or_else(|| CliError::usage("it has no workspace"))
}
