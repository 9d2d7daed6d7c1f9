//! Registers prun's MCP server with an agent client, by the client's own command.
//!
//! What a client knows already is read from where it keeps that: Codex prints its entry as JSON; Claude Code's
//! `mcp get` shows one scope of several and starts the server for it, so its files are read, which its
//! documentation names.

use std::ffi::OsStr;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use prun_engine::driver::own_program;
use serde_json::Value;

use crate::clients::{Client, Scope, claude_config_dir, in_path};
use crate::error::{CliError, CliResult};
use crate::exit_code::ExitCode;

/// The name under which the server is registered.
const NAME: &str = "prun";

/// A client and for whom it is to know the server.
#[derive(Clone, Debug)]
pub(crate) struct Registration {
    client: Client,
    scope: Scope,
    /// What the client is to start.
    program: PathBuf,
}

/// What a client knows of the server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// Nothing.
    Absent,
    /// This program.
    Same,
}

impl Registration {
    /// Before anything is done.
    ///
    /// # Errors
    /// The client cannot do that, or this program's own file is gone.
    pub(crate) fn new(client: Client, scope: Scope) -> CliResult<Self> {
        let program = match (client, &scope) {
            (_, Scope::Project(_)) if !client.has_projects() => {
                let error = CliError::usage("Codex knows servers for all projects only");
                return Err(error.hint("leave --project out, or take --claude"));
            }
            // The file is for everybody who works in the repository, on other machines as well.
            (_, Scope::Project(_)) => PathBuf::from(NAME),
            (_, Scope::User(_)) => own_file()?,
        };
        Ok(Self { client, scope, program })
    }

    /// The client.
    pub(crate) fn client(&self) -> Client {
        self.client
    }

    /// The command line that registers the server.
    pub(crate) fn add(&self) -> Vec<String> {
        let program = self.program.display().to_string();
        self.line("add", &[NAME, "--", &program, "mcp"])
    }

    /// The command line that takes it out.
    pub(crate) fn remove(&self) -> Vec<String> {
        self.line("remove", &[NAME])
    }

    fn line(&self, act: &str, rest: &[&str]) -> Vec<String> {
        let scope: &[&str] = match (self.client, &self.scope) {
            (Client::Claude, Scope::User(_)) => &["-s", "user"],
            (Client::Claude, Scope::Project(_)) => &["-s", "project"],
            (Client::Codex, _) => &[],
        };
        let parts = [&[self.client.name(), "mcp", act][..], scope, rest].concat();
        parts.into_iter().map(str::to_owned).collect()
    }

    /// What the client knows of the server.
    ///
    /// # Errors
    /// It cannot be told, or the client has something else under that name, which is somebody's own.
    pub(crate) fn known(&self) -> CliResult<Known> {
        let entry = match (self.client, &self.scope) {
            (Client::Codex, _) => self.codex_entry()?,
            (Client::Claude, Scope::User(home)) => {
                claude_entry(&claude_config_dir().unwrap_or_else(|| home.clone()).join(".claude.json"))?
            }
            (Client::Claude, Scope::Project(root)) => claude_entry(&root.join(".mcp.json"))?,
        };
        let Some(entry) = entry else { return Ok(Known::Absent) };
        judge(&entry, |command| self.is_us(command)).map_err(|other| {
            let message = format!("{} has another server of the name prun: {other}", self.client.name());
            CliError::usage(message).hint(format!("`{}` takes it out", self.remove().join(" ")))
        })
    }

    fn codex_entry(&self) -> CliResult<Option<Value>> {
        let line = [self.client.name(), "mcp", "get", NAME, "--json"].map(str::to_owned);
        let ended = self.run(&line)?;
        if !ended.ok {
            return Ok(None);
        }
        let entry: Value = serde_json::from_str(&ended.stdout).map_err(|error| {
            CliError::new(ExitCode::Unexpected, format!("{} printed no JSON: {error}", line.join(" ")))
        })?;
        Ok(Some(entry["transport"].clone()))
    }

    /// Whether a command starts this program: by its path, or by a name that leads there.
    fn is_us(&self, command: &str) -> bool {
        if Path::new(command) == self.program {
            return true;
        }
        let found = if command.contains('/') { Some(PathBuf::from(command)) } else { in_path(command) };
        let ours = std::env::current_exe().and_then(|file| file.canonicalize());
        found.and_then(|file| file.canonicalize().ok()).is_some_and(|file| ours.is_ok_and(|ours| ours == file))
    }

