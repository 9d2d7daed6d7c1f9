//! Any program as a worker. It gets the prompt on stdin, or where its arguments say: `{prompt}` is the prompt
//! itself, `{prompt-file}` a file that holds it.

use std::ffi::OsStr;

use super::launch::{LaunchError, LaunchRequest};
use super::program;
use super::registry::Executor;
use crate::spec::PromptChannel;

/// Stands for the prompt in an argument.
pub const PROMPT: &str = "{prompt}";

/// Stands for the path of a file that holds the prompt.
pub const PROMPT_FILE: &str = "{prompt-file}";

/// The longest argument that Linux hands to a program, in bytes (`MAX_ARG_STRLEN` without its NUL).
pub const ARGUMENT_LIMIT: u64 = 131_071;

/// The command line: the executor's own program, else the unit's command.
///
/// The unit's program is not looked up: a name with a slash counts from the workspace, which may not
/// be there yet, and a name without one is the system's to find.
pub(super) fn argv(executor: &Executor, request: &LaunchRequest<'_>, path: &OsStr) -> Result<Vec<String>, LaunchError> {
    let name = || executor.name.to_string();
    match (&executor.program, request.command) {
        (Some(_), Some(_)) => Err(LaunchError::CommandNotTaken(name())),
        (None, None | Some([])) => Err(LaunchError::NoCommand(name())),
        (Some(program), None) => {
            let mut argv = vec![program::find(program, path)?.to_string_lossy().into_owned()];
            argv.extend(executor.args.iter().cloned());
            argv.extend(filled(&executor.model_args, "{model}", request.model));
            argv.extend(filled(&executor.effort_args, "{effort}", request.effort));
            argv.extend(filled(&executor.resume_args, "{session}", request.resume));
            Ok(argv)
        }
        (None, Some(command)) => Ok(command.iter().chain(&executor.args).cloned().collect()),
    }
}

/// A template's arguments with the value in it; none where there is no value.
fn filled<'a>(template: &'a [String], mark: &'a str, value: Option<&'a str>) -> impl Iterator<Item = String> + 'a {
    value.into_iter().flat_map(move |value| template.iter().map(move |arg| arg.replace(mark, value)))
}

/// How the prompt reaches a program with these arguments.
///
/// # Errors
/// It is too long for an argument, or the argument is a text for a shell, which would run what is in it.
pub fn prompt_channel(argv: &[String], prompt_bytes: Option<u64>) -> Result<PromptChannel, LaunchError> {
    // The one that is longest with the prompt in it.
    let times = |arg: &&String| arg.matches(PROMPT).count() as u64;
    let with_prompt = argv.iter().filter(|arg| arg.contains(PROMPT));
    let Some(argument) = with_prompt.max_by_key(|arg| (times(arg), arg.len())) else {
        let is_file = argv.iter().any(|arg| arg.contains(PROMPT_FILE));
        return Ok(if is_file { PromptChannel::File } else { PromptChannel::Stdin });
    };
    let is_shell =
        argv.first().is_some_and(|program| matches!(program.rsplit('/').next(), Some("sh" | "bash" | "dash" | "zsh")))
            && argv.get(1).is_some_and(|flag| flag.starts_with('-') && flag.ends_with('c'));
    if is_shell && argv.get(2).is_some_and(|text| text.contains(PROMPT)) {
        return Err(LaunchError::PromptInShell);
    }
    let times = times(&argument);
    let around = argument.len() as u64 - times * PROMPT.len() as u64;
    match prompt_bytes {
        Some(bytes) if bytes.saturating_mul(times) + around > ARGUMENT_LIMIT => {
            Err(LaunchError::PromptTooLong { bytes })
        }
        _ => Ok(PromptChannel::Argument),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn argv(args: &[&str]) -> Vec<String> {
        args.iter().map(|arg| (*arg).to_owned()).collect()
    }

    #[test]
    fn the_arguments_say_how_the_prompt_comes() {
        assert_eq!(prompt_channel(&argv(&["w", "-x"]), None), Ok(PromptChannel::Stdin));
        assert_eq!(prompt_channel(&argv(&["w", "--in={prompt-file}"]), Some(1 << 20)), Ok(PromptChannel::File));
        assert_eq!(prompt_channel(&argv(&["w", "{prompt}"]), Some(5)), Ok(PromptChannel::Argument));
    }

    /// **C24**: an argument holds 131,071 bytes; a longer prompt is refused before anything starts.
    #[test]
    fn a_prompt_that_is_too_long_for_an_argument_is_refused() {
        let template = argv(&["w", "--say={prompt}"]);
        assert_eq!(prompt_channel(&template, Some(131_071 - 6)), Ok(PromptChannel::Argument));
        let error = prompt_channel(&template, Some(131_071 - 5)).unwrap_err();
        assert!(error.to_string().contains("128 KiB"), "{error}");
        let twice = argv(&["w", "{prompt}", "{prompt} and {prompt}"]);
        assert!(prompt_channel(&twice, Some(65_533)).is_ok());
        assert!(prompt_channel(&twice, Some(65_534)).is_err());
    }

    #[test]
    fn a_prompt_never_becomes_shell_text() {
        for shell in [["sh", "-c", "w {prompt}"], ["/bin/bash", "-lc", "w '{prompt}'"]] {
            assert_eq!(prompt_channel(&argv(&shell), Some(1)), Err(LaunchError::PromptInShell));
        }
        assert_eq!(
            prompt_channel(&argv(&["sh", "-c", "w \"$1\"", "w", "{prompt}"]), Some(1)),
            Ok(PromptChannel::Argument)
        );
    }
}
