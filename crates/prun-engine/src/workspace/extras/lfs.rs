//! LFS: where the tree holds a pointer and the user's machine the content, the clone gets the content, by copying.
//! No filter of anybody's runs, here or in the harvest: the index is told that the content is what was checked out.

use std::fs::{self, File, FileTimes};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use super::super::clone::copy_index;
use super::super::index_file::{EntryStat, IndexFile};
use super::super::source::Source;
use super::super::{Base, WorkspaceError, encode};
use super::{TreeEntry, some};
use crate::files::{FileError, read_regular};
use crate::git::GitCommand;

/// No pointer is larger (the LFS specification).
const POINTER_LIMIT: u64 = 1024;
/// How every pointer begins (the LFS specification).
const MAGIC: &str = "version https://git-lfs.github.com/spec/v1\n";

/// A file of which the tree holds a pointer.
#[derive(Debug)]
pub(super) struct Pointer {
    path: PathBuf,
    text: Vec<u8>,
    /// Its content in the user's LFS store.
    object: PathBuf,
}

/// Every pointer of the base whose content is there.
pub(super) fn find(
    source: &Source,
    base: &Base,
    entries: &[TreeEntry],
    read: &dyn Fn(&[&str]) -> GitCommand,
    unseen: &mut Vec<String>,
) -> Result<Vec<Pointer>, WorkspaceError> {
    if !uses_lfs(entries, read)? {
        return Ok(Vec::new());
    }
    // Only blobs that begin like a pointer are looked at; git searches them without writing a file.
    let magic = format!("^{}", MAGIC.trim_end().replace('.', "\\."));
    let listed = read(&["grep", "-l", "-z", "--full-name", "-e", &magic, &base.tree, "--"]).run_accepting(&[0, 1])?;
    let (mut found, mut missing) = (Vec::new(), Vec::new());
    for name in listed.fields() {
        let Some(path) = name.splitn(2, |byte| *byte == b':').nth(1) else { continue };
        let Some(entry) = entries.iter().find(|entry| entry.path == path) else { continue };
        let text = read(&["cat-file", "blob", &entry.id]).run()?.stdout;
        let Some((id, size)) = parse(&text) else { continue };
        let object = source.common_dir.join("lfs/objects").join(&id[..2]).join(&id[2..4]).join(&id);
        if object.metadata().is_ok_and(|meta| meta.is_file() && meta.len() == size) {
            found.push(Pointer { path: encode::path(path), text, object });
        } else {
            missing.push(encode::lossy(path));
        }
    }
    if !missing.is_empty() {
        unseen.push(format!("the content of LFS files that are pointers here: {}", some(&missing)));
    }
    Ok(found)
}

fn uses_lfs(entries: &[TreeEntry], read: &dyn Fn(&[&str]) -> GitCommand) -> Result<bool, WorkspaceError> {
    let is_attributes =
        |entry: &&TreeEntry| entry.path == b".gitattributes" || entry.path.ends_with(b"/.gitattributes");
    for entry in entries.iter().filter(is_attributes) {
        if read(&["cat-file", "blob", &entry.id]).run()?.text().contains("filter=lfs") {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The SHA-256 and the size that a pointer names.
fn parse(text: &[u8]) -> Option<(String, u64)> {
    let text = std::str::from_utf8(text).ok().filter(|text| text.len() as u64 <= POINTER_LIMIT)?;
    let lines = || text.strip_prefix(MAGIC).into_iter().flat_map(str::lines);
    let id = lines().find_map(|line| line.strip_prefix("oid sha256:"))?;
    let size = lines().find_map(|line| line.strip_prefix("size "))?.parse().ok()?;
    let is_id = id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
    is_id.then(|| (id.to_owned(), size))
}

/// Replaces the pointers of a clone. One that was copied from another clone has the content already.
pub(super) fn add(pointers: &[Pointer], clone: &Path, trusted_index: &Path) -> Result<(), WorkspaceError> {
    let is_pointer = |pointer: &&Pointer| {
        read_regular(&clone.join(&pointer.path), POINTER_LIMIT).is_ok_and(|text| text == pointer.text)
    };
    let left: Vec<&Pointer> = pointers.iter().filter(is_pointer).collect();
    if left.is_empty() {
        return Ok(());
    }
    let path = clone.join(".git/index");
    let bytes = fs::read(&path).map_err(FileError::at("read", &path))?;
    let index = IndexFile::parse(bytes, object_format(clone))
        .ok_or_else(|| WorkspaceError::unexpected("read-tree", "an index of an unknown version"))?;
    let mut stats: Vec<EntryStat> = (0..index.len()).map(|n| index.stat(n)).collect();
    for (n, slot) in stats.iter_mut().enumerate() {
        let name = encode::path(index.path(n));
        if let Some(pointer) = left.iter().find(|pointer| pointer.path == name) {
            let to = clone.join(&name);
            replace(&pointer.object, &to).map_err(FileError::at("write", &to))?;
            let stat = rustix::fs::lstat(&to).map_err(|errno| FileError::at("read", &to)(errno.into()))?;
            *slot = EntryStat::of(&stat);
        }
    }
    fs::write(&path, index.with_stats(&stats)).map_err(FileError::at("write", &path))?;
    Ok(copy_index(&path, trusted_index)?)
}

/// Older than the index by whole seconds, or git would compare the content with the pointer.
fn replace(object: &Path, to: &Path) -> std::io::Result<()> {
    let mode = fs::metadata(to)?.permissions().mode();
    fs::remove_file(to)?;
    fs::copy(object, to)?;
    let file = File::options().write(true).open(to)?;
    file.set_permissions(fs::Permissions::from_mode(mode & 0o777 | 0o600))?;
    file.set_times(FileTimes::new().set_modified(std::time::SystemTime::now() - Duration::from_secs(2)))
}

/// The format of a clone's object ids, from the configuration that prun wrote.
fn object_format(clone: &Path) -> &'static str {
    let config = fs::read_to_string(clone.join(".git/config")).unwrap_or_default();
    if config.contains("objectFormat = sha256") { "sha256" } else { "sha1" }
}
