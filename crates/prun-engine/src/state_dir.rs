//! The state dir `prun-task-…` of one attempt: made by its dispatcher, read by everybody else.
//!
//! The entries that the contract names are text files with a final newline; `identity.json` and
//! `facts.json` stand beside them. Nothing in a state dir is executed, or trusted as a path unchecked.

use std::fmt::Write as _;
use std::fs::{DirBuilder, File, TryLockError};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use prun_core::event::ProcessIdentity;
use prun_core::ids::UnitId;
use prun_core::outcome::AttemptFacts;
use serde::{Deserialize, Serialize};

use crate::files::{Durability, FileError, read_regular, write_atomically};
use crate::home::sha256_hex;

/// How the name of every state dir begins.
pub const NAME_PREFIX: &str = "prun-task-";

/// The entry that names the worker's working directory.
pub const CWD_ENTRY: &str = "cwd";

/// The version of the `identity.json` format.
pub const IDENTITY_VERSION: u32 = 1;

/// No entry that is read whole is larger. A tail or a result is not read through this.
const ENTRY_LIMIT: u64 = 16 * 1024 * 1024;

/// One state dir.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StateDir {
    root: PathBuf,
}

/// Who works on an attempt, as its dispatcher recorded it: what recovery needs to find them again.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Identity {
    /// [`IDENTITY_VERSION`].
    pub version: u32,
    /// The dispatcher.
    pub dispatcher: ProcessIdentity,
    /// The worker's leader; `None` before it is started, and for a session unit.
    pub worker: Option<ProcessIdentity>,
    /// Names of the containment in force: `cgroup`, `subreaper`, `token`.
    pub containment: Vec<String>,
    /// The worker's control group, where it has one.
    pub cgroup: Option<PathBuf>,
    /// What its processes see read-only; empty: nothing.
    #[serde(default)]
    pub read_only: Vec<PathBuf>,
    /// The value of [`TOKEN_VARIABLE`](crate::contain::TOKEN_VARIABLE) for the worker and what it starts.
    pub token: String,
}

impl StateDir {
    /// The state dir at `root`.
    #[must_use]
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Makes a new one in `parent`: `prun-task-<8 hex of the working directory>-<unit>-<pid>-<16 hex>`.
    /// Two calls never share one.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn create(parent: &Path, caller_dir: &Path, unit: &UnitId) -> Result<Self, FileError> {
        let random = random_hex::<8>().map_err(FileError::at("name a state dir in", parent))?;
        let root = parent.join(name(caller_dir, unit, std::process::id(), &random));
        DirBuilder::new().mode(0o700).create(&root).map_err(FileError::at("create the state dir", &root))?;
        Ok(Self { root })
    }

    /// Holds it for its dispatcher: the lock lasts until the dispatcher is gone and what it was starting has become
    /// its program. `None` where the file system has no locks.
    #[must_use]
    pub fn hold(&self) -> Option<File> {
        let dir = File::open(&self.root).ok()?;
        dir.try_lock().is_ok().then_some(dir)
    }

    /// Whether anybody holds it. What cannot be told counts as nobody.
    #[must_use]
    pub fn is_held(&self) -> bool {
        let held = |dir: File| matches!(dir.try_lock_shared(), Err(TryLockError::WouldBlock));
        File::open(&self.root).is_ok_and(held)
    }

    /// The directory itself.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The worker's output.
    #[must_use]
    pub fn tail(&self) -> PathBuf {
        self.root.join("tail")
    }

    /// The stdout of a structured executor, as bytes.
    #[must_use]
    pub fn events(&self) -> PathBuf {
        self.root.join("events.jsonl")
    }

    /// The stderr of a client whose log tells of its progress; what it says to people goes on into the tail.
    #[must_use]
    pub fn client_log(&self) -> PathBuf {
        self.root.join("client.log")
    }

    /// Where the client writes its last message.
    #[must_use]
    pub fn last_message(&self) -> PathBuf {
        self.root.join("last-message")
    }

    /// The default working directory.
    #[must_use]
    pub fn work(&self) -> PathBuf {
        self.root.join("work")
    }

    /// A file that stood at the result's path before the dispatch and is not the worker's.
    #[must_use]
    pub fn result_before(&self) -> PathBuf {
        self.root.join("result.before")
    }

    /// The result, where it could not be written at the path that was asked for.
    #[must_use]
    pub fn misplaced_result(&self) -> PathBuf {
        self.root.join("result.md")
    }

    /// The harvest against the base.
    #[must_use]
    pub fn changes(&self) -> PathBuf {
        self.root.join("changes.json")
    }

    /// The output of a command that ran beside the worker: `setup` or `verify`.
    #[must_use]
    pub fn check_log(&self, name: &str) -> PathBuf {
        self.root.join(format!("{name}.log"))
    }

    /// Who works on it.
    #[must_use]
    pub fn identity(&self) -> PathBuf {
        self.root.join("identity.json")
    }

    /// How it ended. Its presence means settled.
    #[must_use]
    pub fn facts(&self) -> PathBuf {
        self.root.join("facts.json")
    }

    /// Writes one of the contract's entries: `value` and a newline.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write_entry(&self, name: &str, value: &[u8]) -> Result<(), FileError> {
        let path = self.root.join(name);
        let mut text = value.to_vec();
        text.push(b'\n');
        std::fs::write(&path, text).map_err(FileError::at("write", &path))
    }

    /// Writes who works on it, whole or not at all. It need not survive a power cut: no process does.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write_identity(&self, identity: &Identity) -> Result<(), FileError> {
        write_json(&self.identity(), identity, Durability::Cached)
    }

    /// Writes how it ended: the last thing that a dispatcher does.
    ///
    /// # Errors
    /// It cannot be written.
    pub fn write_facts(&self, facts: &AttemptFacts, durability: Durability) -> Result<(), FileError> {
        write_json(&self.facts(), facts, durability)
    }
}

