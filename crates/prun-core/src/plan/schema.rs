//! The plan file's format as types: the source of its JSON Schema and of the reference in the docs.
//!
//! The reader in [`super::read`] does not use them, because it must tell every problem with its place; a test
//! holds the two together.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use schemars::generate::SchemaSettings;
use schemars::transform::RecursiveTransform;
use schemars::{JsonSchema, Schema};
use serde::Serialize;
use serde_json::Value;

use crate::event::{Guard, Mode};
use crate::ids::{ExecutorName, UnitId};
use crate::plan::model::{CommandLine, Dirty, ResultFrom};

/// A plan: independent units of work on one repository, and how they are run and checked.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(title = "prun plan")]
pub struct RawPlan {
    /// For editors: the address of this schema.
    #[serde(rename = "$schema", skip_serializing_if = "Option::is_none")]
    pub schema: Option<String>,
    /// The format's version: 1.
    #[schemars(range(min = 1, max = 1))]
    pub version: u32,
    /// What the run is about. Default: made from the ids of the units.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// The repository, relative to the plan file. Default: the one of the current directory.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub repo: Option<String>,
    /// The revision that every unit starts from. Default: `HEAD`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub base: Option<String>,
    /// What happens to uncommitted work: `include` shows it to the units, `ignore` does not. Must be said when
    /// there is any; the plan and the prompt files that it names do not count.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dirty: Option<Dirty>,
    /// `mount`: workers and the commands beside them run in a mount namespace in which the repository is read-only
    /// (Linux). Default: none; what is written to it by its path is detected, not prevented.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub guard: Option<Guard>,
    /// A command that is run once in each clone, before the worker.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub setup: Option<CommandLine>,
    /// How long that command may take. Default: 30 minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub setup_limit: Option<RawSpan>,
    /// The check of the run: once on the base (a failure there is a warning), then on the combination of all changes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verify: Option<CommandLine>,
    /// How long that check, and the `verify` of a unit, may take. Default: 30 minutes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub check_limit: Option<RawSpan>,
    /// How many units may run at once. Default: the sum of the executors' slots.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1, max = 1000))]
    pub jobs: Option<u32>,
    /// How many levels of runs workers may start themselves. Default: 0, a worker that calls prun is refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(max = 3))]
    pub depth: Option<u32>,
    /// A file whose text is put before every prompt; relative to the plan file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_file: Option<String>,
    /// What the run may spend. At 80 % it is warned of, at 100 % everything stops.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<RawBudget>,
    /// Values for the units that do not say their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub defaults: Option<RawDefaults>,
    /// The units, at least one where there is no `[[map]]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(min = 1, max = 10_000))]
    pub unit: Vec<RawUnit>,
    /// Units from rows: one for each row of a file or a list.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub map: Vec<RawMap>,
}

/// A unit: one piece of work for one worker, done without the others.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
#[schemars(extend("oneOf" = [{ "required": ["prompt"] }, { "required": ["prompt_file"] }]))]
pub struct RawUnit {
    /// Its name, unique in the plan also when upper and lower case are the same: 1 to 64 of `A-Z a-z 0-9 _ -`, no
    /// dash first.
    #[schemars(with = "String", regex(pattern = "^[A-Za-z0-9_][A-Za-z0-9_-]{0,63}$"))]
    pub id: UnitId,
    /// What the worker is told. Either this or `prompt_file`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// A file with what the worker is told; relative to the plan file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_file: Option<String>,
    /// What a write unit may change, in the patterns of `.gitignore`. Changes outside are shown. Default: anything.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1000))]
    pub owns: Option<Vec<String>>,
    /// Files that must exist at the end, relative to the workspace.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 1000))]
    pub deliverables: Option<Vec<String>>,
    /// Executors that all get this prompt, 2 to 8: the unit becomes a unit for each, `ID-EXECUTOR`, of which at most one
    /// lands, by name. Instead of `executor`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(with = "Option<Vec<String>>", length(min = 2, max = 8))]
    pub panel: Option<Vec<ExecutorName>>,
    /// How many times the work is done side by side, 2 to 8: units `ID-1`, `ID-2`, of which at most one lands, by name.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 2, max = 8))]
    pub samples: Option<u32>,
    /// The keys that `[defaults]` may have too.
    #[serde(flatten)]
    pub settings: RawDefaults,
}

