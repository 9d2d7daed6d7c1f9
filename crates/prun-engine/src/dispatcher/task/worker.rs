//! The worker of `dispatch-task`: the contract's own command line, the caller's, or an executor's.

use std::ffi::OsString;
use std::path::Path;

use super::{TaskArgs, UsageError, text};
use crate::executor::command::prompt_channel;
use crate::executor::launch::launch_with;
use crate::executor::program::ProgramProblem;
use crate::executor::{ConfigError, LaunchError, LaunchRequest, Registry};
use crate::spec::WorkerSpec;

/// Variables for the worker beside those that it inherits.
type Variables = Vec<(String, String)>;

/// What is run, and with which further variables.
pub(super) fn worker(
    args: &TaskArgs,
    var: &impl Fn(&str) -> Option<OsString>,
    registry: impl FnOnce() -> Result<Registry, ConfigError>,
    caller_dir: &Path,
) -> Result<(WorkerSpec, Variables), UsageError> {
    let own = args.command.as_ref().map(|command| command.iter().map(lossy).collect::<Vec<_>>());
    let (mut worker, env) = match (&args.executor, own) {
        (Some(_), own) => of_executor(args, own.as_deref(), var, &registry()?, prompt_bytes(args, caller_dir))?,
        (None, Some(own)) => {
            let prompt = prompt_channel(&own, prompt_bytes(args, caller_dir))?;
            (WorkerSpec { prompt, ..plain(own) }, Vec::new())
        }
        (None, None) => (plain(codex_command(var)), Vec::new()),
    };
    // The worker starts in another directory: a relative path means the caller's.
    if let Some(program) = worker.argv.first_mut().filter(|program| program.contains('/')) {
        *program = caller_dir.join(&*program).to_string_lossy().into_owned();
    }
    Ok((worker, env))
}

fn of_executor(
    args: &TaskArgs,
    own: Option<&[String]>,
    var: &impl Fn(&str) -> Option<OsString>,
    registry: &Registry,
    prompt_bytes: Option<u64>,
) -> Result<(WorkerSpec, Variables), UsageError> {
    let name = args.executor.as_ref().expect("it was looked at before");
    let executor = registry.get(name)?;
    let is_root = rustix::process::getuid().is_root();
    let request = LaunchRequest { command: own, plain: true, is_root, prompt_bytes, ..LaunchRequest::default() };
    let worker = match launch_with(executor, &request, var) {
        Ok(worker) => worker.ok_or_else(|| UsageError::NothingToStart(name.clone()))?,
        // Said by the dispatcher, as of any worker that cannot be started: 126 or 127.
        Err(LaunchError::Program(problem)) => plain(vec![program_of(&problem)]),
        Err(error) => return Err(error.into()),
    };
    Ok((worker, executor.env.clone()))
}

fn program_of(problem: &ProgramProblem) -> String {
    match problem {
        ProgramProblem::NotInPath { program, .. } => program.clone(),
        ProgramProblem::Missing(program)
        | ProgramProblem::NotExecutable(program)
        | ProgramProblem::NoInterpreter { program, .. } => program.to_string_lossy().into_owned(),
    }
}

fn plain(argv: Vec<String>) -> WorkerSpec {
    WorkerSpec { argv, ..WorkerSpec::default() }
}

/// The size of a prompt that is a file; of a pipe nobody can tell.
fn prompt_bytes(args: &TaskArgs, caller_dir: &Path) -> Option<u64> {
    let meta = caller_dir.join(&args.prompt_file).metadata().ok()?;
    meta.is_file().then_some(meta.len())
}

/// The contract's command line.
fn codex_command(var: &impl Fn(&str) -> Option<OsString>) -> Vec<String> {
    let or = |name: &str, default: &str| text(var, name).filter(|text| !text.is_empty()).unwrap_or(default.to_owned());
    let program = or("CODEX_BIN", "codex");
    let sandbox = or("CODEX_DISPATCH_SANDBOX", "danger-full-access");
    let mut argv = vec![program, "exec".into(), "--sandbox".into(), sandbox, "--skip-git-repo-check".into()];
    if !or("CODEX_DISPATCH_ISOLATE_MCP", "on").eq_ignore_ascii_case("off") {
        let effort = or("CODEX_DISPATCH_REASONING", "xhigh");
        argv.extend(["--ignore-user-config".into(), "-c".into(), format!("model_reasoning_effort={effort}")]);
    }
    argv.push("-".into());
    argv
}

