//! Units from rows: reads the rows of a map, and makes a unit of each. Every bad row is told by its number before
//! anything starts.

use std::collections::HashMap;
use std::path::Path;

use ignore::WalkBuilder;
use ignore::overrides::OverrideBuilder;
use minijinja::{Environment, UndefinedBehavior};
use prun_core::ids::UnitId;
use prun_core::plan::model::{MapPlan, Row, Rows};
use prun_core::plan::{MAX_PROMPT_BYTES, MAX_UNITS, PlanFile, Problem, Prompt, UnitPlan, check_owned};
use serde_json::{Map as Object, Value as Json};

use crate::files::read_regular;

/// The largest file of rows, in bytes.
const ROWS_LIMIT: u64 = 256 << 20;

/// The most that all prompts from rows may have together, in bytes: they are held in memory, and kept in the run.
const PROMPTS_LIMIT: usize = 256 << 20;

/// The most steps of a template for one row: far above any that ends.
const FUEL: u64 = 1_000_000;

/// How many bad rows are told one by one.
const TOLD: usize = 20;

/// A row, and where it stands.
struct Found {
    /// `line 7`, or `row 7` where there are no lines.
    place: String,
    /// Its columns, or why it is none.
    fields: Result<Object<String, Json>, String>,
}

impl Found {
    fn line(number: impl std::fmt::Display, fields: Result<Object<String, Json>, String>) -> Self {
        Self { place: format!("line {number}"), fields }
    }
}

