//! A directory at one moment: every path with its mode and bytes, to be compared with another moment.

use std::collections::BTreeMap;
use std::fs::Metadata;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// All that is below a directory. Times are left out: what they say depends on the clock.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tree {
    entries: BTreeMap<PathBuf, Entry>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    mode: u32,
    content: Content,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Content {
    File(Vec<u8>),
    Link(Vec<u8>),
    Directory,
    Other,
}

impl Tree {
    /// What is below `dir` now; nothing where it is not there.
    pub(super) fn of(dir: &Path) -> Self {
        let mut tree = Self::default();
        tree.add(dir, Path::new(""));
        tree
    }

    fn add(&mut self, dir: &Path, inner: &Path) {
        for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
            let (path, inner) = (entry.path(), inner.join(entry.file_name()));
            // It may be gone by now.
            let Ok(meta) = std::fs::symlink_metadata(&path) else { continue };
            self.entries
                .insert(inner.clone(), Entry { mode: meta.permissions().mode(), content: content(&path, &meta) });
            if meta.is_dir() {
                self.add(&path, &inner);
            }
        }
    }

    /// The same without what is below `path`, and `path` itself.
    #[must_use]
    pub fn without(mut self, path: &str) -> Self {
        self.entries.retain(|entry, _| !entry.starts_with(path));
        self
    }

    /// The paths that are not the same in `later`, each with `+`, `-` or `~` before it.
    #[must_use]
    pub fn changes(&self, later: &Self) -> Vec<String> {
        let mut changes = Vec::new();
        for (path, entry) in &self.entries {
            match later.entries.get(path) {
                None => changes.push(format!("-{}", path.display())),
                Some(other) if other != entry => changes.push(format!("~{}", path.display())),
                Some(_) => {}
            }
        }
        let new = later.entries.keys().filter(|path| !self.entries.contains_key(*path));
        changes.extend(new.map(|path| format!("+{}", path.display())));
        changes
    }
}

fn content(path: &Path, meta: &Metadata) -> Content {
    let kind = meta.file_type();
    if kind.is_file() {
        Content::File(std::fs::read(path).unwrap_or_default())
    } else if kind.is_symlink() {
        Content::Link(std::fs::read_link(path).map(|to| to.as_os_str().as_bytes().to_vec()).unwrap_or_default())
    } else if kind.is_dir() {
        Content::Directory
    } else {
        debug_assert!(kind.is_fifo() || kind.is_socket() || kind.is_char_device() || kind.is_block_device());
        Content::Other
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_name_what_came_went_and_differs() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["a", "b", "c"] {
            std::fs::write(dir.path().join(name), name).unwrap();
        }
        let before = Tree::of(dir.path());
        assert_eq!(before.changes(&Tree::of(dir.path())), [""; 0]);
        std::fs::remove_file(dir.path().join("a")).unwrap();
        std::fs::set_permissions(dir.path().join("b"), std::fs::Permissions::from_mode(0o600)).unwrap();
        std::fs::write(dir.path().join("d"), "").unwrap();
        let later = Tree::of(dir.path());
        assert_eq!(before.changes(&later), ["-a", "~b", "+d"]);
        assert_eq!(before.without("a").changes(&later.without("d")), ["~b"]);
    }
}
