//! A throwaway clone: a git directory of its own that borrows objects from the mirror, and a checkout of
//! the base. It has no remote, no hook, no filter, and knows no path of the user's repository.

use std::collections::BTreeMap;
use std::fs::{self, FileTimes};
use std::path::{Path, PathBuf};

use super::gitdir::{GitDir, packed_refs};
use super::mirror::Mirror;
use super::store::Store;
use super::template::Template;
use super::{Base, WorkspaceError};
use crate::files::FileError;

/// A clone to make. Several may be made at once.
#[derive(Clone, Debug)]
pub struct ClonePlan<'a> {
    /// The run's store.
    pub store: &'a Store,
    /// The mirror that holds the base.
    pub mirror: &'a Mirror,
    /// The base.
    pub base: &'a Base,
    /// Where the clone goes; must not be there.
    pub dir: &'a Path,
    /// Where a copy of its index goes, outside the worker's reach. A list of its refs goes beside it.
    pub trusted_index: &'a Path,
    /// A checkout to copy, where one of this base is at hand.
    pub template: Option<&'a Template>,
}

/// Makes the clone.
///
/// # Errors
/// The place is taken, the disk is full, or git cannot check the base out.
pub fn prepare(plan: &ClonePlan<'_>) -> Result<(), WorkspaceError> {
    if plan.dir.symlink_metadata().is_ok() {
        return Err(WorkspaceError::Exists(plan.dir.to_owned()));
    }
    crate::files::create_private_dir(plan.dir)?;
    let git_dir = plan.dir.join(".git");
    let refs = write_git_dir(plan, &git_dir)?;
    if !copy_template(plan, &git_dir)? {
        check_out(plan, &git_dir)?;
    }
    copy_index(&git_dir.join("index"), plan.trusted_index)?;
    let list = trusted_refs(plan.trusted_index);
    fs::write(&list, packed_refs(&refs)).map_err(FileError::at("write", &list))?;
    Ok(())
}

/// Copies the template; `false` where there is none, or not a sound one. The work tree is empty then.
fn copy_template(plan: &ClonePlan<'_>, git_dir: &Path) -> Result<bool, WorkspaceError> {
    let Some(template) = plan.template.filter(|template| template.holds(plan.base)) else { return Ok(false) };
    if template.copy(plan.dir, &git_dir.join("index"))? {
        return Ok(true);
    }
    for entry in fs::read_dir(plan.dir).map_err(FileError::at("read", plan.dir))?.flatten() {
        let path = entry.path();
        let removed = match entry.file_type() {
            Ok(kind) if kind.is_dir() && path != git_dir => fs::remove_dir_all(&path),
            Ok(kind) if !kind.is_dir() => fs::remove_file(&path),
            _ => Ok(()),
        };
        removed.map_err(FileError::at("remove", &path))?;
    }
    Ok(false)
}

/// Writes a git directory that borrows from the mirror and is at the base. Returns its refs.
fn write_git_dir(plan: &ClonePlan<'_>, git_dir: &Path) -> Result<BTreeMap<String, String>, WorkspaceError> {
    let facts = &plan.store.facts;
    let refs = refs(plan);
    GitDir {
        object_format: &facts.object_format,
        settings: settings(plan.store),
        head: &facts.branch,
        refs: refs.clone(),
        alternates: vec![plan.mirror.objects()],
        exclude: &facts.settings.exclude,
        attributes: &facts.settings.attributes,
        shallow: facts.shallow.as_deref(),
        ..GitDir::default()
    }
    .write(git_dir)?;
    Ok(refs)
}

/// Has git write the base into the empty work tree. The index is one that [`super::index_file`] can read.
fn check_out(plan: &ClonePlan<'_>, git_dir: &Path) -> Result<(), WorkspaceError> {
    let checkout = plan.store.git.command(["read-tree", "-m", "-u", plan.base.commit.as_str()]);
    checkout
        .git_dir(git_dir)
        .work_tree(plan.dir)
        .dir(plan.dir)
        .env("GIT_ALLOW_PROTOCOL", "none")
        .config("index.version=2")
        .run()?;
    Ok(())
}

