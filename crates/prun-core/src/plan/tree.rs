//! TOML and JSON as one tree in which every key and value knows its place.

use jsonc_parser::common::Ranged;
use jsonc_parser::{CollectOptions, ParseOptions, ast};
use toml::de::{DeTable, DeValue};

use crate::plan::problem::{Place, Problem, quoted};

/// A value and where it begins.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) place: Place,
    pub(super) value: Value,
}

/// What a plan may hold.
#[derive(Debug)]
pub(super) enum Value {
    String(String),
    Integer(i64),
    Boolean(bool),
    Array(Vec<Node>),
    Table(Vec<Entry>),
    /// What no key of a plan takes: `null`, a float, a date, an integer over 64 bits.
    Other(&'static str),
}

impl Value {
    /// What it is called in a message.
    pub(super) fn kind(&self) -> &'static str {
        match self {
            Self::String(_) => "a string",
            Self::Integer(_) => "an integer",
            Self::Boolean(_) => "a boolean",
            Self::Array(_) => "an array",
            Self::Table(_) => "a table",
            Self::Other(kind) => kind,
        }
    }
}

/// A key with its value.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) key: String,
    /// Where the key begins.
    pub(super) place: Place,
    pub(super) node: Node,
}

/// The tree of a TOML document, or the first syntax error.
pub(super) fn from_toml(text: &str) -> Result<Vec<Entry>, Problem> {
    let lines = Lines::new(text);
    let table = DeTable::parse(text).map_err(|error| {
        let offset = error.span().map_or(0, |span| span.start);
        Problem::new(lines.place(offset), format!("TOML syntax: {}", error.message()))
    })?;
    Ok(toml_table(table.get_ref(), &lines))
}

fn toml_table(table: &DeTable<'_>, lines: &Lines<'_>) -> Vec<Entry> {
    let entry = |key: &toml::Spanned<std::borrow::Cow<'_, str>>, value| Entry {
        key: key.get_ref().to_string(),
        place: lines.place(key.span().start),
        node: toml_node(value, lines),
    };
    table.iter().map(|(key, value)| entry(key, value)).collect()
}

fn toml_node(value: &toml::Spanned<DeValue<'_>>, lines: &Lines<'_>) -> Node {
    let place = lines.place(value.span().start);
    let value = match value.get_ref() {
        DeValue::String(text) => Value::String(text.to_string()),
        DeValue::Integer(integer) => i64::from_str_radix(integer.as_str(), integer.radix())
            .map_or(Value::Other("an integer over 64 bits"), Value::Integer),
        DeValue::Boolean(boolean) => Value::Boolean(*boolean),
        DeValue::Float(_) => Value::Other("a float"),
        DeValue::Datetime(_) => Value::Other("a date"),
        DeValue::Array(values) => Value::Array(values.iter().map(|value| toml_node(value, lines)).collect()),
        DeValue::Table(table) => Value::Table(toml_table(table, lines)),
    };
    Node { place, value }
}

/// The tree of a JSON document, or its syntax errors: the first, or every key that stands twice.
pub(super) fn from_json(text: &str) -> Result<Vec<Entry>, Vec<Problem>> {
    let lines = Lines::new(text);
    strict_json(text, &lines).map_err(|problem| vec![problem])?;
    let parsed = jsonc_parser::parse_to_ast(text, &CollectOptions::default(), &strict()).map_err(|error| {
        vec![Problem::new(lines.place(error.range().start), format!("JSON syntax: {}", error.kind()))]
    })?;
    let mut twice = Vec::new();
    match parsed.value {
        Some(ast::Value::Object(object)) => {
            let table = json_table(&object, &lines, &mut twice);
            if twice.is_empty() { Ok(table) } else { Err(twice) }
        }
        _ => Err(vec![Problem::new(lines.place(0), "a plan in JSON is one object")]),
    }
}

/// `serde_json` is the stricter reader (escapes, surrogates, numbers), but keeps no places.
fn strict_json(text: &str, lines: &Lines<'_>) -> Result<(), Problem> {
    serde_json::from_str::<serde_json::Value>(text).map(drop).map_err(|error| {
        let message = error.to_string();
        let message = message.split(" at line ").next().unwrap_or_default();
        let place = lines.place_in_line(error.line(), error.column());
        Problem::new(place, format!("JSON syntax: {message}"))
    })
}

fn strict() -> ParseOptions {
    ParseOptions {
        allow_comments: false,
        allow_loose_object_property_names: false,
        allow_trailing_commas: false,
        allow_missing_commas: false,
        allow_single_quoted_strings: false,
        allow_hexadecimal_numbers: false,
        allow_unary_plus_numbers: false,
        allow_bare_decimal_point_numbers: false,
        allow_non_finite_numbers: false,
        allow_extended_string_escapes: false,
    }
}