/// Units from rows. It has the keys of a unit too; `prompt` and `owns` are templates.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawMap {
    /// What the results are called; the units too (`name-1`, `name-2`) where no column has their ids.
    #[schemars(with = "String", regex(pattern = "^[A-Za-z0-9_][A-Za-z0-9_-]{0,63}$"))]
    pub name: UnitId,
    /// A file with the rows, relative to the plan: `.csv` with a head, or `.jsonl` with an object a line.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rows: Option<String>,
    /// The rows themselves: tables, or plain values that the template calls `item`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub list: Option<Vec<Value>>,
    /// Each file below the plan that matches this pattern of `.gitignore` is a row: `path`, `dir`, `name`, `stem`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub glob: Option<String>,
    /// The column with the units' ids. Default: they are numbered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// A file with a JSON Schema, relative to the plan, that the JSON of each result must meet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub schema: Option<String>,
    /// What the worker is told: a template in the manner of Jinja with the columns as variables, such as `{{ title }}`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
    /// A file with such a template; relative to the plan file.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_file: Option<String>,
    /// What a write unit may change; templates too.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub owns: Option<Vec<String>>,
    /// Files that must exist at the end, relative to the workspace.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deliverables: Option<Vec<String>>,
    /// The keys that `[defaults]` may have too.
    #[serde(flatten)]
    pub settings: RawDefaults,
}

/// Values for the units that do not say their own.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawDefaults {
    /// `write`: it changes code in a clone of its own. `read`: it reads a checkout at `repo/`; what it edits there is
    /// kept and shown, and landed only if accepted by name. Default: `write`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub mode: Option<Mode>,
    /// Who does it: a name or several, of which the first that can takes it. Default: `codex`, or `command` where
    /// `command` is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub executor: Option<RawExecutor>,
    /// The worker's command line, for the executor `command`. The prompt is on its standard input.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command: Option<CommandLine>,
    /// Where the result of `command` comes from: `file`, the one that the brief names, or `stdout`, what it prints.
    /// Default: `file`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub result: Option<ResultFrom>,
    /// The unit's own check, run in its clone after the worker: a unit that fails it has failed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub verify: Option<CommandLine>,
    /// How hard the model is to think, in the client's words, such as `high`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub effort: Option<String>,
    /// The model, in the client's words.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Variables for the worker; a unit's are added to the defaults. `PRUN_*` and `GIT_*` are prun's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub env: Option<BTreeMap<String, String>>,
    /// Attempts after the first: 0 to 10. Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0, max = 10))]
    pub retries: Option<u32>,
    /// The longest time of an attempt, such as `45m` or `1h30m`; `off` for none. Default: `off`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timeout: Option<RawDuration>,
    /// The longest time without a sign of life. Default: `10m`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle_timeout: Option<RawDuration>,
    /// The longest time until the first output. Default: `3m`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first_output_timeout: Option<RawDuration>,
    /// `false` gives a read unit an empty directory instead of a checkout. Default: `true`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub checkout: Option<bool>,
    /// What a unit may spend, all attempts together: a table like that of the plan.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub budget: Option<RawBudget>,
    /// Units with a higher one start first: -100 to 100. Default: 0, in the plan's order.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = -100, max = 100))]
    pub priority: Option<i32>,
}

/// What may be spent.
#[derive(Clone, Debug, Default, Serialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct RawBudget {
    /// Tokens, sent and received together, such as `20M`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens: Option<RawAmount>,
    /// Money, such as `$12.50`, as far as clients report it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub money: Option<RawAmount>,
    /// Turns, as far as clients report them.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub turns: Option<RawAmount>,
    /// Time, such as `8h`: of a run since it began, of a unit over all its attempts.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<RawDuration>,
}

/// A number, or a number as people write it.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum RawAmount {
    /// A number.
    Number(#[schemars(range(min = 1))] u64),
    /// With a unit.
    Text(String),
}

