//! The command lines of the old verbs, option by option.

use std::ffi::{OsStr, OsString};

/// A command line that cannot be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UsageError {
    /// An argument that is not known.
    #[error("unknown argument {0:?}")]
    Unknown(String),
    /// An option at the end of the line.
    #[error("{0} needs a value")]
    NoValue(&'static str),
    /// A value that the option does not take.
    #[error("{value:?} is no value for {option}: {expected}")]
    BadValue {
        /// The option.
        option: &'static str,
        /// What was given.
        value: String,
        /// What it takes.
        expected: &'static str,
    },
    /// Nothing to work on.
    #[error("at least one {0} is needed")]
    Nothing(&'static str),
    /// How it is used was asked for: no error, but the end.
    #[error("help")]
    Help,
}

/// One argument of a line.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Argument {
    /// `--name`, or the name of `--name=value`.
    Option(String),
    /// Anything else, and everything after `--`.
    Value(OsString),
}

/// The arguments of a line, one after the other.
pub(super) struct Arguments<I> {
    rest: I,
    inline: Option<OsString>,
    values_only: bool,
}

impl<I: Iterator<Item = OsString>> Arguments<I> {
    pub(super) fn new(rest: I) -> Self {
        Self { rest, inline: None, values_only: false }
    }

    /// The next argument.
    ///
    /// # Errors
    /// The last option was given a value with `=` and takes none, or help was asked for.
    pub(super) fn next(&mut self) -> Result<Option<Argument>, UsageError> {
        if let Some(value) = self.inline.take() {
            return Err(unknown(&value));
        }
        let Some(argument) = self.rest.next() else { return Ok(None) };
        if self.values_only {
            return Ok(Some(Argument::Value(argument)));
        }
        match argument.as_encoded_bytes() {
            b"--" => {
                self.values_only = true;
                self.next()
            }
            b"--help" | b"-h" => Err(UsageError::Help),
            bytes if bytes.starts_with(b"--") => Ok(Some(self.option(&argument))),
            _ => Ok(Some(Argument::Value(argument))),
        }
    }

    fn option(&mut self, argument: &OsStr) -> Argument {
        use std::os::unix::ffi::OsStrExt;
        let bytes = argument.as_bytes();
        let end = bytes.iter().position(|byte| *byte == b'=');
        self.inline = end.map(|end| OsStr::from_bytes(&bytes[end + 1..]).to_owned());
        Argument::Option(String::from_utf8_lossy(&bytes[..end.unwrap_or(bytes.len())]).into_owned())
    }

    /// The value of the option `name` that came last.
    ///
    /// # Errors
    /// There is none, or an empty one.
    pub(super) fn value(&mut self, name: &'static str) -> Result<OsString, UsageError> {
        let value = self.inline.take().or_else(|| self.rest.next());
        value.filter(|value| !value.is_empty()).ok_or(UsageError::NoValue(name))
    }

    /// The same as text.
    ///
    /// # Errors
    /// There is none, or an empty one.
    pub(super) fn text(&mut self, name: &'static str) -> Result<String, UsageError> {
        Ok(self.value(name)?.to_string_lossy().into_owned())
    }
}

/// An argument that nobody knows.
pub(super) fn unknown(argument: &OsStr) -> UsageError {
    UsageError::Unknown(argument.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arguments(line: &[&str]) -> Arguments<std::vec::IntoIter<OsString>> {
        Arguments::new(line.iter().map(OsString::from).collect::<Vec<_>>().into_iter())
    }

    fn option(name: &str) -> Option<Argument> {
        Some(Argument::Option(name.to_owned()))
    }

    #[test]
    fn a_value_stands_behind_its_option_or_in_it() {
        let mut line = arguments(&["--root", "a", "--root=b=c", "x", "--", "--root"]);
        assert_eq!(line.next().unwrap(), option("--root"));
        assert_eq!(line.value("--root").unwrap(), "a");
        assert_eq!(line.next().unwrap(), option("--root"));
        assert_eq!(line.value("--root").unwrap(), "b=c");
        assert_eq!(line.next().unwrap(), Some(Argument::Value("x".into())));
        assert_eq!(line.next().unwrap(), Some(Argument::Value("--root".into())));
        assert_eq!(line.next().unwrap(), None);
    }

    #[test]
    fn a_value_that_is_missing_or_too_much_is_told() {
        for line in [&["--root"][..], &["--root", ""], &["--root="]] {
            let mut line = arguments(line);
            line.next().unwrap();
            assert_eq!(line.value("--root"), Err(UsageError::NoValue("--root")));
        }
        let mut line = arguments(&["--json=yes"]);
        line.next().unwrap();
        assert_eq!(line.next(), Err(UsageError::Unknown("yes".into())));
        assert_eq!(arguments(&["--help"]).next(), Err(UsageError::Help));
    }
}