/// One of the contract's entries without its final newline.
///
/// # Errors
/// It is no regular file, or cannot be read.
pub fn read_entry(state_dir: &Path, name: &str) -> Result<Vec<u8>, FileError> {
    let path = state_dir.join(name);
    let mut bytes = read_regular(&path, ENTRY_LIMIT).map_err(FileError::at("read", &path))?;
    if bytes.ends_with(b"\n") {
        bytes.pop();
    }
    Ok(bytes)
}

/// The unit that the name of a state dir names.
#[must_use]
pub fn unit_of(state_dir: &Path) -> Option<UnitId> {
    let name = state_dir.file_name()?.to_str()?.strip_prefix(NAME_PREFIX)?;
    // A unit id may hold dashes itself; what stands around it does not.
    let (_, rest) = name.split_once('-')?;
    let mut parts = rest.rsplitn(3, '-').skip(2);
    parts.next()?.parse().ok()
}

/// Reads who works on an attempt.
///
/// # Errors
/// It was never written, or cannot be read or understood.
pub fn read_identity(state_dir: &Path) -> Result<Identity, FileError> {
    read_json(&StateDir::at(state_dir).identity())
}

/// Reads how an attempt ended.
///
/// # Errors
/// It was never written (the attempt is not settled), or cannot be read or understood.
pub fn read_facts(state_dir: &Path) -> Result<AttemptFacts, FileError> {
    read_json(&StateDir::at(state_dir).facts())
}

/// The state dir in an attempt's directory; the newest where there are several.
#[must_use]
pub fn find_in(attempt_dir: &Path) -> Option<PathBuf> {
    let found = std::fs::read_dir(attempt_dir).ok()?.flatten().filter(|entry| {
        entry.file_name().as_bytes().starts_with(NAME_PREFIX.as_bytes())
            && entry.file_type().is_ok_and(|kind| kind.is_dir())
    });
    found.max_by_key(|entry| entry.metadata().and_then(|meta| meta.modified()).ok()).map(|entry| entry.path())
}

/// The one name of a result's path: with links and `..` resolved. The file itself need not exist, nor what a link
/// leads to.
#[must_use]
pub fn canonical_result(path: &Path) -> PathBuf {
    /// No longer chain of links is followed by the kernel.
    const LINKS: usize = 40;
    let mut found = path.to_owned();
    for _ in 0..LINKS {
        if let Some((dir, name)) = found.parent().and_then(|dir| dir.canonicalize().ok()).zip(found.file_name()) {
            found = dir.join(name);
        }
        let Ok(target) = std::fs::read_link(&found) else { break };
        found = found.parent().map_or_else(|| target.clone(), |dir| dir.join(&target));
    }
    found
}

/// `N` random bytes in hex.
///
/// # Errors
/// The system has no randomness to give.
pub fn random_hex<const N: usize>() -> io::Result<String> {
    let mut bytes = [0_u8; N];
    getrandom::fill(&mut bytes).map_err(|error| io::Error::other(error.to_string()))?;
    Ok(bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing into a string cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    }))
}

