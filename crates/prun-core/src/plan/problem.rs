//! A problem of a plan: where, what, and what to do about it. All of them are told at once.

use std::fmt::Write as _;

use serde::{Deserialize, Serialize};

/// A place in the plan's text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Place {
    /// The line, from 1.
    pub line: u32,
    /// The column in characters, from 1.
    pub column: u32,
}

/// Something that keeps a plan from running.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
pub struct Problem {
    /// Where; `None` where no line of the plan is at fault. These sort first.
    pub place: Option<Place>,
    /// What is wrong, in one sentence without a full stop; further lines are details.
    pub message: String,
    /// The next step.
    pub hint: Option<String>,
}

impl Problem {
    /// A problem at a place, where there is one.
    #[must_use]
    pub fn new(place: impl Into<Option<Place>>, message: impl Into<String>) -> Self {
        Self { place: place.into(), message: message.into(), hint: None }
    }

    /// The same with a next step.
    #[must_use]
    pub fn hint(self, hint: impl Into<String>) -> Self {
        Self { hint: Some(hint.into()), ..self }
    }
}

/// The problems as text, one after the other: `FILE:LINE:COLUMN: message`, a hint on its own line.
#[must_use]
pub fn render(problems: &[Problem], file: &str) -> String {
    let mut text = String::new();
    for problem in problems {
        // Writing to a string does not fail.
        let _ = match problem.place {
            Some(Place { line, column }) => writeln!(text, "{file}:{line}:{column}: {}", problem.message),
            None => writeln!(text, "{file}: {}", problem.message),
        };
        if let Some(hint) = &problem.hint {
            let _ = writeln!(text, "hint: {hint}");
        }
    }
    text
}

/// Text of the user's inside a message: in backticks, short, nothing that a terminal obeys.
pub(crate) fn quoted(text: &str) -> String {
    format!("`{}`", shown(text, 60))
}

/// Text of the user's, cut after `most` characters, with nothing in it that a terminal obeys.
pub(crate) fn shown(text: &str, most: usize) -> String {
    let mut shown: String = text.chars().take(most).flat_map(visible).collect();
    if text.chars().nth(most).is_some() {
        shown.push('…');
    }
    shown
}

fn visible(character: char) -> Vec<char> {
    if character.is_control() { character.escape_default().collect() } else { vec![character] }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_problem_names_file_line_column_and_the_next_step() {
        let place = Place { line: 12, column: 3 };
        let problems =
            [Problem::new(None, "no repository"), Problem::new(place, "unknown key `x`").hint("did you mean `y`?")];
        assert_eq!(
            render(&problems, "plan.toml"),
            "plan.toml: no repository\nplan.toml:12:3: unknown key `x`\nhint: did you mean `y`?\n"
        );
    }

    #[test]
    fn quoted_text_is_short_and_obeyed_by_no_terminal() {
        assert_eq!(quoted("a\u{1b}[2J\nb"), "`a\\u{1b}[2J\\nb`");
        assert_eq!(quoted(&"ä".repeat(61)), format!("`{}…`", "ä".repeat(60)));
    }
}
