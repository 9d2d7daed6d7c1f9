//! The brief: what a worker is told, as one text. The task is the user's; what prun adds is short,
//! fixed and has a version.

use std::fmt::Write;
use std::path::Path;

use prun_core::event::Mode;
use prun_core::ids::UnitId;

/// The version of what prun adds. It changes with every change of the words.
pub const BRIEF_VERSION: u32 = 1;

/// The form of a result, to the letter; `{unit}` stands for the unit's id.
const RETURN_CONTRACT: &str = r#"# {unit} result
Conclusion: <one line>
Files: <created or modified, or "none (read-only)">
Open items: <blockers or follow-ups, or "none">
Verification: <what was run, checked or searched, or "none">
<blank line>
<body>
"#;

/// What a worker must know about its place.
#[derive(Clone, Copy, Debug)]
pub struct BriefFacts<'a> {
    /// The unit.
    pub unit: &'a UnitId,
    /// Whether it changes the repository.
    pub mode: Mode,
    /// Its working directory, absolute.
    pub workspace: &'a Path,
    /// The checkout: the workspace itself for a write unit, a directory in it for a read unit; `None`
    /// where there is none.
    pub checkout: Option<&'a Path>,
    /// The commit that is checked out.
    pub base: &'a str,
    /// What it may change, gitignore-style; empty where nothing was said.
    pub owns: &'a [String],
    /// What the user's repository has and the checkout has not, a phrase each ("3 uncommitted files").
    pub unseen: &'a [String],
    /// Where its result is to stand, absolute.
    pub result: &'a Path,
    /// For a session unit, the name by which `prun submit` knows it.
    pub submit_as: Option<&'a str>,
}

/// The whole brief of a unit: the run's context, the task, then what prun adds.
#[must_use]
pub fn compose(context: Option<&str>, task: &str, facts: &BriefFacts<'_>) -> String {
    let mut brief = String::new();
    for text in [context.unwrap_or(""), task].map(str::trim_end).into_iter().filter(|text| !text.is_empty()) {
        let _ = write!(brief, "{text}\n\n");
    }
    let _ = write!(brief, "---\nUnit {} · prun brief {BRIEF_VERSION}\n\n", facts.unit);
    for rule in rules(facts) {
        let _ = writeln!(brief, "- {rule}");
    }
    brief + &ending(facts)
}

/// What a worker is told that goes on in its own session after an attempt that was not good enough.
#[must_use]
pub fn follow_up(reason: &str, facts: &BriefFacts<'_>) -> String {
    let mut brief = format!("{}\n\n---\nUnit {} · prun brief {BRIEF_VERSION}\n\n", reason.trim_end(), facts.unit);
    brief += "Go on in the same workspace; all that was said about it holds. Your result file has a new path.\n";
    brief + &ending(facts)
}

fn rules(facts: &BriefFacts<'_>) -> Vec<String> {
    let mut rules: Vec<String> = facts.submit_as.map(|name| session(name, facts)).into_iter().collect();
    rules.push(place(facts));
    if !facts.unseen.is_empty() {
        rules.push(format!("You cannot see: {}.", facts.unseen.join("; ")));
    }
    if facts.mode == Mode::Write && !facts.owns.is_empty() {
        rules.push(format!("Change only files that match: {}. Other units work on the rest.", facts.owns.join(", ")));
    }
    rules.push(
        "Never commit, push, or rewrite anything with git (reset, checkout, clean, stash, rebase). \
         Your work is taken from the files as they stand."
            .to_owned(),
    );
    rules.push("Leave no background process behind: end whatever you start.".to_owned());
    rules
}

fn session(name: &str, facts: &BriefFacts<'_>) -> String {
    format!(
        "For the coordinator: hand all of this to a subagent of yours (model: sonnet) that works in {}. \
         When its result stands at {}, run `prun submit {name}`.",
        facts.workspace.display(),
        facts.result.display()
    )
}

fn place(facts: &BriefFacts<'_>) -> String {
    let (workspace, base) = (facts.workspace.display(), facts.base);
    match (facts.mode, facts.checkout) {
        (_, None) => format!("You work in {workspace}, an empty directory of your own. There is no repository in it."),
        (Mode::Write, Some(_)) => format!(
            "You work in {workspace}, a throwaway clone of the repository at commit {base}, without remotes. \
             Change files there and nowhere else."
        ),
        (Mode::Read, Some(checkout)) => format!(
            "You work in {workspace}, a directory of your own. The repository at commit {base} is in {}, to be read: \
             it is not your task to change it.",
            checkout.display()
        ),
    }
}

