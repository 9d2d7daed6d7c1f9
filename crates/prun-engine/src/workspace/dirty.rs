//! Uncommitted work in the user's repository: what there is, and how it is carried into a base.
//!
//! Everything works on a copy of the user's index, so git has no reason to write theirs.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use super::clone::copy_index;
use super::mirror::{self, Mirror};
use super::source::{Source, SourceError, SourceNote};
use super::store::{Quarantine, Store};
use super::worktree::WorkTree;
use super::{Base, WorkspaceError, encode};
use crate::files::FileError;
use crate::home::Home;

/// Uncommitted work, sorted, relative to the top of the work tree, lossy where not UTF-8.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Dirty {
    /// Tracked files with uncommitted changes, and untracked files that are not ignored.
    pub paths: Vec<String>,
    /// Untracked repositories inside the work tree, which cannot be carried.
    pub nested: Vec<String>,
}

/// What is dirty could not be told.
#[derive(Debug, thiserror::Error)]
pub enum DirtyError {
    /// The repository cannot be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The temporary store failed.
    #[error(transparent)]
    Workspace(#[from] WorkspaceError),
}

impl Source {
    /// Finds the uncommitted work, without a trace in the repository. `ignore` are absolute paths of files or
    /// directories that never count: the plan, the prompts, prun's home.
    ///
    /// # Errors
    /// Git fails, or there is no room for a copy of the index in the temporary directory.
    pub fn dirty(&self, ignore: &[PathBuf]) -> Result<Dirty, DirtyError> {
        let temp = tempfile::tempdir().map_err(FileError::at("create a directory in", &std::env::temp_dir()));
        let temp = temp.map_err(WorkspaceError::from)?;
        find(self, &Store::create(&temp.path().join("store.git"), self)?, ignore)
    }
}

/// Finds the uncommitted work by way of a store that is there already.
///
/// # Errors
/// As [`Source::dirty`].
pub fn find(source: &Source, store: &Store, ignore: &[PathBuf]) -> Result<Dirty, DirtyError> {
    if source.is_bare {
        return Ok(Dirty::default());
    }
    let quarantine = store.quarantine()?;
    let head = source.resolve("HEAD")?;
    let work_tree = open(source, &quarantine, &head)?;
    // Exit code 1 says that something needs an update, which is what is asked next.
    reading(store, &work_tree, ["update-index", "-q", "--refresh"])
        .run_accepting(&[0, 1])
        .map_err(WorkspaceError::from)?;
    let changed = reading(store, &work_tree, ["diff-index", "-z", "--name-only", "--ignore-submodules=dirty"])
        .args([head.tree.as_str(), "--"])
        .run()
        .map_err(WorkspaceError::from)?;
    let mut listing = work_tree.list()?;
    listing.untracked.extend(changed.fields().map(<[u8]>::to_owned));
    listing.remove(is_ignored(source, ignore));
    let texts = |paths: &BTreeSet<Vec<u8>>| paths.iter().map(|path| encode::lossy(path)).collect();
    Ok(Dirty { paths: texts(&listing.untracked), nested: texts(&listing.nested) })
}

/// Makes a base of `base` and the uncommitted work: a commit in the store, whose parent is `base`. The same work
/// gives the same commit. Fills the mirror with `base` on the way, because that is what writing compares with.
///
/// # Errors
/// `base` is not HEAD and both changed the same files; git or a file operation fails.
pub fn snapshot(
    home: &Home,
    source: &Source,
    store: &Store,
    base: &Base,
    ignore: &[PathBuf],
) -> Result<Base, DirtyError> {
    let mirror = mirror::ensure(home, store, base)?;
    let head = source.resolve("HEAD")?;
    let quarantine = store.quarantine()?;
    let work_tree = open(source, &quarantine, &head)?;
    let mut listing = work_tree.list()?;
    listing.remove(is_ignored(source, ignore));
    work_tree.take(&listing)?;
    let commit = commit(store, &quarantine, &work_tree, base, &head)?;
    quarantine.admit()?;
    complete(store, &mirror, &commit, base)?;
    Ok(store.base(&commit)?)
}

/// Puts all that the carried work adds to its base into the store, which a clone reads alone. Git wrote no object
/// that the mirror knew from an earlier run, and none that the user has staged.
fn complete(store: &Store, mirror: &Mirror, commit: &str, base: &Base) -> Result<(), WorkspaceError> {
    let pack = store
        .command(["pack-objects", "--revs", "--stdout", "-q"])
        .env("GIT_ALTERNATE_OBJECT_DIRECTORIES", encode::alternates_variable([mirror.objects().as_path()]))
        .input(format!("{commit}\n^{}\n", base.commit))
        .run()?;
    store.command(["index-pack", "--stdin"]).input(pack.stdout).run()?;
    Ok(())
}

fn commit(
    store: &Store,
    quarantine: &Quarantine<'_>,
    work_tree: &WorkTree<'_>,
    base: &Base,
    head: &Base,
) -> Result<String, WorkspaceError> {
    let here = work_tree.write_tree()?;
    let tree = if base.tree == head.tree { here } else { onto(store, quarantine, base, head, &here)? };
    let date = store.command(["show", "-s", "--format=%ct +0000", base.commit.as_str()]).run()?.text();
    let commit = quarantine
        .command(["commit-tree", tree.as_str(), "-p", base.commit.as_str(), "-m", "Uncommitted work"])
        .env("GIT_AUTHOR_DATE", format!("@{date}"))
        .env("GIT_COMMITTER_DATE", format!("@{date}"))
        .run()?;
    Ok(commit.text())
}

/// Puts what leads from HEAD to the tree `here` onto another base.
fn onto(
    store: &Store,
    quarantine: &Quarantine<'_>,
    base: &Base,
    head: &Base,
    here: &str,
) -> Result<String, WorkspaceError> {
    let theirs =
        store.command(["diff-tree", "-r", "-z", "--name-only", "--no-renames", &head.tree, &base.tree]).run()?;
    let theirs: BTreeSet<&[u8]> = theirs.fields().collect();
    let work = quarantine
        .command(["diff-tree", "-r", "-z", "--raw", "--full-index", "--no-renames", &head.tree, here])
        .run()?;
    let (mut lines, mut both) = (Vec::new(), Vec::new());
    let mut fields = work.fields();
    while let (Some(meta), Some(path)) = (fields.next(), fields.next()) {
        if theirs.contains(path) {
            both.push(encode::lossy(path));
        }
        let mut words = meta.split(|byte| *byte == b' ').skip(1);
        let (mode, _, id) = (words.next(), words.next(), words.next());
        lines.push([mode.unwrap_or_default(), b" ", id.unwrap_or_default(), b"\t", path, b"\0"].concat());
    }
    if !both.is_empty() {
        both.truncate(10);
        return Err(WorkspaceError::DirtyOnOtherBase { base: base.commit.clone(), paths: both });
    }
    let index = quarantine.file("onto.index");
    quarantine.command(["read-tree", base.tree.as_str()]).index(&index).run()?;
    quarantine.command(["update-index", "-z", "--index-info"]).index(&index).input(lines.concat()).run()?;
    Ok(quarantine.command(["write-tree", "--missing-ok"]).index(&index).run()?.text())
}

/// The user's work tree with a copy of their index. A split index has a second part, which git looks for in the
/// git directory that it is told.
fn open<'a>(source: &'a Source, quarantine: &'a Quarantine<'a>, head: &Base) -> Result<WorkTree<'a>, WorkspaceError> {
    let work_tree = WorkTree { quarantine, index: quarantine.file("index"), dir: &source.top };
    let theirs = source.git_dir.join("index");
    if theirs.exists() {
        copy_index(&theirs, &work_tree.index)?;
    }
    for entry in fs::read_dir(&source.git_dir).into_iter().flatten().flatten() {
        if entry.file_name().as_encoded_bytes().starts_with(b"sharedindex.") {
            let to = quarantine.store().git_dir.join(entry.file_name());
            fs::copy(entry.path(), &to).map_err(FileError::at("copy", &entry.path()))?;
        }
    }
    if source.notes.contains(&SourceNote::Sparse) && theirs.exists() {
        expand(&work_tree, head)?;
    }
    Ok(work_tree)
}

