//! Takes what a unit left in its workspace, as a tree in the run's store.
//!
//! The workspace is a heap of files here: its git directory is read as plain files for the report, and decides
//! nothing. Committed, staged, unstaged and untracked work are all alike.

use std::collections::{BTreeMap, BTreeSet};

use prun_core::outcome::{ChangeKind, Changes, FileChange};

use super::clone::{copy_index, trusted_refs};
use super::refs::{self, CloneRefs};
use super::store::Store;
use super::worktree::WorkTree;
use super::{WorkspaceError, encode, ignored};
use crate::files::read_regular;
use crate::git::Git;
use crate::spec::HarvestSpec;

/// The most refs that are listed by name.
const MAX_REFS: usize = 50;

/// A workspace that could not be harvested.
#[derive(Debug, thiserror::Error)]
pub enum HarvestError {
    /// The work tree is not there, or something else took its place.
    #[error("cannot harvest {}: it is no directory", .0.display())]
    NoWorkTree(std::path::PathBuf),
    /// Git, a file operation or the store failed.
    #[error("cannot harvest {}: {source}", path.display())]
    Failed {
        /// The work tree.
        path: std::path::PathBuf,
        /// What failed.
        source: WorkspaceError,
    },
}

/// Takes the changes of a workspace. It may be done again after a person edited there.
///
/// # Errors
/// The work tree is gone, a changed file cannot be read, or git fails. The store is unchanged then.
pub fn harvest(git: &Git, spec: &HarvestSpec) -> Result<Changes, HarvestError> {
    if !spec.work_tree.symlink_metadata().is_ok_and(|meta| meta.is_dir()) {
        return Err(HarvestError::NoWorkTree(spec.work_tree.clone()));
    }
    take(git, spec).map_err(|source| HarvestError::Failed { path: spec.work_tree.clone(), source })
}

fn take(git: &Git, spec: &HarvestSpec) -> Result<Changes, WorkspaceError> {
    let store = Store::open(git, &spec.store)?;
    let quarantine = store.quarantine()?;
    let work_tree = WorkTree { quarantine: &quarantine, index: quarantine.file("index"), dir: &spec.work_tree };
    copy_index(&spec.trusted_index, &work_tree.index)?;
    let mut listing = work_tree.list()?;
    listing.remove(|path| is_own(&spec.exclude, path));
    let mut unseen = ignored::apply(&store, &work_tree, &spec.base_tree, &mut listing)?;
    let mut tree = spec.base_tree.clone();
    if !listing.is_empty() {
        unseen.extend(work_tree.take(&listing)?);
        tree = work_tree.write_tree()?;
    }
    unseen.extend(listing.nested.iter().map(|path| format!("nested repository {}", encode::lossy(path))));
    unseen.extend(work_tree.filled_submodules()?.into_iter().map(|path| format!("content of the submodule {path}")));
    unseen.extend(special_files(spec, &listing.deleted));
    let clone = refs::read(&spec.work_tree);
    unseen.extend(clone.as_ref().map_or_else(|| vec!["its .git is gone".to_owned()], |clone| other_refs(spec, clone)));
    quarantine.admit()?;
    let files = compare(&store, &spec.base_tree, &tree)?;
    let head_moved = clone.is_none_or(|clone| clone.head.as_deref() != Some(spec.base.as_str()));
    Ok(Changes { tree, base_tree: spec.base_tree.clone(), files, unseen, head_moved })
}

/// Every path in which two trees differ, with the counted lines.
///
/// # Errors
/// Git fails; a tree is not there, or not complete.
pub fn compare(store: &Store, base_tree: &str, tree: &str) -> Result<Vec<FileChange>, WorkspaceError> {
    if base_tree == tree {
        return Ok(Vec::new());
    }
    let output = store
        .command(["diff-tree", "-r", "-z", "--raw", "--numstat", "--no-renames", "--no-ext-diff", "--no-textconv"])
        .args(["--ignore-submodules=none", base_tree, tree])
        .run()?;
    parse_changes(output.fields()).ok_or_else(|| WorkspaceError::unexpected("diff-tree", encode::lossy(&output.stdout)))
}

