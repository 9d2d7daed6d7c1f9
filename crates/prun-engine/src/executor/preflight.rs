//! Before a run: is an executor's program there, which version is it, is somebody logged in? Nothing
//! here asks the network, and no secret is read.

use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};

use super::program::{self, ProgramProblem};
use super::registry::{Executor, Kind};
use super::version::{self, Version};
use super::{claude, codex};

/// How long an answer may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// What is known of an executor before anything of a unit is started.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Preflight {
    /// The program that will be run; `None` where each unit names its own, or nothing is run.
    pub program: Result<Option<PathBuf>, ProgramProblem>,
    /// Its version, where it tells one.
    pub version: Option<String>,
    /// Whether its account can be used.
    pub login: Login,
    /// Remarks for people, one sentence each.
    pub notes: Vec<String>,
}

/// Whether an executor's account can be used, as far as that shows from outside.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Login {
    /// Credentials are there. Whether they are good, only a run shows.
    LoggedIn,
    /// None are there.
    NotLoggedIn {
        /// What to do about it.
        hint: String,
    },
    /// There is no account, or it cannot be told.
    Unknown,
}

/// Looks at an executor in this process's environment. Starts nothing but clients that are asked for their version
/// and login.
#[must_use]
pub fn check(executor: &Executor) -> Preflight {
    check_with(executor, |name| std::env::var_os(name))
}

/// [`check`] in an environment given by `var`.
#[must_use]
pub fn check_with(executor: &Executor, var: impl Fn(&str) -> Option<OsString>) -> Preflight {
    let program = program_of(executor, &var);
    // Only a client that prun knows is asked: nobody can tell what another program does for `--version`.
    let tried = tried(executor);
    let asked = program.as_ref().ok().and_then(Option::as_ref).filter(|_| tried.is_some());
    let version = asked.and_then(|program| version::in_output(&ask(program, &["--version"])?));
    let mut notes = match (&asked, &version, tried) {
        (Some(_), Some(version), Some(tried)) => {
            version::note(executor.name.as_str(), version, tried).into_iter().collect()
        }
        (Some(program), None, _) => vec![format!("{} does not tell its version", program.display())],
        _ => Vec::new(),
    };
    let set = Set { executor, var: &var };
    let login = match executor.kind {
        Kind::Codex => codex_login(&set),
        Kind::Claude => {
            notes.extend(version.as_deref().and_then(Version::parse).and_then(claude::isolation_note));
            claude_login(&set, asked)
        }
        Kind::Command | Kind::Session => Login::Unknown,
    };
    Preflight { program, version, login, notes }
}

/// The version of an executor's client, in this process's environment.
#[must_use]
pub fn version(executor: &Executor) -> Option<Version> {
    let program = program_of(executor, &|name: &str| std::env::var_os(name)).ok().flatten()?;
    Version::parse(&version::in_output(&ask(&program, &["--version"])?)?)
}

fn tried(executor: &Executor) -> Option<Version> {
    match executor.kind {
        Kind::Codex => Some(codex::TRIED),
        Kind::Claude => Some(claude::TRIED),
        Kind::Command | Kind::Session => executor.tried,
    }
}

fn program_of(executor: &Executor, var: &impl Fn(&str) -> Option<OsString>) -> Result<Option<PathBuf>, ProgramProblem> {
    let path = var("PATH").unwrap_or_default();
    match executor.kind {
        Kind::Session => Ok(None),
        Kind::Command => executor.program.as_deref().map(|name| program::find(name, &path)).transpose(),
        Kind::Codex => program::find(&codex::program(executor, var), &path).map(|it| Some(codex::native_binary(&it))),
        Kind::Claude => program::find(&claude::program(executor, var), &path).map(Some),
    }
}

/// What is wrong with a unit's own command, as far as that can be told before its workspace is there:
/// a name without a slash must be in `PATH`, an absolute one must be a program.
#[must_use]
pub fn check_command(argv: &[String], path: &std::ffi::OsStr) -> Option<ProgramProblem> {
    let name = argv.first()?;
    let depends_on_workspace = name.contains('/') && !Path::new(name).is_absolute();
    if depends_on_workspace { None } else { program::find(name, path).err() }
}

/// Variables as the executor's workers get them.
struct Set<'a, F> {
    executor: &'a Executor,
    var: &'a F,
}

