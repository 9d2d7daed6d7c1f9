//! The objects that clones borrow: packs of our own in the cache, which share no inode with the user's and
//! point nowhere.
//!
//! Workers can write here. So its packs are recorded in a manifest that is compared before each use, and
//! nothing that is combined or landed is read from here.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::gitdir::GitDir;
use super::store::Store;
use super::{Base, WorkspaceError, encode};
use crate::files::{Durability, FileError, create_private_dir, read_regular, write_atomically};
use crate::git::GitCommand;
use crate::home::Home;

/// A mirror that holds a base with its history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mirror {
    /// Its bare git directory.
    pub git_dir: PathBuf,
    /// The user's local branches that it also holds, full ref name to commit.
    pub branches: BTreeMap<String, String>,
}

impl Mirror {
    /// Its object directory, for a clone's alternates.
    #[must_use]
    pub fn objects(&self) -> PathBuf {
        self.git_dir.join("objects")
    }
}

/// What a mirror holds; written after its packs, so a fill that was cut short leaves only surplus packs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Manifest {
    version: u32,
    /// Commits whose whole history is here.
    tips: BTreeSet<String>,
    /// Where history was cut off. When that changes, what the tips promise changes too.
    shallow: Option<Vec<u8>>,
    /// The packs by file name.
    packs: BTreeMap<String, PackFile>,
}

/// A file of a pack. Git itself touches a pack's times when somebody writes an object that it holds; then the
/// content decides.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct PackFile {
    size: u64,
    inode: u64,
    changed: (i64, i64),
    sha256: String,
}

const MANIFEST_VERSION: u32 = 1;
const MANIFEST_FILE: &str = "prun.json";

/// Fills the mirror of the store's repository until it holds `base` with its history, and the user's local
/// branches. A damaged mirror stays to those who borrow from it; a fresh one takes its place.
///
/// # Errors
/// The mirror cannot be locked or written, or the base is not complete in the user's repository.
pub fn ensure(home: &Home, store: &Store, base: &Base) -> Result<Mirror, WorkspaceError> {
    let first = home.mirror(&store.facts.common_dir);
    create_private_dir(first.parent().unwrap_or(home.root()))?;
    let _lock = lock(&first.with_extension("lock"))?;
    let (git_dir, manifest) = newest_sound(&first, store)?;
    let filler = Filler { store, git_dir: &git_dir };
    let branches = &store.facts.branches;
    // A branch with missing objects must not stand in the way of the base.
    let (manifest, branches) = match filler.fill(&manifest, base, branches) {
        Ok(manifest) => (manifest, branches.clone()),
        Err(_) => (filler.fill(&manifest, base, &BTreeMap::new())?, BTreeMap::new()),
    };
    save(&git_dir, &manifest)?;
    store.set_mirror(&git_dir)?;
    Ok(Mirror { git_dir, branches })
}

struct Filler<'a> {
    store: &'a Store,
    git_dir: &'a Path,
}

impl Filler<'_> {
    fn fill(
        &self,
        manifest: &Manifest,
        base: &Base,
        branches: &BTreeMap<String, String>,
    ) -> Result<Manifest, WorkspaceError> {
        let wanted: BTreeSet<String> = branches.values().chain([&base.commit]).cloned().collect();
        let new: Vec<&String> = wanted.difference(&manifest.tips).collect();
        if new.is_empty() {
            return Ok(manifest.clone());
        }
        let known = self.still_known(&manifest.tips)?;
        if self.store.facts.partial {
            self.pack_partial(&new, &known)?;
        } else {
            self.pack(&new, &known)?;
        }
        let mut filled = manifest.clone();
        filled.tips.extend(wanted);
        filled.packs = scan(&self.git_dir.join("objects/pack"), &manifest.packs)?;
        Ok(filled)
    }

    /// Writes what is reachable from `new` and not from `known` as one pack, then makes sure that the mirror
    /// has it all by itself. Deltas that are there are taken over, none is searched for.
    fn pack(&self, new: &[&String], known: &[String]) -> Result<(), WorkspaceError> {
        let revisions: String =
            new.iter().map(|id| format!("{id}\n")).chain(known.iter().map(|id| format!("^{id}\n"))).collect();
        self.pack_objects().arg("--revs").arg(self.pack_name()).input(revisions.clone()).run()?;
        self.store
            .git
            .command(["rev-list", "--objects", "--quiet", "--stdin"])
            .git_dir(self.git_dir)
            .dir(self.git_dir)
            .input(revisions)
            .run()?;
        Ok(())
    }

    /// The same for a partial clone, whose history has holes: what is there is taken, and that the base
    /// itself is complete was seen when it was resolved.
    fn pack_partial(&self, new: &[&String], known: &[String]) -> Result<(), WorkspaceError> {
        let listed = self
            .store
            .command(["rev-list", "--objects", "--no-object-names", "--missing=allow-any"])
            .args(new)
            .arg("--not")
            .args(known)
            .run()?;
        self.pack_objects().arg(self.pack_name()).input(listed.stdout).run()?;
        Ok(())
    }

    fn pack_objects(&self) -> GitCommand {
        let borrowed = self.store.git_dir.join("objects");
        self.store
            .command(["pack-objects", "--quiet", "--window=0", "--delta-base-offset"])
            .env("GIT_OBJECT_DIRECTORY", self.git_dir.join("objects"))
            .env("GIT_ALTERNATE_OBJECT_DIRECTORIES", encode::alternates_variable([borrowed.as_path()]))
    }

    fn pack_name(&self) -> PathBuf {
        self.git_dir.join("objects/pack/pack")
    }

    /// The tips that the user's repository still has: others cannot be named to git.
    fn still_known(&self, tips: &BTreeSet<String>) -> Result<Vec<String>, WorkspaceError> {
        if tips.is_empty() {
            return Ok(Vec::new());
        }
        let asked: String = tips.iter().map(|tip| format!("{tip}\n")).collect();
        let told = self.store.command(["cat-file", "--batch-check"]).input(asked).run()?.text();
        let commits = told.lines().filter_map(|line| line.split_once(" commit "));
        Ok(commits.map(|(id, _)| id.to_owned()).collect())
    }
}

