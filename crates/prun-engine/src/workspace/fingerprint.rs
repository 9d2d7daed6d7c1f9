//! Whether somebody touched the user's repository while units ran, and whether it was a unit.
//!
//! The user goes on working meanwhile: their commits and edits are worth one quiet line. A changed hook or
//! setting, and a ref that leads to an object of a unit's clone, are evidence of a worker and are loud.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::dirty::{self, DirtyError};
use super::source::Source;
use super::store::Store;
use super::{WorkspaceError, encode};
use crate::files::{FileError, read_regular};
use crate::git::GitError;
use crate::home::sha256_hex;

/// The version of the fingerprint's format.
pub const FINGERPRINT_VERSION: u32 = 1;

/// The largest hook or rules file that is read, in bytes.
const MAX_FILE: u64 = 16 << 20;

/// What git itself keeps in `info` beside these changes with its own work.
const INFO_FILES: [&str; 3] = ["attributes", "exclude", "grafts"];

/// Settings that git writes on the way, with `branch`, `checkout`, `push -u` and `sparse-checkout`.
const QUIET_SETTINGS: [&str; 4] = ["branch.", "core.sparsecheckout", "index.sparse", "extensions.worktreeconfig"];

/// A repository at one moment. Contents are there as hashes only.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Fingerprint {
    /// [`FINGERPRINT_VERSION`].
    pub version: u32,
    /// The branch that HEAD is on, or a commit id.
    pub head: String,
    /// Every ref, full name to object id.
    pub refs: BTreeMap<String, String>,
    /// Entries of the stash.
    pub stashes: usize,
    /// Settings of the repository's own configuration files.
    pub config: BTreeMap<String, String>,
    /// Files in its hooks directories, with their modes.
    pub hooks: BTreeMap<String, String>,
    /// Rules of its `info` directory that are in no tree.
    pub info: BTreeMap<String, String>,
    /// The index.
    pub index: String,
    /// Uncommitted work: path to size and time.
    pub dirty: BTreeMap<String, String>,
}

/// Something that differs between two fingerprints.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Finding {
    /// It is evidence of a worker.
    pub loud: bool,
    /// What differs, as a sentence.
    pub what: String,
}

impl Fingerprint {
    /// Takes the fingerprint of `source`. `ignore` are absolute paths that never count as uncommitted work.
    ///
    /// # Errors
    /// The repository cannot be read.
    pub fn take(source: &Source, store: &Store, ignore: &[PathBuf]) -> Result<Self, DirtyError> {
        let dirty = dirty::find(source, store, ignore)?;
        let parts = Self::of_git_dir(source).map_err(WorkspaceError::from)?;
        let look = |path: String| {
            let meta = source.top.join(&path).symlink_metadata();
            let look = meta.map_or_else(
                |_| "gone".to_owned(),
                |meta| format!("{} {}.{}", meta.len(), meta.mtime(), meta.mtime_nsec()),
            );
            (path, look)
        };
        Ok(Self { dirty: dirty.paths.into_iter().map(look).collect(), ..parts })
    }

    fn of_git_dir(source: &Source) -> Result<Self, GitError> {
        let listed = source.command(&["for-each-ref", "--format=%(objectname) %(refname)"]).run()?.text();
        let refs = listed.lines().filter_map(|line| line.split_once(' '));
        let head = source.command(&["rev-parse", "--verify", "--quiet", "HEAD"]).run_accepting(&[0, 1])?.text();
        let branch = source.command(&["symbolic-ref", "--quiet", "HEAD"]).run_accepting(&[0, 1])?.text();
        let stash = read_regular(&source.common_dir.join("logs/refs/stash"), MAX_FILE).unwrap_or_default();
        let mut config = settings(source, &source.common_dir.join("config"))?;
        config.extend(settings(source, &source.git_dir.join("config.worktree"))?);
        Ok(Self {
            version: FINGERPRINT_VERSION,
            head: if branch.is_empty() { head } else { branch },
            refs: refs.map(|(id, name)| (name.to_owned(), id.to_owned())).collect(),
            stashes: stash.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()).count(),
            config,
            hooks: hooks(source)?,
            info: files_in(&source.common_dir.join("info"))
                .into_iter()
                .filter(|(name, _)| INFO_FILES.contains(&name.as_str()))
                .collect(),
            index: hash_of(&source.git_dir.join("index")),
            dirty: BTreeMap::new(),
        })
    }

    /// Objects that refs point at now and did not before.
    #[must_use]
    pub fn new_tips(&self, before: &Self) -> BTreeSet<String> {
        let old: BTreeSet<&String> = before.refs.values().collect();
        self.refs.values().filter(|id| !old.contains(id)).cloned().collect()
    }
}

