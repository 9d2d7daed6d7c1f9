//! The tools: a name, what the model reads about it, and the function behind it.

mod decide;
pub(super) mod integrate;
mod look;
mod start;
mod wait;

use std::fmt;
use std::sync::Arc;

use rmcp::model::{JsonObject, Tool, ToolAnnotations};
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::answer::Answer;
use super::call::Call;
use super::shared::Shared;
use crate::error::CliResult;

/// What a tool does to the world, for the client's own rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// It only looks.
    Look,
    /// It starts work, or changes a run; nothing of the user's.
    Act,
    /// It ends work, or writes into the user's working tree.
    Weigh,
}

type Run = dyn Fn(&Shared, JsonObject, &Call) -> Result<CliResult<Answer>, String> + Send + Sync;

/// A tool.
#[derive(Clone)]
pub(super) struct ToolSpec {
    /// As the protocol lists it.
    pub(super) listed: Tool,
    run: Arc<Run>,
}

impl fmt::Debug for ToolSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ToolSpec").field(&self.listed.name).finish()
    }
}

impl ToolSpec {
    fn new<T: JsonSchema + DeserializeOwned + 'static>(
        name: &'static str,
        about: &'static str,
        effect: Effect,
        act: fn(&Shared, &T, &Call) -> CliResult<Answer>,
    ) -> Self {
        let mut hints = ToolAnnotations::new().read_only(effect == Effect::Look).open_world(false);
        if effect != Effect::Look {
            hints = hints.destructive(effect == Effect::Weigh);
        }
        let listed = Tool::new(name, about, input_schema::<T>()).with_annotations(hints);
        let run = move |shared: &Shared, arguments: JsonObject, call: &Call| {
            let arguments: T = serde_json::from_value(Value::Object(arguments)).map_err(|error| error.to_string())?;
            Ok(act(shared, &arguments, call))
        };
        Self { listed, run: Arc::new(run) }
    }

    /// Runs it.
    ///
    /// # Errors
    /// The arguments do not fit its schema.
    pub(super) fn run(&self, shared: &Shared, arguments: JsonObject, call: &Call) -> Result<Answer, String> {
        let answer = (self.run)(shared, arguments, call)?;
        Ok(answer.unwrap_or_else(|error| Answer::error(&error)))
    }
}

/// All of them, in the order of the flow.
pub(super) fn all() -> Vec<ToolSpec> {
    use Effect::{Act, Look, Weigh};
    vec![
        ToolSpec::new(
            "check",
            "Check a plan and start nothing: every problem at once, with line and column.",
            Look,
            start::check,
        ),
        ToolSpec::new(
            "start",
            "Start a plan in the background; returns the run id at once. The same plan already under way is returned (existing: true), not started twice. Next: wait.",
            Act,
            start::start,
        ),
        ToolSpec::new(
            "wait",
            "Sleep until something in the run calls for action, or timeout_s. Give `next` of the last digest as `since`. On woke: timed-out just call again.",
            Look,
            wait::wait,
        ),
        ToolSpec::new("status", "Where every unit of a run is, one line each.", Look, look::status),
        ToolSpec::new(
            "result",
            "Without unit: conclusion and open items of every unit. With unit: the result it wrote, cut at 16 KiB with its path.",
            Look,
            look::result,
        ),
        ToolSpec::new("logs", "The end of what a unit's worker wrote.", Look, look::logs),
        ToolSpec::new(
            "brief",
            "What a unit's worker is told. For a unit handed over to you (HANDOFF): your subagent's task.",
            Look,
            look::brief,
        ),
        ToolSpec::new(
            "diff",
            "What units changed: files with line counts. With unit and file: that file's patch, in pieces of 16 KiB (go on at next_offset).",
            Look,
            look::diff,
        ),
        ToolSpec::new(
            "compare",
            "The members of a panel side by side: outcome, check, changes, cost. Then result and diff of each, and accept one: at most one lands.",
            Look,
            look::compare,
        ),
        ToolSpec::new("usage", "Tokens and time of a run, by unit and by executor.", Look, look::usage),
        ToolSpec::new(
            "retry",
            "Another attempt at a settled unit. continue: in its own clone and session, with the message in its prompt; else afresh.",
            Act,
            decide::retry,
        ),
        ToolSpec::new("stop", "End a unit, or without unit the whole run. What was done is kept.", Weigh, decide::stop),
        ToolSpec::new(
            "accept",
            "Let a unit land although it did not succeed, or take it of its panel (the others stay out). Only on the user's word; recorded with why.",
            Act,
            decide::accept,
        ),
        ToolSpec::new(
            "exclude",
            "Keep a unit out of landing, so that it blocks no more. Recorded with why.",
            Act,
            decide::exclude,
        ),
        ToolSpec::new("submit", "Say that a unit handed over to you is finished.", Act, decide::submit),
        ToolSpec::new(
            "reconcile",
            "Whether the run may land, and which units stand in the way.",
            Look,
            integrate::reconcile,
        ),
        ToolSpec::new(
            "integrate",
            "Without tree: try and verify the combination, change nothing, return its tree id. With that tree, on the user's word: land it in the working tree, uncommitted. Never commits.",
            Weigh,
            integrate::integrate,
        ),
    ]
}

