//! The fake worker: does what a few lines tell it, in place of an agent.
//!
//! In a prompt its lines stand between a line `#!fake` and a blank line, a line `#!end` or the end; all
//! else is ignored, so that a brief may surround them. Given as arguments, each argument is a line.
//! `PATH` is relative to the working directory; in `TEXT`, `\n` is a line break.
//!
//! | line | what it does |
//! |---|---|
//! | `say TEXT` | writes a line to stdout |
//! | `err TEXT` | writes a line to stderr |
//! | `write PATH TEXT` | writes a file of that text and a newline, with its directories |
//! | `append PATH TEXT` | appends that text and a newline |
//! | `remove PATH` | removes a file |
//! | `result [ok\|bad\|empty]` | writes `$PRUN_RESULT`: in contract form, without it, or with white space alone |
//! | `exit N` | ends |
//! | `sleep MS` | waits |
//! | `wait-for PATH` | waits until something is there |
//! | `hang` | waits for ever |
//! | `ignore-term` | ignores TERM from now on |
//! | `fork-setsid` | starts a child in a session of its own that hangs; says `child PID` |
//! | `double-fork` | the same, by way of a child that ends at once |
//! | `flood BYTES` | writes that much to stdout |
//! | `stop-self` | stops itself (SIGSTOP) |
//! | `kill-self SIG` | sends itself a signal: a number, or a name such as `TERM` |
//! | `env NAME` | says `NAME=value`, or `NAME is not set` |
//! | `git-commit` | commits all changes in the working directory |
//! | `fail-first-attempt` | ends with 1 if `$PRUN_ATTEMPT` is 1 |

