//! Registers prun's MCP server with an agent client, by the client's own command.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use prun_engine::driver::own_program;

use crate::error::{CliError, CliResult};
use crate::exit_code::ExitCode;

/// The name under which the server is registered.
const NAME: &str = "prun";

/// A client that can be told of MCP servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Client {
    /// Claude Code.
    Claude,
    /// Codex.
    Codex,
}

/// For whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Scope {
    /// Every project of the user's.
    User,
    /// The repository of the current directory.
    Project,
}

/// What a client knows of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// Nothing.
    Absent,
    /// This program.
    Same,
    /// Something else under that name.
    Other(String),
}

impl Client {
    /// Both.
    pub(crate) const ALL: [Self; 2] = [Self::Claude, Self::Codex];

    /// The name of its program.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Claude => "claude",
            Self::Codex => "codex",
        }
    }

    /// Whether its program is in PATH.
    pub(crate) fn is_installed(self) -> bool {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path).any(|dir| dir.join(self.name()).is_file())
    }

    /// The command line that registers the server.
    pub(crate) fn add(self, scope: Scope, program: &Path) -> Vec<String> {
        let mut line: Vec<&str> = vec![self.name(), "mcp", "add"];
        line.extend(self.scope(scope));
        line.extend([NAME, "--"]);
        let mut line: Vec<String> = line.into_iter().map(str::to_owned).collect();
        line.extend([program.display().to_string(), "mcp".to_owned()]);
        line
    }

    /// The command line that takes it out.
    pub(crate) fn remove(self, scope: Scope) -> Vec<String> {
        let mut line: Vec<&str> = vec![self.name(), "mcp", "remove"];
        line.extend(self.scope(scope));
        line.push(NAME);
        line.into_iter().map(str::to_owned).collect()
    }

    fn scope(self, scope: Scope) -> &'static [&'static str] {
        match (self, scope) {
            (Self::Claude, Scope::User) => &["-s", "user"],
            (Self::Claude, Scope::Project) => &["-s", "project"],
            (Self::Codex, _) => &[],
        }
    }

    /// What it knows of the server.
    ///
    /// # Errors
    /// Its program cannot be started.
    pub(crate) fn known(self, program: &Path) -> CliResult<Known> {
        let line = [self.name(), "mcp", "get", NAME].map(str::to_owned);
        let (ok, said) = run(&line)?;
        if !ok {
            return Ok(Known::Absent);
        }
        let command =
            said.lines().find_map(|line| line.trim().strip_prefix("command:").or(line.trim().strip_prefix("Command:")));
        let command = command.unwrap_or_default().trim().to_owned();
        Ok(if Path::new(&command) == program { Known::Same } else { Known::Other(command) })
    }
}

/// Runs a client's command to its end: whether it succeeded, and what it said.
///
/// # Errors
/// It cannot be started.
pub(crate) fn run(line: &[String]) -> CliResult<(bool, String)> {
    let (program, args) = line.split_first().expect("a command line has a program");
    let output = Command::new(OsStr::new(program)).args(args).stdin(Stdio::null()).output();
    let output =
        output.map_err(|error| CliError::new(ExitCode::Unexpected, format!("cannot start {program}: {error}")))?;
    let said = [output.stdout, output.stderr].concat();
    Ok((output.status.success(), String::from_utf8_lossy(&said).into_owned()))
}

/// The program that a client is to start: this one.
///
/// # Errors
/// It cannot be told.
pub(crate) fn program() -> CliResult<PathBuf> {
    own_program().map_err(|error| CliError::new(ExitCode::Unexpected, error))
}
