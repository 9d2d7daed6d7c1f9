//! From an executor and what a unit asks for to the worker's command line.

use std::ffi::OsString;

use prun_core::plan::ResultFrom;

use super::program::{self, ProgramProblem};
use super::registry::{Executor, Kind};
use super::stream::StreamKind;
use super::version::Version;
use super::{claude, codex, command};
use crate::spec::WorkerSpec;

/// The placeholder for the file into which a client writes its last message.
pub const LAST_MESSAGE: &str = "{last-message}";

/// What one attempt asks of its executor.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaunchRequest<'a> {
    /// The model; the client's default where it is `None`. A unit's own command knows none.
    pub model: Option<&'a str>,
    /// The reasoning effort; the client's default where it is `None`. A unit's own command knows none.
    pub effort: Option<&'a str>,
    /// The unit's own command (`sh -c TEXT` for a string in the plan).
    pub command: Option<&'a [String]>,
    /// Where the result of that command comes from.
    pub result: ResultFrom,
    /// The client's session to go on with.
    pub resume: Option<&'a str>,
    /// Turns after which the client is to end by itself, where it knows how.
    pub most_turns: Option<u64>,
    /// Millionths of a US dollar after which it is to end by itself, where it knows how.
    pub most_micro_usd: Option<u64>,
    /// For people: Codex is asked for no event stream, and none is read.
    pub plain: bool,
    /// The worker runs as root.
    pub is_root: bool,
    /// The client's version, where it is known.
    pub version: Option<Version>,
    /// The size of the prompt, where it is known.
    pub prompt_bytes: Option<u64>,
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
    /// The prompt does not fit into an argument.
    #[error(
        "the prompt has {bytes} bytes, and an argument holds less than 128 KiB; \
         use {{prompt-file}} in place of {{prompt}}, or take it from stdin"
    )]
    PromptTooLong {
        /// Its size.
        bytes: u64,
    },
    /// The prompt would become a part of a script.
    #[error("{{prompt}} in a text for a shell would run what the prompt says; give the command as an array")]
    PromptInShell,
}

