//! Removing a directory that somebody else filled: links are not followed, other file systems are not entered, and
//! directories that may not be written are opened up first.

use std::collections::BTreeSet;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Instant;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, fstat, openat, statat, unlinkat};
use rustix::io::Errno;

use crate::files::FileError;

/// Removes `dir` and all that is in it. That it is gone is looked at afterwards.
///
/// # Errors
/// Something in it cannot be removed, or lies on another file system; what was removed by then is gone.
pub fn remove_tree(dir: &Path) -> Result<(), FileError> {
    let remove = || -> io::Result<()> {
        let stat = match statat(CWD, dir, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => return Ok(()),
            stat => stat?,
        };
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            return Ok(unlinkat(CWD, dir, AtFlags::empty())?);
        }
        empty(&open(CWD, dir.as_os_str().as_encoded_bytes())?, stat.st_dev)?;
        unlinkat(CWD, dir, AtFlags::REMOVEDIR)?;
        match dir.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            _ => Err(io::Error::other("it is still there")),
        }
    };
    remove().map_err(FileError::at("remove", dir))
}

fn empty(dir: &OwnedFd, device: u64) -> io::Result<()> {
    if fstat(dir)?.st_dev != device {
        return Err(io::Error::other("another file system is mounted in it"));
    }
    let names: Vec<Vec<u8>> = Dir::read_from(dir)?
        .map(|entry| entry.map(|entry| entry.file_name().to_bytes().to_owned()))
        .collect::<Result<_, _>>()?;
    for name in names.iter().filter(|name| name.as_slice() != b"." && name.as_slice() != b"..") {
        let stat = match statat(dir, name.as_slice(), AtFlags::SYMLINK_NOFOLLOW) {
            // Whoever wrote here may still be removing.
            Err(Errno::NOENT) => continue,
            stat => stat?,
        };
        let flags = if FileType::from_raw_mode(stat.st_mode) == FileType::Directory {
            empty(&open(dir.as_fd(), name)?, device)?;
            AtFlags::REMOVEDIR
        } else {
            AtFlags::empty()
        };
        unlinkat(dir, name.as_slice(), flags)?;
    }
    Ok(())
}

/// Opens a directory, which may be closed even to its owner, and lets its owner write to it.
fn open(parent: BorrowedFd<'_>, name: &[u8]) -> io::Result<OwnedFd> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let place = openat(parent, name, flags | OFlags::PATH, Mode::empty())?;
    let mode = Mode::from_raw_mode(fstat(&place)?.st_mode);
    if !mode.contains(Mode::RWXU) {
        // A descriptor that only names it cannot be changed itself; this leads to just that directory.
        rustix::fs::chmod(format!("/proc/self/fd/{}", place.as_raw_fd()), mode | Mode::RWXU)?;
    }
    Ok(openat(&place, ".", flags | OFlags::RDONLY, Mode::empty())?)
}

/// Bytes on the disk below `dir`, a file with several names once. Stops at `deadline`; the flag tells whether all
/// was seen.
#[must_use]
pub fn disk_use(dir: &Path, deadline: Option<Instant>) -> (u64, bool) {
    let (mut bytes, mut seen, mut left) = (0_u64, BTreeSet::new(), vec![dir.to_owned()]);
    while let Some(path) = left.pop() {
        if deadline.is_some_and(|deadline| Instant::now() > deadline) {
            return (bytes, false);
        }
        let Ok(meta) = path.symlink_metadata() else { continue };
        bytes = bytes.saturating_add(meta.blocks().saturating_mul(512));
        for entry in std::fs::read_dir(&path).into_iter().flatten().flatten() {
            match entry.metadata() {
                Ok(meta) if meta.is_dir() => left.push(entry.path()),
                Ok(meta) if meta.nlink() == 1 || seen.insert((meta.dev(), meta.ino())) => {
                    bytes = bytes.saturating_add(meta.blocks().saturating_mul(512));
                }
                _ => {}
            }
        }
    }
    (bytes, true)
}

/// Processes whose working directory lies in `dir`, as far as they can be seen.
#[must_use]
pub fn processes_in(dir: &Path) -> Vec<u32> {
    let dir = dir.canonicalize().unwrap_or_else(|_| dir.to_owned());
    let cwd = |pid: &u32| std::fs::read_link(PathBuf::from(format!("/proc/{pid}/cwd"))).ok();
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    pids.filter(|pid| cwd(pid).is_some_and(|cwd| cwd.starts_with(&dir))).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt, symlink};

    use super::*;

    fn close(path: &Path, mode: u32) {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }

    #[test]
    fn c101_read_only_trees_go_and_links_are_not_followed() {
        let temp = tempfile::tempdir().unwrap();
        let (dir, other) = (temp.path().join("clone"), temp.path().join("other"));
        fs::create_dir_all(dir.join("mod/cache/deep")).unwrap();
        fs::create_dir(&other).unwrap();
        fs::write(other.join("kept"), "x").unwrap();
        fs::write(dir.join("mod/cache/file"), "x").unwrap();
        symlink(&other, dir.join("link")).unwrap();
        symlink(&other, dir.join("mod/cache/link")).unwrap();
        symlink("nowhere", dir.join("broken")).unwrap();
        close(&dir.join("mod/cache/file"), 0o444);
        for (name, mode) in [("mod/cache/deep", 0), ("mod/cache", 0o555), ("mod", 0o555)] {
            close(&dir.join(name), mode);
        }
        remove_tree(&dir).unwrap();
        assert!(!dir.exists() && other.join("kept").exists());
        remove_tree(&dir).unwrap();
    }

    #[test]
    fn a_link_in_the_place_of_the_directory_is_all_that_goes() {
        let temp = tempfile::tempdir().unwrap();
        let (link, other) = (temp.path().join("clone"), temp.path().join("other"));
        fs::create_dir(&other).unwrap();
        symlink(&other, &link).unwrap();
        remove_tree(&link).unwrap();
        assert!(other.exists() && !link.is_symlink());
    }

    #[test]
    fn disk_use_counts_a_file_once_and_can_be_cut_short() {
        let temp = tempfile::tempdir().unwrap();
        fs::write(temp.path().join("a"), vec![1; 1 << 20]).unwrap();
        fs::hard_link(temp.path().join("a"), temp.path().join("b")).unwrap();
        let (bytes, all) = disk_use(temp.path(), None);
        assert!(all && (1 << 20..2 << 20).contains(&bytes), "{bytes}");
        assert!(!disk_use(temp.path(), Some(Instant::now())).1);
    }

    #[test]
    fn a_process_is_found_by_its_working_directory() {
        let temp = tempfile::tempdir().unwrap();
        assert!(processes_in(temp.path()).is_empty());
        let inside = temp.path().join("deep");
        fs::create_dir(&inside).unwrap();
        let mut child = std::process::Command::new("cat")
            .current_dir(&inside)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        assert_eq!(processes_in(temp.path()), [child.id()]);
        drop(child.stdin.take());
        child.wait().unwrap();
    }
}