/// The list of refs that a clone was made with, beside its trusted index.
#[must_use]
pub fn trusted_refs(trusted_index: &Path) -> PathBuf {
    trusted_index.with_extension("refs")
}

/// Copies an index with its time: a file that changed in the same tick as the index was written is told by
/// that time.
pub(crate) fn copy_index(from: &Path, to: &Path) -> Result<(), FileError> {
    fs::copy(from, to).map_err(FileError::at("copy", from))?;
    let time = fs::metadata(from).and_then(|meta| meta.modified()).map_err(FileError::at("read", from))?;
    let set = |file: fs::File| file.set_times(FileTimes::new().set_modified(time));
    fs::OpenOptions::new().write(true).open(to).and_then(set).map_err(FileError::at("write", to))
}

/// The user's local branches where they were, and the current one at the base.
fn refs(plan: &ClonePlan<'_>) -> BTreeMap<String, String> {
    let mut refs = plan.mirror.branches.clone();
    refs.insert(plan.store.facts.branch.clone(), plan.base.commit.clone());
    refs
}

/// A worker can commit under the user's name; its git starts no background job, asks for no signing key and
/// watches no files.
fn settings(store: &Store) -> BTreeMap<String, String> {
    let user = &store.facts.settings;
    let mut settings = store.facts.repository_settings();
    let own = [
        ("user.name", user.user_name.as_deref().unwrap_or("prun")),
        ("user.email", user.user_email.as_deref().unwrap_or("prun@localhost")),
        ("commit.gpgsign", "false"),
        ("tag.gpgsign", "false"),
        ("gc.auto", "0"),
        ("maintenance.auto", "false"),
        ("core.fsmonitor", "false"),
    ];
    settings.extend(own.map(|(key, value)| (key.to_owned(), value.to_owned())));
    settings
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::os::unix::fs::MetadataExt;

    use super::super::mirror;
    use super::super::source::Source;
    use super::super::testing::{Fixture, gits, put, state_of, user_git};
    use super::*;

    /// Inodes of all files below `dir`.
    fn inodes(dir: &Path) -> BTreeSet<(u64, u64)> {
        let files = state_of(dir).into_keys().map(|path| path.symlink_metadata().unwrap());
        files.filter(|meta| !meta.is_dir()).map(|meta| (meta.dev(), meta.ino())).collect()
    }

    #[test]
    fn c17_a_clone_is_at_the_base_and_knows_nothing_of_the_source() {
        for git in gits() {
            let fixture = Fixture::new(&git);
            fixture.run(&["remote", "add", "origin", "https://example.org/x"]);
            fixture.run(&["branch", "other"]);
            let before = state_of(&fixture.repo);
            let unit = fixture.prepare("run");
            assert_eq!(unit.run(&["remote"]), "");
            assert_eq!(unit.run(&["rev-parse", "HEAD"]), unit.base.commit);
            assert_eq!(unit.run(&["symbolic-ref", "HEAD"]), "refs/heads/main");
            assert_eq!(unit.run(&["branch", "--format=%(refname:short)"]), "main\nother");
            assert_eq!(unit.run(&["status", "--porcelain"]), "");
            assert_eq!(unit.run(&["fsck", "--full"]), "");
            let theirs = fixture.repo.to_str().unwrap();
            for path in state_of(&unit.clone).into_keys().filter(|path| path.is_file()) {
                let bytes = fs::read(&path).unwrap();
                assert!(!String::from_utf8_lossy(&bytes).contains(theirs), "{} names the source", path.display());
            }
            let ours = inodes(&unit.clone).union(&inodes(fixture.home().root())).copied().collect();
            assert!(inodes(&fixture.repo).is_disjoint(&ours), "an inode is shared");
            assert_eq!(state_of(&fixture.repo), before);
        }
    }

    #[test]
    fn a_worker_can_commit_under_the_users_name() {
        let fixture = Fixture::new(&gits()[0]);
        fixture.run(&["config", "user.name", "Ada \"the\" Lovelace"]);
        let unit = fixture.prepare("run");
        unit.run(&["commit", "-q", "--allow-empty", "-m", "x"]);
        assert_eq!(unit.run(&["log", "-1", "--format=%an %ae"]), "Ada \"the\" Lovelace ada@example.org");
    }

    #[test]
    fn c21_an_existing_place_is_never_reused() {
        let fixture = Fixture::new(&gits()[0]);
        let unit = fixture.prepare("run");
        let mirror = mirror::ensure(&fixture.home(), &unit.store, &unit.base).unwrap();
        let plan = ClonePlan {
            store: &unit.store,
            mirror: &mirror,
            base: &unit.base,
            dir: &unit.clone,
            trusted_index: &unit.spec.trusted_index,
            template: None,
        };
        assert!(matches!(prepare(&plan), Err(WorkspaceError::Exists(_))));
    }

    #[test]
    fn line_ends_are_the_users_and_come_back_unchanged() {
        for git in gits() {
            let fixture = Fixture::new(&git);
            fixture.run(&["config", "core.autocrlf", "true"]);
            // A file that has CRLF in the repository itself is left alone by git's rules.
            fixture.run(&["-c", "core.autocrlf=false", "commit", "-q", "--allow-empty", "-m", "x"]);
            fs::write(fixture.repo.join("crlf"), "a\r\nb\r\n").unwrap();
            fixture.run(&["-c", "core.autocrlf=false", "add", "crlf"]);
            fixture.run(&["commit", "-q", "-m", "crlf"]);
            let unit = fixture.prepare("run");
            assert_eq!(fs::read(unit.clone.join("README")).unwrap(), b"hello\r\n");
            assert!(unit.changed().is_empty());
            fs::write(unit.clone.join("crlf"), "a\r\nb\r\nc\r\n").unwrap();
            fs::write(unit.clone.join("README"), "hello\r\nyou\r\n").unwrap();
            let counts: Vec<_> = unit.harvest().unwrap().files.iter().map(|file| (file.added, file.removed)).collect();
            assert_eq!(counts, [(Some(1), Some(0)), (Some(1), Some(0))]);
        }
    }

    #[test]
    fn no_filter_of_anybody_decides_a_checkout() {
        let fixture = Fixture::new(&gits()[0]);
        let (program, mark) = super::super::testing::trap(fixture.temp.path());
        fixture.write(".gitattributes", "*.rs filter=f\n");
        fixture.commit("attributes");
        for key in ["filter.f.smudge", "filter.f.clean", "core.fsmonitor"] {
            fixture.run(&["config", key, program.to_str().unwrap()]);
        }
        put(&fixture.repo.join(".git/hooks/post-checkout"), "#!/bin/sh\nexit 1\n");
        fs::remove_file(&mark).ok();
        let unit = fixture.prepare("run");
        unit.write("src/a.rs", "changed");
        assert_eq!(unit.changed(), ["M src/a.rs"]);
        assert!(!mark.exists());
    }

    /// Every kind of source gives a clone of its own HEAD, of which the harvest works.
    #[test]
    fn c06_c07_c08_c11_every_kind_of_source_can_be_cloned() {
        for git in gits() {
            let fixture = Fixture::new(&git);
            fixture.write("README", "two");
            fixture.commit("second");
            fixture.run(&["config", "uploadpack.allowFilter", "true"]);
            let url = format!("file://{}", fixture.repo.display());
            let dir = fixture.repo.parent().unwrap().to_owned();
            let make: &[(&str, &[&str])] = &[
                ("shallow", &["clone", "-q", "--depth=1", &url, "shallow"]),
                ("partial", &["clone", "-q", "--filter=blob:none", &url, "partial"]),
                ("shared", &["clone", "-q", "--shared", "user repo", "shared"]),
                ("bare", &["clone", "-q", "--bare", "user repo", "bare"]),
                ("linked", &["-C", "user repo", "worktree", "add", "-q", "-b", "wt", "../linked"]),
                ("detached", &["-C", "user repo", "worktree", "add", "-q", "--detach", "../detached", "HEAD~1"]),
                ("moved", &["clone", "-q", "user repo", "moved"]),
                ("sparse", &["clone", "-q", "user repo", "sparse"]),
            ];
            for (name, args) in make {
                user_git(&git, &dir, args);
                if *name == "moved" {
                    fs::rename(dir.join("moved/.git/objects"), dir.join("elsewhere")).unwrap();
                    std::os::unix::fs::symlink(dir.join("elsewhere"), dir.join("moved/.git/objects")).unwrap();
                }
                if *name == "sparse" {
                    user_git(&git, &dir.join("sparse"), &["sparse-checkout", "set", "--sparse-index", "src"]);
                }
                let source = Source::open(&git, &dir.join(name)).unwrap();
                let before = state_of(&dir.join(name));
                assert!(source.dirty(&[]).unwrap().paths.is_empty(), "{name}");
                let unit = fixture.prepare_from(&source, &format!("run-{name}"));
                assert_eq!(unit.run(&["rev-parse", "HEAD"]), source.resolve("HEAD").unwrap().commit, "{name}");
                assert_eq!(unit.run(&["status", "--porcelain"]), "", "{name}");
                unit.run(&["log", "--oneline"]);
                unit.write("src/a.rs", "changed");
                assert_eq!(unit.changed(), ["M src/a.rs"], "{name}");
                assert!(state_of(&dir.join(name)) == before, "{name} was touched");
            }
        }
    }

    #[test]
    fn a_repository_with_sha256_ids_works() {
        let fixture = Fixture::with_format(&gits()[0], "sha256");
        let unit = fixture.prepare("run");
        unit.write("b", "b");
        assert_eq!(unit.changed(), ["A b"]);
    }

    #[test]
    fn c22_twenty_clones_are_made_and_harvested_at_once() {
        let fixture = Fixture::new(&gits()[0]);
        for n in 0..2000 {
            fixture.write(&format!("d{}/f{n}", n % 50), &format!("{n}\n"));
        }
        fixture.commit("many");
        let before = state_of(&fixture.repo);
        let first = fixture.prepare("run");
        let mirror = mirror::ensure(&fixture.home(), &first.store, &first.base).unwrap();
        std::thread::scope(|scope| {
            for n in 0..20 {
                let (first, mirror, root) = (&first, &mirror, fixture.temp.path());
                scope.spawn(move || {
                    let (dir, trusted_index) = (root.join(format!("c{n}")), root.join(format!("c{n}.index")));
                    let (store, base) = (&first.store, &first.base);
                    let template = None;
                    let trusted_index = &trusted_index;
                    prepare(&ClonePlan { store, mirror, base, dir: &dir, trusted_index, template }).unwrap();
                    let trusted_index = trusted_index.clone();
                    put(&dir.join(format!("new{n}")), "x");
                    put(&dir.join("d1/same"), "the same in all");
                    let spec = crate::spec::HarvestSpec { work_tree: dir, trusted_index, ..first.spec.clone() };
                    let changes = super::super::harvest::harvest(&store.git, &spec).unwrap();
                    assert_eq!(changes.files.len(), 2);
                });
            }
        });
        assert_eq!(first.store.command(["fsck", "--connectivity-only"]).run().unwrap().status.code(), Some(0));
        assert_eq!(state_of(&fixture.repo), before);
    }
}
