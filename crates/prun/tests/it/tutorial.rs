//! The tutorial, typed as it stands: each command is run, and what it prints is what the page says.

use std::path::Path;

use prun_testkit::env::TestEnv;

use crate::support::PRUN;
use crate::transcripts::Shell;

/// How the page calls the run.
const RUN: &str = "k3f9";

/// A part of the page.
enum Part {
    /// A file to write: its path and text.
    File(String, String),
    /// A command and what it prints.
    Command(String, Vec<String>),
}

/// The fenced blocks of a page: `console` has commands, a language with a second word is the file of that name.
fn parts(page: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut lines = page.lines();
    while let Some(line) = lines.next() {
        let Some(info) = line.strip_prefix("```") else { continue };
        let block: Vec<&str> = lines.by_ref().take_while(|line| *line != "```").collect();
        if let Some((_, file)) = info.split_once(' ') {
            parts.push(Part::File(file.to_owned(), block.join("\n") + "\n"));
            continue;
        }
        assert_eq!(info, "console", "every block of the page is run");
        for line in block {
            match (line.strip_prefix("$ "), parts.last_mut()) {
                (Some(command), _) => parts.push(Part::Command(command.to_owned(), Vec::new())),
                (None, Some(Part::Command(_, printed))) => printed.push(line.to_owned()),
                (None, _) => panic!("output without a command: {line}"),
            }
        }
    }
    parts
}

/// Whether lines are as expected; `…` stands for any number of them.
fn matches(expected: &[String], printed: &[String]) -> bool {
    match expected.split_first() {
        None => printed.is_empty(),
        Some((dots, rest)) if dots == "…" => (0..=printed.len()).any(|skip| matches(rest, &printed[skip..])),
        Some((line, rest)) => printed.first() == Some(line) && matches(rest, &printed[1..]),
    }
}

#[test]
fn the_tutorial_is_true_to_the_letter() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/tutorial.md");
    let parts = parts(&std::fs::read_to_string(page).unwrap());
    assert!(parts.len() > 20, "{}", parts.len());
    let shell = Shell::new(TestEnv::without_repository(PRUN));
    let env = &shell.env;
    // As in one terminal: the next command begins where the last one ended.
    let mut place = env.repo();
    for part in parts {
        match part {
            Part::File(file, text) => std::fs::write(place.join(file), text).unwrap(),
            Part::Command(command, expected) => {
                let after = env.at("place");
                let typed = format!("cd '{}'\n{{ {command}\n}} 2>&1\npwd > '{}'", place.display(), after.display());
                let printed = shell.types(&typed).stdout;
                let printed = lines(env, &command, printed.lines());
                let expected = lines(env, &command, expected.iter().map(String::as_str));
                assert!(matches(&expected, &printed), "$ {command}\nexpected {expected:#?}\nprinted {printed:#?}");
                place = std::fs::read_to_string(after).unwrap().trim_end().into();
            }
        }
        // Whoever types gives the other units the time that they need.
        env.wait_until("the run is over", || env.doing("__supervise").is_empty());
    }
    env.assert_all_gone();
}

/// Lines without what differs from one time to the next. The first event that `wait` returns at may come before or
/// after the end of the other units.
fn lines<'a>(env: &TestEnv, command: &str, lines: impl Iterator<Item = &'a str>) -> Vec<String> {
    let line = |line: &str| {
        let line = env.normal(line).replace(RUN, "[run]");
        match line.split_once(" done · ") {
            Some((head, _)) if command == "prun wait" && head.starts_with("[run] ") => "[digest]".to_owned(),
            _ => line,
        }
    };
    lines.map(line).collect()
}

/// `scripts/record-demo` makes the recording anew.
#[test]
fn the_recording_in_the_readme_is_of_the_demo_that_there_is() {
    let env = TestEnv::new(PRUN);
    let demo = env.prun("demo ../demo");
    assert_eq!(demo.code, 0, "{demo}");
    let svg = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/demo.svg");
    let svg = std::fs::read_to_string(svg).unwrap();
    let shown = env.normal(&demo.stdout);
    // What has no name, no time and no path in it is the same each time.
    let lines: Vec<&str> =
        shown.lines().map(str::trim).filter(|line| !line.is_empty() && !line.contains('[')).collect();
    assert!(lines.len() > 25, "{lines:#?}");
    for line in lines {
        let text = line.replace('&', "&amp;").replace('\'', "&#x27;");
        assert!(svg.contains(&text), "{line} is not in docs/demo.svg; run scripts/record-demo");
    }
    env.assert_all_gone();
}
