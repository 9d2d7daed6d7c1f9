//! Any program as a worker: it gets the prompt on stdin and prints what it likes.

use std::ffi::OsStr;

use super::launch::LaunchError;
use super::program;
use super::registry::Executor;

/// The command line: the executor's own program, else the unit's command.
///
/// The unit's program is not looked up: a name with a slash counts from the workspace, which may not
/// be there yet, and a name without one is the system's to find.
pub(super) fn argv(executor: &Executor, command: Option<&[String]>, path: &OsStr) -> Result<Vec<String>, LaunchError> {
    let name = || executor.name.to_string();
    let argv = match (&executor.program, command) {
        (Some(_), Some(_)) => return Err(LaunchError::CommandNotTaken(name())),
        (None, None | Some([])) => return Err(LaunchError::NoCommand(name())),
        (Some(program), None) => {
            let program = program::find(program, path)?.to_string_lossy().into_owned();
            [program].into_iter().chain(executor.args.iter().cloned()).collect()
        }
        (None, Some(command)) => command.iter().chain(&executor.args).cloned().collect::<Vec<_>>(),
    };
    if argv.iter().any(|arg| arg.contains("{prompt}")) {
        return Err(LaunchError::PromptTemplate);
    }
    Ok(argv)
}
