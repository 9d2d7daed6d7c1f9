//! The run's own bare repository: harvested trees, a carried dirty base, combinations.
//!
//! It *reads* the user's objects through its alternates file. Git refreshes the times of an object file
//! when it is about to write an object that is already there, also in an alternate; so whatever *writes* objects
//! does so in a [`Quarantine`], which does not see the user's object directory.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tempfile::TempDir;

use super::gitdir::GitDir;
use super::settings::Settings;
use super::source::Source;
use super::{Base, WorkspaceError, encode};
use crate::files::{Durability, FileError, read_regular, sync_dir, write_atomically};
use crate::git::{Git, GitCommand};

/// The run's own repository.
#[derive(Clone, Debug)]
pub struct Store {
    /// The git that works on it.
    pub git: Git,
    /// The bare git directory.
    pub git_dir: PathBuf,
    /// What was captured of the user's repository.
    pub facts: StoreFacts,
}

/// What was captured of the user's repository when the run started; kept in the store as `prun.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StoreFacts {
    /// The version of this format.
    pub version: u32,
    /// The git directory that all worktrees of the user's repository share.
    pub common_dir: PathBuf,
    /// The user's objects.
    pub objects: PathBuf,
    /// `sha1` or `sha256`.
    pub object_format: String,
    /// The branch that a clone is on, a full ref name.
    pub branch: String,
    /// The user's local branches, full ref name to commit.
    pub branches: BTreeMap<String, String>,
    /// Where history was cut off.
    pub shallow: Option<Vec<u8>>,
    /// Some objects are only at a remote.
    pub partial: bool,
    /// The user's settings that count.
    pub settings: Settings,
}

const FACTS_VERSION: u32 = 1;
const FACTS_FILE: &str = "prun.json";
const MIRROR_FILE: &str = "prun-mirror";

impl Store {
    /// Creates the store at `dir`, which must not be there.
    ///
    /// # Errors
    /// It is there, cannot be written, or the user's settings cannot be read.
    pub fn create(dir: &Path, source: &Source) -> Result<Self, WorkspaceError> {
        if dir.symlink_metadata().is_ok() {
            return Err(WorkspaceError::Exists(dir.to_owned()));
        }
        let facts = StoreFacts::capture(source)?;
        GitDir {
            bare: true,
            object_format: &facts.object_format,
            settings: facts.repository_settings(),
            head: "refs/heads/none",
            alternates: vec![facts.objects.clone()],
            exclude: &facts.settings.exclude,
            attributes: &facts.settings.attributes,
            shallow: facts.shallow.as_deref(),
            ..GitDir::default()
        }
        .write(dir)?;
        let json = serde_json::to_vec_pretty(&facts).expect("plain data with string keys");
        write_atomically(&dir.join(FACTS_FILE), &json, Durability::Cached)?;
        Ok(Self { git: source.git.clone(), git_dir: dir.to_owned(), facts })
    }

    /// Opens the store at `dir`.
    ///
    /// # Errors
    /// There is none, or its facts are of another version.
    pub fn open(git: &Git, dir: &Path) -> Result<Self, WorkspaceError> {
        let broken = |why: String| WorkspaceError::Store { path: dir.to_owned(), why };
        let bytes = read_regular(&dir.join(FACTS_FILE), 256 << 20).map_err(|error| broken(error.to_string()))?;
        let facts: StoreFacts = serde_json::from_slice(&bytes).map_err(|error| broken(error.to_string()))?;
        if facts.version != FACTS_VERSION {
            return Err(broken(format!("version {} of its facts is unknown", facts.version)));
        }
        Ok(Self { git: git.clone(), git_dir: dir.to_owned(), facts })
    }

    /// A command that reads: it sees the store's objects and the user's. It must write no object.
    pub fn command<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> GitCommand {
        self.git.command(args).git_dir(&self.git_dir).dir(&self.git_dir).env("GIT_ALLOW_PROTOCOL", "none")
    }

    /// A place for new objects, which join the store only when all went well.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn quarantine(&self) -> Result<Quarantine<'_>, WorkspaceError> {
        let dir = tempfile::Builder::new()
            .prefix("incoming-")
            .tempdir_in(&self.git_dir)
            .map_err(FileError::at("create a directory in", &self.git_dir))?;
        let objects = dir.path().join("objects");
        fs::create_dir(&objects).map_err(FileError::at("create", &objects))?;
        Ok(Quarantine { store: self, mirror: self.mirror_objects(), durability: Durability::from_env(), dir })
    }

    /// The commit and tree that a commit id means in the store.
    ///
    /// # Errors
    /// It is none.
    pub fn base(&self, commit: &str) -> Result<Base, WorkspaceError> {
        let tree = self.command(["rev-parse", "--verify", "--quiet"]).arg(format!("{commit}^{{tree}}")).run()?.text();
        Ok(Base { commit: commit.to_owned(), tree })
    }

    /// Bytes that a checkout of `tree` takes, without block sizes and git's own files.
    ///
    /// # Errors
    /// Git fails.
    pub fn checkout_bytes(&self, tree: &str) -> Result<u64, WorkspaceError> {
        let listed = self.command(["ls-tree", "-r", "--format=%(objectsize)", tree]).run()?;
        Ok(encode::lossy(&listed.stdout).lines().filter_map(|size| size.parse::<u64>().ok()).sum())
    }

    /// The objects of the mirror that was filled for this store.
    pub(super) fn mirror_objects(&self) -> Option<PathBuf> {
        let path = fs::read(self.git_dir.join(MIRROR_FILE)).ok()?;
        Some(encode::path(&path).join("objects"))
    }

    /// Remembers the mirror, for the commands that write.
    pub(super) fn set_mirror(&self, git_dir: &Path) -> Result<(), FileError> {
        let bytes = git_dir.as_os_str().as_encoded_bytes();
        write_atomically(&self.git_dir.join(MIRROR_FILE), bytes, Durability::Cached)
    }
}