/// Tells what differs. `from_clones` are those of [`Fingerprint::new_tips`] that lie in a unit's clone.
#[must_use]
pub fn compare(before: &Fingerprint, after: &Fingerprint, from_clones: &BTreeSet<String>) -> Vec<Finding> {
    let mut found = Vec::new();
    let mut say = |loud: bool, what: String| found.push(Finding { loud, what });
    for (act, name) in changes(&before.hooks, &after.hooks) {
        say(true, format!("the hook {name} was {act}"));
    }
    for (act, key) in changes(&before.config, &after.config) {
        let is_quiet = QUIET_SETTINGS.iter().any(|quiet| key.starts_with(quiet));
        say(!is_quiet, format!("the setting {key} was {act}"));
    }
    for (act, name) in changes(&before.info, &after.info) {
        // Attributes choose which filters run; the other rules start nothing.
        say(name == "attributes", format!("info/{name} was {act}"));
    }
    for (act, name) in changes(&before.refs, &after.refs) {
        let theirs = after.refs.get(name).is_some_and(|id| from_clones.contains(id));
        let origin = if theirs { " to an object from a unit's clone" } else { "" };
        say(theirs, format!("{name} was {act}{origin}"));
    }
    let quiet = [
        (before.head != after.head, format!("HEAD moved from {} to {}", before.head, after.head)),
        (before.stashes != after.stashes, "the stash changed".to_owned()),
        (before.index != after.index, "the index changed".to_owned()),
    ];
    quiet.into_iter().filter(|(differs, _)| *differs).for_each(|(_, what)| say(false, what));
    let edited = changes(&before.dirty, &after.dirty).len();
    if edited > 0 {
        say(false, format!("{edited} {} edited in the work tree", if edited == 1 { "file was" } else { "files were" }));
    }
    found
}

/// Those of `ids` that lie in the object directory of one of `clones` itself, as against what it borrows.
///
/// # Errors
/// Git or a file operation fails.
pub fn objects_in_clones(
    store: &Store,
    clones: &[PathBuf],
    ids: &BTreeSet<String>,
) -> Result<BTreeSet<String>, WorkspaceError> {
    let mut found = BTreeSet::new();
    if ids.is_empty() {
        return Ok(found);
    }
    let asked: String = ids.iter().map(|id| format!("{id}\n")).collect();
    let is_dir = |path: &Path| path.symlink_metadata().is_ok_and(|meta| meta.is_dir());
    let git_dirs = clones.iter().map(|clone| clone.join(".git")).filter(|git_dir| is_dir(git_dir));
    for clone in git_dirs.map(|git_dir| git_dir.join("objects")).filter(|objects| is_dir(objects)) {
        let view = tempfile::tempdir().map_err(FileError::at("create a directory in", &std::env::temp_dir()))?;
        link_own_objects(&clone, view.path())?;
        let told = store
            .command(["cat-file", "--batch-check"])
            .env("GIT_OBJECT_DIRECTORY", view.path())
            .env("GIT_ALTERNATE_OBJECT_DIRECTORIES", "")
            .input(asked.clone())
            .run()?
            .text();
        let present = told.lines().filter(|line| !line.ends_with(" missing"));
        found.extend(present.filter_map(|line| line.split_once(' ')).map(|(id, _)| id.to_owned()));
    }
    Ok(found)
}

/// Shows a clone's loose objects and packs without its `info`, which names what it borrows from.
fn link_own_objects(objects: &Path, view: &Path) -> Result<(), WorkspaceError> {
    for entry in fs::read_dir(objects).map_err(FileError::at("read", objects))?.flatten() {
        let name = entry.file_name();
        if name != "info" {
            let to = view.join(&name);
            std::os::unix::fs::symlink(entry.path(), &to).map_err(FileError::at("create", &to))?;
        }
    }
    Ok(())
}

/// Keys that differ, with what happened to them.
fn changes<'a>(
    before: &'a BTreeMap<String, String>,
    after: &'a BTreeMap<String, String>,
) -> Vec<(&'static str, &'a String)> {
    let keys: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
    let act = |key: &&'a String| match (before.get(*key), after.get(*key)) {
        (None, Some(_)) => Some("added"),
        (Some(_), None) => Some("removed"),
        (old, new) if old != new => Some("changed"),
        _ => None,
    };
    keys.into_iter().filter_map(|key| Some((act(&key)?, key))).collect()
}

/// The settings of one file: key to a hash of its values in order. Values may be secrets.
fn settings(source: &Source, file: &Path) -> Result<BTreeMap<String, String>, GitError> {
    if !file.is_file() {
        return Ok(BTreeMap::new());
    }
    let listed = source.command(&["config", "--list", "-z", "--no-includes", "--file"]).arg(file).run()?;
    let mut values: BTreeMap<String, Vec<u8>> = BTreeMap::new();
    for entry in listed.fields() {
        let (key, value) = entry.split_at(entry.iter().position(|byte| *byte == b'\n').unwrap_or(entry.len()));
        values.entry(encode::lossy(key)).or_default().extend_from_slice(value);
    }
    Ok(values.into_iter().map(|(key, value)| (key, sha256_hex(&value))).collect())
}

