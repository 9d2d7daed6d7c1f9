//! Which rungs of the containment ladder may be used.

use std::ffi::OsStr;

/// Names the rungs that may be used, with commas between them; unset or empty means all. It is there for
/// tests and for systems where one of them misbehaves.
pub const CONTAIN_VARIABLE: &str = "PRUN_CONTAIN";

/// The rungs that may be used, where the system has them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rungs {
    /// A control group of the attempt's own.
    pub cgroup: bool,
    /// Orphans of the worker become the dispatcher's children.
    pub subreaper: bool,
    /// A variable marks the worker and what it starts.
    pub token: bool,
}

impl Rungs {
    /// All of them.
    pub const ALL: Self = Self { cgroup: true, subreaper: true, token: true };

    /// The rungs that the value of [`CONTAIN_VARIABLE`] names, and the words in it that are no rung. A wrong
    /// word never takes containment away: the others still apply, and where none is left, all do.
    #[must_use]
    pub fn parse(value: Option<&OsStr>) -> (Self, Vec<String>) {
        let text = value.map(OsStr::to_string_lossy).unwrap_or_default();
        let mut named = Self { cgroup: false, subreaper: false, token: false };
        let mut unknown = Vec::new();
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            match word {
                "cgroup" => named.cgroup = true,
                "subreaper" => named.subreaper = true,
                "token" => named.token = true,
                _ => unknown.push(word.to_owned()),
            }
        }
        let is_empty = !(named.cgroup || named.subreaper || named.token);
        (if is_empty { Self::ALL } else { named }, unknown)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_known_words_choose_and_nothing_chosen_means_all() {
        let parse = |text: &str| Rungs::parse(Some(OsStr::new(text)));
        assert_eq!(Rungs::parse(None), (Rungs::ALL, vec![]));
        assert_eq!(parse(""), (Rungs::ALL, vec![]));
        assert_eq!(parse("cgroup,subreaper,token"), (Rungs::ALL, vec![]));
        let token = Rungs { cgroup: false, subreaper: false, token: true };
        assert_eq!(parse(" token ,"), (token, vec![]));
        assert_eq!(parse("token,jail"), (token, vec!["jail".to_owned()]));
        assert_eq!(parse("none"), (Rungs::ALL, vec!["none".to_owned()]));
    }
}
