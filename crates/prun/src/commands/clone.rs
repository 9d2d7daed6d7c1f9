//! `prun clone`: a safe clone for a worker that is dispatched by hand.

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use prun_engine::clones;
use prun_engine::git::Git;
use prun_engine::workspace::WorkspaceError;
use prun_engine::workspace::source::Source;

use crate::context::Context;
use crate::error::{CliError, CliResult};
use crate::exit_code::ExitCode;

/// Make a throwaway clone for a worker: no remote, no hook, nothing shared with the repository
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Where to make it; must not be there
    dest: PathBuf,
    /// The revision to check out
    #[arg(long, value_name = "REV", default_value = "HEAD")]
    base: String,
    /// The repository; by default the one of the current directory
    #[arg(long, value_name = "DIR")]
    repo: Option<PathBuf>,
}

pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    let repo = args.repo.as_ref().map_or_else(|| context.cwd.clone(), |repo| context.cwd.join(repo));
    let source = Source::open(&Git::from_env(), &repo).map_err(CliError::usage)?;
    let base = source.resolve(&args.base).map_err(CliError::usage)?;
    let made = clones::make(&context.home, &source, &base, &context.cwd.join(&args.dest)).map_err(|error| {
        let is_taken = matches!(error, WorkspaceError::Exists(_));
        let error = CliError::usage(error);
        if is_taken { error.hint("a clone is never reused; name a fresh directory") } else { error }
    })?;
    let short = base.commit.get(..12).unwrap_or(&base.commit);
    context.ui.say(format!("a clone of {} at {short}", source.top.display()));
    let dirty = source.dirty(&[context.home.root().to_owned()]).map_or(0, |dirty| dirty.paths.len());
    let dirty = (dirty > 0).then(|| format!("{dirty} uncommitted {}", if dirty == 1 { "file" } else { "files" }));
    for what in made.unseen.iter().chain(&dirty) {
        context.ui.say(format!("it does not hold {what}"));
    }
    context.ui.bytes(&[made.record.dir.as_os_str().as_bytes(), b"\n"].concat())?;
    Ok(ExitCode::Ok)
}