fn name(caller_dir: &Path, unit: &UnitId, pid: u32, random: &str) -> String {
    let hash = sha256_hex(caller_dir.as_os_str().as_bytes());
    format!("{NAME_PREFIX}{}-{unit}-{pid}-{random}", &hash[..8])
}

fn write_json(path: &Path, value: &impl Serialize, durability: Durability) -> Result<(), FileError> {
    let mut text = serde_json::to_vec(value).map_err(io::Error::from).map_err(FileError::at("write", path))?;
    text.push(b'\n');
    write_atomically(path, &text, durability)
}

fn read_json<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, FileError> {
    let bytes = read_regular(path, ENTRY_LIMIT).map_err(FileError::at("read", path))?;
    serde_json::from_slice(&bytes).map_err(io::Error::from).map_err(FileError::at("understand", path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unit() -> UnitId {
        "u1".parse().unwrap()
    }

    #[test]
    fn a_state_dir_is_named_as_the_contract_says() {
        let hash = &sha256_hex(b"/here")[..8];
        assert_eq!(
            name(Path::new("/here"), &unit(), 77, "0123456789abcdef"),
            format!("prun-task-{hash}-u1-77-0123456789abcdef")
        );
    }

    #[test]
    fn the_unit_is_read_from_the_name() {
        let named = |name: &str| unit_of(Path::new(name)).map(|unit| unit.to_string());
        assert_eq!(named("/tmp/prun-task-0a1b2c3d-u1-77-0123456789abcdef").as_deref(), Some("u1"));
        assert_eq!(named("/tmp/prun-task-0a1b2c3d-a-b-c-77-0123456789abcdef").as_deref(), Some("a-b-c"));
        assert_eq!(named("/tmp/other"), None);
    }

    #[test]
    fn two_dispatches_never_share_a_state_dir() {
        let parent = tempfile::tempdir().unwrap();
        let one = StateDir::create(parent.path(), Path::new("/x"), &unit()).unwrap();
        let two = StateDir::create(parent.path(), Path::new("/x"), &unit()).unwrap();
        assert_ne!(one, two);
        assert_eq!(find_in(parent.path()).map(|found| found.starts_with(parent.path())), Some(true));
        assert!(StateDir::create(Path::new("/nowhere/at/all"), Path::new("/x"), &unit()).is_err());
    }

    #[test]
    fn a_state_dir_is_held_until_its_dispatcher_is_gone() {
        let parent = tempfile::tempdir().unwrap();
        let dir = StateDir::create(parent.path(), Path::new("/x"), &unit()).unwrap();
        assert!(!dir.is_held());
        let held = dir.hold();
        assert!(held.is_some() && dir.is_held() && dir.hold().is_none());
        drop(held);
        assert!(!dir.is_held());
        assert!(!StateDir::at("/nowhere/at/all").is_held());
    }

    #[test]
    fn an_identity_is_read_back() {
        let parent = tempfile::tempdir().unwrap();
        let dir = StateDir::create(parent.path(), Path::new("/x"), &unit()).unwrap();
        assert!(read_identity(dir.root()).is_err());
        let identity = Identity {
            version: IDENTITY_VERSION,
            dispatcher: crate::process::own_identity(),
            worker: None,
            containment: vec!["token".to_owned()],
            cgroup: None,
            read_only: Vec::new(),
            token: random_hex::<16>().unwrap(),
        };
        dir.write_identity(&identity).unwrap();
        assert_eq!(read_identity(dir.root()).unwrap(), identity);
        assert!(read_facts(dir.root()).is_err());
    }

    #[test]
    fn a_result_path_is_told_by_where_it_really_is() {
        let dir = tempfile::tempdir().unwrap();
        let real = dir.path().canonicalize().unwrap();
        std::fs::create_dir(real.join("sub")).unwrap();
        std::os::unix::fs::symlink(&real, real.join("sub/link")).unwrap();
        assert_eq!(canonical_result(&real.join("sub/link/out.md")), real.join("out.md"));
        assert_eq!(canonical_result(Path::new("/nowhere/out.md")), Path::new("/nowhere/out.md"));
        std::os::unix::fs::symlink("../out.md", real.join("sub/to-be")).unwrap();
        assert_eq!(canonical_result(&real.join("sub/to-be")), real.join("out.md"), "a link to what is not there yet");
        std::os::unix::fs::symlink("loop", real.join("loop")).unwrap();
        assert_eq!(canonical_result(&real.join("loop")), real.join("loop"));
    }
}
