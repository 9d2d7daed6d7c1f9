//! Finding a program the way the system will, so that what is wrong with it is known before anything
//! is started.

use std::ffi::{OsStr, OsString};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, access};

/// A program that cannot be started, in one line.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ProgramProblem {
    /// No directory of `PATH` has it.
    #[error("cannot find {program}: it is in no directory of PATH ({})", path.to_string_lossy())]
    NotInPath {
        /// Its name.
        program: String,
        /// The `PATH` that was searched.
        path: OsString,
    },
    /// The named file is not there.
    #[error("cannot find {}", .0.display())]
    Missing(PathBuf),
    /// The file is there, but is no file that may be run.
    #[error("cannot run {}: not an executable file", .0.display())]
    NotExecutable(PathBuf),
    /// A script whose interpreter is not there.
    #[error("cannot run {}: its interpreter {interpreter} is not there", program.display())]
    NoInterpreter {
        /// The script.
        program: PathBuf,
        /// What its first line names.
        interpreter: String,
    },
}

impl ProgramProblem {
    /// The exit code with which a shell would report it: 127 not found, 126 found but not to be run.
    #[must_use]
    pub fn exit_code(&self) -> i32 {
        match self {
            Self::NotInPath { .. } | Self::Missing(_) => 127,
            Self::NotExecutable(_) | Self::NoInterpreter { .. } => 126,
        }
    }
}

/// The file that `program` names: itself where it has a slash, else the first one in `path` that may
/// be run. Entries of `path` that are relative are left out: workers run elsewhere.
///
/// # Errors
/// There is none, or it cannot be run.
pub fn find(program: &str, path: &OsStr) -> Result<PathBuf, ProgramProblem> {
    let file = if program.contains('/') { PathBuf::from(program) } else { search(program, path)? };
    check_file(&file)?;
    check_interpreter(&file, path)?;
    Ok(file)
}

fn search(program: &str, path: &OsStr) -> Result<PathBuf, ProgramProblem> {
    let candidates = || std::env::split_paths(path).filter(|dir| dir.is_absolute()).map(|dir| dir.join(program));
    // The shell goes on after a file that may not be run, and complains about it only in the end.
    candidates()
        .find(|file| check_file(file).is_ok())
        .or_else(|| candidates().find(|file| file.is_file()))
        .ok_or_else(|| ProgramProblem::NotInPath { program: program.to_owned(), path: path.to_owned() })
}

fn check_file(file: &Path) -> Result<(), ProgramProblem> {
    let meta = std::fs::metadata(file).map_err(|_| ProgramProblem::Missing(file.to_owned()))?;
    if meta.is_file() && access(file, Access::EXEC_OK).is_ok() {
        return Ok(());
    }
    Err(ProgramProblem::NotExecutable(file.to_owned()))
}

/// The system says "no such file" for a script whose interpreter is missing, and names the script.
fn check_interpreter(file: &Path, path: &OsStr) -> Result<(), ProgramProblem> {
    let Some(words) = shebang(file) else { return Ok(()) };
    let missing = |interpreter: &str| {
        Err(ProgramProblem::NoInterpreter { program: file.to_owned(), interpreter: interpreter.to_owned() })
    };
    let Some(interpreter) = words.first() else { return Ok(()) };
    if check_file(Path::new(interpreter)).is_err() {
        return missing(interpreter);
    }
    let by_env = interpreter.ends_with("/env").then(|| words.iter().skip(1).find(|word| is_program(word))).flatten();
    match by_env {
        Some(name) if !name.contains('/') && search(name, path).is_err() => missing(name),
        _ => Ok(()),
    }
}

/// Whether a word after `env` is the program, and no option or assignment.
fn is_program(word: &str) -> bool {
    !word.starts_with('-') && !word.contains('=')
}

/// The words of a script's first line; `None` for other files. Linux reads 256 bytes of it.
fn shebang(file: &Path) -> Option<Vec<String>> {
    let mut start = Vec::new();
    std::fs::File::open(file).ok()?.take(256).read_to_end(&mut start).ok()?;
    let line = start.strip_prefix(b"#!")?.split(|byte| *byte == b'\n').next()?;
    Some(OsStr::from_bytes(line).to_string_lossy().split_whitespace().map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    fn script(dir: &Path, name: &str, text: &str, mode: u32) -> PathBuf {
        let file = dir.join(name);
        std::fs::write(&file, text).unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(mode)).unwrap();
        file
    }

    #[test]
    fn what_is_wrong_with_a_program_is_one_line_that_names_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().as_os_str();
        let plain = script(dir.path(), "plain", "#!/bin/sh\n", 0o644);
        let lost = script(dir.path(), "lost", "#!/no/such -x\n", 0o755);
        let env = script(dir.path(), "env", "#!/usr/bin/env -S no-such-node --x\n", 0o755);
        for (program, code, said) in [
            ("nothing", 127, format!("cannot find nothing: it is in no directory of PATH ({})", path.display())),
            ("/nonexistent/codex", 127, "cannot find /nonexistent/codex".into()),
            ("plain", 126, format!("cannot run {}: not an executable file", plain.display())),
            ("/", 126, "cannot run /: not an executable file".into()),
            ("lost", 126, format!("cannot run {}: its interpreter /no/such is not there", lost.display())),
            ("env", 126, format!("cannot run {}: its interpreter no-such-node is not there", env.display())),
        ] {
            let problem = find(program, path).unwrap_err();
            assert_eq!((problem.exit_code(), problem.to_string()), (code, said));
        }
    }

    #[test]
    fn the_first_program_in_the_path_that_may_be_run_is_taken() {
        let (first, second) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        script(first.path(), "tool", "", 0o644);
        let tool = script(second.path(), "tool", "#!/usr/bin/env sh\n", 0o755);
        let bin = Path::new("/usr/bin");
        let path = std::env::join_paths([Path::new("."), first.path(), second.path(), bin]).unwrap();
        assert_eq!(find("tool", &path), Ok(tool.clone()));
        assert_eq!(find(tool.to_str().unwrap(), OsStr::new("/usr/bin")), Ok(tool));
    }
}