/// Makes a unit of each row of the plan's maps, after the units of its own. Paths are relative to `dir`.
///
/// # Errors
/// Files that cannot be read, rows that are none, ids that are bad or taken, templates that do not fit.
pub fn expand(plan: &mut PlanFile, dir: &Path) -> Result<(), Vec<Problem>> {
    let mut problems = Vec::new();
    let mut ids: HashMap<String, String> =
        plan.units.iter().map(|unit| (lower(&unit.id), "a unit of the plan".to_owned())).collect();
    ids.extend(plan.units.iter().filter_map(|unit| Some((lower(unit.panel.as_ref()?), "a panel".to_owned()))));
    let mut made = Vec::new();
    for map in &mut plan.maps {
        match rows(map, dir) {
            Ok(rows) => units(map, rows, &mut ids, &mut made, &mut problems),
            Err(message) => problems.push(Problem::new(map.place, message)),
        }
        if let Some(path) = &map.schema {
            match read_schema(&dir.join(path)) {
                Ok(text) => map.schema = Some(text),
                Err(why) => problems.push(Problem::new(map.place, format!("`schema`: cannot use {path:?}: {why}"))),
            }
        }
        // They are in the units now.
        map.rows = Rows::List(Vec::new());
    }
    if plan.units.len() + made.len() > MAX_UNITS {
        let count = plan.units.len() + made.len();
        problems.push(Problem::new(None, format!("the plan makes {count} units; at most {MAX_UNITS} are allowed")));
    }
    let bytes: usize = made.iter().filter_map(|unit| unit.prompt.text()).map(str::len).sum();
    if bytes > PROMPTS_LIMIT {
        let message = format!("the prompts from rows have {bytes} bytes; at most {PROMPTS_LIMIT} are allowed");
        problems.push(Problem::new(None, message).hint("what all units share belongs into `context_file`"));
    }
    plan.units.extend(made);
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

/// Ids become names of directories, which some file systems take for equal when only the case differs.
fn lower(id: &UnitId) -> String {
    id.as_str().to_ascii_lowercase()
}

fn units(
    map: &MapPlan,
    rows: Vec<Found>,
    ids: &mut HashMap<String, String>,
    made: &mut Vec<UnitPlan>,
    problems: &mut Vec<Problem>,
) {
    let name = map.unit.id.as_str();
    if rows.is_empty() {
        return problems.push(Problem::new(map.place, format!("the map {name} has no rows")));
    }
    let mut bad = Vec::new();
    for (at, found) in rows.into_iter().enumerate() {
        let place = found.place.clone();
        match unit(map, at + 1, found) {
            Ok(unit) => match ids.insert(lower(&unit.id), place.clone()) {
                None => made.push(unit),
                Some(other) => bad.push(format!("{place}: the id {} is taken by {other}", unit.id)),
            },
            Err(why) => bad.push(format!("{place}: {why}")),
        }
    }
    if bad.len() > TOLD {
        let more = bad.len() - TOLD;
        bad.truncate(TOLD);
        bad.push(format!("and {more} more rows"));
    }
    problems.extend(bad.into_iter().map(|what| Problem::new(map.place, format!("the map {name}, {what}"))));
}

fn unit(map: &MapPlan, number: usize, found: Found) -> Result<UnitPlan, String> {
    let name = map.unit.id.as_str();
    let fields = found.fields?;
    let id = match &map.column {
        None => format!("{name}-{number}"),
        Some(column) => match fields.get(column) {
            None | Some(Json::Null) => return Err(format!("it has no column {column:?}")),
            Some(Json::String(text)) => text.trim().to_owned(),
            Some(other) => other.to_string(),
        },
    };
    let id: UnitId = id.parse().map_err(|error| format!("{error}"))?;
    let template = map.unit.prompt.text().unwrap_or_default();
    let prompt = render(template, number, &fields).map_err(|why| format!("`prompt`: {why}"))?;
    if prompt.trim().is_empty() {
        return Err("its prompt is empty".to_owned());
    }
    if prompt.len() > MAX_PROMPT_BYTES {
        return Err(format!("its prompt has {} bytes; at most {MAX_PROMPT_BYTES} are allowed", prompt.len()));
    }
    let owns = map.unit.owns.iter().map(|pattern| {
        let pattern = render(pattern, number, &fields).map_err(|why| format!("`owns`: {why}"))?;
        check_owned(&pattern).map_err(|why| format!("`owns` {why}"))?;
        Ok(pattern)
    });
    let owns = owns.collect::<Result<Vec<_>, String>>()?;
    let row = Some(Row { map: name.to_owned(), number, fields });
    Ok(UnitPlan { id, prompt: Prompt::Inline(prompt), owns, row, ..map.unit.clone() })
}

/// Fills a template; a variable that no column has is an error.
fn render(template: &str, number: usize, fields: &Object<String, Json>) -> Result<String, String> {
    if !template.contains("{{") && !template.contains("{%") && !template.contains("{#") {
        return Ok(template.to_owned());
    }
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_fuel(Some(FUEL));
    let mut context = fields.clone();
    context.entry("row".to_owned()).or_insert_with(|| Json::from(number));
    environment.render_str(template, &context).map_err(|error| error.to_string().replace('\n', "; "))
}

fn rows(map: &MapPlan, dir: &Path) -> Result<Vec<Found>, String> {
    match &map.rows {
        Rows::List(list) => {
            let found = |(at, fields): (usize, &Object<String, Json>)| Found {
                place: format!("row {}", at + 1),
                fields: Ok(fields.clone()),
            };
            Ok(list.iter().enumerate().map(found).collect())
        }
        Rows::Glob(pattern) => files(pattern, dir),
        Rows::File(path) => {
            let cannot = |why: String| format!("`rows`: cannot use {path:?}: {why}");
            let bytes = read_regular(&dir.join(path), ROWS_LIMIT).map_err(|error| cannot(error.to_string()))?;
            let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
            let extension = path.rsplit_once('.').map_or("", |(_, extension)| extension).to_ascii_lowercase();
            match extension.as_str() {
                "csv" => csv_rows(bytes).map_err(cannot),
                "jsonl" | "ndjson" => json_rows(bytes).map_err(cannot),
                _ => Err(cannot("its name ends in neither .csv nor .jsonl".to_owned())),
            }
        }
    }
}

fn too_many() -> String {
    format!("there are more than {MAX_UNITS} rows, and a plan makes at most so many units")
}

fn csv_rows(bytes: &[u8]) -> Result<Vec<Found>, String> {
    let mut reader = csv::ReaderBuilder::new().flexible(true).from_reader(bytes);
    let head = reader.headers().map_err(|error| error.to_string())?.clone();
    if let Some(twice) = head.iter().enumerate().find(|(at, name)| head.iter().take(*at).any(|other| other == *name)) {
        return Err(format!("it has the column {:?} twice", twice.1));
    }
    let mut rows = Vec::new();
    let mut record = csv::StringRecord::new();
    loop {
        let (row, line) = match reader.read_record(&mut record) {
            Ok(false) => return Ok(rows),
            Ok(true) if record.len() != head.len() => {
                (Err(format!("it has {} fields, and the head has {}", record.len(), head.len())), record.position())
            }
            Ok(true) => (Ok(columns(&head, &record)), record.position()),
            Err(error) if matches!(error.kind(), csv::ErrorKind::Utf8 { .. }) => {
                (Err("it is not UTF-8".to_owned()), record.position())
            }
            Err(error) => return Err(error.to_string()),
        };
        if rows.len() == MAX_UNITS {
            return Err(too_many());
        }
        rows.push(Found::line(line.map_or(0, csv::Position::line), row));
    }
}

fn columns(head: &csv::StringRecord, record: &csv::StringRecord) -> Object<String, Json> {
    head.iter().zip(record).map(|(name, value)| (name.to_owned(), Json::from(value))).collect()
}

fn json_rows(bytes: &[u8]) -> Result<Vec<Found>, String> {
    let mut rows = Vec::new();
    for (at, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        if line.trim_ascii().is_empty() {
            continue;
        }
        if rows.len() == MAX_UNITS {
            return Err(too_many());
        }
        let row = match serde_json::from_slice(line) {
            Ok(Json::Object(fields)) => Ok(fields),
            Ok(_) => Err("it is no object".to_owned()),
            Err(error) => Err(format!("it is no JSON: {error}")),
        };
        rows.push(Found::line(at + 1, row));
    }
    Ok(rows)
}

/// The files below `dir` that match, by name: never those in `.git`.
fn files(pattern: &str, dir: &Path) -> Result<Vec<Found>, String> {
    let mut overrides = OverrideBuilder::new(dir);
    let overrides = overrides.add(pattern).and_then(|builder| builder.build());
    let overrides = overrides.map_err(|error| format!("`glob`: {error}"))?;
    let mut walk = WalkBuilder::new(dir);
    walk.overrides(overrides).require_git(false).filter_entry(|entry| entry.file_name() != ".git");
    let mut paths = Vec::new();
    for entry in walk.build() {
        let entry = entry.map_err(|error| format!("`glob`: {error}"))?;
        if !entry.file_type().is_some_and(|kind| kind.is_file()) {
            continue;
        }
        if paths.len() == MAX_UNITS {
            return Err(format!("`glob`: {}", too_many()));
        }
        let path = entry.path().strip_prefix(dir).unwrap_or(entry.path());
        paths.push(path.to_str().ok_or_else(|| format!("`glob`: {} is not UTF-8", path.display()))?.to_owned());
    }
    paths.sort();
    let found = paths.into_iter().map(|path| {
        let text = |part: Option<&std::ffi::OsStr>| part.and_then(|part| part.to_str()).unwrap_or_default().to_owned();
        let as_path = Path::new(&path);
        let place = path.clone();
        let dir = as_path.parent().and_then(Path::to_str).unwrap_or_default().to_owned();
        let (name, stem) = (text(as_path.file_name()), text(as_path.file_stem()));
        let fields = [("dir", dir), ("name", name), ("stem", stem), ("path", path)];
        let fields = fields.map(|(name, value)| (name.to_owned(), Json::from(value))).into_iter().collect();
        Found { place, fields: Ok(fields) }
    });
    Ok(found.collect())
}

fn read_schema(path: &Path) -> Result<String, String> {
    let bytes = read_regular(path, ROWS_LIMIT).map_err(|error| error.to_string())?;
    let schema: Json = serde_json::from_slice(&bytes).map_err(|error| format!("it is no JSON: {error}"))?;
    jsonschema::validator_for(&schema).map_err(|error| format!("it is no JSON Schema: {error}"))?;
    String::from_utf8(bytes).map_err(|error| error.to_string())
}

/// The JSON of a result: the last block that is fenced as JSON, else all that follows the head. `None`: it has none.
///
/// # Errors
/// That block is no JSON; an earlier one is never taken for it.
pub fn json_of(result: &str) -> Result<Option<Json>, String> {
    let result = result.replace("\r\n", "\n");
    if let Some((_, rest)) = result.rsplit_once("```json\n") {
        let block = rest.split("\n```").next().unwrap_or(rest);
        return serde_json::from_str(block)
            .map(Some)
            .map_err(|error| format!("its last JSON block is no JSON: {error}"));
    }
    let body = result.split_once("\n\n");
    Ok(body.and_then(|(_, body)| serde_json::from_str(body.trim()).ok()))
}

/// Checks the JSON of results against one schema.
#[derive(Debug)]
pub struct Checker(jsonschema::Validator);

impl Checker {
    /// A checker for this schema.
    ///
    /// # Errors
    /// It is none.
    pub fn new(schema: &str) -> Result<Self, String> {
        let schema: Json = serde_json::from_str(schema).map_err(|error| error.to_string())?;
        jsonschema::validator_for(&schema).map(Self).map_err(|error| error.to_string())
    }

    /// What is wrong with a value, in a sentence; `None`: nothing.
    #[must_use]
    pub fn fault(&self, value: &Json) -> Option<String> {
        let errors: Vec<String> =
            self.0.iter_errors(value).take(3).map(|error| format!("{}: {error}", error.instance_path())).collect();
        (!errors.is_empty()).then(|| errors.join("; "))
    }
}

#[cfg(test)]
mod tests {
    use prun_core::plan::{Format, parse, render as shown};

    use super::*;

    fn expanded(rows: (&str, &str), map: &str) -> Result<Vec<(String, String)>, String> {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join(rows.0), rows.1).unwrap();
        let mut plan = parse(&format!("version = 1\n[[map]]\nname = \"m\"\n{map}\n"), Format::Toml)
            .map_err(|problems| shown(&problems, "p"))?;
        expand(&mut plan, dir.path()).map_err(|problems| shown(&problems, "p"))?;
        Ok(plan.units.iter().map(|unit| (unit.id.to_string(), unit.prompt.text().unwrap().to_owned())).collect())
    }

    #[test]
    fn each_row_becomes_a_unit() {
        let csv = ("r.csv", "\u{feff}key,text\na,\"one, \"\"two\"\"\nlines\"\nb,three\n");
        let units = expanded(csv, "rows = \"r.csv\"\nid = \"key\"\nprompt = \"{{ row }}: {{ text }}\"").unwrap();
        let pair = |id: &str, prompt: &str| (id.to_owned(), prompt.to_owned());
        assert_eq!(units, [pair("a", "1: one, \"two\"\nlines"), pair("b", "2: three")]);
        let json = ("r.jsonl", "{\"n\": 1, \"deep\": {\"x\": [7]}}\n\n{\"n\": 2, \"deep\": {\"x\": [8]}}\n");
        let units = expanded(json, "rows = \"r.jsonl\"\nprompt = \"{{ n }} {{ deep.x[0] }}\"").unwrap();
        assert_eq!(units, [pair("m-1", "1 7"), pair("m-2", "2 8")]);
        let list =
            "list = [\"x\", { item = \"y\" }]\nprompt = \"{% if item == 'x' %}first{% else %}{{ item }}{% endif %}\"";
        assert_eq!(expanded(csv, list).unwrap(), [pair("m-1", "first"), pair("m-2", "y")]);
        let glob = "glob = \"*.csv\"\nid = \"stem\"\nprompt = \"{{ path }}|{{ dir }}|{{ name }}\"";
        assert_eq!(expanded(csv, glob).unwrap(), [pair("r", "r.csv||r.csv")]);
    }

    #[test]
    fn every_bad_row_is_told_by_its_number() {
        let csv = ("r.csv", "key,text\na,1\nbad id,2\nA,3\n,4\nok,\n");
        let told = expanded(csv, "rows = \"r.csv\"\nid = \"key\"\nprompt = \"{{ text }}\"").unwrap_err();
        for why in ["line 3: ", "line 4: the id A is taken by line 2", "line 5: ", "line 6: its prompt is empty"] {
            assert!(told.contains(why), "{told}");
        }
        let missing = expanded(csv, "rows = \"r.csv\"\nid = \"key\"\nprompt = \"{{ txt }}\"").unwrap_err();
        assert!(missing.contains("line 2: `prompt`: undefined value"), "{missing}");
        let column = expanded(csv, "rows = \"r.csv\"\nid = \"nope\"\nprompt = \"x\"").unwrap_err();
        assert!(column.contains("line 2: it has no column \"nope\""), "{column}");
        for (rows, map, why) in [
            (("r.csv", "a,b\n1\n"), "rows = \"r.csv\"\nprompt = \"x\"", "line 2: it has 1 fields, and the head has 2"),
            (("r.csv", "a,a\n1,2\n"), "rows = \"r.csv\"\nprompt = \"x\"", "it has the column \"a\" twice"),
            (("r.csv", "a\n"), "rows = \"r.csv\"\nprompt = \"x\"", "the map m has no rows"),
            (("r.jsonl", "{}\n[]\n"), "rows = \"r.jsonl\"\nprompt = \"x\"", "line 2: it is no object"),
            (("r.jsonl", "{\n"), "rows = \"r.jsonl\"\nprompt = \"x\"", "line 1: it is no JSON"),
            (("r.txt", "x"), "rows = \"r.txt\"\nprompt = \"x\"", "neither .csv nor .jsonl"),
            (("r.csv", "a\n1\n"), "rows = \"none.csv\"\nprompt = \"x\"", "cannot use \"none.csv\""),
            (("r.csv", "a\n1\n"), "rows = \"r.csv\"\nprompt = \"{{ a\"", "line 2: `prompt`: syntax error"),
            (("r.csv", "a\n1\n"), "rows = \"r.csv\"\nschema = \"r.csv\"\nprompt = \"x\"", "it is no JSON"),
            (("r.csv", "a\n1\n"), "prompt = \"x\"", "the map has no rows"),
            (("r.csv", "a\n1\n"), "rows = \"r.csv\"\nglob = \"*\"\nprompt = \"x\"", "more than one of"),
            (("r.csv", "a\n../x\n"), "rows = \"r.csv\"\nowns = [\"{{ a }}\"]\nprompt = \"x\"", "line 2: `owns` has"),
            (
                ("r.csv", "a\n1\n"),
                "rows = \"r.csv\"\nprompt = \"{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}x\"",
                "line 2: `prompt`: engine ran out of fuel",
            ),
        ] {
            let told = expanded(rows, map).unwrap_err();
            assert!(told.contains(why), "{told}");
        }
    }

    #[test]
    fn no_bad_row_hides_another() {
        let mut rows = "key,text\n".to_owned();
        (0..30).for_each(|row| rows.push_str(if row % 2 == 0 { "x\n" } else { "a,b\n" }));
        let told = expanded(("r.csv", &rows), "rows = \"r.csv\"\nid = \"key\"\nprompt = \"x\"").unwrap_err();
        for why in ["line 2: it has 1 fields", "line 5: the id a is taken by line 3", "and 9 more rows"] {
            assert!(told.contains(why), "{told}");
        }
        let lines = "{}\n[]\n\n{\n{\"k\": null}\n";
        let told = expanded(("r.jsonl", lines), "rows = \"r.jsonl\"\nid = \"k\"\nprompt = \"x\"").unwrap_err();
        for why in ["line 1: it has no column", "line 2: it is no object", "line 4: it is no JSON", "line 5: it has no"]
        {
            assert!(told.contains(why), "{told}");
        }
    }

    #[test]
    fn more_rows_than_a_plan_may_have_units_are_refused() {
        let rows = |count: usize| format!("a\n{}", "1\n".repeat(count));
        let map = "rows = \"r.csv\"\nprompt = \"x\"";
        assert_eq!(expanded(("r.csv", &rows(MAX_UNITS)), map).unwrap().len(), MAX_UNITS);
        let told = expanded(("r.csv", &rows(MAX_UNITS + 1)), map).unwrap_err();
        assert!(told.contains("more than 10000 rows"), "{told}");
    }

    #[test]
    fn the_json_of_a_result_is_found_and_checked() {
        let result = "# u result\nConclusion: c\n\nText\n```json\n{\"n\": 1}\n```\n";
        assert_eq!(json_of(result), Ok(Some(serde_json::json!({"n": 1}))));
        assert_eq!(json_of(&result.replace('\n', "\r\n")), Ok(Some(serde_json::json!({"n": 1}))));
        assert_eq!(json_of("# u\nConclusion: c\n\n[1, 2]\n"), Ok(Some(serde_json::json!([1, 2]))));
        assert_eq!(json_of("# u\nConclusion: c\n\nwords\n"), Ok(None));
        assert!(json_of(&format!("{result}```json\n{{\"n\": \n```\n")).unwrap_err().contains("is no JSON"));
        let schema = r#"{"type": "object", "required": ["n"], "properties": {"n": {"type": "integer"}}}"#;
        let checker = Checker::new(schema).unwrap();
        assert_eq!(checker.fault(&serde_json::json!({"n": 1})), None);
        assert!(checker.fault(&serde_json::json!({"n": "x"})).unwrap().contains("/n: "));
        assert!(Checker::new("{\"type\": 7}").is_err());
    }
}