impl<F: Fn(&str) -> Option<OsString>> Set<'_, F> {
    fn value(&self, name: &str) -> Option<OsString> {
        let own = self.executor.env.iter().find(|(key, _)| key == name).map(|(_, value)| OsString::from(value));
        own.or_else(|| (self.var)(name)).filter(|value| !value.is_empty())
    }

    fn has_any(&self, names: &[&str]) -> bool {
        names.iter().any(|name| self.value(name).is_some())
    }

    /// A file with something in it, in the directory that `variable` names, else in one of the home's.
    fn has_file(&self, variable: &str, of_home: &str, file: &str) -> bool {
        let dir = self.value(variable).map(PathBuf::from);
        let dir = dir.or_else(|| self.value("HOME").map(|home| Path::new(&home).join(of_home)));
        dir.is_some_and(|dir| dir.join(file).metadata().is_ok_and(|meta| meta.len() > 0))
    }
}

fn codex_login(set: &Set<'_, impl Fn(&str) -> Option<OsString>>) -> Login {
    if set.has_file("CODEX_HOME", ".codex", "auth.json") || set.has_any(&["CODEX_API_KEY"]) {
        return Login::LoggedIn;
    }
    // Another provider or another store of credentials: not to be told from here.
    let elsewhere = |arg: &String| arg.contains("model_provider") || arg.contains("cli_auth_credentials_store");
    if set.executor.args.iter().any(elsewhere) {
        return Login::Unknown;
    }
    Login::NotLoggedIn { hint: "run `codex login`, or set CODEX_API_KEY".to_owned() }
}

/// Claude keeps its login in a file, in the system's key store, or with another provider; what is not seen is
/// asked of Claude itself, which answers without the network.
fn claude_login(set: &Set<'_, impl Fn(&str) -> Option<OsString>>, program: Option<&PathBuf>) -> Login {
    let keys = ["ANTHROPIC_API_KEY", "ANTHROPIC_AUTH_TOKEN", "CLAUDE_CODE_OAUTH_TOKEN"];
    if set.has_any(&keys) || set.has_file("CLAUDE_CONFIG_DIR", ".claude", ".credentials.json") {
        return Login::LoggedIn;
    }
    if set.has_any(&["CLAUDE_CODE_USE_BEDROCK", "CLAUDE_CODE_USE_VERTEX", "CLAUDE_CODE_USE_FOUNDRY"]) {
        return Login::Unknown;
    }
    let hint = || "run `claude auth login`, or set ANTHROPIC_API_KEY".to_owned();
    match program.and_then(|program| ask(program, &["auth", "status"])) {
        Some(said) if said.contains("\"loggedIn\": true") || said.contains("\"loggedIn\":true") => Login::LoggedIn,
        Some(said) if said.contains("\"loggedIn\"") => Login::NotLoggedIn { hint: hint() },
        _ => Login::Unknown,
    }
}

/// What a client prints when it is asked something about itself.
fn ask(program: &Path, args: &[&str]) -> Option<String> {
    let mut child = Command::new(program)
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let said = read_until(&mut child, Instant::now() + ANSWER_LIMIT);
    // It has closed its output, or has had its time: there is nothing left to wait for.
    child.kill().ok();
    child.wait().ok()?;
    String::from_utf8(said?).ok()
}

