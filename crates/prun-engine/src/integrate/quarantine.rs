//! Where sides are combined: a bare repository of its own, in which nothing of anybody's is run.
//!
//! It has its own objects and reads the run's store and the user's objects as alternates. Merges happen
//! in it with an empty working directory, so that no attribute selects a driver. A second git directory
//! beside it carries the user's settings for line ends, modes and encodings, and nothing else of theirs:
//! it reads the working tree and writes checkouts.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::IntegrateError;
use crate::files::{FileError, create_private_dir};
use crate::git::{Git, GitCommand, GitError};

/// The user's checkout that units land in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Its top level.
    pub work_tree: PathBuf,
    /// Its git directory (of the linked worktree, where it is one).
    pub git_dir: PathBuf,
    /// The directory that holds the objects and the configuration; the same as `git_dir` but for linked worktrees.
    pub common_dir: PathBuf,
    /// Its index. It need not exist.
    pub index_file: PathBuf,
    /// The format of its object ids: `sha1` or `sha256`.
    pub object_format: String,
}

impl Target {
    /// The checkout that `dir` is in.
    ///
    /// # Errors
    /// `dir` is in no checkout of a repository.
    pub fn of(git: &Git, dir: &Path) -> Result<Self, GitError> {
        let args = ["rev-parse", "--path-format=absolute", "--show-toplevel", "--git-dir", "--git-common-dir"];
        let output = git.command(args).args(["--git-path", "index", "--show-object-format"]).dir(dir).run()?;
        let mut lines = output.stdout.split(|byte| *byte == b'\n').map(OsStr::from_bytes);
        let mut next = || lines.next().map(PathBuf::from).filter(|path| path.is_absolute());
        let (Some(work_tree), Some(git_dir), Some(common_dir), Some(index_file)) = (next(), next(), next(), next())
        else {
            return Err(super::tree::unexpected("rev-parse", &output.stdout));
        };
        let object_format = lines.next().unwrap_or_default().to_string_lossy().into_owned();
        Ok(Self { work_tree, git_dir, common_dir, index_file, object_format })
    }
}

/// A quarantine repository.
#[derive(Clone, Debug)]
pub struct Quarantine {
    git: Git,
    root: PathBuf,
    settings: Settings,
    /// The format of object ids.
    format: String,
    /// Object directories that are only read: the run's store and the user's.
    sources: [PathBuf; 2],
}

/// What decides how bytes in the working tree correspond to blobs, from the user's configuration.
#[derive(Clone, Debug, Default)]
struct Settings {
    config: Vec<String>,
    drivers: Vec<String>,
    ignore_case: bool,
}

/// The settings that are looked at, as git prints their names.
const LOOKED_AT: &str = "^(core\\.(autocrlf|eol|safecrlf|filemode|symlinks|ignorecase|precomposeunicode|trustctime\
                         |checkstat|bigfilethreshold|attributesfile)|filter\\..*\\.(clean|smudge|process))$";

impl Quarantine {
    /// Makes one in `root`, which must not exist yet.
    ///
    /// # Errors
    /// A directory cannot be made, or git fails.
    pub fn create(git: &Git, root: &Path, store: &Path, target: &Target) -> Result<Self, IntegrateError> {
        create_private_dir(root)?;
        let quarantine = Self::open(git, root, store, target)?;
        create_private_dir(&quarantine.empty())?;
        for dir in [quarantine.bare_dir(), quarantine.settings_dir()] {
            quarantine.init(&dir, true)?;
        }
        write_alternates(&quarantine.bare_dir(), &quarantine.sources)?;
        copy_if_there(&target.common_dir.join("info/attributes"), &quarantine.settings_dir().join("info/attributes"))?;
        Ok(quarantine)
    }

    /// Uses the one that was made in `root` earlier.
    ///
    /// # Errors
    /// The user's settings cannot be read.
    pub fn open(git: &Git, root: &Path, store: &Path, target: &Target) -> Result<Self, IntegrateError> {
        let settings = Settings::of_user(git, &target.git_dir)?;
        let sources = [store.join("objects"), target.common_dir.join("objects")];
        Ok(Self { git: git.clone(), root: root.to_owned(), settings, format: target.object_format.clone(), sources })
    }

    /// A standalone repository at `dir` with the same objects and settings and no remote: a clean clone.
    ///
    /// # Errors
    /// As [`Quarantine::create`].
    pub fn init_stage(&self, dir: &Path) -> Result<(), IntegrateError> {
        create_private_dir(dir)?;
        self.init(dir, false)?;
        let git_dir = dir.join(".git");
        let [store, users] = self.sources.clone();
        write_alternates(&git_dir, &[self.objects(), store, users])?;
        copy_if_there(&self.settings_dir().join("info/attributes"), &git_dir.join("info/attributes"))?;
        for (name, value) in self.settings.config.iter().filter_map(|setting| setting.split_once('=')) {
            self.git.command(["config", name, value]).git_dir(&git_dir).run()?;
        }
        Ok(())
    }

    fn init(&self, dir: &Path, bare: bool) -> Result<(), IntegrateError> {
        let format = format!("--object-format={}", self.format);
        let mut command = self.git.command(["init", "-q", "--template=", &format, "--initial-branch=main"]);
        if bare {
            command = command.arg("--bare");
        }
        command.arg(dir).run()?;
        create_private_dir(&if bare { dir.join("info") } else { dir.join(".git/info") })?;
        Ok(())
    }

    /// A git command in the bare repository, with an empty working directory.
    pub fn bare<A: AsRef<OsStr>>(&self, args: impl IntoIterator<Item = A>) -> GitCommand {
        self.git.command(args).dir(self.empty()).git_dir(self.bare_dir()).keep_times()
    }