/// Reads `diff-tree -z --raw --numstat`: all raw records (two fields each), then all counts.
fn parse_changes<'a>(fields: impl Iterator<Item = &'a [u8]>) -> Option<Vec<FileChange>> {
    let mut fields = fields.peekable();
    let mut kinds: Vec<(&[u8], ChangeKind)> = Vec::new();
    while let Some(meta) = fields.next_if(|field| field.starts_with(b":")) {
        let kind = match meta.last()? {
            b'A' => ChangeKind::Added,
            b'D' => ChangeKind::Deleted,
            b'T' => ChangeKind::TypeChanged,
            _ => ChangeKind::Modified,
        };
        kinds.push((fields.next()?, kind));
    }
    let mut counts: BTreeMap<&[u8], (Option<u64>, Option<u64>)> = BTreeMap::new();
    for field in fields {
        let mut parts = field.splitn(3, |byte| *byte == b'\t');
        let mut count = || Some(encode::lossy(parts.next()?).parse::<u64>().ok());
        let (added, removed) = (count()?, count()?);
        counts.insert(parts.next()?, (added, removed));
    }
    let change = |(path, kind): (&[u8], ChangeKind)| {
        let (added, removed) = counts.get(path).copied().unwrap_or((None, None));
        FileChange { path: encode::lossy(path), kind, added, removed }
    };
    Some(kinds.into_iter().map(change).collect())
}

fn is_own(exclude: &[String], path: &[u8]) -> bool {
    exclude.iter().any(|own| {
        let own = own.trim_end_matches('/').as_bytes();
        path.strip_prefix(own).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
    })
}

/// Tracked paths at which there is now something that no tree can hold.
fn special_files(spec: &HarvestSpec, deleted: &BTreeSet<Vec<u8>>) -> Vec<String> {
    let is_special = |path: &&Vec<u8>| {
        let meta = spec.work_tree.join(encode::path(path)).symlink_metadata();
        meta.is_ok_and(|meta| !meta.is_dir() && !meta.is_file() && !meta.is_symlink())
    };
    deleted.iter().filter(is_special).map(|path| format!("special file {}", encode::lossy(path))).collect()
}

/// Branches, tags, stashes and worktrees that the unit made or moved. The branch it is on shows in the tree.
fn other_refs(spec: &HarvestSpec, clone: &CloneRefs) -> Vec<String> {
    let prepared = read_regular(&trusted_refs(&spec.trusted_index), 64 << 20).unwrap_or_default();
    let prepared = refs::parse_packed(&encode::lossy(&prepared));
    let changed = clone.refs.iter().filter(|(name, id)| {
        prepared.get(*name) != Some(id) && Some(*name) != clone.branch.as_ref() && *name != "refs/stash"
    });
    let mut said: Vec<String> = changed.take(MAX_REFS).map(|(name, _)| describe(name)).collect();
    if clone.stashes > 0 {
        said.push(format!(
            "{} stashed",
            if clone.stashes == 1 { "1 change".to_owned() } else { format!("{} changes", clone.stashes) }
        ));
    }
    said.extend(clone.worktrees.iter().map(|name| format!("linked worktree {name}")));
    said
}

