//! Claude Code: its program, its command line, what is known of its versions.
//!
//! The flags were tried with 2.1.332 and read in the help of 2.0.0 and 1.0.120.

pub(super) mod errors;
pub(super) mod events;

use std::ffi::OsString;
use std::path::Path;

use super::launch::LaunchRequest;
use super::registry::Executor;
use super::version::Version;

/// The newest version that prun was tried with.
pub const TRIED: Version = Version(2, 1);

/// The first version that can leave a user's own settings out.
pub const ISOLATES: Version = Version(2, 0);

/// The first version that takes `--effort`.
const HAS_EFFORT: Version = Version(2, 1);

/// The first version that takes `--max-turns` and `--max-budget-usd`, as far as they were tried.
const HAS_LIMITS: Version = Version(2, 1);

/// Tools that a worker needs, allowed by name where permissions cannot be skipped.
const TOOLS: &[&str] =
    &["Bash", "Edit", "Write", "Read", "NotebookEdit", "Glob", "Grep", "Task", "TodoWrite", "WebFetch", "WebSearch"];

/// Requests are repeated so often before Claude gives up, instead of ten times: with its pauses that is about 20 s,
/// and not three minutes. What lasts longer is for prun to wait for.
const RETRIES: &str = "5";

/// The program that is looked for: `$CLAUDE_BIN`, else the executor's own.
pub(super) fn program(executor: &Executor, var: impl Fn(&str) -> Option<OsString>) -> String {
    let named = var("CLAUDE_BIN").and_then(|name| name.into_string().ok()).filter(|name| !name.is_empty());
    named.or_else(|| executor.program.clone()).unwrap_or_else(|| "claude".to_owned())
}

/// The command line of one attempt. The prompt comes on stdin.
pub(super) fn argv(program: &Path, executor: &Executor, request: &LaunchRequest<'_>, in_sandbox: bool) -> Vec<String> {
    let mut argv = vec![program.to_string_lossy().into_owned()];
    let mut add = |args: &[&str]| argv.extend(args.iter().map(|arg| (*arg).to_owned()));
    // Pieces of messages are the only sign of life while the model writes.
    add(&["-p", "--output-format", "stream-json", "--verbose", "--include-partial-messages"]);
    if request.is_root && !in_sandbox {
        // Claude refuses to skip permissions as root, unless it is told that it is in a sandbox.
        add(&["--permission-mode", "acceptEdits", "--allowedTools", &TOOLS.join(",")]);
    } else {
        add(&["--dangerously-skip-permissions"]);
    }
    // The user's own hooks, MCP servers and CLAUDE.md stay out; the login and the repository's CLAUDE.md stay.
    add(&["--strict-mcp-config"]);
    let has = |since: Version| request.version.is_none_or(|version| version >= since);
    if has(ISOLATES) {
        add(&["--setting-sources", "project"]);
    }
    if let Some(model) = request.model {
        add(&["--model", model]);
    }
    if let Some(effort) = request.effort.filter(|_| has(HAS_EFFORT)) {
        add(&["--effort", effort]);
    }
    // In the middle of an attempt only Claude itself knows what it has cost.
    if let Some(turns) = request.most_turns.filter(|_| has(HAS_LIMITS)) {
        add(&["--max-turns", &turns.to_string()]);
    }
    if let Some(micro) = request.most_micro_usd.filter(|_| has(HAS_LIMITS)) {
        add(&["--max-budget-usd", &format!("{}.{:06}", micro / 1_000_000, micro % 1_000_000)]);
    }
    argv.extend(executor.args.iter().cloned());
    if let Some(session) = request.resume {
        argv.extend(["--resume".to_owned(), session.to_owned()]);
    }
    argv
}

/// Variables that each worker gets, unless they are set already.
pub(super) const ENVIRONMENT: &[(&str, &str)] = &[
    ("CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC", "1"),
    // Else a command that takes long is moved into the background, and Claude waits for it after its last word.
    ("CLAUDE_CODE_DISABLE_BACKGROUND_TASKS", "1"),
    ("CLAUDE_CODE_MAX_RETRIES", RETRIES),
    // An update in the middle of a run would change the program under it.
    ("DISABLE_AUTOUPDATER", "1"),
];

/// What to say about a version that cannot be kept apart from the user's own settings.
#[must_use]
pub fn isolation_note(version: Version) -> Option<String> {
    (version < ISOLATES)
        .then(|| format!("claude before {ISOLATES} reads your own settings, hooks and CLAUDE.md in every worker"))
}

#[cfg(test)]
mod tests {
    use super::super::registry::Registry;
    use super::*;

    fn line(request: &LaunchRequest<'_>, in_sandbox: bool) -> String {
        let registry = Registry::built_in(2);
        let executor = registry.get(&"claude".parse().unwrap()).unwrap();
        argv(Path::new("/c"), executor, request, in_sandbox).join(" ")
    }

    const START: &str = "/c -p --output-format stream-json --verbose --include-partial-messages";
    const APART: &str = "--strict-mcp-config --setting-sources project";

    #[test]
    fn claude_is_isolated_and_reads_the_prompt_from_stdin() {
        let skip = "--dangerously-skip-permissions";
        assert_eq!(line(&LaunchRequest::default(), false), format!("{START} {skip} {APART}"));
        let request = LaunchRequest { model: Some("m"), effort: Some("high"), resume: Some("S"), ..Default::default() };
        let more = "--model m --effort high --resume S";
        assert_eq!(line(&request, false), format!("{START} {skip} {APART} {more}"));
        let limited = LaunchRequest { most_turns: Some(7), most_micro_usd: Some(12_030_000), ..Default::default() };
        let more = "--max-turns 7 --max-budget-usd 12.030000";
        assert_eq!(line(&limited, false), format!("{START} {skip} {APART} {more}"));
        assert!(!line(&LaunchRequest { version: Some(Version(2, 0)), ..limited }, false).contains("--max"));
    }

    #[test]
    fn root_gets_tools_by_name_unless_it_is_in_a_sandbox() {
        let root = LaunchRequest { is_root: true, ..LaunchRequest::default() };
        assert!(line(&root, true).contains("--dangerously-skip-permissions"));
        let line = line(&root, false);
        assert!(!line.contains("dangerously"), "{line}");
        assert!(line.contains("--permission-mode acceptEdits --allowedTools Bash,Edit,Write,"), "{line}");
    }

    #[test]
    fn old_versions_get_no_flags_that_they_do_not_know() {
        let of = |major, minor| {
            line(
                &LaunchRequest { effort: Some("low"), version: Some(Version(major, minor)), ..Default::default() },
                false,
            )
        };
        assert!(of(2, 1).contains("--setting-sources") && of(2, 1).contains("--effort"));
        assert!(of(2, 0).contains("--setting-sources") && !of(2, 0).contains("--effort"));
        assert!(!of(1, 0).contains("--setting-sources") && of(1, 0).contains("--strict-mcp-config"));
        assert!(isolation_note(Version(1, 0)).is_some() && isolation_note(Version(2, 1)).is_none());
    }
}
