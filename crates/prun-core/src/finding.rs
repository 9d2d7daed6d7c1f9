//! What `prun doctor` says of a machine: one finding a check.

use schemars::JsonSchema;
use serde::Serialize;

/// The version of the shape of [`Report`].
pub const REPORT_VERSION: u32 = 1;

/// All that was found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Report {
    /// [`REPORT_VERSION`].
    pub version: u32,
    /// Each check, in the order of the checks.
    pub findings: Vec<Finding>,
}

/// What one check found.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct Finding {
    /// The check's stable name.
    pub check: String,
    /// How bad it is.
    pub level: Level,
    /// What is so, in a sentence without a full stop.
    pub message: String,
    /// The next step, where there is one.
    pub hint: Option<String>,
}

/// How bad a finding is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum Level {
    /// As it should be.
    Ok,
    /// A run works, and may end early, be slow, or be less safe.
    Warning,
    /// No run works before this is mended.
    Problem,
}

impl Finding {
    /// All is well.
    #[must_use]
    pub fn ok(check: &str, message: impl Into<String>) -> Self {
        Self { check: check.to_owned(), level: Level::Ok, message: message.into(), hint: None }
    }

    /// Something that may cost work or time.
    #[must_use]
    pub fn warning(check: &str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { level: Level::Warning, hint: Some(hint.into()), ..Self::ok(check, message) }
    }

    /// Something that keeps any run from working.
    #[must_use]
    pub fn problem(check: &str, message: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { level: Level::Problem, hint: Some(hint.into()), ..Self::ok(check, message) }
    }
}
