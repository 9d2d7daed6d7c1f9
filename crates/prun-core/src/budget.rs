//! What a run or a unit may spend, and how far it has come.

use serde::{Deserialize, Serialize};

use crate::digest::{count, duration};
use crate::outcome::Usage;

/// The share of a budget from which it is warned of, in percent.
pub const WARNING_PERCENT: u64 = 80;

/// What may be spent. `None`: no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Budget {
    /// Tokens, sent and received together.
    pub tokens: Option<u64>,
    /// Millionths of a US dollar, as far as clients report money.
    pub money_micro_usd: Option<u64>,
    /// Turns, as far as clients report them.
    pub turns: Option<u64>,
    /// Milliseconds: of a run since it began, of a unit over all its attempts.
    pub time_millis: Option<u64>,
}

/// What was spent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Spent {
    /// Tokens and money.
    pub usage: Usage,
    /// Milliseconds.
    pub millis: u64,
}

/// How far a budget is spent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// Less than [`WARNING_PERCENT`].
    Fine,
    /// Less than all.
    Warning,
    /// All.
    Spent,
}

impl Budget {
    /// Whether nothing is limited.
    #[must_use]
    pub fn is_unlimited(&self) -> bool {
        *self == Self::default()
    }

    /// How far it is spent, and a sentence on what is nearest to its end: `16.2M of 20M tokens are used (81 %)`.
    #[must_use]
    pub fn level(&self, spent: &Spent) -> (Level, String) {
        let Spent { usage, millis } = *spent;
        let money = usage.cost_micro_usd.unwrap_or(0);
        let parts = [
            self.tokens
                .map(|all| (percent(usage.total_tokens(), all), said(&count, usage.total_tokens(), all, " tokens"))),
            self.money_micro_usd.map(|all| (percent(money, all), said(&usd, money, all, ""))),
            self.turns.map(|all| {
                let turns = u64::from(usage.turns.unwrap_or(0));
                (percent(turns, all), said(&count, turns, all, " turns"))
            }),
            self.time_millis.map(|all| (percent(millis, all), said(&duration, millis, all, " of time"))),
        ];
        let Some((percent, said)) = parts.into_iter().flatten().max_by_key(|(percent, _)| *percent) else {
            return (Level::Fine, String::new());
        };
        let level = match percent {
            0..WARNING_PERCENT => Level::Fine,
            WARNING_PERCENT..100 => Level::Warning,
            _ => Level::Spent,
        };
        (level, format!("{said} are used ({percent} %)"))
    }

    /// What is left of it, at least one of each: less than that is no limit that a client takes.
    #[must_use]
    pub fn left(&self, spent: &Spent) -> Self {
        let left = |all: Option<u64>, spent: u64| all.map(|all| all.saturating_sub(spent).max(1));
        Self {
            tokens: left(self.tokens, spent.usage.total_tokens()),
            money_micro_usd: left(self.money_micro_usd, spent.usage.cost_micro_usd.unwrap_or(0)),
            turns: left(self.turns, u64::from(spent.usage.turns.unwrap_or(0))),
            time_millis: left(self.time_millis, spent.millis),
        }
    }

    /// The smaller of each part.
    #[must_use]
    pub fn least(&self, other: &Self) -> Self {
        let least = |one: Option<u64>, other: Option<u64>| one.into_iter().chain(other).min();
        Self {
            tokens: least(self.tokens, other.tokens),
            money_micro_usd: least(self.money_micro_usd, other.money_micro_usd),
            turns: least(self.turns, other.turns),
            time_millis: least(self.time_millis, other.time_millis),
        }
    }

    /// The time left until its next level, in milliseconds, where time is limited.
    #[must_use]
    pub fn time_left(&self, millis: u64) -> Option<u64> {
        let all = self.time_millis?;
        let warning = all / 100 * WARNING_PERCENT + all % 100 * WARNING_PERCENT / 100;
        [warning, all].into_iter().find(|level| *level > millis).map(|level| level - millis)
    }
}

fn percent(part: u64, all: u64) -> u64 {
    u64::try_from(u128::from(part) * 100 / u128::from(all.max(1))).unwrap_or(u64::MAX)
}

fn said(show: &dyn Fn(u64) -> String, part: u64, all: u64, what: &str) -> String {
    format!("{} of {}{what}", show(part), show(all))
}

/// Money for people: `$12.50`.
#[must_use]
pub fn usd(micro: u64) -> String {
    match micro {
        1..10_000 => format!("${}.{:06}", micro / 1_000_000, micro % 1_000_000),
        _ => format!("${}.{:02}", micro / 1_000_000, micro % 1_000_000 / 10_000),
    }
}