/// The process that works on a unit; `None` for a session, which nobody starts.
///
/// # Errors
/// The program cannot be run, or the unit's command and the executor do not fit.
pub fn launch(executor: &Executor, request: &LaunchRequest<'_>) -> Result<Option<WorkerSpec>, LaunchError> {
    let is_root = rustix::process::getuid().is_root();
    launch_with(executor, &LaunchRequest { is_root, ..*request }, |name| std::env::var_os(name))
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
    let worker = |argv: Vec<String>, stream: StreamKind| WorkerSpec {
        last_message_placeholder: argv.iter().any(|arg| arg == LAST_MESSAGE).then(|| LAST_MESSAGE.to_owned()),
        stream,
        model: request.model.map(str::to_owned),
        errors: executor.errors.clone(),
        argv,
        ..WorkerSpec::default()
    };
    match executor.kind {
        Kind::Session | Kind::Codex | Kind::Claude if request.command.is_some() => {
            Err(LaunchError::CommandNotTaken(executor.name.to_string()))
        }
        Kind::Session => Ok(None),
        Kind::Command => {
            let argv = command::argv(executor, request, &path)?;
            let prompt = command::prompt_channel(&argv, request.prompt_bytes)?;
            let stream = match request.result {
                ResultFrom::Stdout => StreamKind::Text,
                ResultFrom::File => executor.stream,
            };
            Ok(Some(WorkerSpec { prompt, ..worker(argv, stream) }))
        }
        Kind::Codex => {
            let found = program::find(&codex::program(executor, &var), &path)?;
            let program = codex::native_binary(&found);
            let has_own_log = executor.env.iter().any(|(name, _)| name == codex::LOG.0);
            if request.plain || has_own_log {
                let stream = if request.plain { StreamKind::Plain } else { executor.stream };
                return Ok(Some(worker(codex::argv(&program, executor, request, None), stream)));
            }
            let inherited = var(codex::LOG.0).and_then(|value| value.into_string().ok());
            let tools = inherited.map_or(codex::ToolsLog::Unset, codex::ToolsLog::As);
            let argv = codex::argv(&program, executor, request, Some(&tools));
            let env = vec![(codex::LOG.0.to_owned(), codex::LOG.1.to_owned())];
            Ok(Some(WorkerSpec { env, ..worker(argv, executor.stream) }))
        }
        Kind::Claude => {
            let found = program::find(&claude::program(executor, &var), &path)?;
            let own = |name: &str| executor.env.iter().find(|(key, _)| key == name).map(|(_, value)| value.into());
            let is_set = |name: &str| own(name).or_else(|| var(name)).is_some_and(|value| !value.is_empty());
            let argv = claude::argv(&found, executor, request, is_set("IS_SANDBOX"));
            let env = claude::ENVIRONMENT.iter().filter(|(name, _)| !is_set(name));
            let env = env.map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            Ok(Some(WorkerSpec { env, ..worker(argv, executor.stream) }))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::registry::Registry;
    use super::*;
    use crate::spec::PromptChannel;

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
                         -c features.unbounded_connection_retries=false \
                         -c shell_environment_policy.exclude=[\"RUST_LOG\"]";

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
        let prints = LaunchRequest { result: ResultFrom::Stdout, ..request };
        let stream = |request| start("command", request, "").unwrap().unwrap().stream;
        assert_eq!((stream(&request), stream(&prints)), (StreamKind::Plain, StreamKind::Text));
        assert_eq!(argv("own", &LaunchRequest::default()).unwrap(), "/bin/cat -");
        assert_eq!(start("session", &LaunchRequest::default(), ""), Ok(None));
    }

    #[test]
    fn claude_gets_the_variables_that_are_not_set_already() {
        let registry = Registry::built_in(2);
        let claude = registry.get(&"claude".parse().unwrap()).unwrap();
        let worker = |set: Option<&'static str>| {
            let var = move |name: &str| match name {
                "CLAUDE_BIN" => Some("/bin/sh".into()),
                "CLAUDE_CODE_MAX_RETRIES" => set.map(Into::into),
                _ => None,
            };
            launch_with(claude, &LaunchRequest::default(), var).unwrap().unwrap()
        };
        let names = |worker: WorkerSpec| worker.env.into_iter().map(|(name, _)| name).collect::<Vec<_>>();
        assert!(names(worker(None)).contains(&"CLAUDE_CODE_MAX_RETRIES".to_owned()));
        assert!(!names(worker(Some("2"))).contains(&"CLAUDE_CODE_MAX_RETRIES".to_owned()));
        assert_eq!((worker(None).argv[0].as_str(), worker(None).stream), ("/bin/sh", StreamKind::Claude));
    }

    #[test]
    fn a_command_takes_model_and_session_where_its_templates_say_so() {
        let config = "[executor.x]\nkind = \"command\"\nprogram = \"/bin/cat\"\nargs = [\"--in\", \"{prompt-file}\"]\n\
                      model_args = [\"-m\", \"{model}\"]\nresume_args = [\"-r={session}\"]\n";
        let registry = Registry::built_in(2).with_config(config, Path::new("c"), 2).unwrap();
        let x = registry.get(&"x".parse().unwrap()).unwrap();
        let request =
            LaunchRequest { model: Some("m"), effort: Some("e"), resume: Some("s"), ..LaunchRequest::default() };
        let worker = launch_with(x, &request, |_| None).unwrap().unwrap();
        assert_eq!(worker.argv, ["/bin/cat", "--in", "{prompt-file}", "-m", "m", "-r=s"]);
        assert_eq!((worker.prompt, worker.model.as_deref()), (PromptChannel::File, Some("m")));
    }

    #[test]
    fn what_does_not_fit_is_refused() {
        let own = ["echo".to_owned(), "{prompt}".to_owned()];
        let request = LaunchRequest { command: Some(&own), prompt_bytes: Some(200 << 10), ..LaunchRequest::default() };
        assert_eq!(argv("command", &request), Err(LaunchError::PromptTooLong { bytes: 200 << 10 }));
        assert_eq!(argv("own", &request), Err(LaunchError::CommandNotTaken("own".into())));
        assert_eq!(argv("codex", &request), Err(LaunchError::CommandNotTaken("codex".into())));
        assert_eq!(start("session", &request, ""), Err(LaunchError::CommandNotTaken("session".into())));
        assert_eq!(argv("command", &LaunchRequest::default()), Err(LaunchError::NoCommand("command".into())));
        let error = start("codex", &LaunchRequest::default(), "no-such-codex").unwrap_err().to_string();
        assert_eq!(error, "cannot find no-such-codex: it is in no directory of PATH (/usr/bin:/bin)");
    }
}
