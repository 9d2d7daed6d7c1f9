//! Whole numbers in environment variables.

use std::ffi::OsString;

/// The whole number in the variable `name`; `default` where it is not set or is anything else, a sign or
/// a blank included. More digits than fit are the largest number: as good as no limit.
pub fn whole_number(var: &impl Fn(&str) -> Option<OsString>, name: &str, default: u64) -> u64 {
    let text = var(name).and_then(|value| value.into_string().ok());
    let digits = text.filter(|text| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()));
    digits.map_or(default, |digits| digits.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_whole_number_means_the_default() {
        let number = |text: &str| whole_number(&|_: &str| Some(OsString::from(text)), "X", 7);
        for (text, meant) in [("0", 0), ("12", 12), ("007", 7), ("", 7), ("-1", 7), ("+1", 7), (" 1", 7), ("1.5", 7)] {
            assert_eq!(number(text), meant, "{text:?}");
        }
        assert_eq!(number("99999999999999999999999"), u64::MAX);
        assert_eq!(whole_number(&|_: &str| None, "X", 7), 7);
    }
}
