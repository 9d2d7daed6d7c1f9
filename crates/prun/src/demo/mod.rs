//! What `prun demo` writes: a small real repository with failing tests, workers that repair it, and a plan.
//!
//! The repository, `textstat`, needs git and a POSIX shell and nothing else. Nothing is run here but git.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use prun_engine::git::{Git, GitError};

/// Who works on the units of the demo.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DemoExecutor {
    /// The shell scripts beside the repository, as programs.
    Scripts,
    /// Codex, with the same prompts.
    Codex,
}

/// Where the parts of the demo are, absolute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Demo {
    /// The repository, with one commit and a clean tree.
    pub(crate) repo: PathBuf,
    /// The plan, beside the repository.
    pub(crate) plan: PathBuf,
}

/// The demo could not be written.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DemoError {
    /// The system refused.
    #[error("cannot write {}: {source}", path.display())]
    Write {
        /// The file or directory.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// Somebody's files are there.
    #[error("{} is not empty; the demo wants a directory of its own", .0.display())]
    NotEmpty(PathBuf),
    /// A plan is text, and it names the workers by their paths.
    #[error("{} is no UTF-8 path; a plan cannot name it", .0.display())]
    NotUtf8(PathBuf),
    /// The repository could not be made.
    #[error(transparent)]
    Git(#[from] GitError),
}

/// Writes the repository, the workers and the plan into `dir`, which is made where it is missing.
///
/// # Errors
/// `dir` holds something, cannot be written, or has a name that a plan cannot hold; git fails.
pub(crate) fn write(dir: &Path, executor: DemoExecutor) -> Result<Demo, DemoError> {
    let dir = empty_dir(dir)?;
    let text = dir.to_str().ok_or_else(|| DemoError::NotUtf8(dir.clone()))?;
    let demo = Demo { repo: dir.join("textstat"), plan: dir.join("prun.toml") };
    for (name, content) in PROGRAMS {
        write_file(&demo.repo.join(name), content, 0o755)?;
    }
    for (name, content) in FILES {
        write_file(&demo.repo.join(name), content, 0o644)?;
    }
    if executor == DemoExecutor::Scripts {
        for (name, content) in WORKERS {
            write_file(&dir.join("workers").join(name), content, 0o644)?;
        }
    }
    commit(&demo.repo)?;
    write_file(&demo.plan, &plan(text, executor), 0o644)?;
    Ok(demo)
}

/// Files of the repository that are run.
const PROGRAMS: &[(&str, &str)] =
    &[("textstat", include_str!("textstat/textstat")), ("run-tests", include_str!("textstat/run-tests"))];

/// The other files of the repository.
const FILES: &[(&str, &str)] = &[
    ("README.md", include_str!("textstat/README.md")),
    ("lib/lines.sh", include_str!("textstat/lib/lines.sh")),
    ("lib/longest.sh", include_str!("textstat/lib/longest.sh")),
    ("lib/top.sh", include_str!("textstat/lib/top.sh")),
    ("lib/words.sh", include_str!("textstat/lib/words.sh")),
    ("lib/wrap.sh", include_str!("textstat/lib/wrap.sh")),
    ("tests/check.sh", include_str!("textstat/tests/check.sh")),
    ("tests/fox.txt", include_str!("textstat/tests/fox.txt")),
    ("tests/lines.sh", include_str!("textstat/tests/lines.sh")),
    ("tests/longest.sh", include_str!("textstat/tests/longest.sh")),
    ("tests/one.txt", include_str!("textstat/tests/one.txt")),
    ("tests/report.sh", include_str!("textstat/tests/report.sh")),
    ("tests/top.sh", include_str!("textstat/tests/top.sh")),
    ("tests/words.sh", include_str!("textstat/tests/words.sh")),
    ("tests/wrap.sh", include_str!("textstat/tests/wrap.sh")),
];

/// The workers, one for each unit, and what they share.
const WORKERS: &[(&str, &str)] = &[
    ("common.sh", include_str!("workers/common.sh")),
    ("lines.sh", include_str!("workers/lines.sh")),
    ("longest.sh", include_str!("workers/longest.sh")),
    ("review.sh", include_str!("workers/review.sh")),
    ("top.sh", include_str!("workers/top.sh")),
    ("words.sh", include_str!("workers/words.sh")),
    ("wrap.sh", include_str!("workers/wrap.sh")),
];

const PLAN: &str = include_str!("plan.toml");

/// `dir` made, absolute, and found empty.
fn empty_dir(dir: &Path) -> Result<PathBuf, DemoError> {
    let failed = |source| DemoError::Write { path: dir.to_owned(), source };
    fs::create_dir_all(dir).map_err(failed)?;
    let dir = dir.canonicalize().map_err(failed)?;
    let mut entries = fs::read_dir(&dir).map_err(failed)?;
    if entries.next().is_some() { Err(DemoError::NotEmpty(dir)) } else { Ok(dir) }
}

fn write_file(path: &Path, content: &str, mode: u32) -> Result<(), DemoError> {
    let written = || {
        path.parent().map_or(Ok(()), fs::create_dir_all)?;
        fs::write(path, content)?;
        fs::set_permissions(path, fs::Permissions::from_mode(mode))
    };
    written().map_err(|source| DemoError::Write { path: path.to_owned(), source })
}

fn commit(repo: &Path) -> Result<(), GitError> {
    let git = Git::from_env();
    git.command(["init", "-q", "--initial-branch=main", "--template="]).arg(repo).run()?;
    git.command(["add", "--all"]).dir(repo).run()?;
    let commit = git.command(["commit", "-q", "-m", "A small text-statistics tool"]).dir(repo);
    commit.config("user.name=prun demo").config("user.email=demo@localhost").run()?;
    Ok(())
}

/// The plan for a demo in `dir`. Codex brings its own program: its units have no command.
fn plan(dir: &str, executor: DemoExecutor) -> String {
    let (name, scripts) = match executor {
        DemoExecutor::Scripts => ("command", true),
        DemoExecutor::Codex => ("codex", false),
    };
    let mut plan = String::new();
    for line in PLAN.lines().filter(|line| scripts || !line.starts_with("command = ")) {
        plan += &line.replace("@EXECUTOR@", name).replace("@WORKERS@", &escaped(&format!("{dir}/workers")));
        plan.push('\n');
    }
    plan
}

/// `text` as it stands between the quotation marks of a TOML string.
fn escaped(text: &str) -> String {
    let escape = |c: char| match c {
        '"' | '\\' => format!("\\{c}"),
        c if c.is_control() => format!("\\u{:04x}", u32::from(c)),
        c => c.to_string(),
    };
    text.chars().map(escape).collect()
}

#[cfg(test)]
mod tests;