/// The newest mirror, or a fresh one where it is damaged or its history was cut off elsewhere.
fn newest_sound(first: &Path, store: &Store) -> Result<(PathBuf, Manifest), WorkspaceError> {
    let generation = |number: u32| match number {
        0 => first.to_owned(),
        number => first.with_extension(format!("{number}.git")),
    };
    let free = (0..).find(|number| generation(*number).symlink_metadata().is_err()).unwrap_or(0);
    if let Some(newest) = free.checked_sub(1).map(generation)
        && let Some(manifest) = load(&newest).filter(|manifest| manifest.shallow == store.facts.shallow)
        && let Some(packs) = compare(&newest.join("objects/pack"), &manifest.packs)?
    {
        return Ok((newest, Manifest { packs, ..manifest }));
    }
    let git_dir = generation(free);
    GitDir {
        bare: true,
        object_format: &store.facts.object_format,
        head: "refs/heads/none",
        shallow: store.facts.shallow.as_deref(),
        ..GitDir::default()
    }
    .write(&git_dir)?;
    let manifest = Manifest { version: MANIFEST_VERSION, shallow: store.facts.shallow.clone(), ..Manifest::default() };
    save(&git_dir, &manifest)?;
    Ok((git_dir, manifest))
}

/// The packs as they are now, if they hold what the manifest says; `None` if one is missing or changed. Packs
/// that no manifest names are left from a fill that was cut short.
fn compare(
    dir: &Path,
    recorded: &BTreeMap<String, PackFile>,
) -> Result<Option<BTreeMap<String, PackFile>>, WorkspaceError> {
    let now = scan(dir, recorded)?;
    let same = |(name, was): (&String, &PackFile)| {
        now.get(name).is_some_and(|is| is.size == was.size && is.inode == was.inode && is.sha256 == was.sha256)
    };
    Ok(recorded.iter().all(same).then_some(now))
}

/// Every pack file. One whose size, inode and change time are as recorded is not read again.
fn scan(dir: &Path, recorded: &BTreeMap<String, PackFile>) -> Result<BTreeMap<String, PackFile>, FileError> {
    let mut packs = BTreeMap::new();
    for entry in fs::read_dir(dir).map_err(FileError::at("read", dir))? {
        let path = entry.map_err(FileError::at("read", dir))?.path();
        let Some(name) = path.file_name().and_then(|name| name.to_str()).filter(|name| name.starts_with("pack-"))
        else {
            continue;
        };
        let meta = fs::symlink_metadata(&path).map_err(FileError::at("read", &path))?;
        let changed = (meta.ctime(), meta.ctime_nsec());
        let known = recorded
            .get(name)
            .filter(|known| known.size == meta.size() && known.inode == meta.ino() && known.changed == changed);
        let sha256 = match known {
            Some(known) => known.sha256.clone(),
            None => hash(&path).map_err(FileError::at("read", &path))?,
        };
        packs.insert(name.to_owned(), PackFile { size: meta.size(), inode: meta.ino(), changed, sha256 });
    }
    Ok(packs)
}