/// A number of tokens or turns as people write it: `20M`, `1.5k`, `300000`.
///
/// # Errors
/// It is no such number, or none at all; as the end of a sentence.
pub fn parse_count(text: &str) -> Result<u64, String> {
    let (digits, factor) = match text.strip_suffix(['k', 'K', 'M', 'G']) {
        Some(digits) if text.ends_with(['k', 'K']) => (digits, 1_000),
        Some(digits) if text.ends_with('M') => (digits, 1_000_000),
        Some(digits) => (digits, 1_000_000_000),
        None => (text, 1),
    };
    scaled(digits, factor).ok_or_else(|| format!("is a number such as \"20M\", \"1.5k\" or \"300000\", not {text:?}"))
}

/// Money as people write it, in millionths of a US dollar: `25`, `$12.50`, `0.75 USD`.
///
/// # Errors
/// It is no such amount, or none at all; as the end of a sentence.
pub fn parse_money(text: &str) -> Result<u64, String> {
    let amount = text.strip_prefix('$').unwrap_or(text);
    let amount = amount.strip_suffix("USD").unwrap_or(amount).trim_end();
    scaled(amount, 1_000_000).ok_or_else(|| format!("is an amount such as \"$12.50\" or \"25 USD\", not {text:?}"))
}

/// `DIGITS[.DIGITS]` times `factor`, above zero and whole.
fn scaled(text: &str, factor: u64) -> Option<u64> {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |text: &str| !text.is_empty() && text.len() <= 15 && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(fraction) {
        return None;
    }
    let divisor = 10_u128.pow(u32::try_from(fraction.len()).ok()?);
    let fraction = fraction.parse::<u128>().ok()? * u128::from(factor);
    let whole = whole.parse::<u128>().ok()? * u128::from(factor);
    let is_whole = fraction % divisor == 0;
    u64::try_from(whole + fraction / divisor).ok().filter(|number| is_whole && *number > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spent(tokens: u64, millis: u64) -> Spent {
        let usage = Usage { input_tokens: tokens, cost_micro_usd: Some(tokens), ..Usage::default() };
        Spent { usage, millis }
    }

    #[test]
    fn the_part_that_is_nearest_to_its_end_counts() {
        let budget = Budget { tokens: Some(20_000_000), time_millis: Some(3_600_000), ..Budget::default() };
        let level = |tokens, millis| budget.level(&spent(tokens, millis));
        assert_eq!(level(0, 0).0, Level::Fine);
        assert_eq!(level(15_999_999, 0).0, Level::Fine);
        assert_eq!(level(16_200_000, 0), (Level::Warning, "16.2M of 20.0M tokens are used (81 %)".into()));
        assert_eq!(level(19_999_999, 0).0, Level::Warning);
        assert_eq!(level(20_000_000, 9).0, Level::Spent);
        assert_eq!(level(1, 3_000_000), (Level::Warning, "50m of 60m of time are used (83 %)".into()));
        assert_eq!(Budget::default().level(&spent(u64::MAX, u64::MAX)).0, Level::Fine);
        let money = Budget { money_micro_usd: Some(2_500_000), ..Budget::default() };
        assert_eq!(money.level(&spent(2_400_000, 0)).1, "$2.40 of $2.50 are used (96 %)");
    }

    #[test]
    fn the_next_level_of_time_is_known() {
        let budget = Budget { time_millis: Some(1_050), ..Budget::default() };
        assert_eq!(
            [0, 839, 840, 1_049, 1_050].map(|millis| budget.time_left(millis)),
            [Some(840), Some(1), Some(210), Some(1), None]
        );
        assert_eq!(Budget::default().time_left(0), None);
    }

    #[test]
    fn what_is_left_of_two_budgets_is_what_is_left_of_the_smaller_one() {
        let of_run = Budget { tokens: Some(100), turns: Some(9), ..Budget::default() };
        let of_unit = Budget { tokens: Some(70), money_micro_usd: Some(5), ..Budget::default() };
        let left = of_run.left(&spent(40, 7)).least(&of_unit.left(&spent(20, 7)));
        let expected = Budget { tokens: Some(50), money_micro_usd: Some(1), turns: Some(9), time_millis: None };
        assert_eq!(left, expected);
    }

    #[test]
    fn amounts_are_read_as_people_write_them() {
        let counts = ["20M", "1.5k", "300000", "2G", "0.5M"].map(|text| parse_count(text).unwrap());
        assert_eq!(counts, [20_000_000, 1_500, 300_000, 2_000_000_000, 500_000]);
        let amounts = ["25", "$12.50", "0.75 USD", "$1USD"].map(|text| parse_money(text).unwrap());
        assert_eq!(amounts, [25_000_000, 12_500_000, 750_000, 1_000_000]);
        for bad in ["", "0", "M", "1.2345k", "-1", "1e6", "1_000", "20 M", "99999999999G", "1.", ".5"] {
            assert!(parse_count(bad).is_err(), "{bad}");
        }
        for bad in ["", "$", "0", "12,50", "12.5 EUR", "$0.0000001"] {
            assert!(parse_money(bad).is_err(), "{bad}");
        }
    }
}