    /// Runs a command of the client's to its end, where its project's files are.
    ///
    /// # Errors
    /// It cannot be started.
    pub(crate) fn run(&self, line: &[String]) -> CliResult<Ended> {
        let (program, args) = line.split_first().expect("a command line has a program");
        let mut command = Command::new(OsStr::new(program));
        command.args(args).stdin(Stdio::null());
        if let Scope::Project(root) = &self.scope {
            command.current_dir(root);
        }
        let output = command
            .output()
            .map_err(|error| CliError::new(ExitCode::Unexpected, format!("cannot start {program}: {error}")))?;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        Ok(Ended { ok: output.status.success(), stdout: text(&output.stdout), stderr: text(&output.stderr) })
    }
}

/// How a client's command ended.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    ok: bool,
    stdout: String,
    stderr: String,
}

impl Ended {
    /// # Errors
    /// It ended with another code than 0.
    pub(crate) fn success(self, line: &[String]) -> CliResult<()> {
        if self.ok {
            return Ok(());
        }
        let said = format!("{}{}", self.stdout, self.stderr);
        Err(CliError::new(ExitCode::Unexpected, format!("{} failed: {}", line.join(" "), said.trim())))
    }
}

/// The file of this program, which a client can start at any time.
fn own_file() -> CliResult<PathBuf> {
    let gone = || {
        let error = CliError::new(ExitCode::Unexpected, "the file of this prun has been removed or replaced");
        error.hint("call the new one by its path")
    };
    let program = own_program().map_err(|error| CliError::new(ExitCode::Unexpected, error))?;
    if program.starts_with("/proc") { Err(gone()) } else { Ok(program) }
}

/// The server's entry in a file of Claude Code's.
fn claude_entry(file: &Path) -> CliResult<Option<Value>> {
    let fail = |error: &dyn std::fmt::Display| {
        CliError::new(ExitCode::Unexpected, format!("cannot read {}: {error}", file.display()))
    };
    let text = match std::fs::read_to_string(file) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        read => read.map_err(|error| fail(&error))?,
    };
    let config: Value = serde_json::from_str(&text).map_err(|error| fail(&error))?;
    Ok(config["mcpServers"].get(NAME).cloned())
}

/// Whether an entry is as `prun mcp install` makes it; else what it is. Anything more in it is somebody's own.
fn judge(entry: &Value, is_us: impl Fn(&str) -> bool) -> Result<Known, String> {
    let command = entry["command"].as_str().unwrap_or_default();
    let args: Vec<&str> = entry["args"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
    let is_empty = |value: &Value| value.as_object().is_none_or(serde_json::Map::is_empty);
    if is_us(command) && args == ["mcp"] && is_empty(&entry["env"]) {
        return Ok(Known::Same);
    }
    if command.is_empty() {
        return Err(entry["url"].as_str().unwrap_or("something else").to_owned());
    }
    let mut line = [&[command][..], &args].concat().join(" ");
    if !is_empty(&entry["env"]) {
        line.push_str(", with an environment of its own");
    }
    Err(line)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn an_entry_that_somebody_edited_is_not_ours() {
        let of = |entry: Value| judge(&entry, |command| command == "/bin/prun");
        let other = |text: &str| Err(text.to_owned());
        assert_eq!(of(json!({"command": "/bin/prun", "args": ["mcp"], "env": {}})), Ok(Known::Same));
        assert_eq!(of(json!({"command": "/bin/prun", "args": ["mcp"], "env": null})), Ok(Known::Same));
        assert_eq!(of(json!({"command": "/bin/prun", "args": ["mcp", "-v"]})), other("/bin/prun mcp -v"));
        assert_eq!(of(json!({"command": "prunella", "args": []})), other("prunella"));
        assert_eq!(of(json!({"url": "http://localhost:1"})), other("http://localhost:1"));
        let env = json!({"command": "/bin/prun", "args": ["mcp"], "env": {"PRUN_HOME": "/x"}});
        assert_eq!(of(env), other("/bin/prun mcp, with an environment of its own"));
    }
}
