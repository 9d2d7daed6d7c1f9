//! A user's repository and a home, for the tests of this module.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use prun_core::outcome::Changes;
use tempfile::TempDir;

use super::clone::{ClonePlan, prepare};
use super::harvest::{HarvestError, harvest};
use super::source::Source;
use super::store::Store;
use super::{Base, mirror};
use crate::git::Git;
use crate::home::{Home, sha256_hex};
use crate::spec::HarvestSpec;

/// Every git on the `PATH`.
pub(super) fn gits() -> Vec<Git> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut found: Vec<PathBuf> =
        std::env::split_paths(&path).filter_map(|dir| dir.join("git").canonicalize().ok()).collect();
    found.sort();
    found.dedup();
    assert!(!found.is_empty(), "the tests need git");
    found.into_iter().map(Git::at).collect()
}

/// Says that a test cannot run on this machine, and why; an error where nothing may be left out.
pub(super) fn left_out(what: &str, why: &dyn std::fmt::Display) {
    assert!(std::env::var_os("PRUN_TEST_REQUIRE_ALL").is_none_or(|value| value != "1"), "{what}: {why}");
    eprintln!("LEFT OUT: {what}: {why}");
}

/// A user's repository with a home beside it.
pub(super) struct Fixture {
    pub(super) git: Git,
    pub(super) temp: TempDir,
    pub(super) repo: PathBuf,
}

/// One prepared clone.
pub(super) struct Prepared {
    pub(super) store: Store,
    pub(super) base: Base,
    pub(super) clone: PathBuf,
    pub(super) spec: HarvestSpec,
}

impl Fixture {
    /// A repository with a few files of every kind and one commit.
    pub(super) fn new(git: &Git) -> Self {
        Self::with_format(git, "sha1")
    }