/// Names a run.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct RunArgs {
    /// Run id. Default: the newest run of this repository.
    run: Option<String>,
}

/// Names a unit.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct UnitArgs {
    /// Run id. Default: the newest run of this repository.
    run: Option<String>,
    /// Unit id.
    unit: String,
}

/// The schema of a tool's arguments, without what a model need not read.
fn input_schema<T: JsonSchema>() -> JsonObject {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.meta_schema = None;
    });
    let schema = settings.into_generator().into_root_schema_for::<T>();
    let Value::Object(mut schema) = Value::from(schema) else { return JsonObject::new() };
    schema.remove("title");
    schema.remove("description");
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        properties.values_mut().for_each(tighten);
    }
    schema
}

/// An argument that may be left out need not be null as well, and machine widths say nothing to a model.
fn tighten(property: &mut Value) {
    let Value::Object(property) = property else { return };
    for key in ["format", "default"] {
        property.remove(key);
    }
    if let Some(Value::Array(types)) = property.get_mut("type") {
        types.retain(|name| name != "null");
        if let [only] = &types[..] {
            let only = only.clone();
            property.insert("type".to_owned(), only);
        }
    }
    if let Some(Value::Array(values)) = property.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
    if let Some(Value::Array(choices)) = property.get("anyOf")
        && let [choice, Value::Object(null)] = &choices[..]
        && null.get("type").is_some_and(|name| name == "null")
    {
        let choice = choice.clone();
        property.remove("anyOf");
        if let Value::Object(choice) = choice {
            // The argument's own words come first.
            choice.into_iter().for_each(|(key, value)| {
                property.entry(key).or_insert(value);
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_schema_is_closed_and_says_what_each_argument_is() {
        for tool in all() {
            let (name, schema) = (&tool.listed.name, &tool.listed.input_schema);
            assert_eq!(schema["type"], "object", "{name}");
            assert_eq!(schema["additionalProperties"], false, "{name}");
            for (argument, property) in schema["properties"].as_object().unwrap() {
                assert!(property.get("description").is_some(), "{name}.{argument}: {property}");
                assert!(property.get("type").is_some(), "{name}.{argument}: {property}");
                assert!(!property.to_string().contains("null"), "{name}.{argument}: {property}");
            }
        }
    }

    /// A client puts all of this into every session, whether it fans out or not.
    #[test]
    fn what_a_model_reads_about_all_tools_is_short() {
        let tools: Vec<Tool> = all().into_iter().map(|tool| tool.listed).collect();
        let bytes: usize = tools
            .iter()
            .map(|tool| {
                let about = tool.description.as_deref().unwrap_or_default();
                assert!(about.len() <= 200, "{}: {} bytes", tool.name, about.len());
                tool.name.len() + about.len() + serde_json::to_string(&tool.input_schema).unwrap().len()
            })
            .sum();
        assert!(bytes <= 8_000, "{bytes} bytes");
    }
}
