//! The results of a map as rows again: its columns, how each unit ended, and the JSON of its result, checked.

use std::collections::{BTreeMap, HashSet};

use prun_core::outcome::{Channel, Outcome};
use prun_core::plan::PlanFile;
use prun_core::plan::model::Row;
use prun_core::run::RunState;
use prun_core::unit::{Disposition, Unit};
use serde_json::{Map as Object, Value as Json};

use crate::files::read_regular;
use crate::map::{Checker, json_of};

/// No result is read that is larger: 64 MiB.
const RESULT_LIMIT: u64 = 64 << 20;

/// The columns that an export has of its own. A row's column of such a name is written as `row.NAME`.
const OWN: [&str; 5] = ["unit", "outcome", "conclusion", "result", "fault"];

/// How the rows are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// With a head; what is no plain value is JSON in its cell.
    Csv,
    /// An object a line.
    JsonLines,
}

/// Rows, ready to be written.
#[derive(Debug)]
pub struct Export {
    /// The text.
    pub bytes: Vec<u8>,
    /// How many rows there are.
    pub rows: usize,
    /// Units that did not succeed, or whose result is not there or does not meet the schema, and why.
    pub invalid: Vec<(String, String)>,
}

/// Writes the units of all maps of a run, or of the map `only`, in their order.
///
/// # Errors
/// No unit was made from such rows, or a schema cannot be used.
pub fn export(plan: &PlanFile, run: &RunState, only: Option<&str>, format: Format) -> Result<Export, String> {
    let mut checkers = BTreeMap::new();
    for map in &plan.maps {
        if let Some(schema) = &map.schema {
            checkers.insert(map.unit.id.to_string(), Checker::new(schema)?);
        }
    }
    let from_rows = plan.units.iter().filter_map(|unit| Some((run.unit(&unit.id)?, unit.row.as_ref()?)));
    let wanted: Vec<(&Unit, &Row)> = from_rows.filter(|(_, row)| only.is_none_or(|only| only == row.map)).collect();
    if wanted.is_empty() {
        let none = || "this run has no units from rows".to_owned();
        return Err(only.map_or_else(none, |map| format!("this run has no map {map}")));
    }
    let mut invalid = Vec::new();
    let mut rows = Vec::new();
    for (unit, row) in wanted {
        let (exported, fault) = export_row(unit, row, checkers.get(&row.map));
        invalid.extend(fault.map(|why| (unit.setup.id.to_string(), why)));
        rows.push(exported);
    }
    let bytes = match format {
        Format::JsonLines => json_lines(&rows),
        Format::Csv => csv_text(&rows)?,
    };
    Ok(Export { bytes, rows: rows.len(), invalid })
}

/// The row, and what is wrong with its result.
fn export_row(unit: &Unit, row: &Row, checker: Option<&Checker>) -> (Object<String, Json>, Option<String>) {
    let result = unit.facts().and_then(|facts| facts.result.as_ref()).filter(|it| it.channel != Channel::Salvage);
    let text = result.and_then(|result| read_regular(result.path.as_ref(), RESULT_LIMIT).ok());
    let text = text.map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    let json = text.as_deref().map(json_of);
    let fault = match (&json, checker) {
        (None, _) => Some("it has no result".to_owned()),
        (Some(Err(why)), _) => Some(why.clone()),
        (Some(Ok(None)), Some(_)) => Some("its result holds no JSON".to_owned()),
        (Some(Ok(Some(json))), Some(checker)) => checker.fault(json),
        (Some(Ok(_)), None) => None,
    };
    let fault = fault.or_else(|| unfit(unit));
    let json = json.and_then(Result::ok).flatten();
    let text_or_null = |text: Option<String>| text.map_or(Json::Null, Json::from);
    let mut exported = Object::new();
    exported.insert("unit".to_owned(), Json::from(unit.setup.id.as_str()));
    for (name, value) in &row.fields {
        let name = if OWN.contains(&name.as_str()) { format!("row.{name}") } else { name.clone() };
        exported.insert(name, value.clone());
    }
    exported.insert("outcome".to_owned(), text_or_null(unit.outcome().map(ToString::to_string)));
    exported.insert("conclusion".to_owned(), text_or_null(result.and_then(|result| result.conclusion.clone())));
    exported.insert("result".to_owned(), json.unwrap_or(Json::Null));
    exported.insert("fault".to_owned(), text_or_null(fault.clone()));
    (exported, fault)
}

/// Why a unit's result does not count, however good it looks: it did not succeed, and nobody accepted it.
fn unfit(unit: &Unit) -> Option<String> {
    match (&unit.disposition, unit.outcome()) {
        (Disposition::Excluded { .. }, _) => Some("it is excluded".to_owned()),
        (Disposition::Accepted { .. }, _) | (_, Some(Outcome::Succeeded)) => None,
        (_, Some(outcome)) => Some(format!("it is {outcome}")),
        (_, None) => Some(format!("it is {}", unit.state.name())),
    }
}

fn json_lines(rows: &[Object<String, Json>]) -> Vec<u8> {
    rows.iter().flat_map(|row| format!("{}\n", Json::Object(row.clone())).into_bytes()).collect()
}

fn csv_text(rows: &[Object<String, Json>]) -> Result<Vec<u8>, String> {
    let mut seen = HashSet::new();
    let head: Vec<&String> = rows.iter().flat_map(Object::keys).filter(|name| seen.insert(*name)).collect();
    let mut writer = csv::Writer::from_writer(Vec::new());
    let mut write = || -> csv::Result<()> {
        writer.write_record(head.iter().map(|name| name.as_str()))?;
        rows.iter().try_for_each(|row| writer.write_record(head.iter().map(|name| cell(row.get(*name)))))
    };
    write().map_err(|error| error.to_string())?;
    writer.into_inner().map_err(|error| error.to_string())
}

fn cell(value: Option<&Json>) -> String {
    match value {
        None | Some(Json::Null) => String::new(),
        Some(Json::String(text)) => text.clone(),
        Some(other) => other.to_string(),
    }
}
