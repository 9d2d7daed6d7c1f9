//! A user's repository, a run's store and a place to land from.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use crate::files::Durability;
use crate::git::Git;
use crate::home::sha256_hex;
use crate::integrate::journal::Journal;
use crate::integrate::land::{StopAfter, land};
use crate::integrate::overlap::{ConflictKind, OverlapKind};
use crate::integrate::{IntegrateError, LandError, Prepared, Request, Target, prepare};

pub(super) struct Bench {
    dir: TempDir,
    pub(super) git: Git,
    pub(super) target: Target,
    pub(super) base_tree: String,
    pub(super) store: PathBuf,
    pub(super) units: Vec<(prun_core::ids::UnitId, String)>,
    pub(super) accepted: BTreeSet<String>,
    count: Cell<u32>,
}

/// Content of a path: a file, an executable, a link, or nothing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Node {
    File(Vec<u8>),
    Exec(Vec<u8>),
    Link(String),
}

pub(super) type Files = BTreeMap<String, Node>;

pub(super) fn file(text: &str) -> Option<Node> {
    Some(Node::File(text.as_bytes().to_vec()))
}

pub(super) fn put(root: &Path, path: &str, node: Option<&Node>) {
    let full = root.join(path);
    if let Ok(meta) = std::fs::symlink_metadata(&full) {
        if meta.is_dir() && node.is_some() {
            std::fs::remove_dir_all(&full).unwrap();
        } else {
            std::fs::remove_file(&full).unwrap();
        }
    }
    let Some(node) = node else {
        let mut dir = full.parent().unwrap();
        while dir != root && std::fs::remove_dir(dir).is_ok() {
            dir = dir.parent().unwrap();
        }
        return;
    };
    // A file that stands where a directory is needed gives way.
    for above in full.ancestors().skip(1).take_while(|above| *above != root) {
        if std::fs::symlink_metadata(above).is_ok_and(|meta| !meta.is_dir()) {
            std::fs::remove_file(above).unwrap();
        }
    }
    std::fs::create_dir_all(full.parent().unwrap()).unwrap();
    match node {
        Node::Link(to) => std::os::unix::fs::symlink(to, &full).unwrap(),
        Node::File(bytes) | Node::Exec(bytes) => {
            std::fs::write(&full, bytes).unwrap();
            let mode = if matches!(node, Node::Exec(_)) { 0o755 } else { 0o644 };
            std::fs::set_permissions(&full, std::fs::Permissions::from_mode(mode)).unwrap();
        }
    }
}

impl Bench {
    /// A repository with one commit of these files.
    pub(super) fn new(files: &[(&str, Option<Node>)]) -> Self {
        Self::with_format("sha1", files)
    }

    /// The same with another object format.
    pub(super) fn with_format(format: &str, files: &[(&str, Option<Node>)]) -> Self {
        let git = Git::from_env();
        let format = format!("--object-format={format}");
        let dir = tempfile::tempdir().unwrap();
        let user = dir.path().join("user");
        git.command(["init", "-q", "--template=", "--initial-branch=main", &format]).arg(&user).run().unwrap();
        for (path, node) in files {
            put(&user, path, node.as_ref());
        }
        git.command(["add", "-A"]).dir(&user).run().unwrap();
        git.command(["commit", "-q", "--allow-empty", "-m", "base"]).dir(&user).run().unwrap();
        let store = dir.path().join("store.git");
        git.command(["init", "-q", "--bare", "--template=", &format]).arg(&store).run().unwrap();
        let target = Target::of(&git, &user).unwrap();
        let line = format!("{}\n", target.common_dir.join("objects").display());
        std::fs::write(store.join("objects/info/alternates"), line).unwrap();
        let base_tree = git.command(["rev-parse", "HEAD^{tree}"]).dir(&user).run().unwrap().text();
        let (units, accepted, count) = (Vec::new(), BTreeSet::new(), Cell::new(0));
        Self { dir, git, target, base_tree, store, units, accepted, count }
    }