impl StoreFacts {
    fn capture(source: &Source) -> Result<Self, WorkspaceError> {
        let branches: BTreeMap<String, String> = source.branches()?.into_iter().collect();
        Ok(Self {
            version: FACTS_VERSION,
            common_dir: source.common_dir.clone(),
            objects: source.objects.clone(),
            object_format: source.object_format.clone(),
            branch: source.branch.clone().unwrap_or_else(|| free_branch(&branches)),
            branches,
            shallow: source.shallow(),
            partial: source.notes.contains(&super::source::SourceNote::Partial),
            settings: Settings::read(&source.git, &source.git_dir, &source.common_dir)?,
        })
    }

    /// The settings of every repository that prun makes from this one.
    pub(super) fn repository_settings(&self) -> BTreeMap<String, String> {
        let mut settings = self.settings.carried.clone();
        // A warning about line ends must not become a refusal to take a file.
        settings.insert("core.safecrlf".to_owned(), "false".to_owned());
        settings
    }
}

/// A branch name for a detached HEAD that no branch of the user's stands in the way of.
fn free_branch(branches: &BTreeMap<String, String>) -> String {
    let is_free = |name: &String| {
        let below = format!("{name}/");
        !branches.contains_key(name) && !branches.keys().any(|branch| branch.starts_with(&below))
    };
    let names = ["work".to_owned(), "prun-work".to_owned()].into_iter().chain((1..).map(|n| format!("prun-work-{n}")));
    names.map(|name| format!("refs/heads/{name}")).find(is_free).expect("the names do not end")
}

/// New objects on their way into the store. Dropped without [`Quarantine::admit`], they are gone.
#[derive(Debug)]
pub struct Quarantine<'a> {
    store: &'a Store,
    mirror: Option<PathBuf>,
    durability: Durability,
    dir: TempDir,
}

impl Quarantine<'_> {
    /// The same without the mirror: every object is written, also those that are there already.
    #[must_use]
    pub fn without_mirror(self) -> Self {
        Self { mirror: None, ..self }
    }

    /// The store that it belongs to.
    #[must_use]
    pub fn store(&self) -> &Store {
        self.store
    }

    /// A file in the quarantine, for an index.
    #[must_use]
    pub fn file(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// A command that writes objects, here. It reads old ones from the mirror, where there is one.
    pub fn command<'a>(&self, args: impl IntoIterator<Item = &'a str>) -> GitCommand {
        self.store
            .git
            .command(args)
            .git_dir(&self.store.git_dir)
            .dir(&self.store.git_dir)
            .env("GIT_ALLOW_PROTOCOL", "none")
            .env("GIT_OBJECT_DIRECTORY", self.objects())
            .env("GIT_ALTERNATE_OBJECT_DIRECTORIES", encode::alternates_variable(self.mirror.as_deref()))
            .config(match self.durability {
                Durability::Synced => "core.fsync=loose-object",
                Durability::Cached => "core.fsync=none",
            })
            .config("core.fsyncMethod=batch")
    }

    /// Moves every object into the store; they survive a power cut from then on. Several may do so at once. Commands that write packs do not belong
    /// here: an index must not arrive before its pack.
    ///
    /// # Errors
    /// A rename fails; what was moved by then is complete and does no harm.
    pub fn admit(self) -> Result<(), WorkspaceError> {
        let target = self.store.git_dir.join("objects");
        for dir in entries(&self.objects())? {
            let Some(name) = dir.file_name().filter(|name| *name != "info") else { continue };
            let into = target.join(name);
            fs::create_dir_all(&into).map_err(FileError::at("create", &into))?;
            for object in entries(&dir)? {
                let Some(name) = object.file_name() else { continue };
                // The same object may be there already; its content is the same by its name.
                fs::rename(&object, into.join(name)).map_err(FileError::at("move", &object))?;
            }
            if self.durability == Durability::Synced {
                sync_dir(&into)?;
            }
        }
        if self.durability == Durability::Synced {
            sync_dir(&target)?;
        }
        Ok(())
    }

    fn objects(&self) -> PathBuf {
        self.dir.path().join("objects")
    }
}

fn entries(dir: &Path) -> Result<Vec<PathBuf>, FileError> {
    let read = fs::read_dir(dir).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    Ok(read.map_err(FileError::at("read", dir))?.into_iter().map(|entry| entry.path()).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_detached_clone_gets_a_branch_that_clashes_with_none() {
        let branches =
            |names: &[&str]| names.iter().map(|name| (format!("refs/heads/{name}"), String::new())).collect();
        assert_eq!(free_branch(&branches(&["main"])), "refs/heads/work");
        assert_eq!(free_branch(&branches(&["work/x"])), "refs/heads/prun-work");
        assert_eq!(free_branch(&branches(&["work", "prun-work"])), "refs/heads/prun-work-1");
    }
}
