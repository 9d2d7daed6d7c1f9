//! The user's repository, only ever read.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::{Base, encode};
use crate::files::read_regular;
use crate::git::{Git, GitCommand, GitError, GitOutput};

/// The user's repository.
#[derive(Clone, Debug)]
pub struct Source {
    /// The git that reads it.
    pub git: Git,
    /// The top of its work tree; for a bare repository its git directory.
    pub top: PathBuf,
    /// The directory that was named, relative to `top`; empty for the top itself.
    pub prefix: PathBuf,
    /// The git directory of this checkout.
    pub git_dir: PathBuf,
    /// The git directory that all its worktrees share.
    pub common_dir: PathBuf,
    /// Its objects, links resolved.
    pub objects: PathBuf,
    /// `sha1` or `sha256`.
    pub object_format: String,
    /// It has no work tree: read units can use it, nothing can land in it.
    pub is_bare: bool,
    /// The branch that HEAD is on, a full ref name; `None` when detached.
    pub branch: Option<String>,
    /// What it is in the middle of.
    pub operation: Option<Operation>,
    /// What is peculiar about it.
    pub notes: Vec<SourceNote>,
}

/// An operation that a repository can be in the middle of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operation {
    /// A merge.
    Merge,
    /// A rebase, or `git am`.
    Rebase,
    /// A cherry-pick.
    CherryPick,
    /// A revert.
    Revert,
    /// A bisect.
    Bisect,
}

impl std::fmt::Display for Operation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Merge => "merge",
            Self::Rebase => "rebase",
            Self::CherryPick => "cherry-pick",
            Self::Revert => "revert",
            Self::Bisect => "bisect",
        })
    }
}

/// Something about a repository that limits what units see.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceNote {
    /// Its history is cut off.
    Shallow,
    /// Some of its objects are only at a remote.
    Partial,
    /// Its work tree shows a part of the files; units get all of them.
    Sparse,
    /// It has submodules.
    Submodules,
    /// It has no work tree.
    Bare,
}

impl SourceNote {
    /// One sentence for the user.
    #[must_use]
    pub fn sentence(self) -> &'static str {
        match self {
            Self::Shallow => "the repository is shallow: units see its history only as far as it is there",
            Self::Partial => "the repository is a partial clone: units see only the history that is on this machine",
            Self::Sparse => "the checkout is sparse: units get every file of the base",
            Self::Submodules => "the repository has submodules: units get those that are checked out here",
            Self::Bare => "the repository is bare: `prun diff` shows what units changed, and nothing can land in it",
        }
    }
}