    /// The same with object ids of this format.
    pub(super) fn with_format(git: &Git, format: &str) -> Self {
        let fixture = Self::empty(git);
        if format != "sha1" {
            fs::remove_dir_all(fixture.repo.join(".git")).unwrap();
            fixture.init(format);
        }
        fixture.write("README", "hello\n");
        fixture.write("src/a.rs", "fn a() {}\n");
        fixture.write("src/deep/b.rs", "fn b() {}\n");
        fixture.write("run.sh", "#!/bin/sh\n");
        fs::set_permissions(fixture.repo.join("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
        fixture.write(".gitignore", "target/\n*.log\n");
        fixture.write("empty", "");
        std::os::unix::fs::symlink("README", fixture.repo.join("link")).unwrap();
        fs::write(fixture.repo.join("bin"), b"\0\x01\x02").unwrap();
        fixture.commit("first");
        fixture
    }

    /// A repository without commits.
    pub(super) fn empty(git: &Git) -> Self {
        let temp = tempfile::tempdir().unwrap();
        let repo = temp.path().canonicalize().unwrap().join("user repo");
        fs::create_dir(&repo).unwrap();
        let fixture = Self { git: git.clone(), temp, repo };
        fixture.init("sha1");
        fixture
    }

    fn init(&self, format: &str) {
        self.run(&["init", "-q", "-b", "main", "--object-format", format]);
        self.run(&["config", "user.name", "Ada"]);
        self.run(&["config", "user.email", "ada@example.org"]);
    }

    pub(super) fn home(&self) -> Home {
        Home::at(self.temp.path().join("home"))
    }

    pub(super) fn write(&self, path: &str, text: &str) {
        put(&self.repo.join(path), text);
    }

    pub(super) fn commit(&self, message: &str) -> String {
        self.run(&["add", "-A"]);
        self.run(&["commit", "-q", "-m", message]);
        self.run(&["rev-parse", "HEAD"])
    }

    /// Runs git in the user's repository, as the user.
    pub(super) fn run(&self, args: &[&str]) -> String {
        user_git(&self.git, &self.repo, args)
    }

    pub(super) fn source(&self) -> Source {
        Source::open(&self.git, &self.repo).unwrap()
    }

    /// A clone at HEAD, named for this test.
    pub(super) fn prepare(&self, name: &str) -> Prepared {
        self.prepare_from(&self.source(), name)
    }

    pub(super) fn prepare_from(&self, source: &Source, name: &str) -> Prepared {
        let run = self.temp.path().join(name);
        fs::create_dir(&run).unwrap();
        let store = Store::create(&run.join("store.git"), source).unwrap();
        let base = source.resolve("HEAD").unwrap();
        self.clone_of(store, base, &run)
    }

    pub(super) fn clone_of(&self, store: Store, base: Base, run: &Path) -> Prepared {
        let mirror = mirror::ensure(&self.home(), &store, &base).unwrap();
        let (clone, trusted_index) = (run.join("clone"), run.join("trusted.index"));
        let template = None;
        let plan = ClonePlan {
            store: &store,
            mirror: &mirror,
            base: &base,
            dir: &clone,
            trusted_index: &trusted_index,
            template,
        };
        prepare(&plan).unwrap();
        let spec = HarvestSpec {
            work_tree: clone.clone(),
            store: store.git_dir.clone(),
            trusted_index,
            base_tree: base.tree.clone(),
            base: base.commit.clone(),
            exclude: Vec::new(),
        };
        Prepared { store, base, clone, spec }
    }
}

impl Prepared {
    pub(super) fn harvest(&self) -> Result<Changes, HarvestError> {
        harvest(&self.store.git, &self.spec)
    }

    pub(super) fn write(&self, path: &str, text: &str) {
        put(&self.clone.join(path), text);
    }

    /// Runs git in the clone, as the worker.
    pub(super) fn run(&self, args: &[&str]) -> String {
        user_git(&self.store.git, &self.clone, args)
    }

    /// Changed paths with a letter for the kind, as `A path`.
    pub(super) fn changed(&self) -> Vec<String> {
        letters(&self.harvest().unwrap())
    }
}

pub(super) fn letters(changes: &Changes) -> Vec<String> {
    let letter = |file: &prun_core::outcome::FileChange| file.kind.to_string()[..1].to_uppercase();
    changes.files.iter().map(|file| format!("{} {}", letter(file), file.path)).collect()
}

pub(super) fn put(path: &Path, text: &str) {
    fs::create_dir_all(path.parent().unwrap()).unwrap();
    fs::write(path, text).unwrap();
}

/// Runs git as a person would, with their clean configuration.
pub(super) fn user_git(git: &Git, dir: &Path, args: &[&str]) -> String {
    let output = Command::new(git.program())
        .args(["-c", "protocol.file.allow=always"])
        .args(args)
        .current_dir(dir)
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .output()
        .unwrap();
    assert!(output.status.success(), "git {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).trim_end().to_owned()
}

/// Mode, time and content of everything below `dir`, its git directory included.
pub(super) fn state_of(dir: &Path) -> BTreeMap<PathBuf, String> {
    let mut state = BTreeMap::new();
    let mut left = vec![dir.to_owned()];
    while let Some(path) = left.pop() {
        let meta = fs::symlink_metadata(&path).unwrap();
        let content = if meta.is_dir() {
            left.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            String::new()
        } else if meta.is_symlink() {
            fs::read_link(&path).unwrap().to_string_lossy().into_owned()
        } else {
            sha256_hex(&fs::read(&path).unwrap())
        };
        state.insert(path, format!("{:o} {}.{} {content}", meta.mode(), meta.mtime(), meta.mtime_nsec()));
    }
    state
}

/// Plants a program that leaves a mark when somebody runs it; returns the program and the mark.
pub(super) fn trap(dir: &Path) -> (PathBuf, PathBuf) {
    let (program, mark) = (dir.join("trap.sh"), dir.join("mark"));
    put(&program, &format!("#!/bin/sh\necho \"$0 $*\" >>'{}'\ncat\n", mark.display()));
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    (program, mark)
}