fn read_until(child: &mut Child, deadline: Instant) -> Option<Vec<u8>> {
    let mut pipe = child.stdout.take()?;
    let mut said = Vec::new();
    let mut piece = [0; 512];
    while said.len() < 4096 {
        let left = deadline.checked_duration_since(Instant::now())?;
        let timeout = left.try_into().ok()?;
        if poll(&mut [PollFd::new(&pipe, PollFlags::IN)], Some(&timeout)).ok()? == 0 {
            return None;
        }
        match pipe.read(&mut piece).ok()? {
            0 => return Some(said),
            count => said.extend_from_slice(&piece[..count]),
        }
    }
    Some(said)
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::super::registry::Registry;
    use super::*;

    fn program(dir: &Path, text: &str) -> String {
        let file = dir.join("codex");
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o755)).unwrap();
        file.to_str().unwrap().to_owned()
    }

    fn check(name: &str, vars: &[(&str, &str)]) -> Preflight {
        let registry = Registry::built_in(2);
        let executor = registry.get(&name.parse().unwrap()).unwrap();
        check_with(executor, |name| vars.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into()))
    }

    fn check_codex(vars: &[(&str, &str)]) -> Preflight {
        check("codex", vars)
    }

    #[test]
    fn the_version_is_told_and_an_unknown_one_remarked() {
        let dir = tempfile::tempdir().unwrap();
        let seen = check_codex(&[("CODEX_BIN", &program(dir.path(), "#!/bin/sh\necho codex-cli 0.171.0\n"))]);
        assert_eq!((seen.version.as_deref(), seen.notes.len()), (Some("0.171.0"), 0));
        let seen = check_codex(&[("CODEX_BIN", &program(dir.path(), "#!/bin/sh\necho codex-cli 9.0.0\n"))]);
        assert!(seen.notes[0].contains("newer"), "{seen:?}");
        let seen = check_codex(&[("CODEX_BIN", &program(dir.path(), "#!/bin/sh\nexit 1\n"))]);
        assert!(seen.notes[0].ends_with("does not tell its version"), "{seen:?}");
    }

    #[test]
    fn a_missing_program_is_named_with_the_path() {
        let seen = check_codex(&[("PATH", "/no/bin:/none")]);
        let said = seen.program.unwrap_err().to_string();
        assert_eq!(said, "cannot find codex: it is in no directory of PATH (/no/bin:/none)");
        assert_eq!(seen.version, None);
    }

    #[test]
    fn a_login_shows_by_its_file_or_key() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().to_str().unwrap();
        let login = |vars: &[(&str, &str)]| check_codex(vars).login;
        assert!(matches!(login(&[("HOME", home)]), Login::NotLoggedIn { hint } if hint.contains("codex login")));
        assert_eq!(login(&[("HOME", home), ("CODEX_API_KEY", "test-key")]), Login::LoggedIn);
        assert!(matches!(login(&[("CODEX_API_KEY", "")]), Login::NotLoggedIn { .. }));
        std::fs::create_dir(dir.path().join(".codex")).unwrap();
        std::fs::write(dir.path().join(".codex/auth.json"), "{}").unwrap();
        assert_eq!(login(&[("HOME", home)]), Login::LoggedIn);
    }

    #[test]
    fn claude_is_asked_where_its_login_does_not_show() {
        let dir = tempfile::tempdir().unwrap();
        let home = dir.path().to_str().unwrap();
        let client = |answer: &str| {
            let text = "#!/bin/sh\n[ \"$1\" = auth ] && echo 'ANSWER' || echo '2.1.332 (Claude Code)'\n";
            program(dir.path(), &text.replace("ANSWER", answer))
        };
        let seen = |answer: &str, more: &[(&str, &str)]| {
            let client = client(answer);
            check("claude", &[&[("CLAUDE_BIN", client.as_str()), ("HOME", home)], more].concat())
        };
        let out = seen("{\"loggedIn\": false}", &[]);
        assert_eq!((out.version.as_deref(), out.notes.len()), (Some("2.1.332"), 0));
        assert!(matches!(out.login, Login::NotLoggedIn { hint } if hint.contains("claude auth login")));
        assert_eq!(seen("{\"loggedIn\": true}", &[]).login, Login::LoggedIn);
        assert_eq!(seen("what?", &[]).login, Login::Unknown);
        assert_eq!(seen("{\"loggedIn\": false}", &[("ANTHROPIC_API_KEY", "k")]).login, Login::LoggedIn);
        assert_eq!(seen("{\"loggedIn\": false}", &[("CLAUDE_CODE_USE_VERTEX", "1")]).login, Login::Unknown);
        std::fs::create_dir(dir.path().join(".claude")).unwrap();
        std::fs::write(dir.path().join(".claude/.credentials.json"), "{}").unwrap();
        assert_eq!(seen("{\"loggedIn\": false}", &[]).login, Login::LoggedIn);
    }

    #[test]
    fn a_units_own_command_is_looked_for_where_that_is_possible() {
        let check = |name: &str| check_command(&[name.to_owned()], std::ffi::OsStr::new("/usr/bin:/bin"));
        assert_eq!((check("sh"), check("./in-the-clone.sh")), (None, None));
        assert!(check("no-such-program").is_some() && check("/no/such").is_some());
    }
}
