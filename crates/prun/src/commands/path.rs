//! `prun path`: where a unit's things are.

use std::path::PathBuf;

use prun_engine::home::AttemptDir;
use prun_engine::spec::AttemptSpec;
use prun_engine::state_dir;

use crate::context::{Context, Intent};
use crate::error::{CliError, CliResult};
use crate::exit_code::ExitCode;

/// Print where a unit's workspace is, or another part of it
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The unit, as UNIT or RUN/UNIT
    unit: String,
    /// Print the result file
    #[arg(long, group = "part")]
    result: bool,
    /// Print the file with its worker's output
    #[arg(long, group = "part")]
    tail: bool,
    /// Print the state directory
    #[arg(long, group = "part")]
    state_dir: bool,
}

pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    let (run, unit) = context.find_unit(&args.unit, Intent::Look)?;
    let dir = run.last_attempt(&unit)?;
    let path = if args.result {
        let result = run.unit(&unit).facts().and_then(|facts| facts.result.as_ref());
        result.map_or_else(|| dir.result(), |result| PathBuf::from(&result.path))
    } else if args.tail {
        state_dir(&dir)?.join("tail")
    } else if args.state_dir {
        state_dir(&dir)?
    } else {
        workspace(&dir)?
    };
    use std::os::unix::ffi::OsStrExt;
    context.ui.bytes(&[path.as_os_str().as_bytes(), b"\n"].concat())?;
    Ok(ExitCode::Ok)
}

fn state_dir(dir: &AttemptDir) -> CliResult<PathBuf> {
    state_dir::find_in(dir.root()).ok_or_else(|| CliError::usage("its dispatcher has not begun yet"))
}

/// The checkout where there is one, else the directory that the worker was started in.
fn workspace(dir: &AttemptDir) -> CliResult<PathBuf> {
    let text = std::fs::read(dir.spec()).map_err(|_| CliError::usage("its workspace was not prepared"))?;
    let spec: AttemptSpec = serde_json::from_slice(&text).map_err(|error| {
        CliError::new(ExitCode::Unexpected, format!("cannot read {}: {error}", dir.spec().display()))
    })?;
    let checkout = spec.harvest.map(|harvest| harvest.work_tree);
    checkout.or(spec.cwd).ok_or_else(|| CliError::usage("it has no workspace"))
}
