//! From text to a [`PlanFile`], or to every problem at once.

use std::collections::HashMap;

use crate::event::{Guard, Mode};
use crate::ids::UnitId;
use crate::plan::budget;
use crate::plan::fields::{self, Fields, Given, Item};
use crate::plan::map;
use crate::plan::model::{
    DEFAULT_FIRST_OUTPUT_MILLIS, DEFAULT_IDLE_MILLIS, DEFAULT_RETRIES, Dirty, MAX_DEPTH, MapPlan, PLAN_VERSION,
    PlanFile, PlanPlaces, Prompt, ResultFrom, UnitPlaces, UnitPlan,
};
use crate::plan::panel::{self, Ask};
use crate::plan::problem::{Place, Problem, quoted};
use crate::plan::settings::{self, Settings};
use crate::plan::tree::{self, Node, Value};

/// The longest plan, in bytes: far above any that a person or an agent writes.
pub const MAX_PLAN_BYTES: usize = 4 << 20;
/// The most units of a plan.
pub const MAX_UNITS: usize = 10_000;
/// The most units at once that a plan may ask for.
const MAX_JOBS: u32 = 1_000;
/// Names that were given, in lower case: as they are written, and where.
type Ids = HashMap<String, (String, Place)>;

const START: Place = Place { line: 1, column: 1 };

/// How a plan is written down. Both have the same keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// TOML, the usual one.
    Toml,
    /// Strict JSON.
    Json,
}

impl Format {
    /// The format of a plan: JSON where its file says so or it begins with a brace, as no TOML does.
    #[must_use]
    pub fn of(file: &str, text: &str) -> Self {
        let json = file.to_ascii_lowercase().ends_with(".json") || without_mark(text).trim_start().starts_with('{');
        if json { Self::Json } else { Self::Toml }
    }
}

/// Reads a plan.
///
/// # Errors
/// Every problem of the text, sorted by place; a syntax error alone, because nothing after it can be trusted.
pub fn parse(text: &str, format: Format) -> Result<PlanFile, Vec<Problem>> {
    if text.len() > MAX_PLAN_BYTES {
        let message = format!("the plan has {} bytes; at most {MAX_PLAN_BYTES} are allowed", text.len());
        return Err(vec![Problem::new(START, message).hint("put long prompts into files and name them: prompt_file")]);
    }
    let text = without_mark(text);
    let root = match format {
        Format::Toml => tree::from_toml(text).map_err(|problem| vec![problem]),
        Format::Json => tree::from_json(text),
    }?;
    let mut problems = Vec::new();
    let plan = read_plan(&mut Fields::new(root), &mut problems);
    problems.sort();
    match plan {
        Some(plan) if problems.is_empty() => Ok(plan),
        _ => Err(problems),
    }
}

/// Some editors begin a file with a byte order mark, which nobody sees and no column counts.
fn without_mark(text: &str) -> &str {
    text.strip_prefix('\u{feff}').unwrap_or(text)
}