fn json_table(object: &ast::Object<'_>, lines: &Lines<'_>, twice: &mut Vec<Problem>) -> Vec<Entry> {
    let mut seen = std::collections::HashSet::new();
    let mut entries = Vec::new();
    for property in &object.properties {
        let key = property.name.as_str().to_owned();
        let place = lines.place(property.name.start());
        if !seen.insert(key.clone()) {
            twice.push(Problem::new(place, format!("the key {} stands twice", quoted(&key))));
        }
        entries.push(Entry { key, place, node: json_node(&property.value, lines, twice) });
    }
    entries
}

fn json_node(value: &ast::Value<'_>, lines: &Lines<'_>, twice: &mut Vec<Problem>) -> Node {
    let place = lines.place(value.start());
    let value = match value {
        ast::Value::StringLit(text) => Value::String(text.value.to_string()),
        ast::Value::NumberLit(number) => number.value.parse().map_or(Value::Other("a float"), Value::Integer),
        ast::Value::BooleanLit(boolean) => Value::Boolean(boolean.value),
        ast::Value::NullKeyword(_) => Value::Other("null"),
        ast::Value::Array(array) => {
            Value::Array(array.elements.iter().map(|value| json_node(value, lines, twice)).collect())
        }
        ast::Value::Object(object) => Value::Table(json_table(object, lines, twice)),
    };
    Node { place, value }
}

/// Turns byte offsets into places, in constant time also where the whole text is one line.
struct Lines<'a> {
    text: &'a str,
    /// Offset of each line's first byte.
    starts: Vec<usize>,
    /// Characters before every [`STRIDE`]th byte.
    characters: Vec<usize>,
}

const STRIDE: usize = 256;

impl<'a> Lines<'a> {
    fn new(text: &'a str) -> Self {
        let newlines = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1);
        let characters = text.as_bytes().chunks(STRIDE).scan(0, |sum, chunk| {
            let before = *sum;
            *sum += characters_in(chunk);
            Some(before)
        });
        Self { text, starts: std::iter::once(0).chain(newlines).collect(), characters: characters.collect() }
    }

    fn place(&self, offset: usize) -> Place {
        let offset = offset.min(self.text.len());
        let line = self.starts.partition_point(|start| *start <= offset);
        let column = self.before(offset) - self.before(self.starts[line - 1]) + 1;
        Place { line: small(line), column: small(column) }
    }

    /// The place of the `column`th byte (from 1; 0 = before the first) of a line (from 1).
    fn place_in_line(&self, line: usize, column: usize) -> Place {
        let start = self.starts.get(line.saturating_sub(1)).copied().unwrap_or(self.text.len());
        self.place(start + column.saturating_sub(1))
    }

    fn before(&self, offset: usize) -> usize {
        let chunk = offset / STRIDE;
        let counted = self.characters.get(chunk).copied().unwrap_or(0);
        match self.characters.get(chunk) {
            Some(_) => counted + characters_in(&self.text.as_bytes()[chunk * STRIDE..offset]),
            // The end of a text whose length is a multiple of the stride, or an empty text.
            None => {
                self.characters.last().copied().unwrap_or(0)
                    + characters_in(&self.text.as_bytes()[self.characters.len().saturating_sub(1) * STRIDE..offset])
            }
        }
    }
}

/// Characters that begin in these bytes.
fn characters_in(bytes: &[u8]) -> usize {
    bytes.iter().filter(|byte| **byte & 0xC0 != 0x80).count()
}

fn small(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_count_characters_from_one() {
        let text = format!("{}\nzwei\n", "ä".repeat(300));
        let lines = Lines::new(&text);
        assert_eq!(lines.place(0), Place { line: 1, column: 1 });
        assert_eq!(lines.place(598), Place { line: 1, column: 300 });
        assert_eq!(lines.place(603), Place { line: 2, column: 3 });
        assert_eq!(lines.place(text.len()), Place { line: 3, column: 1 });
        for text in ["", "x", &"x".repeat(STRIDE), &"ä".repeat(STRIDE)] {
            let end = Place { line: 1, column: small(text.chars().count()) + 1 };
            assert_eq!(Lines::new(text).place(text.len() + 7), end);
        }
    }

    #[test]
    fn tables_keys_and_values_know_their_places() {
        let toml = from_toml("a = 1\n[[unit]]\nid = \"x\"\n\n[[unit]]\nb.c = 2\n").unwrap();
        let unit = toml.iter().find(|entry| entry.key == "unit").unwrap();
        let Value::Array(units) = &unit.node.value else { panic!("{unit:?}") };
        assert_eq!(unit.place, Place { line: 2, column: 3 });
        assert_eq!(units[0].place, Place { line: 2, column: 1 });
        assert_eq!(units[1].place, Place { line: 5, column: 1 });
        let json = from_json("{\n  \"ä\": [1, {\"b\": null}]\n}").unwrap();
        assert_eq!(json[0].place, Place { line: 2, column: 3 });
        let Value::Array(values) = &json[0].node.value else { panic!("{json:?}") };
        assert_eq!(values[1].place, Place { line: 2, column: 12 });
    }
}
