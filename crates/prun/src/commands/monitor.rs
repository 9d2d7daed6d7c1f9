//! `prun monitor`: tells of the first event that calls for action.

use std::ffi::OsString;

use prun_engine::verbs::UsageError;
use prun_engine::verbs::monitor::{MonitorArgs, MonitorLine, MonitorSettings, USAGE, monitor, not_state_dirs};
use prun_engine::verbs::of_runs::Attempts;

use super::old_verb::{fail, note, of_runs, refuse, say, var};

/// The verb.
pub(crate) const VERB: &str = "monitor";

/// Runs it with the arguments after the verb; its exit code.
pub(crate) fn run(arguments: impl Iterator<Item = OsString>) -> i32 {
    let args = match MonitorArgs::parse(arguments) {
        Ok(args) => args,
        Err(error) => {
            if error != UsageError::Help {
                say(b"MONITOR-EVENT usage-error");
            }
            return refuse(VERB, &error, USAGE);
        }
    };
    let unusable = |error: &str| {
        say(b"MONITOR-EVENT usage-error");
        fail(VERB, error)
    };
    let mut state_dirs = args.state_dirs;
    match of_runs(&args.runs, Attempts::Latest) {
        Ok(more) => state_dirs.extend(more),
        Err(error) => return unusable(&error),
    }
    if let Some(dir) = not_state_dirs(&state_dirs).first() {
        return unusable(&format!("{} is no state dir", dir.display()));
    }
    if state_dirs.is_empty() {
        return unusable("the runs that are named have no attempt yet");
    }
    let event = monitor(&state_dirs, &MonitorSettings::from_env(var), &mut |line| match line {
        MonitorLine::Note(_) => note(&line.to_string()),
        line => say(line.to_string().as_bytes()),
    });
    event.exit_code()
}