/// `None` only where a problem was noted.
fn read_plan(fields: &mut Fields, problems: &mut Vec<Problem>) -> Option<PlanFile> {
    // Editors look at it; to prun it says nothing.
    fields.take("$schema");
    read_version(fields, problems);
    let title = fields.read("title", problems, |item| item.checked(one_line)).value();
    let repo = fields.read("repo", problems, fields::text);
    let base = fields.read("base", problems, |item| {
        item.checked(revision).map_err(|problem| problem.hint("a branch, a tag or a commit, such as \"HEAD\""))
    });
    let dirty = [("include", Dirty::Include), ("ignore", Dirty::Ignore)];
    let dirty = fields.read("dirty", problems, |item| item.word(&dirty)).value();
    let guard = fields.read("guard", problems, |item| item.word(&[("mount", Guard::Mount)]));
    let setup = fields.read("setup", problems, settings::command_line).value();
    let setup_limit = fields.read("setup_limit", problems, settings::span).value();
    let verify = fields.read("verify", problems, settings::command_line).value();
    let check_limit = fields.read("check_limit", problems, settings::span).value();
    let jobs = fields.read("jobs", problems, |item| item.integer(&(1..=MAX_JOBS)));
    let depth = fields.read("depth", problems, |item| item.integer(&(0..=MAX_DEPTH)));
    let context_file = fields.read("context_file", problems, fields::text);
    let budget = fields.read("budget", problems, budget::budget).value().unwrap_or_default();
    let defaults = read_defaults(fields, problems);
    let maps = read_maps(fields, &defaults, problems);
    let units = read_units(fields, &defaults, maps.as_ref().is_none_or(|maps| !maps.is_empty()), problems);
    fields.finish(problems);
    let places = PlanPlaces {
        repo: repo.place(),
        base: base.place(),
        guard: guard.place(),
        jobs: jobs.place(),
        context_file: context_file.place(),
    };
    let (units, maps) = (units?, maps?);
    Some(PlanFile {
        version: PLAN_VERSION,
        title: title.unwrap_or_else(|| title_of(maps.iter().map(|map| &map.unit).chain(&units))),
        repo: repo.value(),
        base: base.value().unwrap_or_else(|| "HEAD".to_owned()),
        dirty,
        guard: guard.value(),
        setup,
        setup_limit_millis: setup_limit,
        verify,
        check_limit_millis: check_limit,
        jobs: jobs.value(),
        depth: depth.value().unwrap_or(0),
        context: context_file.value().map(Prompt::File),
        budget,
        units,
        maps,
        places,
    })
}

fn read_version(fields: &mut Fields, problems: &mut Vec<Problem>) {
    let version = fields.read("version", problems, |item| match item.value {
        Value::Integer(1) => Ok(()),
        Value::Integer(other) => Err(item.site.problem(&format!("is {other}; this prun reads plans of version 1"))),
        _ => Err(item.wants("the integer 1")),
    });
    if version.is_missing() {
        problems.push(Problem::new(START, "`version` is missing").hint("begin the plan with: version = 1"));
    }
}

fn read_defaults(fields: &mut Fields, problems: &mut Vec<Problem>) -> Settings {
    let entries = fields.read("defaults", problems, fields::table).value().unwrap_or_default();
    let mut fields = Fields::new(entries);
    let settings = settings::read(&mut fields, problems);
    for key in ["id", "prompt", "prompt_file", "owns", "deliverables", "panel", "samples"] {
        if let Some(entry) = fields.take_stray(key) {
            problems.push(Problem::new(entry.place, format!("`{key}` is each unit's own, not a default")));
        }
    }
    fields.finish(problems);
    settings
}

/// `None` only where a problem was noted.
fn read_maps(fields: &mut Fields, defaults: &Settings, problems: &mut Vec<Problem>) -> Option<Vec<MapPlan>> {
    let nodes = match fields.read("map", problems, map::nodes) {
        Given::Value(nodes, _) => nodes,
        Given::Missing => Vec::new(),
        Given::Bad => return None,
    };
    let mut names = Ids::new();
    let maps: Vec<_> = nodes.into_iter().map(|node| read_map(node, defaults, &mut names, problems)).collect();
    maps.into_iter().collect()
}

/// `None` only where a problem was noted.
fn read_map(node: Node, defaults: &Settings, names: &mut Ids, problems: &mut Vec<Problem>) -> Option<MapPlan> {
    let Value::Table(entries) = node.value else {
        problems.push(Problem::new(node.place, format!("a map is a table, not {}", node.value.kind())));
        return None;
    };
    map::read(&mut Fields::new(entries), node.place, problems, |fields, problems| {
        panel::refuse(fields, problems);
        read_unit_fields(fields, node.place, defaults, None, names, problems)
    })
}

