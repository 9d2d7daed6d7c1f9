//! Where everything lives: path arithmetic only. Nothing here creates or reads a file.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use prun_core::ids::{Attempt, RunId, UnitId};
use sha2::{Digest, Sha256};

/// The directory that holds all of one user's runs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home {
    root: PathBuf,
}

/// No place for a home could be told from the environment.
#[derive(Debug, thiserror::Error)]
pub enum NoHome {
    /// No variable tells.
    #[error("cannot tell where prun's home is: none of PRUN_HOME, XDG_STATE_HOME and HOME is an absolute path")]
    Untold,
    /// What was said would mean another place in each directory.
    #[error("cannot use the home {}: PRUN_HOME is no absolute path", .0.display())]
    Relative(PathBuf),
}

impl Home {
    /// A home at `root`.
    #[must_use]
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The home that the environment names: `$PRUN_HOME`, else `$XDG_STATE_HOME/prun`, else
    /// `$HOME/.local/state/prun`. Relative values of the last two are ignored, as the XDG rules say.
    ///
    /// # Errors
    /// No variable names an absolute path, or `$PRUN_HOME` another one.
    pub fn from_env(var: impl Fn(&str) -> Option<OsString>) -> Result<Self, NoHome> {
        let absolute = |name: &str| var(name).map(PathBuf::from).filter(|path| path.is_absolute());
        match var("PRUN_HOME").filter(|root| !root.is_empty()).map(PathBuf::from) {
            Some(root) if root.is_absolute() => return Ok(Self { root }),
            Some(root) => return Err(NoHome::Relative(root)),
            None => {}
        }
        if let Some(state) = absolute("XDG_STATE_HOME") {
            return Ok(Self { root: state.join("prun") });
        }
        absolute("HOME").map(|home| Self { root: home.join(".local/state/prun") }).ok_or(NoHome::Untold)
    }

    /// The directory itself.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The directory that holds the runs.
    #[must_use]
    pub fn runs(&self) -> PathBuf {
        self.root.join("runs")
    }

    /// One run's directory.
    #[must_use]
    pub fn run(&self, run: &RunId) -> RunDir {
        RunDir { root: self.runs().join(run.as_str()) }
    }

    /// Where `gather` finds the attempt that writes `result` (absolute).
    #[must_use]
    pub fn by_result(&self, result: &Path) -> PathBuf {
        self.root.join("by-result").join(sha256_hex(result.as_os_str().as_encoded_bytes()))
    }

    /// The object mirror of the repository whose common git directory is `common_dir`.
    #[must_use]
    pub fn mirror(&self, common_dir: &Path) -> PathBuf {
        let hash = sha256_hex(common_dir.as_os_str().as_encoded_bytes());
        self.root.join("cache/mirrors").join(format!("{}.git", &hash[..16]))
    }

    /// What is remembered of the clone that `prun clone` made at `dir` (absolute, links resolved).
    #[must_use]
    pub fn clone_record(&self, dir: &Path) -> PathBuf {
        self.root.join("clones").join(&sha256_hex(dir.as_os_str().as_encoded_bytes())[..16])
    }

    /// Lock files of plans that are being started.
    #[must_use]
    pub fn starting(&self) -> PathBuf {
        self.root.join("starting")
    }

    /// Lock files for the slots of executor accounts.
    #[must_use]
    pub fn slots(&self) -> PathBuf {
        self.root.join("slots")
    }
}

/// Below a run's directory: the attempts of its units.
const UNITS: &str = "units";

/// One run's directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RunDir {
    root: PathBuf,
}

impl RunDir {
    /// The run directory at `root`.
    #[must_use]
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The directory itself.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The plan as it was accepted, every default filled in, prompts included.
    #[must_use]
    pub fn plan(&self) -> PathBuf {
        self.root.join("plan.json")
    }

    /// The ledger.
    #[must_use]
    pub fn ledger(&self) -> PathBuf {
        self.root.join("ledger.db")
    }

    /// What the run was started with: the ledger's first event, kept beside it.
    #[must_use]
    pub fn setup(&self) -> PathBuf {
        self.root.join("setup.json")
    }

    /// The lock whose holder writes the ledger.
    #[must_use]
    pub fn supervisor_lock(&self) -> PathBuf {
        self.root.join("supervisor.lock")
    }

    /// What the supervisor prints.
    #[must_use]
    pub fn supervisor_log(&self) -> PathBuf {
        self.root.join("supervisor.log")
    }

    /// What the user wants done beside the run.
    #[must_use]
    pub fn wishes(&self) -> PathBuf {
        self.root.join("wishes.json")
    }

    /// The output of the user's own commands.
    #[must_use]
    pub fn hooks_log(&self) -> PathBuf {
        self.root.join("hooks.log")
    }

