//! The prompt that tells a session the whole flow, for clients without the skill.

use rmcp::ErrorData;
use rmcp::model::{GetPromptResult, Prompt, PromptArgument, PromptMessage, Role};

/// Its name.
const NAME: &str = "fan-out";

/// What it says, before the task.
const FLOW: &str = include_str!("prompt.md");

pub(super) fn list() -> Vec<Prompt> {
    let task =
        PromptArgument::new("task").with_description("What is to be done, in the user's words").with_required(false);
    vec![Prompt::new(
        NAME,
        Some("Split a task into independent units, run them at once, review and land them"),
        Some(vec![task]),
    )]
}

/// # Errors
/// There is no such prompt.
pub(super) fn get(name: &str, task: Option<&str>) -> Result<GetPromptResult, ErrorData> {
    if name != NAME {
        return Err(ErrorData::invalid_params(format!("there is no prompt {name}"), None));
    }
    let task = task.map(|task| format!("\nThe task:\n\n{task}\n")).unwrap_or_default();
    Ok(GetPromptResult::new(vec![PromptMessage::new_text(Role::User, format!("{FLOW}{task}"))]))
}