/// `has_maps`: there need be no unit of its own.
fn read_units(
    fields: &mut Fields,
    defaults: &Settings,
    has_maps: bool,
    problems: &mut Vec<Problem>,
) -> Option<Vec<UnitPlan>> {
    let nodes = match fields.read("unit", problems, unit_nodes) {
        Given::Value(nodes, _) => nodes,
        Given::Bad => return None,
        Given::Missing if has_maps => return Some(Vec::new()),
        Given::Missing => {
            problems.push(Problem::new(START, "the plan has no unit").hint("add one: [[unit]] with id and prompt"));
            return None;
        }
    };
    let mut ids = HashMap::new();
    // Read them all before the first failure counts, so that every problem is told.
    let units: Vec<_> = nodes.into_iter().map(|node| read_unit(node, defaults, &mut ids, problems)).collect();
    let units: Option<Vec<Vec<UnitPlan>>> = units.into_iter().collect();
    let units: Vec<UnitPlan> = units?.into_iter().flatten().collect();
    if units.len() > MAX_UNITS {
        let message =
            format!("the plan has {} units with those of its panels; at most {MAX_UNITS} are allowed", units.len());
        problems.push(Problem::new(START, message));
    }
    Some(units)
}

fn unit_nodes(item: Item<'_>) -> Result<Vec<Node>, Problem> {
    match item.value {
        Value::Array(nodes) if nodes.is_empty() => Err(item.site.problem("holds no unit")),
        Value::Array(nodes) if nodes.len() > MAX_UNITS => {
            Err(item.site.problem(&format!("holds {} units; at most {MAX_UNITS} are allowed", nodes.len())))
        }
        Value::Array(nodes) => Ok(nodes),
        Value::Table(_) => Err(item.wants("an array of tables").hint("write [[unit]], with two brackets")),
        _ => Err(item.wants("an array of tables")),
    }
}

/// The unit, or the members of the panel that it is. `None` only where a problem was noted.
fn read_unit(node: Node, defaults: &Settings, ids: &mut Ids, problems: &mut Vec<Problem>) -> Option<Vec<UnitPlan>> {
    let Value::Table(entries) = node.value else {
        problems.push(Problem::new(node.place, format!("a unit is a table, not {}", node.value.kind())));
        return None;
    };
    read_members(&mut Fields::new(entries), node.place, defaults, ids, problems)
}

/// `None` only where a problem was noted.
fn read_members(
    fields: &mut Fields,
    place: Place,
    defaults: &Settings,
    ids: &mut Ids,
    problems: &mut Vec<Problem>,
) -> Option<Vec<UnitPlan>> {
    let ask = Ask::read(fields, problems);
    let unit = read_unit_fields(fields, place, defaults, ask.as_ref(), ids, problems)?;
    Some(match ask {
        Some(ask) => ask.members(&unit, problems, |id, place| taken(id, place, ids)),
        None => vec![unit],
    })
}

/// `None` only where a problem was noted.
fn read_unit_fields(
    fields: &mut Fields,
    unit: Place,
    defaults: &Settings,
    ask: Option<&Ask>,
    ids: &mut Ids,
    problems: &mut Vec<Problem>,
) -> Option<UnitPlan> {
    let (id, id_place) = read_id(fields, unit, ids, problems);
    let own = settings::read(fields, problems);
    let (prompt, prompt_place) = read_prompt(fields, unit, problems);
    let mode = settings::closest(&own.mode, &defaults.mode).unwrap_or(Mode::Write);
    let owns = fields.read("owns", problems, |item| owns(item, mode));
    let deliverables = fields.read("deliverables", problems, |item| item.texts(deliverable)).value();
    fields.finish(problems);
    let of_panel = ask.and_then(Ask::executors);
    if let (Some(_), Given::Value(_, place)) = (&of_panel, &own.executors) {
        let problem = Problem::new(*place, "the unit has both `panel` and `executor`");
        problems.push(problem.hint("leave `executor` out: the panel names who does it"));
    }
    let (executors, executor_place) = of_panel.unwrap_or_else(|| settings::executors_of(&own, defaults));
    let command = settings::command_of(&own, defaults, &executors, executor_place.or(Some(unit)));
    let command = command.unwrap_or_else(|problem| {
        problems.push(problem);
        None
    });
    let result = settings::result_of(&own, defaults, command.as_ref()).unwrap_or_else(|problem| {
        problems.push(problem);
        ResultFrom::File
    });
    if let (Mode::Write, Given::Value(false, place)) = (mode, &own.checkout) {
        problems.push(Problem::new(*place, "`checkout` = false is for read units").hint("say mode = \"read\""));
    }
    Some(UnitPlan {
        id: id?,
        mode,
        executors,
        command,
        result,
        prompt: prompt?,
        places: UnitPlaces { id: id_place, executor: executor_place, prompt: prompt_place, owns: owns.place() },
        owns: owns.value().unwrap_or_default(),
        verify: settings::closest(&own.verify, &defaults.verify),
        deliverables: deliverables.unwrap_or_default(),
        effort: settings::closest(&own.effort, &defaults.effort),
        model: settings::closest(&own.model, &defaults.model),
        env: settings::env_of(&own, defaults),
        retries: settings::closest(&own.retries, &defaults.retries).unwrap_or(DEFAULT_RETRIES),
        timeout_millis: settings::closest(&own.timeout, &defaults.timeout).flatten(),
        idle_millis: settings::closest(&own.idle_timeout, &defaults.idle_timeout).unwrap_or(Some(DEFAULT_IDLE_MILLIS)),
        first_output_millis: settings::closest(&own.first_output_timeout, &defaults.first_output_timeout)
            .unwrap_or(Some(DEFAULT_FIRST_OUTPUT_MILLIS)),
        panel: None,
        row: None,
        budget: settings::closest(&own.budget, &defaults.budget).unwrap_or_default(),
        priority: settings::closest(&own.priority, &defaults.priority).unwrap_or(0),
        checkout: mode == Mode::Write || settings::closest(&own.checkout, &defaults.checkout).unwrap_or(true),
    })
}

