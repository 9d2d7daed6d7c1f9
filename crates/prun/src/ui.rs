//! The only printer: data to stdout, everything else to stderr, colour on terminals alone.

use std::io::{self, IsTerminal, Write};

use anstyle::{AnsiColor, Style};
use prun_engine::executor::escape_text;
use serde::Serialize;

use crate::error::{CliError, CliResult};
use crate::exit_code::ExitCode;

/// Where a command prints.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Ui {
    colour_out: bool,
    colour_err: bool,
    stdout_is_terminal: bool,
    stdin_is_terminal: bool,
    errors_as_json: bool,
}

/// What a word means, for its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tone {
    /// As it should be.
    Good,
    /// Needs a look.
    Bad,
    /// Needs attention, soon.
    Warn,
    /// Beside the point.
    Dim,
    /// The point.
    Strong,
}

impl Ui {
    /// The streams of this process.
    pub(crate) fn from_env() -> Self {
        let wanted = std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
            && std::env::var_os("TERM").is_none_or(|term| term != "dumb");
        let stdout_is_terminal = io::stdout().is_terminal();
        Self {
            colour_out: wanted && stdout_is_terminal,
            colour_err: wanted && io::stderr().is_terminal(),
            stdout_is_terminal,
            stdin_is_terminal: io::stdin().is_terminal(),
            errors_as_json: std::env::args_os().skip(1).take_while(|arg| arg != "--").any(|arg| arg == "--json"),
        }
    }

    /// Whether the command line asks for JSON.
    pub(crate) fn wants_json(self) -> bool {
        self.errors_as_json
    }

    /// Whether somebody can be asked.
    pub(crate) fn can_ask(self) -> bool {
        self.stdin_is_terminal && io::stderr().is_terminal()
    }

    /// Prints a line of data.
    ///
    /// # Errors
    /// Stdout is gone.
    pub(crate) fn line(self, text: impl AsRef<str>) -> CliResult<()> {
        self.bytes(&[text.as_ref().as_bytes(), b"\n"].concat())
    }

    /// Prints data as it is.
    ///
    /// # Errors
    /// Stdout is gone.
    pub(crate) fn bytes(self, bytes: &[u8]) -> CliResult<()> {
        let mut stdout = io::stdout().lock();
        stdout.write_all(bytes).and_then(|()| stdout.flush()).map_err(|error| closed(&error))
    }

    /// Prints bytes that a worker wrote: raw into a file or pipe, escaped on a terminal.
    ///
    /// # Errors
    /// Stdout is gone.
    pub(crate) fn foreign(self, bytes: &[u8]) -> CliResult<()> {
        if !self.stdout_is_terminal {
            return self.bytes(bytes);
        }
        self.bytes(escape_text(bytes).as_bytes())
    }

    /// Prints a value as JSON.
    ///
    /// # Errors
    /// Stdout is gone.
    pub(crate) fn json(self, value: &impl Serialize) -> CliResult<()> {
        let text = serde_json::to_string_pretty(value).map_err(|error| CliError::new(ExitCode::Unexpected, error))?;
        self.line(text)
    }

    /// Says something on stderr.
    pub(crate) fn say(self, text: impl AsRef<str>) {
        // Whoever closed stderr does not want to know.
        let _ = writeln!(io::stderr().lock(), "{}", text.as_ref());
    }

    /// Warns on stderr.
    pub(crate) fn warn(self, text: impl AsRef<str>) {
        self.say(format!("{} {}", self.paint_err("warning:", Tone::Warn), text.as_ref()));
    }

    /// Reports a failure on stderr: in words, or as one line of JSON for whoever asked for JSON.
    pub(crate) fn error(self, error: &CliError) {
        if self.errors_as_json {
            self.say(serde_json::to_string(&error.view()).unwrap_or_default());
            return;
        }
        self.say(format!("{} {}", self.paint_err("error:", Tone::Bad), error.message));
        for hint in &error.hints {
            self.say(format!("{} {hint}", self.paint_err("hint:", Tone::Dim)));
        }
    }

    /// Rewrites the block of lines that was drawn last on stderr.
    pub(crate) fn redraw(self, previous: usize, lines: &[String]) {
        let mut text = String::new();
        if previous > 0 {
            text.push_str(&format!("\x1b[{previous}A"));
        }
        for line in lines {
            text.push_str("\x1b[2K");
            text.push_str(line);
            text.push('\n');
        }
        text.push_str("\x1b[0J");
        let mut stderr = io::stderr().lock();
        let _ = stderr.write_all(text.as_bytes()).and_then(|()| stderr.flush());
    }

    /// Whether stderr can be drawn on.
    pub(crate) fn has_screen() -> bool {
        io::stderr().is_terminal() && std::env::var_os("TERM").is_some_and(|term| term != "dumb")
    }

    /// Columns and rows of the terminal at stderr.
    pub(crate) fn screen() -> (usize, usize) {
        let size = rustix::termios::tcgetwinsize(io::stderr()).ok().filter(|size| size.ws_col > 0 && size.ws_row > 0);
        size.map_or((100, 24), |size| (usize::from(size.ws_col), usize::from(size.ws_row)))
    }

    /// Asks for a line on stderr; `None` at the end of the input.
    pub(crate) fn ask(self, question: &str) -> Option<String> {
        let mut stderr = io::stderr().lock();
        let _ = write!(stderr, "{question} ").and_then(|()| stderr.flush());
        let mut answer = String::new();
        match io::stdin().read_line(&mut answer) {
            Ok(0) | Err(_) => None,
            Ok(_) => Some(answer.trim().to_owned()),
        }
    }

    /// Colours a word for stdout.
    pub(crate) fn paint(self, text: &str, tone: Tone) -> String {
        painted(text, tone, self.colour_out)
    }

    /// Colours a word for stderr.
    pub(crate) fn paint_err(self, text: &str, tone: Tone) -> String {
        painted(text, tone, self.colour_err)
    }
}

fn painted(text: &str, tone: Tone, colour: bool) -> String {
    if !colour {
        return text.to_owned();
    }
    let style = match tone {
        Tone::Good => Style::new().fg_color(Some(AnsiColor::Green.into())),
        Tone::Bad => Style::new().fg_color(Some(AnsiColor::Red.into())).bold(),
        Tone::Warn => Style::new().fg_color(Some(AnsiColor::Yellow.into())),
        Tone::Dim => Style::new().dimmed(),
        Tone::Strong => Style::new().bold(),
    };
    format!("{style}{text}{style:#}")
}

/// A reader that goes away (`| head`) ends the command quietly.
fn closed(error: &io::Error) -> CliError {
    let code = if error.kind() == io::ErrorKind::BrokenPipe { ExitCode::Ok } else { ExitCode::Unexpected };
    CliError::new(code, format!("cannot write to stdout: {error}"))
}