/// Makes a full index of one that holds directories. Git writes their trees again on the way, so it must not see
/// the user's objects: it gets a copy of the trees of HEAD to read from.
fn expand(work_tree: &WorkTree<'_>, head: &Base) -> Result<(), WorkspaceError> {
    let seed = work_tree.quarantine.file("seed");
    let packs = seed.join("pack");
    fs::create_dir_all(&packs).map_err(FileError::at("create", &packs))?;
    let store = work_tree.quarantine.store();
    let list = ["rev-list", "--objects", "--no-object-names", "--filter=blob:none", &head.tree];
    let trees = store.command(list).run()?.stdout;
    store.command(["pack-objects", "--quiet", "--window=0"]).arg(packs.join("pack")).input(trees).run()?;
    work_tree
        .git(["update-index", "--force-write-index"])
        .env("GIT_ALTERNATE_OBJECT_DIRECTORIES", encode::alternates_variable([seed.as_path()]))
        .run()?;
    Ok(())
}

/// A command on the work tree that sees the user's objects, and so must write none.
fn reading<'a>(
    store: &Store,
    work_tree: &WorkTree<'_>,
    args: impl IntoIterator<Item = &'a str>,
) -> crate::git::GitCommand {
    store.command(args).work_tree(work_tree.dir).index(&work_tree.index).dir(work_tree.dir)
}