fn read_id(
    fields: &mut Fields,
    unit: Place,
    ids: &mut Ids,
    problems: &mut Vec<Problem>,
) -> (Option<UnitId>, Option<Place>) {
    const HINT: &str = "an id is 1 to 64 of A-Z a-z 0-9 _ - and begins without a dash";
    let given = fields
        .read("id", problems, |item| item.checked(|text| text.parse::<UnitId>()).map_err(|problem| problem.hint(HINT)));
    if given.is_missing() {
        problems.push(Problem::new(unit, "the unit has no `id`").hint(HINT));
    }
    let place = given.place();
    let id = given.value();
    if let (Some(id), Some(place)) = (&id, place) {
        problems.extend(taken(id, place, ids));
    }
    (id, place)
}

/// Ids become names of directories, which some file systems take for equal when only the case differs.
fn taken(id: &UnitId, place: Place, ids: &mut Ids) -> Option<Problem> {
    const HINT: &str = "give it a name of its own: it names a directory and the unit in every command";
    let text = id.as_str();
    let problem = match ids.get(&text.to_ascii_lowercase()) {
        None => {
            ids.insert(text.to_ascii_lowercase(), (text.to_owned(), place));
            None
        }
        Some((other, at)) if other == text => {
            Some(Problem::new(place, format!("the id `{text}` is taken by the unit at {}:{}", at.line, at.column)))
        }
        Some((other, at)) => Some(Problem::new(
            place,
            format!("the id `{text}` is equal but for case to `{other}` at {}:{}", at.line, at.column),
        )),
    };
    problem.map(|problem| problem.hint(HINT))
}

fn read_prompt(fields: &mut Fields, unit: Place, problems: &mut Vec<Problem>) -> (Option<Prompt>, Option<Place>) {
    let inline = fields.read("prompt", problems, prompt_text);
    let file = fields.read("prompt_file", problems, fields::text);
    match (inline, file) {
        (Given::Missing, Given::Missing) => {
            problems.push(Problem::new(unit, "the unit has no prompt").hint("give it `prompt` or `prompt_file`"));
            (None, None)
        }
        (Given::Value(text, place), Given::Missing) => (Some(Prompt::Inline(text)), Some(place)),
        (Given::Missing, Given::Value(path, place)) => (Some(Prompt::File(path)), Some(place)),
        (Given::Bad, _) | (_, Given::Bad) => (None, None),
        (Given::Value(..), Given::Value(_, place)) => {
            problems.push(Problem::new(place, "the unit has both `prompt` and `prompt_file`").hint("leave one out"));
            (None, None)
        }
    }
}

/// A prompt goes in by stdin, so it may hold any character; but one without a word would run a worker for nothing.
fn prompt_text(item: Item<'_>) -> Result<String, Problem> {
    let site = item.site;
    let text = item.string()?;
    if text.trim().is_empty() { Err(site.problem("is empty")) } else { Ok(text) }
}

