//! `.worktreeinclude`: patterns, gitignore-style, of ignored files that a clone gets too: settings, fixtures, keys
//! for tests.

use std::fs;
use std::path::{Path, PathBuf};

use super::super::source::Source;
use super::super::{WorkspaceError, encode};
use super::some;
use crate::files::FileError;

/// The list's name, at the top of the work tree.
const LIST: &str = ".worktreeinclude";

/// Files that the list names and that git ignores; others would come back as the unit's work.
pub(super) fn find(source: &Source, unseen: &mut Vec<String>) -> Result<Vec<PathBuf>, WorkspaceError> {
    let list = source.top.join(LIST);
    if source.is_bare || !list.symlink_metadata().is_ok_and(|meta| meta.is_file()) {
        return Ok(Vec::new());
    }
    let listed = source
        .command(&["ls-files", "-z", "--others", "--ignored"])
        .arg(format!("--exclude-from={}", list.display()))
        .work_tree(&source.top)
        .run()?;
    if listed.stdout.is_empty() {
        return Ok(Vec::new());
    }
    let ignored = source
        .command(&["check-ignore", "-z", "--stdin"])
        .work_tree(&source.top)
        .with_user_config()
        .input(listed.stdout)
        .run_accepting(&[0, 1])?;
    let is_file = |path: &PathBuf| source.top.join(path).symlink_metadata().is_ok_and(|meta| meta.is_file());
    let (files, others): (Vec<PathBuf>, Vec<PathBuf>) = ignored.fields().map(encode::path).partition(is_file);
    if !others.is_empty() {
        let names: Vec<String> = others.iter().map(|path| path.display().to_string()).collect();
        // A link could lead a worker back into the user's repository.
        unseen.push(format!("what {LIST} names and is no plain file: {}", some(&names)));
    }
    Ok(files)
}

/// Copies them.
pub(super) fn add(files: &[PathBuf], top: &Path, clone: &Path) -> Result<(), FileError> {
    for path in files {
        let (from, to) = (top.join(path), clone.join(path));
        if let Some(dir) = to.parent() {
            fs::create_dir_all(dir).map_err(FileError::at("create", dir))?;
        }
        match fs::copy(&from, &to) {
            // The user may have removed it since the list was made.
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            copied => drop(copied.map_err(FileError::at("copy", &from))?),
        }
    }
    Ok(())
}