    pub(super) fn user(&self) -> &Path {
        &self.target.work_tree
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(super) fn store(&self) -> PathBuf {
        self.store.clone()
    }

    /// Runs git in the user's repository.
    pub(super) fn user_git(&self, args: &[&str]) -> String {
        self.git.command(args.iter().copied()).dir(self.user()).run().unwrap().text()
    }

    /// Edits the user's working tree.
    #[expect(clippy::needless_pass_by_value, reason = "the calls read better")]
    pub(super) fn edit(&self, path: &str, node: Option<Node>) {
        put(self.user(), path, node.as_ref());
    }

    /// The tree that edits make of the base, harvested into the store.
    pub(super) fn tree_with(&self, edits: &[(&str, Option<Node>)]) -> String {
        let work = self.path(&format!("work-{}", self.next()));
        std::fs::create_dir(&work).unwrap();
        let index = work.with_extension("index");
        let git = |args: &[&str]| {
            let command = self.git.command(args.iter().copied()).dir(&work).git_dir(self.store()).work_tree(&work);
            command.config("core.bare=false").index(&index).run().unwrap().text()
        };
        git(&["read-tree", "--reset", "-u", &self.base_tree]);
        for (path, node) in edits {
            put(&work, path, node.as_ref());
        }
        git(&["add", "-A", "-f"]);
        let tree = git(&["write-tree"]);
        std::fs::remove_dir_all(work).unwrap();
        tree
    }

    /// The tree of exactly these files.
    pub(super) fn tree_of(&self, files: &Files) -> String {
        let work = self.path(&format!("work-{}", self.next()));
        std::fs::create_dir(&work).unwrap();
        for (path, node) in files {
            put(&work, path, Some(node));
        }
        let git = |args: &[&str]| {
            let command = self.git.command(args.iter().copied()).dir(&work).git_dir(self.store()).work_tree(&work);
            command.config("core.bare=false").index(work.with_extension("index")).run().unwrap().text()
        };
        git(&["add", "-A", "-f"]);
        let tree = git(&["write-tree"]);
        std::fs::remove_dir_all(work).unwrap();
        tree
    }

    pub(super) fn unit(&mut self, id: &str, edits: &[(&str, Option<Node>)]) -> &mut Self {
        let tree = self.tree_with(edits);
        self.units.push((id.parse().unwrap(), tree));
        self
    }

    fn next(&self) -> u32 {
        self.count.set(self.count.get() + 1);
        self.count.get()
    }

    pub(super) fn prepare(&self) -> Result<Prepared, IntegrateError> {
        let quarantine = self.path(&format!("quarantine-{}", self.next()));
        prepare(&Request {
            git: &self.git,
            target: &self.target,
            store: &self.store(),
            quarantine: &quarantine,
            base_tree: &self.base_tree,
            units: &self.units,
            accepted: &self.accepted,
        })
    }

    pub(super) fn journal(&self) -> Journal {
        let prepared = self.prepare().unwrap();
        assert!(prepared.dry_run.ready, "{:#?}", prepared.dry_run);
        self.journal_of(&prepared)
    }

    pub(super) fn journal_of(&self, prepared: &Prepared) -> Journal {
        let stage = self.path(&format!("stage-{}", self.next()));
        prepared.stage_landing(&stage).unwrap();
        self.journal_from(prepared, &stage)
    }

    /// Another journal of the same combination.
    pub(super) fn journal_from(&self, prepared: &Prepared, stage: &Path) -> Journal {
        let dir = self.path(&format!("landing-{}", self.next()));
        prepared.journal(stage, &dir, "test", Durability::Cached).unwrap()
    }

    /// Makes the working tree hold exactly these files.
    pub(super) fn restore(&self, files: &Files) {
        for path in self.files().keys().filter(|path| !path.ends_with('/')) {
            put(self.user(), path, None);
        }
        for (path, node) in files {
            put(self.user(), path, Some(node));
        }
    }

    pub(super) fn land(&self) -> Result<Journal, LandError> {
        let journal = self.journal();
        land(&journal, StopAfter::default()).map(|()| journal)
    }

    /// Conflicts as `path kind`, sorted.
    pub(super) fn conflicts(&self) -> Vec<(String, ConflictKind)> {
        let dry_run = self.prepare().unwrap().dry_run;
        assert!(!dry_run.ready);
        dry_run.conflicts.into_iter().map(|conflict| (conflict.path, conflict.kind)).collect()
    }

    pub(super) fn overlaps(&self) -> Vec<(String, OverlapKind)> {
        self.prepare().unwrap().dry_run.overlaps.into_iter().map(|overlap| (overlap.path, overlap.kind)).collect()
    }

    pub(super) fn read(&self, path: &str) -> Option<Node> {
        node_at(&self.user().join(path))
    }

    /// Every file of the working tree.
    pub(super) fn files(&self) -> Files {
        files_of(self.user())
    }

    /// A hash over names, modes and bytes of everything in `.git`.
    pub(super) fn git_hash(&self) -> String {
        let mut text = String::new();
        for (path, node) in files_below(&self.target.git_dir) {
            text += &format!("{path} {:?}\n", sha256_hex(format!("{node:?}").as_bytes()));
        }
        sha256_hex(text.as_bytes())
    }
}

pub(super) fn node_at(full: &Path) -> Option<Node> {
    let meta = std::fs::symlink_metadata(full).ok()?;
    if meta.is_symlink() {
        return Some(Node::Link(std::fs::read_link(full).unwrap().to_str().unwrap().to_owned()));
    }
    if meta.is_dir() {
        return None;
    }
    let bytes = std::fs::read(full).unwrap();
    Some(if meta.permissions().mode() & 0o100 == 0 { Node::File(bytes) } else { Node::Exec(bytes) })
}

/// Every file below a work tree but `.git`; empty directories as a name with a slash.
pub(super) fn files_of(root: &Path) -> Files {
    files_below(root).into_iter().filter(|(path, _)| !path.starts_with(".git/")).collect()
}

fn files_below(root: &Path) -> Files {
    let mut found = Files::new();
    let mut open = vec![root.to_owned()];
    while let Some(dir) = open.pop() {
        let entries: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()).collect();
        let name = |path: &Path| path.strip_prefix(root).unwrap().to_string_lossy().into_owned();
        if entries.is_empty() {
            found.insert(name(&dir) + "/", Node::File(vec![]));
        }
        for path in entries {
            match node_at(&path) {
                Some(node) => {
                    found.insert(name(&path), node);
                }
                None => open.push(path),
            }
        }
    }
    found
}