    /// What went wrong with the user's wish of that name.
    #[must_use]
    pub fn wish_trouble(&self, name: &str) -> PathBuf {
        self.root.join(format!("{name}.failed"))
    }

    /// The run's own bare object store: harvested trees, a carried dirty base, combinations. Its
    /// alternates are the user's objects; no worker is ever told of it.
    #[must_use]
    pub fn store(&self) -> PathBuf {
        self.root.join("store.git")
    }

    /// The user's repository as it was when the run started.
    #[must_use]
    pub fn fingerprint(&self) -> PathBuf {
        self.root.join("fingerprint.json")
    }

    /// The directory that holds the landings.
    #[must_use]
    pub fn landings(&self) -> PathBuf {
        self.root.join("landings")
    }

    /// The directory of one landing: its journal, and what `undo` puts back.
    #[must_use]
    pub fn landing(&self, number: u32) -> PathBuf {
        self.landings().join(number.to_string())
    }

    /// The directory of an attempt, relative to this one.
    #[must_use]
    pub fn attempt_name(unit: &UnitId, attempt: Attempt) -> String {
        format!("{UNITS}/{unit}/{attempt}")
    }

    /// The directory of an attempt that an event names.
    #[must_use]
    pub fn attempt(&self, name: &str) -> AttemptDir {
        AttemptDir { root: self.root.join(name) }
    }

    /// Where the attempts of all units are. It is there once the first attempt is made ready.
    #[must_use]
    pub fn units(&self) -> PathBuf {
        self.root.join(UNITS)
    }
}

/// The directory of one attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AttemptDir {
    root: PathBuf,
}

impl AttemptDir {
    /// The attempt directory at `root`.
    #[must_use]
    pub fn at(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// The directory itself.
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The fence: locked while anybody of this attempt lives.
    #[must_use]
    pub fn lock(&self) -> PathBuf {
        self.root.join("lock")
    }

    /// Written by a successor that found the fence free.
    #[must_use]
    pub fn fenced(&self) -> PathBuf {
        self.root.join("fenced")
    }

    /// What to run.
    #[must_use]
    pub fn spec(&self) -> PathBuf {
        self.root.join("spec.json")
    }

    /// The prompt as the worker gets it.
    #[must_use]
    pub fn prompt(&self) -> PathBuf {
        self.root.join("prompt.md")
    }

    /// The result, where the plan names no other place.
    #[must_use]
    pub fn result(&self) -> PathBuf {
        self.root.join("result.md")
    }

    /// The worker's clone (write units).
    #[must_use]
    pub fn clone_dir(&self) -> PathBuf {
        self.root.join("clone")
    }

    /// The worker's scratch directory (read units); the checkout is `repo/` in it.
    #[must_use]
    pub fn scratch(&self) -> PathBuf {
        self.root.join("scratch")
    }

    /// The index as prepared, outside the worker's reach.
    #[must_use]
    pub fn trusted_index(&self) -> PathBuf {
        self.root.join("trusted.index")
    }

    /// What the dispatcher tells the supervisor while it lives: one JSON object a line.
    #[must_use]
    pub fn notes(&self) -> PathBuf {
        self.root.join("notes.jsonl")
    }

    /// Written by `prun submit` for a session unit.
    #[must_use]
    pub fn submitted(&self) -> PathBuf {
        self.root.join("submitted")
    }
}

/// SHA-256 in lower-case hex.
#[must_use]
pub fn sha256_hex(bytes: &[u8]) -> String {
    Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn home(vars: &[(&str, &str)]) -> Option<PathBuf> {
        let vars: Vec<(String, OsString)> = vars.iter().map(|(k, v)| ((*k).into(), (*v).into())).collect();
        Home::from_env(|name| vars.iter().find(|(key, _)| key == name).map(|(_, value)| value.clone()))
            .ok()
            .map(|home| home.root)
    }

    #[test]
    fn the_first_absolute_variable_names_the_home() {
        assert_eq!(home(&[("PRUN_HOME", "/p"), ("HOME", "/h")]), Some("/p".into()));
        assert_eq!(home(&[("XDG_STATE_HOME", "/x"), ("HOME", "/h")]), Some("/x/prun".into()));
        assert_eq!(home(&[("XDG_STATE_HOME", "rel"), ("HOME", "/h")]), Some("/h/.local/state/prun".into()));
        assert_eq!(home(&[("PRUN_HOME", ""), ("HOME", "/h")]), Some("/h/.local/state/prun".into()));
        assert_eq!(home(&[("PRUN_HOME", "rel"), ("HOME", "/h")]), None);
        assert_eq!(home(&[]), None);
    }
}
