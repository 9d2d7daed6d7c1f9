//! `[budget]` of the plan, and `budget` of a unit.

use crate::budget::{Budget, parse_count, parse_money};
use crate::plan::fields::{self, Fields, Item};
use crate::plan::problem::Problem;
use crate::plan::settings;
use crate::plan::tree::Value;

/// Reads a table of limits.
pub(super) fn budget(item: Item<'_>) -> Result<Budget, Problem> {
    let site = item.site;
    let more = &mut *item.more;
    let entries = fields::table(Item { site, value: item.value, more: &mut *more })?;
    let mut fields = Fields::new(entries);
    let before = more.len();
    let budget = read(&mut fields, more);
    fields.finish(more);
    if budget.is_unlimited() && more.len() == before {
        return Err(site.problem("limits nothing").hint("say what, for example: tokens = \"20M\""));
    }
    Ok(budget)
}

/// Takes the keys of such a table.
pub(super) fn read(fields: &mut Fields, problems: &mut Vec<Problem>) -> Budget {
    Budget {
        tokens: fields.read("tokens", problems, |item| amount(item, parse_count)).value(),
        money_micro_usd: fields.read("money", problems, |item| amount(item, parse_money)).value(),
        turns: fields.read("turns", problems, |item| amount(item, parse_count)).value(),
        time_millis: fields.read("time", problems, settings::span).value(),
    }
}

/// A number, or a text that `parse` understands.
fn amount(mut item: Item<'_>, parse: fn(&str) -> Result<u64, String>) -> Result<u64, Problem> {
    if let Value::Integer(number) = item.value {
        item.value = Value::String(number.to_string());
    }
    item.checked(|text| parse(&text))
}