fn describe(name: &str) -> String {
    if let Some(branch) = name.strip_prefix("refs/heads/") {
        format!("branch {branch}")
    } else if let Some(tag) = name.strip_prefix("refs/tags/") {
        format!("tag {tag}")
    } else {
        format!("ref {name}")
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::super::testing::{Fixture, Prepared, gits, letters, put, state_of, trap, user_git};
    use super::*;

    /// Does one thing in a clone, with every git, and compares what is harvested.
    fn check(act: impl Fn(&Prepared), expected: &[&str]) {
        for git in gits() {
            let fixture = Fixture::new(&git);
            let before = state_of(&fixture.repo);
            let prepared = fixture.prepare("run");
            act(&prepared);
            assert_eq!(prepared.changed(), expected);
            assert_eq!(state_of(&fixture.repo), before, "the user's repository was touched");
        }
    }

    #[test]
    fn an_untouched_clone_has_no_changes() {
        check(|_| (), &[]);
    }

    #[test]
    fn a_touched_file_is_no_change() {
        check(
            |unit| {
                unit.write("src/a.rs", "fn a() {}\n");
                fs::remove_file(unit.clone.join("README")).unwrap();
                unit.write("README", "hello\n");
            },
            &[],
        );
    }

    #[test]
    fn every_kind_of_change_is_seen() {
        check(
            |unit| {
                unit.write("README", "changed\n");
                unit.write("new/file", "");
                fs::remove_file(unit.clone.join("src/a.rs")).unwrap();
                fs::set_permissions(unit.clone.join("empty"), fs::Permissions::from_mode(0o755)).unwrap();
                fs::write(unit.clone.join("bin"), b"\0\0\0\0").unwrap();
                fs::remove_file(unit.clone.join("link")).unwrap();
                unit.write("link", "no link");
            },
            &["M README", "M bin", "M empty", "T link", "A new/file", "D src/a.rs"],
        );
    }

    #[test]
    fn staged_committed_and_plain_work_are_alike() {
        let expected = ["M README", "A x", "A y", "A z"];
        check(
            |unit| {
                unit.write("x", "x");
                unit.run(&["add", "-A"]);
                unit.run(&["commit", "-q", "-m", "x"]);
                unit.write("y", "y");
                unit.run(&["add", "y"]);
                unit.write("z", "z");
                unit.write("README", "r");
            },
            &expected,
        );
    }

    #[test]
    fn files_and_directories_change_places() {
        check(
            |unit| {
                fs::remove_file(unit.clone.join("README")).unwrap();
                unit.write("README/inner", "x");
                fs::remove_dir_all(unit.clone.join("src")).unwrap();
                unit.write("src", "a file");
            },
            &["D README", "A README/inner", "A src", "D src/a.rs", "D src/deep/b.rs"],
        );
    }

    #[test]
    fn a_directory_that_became_a_link_is_not_followed() {
        check(
            |unit| {
                fs::rename(unit.clone.join("src"), unit.clone.join("moved")).unwrap();
                symlink("moved", unit.clone.join("src")).unwrap();
            },
            &["A moved/a.rs", "A moved/deep/b.rs", "A src", "D src/a.rs", "D src/deep/b.rs"],
        );
    }

    #[test]
    fn odd_names_arrive_exactly() {
        for git in gits() {
            let fixture = Fixture::new(&git);
            let unit = fixture.prepare("run");
            let names: [&[u8]; 8] =
                [b"a\nb", b"\xff\xfe", b"-rf", b" lead", b"q\"uote", b":(top)x", b"*", "\u{e4}".as_bytes()];
            for name in names {
                fs::write(unit.clone.join(encode::path(name)), "x").unwrap();
            }
            let changes = unit.harvest().unwrap();
            assert_eq!(changes.files.len(), names.len());
            let listed = unit.store.command(["ls-tree", "-z", "--name-only", &changes.tree]).run().unwrap();
            let listed: Vec<&[u8]> = listed.fields().collect();
            assert!(names.iter().all(|name| listed.contains(name)), "{listed:?}");
        }
    }

    #[test]
    fn names_that_no_tree_may_hold_do_not_stop_the_harvest() {
        check(
            |unit| {
                unit.write(".GIT/config", "x");
                unit.write("git~1", "x");
                unit.write("good", "x");
            },
            &["A good"],
        );
    }

    #[test]
    fn lines_are_counted_and_binaries_are_not() {
        let fixture = Fixture::new(&gits()[0]);
        let unit = fixture.prepare("run");
        unit.write("README", "one\ntwo\n");
        fs::write(unit.clone.join("bin"), b"\0\0").unwrap();
        let changes = unit.harvest().unwrap();
        let counts: Vec<_> = changes.files.iter().map(|file| (file.added, file.removed)).collect();
        assert_eq!(counts, [(Some(2), Some(1)), (None, None)]);
    }

    #[test]
    fn a_clone_without_git_directory_is_still_harvested() {
        check(
            |unit| {
                fs::remove_dir_all(unit.clone.join(".git")).unwrap();
                unit.write("x", "x");
            },
            &["A x"],
        );
    }

    #[test]
    fn a_redirected_git_directory_leads_nowhere() {
        for git in gits() {
            let fixture = Fixture::new(&git);
            let before = state_of(&fixture.repo);
            let unit = fixture.prepare("run");
            unit.run(&["config", "core.worktree", fixture.repo.to_str().unwrap()]);
            unit.write("x", "x");
            assert_eq!(unit.changed(), ["A x"]);
            fs::remove_dir_all(unit.clone.join(".git")).unwrap();
            put(&unit.clone.join(".git"), &format!("gitdir: {}/.git\n", fixture.repo.display()));
            let changes = unit.harvest().unwrap();
            assert_eq!(letters(&changes), ["A x"]);
            assert!(changes.head_moved && changes.unseen.contains(&"its .git is gone".to_owned()));
            assert_eq!(state_of(&fixture.repo), before);
        }
    }

    #[test]
    fn nothing_that_a_clone_names_is_run() {
        for git in gits() {
            let fixture = Fixture::new(&git);
            let unit = fixture.prepare("run");
            let (program, mark) = trap(fixture.temp.path());
            let program = program.to_str().unwrap().to_owned();
            unit.write(".gitattributes", "* filter=evil diff=evil merge=evil\n");
            unit.write("README", "changed\n");
            unit.write("new", "x");
            fs::remove_file(unit.clone.join("src/a.rs")).unwrap();
            plant(&unit.clone.join(".git"), &program);
            // A nested repository and one inside a tracked directory, both armed.
            for nested in ["nested", "src/deep"] {
                let dir = unit.clone.join(nested);
                fs::create_dir_all(&dir).unwrap();
                user_git(&git, &dir, &["init", "-q"]);
                put(&dir.join("inside"), "x");
                user_git(&git, &dir, &["add", "inside"]);
                user_git(&git, &dir, &["-c", "user.name=x", "-c", "user.email=x", "commit", "-q", "-m", "x"]);
                plant(&dir.join(".git"), &program);
            }
            // A tracked file that became a repository.
            fs::remove_file(unit.clone.join("empty")).unwrap();
            fs::rename(unit.clone.join("nested"), unit.clone.join("empty")).unwrap();
            let changes = unit.harvest().unwrap();
            patch_too(&unit, &changes);
            assert!(!mark.exists(), "{}", fs::read_to_string(&mark).unwrap_or_default());
            assert_eq!(
                letters(&changes),
                ["A .gitattributes", "M README", "D empty", "A new", "D src/a.rs", "A src/deep/inside"]
            );
            assert!(changes.unseen.contains(&"nested repository empty/".to_owned()), "{:?}", changes.unseen);
            let listed = unit.store.command(["ls-tree", "-r", &changes.tree]).run().unwrap().text();
            assert!(!listed.contains("160000"), "{listed}");
            // The traps are real: a naive command springs them.
            let naive = std::process::Command::new(git.program()).arg("status").current_dir(&unit.clone).output();
            assert!(naive.is_ok() && mark.exists());
        }
    }

    fn patch_too(unit: &Prepared, changes: &Changes) {
        let options = super::super::PatchOptions::default();
        let patch = super::super::patch(&unit.store, &changes.base_tree, &changes.tree, &options).unwrap();
        assert!(patch.starts_with(b"diff --git"));
    }

    /// Every setting and hook that makes git start a program.
    fn plant(git_dir: &std::path::Path, program: &str) {
        let config = format!(
            "[core]\n\tfsmonitor = {program}\n\thooksPath = {hooks}\n\tpager = {program}\n\teditor = {program}\n\
             \tsshCommand = {program}\n\taskPass = {program}\n\
             [diff]\n\texternal = {program}\n[diff \"evil\"]\n\tcommand = {program}\n\ttextconv = {program}\n\
             [filter \"evil\"]\n\tclean = {program}\n\tsmudge = {program}\n\tprocess = {program}\n\trequired = true\n\
             [merge \"evil\"]\n\tdriver = {program}\n[gpg]\n\tprogram = {program}\n[include]\n\tpath = evil\n",
            hooks = git_dir.join("hooks").display(),
        );
        let path = git_dir.join("config");
        let old = fs::read_to_string(&path).unwrap();
        fs::write(&path, old + &config).unwrap();
        put(&git_dir.join("evil"), &format!("[core]\n\tfsmonitor = {program}\n"));
        put(&git_dir.join("info/attributes"), "* filter=evil diff=evil\n");
        for hook in ["post-index-change", "pre-commit", "post-checkout", "reference-transaction", "fsmonitor-watchman"]
        {
            fs::create_dir_all(git_dir.join("hooks")).unwrap();
            let hook = git_dir.join("hooks").join(hook);
            fs::remove_file(&hook).ok();
            symlink(program, hook).unwrap();
        }
    }

    #[test]
    fn what_the_base_ignores_stays_out() {
        check(
            |unit| {
                unit.write("target/x", "x");
                unit.write("a.log", "x");
                unit.write("kept", "x");
            },
            &["A kept"],
        );
    }

    #[test]
    fn what_only_the_unit_ignores_is_out_and_listed() {
        for git in gits() {
            let fixture = Fixture::new(&git);
            let unit = fixture.prepare("run");
            unit.write(".gitignore", "*.log\nhidden*\nsub/\n");
            unit.write("a.log", "x");
            unit.write("hidden.rs", "x");
            unit.write(":(top)y", "x");
            unit.write("sub/also", "x");
            unit.write("target/x", "x");
            let changes = unit.harvest().unwrap();
            assert_eq!(letters(&changes), ["M .gitignore", "A :(top)y"]);
            let unseen = changes.unseen.join("\n");
            for name in ["2 files ignored only by", "hidden.rs", "sub/also", "1 file ignored by the base", "target/x"] {
                assert!(unseen.contains(name), "{name} in {unseen}");
            }
            assert!(!unseen.contains("a.log"), "{unseen}");
        }
    }

    #[test]
    fn what_only_the_clones_own_exclude_hides_is_in() {
        check(
            |unit| {
                put(&unit.clone.join(".git/info/exclude"), "hidden\n");
                unit.run(&["config", "core.excludesFile", ".git/info/exclude"]);
                unit.write("hidden", "x");
            },
            &["A hidden"],
        );
    }

    #[test]
    fn what_the_users_own_exclude_hides_is_out() {
        let fixture = Fixture::new(&gits()[0]);
        put(&fixture.repo.join(".git/info/exclude"), "scratch/\n");
        let unit = fixture.prepare("run");
        unit.write("scratch/x", "x");
        assert!(unit.changed().is_empty());
        assert_eq!(unit.run(&["status", "--porcelain"]), "", "the worker's own git sees the same rules");
    }

    #[test]
    fn what_a_tree_cannot_show_is_listed() {
        let fixture = Fixture::new(&gits()[0]);
        fixture.run(&["branch", "theirs"]);
        let unit = fixture.prepare("run");
        let moved = |unit: &Prepared| unit.harvest().unwrap().head_moved;
        assert!(!moved(&unit));
        unit.write("README", "stashed");
        unit.run(&["stash"]);
        unit.run(&["checkout", "-q", "-b", "side"]);
        unit.run(&["commit", "-q", "--allow-empty", "-m", "side"]);
        assert!(moved(&unit));
        unit.run(&["tag", "v1"]);
        unit.run(&["checkout", "-q", "main"]);
        assert!(!moved(&unit));
        unit.run(&["pack-refs", "--all"]);
        rustix::fs::mknodat(
            rustix::fs::CWD,
            unit.clone.join("fifo"),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RWXU,
            0,
        )
        .unwrap();
        let changes = unit.harvest().unwrap();
        assert_eq!(changes.unseen, ["branch side", "tag v1", "1 change stashed"]);
        assert!(changes.is_empty());
    }

    #[test]
    fn a_tracked_file_that_became_a_pipe_is_gone_and_named() {
        let fixture = Fixture::new(&gits()[0]);
        let unit = fixture.prepare("run");
        let path = unit.clone.join("README");
        fs::remove_file(&path).unwrap();
        let (kind, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
        rustix::fs::mknodat(rustix::fs::CWD, &path, kind, mode, 0).unwrap();
        let changes = unit.harvest().unwrap();
        assert_eq!(
            (letters(&changes), changes.unseen),
            (vec!["D README".to_owned()], vec!["special file README".to_owned()])
        );
    }

    #[test]
    fn prun_s_own_files_are_no_changes() {
        let fixture = Fixture::new(&gits()[0]);
        let mut unit = fixture.prepare("run");
        unit.spec.exclude = vec!["result.md".into(), "own/".into()];
        for path in ["result.md", "own/x", "ownother"] {
            unit.write(path, "x");
        }
        assert_eq!(unit.changed(), ["A ownother"]);
    }

    #[test]
    fn a_missing_work_tree_is_an_error_with_its_path() {
        let fixture = Fixture::new(&gits()[0]);
        let unit = fixture.prepare("run");
        fs::remove_dir_all(&unit.clone).unwrap();
        symlink("/", &unit.clone).unwrap();
        let error = unit.harvest().unwrap_err().to_string();
        assert!(error.contains(unit.clone.to_str().unwrap()), "{error}");
    }
}
