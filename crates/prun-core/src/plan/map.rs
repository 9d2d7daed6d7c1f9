//! `[[map]]`: units from rows. The rows themselves are read by whoever can read files.

use serde_json::{Map as Object, Value as Json};

use crate::plan::fields::{self, Fields, Given, Item};
use crate::plan::model::{MapPlan, Rows, UnitPlan};
use crate::plan::problem::{Place, Problem};
use crate::plan::tree::{Entry, Node, Value};

/// Reads the keys that a map has beside those of a unit; `read_unit` reads the rest as the unit of every row. `None`
/// only where a problem was noted.
pub(super) fn read(
    fields: &mut Fields,
    place: Place,
    problems: &mut Vec<Problem>,
    read_unit: impl FnOnce(&mut Fields, &mut Vec<Problem>) -> Option<UnitPlan>,
) -> Option<MapPlan> {
    let file = fields.read("rows", problems, fields::text);
    let list = fields.read("list", problems, list);
    let glob = fields.read("glob", problems, fields::text);
    let column = fields.read("id", problems, fields::text).value();
    let schema = fields.read("schema", problems, fields::text).value();
    match fields.take("name") {
        // The unit of every row is read under this name.
        Some(entry) => fields.put(Entry { key: "id".to_owned(), ..entry }),
        None => {
            let hint = "it names the results, and the units where no column does: name-1, name-2";
            problems.push(Problem::new(place, "the map has no `name`").hint(hint));
            fields.put(Entry {
                key: "id".to_owned(),
                place,
                node: Node { value: Value::String("nameless".to_owned()), place },
            });
        }
    }
    let unit = read_unit(fields, problems);
    let given = [file.place(), list.place(), glob.place()].into_iter().flatten().count();
    let rows = match (file, list, glob) {
        (Given::Value(file, _), ..) if given == 1 => Rows::File(file),
        (_, Given::Value(list, _), _) if given == 1 => Rows::List(list),
        (.., Given::Value(glob, _)) if given == 1 => Rows::Glob(glob),
        (Given::Missing, Given::Missing, Given::Missing) => {
            let hint = "`rows` names a file (.csv or .jsonl), `list` holds them, `glob` finds files";
            problems.push(Problem::new(place, "the map has no rows").hint(hint));
            return None;
        }
        _ if given > 1 => {
            let problem = Problem::new(place, "the map has more than one of `rows`, `list` and `glob`");
            problems.push(problem.hint("leave all but one out"));
            return None;
        }
        _ => return None,
    };
    Some(MapPlan { rows, column, schema, unit: unit?, place: Some(place) })
}

/// The tables of `[[map]]`.
pub(super) fn nodes(item: Item<'_>) -> Result<Vec<Node>, Problem> {
    match item.value {
        Value::Array(nodes) => Ok(nodes),
        Value::Table(_) => Err(item.wants("an array of tables").hint("write [[map]], with two brackets")),
        _ => Err(item.wants("an array of tables")),
    }
}

/// Rows of the plan itself: tables, or plain values as `item`.
fn list(item: Item<'_>) -> Result<Vec<Object<String, Json>>, Problem> {
    let site = item.site;
    let Value::Array(nodes) = item.value else { return Err(item.wants("an array")) };
    if nodes.is_empty() {
        return Err(site.problem("is empty"));
    }
    let mut rows = Vec::new();
    for node in nodes {
        match row(node.value) {
            Some(row) => rows.push(row),
            None => item.more.push(Problem::new(node.place, "a row holds strings, integers, true and false")),
        }
    }
    Ok(rows)
}

fn row(value: Value) -> Option<Object<String, Json>> {
    match value {
        Value::Table(entries) => entries.into_iter().map(|entry| Some((entry.key, plain(entry.node.value)?))).collect(),
        value => Some([("item".to_owned(), plain(value)?)].into_iter().collect()),
    }
}

fn plain(value: Value) -> Option<Json> {
    match value {
        Value::String(text) => Some(Json::from(text)),
        Value::Integer(number) => Some(Json::from(number)),
        Value::Boolean(boolean) => Some(Json::from(boolean)),
        Value::Array(_) | Value::Table(_) | Value::Other(_) => None,
    }
}