fn owns(item: Item<'_>, mode: Mode) -> Result<Vec<String>, Problem> {
    if mode == Mode::Read {
        return Err(item.site.problem("is for write units; a read unit changes nothing").hint("say mode = \"write\""));
    }
    item.texts(check_owned)
}

/// Checks a line of a `.gitignore` that stands for paths of the repository.
///
/// # Errors
/// It is none, in words that follow the name of its key.
pub fn check_owned(text: &str) -> Result<(), String> {
    let shown = quoted(text);
    if text.starts_with('#') {
        return Err(format!("has {shown}, which gitignore takes for a comment; write \\{text}"));
    }
    if text.contains('\n') {
        return Err(format!("has {shown}, which is more than one line"));
    }
    if text.split('/').any(|part| part == "..") {
        return Err(format!("has {shown}, which leaves the repository"));
    }
    let mut patterns = ignore::gitignore::GitignoreBuilder::new("");
    let fault = patterns.add_line(None, text).err();
    fault.map_or(Ok(()), |error| Err(format!("has a bad pattern: {error}")))
}

fn deliverable(path: &str) -> Result<(), String> {
    let shown = quoted(path);
    if path.starts_with('/') {
        return Err(format!("has {shown}, which is absolute; paths are relative to the workspace"));
    }
    match path.split('/').find(|part| matches!(*part, "" | "." | "..")) {
        Some("..") => Err(format!("has {shown}, which leaves the workspace")),
        Some(_) => Err(format!("has {shown}, which is not in its shortest form (no `.`, no empty part)")),
        None => Ok(()),
    }
}

fn one_line(text: String) -> Result<String, &'static str> {
    if text.contains(char::is_control) { Err("is one line without control characters") } else { Ok(text) }
}

fn revision(text: String) -> Result<String, String> {
    if text.starts_with('-') {
        return Err(format!("is {}, which git takes for an option", quoted(&text)));
    }
    Ok(text)
}

fn title_of<'a>(units: impl Iterator<Item = &'a UnitPlan>) -> String {
    const NAMED: usize = 3;
    let names: Vec<&str> = units.map(|unit| unit.id.as_str()).collect();
    let mut title = names.iter().take(NAMED).copied().collect::<Vec<_>>().join(", ");
    if names.len() > NAMED {
        title.push_str(&format!(" and {} more", names.len() - NAMED));
    }
    title
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::plan::schema;

    fn in_schema(object: &serde_json::Value) -> BTreeSet<String> {
        object["properties"].as_object().unwrap().keys().cloned().collect()
    }

    fn accepted(read: impl FnOnce(&mut Fields)) -> BTreeSet<String> {
        let mut fields = Fields::new(Vec::new());
        read(&mut fields);
        fields.asked().iter().map(|key| (*key).to_owned()).collect()
    }

    #[test]
    fn the_reader_and_the_schema_have_the_same_keys() {
        let schema = schema();
        let defaults = || settings::read(&mut Fields::new(Vec::new()), &mut Vec::new());
        assert_eq!(accepted(|fields| drop(read_plan(fields, &mut Vec::new()))), in_schema(&schema));
        assert_eq!(
            accepted(|fields| drop(settings::read(fields, &mut Vec::new()))),
            in_schema(&schema["properties"]["defaults"])
        );
        assert_eq!(
            accepted(|fields| assert!(budget::read(fields, &mut Vec::new()).is_unlimited())),
            in_schema(&schema["properties"]["budget"])
        );
        let unit = accepted(|fields| {
            read_members(fields, START, &defaults(), &mut HashMap::new(), &mut Vec::new());
        });
        assert_eq!(unit, in_schema(&schema["properties"]["unit"]["items"]));
        let map = accepted(|fields| {
            map::read(fields, START, &mut Vec::new(), |fields, problems| {
                read_unit_fields(fields, START, &defaults(), None, &mut HashMap::new(), problems)
            });
        });
        assert_eq!(map, in_schema(&schema["properties"]["map"]["items"]));
    }
}