use std::fs::OpenOptions;
use std::io::{self, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use rustix::event::poll;
use rustix::process::{Signal, getpid, kill_process, setsid};
use rustix::time::Timespec;

/// The first argument of a child that `fork-setsid` and `double-fork` start.
pub const FORKED: &str = "--forked";

/// Begins a script in a prompt.
const BEGIN: &str = "#!fake";

/// Ends it.
const END: &str = "#!end";

/// Between two looks of `wait-for`.
const LOOK_MILLIS: u64 = 10;

/// What a worker does, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Script {
    acts: Vec<Act>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Act {
    Say(String),
    Err(String),
    Write { path: String, text: String },
    Append { path: String, text: String },
    Remove(String),
    Result(ResultKind),
    Exit(u8),
    Sleep(u64),
    WaitFor(String),
    Hang,
    IgnoreTerm,
    ForkSetsid,
    DoubleFork,
    Flood(u64),
    StopSelf,
    KillSelf(Signal),
    Env(String),
    GitCommit,
    FailFirstAttempt,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ResultKind {
    Ok,
    Bad,
    Empty,
}

impl Script {
    /// The script in a prompt.
    ///
    /// # Errors
    /// There is none, or a line is not understood.
    pub fn in_prompt(prompt: &str) -> Result<Self, String> {
        let mut lines = prompt.lines().map(str::trim).skip_while(|line| *line != BEGIN);
        lines.next().ok_or_else(|| format!("the prompt has no line {BEGIN}"))?;
        Self::of_lines(lines.take_while(|line| !line.is_empty() && *line != END))
    }

    /// The script of these lines.
    ///
    /// # Errors
    /// A line is not understood.
    pub fn of_lines<'a>(lines: impl Iterator<Item = &'a str>) -> Result<Self, String> {
        let acts = lines.map(|line| parse_act(line).ok_or_else(|| format!("cannot understand {line:?}")));
        Ok(Self { acts: acts.collect::<Result<_, _>>()? })
    }
}

/// Does what the script says; the exit code.
///
/// # Errors
/// An act failed: its name, and what the system said.
pub fn run_script(script: &Script) -> Result<u8, String> {
    for act in &script.acts {
        match act {
            Act::Exit(code) => return Ok(*code),
            Act::FailFirstAttempt if variable("PRUN_ATTEMPT").is_some_and(|attempt| attempt == "1") => return Ok(1),
            act => perform(act).map_err(|error| format!("{act:?}: {error}"))?,
        }
    }
    Ok(0)
}

/// Is a child that `fork-setsid` (`how` = `hang`) or `double-fork` (`how` = `again`) started. It comes back
/// only from the latter, to end.
pub fn run_forked(how: &str) {
    // A child that leads a group already stays where it is.
    let _ = setsid();
    if how == "again" {
        // Whether the grandchild lives is what the test looks at.
        let _ = fork();
    } else {
        hang();
    }
}

fn perform(act: &Act) -> io::Result<()> {
    match act {
        Act::Say(text) => writeln!(io::stdout(), "{text}").and_then(|()| io::stdout().flush()),
        Act::Err(text) => writeln!(io::stderr(), "{text}"),
        Act::Write { path, text } => make_parent(path).and_then(|()| std::fs::write(path, format!("{text}\n"))),
        Act::Append { path, text } => {
            make_parent(path)?;
            OpenOptions::new().append(true).create(true).open(path)?.write_all(format!("{text}\n").as_bytes())
        }
        Act::Remove(path) => std::fs::remove_file(path),
        Act::Result(kind) => write_result(*kind),
        Act::Sleep(millis) => {
            sleep(*millis);
            Ok(())
        }
        Act::WaitFor(path) => {
            while !Path::new(path).exists() {
                sleep(LOOK_MILLIS);
            }
            Ok(())
        }
        Act::Hang => hang(),
        Act::IgnoreTerm => {
            // A handler that only sets a flag that nobody reads.
            signal_hook::flag::register(signal_hook::consts::SIGTERM, Arc::new(AtomicBool::new(false))).map(drop)
        }
        Act::ForkSetsid => fork(),
        Act::DoubleFork => forked("again")?.status().map(drop),
        Act::Flood(bytes) => flood(*bytes),
        Act::StopSelf => Ok(kill_process(getpid(), Signal::STOP)?),
        Act::KillSelf(signal) => Ok(kill_process(getpid(), *signal)?),
        Act::Env(name) => {
            let said = variable(name).map_or_else(|| format!("{name} is not set"), |value| format!("{name}={value}"));
            writeln!(io::stdout(), "{said}")
        }
        Act::GitCommit => commit(),
        // Handled by the caller, or a later attempt.
        Act::Exit(_) | Act::FailFirstAttempt => Ok(()),
    }
}

fn parse_act(line: &str) -> Option<Act> {
    let (verb, rest) = line.trim().split_once(' ').unwrap_or((line.trim(), ""));
    let text = || rest.replace("\\n", "\n");
    let path_and_text = || {
        let (path, text) = rest.split_once(' ').unwrap_or((rest, ""));
        (!path.is_empty()).then(|| (path.to_owned(), text.replace("\\n", "\n")))
    };
    Some(match verb {
        "say" => Act::Say(text()),
        "err" => Act::Err(text()),
        "write" => path_and_text().map(|(path, text)| Act::Write { path, text })?,
        "append" => path_and_text().map(|(path, text)| Act::Append { path, text })?,
        "remove" => Act::Remove(rest.to_owned()),
        "result" => Act::Result(match rest {
            "" | "ok" => ResultKind::Ok,
            "bad" => ResultKind::Bad,
            "empty" => ResultKind::Empty,
            _ => return None,
        }),
        "exit" => Act::Exit(rest.parse().ok()?),
        "sleep" => Act::Sleep(rest.parse().ok()?),
        "wait-for" => Act::WaitFor(rest.to_owned()),
        "hang" => Act::Hang,
        "ignore-term" => Act::IgnoreTerm,
        "fork-setsid" => Act::ForkSetsid,
        "double-fork" => Act::DoubleFork,
        "flood" => Act::Flood(rest.parse().ok()?),
        "stop-self" => Act::StopSelf,
        "kill-self" => Act::KillSelf(parse_signal(rest)?),
        "env" => Act::Env(rest.to_owned()),
        "git-commit" => Act::GitCommit,
        "fail-first-attempt" => Act::FailFirstAttempt,
        _ => return None,
    })
}

fn parse_signal(text: &str) -> Option<Signal> {
    Some(match text.strip_prefix("SIG").unwrap_or(text) {
        "TERM" => Signal::TERM,
        "KILL" => Signal::KILL,
        "INT" => Signal::INT,
        "HUP" => Signal::HUP,
        "ABRT" => Signal::ABORT,
        "SEGV" => Signal::SEGV,
        number => Signal::from_named_raw(number.parse().ok()?)?,
    })
}

fn write_result(kind: ResultKind) -> io::Result<()> {
    let path = variable("PRUN_RESULT").ok_or_else(|| io::Error::other("PRUN_RESULT is not set"))?;
    let unit = variable("PRUN_UNIT").unwrap_or_default();
    let text = match kind {
        ResultKind::Ok => format!(
            "# {unit} result\nConclusion: the script was followed\nFiles: see the diff\nOpen items: none\n\
             Verification: none\n\nWritten by the fake worker.\n"
        ),
        ResultKind::Bad => "All done, trust me.\n".to_owned(),
        ResultKind::Empty => " \n".to_owned(),
    };
    std::fs::write(path, text)
}

fn commit() -> io::Result<()> {
    let identity = ["-c", "user.name=worker", "-c", "user.email=worker@localhost", "-c", "commit.gpgSign=false"];
    for args in [&["add", "-A"][..], &["commit", "-q", "--no-verify", "-m", "work"]] {
        let status = Command::new("git").args(identity).args(args).stdin(Stdio::null()).status()?;
        if !status.success() {
            return Err(io::Error::other(format!("git {} failed: {status}", args[0])));
        }
    }
    Ok(())
}

fn fork() -> io::Result<()> {
    let child = forked("hang")?.spawn()?;
    writeln!(io::stdout(), "child {}", child.id())
}

fn forked(how: &str) -> io::Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args([FORKED, how]).stdin(Stdio::null());
    Ok(command)
}