    /// A git command that reads or writes the working tree at `dir` by the user's settings. Its objects go
    /// into the quarantine.
    pub fn beside<A: AsRef<OsStr>>(&self, dir: &Path, args: impl IntoIterator<Item = A>) -> GitCommand {
        let mut command = self
            .git
            .command(args)
            .dir(dir)
            .git_dir(self.settings_dir())
            .work_tree(dir)
            .config("core.bare=false")
            .env("GIT_OBJECT_DIRECTORY", self.objects())
            .keep_times();
        for setting in &self.settings.config {
            command = command.config(setting.clone());
        }
        command
    }

    /// A git command in the clean clone at `dir`.
    pub fn in_stage(&self, dir: &Path, args: &[&str]) -> GitCommand {
        self.git.command(args).dir(dir).git_dir(dir.join(".git")).work_tree(dir).keep_times()
    }

    /// A file for passing use.
    #[must_use]
    pub fn scratch_file(&self, name: &str) -> PathBuf {
        self.root.join(name)
    }

    /// The git directory that carries the user's settings.
    #[must_use]
    pub fn settings_dir(&self) -> PathBuf {
        self.root.join("settings.git")
    }

    /// Whether the user's file system takes `a` and `A` for one name.
    #[must_use]
    pub fn ignores_case(&self) -> bool {
        self.settings.ignore_case
    }

    /// Whether the user has configured any program as a filter.
    #[must_use]
    pub fn has_filters(&self) -> bool {
        !self.settings.drivers.is_empty()
    }

    /// Whether the user has configured a program for `filter=name`.
    #[must_use]
    pub fn has_filter(&self, name: &str) -> bool {
        self.settings.drivers.iter().any(|driver| driver == name)
    }

    /// The git that is used.
    #[must_use]
    pub fn git(&self) -> &Git {
        &self.git
    }

    /// Its directory, for [`Quarantine::open`].
    #[must_use]
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The bare repository. It can be the store of a later combination.
    #[must_use]
    pub fn bare_dir(&self) -> PathBuf {
        self.root.join("bare.git")
    }

    fn objects(&self) -> PathBuf {
        self.bare_dir().join("objects")
    }

    fn empty(&self) -> PathBuf {
        self.root.join("empty")
    }
}

impl Settings {
    fn of_user(git: &Git, git_dir: &Path) -> Result<Self, GitError> {
        let read = |args: &[&str]| {
            let command = git.command(["config"]).args(args.iter().copied());
            command.git_dir(git_dir).with_user_config().run_accepting(&[0, 1])
        };
        let mut settings = Self::default();
        let (mut ignores_case, mut names_attributes) = (false, false);
        for field in read(&["-z", "--get-regexp", LOOKED_AT])?.fields() {
            let text = String::from_utf8_lossy(field);
            // A variable without a value means true.
            let (name, value) = text.split_once('\n').unwrap_or((&text, "true"));
            if let Some((driver, _)) = name.strip_prefix("filter.").and_then(|rest| rest.rsplit_once('.')) {
                settings.drivers.push(driver.to_owned());
            } else if name == "core.attributesfile" {
                names_attributes = true;
            } else {
                // None of these names a program.
                ignores_case |= name == "core.ignorecase";
                settings.config.push(format!("{name}={value}"));
            }
        }
        settings.ignore_case = ignores_case && read(&["--type=bool", "--get", "core.ignoreCase"])?.text() == "true";
        let attributes = match names_attributes {
            true => Some(PathBuf::from(read(&["--type=path", "--get", "core.attributesFile"])?.text())),
            false => default_attributes(),
        };
        if let Some(path) = attributes.filter(|path| path.is_file()) {
            settings.config.push(format!("core.attributesFile={}", path.display()));
        }
        // Warnings about line ends would be refusals with `safecrlf=true`.
        settings.config.push("core.safecrlf=false".to_owned());
        Ok(settings)
    }
}

/// Where git looks for the user's attributes when no setting names a file.
fn default_attributes() -> Option<PathBuf> {
    let var = |name| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let config = var("XDG_CONFIG_HOME").or_else(|| var("HOME").map(|home| home.join(".config")))?;
    Some(config.join("git/attributes"))
}

fn write_alternates(git_dir: &Path, sources: &[PathBuf]) -> Result<(), IntegrateError> {
    let mut text = Vec::new();
    for source in sources {
        text.extend_from_slice(&alternate_line(source));
        text.push(b'\n');
    }
    let file = git_dir.join("objects/info/alternates");
    create_private_dir(&git_dir.join("objects/info"))?;
    std::fs::write(&file, text).map_err(FileError::at("write", &file))?;
    Ok(())
}

/// A line of `info/alternates`; git reads a leading `"` as the start of a quoted path and `#` as a comment.
fn alternate_line(path: &Path) -> Vec<u8> {
    let bytes = path.as_os_str().as_bytes();
    if !bytes.contains(&b'\n') && !matches!(bytes.first(), Some(b'"' | b'#')) {
        return bytes.to_vec();
    }
    let mut quoted = vec![b'"'];
    for byte in bytes {
        match byte {
            b'\n' => quoted.extend_from_slice(b"\\n"),
            b'"' | b'\\' => quoted.extend_from_slice(&[b'\\', *byte]),
            _ => quoted.push(*byte),
        }
    }
    quoted.push(b'"');
    quoted
}

fn copy_if_there(from: &Path, to: &Path) -> Result<(), IntegrateError> {
    match std::fs::read(from) {
        Ok(bytes) => Ok(std::fs::write(to, bytes).map_err(FileError::at("write", to))?),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(FileError::at("read", from)(error).into()),
    }
}
