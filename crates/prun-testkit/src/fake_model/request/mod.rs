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
            let mut step = steps.get(place(&steps, &done)).cloned().unwrap_or_else(|| Step::text("ok"));
            if let Some(call) = &mut step.call {
                fill(&mut call.args, &done)?;
            }
            return Ok(Asked { step, text: text.clone(), tools });
        }
    }
    Ok(Asked { step: Step::text("ok"), text: String::new(), tools })
}

/// A step that waits for its words in vain is played this often; a test that fails must come to an end.
const MOST_REPEATS: usize = 20;

/// The place in the script after these tool results: one step a result, but a step with `until` stays until a result
/// says so. The last one repeats.
fn place(steps: &[Step], results: &[String]) -> usize {
    let last = steps.len().saturating_sub(1);
    let (mut at, mut repeats) = (0, 0);
    for result in results {
        repeats += 1;
        let wanted = steps.get(at).and_then(|step| step.until.as_deref());
        if wanted.is_none_or(|text| result.contains(text)) || repeats == MOST_REPEATS {
            (at, repeats) = ((at + 1).min(last), 0);
        }
    }
    at
}

/// Puts in what the script could not know: `$hex-after:WORD`.
fn fill(args: &mut Value, results: &[String]) -> Result<(), String> {
    let Value::Object(args) = args else { return Ok(()) };
    for value in args.values_mut() {
        let Some(word) = value.as_str().and_then(|text| text.strip_prefix("$hex-after:")) else { continue };
        let found = results.iter().rev().find_map(|result| hex_after(result, word));
        *value = found.ok_or_else(|| format!("no tool result has digits after {word}"))?.into();
    }
    Ok(())
}

/// The digits after the last place where `word` is followed by some, quotes and blanks between them aside.
fn hex_after(text: &str, word: &str) -> Option<String> {
    text.rmatch_indices(word).find_map(|(at, _)| {
        let rest = text[at + word.len()..].trim_start_matches([' ', '"', '\\', ':']);
        let digits: String = rest.chars().take_while(char::is_ascii_hexdigit).collect();
        (digits.len() >= 7).then_some(digits)
    })
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
    fn a_step_waits_for_its_words_and_takes_what_it_could_not_know() {
        let script = r#"FAKE-MODEL: [{"call":{"tool":"wait","args":{}},"until":"ended"},{"call":{"tool":"land","args":{"tree":"$hex-after:tree"}}}]"#;
        let call_after = |results: &[&str]| {
            let said = |text: &&str| json!({"type": "function_call_output", "call_id": "c", "output": text});
            let input: Vec<Value> = std::iter::once(user(script)).chain(results.iter().map(said)).collect();
            asked(Api::Responses, &json!({"input": input}), |_, _| false).map(|asked| asked.step.call.unwrap())
        };
        assert_eq!(call_after(&["running", "running"]).unwrap().tool, "wait");
        let land = call_after(&["running", r#"ended, "tree":"0123abcd", a tree stands"#]).unwrap();
        assert_eq!((land.tool.as_str(), &land.args["tree"]), ("land", &json!("0123abcd")));
        assert!(call_after(&["ended"]).is_err());
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