/// A name, or several in order.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(untagged)]
pub enum RawExecutor {
    /// One.
    Name(#[schemars(with = "String", regex(pattern = "^[a-z0-9][a-z0-9_-]{0,31}$"))] ExecutorName),
    /// Several: the first that can takes the unit.
    Names(#[schemars(with = "Vec<String>", length(min = 1))] Vec<ExecutorName>),
}

/// A duration with its unit, or `off`.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct RawDuration(#[schemars(regex(pattern = r"^(off|(?=\d)(\d+d)?(\d+h)?(\d+m)?(\d+s)?(\d+ms)?)$"))] pub String);

/// A duration with its unit.
#[derive(Clone, Debug, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct RawSpan(#[schemars(regex(pattern = r"^(?=\d)(\d+d)?(\d+h)?(\d+m)?(\d+s)?(\d+ms)?$"))] pub String);

/// The JSON Schema of the plan file, with every part in its place.
#[must_use]
pub fn schema() -> Value {
    let settings = SchemaSettings::draft2020_12().with(|settings| {
        settings.inline_subschemas = true;
        settings.transforms.push(Box::new(RecursiveTransform(without_null)));
    });
    settings.into_generator().into_root_schema_for::<RawPlan>().to_value()
}

/// A key may be left out, but `null` is no value for it: TOML has none.
fn without_null(schema: &mut Schema) {
    let null = Value::from("null");
    if let Some(Value::Array(kinds)) = schema.get_mut("type") {
        kinds.retain(|kind| *kind != null);
        if let [only] = kinds.as_slice() {
            let only = only.clone();
            schema.insert("type".to_owned(), only);
        }
    }
    let Some(Value::Array(mut choices)) = schema.remove("anyOf") else { return };
    choices.retain(|choice| choice["type"] != null);
    match choices.as_mut_slice() {
        [Value::Object(only)] => {
            for (name, value) in std::mem::take(only) {
                schema.ensure_object().entry(name).or_insert(value);
            }
        }
        _ => drop(schema.insert("anyOf".to_owned(), Value::Array(choices))),
    }
}

/// The keys of the plan, of a unit and of `[defaults]` as tables in Markdown.
#[must_use]
pub fn reference() -> String {
    let schema = schema();
    let shared = keys(&schema["properties"]["defaults"]);
    let mut own = keys(&schema["properties"]["unit"]["items"]);
    own.retain(|key| !shared.iter().any(|other| other.name == key.name));
    let mut of_map = keys(&schema["properties"]["map"]["items"]);
    of_map.retain(|key| !shared.iter().any(|other| other.name == key.name));
    let mut text = String::new();
    table(&mut text, "### The plan", &keys(&schema));
    table(&mut text, "### `[budget]`", &keys(&schema["properties"]["budget"]));
    table(&mut text, "### `[[unit]]`", &own);
    table(&mut text, "### `[[map]]`", &of_map);
    table(&mut text, "### `[[unit]]`, `[[map]]` and `[defaults]`", &shared);
    text
}

struct Key {
    name: String,
    kind: String,
    meaning: String,
}

fn keys(object: &Value) -> Vec<Key> {
    let properties = object["properties"].as_object().into_iter().flatten();
    let key = |(name, key): (&String, &Value)| Key {
        name: name.clone(),
        kind: kind(key),
        meaning: key["description"].as_str().unwrap_or_default().replace('\n', " "),
    };
    properties.map(key).collect()
}

/// What a value is, in a word or two.
fn kind(key: &Value) -> String {
    let choices = key["anyOf"].as_array().or_else(|| key["oneOf"].as_array());
    match (&key["const"], key["type"].as_str(), choices) {
        (Value::String(word), ..) => format!("`\"{word}\"`"),
        (_, Some("object"), _) => "table".to_owned(),
        (_, Some("array"), _) if key["items"]["type"].is_null() => "array".to_owned(),
        (_, Some("array"), _) => format!("array of {}s", kind(&key["items"])),
        (_, Some(kind), _) => kind.to_owned(),
        (_, None, choices) => choices.into_iter().flatten().map(kind).collect::<Vec<_>>().join(" or "),
    }
}

fn table(text: &mut String, heading: &str, keys: &[Key]) {
    let _ = writeln!(text, "{heading}\n\n| key | value | meaning |\n|---|---|---|");
    for Key { name, kind, meaning } in keys {
        let _ = writeln!(text, "| `{name}` | {kind} | {meaning} |");
    }
    text.push('\n');
}
