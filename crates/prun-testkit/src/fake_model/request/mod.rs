//! What a request asks for: the script and the step, found in the conversation that it carries.

mod conversation;

use serde_json::Value;

use self::conversation::Conversation;
use super::script::{self, Step};

/// The APIs that are spoken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Api {
    /// OpenAI's Responses: Codex.
    Responses,
    /// Anthropic's Messages: Claude Code.
    Messages,
    /// OpenAI's chat completions: opencode, qwen.
    Chat,
    /// Google's `generateContent`: gemini.
    Gemini,
}

/// What a request is to be answered with.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The step.
    pub step: Step,
    /// The text that its script stands in; empty where there is none.
    pub text: String,
    /// The tools that the client offers, by name.
    pub tools: Vec<String>,
}

/// Finds what to answer to a request.
///
/// The script is the one in the newest message of the user's that has one (a resumed session may go on
/// without). The step's number is the number of tool results after the user's newest message; the last
/// step repeats. Without a script the model says `ok`, and so it does where no tool is offered: clients ask for
/// titles like that. `played` tells how often a step of the conversation with that text was played already.
///
/// # Errors
/// The script cannot be read.
pub fn asked(api: Api, body: &Value, mut played: impl FnMut(&str, &Step) -> bool) -> Result<Asked, String> {
    let Conversation { words, done, tools } = Conversation::of(api, body);
    let is_aside = tools.is_empty() && api != Api::Responses;
    for text in words.iter().rev().filter(|_| !is_aside) {
        if let Some(mut steps) = script::find(text)? {
            steps.retain(|step| step.times.is_none() || !played(text, step));
            let step = steps.get(done).or(steps.last()).cloned();
            return Ok(Asked { step: step.unwrap_or_else(|| Step::text("ok")), text: text.clone(), tools });
        }
    }
    Ok(Asked { step: Step::text("ok"), text: String::new(), tools })
}

/// A shell tool that a client offers, and how it wants its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShellTool {
    /// Codex's `exec_command {"cmd": TEXT}`.
    ExecCommand,
    /// Codex's `shell_command {"command": TEXT}`.
    ShellCommand,
    /// Codex's `shell {"command": [ARGV]}`.
    Shell,
    /// Codex's `exec`, whose argument is JavaScript that calls other tools ("code mode").
    Code,
    /// Claude's `Bash`.
    Bash,
    /// opencode's `bash`.
    SmallBash,
    /// gemini's and qwen's `run_shell_command`.
    RunShellCommand,
}

/// The shell tool to use; `None` where the client offers none.
#[must_use]
pub fn shell_tool(tools: &[String]) -> Option<ShellTool> {
    let known = [
        ("exec_command", ShellTool::ExecCommand),
        ("shell_command", ShellTool::ShellCommand),
        ("shell", ShellTool::Shell),
        ("Bash", ShellTool::Bash),
        ("bash", ShellTool::SmallBash),
        ("run_shell_command", ShellTool::RunShellCommand),
        ("exec", ShellTool::Code),
    ];
    known.into_iter().find(|(name, _)| tools.iter().any(|tool| tool == name)).map(|(_, tool)| tool)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn user(text: &str) -> Value {
        json!({"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]})
    }

    fn output() -> Value {
        json!({"type": "function_call_output", "call_id": "c", "output": "x"})
    }

    fn played(input: &[Value]) -> String {
        asked(Api::Responses, &json!({"input": input}), |_, _| false).unwrap().step.text.unwrap()
    }

    #[test]
    fn the_step_is_the_number_of_tool_results_since_the_users_last_word() {
        let prompt = user(r#"Do it. FAKE-MODEL: [{"text":"one"},{"text":"two"}]"#);
        let env = user("<environment_context>x</environment_context>");
        assert_eq!(played(&[env.clone(), prompt.clone()]), "one");
        assert_eq!(played(&[prompt.clone(), env.clone(), output()]), "two");
        assert_eq!(played(&[prompt.clone(), output(), output(), output()]), "two");
        // A resumed thread: the user speaks again, without a script.
        assert_eq!(played(&[prompt.clone(), output(), user("go on")]), "one");
        assert_eq!(played(&[prompt, output(), user(r#"FAKE-MODEL: [{"text":"three"}]"#)]), "three");
        assert_eq!(played(&[env]), "ok");
    }

    #[test]
    fn each_api_has_its_own_place_for_words_results_and_tools() {
        let prompt = r#"Do. FAKE-MODEL: [{"text":"one"},{"text":"two"}]"#;
        let cases = [
            (
                Api::Messages,
                json!({"tools": [{"name": "Bash"}], "messages": [
                    {"role": "user", "content": [{"type": "text", "text": "<system-reminder>r</system-reminder>"}, {"type": "text", "text": prompt}]},
                    {"role": "assistant", "content": []},
                    {"role": "user", "content": [{"type": "tool_result", "content": "x"}, {"type": "text", "text": "<system-reminder>r</system-reminder>"}]}]}),
                ShellTool::Bash,
            ),
            (
                Api::Chat,
                json!({"tools": [{"type": "function", "function": {"name": "run_shell_command"}}], "messages": [
                    {"role": "system", "content": "s"}, {"role": "user", "content": prompt},
                    {"role": "tool", "content": "x"}]}),
                ShellTool::RunShellCommand,
            ),
            (
                Api::Gemini,
                json!({"tools": [{"functionDeclarations": [{"name": "run_shell_command"}]}], "contents": [
                    {"role": "user", "parts": [{"text": prompt}]}, {"role": "model", "parts": []},
                    {"role": "user", "parts": [{"functionResponse": {"name": "x"}}]}]}),
                ShellTool::RunShellCommand,
            ),
        ];
        for (api, mut body, tool) in cases {
            let found = asked(api, &body, |_, _| false).unwrap();
            assert_eq!(found.step.text.as_deref(), Some("two"), "{api:?}");
            assert_eq!(shell_tool(&found.tools), Some(tool), "{api:?}");
            body["tools"] = json!([]);
            assert_eq!(asked(api, &body, |_, _| false).unwrap().step.text.as_deref(), Some("ok"), "{api:?}");
        }
    }

    #[test]
    fn a_step_that_was_played_often_enough_is_gone() {
        let body = json!({"input": [user(r#"FAKE-MODEL: [{"status":500,"times":1},{"text":"one"}]"#)]});
        let step = |played: bool| asked(Api::Responses, &body, |_, _| played).unwrap().step;
        assert_eq!(step(false).status, Some(500));
        assert_eq!(step(true).text.as_deref(), Some("one"));
    }

    #[test]
    fn the_shell_tool_is_found_wherever_it_is_offered() {
        let tool = |body: &Value| shell_tool(&asked(Api::Responses, body, |_, _| false).unwrap().tools);
        let listed = json!({"tools": [{"type": "function", "name": "shell_command"}]});
        let added = json!({"input": [{"type": "additional_tools", "tools": [
            {"type": "namespace", "name": "functions", "tools": [{"name": "exec"}]}]}]});
        assert_eq!(tool(&listed), Some(ShellTool::ShellCommand));
        assert_eq!(tool(&added), Some(ShellTool::Code));
        assert_eq!(tool(&json!({})), None);
    }
}