fn is_ignored(source: &Source, ignore: &[PathBuf]) -> impl Fn(&[u8]) -> bool {
    let real = |path: &PathBuf| path.canonicalize().unwrap_or_else(|_| path.clone());
    let own: Vec<PathBuf> =
        ignore.iter().map(real).filter_map(|path| Some(path.strip_prefix(&source.top).ok()?.to_owned())).collect();
    move |path| own.iter().any(|own| Path::new(&encode::path(path)).starts_with(own))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Fixture, gits, put, state_of, trap};
    use super::*;

    fn make_dirty(fixture: &Fixture) {
        fixture.write("README", "edited\n");
        // Of these bytes only the user's repository has an object.
        fixture.write("staged", "staged\n");
        fixture.run(&["add", "staged"]);
        fs::remove_file(fixture.repo.join("src/a.rs")).unwrap();
        fixture.write("new/file", "x");
        fixture.write("ignored.log", "x");
        fixture.write("plan.toml", "x");
    }

    fn own(fixture: &Fixture) -> Vec<PathBuf> {
        vec![fixture.repo.join("plan.toml")]
    }

    #[test]
    fn c12_c22_uncommitted_work_is_found_without_a_trace() {
        for git in gits() {
            let fixture = Fixture::new(&git);
            make_dirty(&fixture);
            let before = state_of(&fixture.repo);
            let dirty = fixture.source().dirty(&own(&fixture)).unwrap();
            assert_eq!(dirty.paths, ["README", "new/file", "src/a.rs", "staged"]);
            assert_eq!(state_of(&fixture.repo), before);
        }
    }

    #[test]
    fn a_touched_file_is_not_dirty_and_no_program_of_the_users_runs() {
        for git in gits() {
            let fixture = Fixture::new(&git);
            let (program, mark) = trap(fixture.temp.path());
            fixture.write(".gitattributes", "* filter=f\n");
            fixture.commit("attributes");
            for key in ["filter.f.clean", "filter.f.process", "core.fsmonitor"] {
                fixture.run(&["config", key, program.to_str().unwrap()]);
            }
            fixture.write("README", "hello\n");
            fs::remove_file(&mark).ok();
            assert!(fixture.source().dirty(&[]).unwrap().paths.is_empty());
            assert!(!mark.exists());
        }
    }

    #[test]
    fn a_split_index_is_read_without_a_trace() {
        for git in gits() {
            let fixture = Fixture::new(&git);
            fixture.run(&["update-index", "--split-index"]);
            fixture.write("README", "edited\n");
            fixture.run(&["add", "README"]);
            let before = state_of(&fixture.repo);
            assert_eq!(fixture.source().dirty(&[]).unwrap().paths, ["README"]);
            assert_eq!(state_of(&fixture.repo), before);
        }
    }

    #[test]
    fn a_sparse_checkout_is_carried_whole() {
        for git in gits() {
            for form in ["--sparse-index", "--no-sparse-index"] {
                let fixture = Fixture::new(&git);
                fixture.write("docs/deep/x", "x");
                fixture.commit("docs");
                fixture.run(&["sparse-checkout", "set", form, "src"]);
                fixture.write("src/a.rs", "edited\n");
                let before = state_of(&fixture.repo);
                let source = fixture.source();
                assert_eq!(source.dirty(&[]).unwrap().paths, ["src/a.rs"]);
                let store = Store::create(&fixture.temp.path().join("store.git"), &source).unwrap();
                let head = source.resolve("HEAD").unwrap();
                let base = snapshot(&fixture.home(), &source, &store, &head, &[]).unwrap();
                let changed = store.command(["diff-tree", "-r", "--name-only", &head.tree, &base.tree]).run();
                assert_eq!(changed.unwrap().text(), "src/a.rs");
                assert_eq!(state_of(&fixture.repo), before);
            }
        }
    }

    #[test]
    fn repositories_inside_are_told_apart() {
        let fixture = Fixture::new(&gits()[0]);
        fs::rename(Fixture::new(&gits()[0]).repo, fixture.repo.join("inner")).unwrap();
        let dirty = fixture.source().dirty(&[]).unwrap();
        assert_eq!((dirty.paths, dirty.nested), (vec![], vec!["inner/".to_owned()]));
    }

    #[test]
    fn c12_carried_work_is_in_the_base_and_never_comes_back_as_a_change() {
        for git in gits() {
            let fixture = Fixture::new(&git);
            make_dirty(&fixture);
            let before = state_of(&fixture.repo);
            let source = fixture.source();
            let run = fixture.temp.path().join("run");
            fs::create_dir(&run).unwrap();
            let store = Store::create(&run.join("store.git"), &source).unwrap();
            let head = source.resolve("HEAD").unwrap();
            let base = snapshot(&fixture.home(), &source, &store, &head, &own(&fixture)).unwrap();
            assert_eq!(snapshot(&fixture.home(), &source, &store, &head, &own(&fixture)).unwrap(), base);
            let unit = fixture.clone_of(store, base, &run);
            assert_eq!(fs::read(unit.clone.join("README")).unwrap(), b"edited\n");
            assert!(unit.clone.join("new/file").exists() && unit.clone.join("staged").exists());
            for gone in ["src/a.rs", "ignored.log", "plan.toml"] {
                assert!(!unit.clone.join(gone).exists(), "{gone}");
            }
            assert!(unit.changed().is_empty());
            assert_eq!(unit.run(&["rev-parse", "HEAD~1"]), head.commit);
            unit.write("README", "edited\nby the unit\n");
            assert_eq!(unit.changed(), ["M README"]);
            assert_eq!(state_of(&fixture.repo), before);
        }
    }

    #[test]
    fn work_carried_once_is_carried_again_by_the_next_run() {
        for git in gits() {
            let fixture = Fixture::new(&git);
            make_dirty(&fixture);
            let source = fixture.source();
            let head = source.resolve("HEAD").unwrap();
            // The mirror knows every object from the first run on; the store of the next one starts empty.
            for name in ["first", "second"] {
                let run = fixture.temp.path().join(name);
                fs::create_dir(&run).unwrap();
                let store = Store::create(&run.join("store.git"), &source).unwrap();
                let base = snapshot(&fixture.home(), &source, &store, &head, &own(&fixture)).unwrap();
                let unit = fixture.clone_of(store, base, &run);
                assert_eq!(fs::read(unit.clone.join("README")).unwrap(), b"edited\n", "{name}");
                assert!(unit.clone.join("new/file").exists(), "{name}");
                assert_eq!(fs::read(unit.clone.join("staged")).unwrap(), b"staged\n", "{name}");
            }
        }
    }

    #[test]
    fn work_is_carried_onto_another_base_where_both_changed_other_files() {
        let fixture = Fixture::new(&gits()[0]);
        let old = fixture.source().resolve("HEAD").unwrap();
        fixture.write("src/deep/b.rs", "newer\n");
        fixture.commit("second");
        fixture.write("README", "edited\n");
        put(&fixture.repo.join("new"), "x");
        let source = fixture.source();
        let store = Store::create(&fixture.temp.path().join("store.git"), &source).unwrap();
        let base = snapshot(&fixture.home(), &source, &store, &old, &[]).unwrap();
        let changed = store.command(["diff-tree", "-r", "--name-only", &old.tree, &base.tree]).run().unwrap().text();
        assert_eq!(changed, "README\nnew");
        fixture.write("src/deep/b.rs", "edited too\n");
        let said = snapshot(&fixture.home(), &source, &store, &old, &[]).unwrap_err().to_string();
        assert!(said.contains("src/deep/b.rs"), "{said}");
    }
}
