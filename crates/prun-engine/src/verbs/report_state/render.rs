//! A report as JSON, version 1, and as text for people. Pure.
//!
//! JSON holds text alone, and a path holds bytes: one that is not UTF-8 is shown with replacement
//! characters, and whole, in base64, in a field of the same name with `_base64` at its end.

use std::cmp::Reverse;
use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde_json::{Map, Value, json};

use super::{DiscoveryError, LEGAL_PAIRS, Report, ReportArgs, ResultReport, SAFETY, Sort, UnitReport};
use crate::executor::escape_line;

/// The version of the JSON.
const SCHEMA_VERSION: u32 = 1;

/// The report as JSON.
#[must_use]
pub fn json(report: &Report, args: &ReportArgs) -> Value {
    let mut top = Map::new();
    top.insert("schema_version".into(), SCHEMA_VERSION.into());
    let roots: Vec<&Path> = report.roots.iter().map(AsRef::as_ref).collect();
    top.insert("roots".into(), roots.iter().map(|root| root.to_string_lossy().into_owned()).collect());
    if roots.iter().any(|root| root.to_str().is_none()) {
        top.insert("roots_base64".into(), roots.iter().map(|root| base64(root.as_os_str().as_bytes())).collect());
    }
    top.insert("unit_count".into(), report.units.len().into());
    top.insert("discovery_errors".into(), report.discovery_errors.iter().map(discovery_error).collect());
    top.insert("safety".into(), SAFETY.into());
    if args.summary {
        top.insert("summary".into(), summary(report));
    }
    top.insert("units".into(), shown(report, args).into_iter().map(|it| unit(it, args)).collect());
    top.into()
}

/// The report for people.
#[must_use]
pub fn text(report: &Report, args: &ReportArgs) -> String {
    let mut text = String::new();
    let units = shown(report, args);
    for unit in &units {
        let (path_state, result) = unit.result.pair();
        let tail = unit.tail_bytes.map_or_else(|| "?".to_owned(), |bytes| bytes.to_string());
        let state = format!("{}/{}", path_state.name(), result.name());
        let _ = writeln!(text, "{state:<22} tail={tail:<10} {}", shown_path(&unit.unit));
        if let ResultReport::Resolved { target, .. } = &unit.result {
            let _ = writeln!(text, "    result {}", shown_path(target));
        }
        if let Some(pid) = &unit.legacy_pid {
            let _ = writeln!(text, "    dispatch-pid {} (not verified)", escape_line(pid));
        }
        for (stage, error) in &unit.errors {
            let _ = writeln!(text, "    error {} {}", stage.name(), error.name());
        }
    }
    for error in &report.discovery_errors {
        let (stage, path, class) = parts(error);
        let _ = writeln!(text, "error {stage} {} {}", class, shown_path(path));
    }
    let roots: Vec<String> = report.roots.iter().map(|root| shown_path(root)).collect();
    let (all, shown) = (report.units.len(), units.len());
    let _ = writeln!(text, "units={all} shown={shown} roots={}", roots.join(", "));
    if args.summary {
        let summary = report.summary();
        let _ = writeln!(
            text,
            "missing_or_empty_result={} bytes in {} units\nunresolved={} bytes in {} units",
            summary.missing_or_empty_bytes,
            summary.missing_or_empty_units,
            summary.unresolved_bytes,
            summary.unresolved_units
        );
    }
    let _ = writeln!(text, "{SAFETY}");
    text
}

/// The units that are shown, in the order that was asked for.
fn shown<'a>(report: &'a Report, args: &ReportArgs) -> Vec<&'a UnitReport> {
    let is_shown = |unit: &&UnitReport| unit.tail_bytes.is_none_or(|bytes| bytes >= args.min_tail_bytes);
    let mut units: Vec<&UnitReport> = report.units.iter().filter(is_shown).collect();
    if args.sort == Sort::TailBytesDesc {
        // Stable: those of equal size stay in the order of their paths.
        units.sort_by_key(|unit| (unit.tail_bytes.is_none(), Reverse(unit.tail_bytes)));
    }
    units
}

fn unit(unit: &UnitReport, args: &ReportArgs) -> Value {
    let (path_state, result) = unit.result.pair();
    let mut map = Map::new();
    put_path(&mut map, "unit", &unit.unit);
    map.insert("result_path_state".into(), path_state.name().into());
    map.insert("result".into(), result.name().into());
    match &unit.result {
        ResultReport::Resolved { target, .. } => put_path(&mut map, "result_target", target),
        ResultReport::Unresolved(_) => {
            map.insert("result_target".into(), Value::Null);
        }
    }
    map.insert("tail_bytes".into(), unit.tail_bytes.into());
    let errors = unit.errors.iter().map(|(stage, error)| json!({"stage": stage.name(), "error": error.name()}));
    map.insert("errors".into(), errors.collect());
    if args.include_legacy_pid {
        map.insert("legacy_pid_unverified".into(), unit.legacy_pid.clone().into());
    }
    map.into()
}

fn discovery_error(error: &DiscoveryError) -> Value {
    let (stage, path, class) = parts(error);
    let mut map = Map::new();
    map.insert("stage".into(), stage.into());
    put_path(&mut map, if stage == "root" { "root" } else { "unit" }, path);
    map.insert("error".into(), class.into());
    map.into()
}

fn parts(error: &DiscoveryError) -> (&'static str, &Path, &'static str) {
    match error {
        DiscoveryError::Root(path, class) => ("root", path, class.name()),
        DiscoveryError::UnitEntry(path, class) => ("unit-entry", path, class.name()),
    }
}

/// The counters by the contract's names, and by those that the old scripts gave them.
fn summary(report: &Report) -> Value {
    let summary = report.summary();
    let count = |name: fn(&UnitReport) -> &'static str, wanted: &str| {
        report.units.iter().filter(|unit| name(unit) == wanted).count()
    };
    let (mut by_result, mut by_path_state) = (Map::new(), Map::new());
    for (path_state, result) in LEGAL_PAIRS {
        let of_result = count(|unit| unit.result.pair().1.name(), result.name());
        by_result.insert(result.name().into(), of_result.into());
        let of_state = count(|unit| unit.result.pair().0.name(), path_state.name());
        by_path_state.insert(path_state.name().into(), of_state.into());
    }
    json!({
        "missing_or_empty_result": summary.missing_or_empty_bytes,
        "unresolved": summary.unresolved_bytes,
        "units": report.units.len(),
        "by_result": by_result,
        "by_path_state": by_path_state,
        "missing_or_empty_result_units": summary.missing_or_empty_units,
        "missing_or_empty_result_bytes": summary.missing_or_empty_bytes,
        "unresolved_units": summary.unresolved_units,
        "unresolved_bytes": summary.unresolved_bytes,
    })
}

fn put_path(map: &mut Map<String, Value>, name: &str, path: &Path) {
    map.insert(name.into(), path.to_string_lossy().into_owned().into());
    if path.to_str().is_none() {
        map.insert(format!("{name}_base64"), base64(path.as_os_str().as_bytes()).into());
    }
}

fn shown_path(path: &Path) -> String {
    escape_line(&path.to_string_lossy())
}

/// RFC 4648, with padding.
pub(super) fn base64(bytes: &[u8]) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let at = |index: usize| u32::from(group.get(index).copied().unwrap_or(0));
        let bits = (at(0) << 16) | (at(1) << 8) | at(2);
        for place in 0..4 {
            let digit = ALPHABET[(bits >> (18 - 6 * place)) as usize & 63];
            text.push(if place <= group.len() { char::from(digit) } else { '=' });
        }
    }
    text
}
