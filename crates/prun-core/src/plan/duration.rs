//! Durations as people write them: `45m`, `1h30m`, `90s`, `500ms`. A number alone says nothing and is refused.

/// Units from the longest to the shortest, with their milliseconds.
const UNITS: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// The longest duration, in days: a limit that is never reached would read as one that holds.
pub const MAX_DAYS: u64 = 365;

/// Why a text is no duration.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DurationError {
    /// Digits without a unit.
    #[error("a duration needs a unit")]
    NoUnit,
    /// Not the shape of a duration.
    #[error("not a duration")]
    Shape,
    /// Units repeated, or a shorter one before a longer one.
    #[error("the units of a duration go from the longest to the shortest, each once")]
    Order,
    /// Over [`MAX_DAYS`].
    #[error("a duration is at most 365 days")]
    TooLong,
    /// No time at all.
    #[error("a duration is longer than zero")]
    Zero,
}

/// The milliseconds that `text` names.
///
/// # Errors
/// Text of another shape, no unit, nothing or too much.
pub fn parse(text: &str) -> Result<u64, DurationError> {
    let mut rest = text;
    let mut units = UNITS.iter();
    let mut millis: u64 = 0;
    while !rest.is_empty() {
        let (count, unit, after) = next_part(rest)?;
        let &(_, factor) = units.find(|(name, _)| *name == unit).ok_or_else(|| misplaced(unit))?;
        millis = count.checked_mul(factor).and_then(|part| millis.checked_add(part)).ok_or(DurationError::TooLong)?;
        rest = after;
    }
    match millis {
        0 if text.is_empty() => Err(DurationError::Shape),
        0 => Err(DurationError::Zero),
        _ if millis > MAX_DAYS * UNITS[0].1 => Err(DurationError::TooLong),
        _ => Ok(millis),
    }
}

/// The shortest text that [`parse`] reads as `millis`; `0s` for none.
#[must_use]
pub fn format(millis: u64) -> String {
    let mut rest = millis;
    let mut text = String::new();
    for (unit, factor) in UNITS {
        if rest >= factor {
            text.push_str(&format!("{}{unit}", rest / factor));
            rest %= factor;
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

/// Splits off one count with its unit.
fn next_part(text: &str) -> Result<(u64, &str, &str), DurationError> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let letters = text[digits..].bytes().take_while(u8::is_ascii_lowercase).count();
    match (digits, letters) {
        (0, _) => Err(DurationError::Shape),
        (_, 0) if digits == text.len() => Err(DurationError::NoUnit),
        (_, 0) => Err(DurationError::Shape),
        _ => {
            let count = text[..digits].parse().map_err(|_| DurationError::TooLong)?;
            let (unit, after) = text[digits..].split_at(letters);
            Ok((count, unit, after))
        }
    }
}

fn misplaced(unit: &str) -> DurationError {
    if UNITS.iter().any(|(name, _)| *name == unit) { DurationError::Order } else { DurationError::Shape }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn durations_carry_a_unit() {
        let good = [("45m", 2_700_000), ("1h30m", 5_400_000), ("90s", 90_000), ("500ms", 500), ("1d1ms", 86_400_001)];
        for (text, millis) in good {
            assert_eq!(parse(text), Ok(millis), "{text}");
        }
        let bad = [
            ("45", DurationError::NoUnit),
            ("1h30", DurationError::NoUnit),
            ("", DurationError::Shape),
            ("m", DurationError::Shape),
            ("1.5h", DurationError::Shape),
            ("-1m", DurationError::Shape),
            ("5 m", DurationError::Shape),
            ("5min", DurationError::Shape),
            ("5M", DurationError::Shape),
            ("30m1h", DurationError::Order),
            ("1m1m", DurationError::Order),
            ("0s", DurationError::Zero),
            ("366d", DurationError::TooLong),
            ("99999999999999999999s", DurationError::TooLong),
            ("18446744073709551615d", DurationError::TooLong),
        ];
        for (text, error) in bad {
            assert_eq!(parse(text), Err(error), "{text}");
        }
    }

    proptest! {
        #[test]
        fn a_written_duration_is_read_back(millis in 1..=MAX_DAYS * 86_400_000) {
            prop_assert_eq!(parse(&format(millis)), Ok(millis));
        }

        #[test]
        fn any_text_is_read_or_refused(text in "\\PC*") {
            let _ = parse(&text);
        }
    }
}
