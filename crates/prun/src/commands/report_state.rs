//! `prun report-state`: looks over the state dirs that earlier runs left behind.

use std::ffi::OsString;

use prun_engine::verbs::of_runs::Attempts;
use prun_engine::verbs::report_state::{ReportArgs, USAGE, json, report, text};

use super::old_verb::{fail, of_runs, refuse, say, temp_dir};

/// The verb.
pub(crate) const VERB: &str = "report-state";

/// Runs it with the arguments after the verb; its exit code.
pub(crate) fn run(arguments: impl Iterator<Item = OsString>) -> i32 {
    let args = match ReportArgs::parse(arguments) {
        Ok(args) => args,
        Err(error) => return refuse(VERB, &error, USAGE),
    };
    let of_runs = match of_runs(&args.runs, Attempts::All) {
        Ok(state_dirs) => state_dirs,
        Err(error) => return fail(VERB, &error),
    };
    let roots = if args.roots.is_empty() { vec![temp_dir()] } else { args.roots.clone() };
    let found = report(&roots, &of_runs, args.include_legacy_pid);
    let shown = if args.json { format!("{:#}", json(&found, &args)) } else { text(&found, &args) };
    say(shown.trim_end_matches('\n').as_bytes());
    found.exit_code()
}