/// The hooks of the git directory, and of the directory that the repository's own configuration names instead.
fn hooks(source: &Source) -> Result<BTreeMap<String, String>, GitError> {
    let mut hooks = files_in(&source.common_dir.join("hooks"));
    let config = source.common_dir.join("config");
    let named = source.command(&["config", "--file"]).arg(config).args(["--get", "core.hooksPath"]);
    let named = named.run_accepting(&[0, 1])?.text();
    if !named.is_empty() && !named.starts_with('~') {
        let inside = files_in(&source.top.join(&named));
        hooks.extend(inside.into_iter().map(|(name, text)| (format!("{named}/{name}"), text)));
    }
    Ok(hooks)
}

fn files_in(dir: &Path) -> BTreeMap<String, String> {
    let describe = |entry: fs::DirEntry| {
        let mode = entry.metadata().map_or(0, |meta| meta.mode());
        let link = fs::read_link(entry.path()).map(|to| to.display().to_string()).unwrap_or_default();
        let text = format!("{mode:o} {} {link}", hash_of(&entry.path()));
        (entry.file_name().to_string_lossy().into_owned(), text)
    };
    fs::read_dir(dir).into_iter().flatten().flatten().map(describe).collect()
}

fn hash_of(path: &Path) -> String {
    read_regular(path, 1 << 30).map_or_else(|error| error.kind().to_string(), |bytes| sha256_hex(&bytes))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Fixture, gits, put, state_of, user_git};
    use super::*;

    /// What is found after `act`, loud lines with a `!`.
    fn check(act: impl Fn(&Fixture, &Path), expected: &[&str]) {
        for git in gits() {
            let fixture = Fixture::new(&git);
            let unit = fixture.prepare("run");
            let state = state_of(&fixture.repo);
            let before = Fingerprint::take(&fixture.source(), &unit.store, &[]).unwrap();
            assert!(state_of(&fixture.repo) == state, "taking a fingerprint left a trace");
            act(&fixture, &unit.clone);
            let after = Fingerprint::take(&fixture.source(), &unit.store, &[]).unwrap();
            let tips = objects_in_clones(&unit.store, &[unit.clone], &after.new_tips(&before)).unwrap();
            let found = compare(&before, &after, &tips);
            let lines: Vec<String> =
                found.iter().map(|found| format!("{}{}", if found.loud { "!" } else { "" }, found.what)).collect();
            assert_eq!(lines, expected);
        }
    }

    #[test]
    fn nothing_is_found_where_nothing_changed() {
        check(|_, _| (), &[]);
    }

    #[test]
    fn the_users_own_work_is_quiet() {
        check(
            |user, _| {
                user.write("README", "mine");
                user.commit("mine");
                user.write("src/a.rs", "more");
                user.write("new", "x");
                user.run(&["branch", "-q", "--track", "b", "main"]);
            },
            &[
                "the setting branch.b.merge was added",
                "the setting branch.b.remote was added",
                "refs/heads/b was added",
                "refs/heads/main was changed",
                "the index changed",
                "2 files were edited in the work tree",
            ],
        );
    }

    #[test]
    fn c18_a_push_from_a_clone_is_loud() {
        let commit = ["-c", "user.name=x", "-c", "user.email=x", "commit", "-q", "--allow-empty", "-m", "x"];
        let expected = ["!refs/heads/pushed was added to an object from a unit's clone"];
        for pack in [false, true] {
            check(
                |user, clone| {
                    user_git(&user.git, clone, &commit);
                    if pack {
                        user_git(&user.git, clone, &["repack", "-q", "-a", "-d", "-l"]);
                    }
                    user_git(&user.git, clone, &["push", "-q", user.repo.to_str().unwrap(), "HEAD:refs/heads/pushed"]);
                },
                &expected,
            );
        }
    }

    #[test]
    fn a_hook_outside_the_git_directory_counts() {
        for git in gits() {
            let fixture = Fixture::new(&git);
            fixture.run(&["config", "core.hooksPath", ".husky"]);
            put(&fixture.repo.join(".husky/pre-push"), "#!/bin/sh\n");
            let source = fixture.source();
            let before = hooks(&source).unwrap();
            put(&fixture.repo.join(".husky/pre-push"), "#!/bin/sh\nevil\n");
            assert_eq!(changes(&before, &hooks(&source).unwrap()), [("changed", &".husky/pre-push".to_owned())]);
        }
    }

    #[test]
    fn what_git_keeps_for_itself_is_quiet() {
        check(
            |user, _| {
                user.run(&["gc", "-q"]);
                user.run(&["update-server-info"]);
            },
            &[],
        );
    }

    #[test]
    fn a_changed_hook_or_setting_is_loud() {
        check(
            |user, _| {
                put(&user.repo.join(".git/hooks/pre-commit"), "#!/bin/sh\n");
                user.run(&["config", "core.fsmonitor", "evil"]);
                put(&user.repo.join(".git/info/attributes"), "* filter=x\n");
            },
            &["!the hook pre-commit was added", "!the setting core.fsmonitor was added", "!info/attributes was added"],
        );
    }
}
