//! `prun gather`: says of each result when it has landed.

use std::ffi::OsString;

use prun_engine::home::Home;
use prun_engine::verbs::gather::{GatherArgs, GatherLine, GatherSettings, USAGE, gather, results_of};
use prun_engine::verbs::of_runs::Attempts;

use super::old_verb::{fail, note, of_runs, refuse, say, var};

/// The verb.
pub(crate) const VERB: &str = "gather";

/// The exit code where time ran out.
const TIMED_OUT: i32 = 2;

/// Runs it with the arguments after the verb; its exit code.
pub(crate) fn run(arguments: impl Iterator<Item = OsString>) -> i32 {
    let args = match GatherArgs::parse(arguments) {
        Ok(args) => args,
        Err(error) => return refuse(VERB, &error, USAGE),
    };
    let state_dirs = match of_runs(&args.runs, Attempts::Latest) {
        Ok(state_dirs) => state_dirs,
        Err(error) => return fail(VERB, &error),
    };
    let mut results = args.results;
    results.extend(results_of(&state_dirs));
    if results.is_empty() {
        return fail(VERB, "the runs that are named have no attempt yet");
    }
    let home = Home::from_env(var).ok();
    let all_landed = gather(&results, &GatherSettings::from_env(var), home.as_ref(), &mut |line| match line {
        GatherLine::Note(text) => note(&format!("{VERB}: {text}")),
        line => say(&line.to_bytes()),
    });
    if all_landed { 0 } else { TIMED_OUT }
}
