//! The conversation that a request carries, whatever its API.

use serde_json::Value;

use super::Api;

/// What counts of a conversation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Conversation {
    /// What the user said, in order; also what the client said in the user's name.
    pub(super) words: Vec<String>,
    /// The tool results since the user's newest word, as text.
    pub(super) done: Vec<String>,
    /// The tools that are offered, by name.
    pub(super) tools: Vec<String>,
}

impl Conversation {
    pub(super) fn of(api: Api, body: &Value) -> Self {
        match api {
            Api::Responses => responses(body),
            Api::Messages => messages(body),
            Api::Chat => chat(body),
            Api::Gemini => gemini(body),
        }
    }

    /// The client adds messages in the user's name that begin with a tag (environment, reminders).
    fn say(&mut self, text: String) {
        if !text.trim_start().starts_with('<') {
            self.done.clear();
        }
        self.words.push(text);
    }
}

fn responses(body: &Value) -> Conversation {
    let mut talk = Conversation { tools: responses_tools(body), ..Conversation::default() };
    for item in list(&body["input"]) {
        match item["type"].as_str().unwrap_or("message") {
            "message" if item["role"] == "user" => talk.say(text(&item["content"])),
            kind if kind.ends_with("_output") => talk.done.push(any_text(&item["output"])),
            _ => {}
        }
    }
    talk
}

/// Names of all tools; newer models get theirs in an item of the conversation, in a namespace.
fn responses_tools(body: &Value) -> Vec<String> {
    let added = list(&body["input"]).iter().flat_map(|item| list(&item["tools"]));
    let tools = list(&body["tools"]).iter().chain(added);
    names(tools.flat_map(|tool| list(&tool["tools"]).iter().chain([tool])).map(|tool| &tool["name"]))
}

fn messages(body: &Value) -> Conversation {
    let tools = names(list(&body["tools"]).iter().map(|tool| &tool["name"]));
    let mut talk = Conversation { tools, ..Conversation::default() };
    for message in list(&body["messages"]).iter().filter(|message| message["role"] == "user") {
        let blocks = list(&message["content"]);
        let results = blocks.iter().filter(|block| block["type"] == "tool_result");
        let results: Vec<String> = results.map(|block| any_text(&block["content"])).collect();
        if !results.is_empty() {
            talk.done.extend(results);
            continue;
        }
        if let Some(text) = message["content"].as_str() {
            talk.say(text.to_owned());
        }
        blocks.iter().for_each(|block| talk.say(text(block)));
    }
    talk
}

fn chat(body: &Value) -> Conversation {
    let tools = names(list(&body["tools"]).iter().map(|tool| &tool["function"]["name"]));
    let mut talk = Conversation { tools, ..Conversation::default() };
    for message in list(&body["messages"]) {
        match message["role"].as_str() {
            // A reminder of the client's may stand before the user's own word, in a part of its own.
            Some("user") => match message["content"].as_array() {
                Some(parts) => parts.iter().for_each(|part| talk.say(text(part))),
                None => talk.say(text(&message["content"])),
            },
            Some("tool") => talk.done.push(any_text(&message["content"])),
            _ => {}
        }
    }
    talk
}

fn gemini(body: &Value) -> Conversation {
    let declared = list(&body["tools"]).iter().flat_map(|tool| list(&tool["functionDeclarations"]));
    let mut talk = Conversation { tools: names(declared.map(|tool| &tool["name"])), ..Conversation::default() };
    for message in list(&body["contents"]).iter().filter(|message| message["role"] == "user") {
        for part in list(&message["parts"]) {
            if let Some(response) = part.get("functionResponse") {
                talk.done.push(any_text(response));
            } else {
                talk.say(text(part));
            }
        }
    }
    talk
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn names<'a>(values: impl Iterator<Item = &'a Value>) -> Vec<String> {
    values.filter_map(Value::as_str).map(str::to_owned).collect()
}

/// The text of a result; a result that has none, as JSON.
fn any_text(content: &Value) -> String {
    let text = text(content);
    if text.is_empty() { content.to_string() } else { text }
}

fn text(content: &Value) -> String {
    match content {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().map(text).collect::<Vec<_>>().join("\n"),
        Value::Object(part) => part.get("text").and_then(Value::as_str).unwrap_or_default().to_owned(),
        _ => String::new(),
    }
}
