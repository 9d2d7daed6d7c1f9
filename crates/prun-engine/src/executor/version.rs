//! Versions of clients: what they print, and how prun's knowledge compares with them.

use std::fmt;

/// A version's major and minor number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Version(pub u32, pub u32);

impl Version {
    /// The version in a text like `0.171.0`.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut numbers = text.split('.').map(|part| part.parse().ok());
        Some(Self(numbers.next()??, numbers.next()??))
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.0, self.1)
    }
}

/// The version in what `--version` prints, `codex-cli 0.171.0` or `2.1.332 (Claude Code)`: the first word that
/// begins with a digit, else the last one.
#[must_use]
pub fn in_output(said: &str) -> Option<String> {
    let mut words = said.split_whitespace();
    let version = words.clone().find(|word| word.trim_start_matches('v').starts_with(|c: char| c.is_ascii_digit()));
    version.map(|word| word.trim_start_matches('v')).or_else(|| words.next_back()).map(str::to_owned)
}

/// What to say about the installed version of `client`; `None` where it was tried.
#[must_use]
pub fn note(client: &str, version: &str, tried: Version) -> Option<String> {
    match Version::parse(version) {
        Some(installed) if installed == tried => None,
        Some(installed) if installed > tried => {
            Some(format!("{client} {version} is newer than prun knows; prun was tried with {tried}"))
        }
        Some(_) => Some(format!("{client} {version} is old; prun was tried with {tried}")),
        None => Some(format!("{client} says an unknown version, {version:?}; prun was tried with {tried}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_untried_version_is_said() {
        let tried = Version(0, 171);
        assert_eq!(note("codex", "0.171.3", tried), None);
        for (version, words) in
            [("0.172.0", "newer"), ("1.0.0", "newer"), ("0.98.0", "old"), ("nightly", "unknown"), ("", "unknown")]
        {
            assert!(note("codex", version, tried).unwrap().contains(words), "{version}");
        }
    }

    #[test]
    fn the_version_is_found_in_what_clients_print() {
        for (said, version) in [
            ("codex-cli 0.171.0\n", Some("0.171.0")),
            ("2.1.332 (Claude Code)\n", Some("2.1.332")),
            ("0.61.0\n", Some("0.61.0")),
            ("tool v1.2\n", Some("1.2")),
            ("nightly build\n", Some("build")),
            ("", None),
        ] {
            assert_eq!(in_output(said).as_deref(), version, "{said}");
        }
    }
}
