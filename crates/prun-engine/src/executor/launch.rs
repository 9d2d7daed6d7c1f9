//! From an executor and what a unit asks for to the worker's command line.

use std::ffi::OsString;

use super::program::{self, ProgramProblem};
use super::registry::{Executor, Kind};
use super::stream::StreamKind;
use super::{codex, command};
use crate::spec::WorkerSpec;

/// The placeholder for the file into which a client writes its last message.
pub const LAST_MESSAGE: &str = "{last-message}";

/// What one attempt asks of its executor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaunchRequest<'a> {
    /// The model; the client's default where it is `None`. Commands know no models.
    pub model: Option<&'a str>,
    /// The reasoning effort; the client's default where it is `None`. Commands know none.
    pub effort: Option<&'a str>,
    /// The unit's own command (`sh -c TEXT` for a string in the plan).
    pub command: Option<&'a [String]>,
    /// The client's session to go on with.
    pub resume: Option<&'a str>,
    /// For people: no event stream is asked for, and none is read.
    pub plain: bool,
}

/// A unit that its executor cannot start.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LaunchError {
    /// The program cannot be started.
    #[error(transparent)]
    Program(#[from] ProgramProblem),
    /// The executor runs the unit's own command, and there is none.
    #[error("the executor {0} runs the unit's own command, and the unit has none")]
    NoCommand(String),
    /// The executor has its own program.
    #[error("the executor {0} has its own program; it does not take the unit's command")]
    CommandNotTaken(String),
    /// The prompt goes in on stdin.
    #[error("{{prompt}} in a command is not yet supported; the prompt comes on stdin")]
    PromptTemplate,
}

/// The process that works on a unit; `None` for a session, which nobody starts.
///
/// # Errors
/// The program cannot be run, or the unit's command and the executor do not fit.
pub fn launch(executor: &Executor, request: &LaunchRequest<'_>) -> Result<Option<WorkerSpec>, LaunchError> {
    launch_with(executor, request, |name| std::env::var_os(name))
}

/// [`launch`] in an environment given by `var`.
///
/// # Errors
/// As [`launch`].
pub fn launch_with(
    executor: &Executor,
    request: &LaunchRequest<'_>,
    var: impl Fn(&str) -> Option<OsString>,
) -> Result<Option<WorkerSpec>, LaunchError> {
    let path = var("PATH").unwrap_or_default();
    let worker = |argv: Vec<String>| WorkerSpec {
        last_message_placeholder: argv.iter().any(|arg| arg == LAST_MESSAGE).then(|| LAST_MESSAGE.to_owned()),
        stream: if request.plain { StreamKind::Plain } else { executor.stream() },
        model: request.model.map(str::to_owned),
        argv,
    };
    match executor.kind {
        Kind::Session | Kind::Codex if request.command.is_some() => {
            Err(LaunchError::CommandNotTaken(executor.name.to_string()))
        }
        Kind::Session => Ok(None),
        Kind::Command => Ok(Some(worker(command::argv(executor, request.command, &path)?))),
        Kind::Codex => {
            let found = program::find(&codex::program(executor, var), &path)?;
            Ok(Some(worker(codex::argv(&codex::native_binary(&found), executor, request))))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::registry::Registry;
    use super::*;

    fn start(name: &str, request: &LaunchRequest<'_>, codex_bin: &str) -> Result<Option<WorkerSpec>, LaunchError> {
        let config = "[executor.codex]\nargs = [\"-c\", \"openai_base_url=\\\"x\\\"\"]\n\
                      [executor.own]\nkind = \"command\"\nprogram = \"/bin/cat\"\nargs = [\"-\"]\n";
        let registry = Registry::built_in(2).with_config(config, Path::new("c"), 2).unwrap();
        let executor = registry.get(&name.parse().unwrap()).unwrap();
        launch_with(executor, request, |name| match name {
            "CODEX_BIN" => Some(codex_bin.into()),
            "PATH" => Some("/usr/bin:/bin".into()),
            _ => None,
        })
    }

    fn argv(name: &str, request: &LaunchRequest<'_>) -> Result<String, LaunchError> {
        start(name, request, "/bin/sh").map(|worker| worker.unwrap().argv.join(" "))
    }

    const CODEX: &str = "/bin/sh exec --json --sandbox danger-full-access --skip-git-repo-check --ignore-user-config \
                         -c analytics.enabled=false --color never -c features.plugins=false \
                         -c features.unbounded_connection_retries=false";

    #[test]
    fn codex_is_isolated_and_reads_the_prompt_from_stdin() {
        let plain = argv("codex", &LaunchRequest::default()).unwrap();
        assert_eq!(plain, format!("{CODEX} -o {{last-message}} -c openai_base_url=\"x\" -"));
        let request =
            LaunchRequest { model: Some("m"), effort: Some("high"), resume: Some("T"), ..LaunchRequest::default() };
        let tail = "-c model_reasoning_effort=\"high\" --model=m -o {last-message} -c openai_base_url=\"x\" resume T -";
        assert_eq!(argv("codex", &request).unwrap(), format!("{CODEX} {tail}"));
        let worker = start("codex", &LaunchRequest::default(), "/bin/sh").unwrap().unwrap();
        assert_eq!(worker.last_message_placeholder.as_deref(), Some(LAST_MESSAGE));
    }

    #[test]
    fn a_command_is_the_units_own_or_the_executors() {
        let own = ["make".to_owned(), "-k".to_owned()];
        let request = LaunchRequest { command: Some(&own), ..LaunchRequest::default() };
        assert_eq!(argv("command", &request).unwrap(), "make -k");
        assert_eq!(argv("own", &LaunchRequest::default()).unwrap(), "/bin/cat -");
        assert_eq!(start("session", &LaunchRequest::default(), ""), Ok(None));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let own = ["echo".to_owned(), "{prompt}".to_owned()];
        let request = LaunchRequest { command: Some(&own), ..LaunchRequest::default() };
        assert_eq!(argv("command", &request), Err(LaunchError::PromptTemplate));
        assert_eq!(argv("own", &request), Err(LaunchError::CommandNotTaken("own".into())));
        assert_eq!(argv("codex", &request), Err(LaunchError::CommandNotTaken("codex".into())));
        assert_eq!(start("session", &request, ""), Err(LaunchError::CommandNotTaken("session".into())));
        assert_eq!(argv("command", &LaunchRequest::default()), Err(LaunchError::NoCommand("command".into())));
        let error = start("codex", &LaunchRequest::default(), "no-such-codex").unwrap_err().to_string();
        assert_eq!(error, "cannot find no-such-codex: it is in no directory of PATH (/usr/bin:/bin)");
    }
}
