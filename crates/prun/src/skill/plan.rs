//! What an installation would do, decided before anything is written.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use prun_engine::files::{Durability, FileError, write_atomically};
use prun_engine::home::sha256_hex;
use serde::{Deserialize, Serialize};

use super::{BUNDLE, BundledFile, MANIFEST};

/// What was installed where.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Manifest {
    /// The version of prun that wrote it.
    pub(crate) version: String,
    /// SHA-256 of each file as it was written, in hex.
    pub(crate) files: BTreeMap<String, String>,
}

/// One file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    /// Relative to the skill's directory.
    pub(crate) path: String,
    /// What happens to it.
    pub(crate) change: Change,
}

/// What happens to a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Change {
    /// It is written; it was not there.
    Add,
    /// It is written over an older one of ours.
    Update,
    /// It is removed.
    Remove,
    /// It is as it should be.
    Keep,
    /// Somebody else wrote it, or changed it since: it stays, and an installation is refused.
    Edited,
}

impl Manifest {
    /// What was installed in `dir`; empty where nothing was.
    pub(crate) fn read(dir: &Path) -> Self {
        let text = std::fs::read(dir.join(MANIFEST)).unwrap_or_default();
        serde_json::from_slice(&text).unwrap_or_default()
    }
}

/// The bytes of a file, as far as there is one.
fn hash(path: &Path) -> Option<String> {
    if path.symlink_metadata().is_err() {
        return None;
    }
    // What cannot be read is nothing of ours.
    Some(std::fs::read(path).map_or_else(|_| String::new(), |bytes| sha256_hex(&bytes)))
}

fn judge(found: Option<&str>, known: Option<&String>, wanted: Option<&str>) -> Change {
    match (found, wanted) {
        (None, Some(_)) => Change::Add,
        (Some(found), Some(wanted)) if found == wanted => Change::Keep,
        (Some(found), wanted) if known.is_some_and(|known| known == found) => {
            if wanted.is_some() {
                Change::Update
            } else {
                Change::Remove
            }
        }
        (Some(_), _) => Change::Edited,
        (None, None) => Change::Keep,
    }
}

/// What an installation into `dir` does.
fn plan(dir: &Path, known: &Manifest, wanted: &[BundledFile]) -> Vec<Step> {
    let new: BTreeMap<&str, String> = wanted.iter().map(|file| (file.path, sha256_hex(file.text.as_bytes()))).collect();
    let old = known.files.keys().map(String::as_str).filter(|path| !new.contains_key(path));
    let paths: Vec<&str> = new.keys().copied().chain(old).collect();
    let step = |path: &str| {
        let found = hash(&dir.join(path));
        let change = judge(found.as_deref(), known.files.get(path), new.get(path).map(String::as_str));
        Step { path: path.to_owned(), change }
    };
    paths.into_iter().map(step).collect()
}

/// Installs the skill into `dir`, or only tells what that would do. Where a file was edited nothing is written.
///
/// # Errors
/// A file cannot be written.
pub(crate) fn install(dir: &Path, dry_run: bool) -> Result<Vec<Step>, FileError> {
    let steps = plan(dir, &Manifest::read(dir), BUNDLE);
    if dry_run || steps.iter().any(|step| step.change == Change::Edited) {
        return Ok(steps);
    }
    let manifest = Manifest {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        files: BUNDLE.iter().map(|file| (file.path.to_owned(), sha256_hex(file.text.as_bytes()))).collect(),
    };
    for step in &steps {
        match step.change {
            Change::Add | Change::Update => {
                let file = BUNDLE.iter().find(|file| file.path == step.path).expect("only ours are written");
                write(&dir.join(file.path), file)?;
            }
            Change::Remove => remove(dir, &step.path)?,
            Change::Keep | Change::Edited => {}
        }
    }
    let text = serde_json::to_vec_pretty(&manifest).expect("plain data with string keys");
    write_atomically(&dir.join(MANIFEST), &text, Durability::Cached)?;
    Ok(steps)
}

