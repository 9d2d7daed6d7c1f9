//! The pages on the shapes of `--json`, one a shape, made from the published schemas.

use std::collections::BTreeSet;
use std::fmt::Write;

use serde_json::{Map, Value};

/// The page on the shape `name`.
pub(crate) fn page(name: &str, schema: &Value) -> String {
    let title = text(schema, "title").trim_start_matches("prun: ").to_owned();
    let (command, rest) = title.split_once(" (").map_or((title.as_str(), ""), |(command, rest)| (command, rest));
    let title = match rest.trim_end_matches(')') {
        "" if command.starts_with("prun ") => format!("`{command}`"),
        "" => command.to_owned(),
        rest => format!("`{command}` ({rest})"),
    };
    let mut page = format!(
        "# {name}: {title}\n\n{}\n\nMade from [its JSON Schema](../schema/{name}.json); what holds for all shapes is in [JSON](../json.md).\n\n",
        words(text(schema, "description"))
    );
    part(&mut page, schema);
    for (name, part_schema) in schema["$defs"].as_object().into_iter().flatten() {
        write!(page, "\n## {name}\n\n{}\n\n", words(text(part_schema, "description"))).unwrap();
        part(&mut page, part_schema);
    }
    page.trim_end().to_owned() + "\n"
}

/// The members of an object, or what a value can be.
fn part(page: &mut String, schema: &Value) {
    if let Some(variants) = schema["oneOf"].as_array() {
        let plain: Vec<&Value> = variants.iter().filter(|variant| variant["properties"].is_null()).collect();
        if !plain.is_empty() {
            page.push_str("| value | meaning |\n|---|---|\n");
            for variant in plain {
                writeln!(page, "| {} | {} |", kind(variant), cell(text(variant, "description"))).unwrap();
            }
        }
        for variant in variants.iter().filter(|variant| !variant["properties"].is_null()) {
            write!(page, "\nOr: {}\n\n", words(text(variant, "description"))).unwrap();
            members(page, variant);
        }
    } else if schema["properties"].is_object() {
        members(page, schema);
    } else {
        writeln!(page, "{}", kind(schema)).unwrap();
    }
}

fn members(page: &mut String, schema: &Value) {
    let none = Map::new();
    let required: BTreeSet<&str> =
        schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    page.push_str("| member | type | meaning |\n|---|---|---|\n");
    for (name, member) in schema["properties"].as_object().unwrap_or(&none) {
        let may_be_missing = if required.contains(name.as_str()) { "" } else { "; may be missing" };
        let meaning = if name == "version" { "The version of the shapes: 1." } else { text(member, "description") };
        writeln!(page, "| `{name}` | {}{may_be_missing} | {} |", kind(member), cell(meaning)).unwrap();
    }
}

/// The type of a value, in words.
fn kind(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str().and_then(|path| path.rsplit('/').next()) {
        return format!("[{name}](#{})", name.to_lowercase());
    }
    if let Some(value) = schema.get("const") {
        return format!("`{value}`");
    }
    if let Some(variants) = schema["anyOf"].as_array().or_else(|| schema["oneOf"].as_array()) {
        return variants.iter().map(kind).collect::<Vec<_>>().join(" or ");
    }
    let types = match &schema["type"] {
        Value::Array(types) => types.iter().filter_map(Value::as_str).collect(),
        other => other.as_str().into_iter().collect::<Vec<_>>(),
    };
    let named = types.into_iter().map(|name| match name {
        "array" => format!("array of {}", kind(&schema["items"])),
        "object" if schema["additionalProperties"].is_object() => {
            format!("object, each member: {}", kind(&schema["additionalProperties"]))
        }
        other => other.to_owned(),
    });
    named.collect::<Vec<_>>().join(" or ")
}

fn text<'a>(schema: &'a Value, member: &str) -> &'a str {
    schema[member].as_str().unwrap_or_default()
}

/// Comments link to what only the code has.
fn words(text: &str) -> String {
    text.replace("[`", "`").replace("`]", "`").replace("`None`", "`null`")
}

fn cell(text: &str) -> String {
    words(text).replace('\n', " ").replace('|', "\\|")
}
