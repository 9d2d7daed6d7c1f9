//! Scripts: what the model says, one step for each request.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// What introduces a script in a prompt.
pub const MARK: &str = "FAKE-MODEL:";

/// The model's answer to one request. Keys combine: text comes before the call of a tool.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Step {
    /// A message of the model's. Without `sh` it is the final one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
    /// A shell command, run by whichever shell tool the client offers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sh: Option<String>,
    /// A call of a tool by its name, such as one of an MCP server's.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call: Option<Call>,
    /// The step is played again until a tool's result says this.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until: Option<String>,
    /// Answers with this HTTP status instead of a stream.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<u16>,
    /// Headers of the answer with `status`.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Body of the answer with `status`; by default an error that names the status.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<Value>,
    /// Answers that the account's usage limit is spent until then, in seconds since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub limit_until: Option<i64>,
    /// Plays the step for that many requests of its script; then it counts as not being there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub times: Option<u32>,
    /// Milliseconds before each event of the answer.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pause: Option<u64>,
    /// Says nothing more, and keeps the connection until the client leaves.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub hang: Option<Place>,
    /// Closes the connection.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub drop: Option<Place>,
    /// The tokens that the answer reports.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Tokens>,
}

/// A tool and what it is called with.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Call {
    /// The tool's name, as the client offers it.
    pub tool: String,
    /// Its arguments, an object. A text `$hex-after:WORD` stands for the digits that followed that word in the newest
    /// tool result that has it.
    pub args: Value,
}

/// Where in an answer a step hangs or drops the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Place {
    /// Before anything was answered.
    Request,
    /// After the HTTP headers, before the first event.
    Headers,
    /// In the middle of the events.
    Mid,
}

/// Tokens of one answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Tokens {
    /// Tokens sent, cached ones included.
    pub input: u64,
    /// Of these, from a cache.
    pub cached: u64,
    /// Tokens received.
    pub output: u64,
}

impl Default for Tokens {
    fn default() -> Self {
        Self { input: 100, cached: 60, output: 10 }
    }
}

impl Step {
    /// A final message.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: Some(text.into()), ..Self::default() }
    }

    /// A shell command.
    #[must_use]
    pub fn sh(command: impl Into<String>) -> Self {
        Self { sh: Some(command.into()), ..Self::default() }
    }

    /// An HTTP error.
    #[must_use]
    pub fn status(status: u16) -> Self {
        Self { status: Some(status), ..Self::default() }
    }

    /// The answer of an account whose usage limit is spent until `resets_at` (Unix seconds).
    #[must_use]
    pub fn usage_limit(resets_at: i64) -> Self {
        Self { limit_until: Some(resets_at), ..Self::status(429) }
    }

    /// A call of the tool of that name.
    #[must_use]
    pub fn call(tool: impl Into<String>, args: Value) -> Self {
        Self { call: Some(Call { tool: tool.into(), args }), ..Self::default() }
    }

    /// The same step, played again until a tool's result says `text`.
    #[must_use]
    pub fn until(self, text: &str) -> Self {
        Self { until: Some(text.to_owned()), ..self }
    }

    /// The same, for the first request alone.
    #[must_use]
    pub fn once(self) -> Self {
        Self { times: Some(1), ..self }
    }

    /// Silence from `place` on.
    #[must_use]
    pub fn hang(place: Place) -> Self {
        Self { hang: Some(place), ..Self::default() }
    }
}

/// The line that scripts the model, to be put anywhere into a prompt.
#[must_use]
pub fn directive(steps: &[Step]) -> String {
    format!("{MARK} {}", serde_json::to_string(steps).expect("a step is plain data"))
}

/// The script in `text`: the last one, where there are several.
///
/// # Errors
/// What stands after the mark is no list of steps. The text says why.
pub fn find(text: &str) -> Result<Option<Vec<Step>>, String> {
    let Some((_, rest)) = text.rsplit_once(MARK) else { return Ok(None) };
    match serde_json::Deserializer::from_str(rest).into_iter::<Vec<Step>>().next() {
        Some(Ok(steps)) if !steps.is_empty() => Ok(Some(steps)),
        Some(Err(error)) => Err(format!("the script after {MARK} cannot be read: {error}")),
        _ => Err(format!("no step follows {MARK}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directive_is_found_again_in_a_prompt() {
        let steps = [Step::sh("echo \"a\" > 'b'"), Step::usage_limit(7), Step::hang(Place::Mid), Step::text("done")];
        let prompt = format!("Do it.\n{}\nMore text ] }}.", directive(&steps));
        assert_eq!(find(&prompt).unwrap().unwrap(), steps);
        assert_eq!(find("no script"), Ok(None));
    }

    #[test]
    fn a_script_with_a_typing_error_is_refused() {
        assert!(find("FAKE-MODEL: [{\"shh\":\"ls\"}]").unwrap_err().contains("shh"));
        assert!(find("FAKE-MODEL: []").is_err());
        assert!(find("FAKE-MODEL:").is_err());
    }
}