fn ending(facts: &BriefFacts<'_>) -> String {
    format!(
        "\nLast of all, write your result to the file\n\n    {}\n\nin exactly this form, each \
         field on one line:\n\n{}",
        facts.result.display(),
        RETURN_CONTRACT.replace("{unit}", facts.unit.as_str())
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn facts(unit: &UnitId) -> BriefFacts<'_> {
        BriefFacts {
            unit,
            mode: Mode::Write,
            workspace: Path::new("/r/clone"),
            checkout: Some(Path::new("/r/clone")),
            base: "4be1c02",
            owns: &[],
            unseen: &[],
            result: Path::new("/r/result.md"),
            submit_as: None,
        }
    }

    #[test]
    fn a_write_unit_is_told_its_clone_and_the_return_contract() {
        let unit = "csv".parse().unwrap();
        let owns = ["src/csv/**".to_owned(), "tests/csv/**".to_owned()];
        let unseen = ["3 uncommitted files".to_owned(), "the submodule vendor/x".to_owned()];
        let facts = BriefFacts { owns: &owns, unseen: &unseen, ..facts(&unit) };
        insta::assert_snapshot!(compose(Some("We port parsers.\n"), "Port the CSV parser.\n\n", &facts), @r#"
        We port parsers.

        Port the CSV parser.

        ---
        Unit csv · prun brief 1

        - You work in /r/clone, a throwaway clone of the repository at commit 4be1c02, without remotes. Change files there and nowhere else.
        - You cannot see: 3 uncommitted files; the submodule vendor/x.
        - Change only files that match: src/csv/**, tests/csv/**. Other units work on the rest.
        - Never commit, push, or rewrite anything with git (reset, checkout, clean, stash, rebase). Your work is taken from the files as they stand.
        - Leave no background process behind: end whatever you start.

        Last of all, write your result to the file

            /r/result.md

        in exactly this form, each field on one line:

        # csv result
        Conclusion: <one line>
        Files: <created or modified, or "none (read-only)">
        Open items: <blockers or follow-ups, or "none">
        Verification: <what was run, checked or searched, or "none">
        <blank line>
        <body>
        "#);
    }

    #[test]
    fn a_read_unit_is_told_where_the_repository_is() {
        let unit = "callers".parse().unwrap();
        let facts = BriefFacts {
            mode: Mode::Read,
            workspace: Path::new("/r/scratch"),
            checkout: Some(Path::new("/r/scratch/repo")),
            ..facts(&unit)
        };
        insta::assert_snapshot!(place(&facts), @"You work in /r/scratch, a directory of your own. The repository at commit 4be1c02 is in /r/scratch/repo, to be read: it is not your task to change it.");
        insta::assert_snapshot!(place(&BriefFacts { checkout: None, ..facts }), @"You work in /r/scratch, an empty directory of your own. There is no repository in it.");
    }

    #[test]
    fn a_session_unit_is_told_whom_to_hand_it_to() {
        let unit = "mail".parse().unwrap();
        let facts = BriefFacts { submit_as: Some("k3f9/mail"), ..facts(&unit) };
        insta::assert_snapshot!(rules(&facts)[0], @"For the coordinator: hand all of this to a subagent of yours (model: sonnet) that works in /r/clone. When its result stands at /r/result.md, run `prun submit k3f9/mail`.");
        assert!(compose(None, "Read the mail.", &facts).starts_with("Read the mail.\n\n---\nUnit mail"));
    }

    #[test]
    fn a_worker_that_goes_on_is_told_why_and_the_new_result_path() {
        let unit = "csv".parse().unwrap();
        insta::assert_snapshot!(follow_up("The check failed:\n1 test failed\n", &facts(&unit)), @r#"
        The check failed:
        1 test failed

        ---
        Unit csv · prun brief 1

        Go on in the same workspace; all that was said about it holds. Your result file has a new path.

        Last of all, write your result to the file

            /r/result.md

        in exactly this form, each field on one line:

        # csv result
        Conclusion: <one line>
        Files: <created or modified, or "none (read-only)">
        Open items: <blockers or follow-ups, or "none">
        Verification: <what was run, checked or searched, or "none">
        <blank line>
        <body>
        "#);
    }
}