/// Removes what was installed in `dir`, or only tells. Files that were edited stay.
///
/// # Errors
/// A file cannot be removed.
pub(crate) fn uninstall(dir: &Path, dry_run: bool) -> Result<Vec<Step>, FileError> {
    let known = Manifest::read(dir);
    let mut steps = plan(dir, &known, &[]);
    steps.retain(|step| step.change != Change::Keep);
    if dry_run {
        return Ok(steps);
    }
    for step in steps.iter().filter(|step| step.change == Change::Remove) {
        remove(dir, &step.path)?;
    }
    let manifest = dir.join(MANIFEST);
    if manifest.exists() {
        std::fs::remove_file(&manifest).map_err(FileError::at("remove", &manifest))?;
    }
    // It stays where something else is in it.
    let _ = std::fs::remove_dir(dir);
    Ok(steps)
}

fn write(path: &Path, file: &BundledFile) -> Result<(), FileError> {
    use std::os::unix::fs::PermissionsExt;
    let parent = path.parent().map_or_else(PathBuf::new, Path::to_owned);
    std::fs::create_dir_all(&parent).map_err(FileError::at("create", &parent))?;
    write_atomically(path, file.text.as_bytes(), Durability::Cached)?;
    let mode = if file.is_program { 0o755 } else { 0o644 };
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).map_err(FileError::at("change", path))
}

fn remove(dir: &Path, file: &str) -> Result<(), FileError> {
    let path = dir.join(file);
    std::fs::remove_file(&path).map_err(FileError::at("remove", &path))?;
    if let Some(parent) = path.parent().filter(|parent| *parent != dir) {
        // It stays where something else is in it.
        let _ = std::fs::remove_dir(parent);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn changes(steps: &[Step]) -> Vec<Change> {
        let mut changes: Vec<Change> = steps.iter().map(|step| step.change).collect();
        changes.dedup();
        changes
    }

    #[test]
    fn it_is_installed_once_updated_when_old_and_taken_out_again() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("skills/prun");
        assert_eq!(changes(&install(&dir, true).unwrap()), [Change::Add]);
        assert!(!dir.exists(), "a dry run writes nothing");
        install(&dir, false).unwrap();
        assert_eq!(changes(&install(&dir, false).unwrap()), [Change::Keep]);

        // As an older version left it: other bytes, and a file that is no more.
        std::fs::write(dir.join("SKILL.md"), "old").unwrap();
        std::fs::write(dir.join("references/gone.md"), "old").unwrap();
        let mut known = Manifest::read(&dir);
        known.files.insert("SKILL.md".into(), sha256_hex(b"old"));
        known.files.insert("references/gone.md".into(), sha256_hex(b"old"));
        std::fs::write(dir.join(MANIFEST), serde_json::to_vec(&known).unwrap()).unwrap();
        let steps = install(&dir, false).unwrap();
        let of = |path: &str| steps.iter().find(|step| step.path == path).unwrap().change;
        assert_eq!((of("SKILL.md"), of("references/gone.md")), (Change::Update, Change::Remove));
        assert!(!dir.join("references/gone.md").exists());

        assert_eq!(changes(&uninstall(&dir, false).unwrap()), [Change::Remove]);
        assert!(!dir.exists());
        assert!(uninstall(&dir, false).unwrap().is_empty());
    }

    #[test]
    fn what_somebody_edited_is_neither_overwritten_nor_removed() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().join("prun");
        install(&dir, false).unwrap();
        std::fs::write(dir.join("SKILL.md"), "mine").unwrap();
        std::fs::remove_file(dir.join("references/plan.md")).unwrap();
        let steps = install(&dir, false).unwrap();
        assert!(steps.iter().any(|step| step.path == "SKILL.md" && step.change == Change::Edited));
        assert!(!dir.join("references/plan.md").exists(), "with one edited file nothing is written");
        uninstall(&dir, false).unwrap();
        assert_eq!(std::fs::read_to_string(dir.join("SKILL.md")).unwrap(), "mine");
    }
}