fn hash(path: &Path) -> io::Result<String> {
    let mut file = File::open(path)?;
    let mut hasher = Sha256::new();
    let mut buffer = vec![0; 1 << 16];
    loop {
        match file.read(&mut buffer)? {
            0 => break,
            count => hasher.update(&buffer[..count]),
        }
    }
    Ok(hasher.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
}

fn load(git_dir: &Path) -> Option<Manifest> {
    let bytes = read_regular(&git_dir.join(MANIFEST_FILE), 64 << 20).ok()?;
    serde_json::from_slice(&bytes).ok().filter(|manifest: &Manifest| manifest.version == MANIFEST_VERSION)
}

fn save(git_dir: &Path, manifest: &Manifest) -> Result<(), FileError> {
    let json = serde_json::to_vec(manifest).expect("plain data with string keys");
    write_atomically(&git_dir.join(MANIFEST_FILE), &json, Durability::Cached)
}

/// Waits for the lock: whoever holds it fills the mirror that we need too.
fn lock(path: &Path) -> Result<File, FileError> {
    let file = OpenOptions::new().create(true).truncate(false).write(true).open(path);
    let file = file.map_err(FileError::at("open", path))?;
    loop {
        match flock(&file, FlockOperation::LockExclusive) {
            Err(rustix::io::Errno::INTR) => {}
            Err(errno) => return Err(FileError::at("lock", path)(errno.into())),
            Ok(()) => return Ok(file),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Fixture, Prepared, gits, state_of};
    use super::*;

    fn packs(git_dir: &Path) -> usize {
        fs::read_dir(git_dir.join("objects/pack"))
            .unwrap()
            .flatten()
            .filter(|e| e.path().extension().is_some_and(|x| x == "pack"))
            .count()
    }

    fn again(fixture: &Fixture, unit: &Prepared) -> Mirror {
        ensure(&fixture.home(), &unit.store, &unit.base).unwrap()
    }

    #[test]
    fn a_mirror_grows_by_what_is_new_and_points_nowhere() {
        for git in gits() {
            let fixture = Fixture::new(&git);
            let first = fixture.prepare("one");
            let mirror = again(&fixture, &first);
            assert_eq!(packs(&mirror.git_dir), 1);
            fixture.write("README", "two");
            fixture.commit("second");
            let second = fixture.prepare("two");
            let grown = again(&fixture, &second);
            assert_eq!((&grown.git_dir, packs(&grown.git_dir)), (&mirror.git_dir, 2));
            assert!(!grown.git_dir.join("objects/info/alternates").exists());
            assert!(!grown.git_dir.join("refs/heads/main").exists());
        }
    }

    #[test]
    fn a_damaged_mirror_is_left_and_a_fresh_one_takes_its_place() {
        let fixture = Fixture::new(&gits()[0]);
        let unit = fixture.prepare("one");
        let mirror = again(&fixture, &unit);
        let pack = fs::read_dir(mirror.objects().join("pack")).unwrap().flatten();
        let pack = pack.map(|entry| entry.path()).find(|path| path.extension().is_some_and(|x| x == "pack")).unwrap();
        // Written in place, with its size and its time kept.
        let time = fs::metadata(&pack).unwrap().modified().unwrap();
        let mut bytes = fs::read(&pack).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 0xff;
        fs::set_permissions(&pack, std::os::unix::fs::PermissionsExt::from_mode(0o644)).unwrap();
        fs::write(&pack, &bytes).unwrap();
        File::options().write(true).open(&pack).unwrap().set_modified(time).unwrap();
        let fresh = again(&fixture, &unit);
        assert_ne!(fresh.git_dir, mirror.git_dir);
        assert!(mirror.git_dir.exists());
        assert_eq!(again(&fixture, &unit), fresh, "the fresh one is used from then on");
    }

    #[test]
    fn a_pack_of_which_git_refreshed_the_time_is_sound() {
        let fixture = Fixture::new(&gits()[0]);
        let unit = fixture.prepare("one");
        let mirror = again(&fixture, &unit);
        let before = state_of(&mirror.objects());
        // A worker writes an object that the mirror has already.
        unit.run(&["hash-object", "-w", "README"]);
        assert_ne!(state_of(&mirror.objects()), before, "git refreshes times in an alternate");
        assert_eq!(again(&fixture, &unit), mirror);
    }

    #[test]
    fn many_may_ask_for_the_same_mirror_at_once() {
        let fixture = Fixture::new(&gits()[0]);
        let source = fixture.source();
        let base = source.resolve("HEAD").unwrap();
        std::thread::scope(|scope| {
            for n in 0..8 {
                let (fixture, source, base) = (&fixture, &source, &base);
                scope.spawn(move || {
                    let store = Store::create(&fixture.temp.path().join(format!("{n}.git")), source).unwrap();
                    ensure(&fixture.home(), &store, base).unwrap();
                });
            }
        });
        let mirrors = fixture.home().mirror(&source.common_dir).parent().unwrap().to_owned();
        assert_eq!(fs::read_dir(mirrors).unwrap().count(), 2, "one mirror and its lock");
    }

    #[test]
    fn a_branch_with_missing_objects_does_not_stand_in_the_way() {
        let fixture = Fixture::new(&gits()[0]);
        fixture.run(&["checkout", "-q", "-b", "broken"]);
        fixture.write("x", "only here");
        fixture.commit("x");
        let blob = fixture.run(&["rev-parse", "HEAD:x"]);
        fixture.run(&["checkout", "-q", "main"]);
        fs::remove_file(fixture.repo.join(".git/objects").join(&blob[..2]).join(&blob[2..])).unwrap();
        let unit = fixture.prepare("one");
        assert!(again(&fixture, &unit).branches.is_empty());
        assert_eq!(unit.run(&["rev-parse", "HEAD"]), unit.base.commit);
    }
}
