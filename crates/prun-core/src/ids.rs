//! Names of runs, units, attempts and executors, and the look-up of a run by a part of its id.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// The longest unit id, in characters. It becomes a directory name together with a hash, a pid and a nonce.
pub const MAX_UNIT_ID: usize = 64;

macro_rules! string_id {
    ($name:ident, $error:ty, $check:expr) => {
        impl $name {
            /// The id as text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = $error;

            fn from_str(text: &str) -> Result<Self, Self::Err> {
                let check: fn(&str) -> Result<(), $error> = $check;
                check(text).map(|()| Self(text.to_owned()))
            }
        }

        impl TryFrom<String> for $name {
            type Error = $error;

            fn try_from(text: String) -> Result<Self, Self::Error> {
                text.parse()
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

/// A run: `YYMMDD-HHMMSS-<4 base32>` in UTC, unique in one home.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct RunId(String);

string_id!(RunId, IdError, |text| {
    let shape = text.len() == 18
        && text.bytes().enumerate().all(|(at, byte)| match at {
            6 | 13 => byte == b'-',
            0..=12 => byte.is_ascii_digit(),
            _ => byte.is_ascii_digit() || byte.is_ascii_lowercase(),
        });
    if shape { Ok(()) } else { Err(IdError::Run(text.to_owned())) }
});

impl RunId {
    /// The last four characters: how a run is shown and usually named.
    #[must_use]
    pub fn short(&self) -> &str {
        &self.0[14..]
    }

    /// Whether `part` names this run: a prefix of the id, or of its last four characters.
    #[must_use]
    pub fn is_named_by(&self, part: &str) -> bool {
        !part.is_empty() && (self.0.starts_with(part) || self.short().starts_with(part))
    }
}

/// One unit of a run: `[A-Za-z0-9_-]{1,64}` without a leading dash.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct UnitId(String);

string_id!(UnitId, IdError, |text| {
    if text.is_empty() {
        return Err(IdError::UnitEmpty);
    }
    if text.len() > MAX_UNIT_ID {
        return Err(IdError::UnitTooLong(text.chars().take(24).collect(), text.len()));
    }
    if text.starts_with('-') {
        return Err(IdError::UnitDash(text.to_owned()));
    }
    if text.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-') {
        Ok(())
    } else {
        Err(IdError::UnitAlphabet(text.to_owned()))
    }
});

/// An executor of the registry, by name: `[a-z0-9][a-z0-9_-]{0,31}`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(try_from = "String", into = "String")]
pub struct ExecutorName(String);

string_id!(ExecutorName, IdError, |text| {
    let alphabet = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
    let shape = (1..=32).contains(&text.len())
        && text.bytes().enumerate().all(|(at, byte)| alphabet(byte) || (at > 0 && (byte == b'-' || byte == b'_')));
    if shape { Ok(()) } else { Err(IdError::Executor(text.to_owned())) }
});

/// The number of an attempt at a unit, from 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema)]
#[serde(transparent)]
pub struct Attempt(pub u32);

impl Attempt {
    /// The attempt after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Attempt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The place of an event in its run's ledger, from 1 without gaps.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, schemars::JsonSchema,
)]
#[serde(transparent)]
pub struct Seq(pub u64);

impl Seq {
    /// The place after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }
}

impl fmt::Display for Seq {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// A name that cannot be used, and why.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IdError {
    /// Not the shape of a run id.
    #[error("{0:?} is no run id (YYMMDD-HHMMSS-xxxx)")]
    Run(String),
    /// An empty unit id.
    #[error("the unit id is empty")]
    UnitEmpty,
    /// A unit id over [`MAX_UNIT_ID`] characters.
    #[error("the unit id {0:?}… has {1} bytes; at most 64 are allowed")]
    UnitTooLong(String, usize),
    /// A unit id that a command line would take for an option.
    #[error("the unit id {0:?} starts with a dash")]
    UnitDash(String),
    /// A unit id with other characters than letters, digits, `_` and `-`.
    #[error("the unit id {0:?} has characters outside A-Z a-z 0-9 _ -")]
    UnitAlphabet(String),
    /// Not the shape of an executor name.
    #[error("{0:?} is no executor name (a-z, 0-9, - and _, at most 32 characters)")]
    Executor(String),
}

/// Why a part of an id did not lead to one run.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LookupError {
    /// No run has that name.
    #[error("no run is named {0:?}")]
    None(String),
    /// Several runs have it.
    #[error("{part:?} names {} runs: {}", found.len(), list(found))]
    Many {
        /// What was asked for.
        part: String,
        /// The runs it could mean.
        found: Vec<RunId>,
    },
}

fn list(runs: &[RunId]) -> String {
    runs.iter().take(5).map(RunId::as_str).collect::<Vec<_>>().join(", ")
}

/// Finds the one run that `part` names.
///
/// # Errors
/// None or several runs carry that name.
pub fn find_run<'a>(runs: impl IntoIterator<Item = &'a RunId>, part: &str) -> Result<RunId, LookupError> {
    let found: Vec<RunId> = runs.into_iter().filter(|run| run.is_named_by(part)).cloned().collect();
    match found.as_slice() {
        [] => Err(LookupError::None(part.to_owned())),
        [one] => Ok(one.clone()),
        _ => Err(LookupError::Many { part: part.to_owned(), found }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_ids_outside_the_alphabet_are_refused() {
        for good in ["a", "A_b-9", "_x", &"x".repeat(64)] {
            assert!(good.parse::<UnitId>().is_ok(), "{good}");
        }
        for bad in ["", "-rf", "../x", "a/b", ".", "a b", "ä", "a\0", &"x".repeat(65)] {
            assert!(bad.parse::<UnitId>().is_err(), "{bad:?}");
        }
    }

    #[test]
    fn a_run_is_found_by_prefix_or_short_name() {
        let runs: Vec<RunId> =
            ["261130-155200-k3f9", "261130-155201-k4aa"].iter().map(|id| id.parse().unwrap()).collect();
        assert_eq!(find_run(&runs, "k3").unwrap(), runs[0]);
        assert_eq!(find_run(&runs, "261130-155201").unwrap(), runs[1]);
        assert!(matches!(find_run(&runs, "k"), Err(LookupError::Many { .. })));
        assert!(matches!(find_run(&runs, ""), Err(LookupError::None(_))));
        assert!("261130-155200-K3F9".parse::<RunId>().is_err());
    }
}