fn flood(bytes: u64) -> io::Result<()> {
    let line = [b"0123456789abcde".repeat(4).as_slice(), b"\n"].concat();
    let mut stdout = io::stdout().lock();
    let mut left = bytes;
    while left > 0 {
        let count = usize::try_from(left).map_or(line.len(), |left| left.min(line.len()));
        stdout.write_all(&line[..count])?;
        left -= count as u64;
    }
    stdout.flush()
}

fn make_parent(path: &str) -> io::Result<()> {
    Path::new(path).parent().map_or(Ok(()), std::fs::create_dir_all)
}

fn sleep(millis: u64) {
    let time = Timespec { tv_sec: (millis / 1000).cast_signed(), tv_nsec: (millis % 1000 * 1_000_000).cast_signed() };
    // A signal that is handled ends the wait early; no script depends on it.
    let _ = poll(&mut [], Some(&time));
}

fn hang() -> ! {
    loop {
        let _ = poll(&mut [], None);
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_script_is_found_in_the_brief_around_it() {
        let prompt = "You are u1.\n#!fake\nsay hi\nwrite a/b one\\ntwo\nexit 3\n\nWrite your result.\nsay no\n";
        let acts = vec![
            Act::Say("hi".to_owned()),
            Act::Write { path: "a/b".to_owned(), text: "one\ntwo".to_owned() },
            Act::Exit(3),
        ];
        assert_eq!(Script::in_prompt(prompt), Ok(Script { acts }));
        assert!(Script::in_prompt("say hi\n").is_err());
    }

    #[test]
    fn a_line_that_is_not_understood_is_an_error() {
        for line in ["dance", "exit", "exit x", "result maybe", "write", "kill-self NOPE"] {
            assert!(Script::of_lines([line].into_iter()).is_err(), "{line}");
        }
        assert_eq!(parse_act("kill-self 9"), Some(Act::KillSelf(Signal::KILL)));
        assert_eq!(parse_act("result"), Some(Act::Result(ResultKind::Ok)));
    }

    #[test]
    fn a_script_is_followed_to_its_exit() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("deep/file");
        let lines =
            [format!("write {} one", path.display()), format!("append {} two", path.display()), "exit 7".into()];
        let script = Script::of_lines(lines.iter().map(String::as_str)).unwrap();
        assert_eq!(run_script(&script), Ok(7));
        assert_eq!(std::fs::read_to_string(path).unwrap(), "one\ntwo\n");
    }
}
