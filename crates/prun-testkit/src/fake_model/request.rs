//! What a request asks for: the script and the step, found in the conversation that it carries.

use serde_json::Value;

use super::script::{self, Step};

/// A shell tool that a client offers, and how it wants its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShellTool {
    /// `exec_command {"cmd": TEXT}`.
    ExecCommand,
    /// `shell_command {"command": TEXT}`.
    ShellCommand,
    /// `shell {"command": [ARGV]}`.
    Shell,
    /// `exec`, whose argument is JavaScript that calls other tools ("code mode").
    Code,
}

/// Picks the step for a request to `/responses`.
///
/// The script is the one in the newest message of the user's that has one (a resumed thread may go on
/// without). The step's number is the number of tool results after the user's newest message; the last
/// step repeats. Without a script the model says `ok`.
///
/// # Errors
/// The script cannot be read.
pub fn step(body: &Value) -> Result<Step, String> {
    let items = body["input"].as_array().map_or(&[][..], Vec::as_slice);
    let newest = items.iter().rposition(is_users_word).unwrap_or(0);
    let done = items[newest..].iter().filter(|item| kind(item).ends_with("_output")).count();
    for item in items.iter().rev().filter(|item| is_message(item)) {
        if let Some(mut steps) = script::find(&text(&item["content"]))? {
            return Ok(steps.swap_remove(done.min(steps.len() - 1)));
        }
    }
    Ok(Step::text("ok"))
}

/// The shell tool to use; `None` where the client offers none.
#[must_use]
pub fn shell_tool(body: &Value) -> Option<ShellTool> {
    let names = tool_names(body);
    let tools = [
        ("exec_command", ShellTool::ExecCommand),
        ("shell_command", ShellTool::ShellCommand),
        ("shell", ShellTool::Shell),
        ("exec", ShellTool::Code),
    ];
    tools.into_iter().find(|(name, _)| names.contains(name)).map(|(_, tool)| tool)
}

/// Names of all tools; newer models get theirs in an item of the conversation, in a namespace.
fn tool_names(body: &Value) -> Vec<&str> {
    let listed = body["tools"].as_array().into_iter().flatten();
    let added = body["input"].as_array().into_iter().flatten().filter_map(|item| item["tools"].as_array()).flatten();
    let mut names = Vec::new();
    for tool in listed.chain(added) {
        let inner = tool["tools"].as_array().into_iter().flatten();
        names.extend(inner.chain([tool]).filter_map(|tool| tool["name"].as_str()));
    }
    names
}

fn kind(item: &Value) -> &str {
    item["type"].as_str().unwrap_or("message")
}

fn is_message(item: &Value) -> bool {
    kind(item) == "message" && item["role"] == "user"
}

/// Whether the user wrote it: the client adds messages in the user's name that begin with a tag
/// (environment, instructions).
fn is_users_word(item: &Value) -> bool {
    let is_tagged = || text(&item["content"]).trim_start().starts_with('<');
    is_message(item) && !is_tagged()
}

fn text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().filter_map(|part| part["text"].as_str()).collect::<Vec<_>>().join("\n"),
        _ => String::new(),
    }
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
        step(&json!({"input": input})).unwrap().text.unwrap()
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
    fn the_shell_tool_is_found_wherever_it_is_offered() {
        let listed = json!({"tools": [{"type": "function", "name": "shell_command"}]});
        let added = json!({"input": [{"type": "additional_tools", "tools": [
            {"type": "namespace", "name": "functions", "tools": [{"name": "exec"}]}]}]});
        assert_eq!(shell_tool(&listed), Some(ShellTool::ShellCommand));
        assert_eq!(shell_tool(&added), Some(ShellTool::Code));
        assert_eq!(shell_tool(&json!({})), None);
    }
}