/// A repository that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum SourceError {
    /// The path is not there.
    #[error("cannot open the repository {}: {source}", path.display())]
    Path {
        /// The path.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// It is in no repository.
    #[error("{} is not in a git repository", .0.display())]
    NotARepository(PathBuf),
    /// It is inside a git directory.
    #[error("{} is inside a git directory, not in a work tree", .0.display())]
    InsideGitDir(PathBuf),
    /// It has no commit at all.
    #[error("the repository {} has no commits yet: make an initial commit", .0.display())]
    NoCommits(PathBuf),
    /// Git refuses it because somebody else owns it.
    #[error("git refuses the repository {} because user {owner} owns it", path.display())]
    Ownership {
        /// The path.
        path: PathBuf,
        /// The owner's user id.
        owner: u32,
    },
    /// A revision that does not exist.
    #[error("{rev:?} names no commit in {}", path.display())]
    NoSuchRevision {
        /// What was asked for.
        rev: String,
        /// The repository.
        path: PathBuf,
    },
    /// A base of which files are missing.
    #[error("the base {base} is not complete in {}: this partial clone lacks some of its files", path.display())]
    IncompleteBase {
        /// The commit.
        base: String,
        /// The repository.
        path: PathBuf,
    },
    /// Git failed.
    #[error(transparent)]
    Git(#[from] GitError),
}

impl Source {
    /// Looks at the innermost repository that holds `path`.
    ///
    /// # Errors
    /// The path is not there or in no repository, git is too old or refuses the owner, or there is no commit.
    pub fn open(git: &Git, path: &Path) -> Result<Self, SourceError> {
        git.version()?;
        let path = path.canonicalize().map_err(|source| SourceError::Path { path: path.to_owned(), source })?;
        let git_dir = absolute(&ask(git, &path, "--absolute-git-dir")?.ok_or_else(|| refusal(&path))?, &path);
        let is_bare = ask(git, &path, "--is-bare-repository")?.is_some_and(|said| said == b"true");
        let (top, prefix) = if is_bare {
            (git_dir.clone(), PathBuf::new())
        } else {
            let top = ask(git, &path, "--show-toplevel")?.filter(|top| !top.is_empty());
            let top = absolute(&top.ok_or_else(|| SourceError::InsideGitDir(path.clone()))?, &path);
            let prefix = path.strip_prefix(&top).unwrap_or(Path::new("")).to_owned();
            (top, prefix)
        };
        let command = |args: &[&str]| git.command(args).git_dir(&git_dir).dir(&top);
        let common_dir = absolute(&line(command(&["rev-parse", "--git-common-dir"]).run()?), &top);
        let objects = absolute(&line(command(&["rev-parse", "--git-path", "objects"]).run()?), &top);
        let object_format = command(&["rev-parse", "--show-object-format"]).run()?.text();
        let branch = command(&["symbolic-ref", "--quiet", "HEAD"]).run_accepting(&[0, 1])?.text();
        let mut source = Self {
            git: git.clone(),
            operation: operation(&git_dir),
            notes: Vec::new(),
            top,
            prefix,
            objects,
            object_format,
            is_bare,
            branch: Some(branch).filter(|name| name.starts_with("refs/heads/")),
            git_dir,
            common_dir,
        };
        source.refuse_without_commits()?;
        source.notes = source.find_notes()?;
        Ok(source)
    }

    /// A command on this repository, by its git directory. Such a command must only read.
    pub fn command(&self, args: &[&str]) -> GitCommand {
        self.git.command(args).git_dir(&self.git_dir).dir(&self.top).env("GIT_ALLOW_PROTOCOL", "none")
    }

    /// The commit and tree that `rev` names.
    ///
    /// # Errors
    /// It names none, or one of which files are missing.
    pub fn resolve(&self, rev: &str) -> Result<Base, SourceError> {
        let missing = || SourceError::NoSuchRevision { rev: rev.to_owned(), path: self.top.clone() };
        let parse = |what: String| -> Result<Option<String>, GitError> {
            let output = self.command(&["rev-parse", "--verify", "--quiet"]).arg(what).run_accepting(&[0, 1, 128])?;
            Ok(Some(output.text()).filter(|id| output.status.success() && is_object_id(id)))
        };
        if rev.is_empty() || rev.starts_with('-') || rev.contains('\0') {
            return Err(missing());
        }
        let commit = parse(format!("{rev}^{{commit}}"))?.ok_or_else(missing)?;
        let tree = parse(format!("{commit}^{{tree}}"))?.ok_or_else(missing)?;
        if self.notes.contains(&SourceNote::Partial) {
            self.refuse_incomplete(&commit, &tree)?;
        }
        Ok(Base { commit, tree })
    }

    /// Its local branches, full ref names with the commits they point at.
    ///
    /// # Errors
    /// Git fails.
    pub fn branches(&self) -> Result<Vec<(String, String)>, GitError> {
        let listed = self.command(&["for-each-ref", "--format=%(objectname) %(refname)", "refs/heads"]).run()?.text();
        Ok(listed.lines().filter_map(|line| line.split_once(' ')).map(|(id, name)| (name.into(), id.into())).collect())
    }

    fn refuse_without_commits(&self) -> Result<(), SourceError> {
        let head = self.command(&["rev-parse", "--verify", "--quiet", "HEAD^{commit}"]).run_accepting(&[0, 1, 128])?;
        if head.status.success() {
            return Ok(());
        }
        let any = self.command(&["for-each-ref", "--count=1", "--format=%(objectname)"]).run()?;
        if any.stdout.is_empty() { Err(SourceError::NoCommits(self.top.clone())) } else { Ok(()) }
    }

    fn refuse_incomplete(&self, commit: &str, tree: &str) -> Result<(), SourceError> {
        let walk =
            self.command(&["rev-list", "--objects", "--quiet", "--no-walk", tree]).run_accepting(&[0, 1, 128])?;
        if walk.status.success() {
            return Ok(());
        }
        Err(SourceError::IncompleteBase { base: commit.to_owned(), path: self.top.clone() })
    }

    fn find_notes(&self) -> Result<Vec<SourceNote>, GitError> {
        let listed = self.command(&["config", "--list", "--name-only", "-z"]).run()?;
        let keys: Vec<&[u8]> = listed.fields().collect();
        let promisor = |key: &&[u8]| key.starts_with(b"remote.") && key.ends_with(b".promisor");
        let sparse = self.command(&["config", "--bool", "core.sparseCheckout"]).run_accepting(&[0, 1])?;
        let facts = [
            (SourceNote::Shallow, self.common_dir.join("shallow").exists()),
            (SourceNote::Partial, keys.contains(&b"extensions.partialclone".as_slice()) || keys.iter().any(promisor)),
            (SourceNote::Sparse, sparse.text() == "true"),
            (SourceNote::Submodules, !self.is_bare && self.top.join(".gitmodules").exists()),
            (SourceNote::Bare, self.is_bare),
        ];
        Ok(facts.into_iter().filter(|(_, holds)| *holds).map(|(note, _)| note).collect())
    }

    /// Where its history is cut off: the content of its `shallow` file.
    pub(super) fn shallow(&self) -> Option<Vec<u8>> {
        read_regular(&self.common_dir.join("shallow"), 64 << 20).ok().filter(|bytes| !bytes.is_empty())
    }
}

/// Whether `id` has the shape of an object id.
pub(super) fn is_object_id(id: &str) -> bool {
    (id.len() == 40 || id.len() == 64) && id.bytes().all(|byte| byte.is_ascii_hexdigit())
}

/// Asks `rev-parse` with git's own discovery and the user's own configuration, in which `safe.directory` counts.
fn ask(git: &Git, path: &Path, question: &str) -> Result<Option<Vec<u8>>, SourceError> {
    let command = git.command(["rev-parse", question]).dir(path).with_user_config();
    let output = command.clone().run_accepting(&[0, 128])?;
    if output.status.success() {
        return Ok(Some(line(output)));
    }
    let said = encode::lossy(&output.stderr);
    if said.contains("dubious ownership") {
        return Err(ownership(path));
    }
    if said.contains("not a git repository") || said.contains("must be run in a work tree") {
        return Ok(None);
    }
    // A broken configuration, for one: git's own words are the best there are.
    Ok(Some(line(command.run()?)))
}

fn refusal(path: &Path) -> SourceError {
    SourceError::NotARepository(path.to_owned())
}

/// Git checks the owners of the work tree, the git file and the git directory; the first foreign one is named.
fn ownership(path: &Path) -> SourceError {
    let me = rustix::process::geteuid().as_raw();
    let owner_of = |path: &Path| path.metadata().ok().map(|meta| meta.uid());
    let top = path.ancestors().find(|dir| dir.join(".git").exists()).unwrap_or(path);
    let owners = [top.to_owned(), top.join(".git")].map(|path| owner_of(&path));
    let owner = owners.into_iter().flatten().find(|owner| *owner != me).unwrap_or(me);
    SourceError::Ownership { path: top.to_owned(), owner }
}

fn operation(git_dir: &Path) -> Option<Operation> {
    let marks = [
        ("rebase-merge", Operation::Rebase),
        ("rebase-apply", Operation::Rebase),
        ("MERGE_HEAD", Operation::Merge),
        ("CHERRY_PICK_HEAD", Operation::CherryPick),
        ("REVERT_HEAD", Operation::Revert),
        ("BISECT_LOG", Operation::Bisect),
    ];
    marks.into_iter().find(|(name, _)| git_dir.join(name).exists()).map(|(_, operation)| operation)
}

fn line(output: GitOutput) -> Vec<u8> {
    let mut bytes = output.stdout;
    if bytes.ends_with(b"\n") {
        bytes.pop();
    }
    bytes
}

fn absolute(bytes: &[u8], dir: &Path) -> PathBuf {
    let path = dir.join(encode::path(bytes));
    path.canonicalize().unwrap_or(path)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::super::testing::{Fixture, gits, state_of, user_git};
    use super::*;

    fn refusal_of(git: &Git, path: &Path) -> String {
        Source::open(git, path).unwrap_err().to_string()
    }

    #[test]
    fn c10_what_is_no_usable_repository_is_refused_by_name() {
        for git in gits() {
            let plain = tempfile::tempdir().unwrap();
            let missing = plain.path().join("missing");
            for (path, part) in [(missing.as_path(), "cannot open"), (plain.path(), "not in a git repository")] {
                let said = refusal_of(&git, path);
                assert!(said.contains(part) && said.contains(path.to_str().unwrap()), "{said}");
            }
            let unborn = Fixture::empty(&git);
            assert!(refusal_of(&git, &unborn.repo).contains("no commits yet: make an initial commit"));
            let said = refusal_of(&git, &unborn.repo.join(".git"));
            assert!(said.contains("inside a git directory"), "{said}");
        }
    }

    #[test]
    fn a_broken_configuration_is_told_in_git_s_words() {
        let fixture = Fixture::new(&gits()[0]);
        fs::write(fixture.repo.join(".git/config"), "[core\n").unwrap();
        let said = refusal_of(&fixture.git, &fixture.repo);
        assert!(said.contains("bad config line 1") && said.contains("user repo"), "{said}");
    }

    #[test]
    fn an_old_git_is_refused() {
        let fixture = Fixture::new(&gits()[0]);
        let fake = fixture.temp.path().join("git");
        fs::write(&fake, "#!/bin/sh\necho git version 2.30.2\n").unwrap();
        fs::set_permissions(&fake, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        assert!(refusal_of(&Git::at(fake), &fixture.repo).contains("2.38"));
    }

    #[test]
    fn c14_a_foreign_owner_is_refused_with_path_and_owner() {
        for git in gits() {
            let fixture = Fixture::new(&git);
            // Only root can give files away.
            if std::os::unix::fs::chown(&fixture.repo, Some(1234), None).is_ok() {
                let said = refusal_of(&git, &fixture.repo);
                assert!(said.contains("user 1234") && said.contains(fixture.repo.to_str().unwrap()), "{said}");
            }
        }
    }

    #[test]
    fn c09_a_subdirectory_leads_to_the_innermost_repository() {
        for git in gits() {
            let fixture = Fixture::new(&git);
            let source = Source::open(&git, &fixture.repo.join("src/deep")).unwrap();
            assert_eq!((source.top, source.prefix), (fixture.repo.clone(), PathBuf::from("src/deep")));
            let inner = fixture.repo.join("src/inner");
            fs::create_dir(&inner).unwrap();
            fs::rename(Fixture::new(&git).repo, inner.join("repo")).unwrap();
            let source = Source::open(&git, &inner.join("repo/src")).unwrap();
            assert_eq!((source.top, source.prefix), (inner.join("repo"), PathBuf::from("src")));
        }
    }

    #[test]
    fn c08_c11_worktrees_submodules_bare_and_detached_ones_are_understood() {
        for git in gits() {
            let fixture = Fixture::new(&git);
            let open = |path: &Path| Source::open(&git, path).unwrap();
            let first = fixture.source().resolve("HEAD").unwrap();
            let linked = fixture.repo.parent().unwrap().join("linked");
            fixture.run(&["worktree", "add", "-q", "-b", "wt", linked.to_str().unwrap()]);
            let source = open(&linked);
            assert_eq!(source.branch.as_deref(), Some("refs/heads/wt"));
            assert_eq!((&source.top, &source.common_dir), (&linked, &fixture.repo.join(".git")));

            let bare = fixture.repo.parent().unwrap().join("bare.git");
            fixture.run(&["clone", "-q", "--bare", ".", bare.to_str().unwrap()]);
            assert!(open(&bare).is_bare && !source.is_bare);
            assert_eq!(open(&bare).resolve("HEAD").unwrap(), first);

            fixture.run(&["submodule", "--quiet", "add", bare.to_str().unwrap(), "mod"]);
            fixture.commit("module");
            let module = open(&fixture.repo.join("mod"));
            assert_eq!(module.top, fixture.repo.join("mod"));
            assert_eq!(module.objects, fixture.repo.join(".git/modules/mod/objects"));
            assert_eq!(module.resolve("HEAD").unwrap(), first);
            assert!(fixture.source().notes.contains(&SourceNote::Submodules));

            fixture.run(&["checkout", "-q", "--detach"]);
            assert_eq!(fixture.source().branch, None);
        }
    }

    #[test]
    fn c06_c07_shallow_partial_and_sparse_ones_are_noted() {
        for git in gits() {
            let fixture = Fixture::new(&git);
            fixture.write("README", "two");
            fixture.commit("second");
            fixture.run(&["config", "uploadpack.allowFilter", "true"]);
            let url = format!("file://{}", fixture.repo.display());
            let dir = fixture.repo.parent().unwrap();
            user_git(&git, dir, &["clone", "-q", "--depth=1", &url, "shallow"]);
            user_git(&git, dir, &["clone", "-q", "--filter=blob:none", &url, "partial"]);
            user_git(&git, dir, &["clone", "-q", "--filter=blob:none", "--no-checkout", &url, "hollow"]);
            fixture.run(&["sparse-checkout", "set", "src"]);
            let notes = |name: &str| Source::open(&git, &dir.join(name)).unwrap().notes;
            assert_eq!(notes("shallow"), [SourceNote::Shallow]);
            assert_eq!(notes("partial"), [SourceNote::Partial]);
            assert_eq!(fixture.source().notes, [SourceNote::Sparse]);
            assert!(Source::open(&git, &dir.join("partial")).unwrap().resolve("HEAD").is_ok());
            let before = state_of(&dir.join("hollow"));
            let said = Source::open(&git, &dir.join("hollow")).unwrap().resolve("HEAD").unwrap_err().to_string();
            assert!(said.contains("not complete"), "{said}");
            assert_eq!(state_of(&dir.join("hollow")), before, "nothing was fetched");
        }
    }

    #[test]
    fn a_revision_that_does_not_exist_is_named() {
        let fixture = Fixture::new(&gits()[0]);
        let source = fixture.source();
        let blob = fixture.run(&["rev-parse", "HEAD:README"]);
        for rev in ["nope", "-rf", "--all", "", "HEAD~9", &blob, "HEAD\nx"] {
            let said = source.resolve(rev).unwrap_err().to_string();
            assert!(said.contains("names no commit"), "{rev:?}: {said}");
        }
        assert_eq!(source.resolve("main").unwrap(), source.resolve("HEAD").unwrap());
    }

    #[test]
    fn an_operation_in_progress_is_told() {
        let fixture = Fixture::new(&gits()[0]);
        assert_eq!(fixture.source().operation, None);
        fixture.run(&["bisect", "start"]);
        assert_eq!(fixture.source().operation, Some(Operation::Bisect));
        fixture.run(&["bisect", "reset"]);
        fixture.run(&["checkout", "-q", "-b", "side"]);
        fixture.write("x", "x");
        fixture.commit("x");
        fixture.run(&["checkout", "-q", "main"]);
        fixture.run(&["merge", "-q", "--no-ff", "--no-commit", "side"]);
        assert_eq!(fixture.source().operation, Some(Operation::Merge));
    }
}
