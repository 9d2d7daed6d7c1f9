//! `prun dispatch-task`: the old script's interface, over the dispatcher of a run.

use std::ffi::OsString;
use std::io::Write;

use prun_engine::dispatcher::task::{TaskArgs, USAGE, UsageError, spec_from_contract};
use prun_engine::dispatcher::{self, Announce, DispatchOptions};
use prun_engine::executor::Registry;
use prun_engine::files::Durability;
use prun_engine::home::Home;

/// The verb.
pub(crate) const VERB: &str = "dispatch-task";

/// The exit code of a dispatch that could not begin.
const USAGE_ERROR: i32 = 2;

/// Runs it with the arguments after the verb; its exit code.
pub(crate) fn run(arguments: impl Iterator<Item = OsString>) -> i32 {
    match TaskArgs::parse(arguments) {
        Ok(args) => dispatch(&args),
        Err(error) => refuse(&error, true),
    }
}

fn dispatch(args: &TaskArgs) -> i32 {
    let var = |name: &str| std::env::var_os(name);
    let caller_dir = match std::env::current_dir() {
        Ok(dir) => dir,
        Err(error) => return refuse(&format!("cannot tell the working directory: {error}"), false),
    };
    let registry = || {
        let cpus = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
        Registry::load(var, u32::try_from(cpus).unwrap_or(u32::MAX))
    };
    let spec = match spec_from_contract(args, var, registry, &caller_dir) {
        Ok(spec) => spec,
        Err(error) => return refuse(&error, !matches!(error, UsageError::Depth(_))),
    };
    let options = DispatchOptions {
        announce: Announce::StateDir,
        durability: Durability::from_env(),
        by_result: Home::from_env(var).ok(),
        fence: None,
        stderr_tail: true,
        notes: None,
        result_as_given: Some(args.result_file.clone()),
    };
    match dispatcher::run(&spec, options) {
        Ok(end) => end.exit_code,
        Err(error) => refuse(&error, false),
    }
}

fn refuse(error: &dyn std::fmt::Display, with_usage: bool) -> i32 {
    let usage = if with_usage { format!("{USAGE}\n") } else { String::new() };
    // Nobody may be there to read it; the exit code tells as well.
    let _ = write!(std::io::stderr().lock(), "{VERB}: {error}\n{usage}");
    USAGE_ERROR
}
