//! `prun reap-orphans`: ends the workers whose dispatcher is gone.

use std::ffi::OsString;

use prun_engine::verbs::of_runs::Attempts;
use prun_engine::verbs::reap_orphans::{ReapArgs, USAGE, reap_orphans, state_dirs_in};

use super::old_verb::{fail, of_runs, refuse, say, temp_dir};

/// The verb.
pub(crate) const VERB: &str = "reap-orphans";

/// Runs it with the arguments after the verb; its exit code.
pub(crate) fn run(arguments: impl Iterator<Item = OsString>) -> i32 {
    let args = match ReapArgs::parse(arguments) {
        Ok(args) => args,
        Err(error) => return refuse(VERB, &error, USAGE),
    };
    let of_runs = match of_runs(&args.runs, Attempts::All) {
        Ok(state_dirs) => state_dirs,
        Err(error) => return fail(VERB, &error),
    };
    let base = temp_dir();
    let mut state_dirs = if args.state_dirs.is_empty() { state_dirs_in(&base) } else { args.state_dirs };
    state_dirs.extend(of_runs);
    reap_orphans(&base, &state_dirs, args.dry_run, &mut |line| say(line.to_string().as_bytes()));
    0
}