fn lossy(text: &OsString) -> String {
    text.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::super::tests::{LINE, parse, registry, spec};
    use super::*;
    use crate::dispatcher::task::spec_from_contract;
    use crate::executor::stream::StreamKind;

    #[track_caller]
    fn check(vars: &[(&str, &str)], argv: &[&str]) {
        assert_eq!(spec(vars).worker.unwrap().argv, argv);
    }

    fn worker_of(more: &[&str], codex: &str) -> Result<WorkerSpec, UsageError> {
        let args = parse(&[&LINE[..], more].concat())?;
        let var = |name: &str| match name {
            "CODEX_BIN" => Some(codex.into()),
            "PATH" => Some("/usr/bin:/bin".into()),
            _ => None,
        };
        Ok(spec_from_contract(&args, var, registry, Path::new("/here"))?.worker.expect("it has one"))
    }

    #[test]
    fn the_default_command_line_is_the_contracts() {
        let plain = ["codex", "exec", "--sandbox", "danger-full-access", "--skip-git-repo-check"];
        let isolated = ["--ignore-user-config", "-c", "model_reasoning_effort=xhigh", "-"];
        check(&[], &[&plain[..], &isolated].concat());
        check(&[("CODEX_DISPATCH_ISOLATE_MCP", "Off")], &[&plain[..], &["-"]].concat());
        let vars =
            [("CODEX_BIN", "bin/c"), ("CODEX_DISPATCH_SANDBOX", "read-only"), ("CODEX_DISPATCH_REASONING", "low")];
        let plain = ["/here/bin/c", "exec", "--sandbox", "read-only", "--skip-git-repo-check"];
        let isolated = ["--ignore-user-config", "-c", "model_reasoning_effort=low", "-"];
        check(&vars, &[&plain[..], &isolated].concat());
    }

    #[test]
    fn a_command_of_the_callers_takes_the_place_of_codex() {
        assert_eq!(worker_of(&["--", "bin/w", "--unit-id"], "").unwrap().argv, ["/here/bin/w", "--unit-id"]);
        assert_eq!(worker_of(&["--executor", "command", "--", "w", "x"], "").unwrap().argv, ["w", "x"]);
    }

    #[test]
    fn an_executor_runs_its_own_command_line_for_people() {
        let worker = worker_of(&["--executor", "codex"], "/bin/cat").unwrap();
        assert_eq!((worker.argv[0].as_str(), worker.argv[1].as_str()), ("/bin/cat", "exec"));
        assert!(!worker.argv.iter().any(|argument| argument == "--json"), "{:?}", worker.argv);
        assert_eq!((worker.stream, worker.last_message_placeholder.is_some()), (StreamKind::Plain, true));
        assert_eq!(worker_of(&["--executor", "codex"], "/no/such").unwrap().argv, ["/no/such"]);
    }

    #[test]
    fn an_executor_that_cannot_take_the_unit_is_refused() {
        for (more, error) in [
            (&["--executor", "session"][..], "the executor session starts nothing; dispatch-task runs a worker"),
            (
                &["--executor", "nobody"],
                "there is no executor \"nobody\"; there are claude, codex, command, gemini, opencode, qwen, session",
            ),
            (&["--executor", "command"], "the executor command runs the unit's own command, and the unit has none"),
        ] {
            assert_eq!(worker_of(more, "").unwrap_err().to_string(), error);
        }
        assert!(worker_of(&["--executor", "codex", "--", "x"], "/bin/cat").is_err());
        let shell = worker_of(&["--", "sh", "-c", "w {prompt}"], "").unwrap_err();
        assert!(shell.to_string().contains("would run what the prompt says"), "{shell}");
    }
}
