//! Before a run: is an executor's program there, which version is it, is somebody logged in? Nothing
//! here asks the network, and no secret is read.

use std::ffi::OsString;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, poll};

use super::codex;
use super::program::{self, ProgramProblem};
use super::registry::{Executor, Kind};

/// How long `--version` may take.
const VERSION_LIMIT: Duration = Duration::from_secs(10);

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

/// Looks at an executor in this process's environment. Starts `PROGRAM --version` at most.
#[must_use]
pub fn check(executor: &Executor) -> Preflight {
    check_with(executor, |name| std::env::var_os(name))
}

/// [`check`] in an environment given by `var`.
#[must_use]
pub fn check_with(executor: &Executor, var: impl Fn(&str) -> Option<OsString>) -> Preflight {
    let path = var("PATH").unwrap_or_default();
    match executor.kind {
        Kind::Session => Preflight::of(Ok(None)),
        Kind::Command => Preflight::of(executor.program.as_deref().map(|name| program::find(name, &path)).transpose()),
        Kind::Codex => check_codex(executor, var),
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

impl Preflight {
    fn of(program: Result<Option<PathBuf>, ProgramProblem>) -> Self {
        Self { program, version: None, login: Login::Unknown, notes: Vec::new() }
    }
}

fn check_codex(executor: &Executor, var: impl Fn(&str) -> Option<OsString>) -> Preflight {
    let path = var("PATH").unwrap_or_default();
    let native = program::find(&codex::program(executor, &var), &path).map(|found| codex::native_binary(&found));
    let version = native.as_ref().ok().and_then(|program| ask_version(program));
    let notes = match (&native, &version) {
        (Ok(_), Some(version)) => codex::version_note(version).into_iter().collect(),
        (Ok(program), None) => vec![format!("{} does not tell its version", program.display())],
        (Err(_), _) => Vec::new(),
    };
    Preflight { login: codex_login(executor, var), version, notes, program: native.map(Some) }
}

fn codex_login(executor: &Executor, var: impl Fn(&str) -> Option<OsString>) -> Login {
    let own = |name: &str| executor.env.iter().find(|(key, _)| key == name).map(|(_, value)| OsString::from(value));
    let set = |name: &str| own(name).or_else(|| var(name)).filter(|value| !value.is_empty());
    let home = set("CODEX_HOME").map(PathBuf::from).or_else(|| set("HOME").map(|home| Path::new(&home).join(".codex")));
    let has_file = home.is_some_and(|home| home.join("auth.json").metadata().is_ok_and(|meta| meta.len() > 0));
    if has_file || set("CODEX_API_KEY").is_some() {
        return Login::LoggedIn;
    }
    // Another provider or another store of credentials: not to be told from here.
    if executor.args.iter().any(|arg| arg.contains("model_provider") || arg.contains("cli_auth_credentials_store")) {
        return Login::Unknown;
    }
    Login::NotLoggedIn { hint: "run `codex login`, or set CODEX_API_KEY".to_owned() }
}

/// The last word of what `program --version` prints, `codex-cli 0.171.0`.
fn ask_version(program: &Path) -> Option<String> {
    let mut child = Command::new(program)
        .arg("--version")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .ok()?;
    let said = read_until(&mut child, Instant::now() + VERSION_LIMIT);
    // It has closed its output, or has had its time: there is nothing left to wait for.
    child.kill().ok();
    child.wait().ok()?;
    let said = String::from_utf8(said?).ok()?;
    said.split_whitespace().last().map(str::to_owned)
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

    fn check_codex(vars: &[(&str, &str)]) -> Preflight {
        let registry = Registry::built_in(2);
        let executor = registry.get(&"codex".parse().unwrap()).unwrap();
        check_with(executor, |name| vars.iter().find(|(key, _)| *key == name).map(|(_, value)| value.into()))
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
    fn a_units_own_command_is_looked_for_where_that_is_possible() {
        let check = |name: &str| check_command(&[name.to_owned()], std::ffi::OsStr::new("/usr/bin:/bin"));
        assert_eq!((check("sh"), check("./in-the-clone.sh")), (None, None));
        assert!(check("no-such-program").is_some() && check("/no/such").is_some());
    }
}
