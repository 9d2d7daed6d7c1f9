//! Whether a home can be where it is: a local file system, writable, with room.

use std::path::{Path, PathBuf};

use rustix::fs::{Access, access, statfs, statvfs};

use crate::home::Home;

/// Bytes that must be free before anything starts, whatever the base's size.
pub const MIN_FREE: u64 = 200 << 20;

/// A home that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum HomeError {
    /// Its file system cannot keep locks and a database.
    #[error("cannot keep runs in {}: it is on {kind}, where locks and databases are not safe", path.display())]
    FileSystem {
        /// The home.
        path: PathBuf,
        /// The file system's name.
        kind: &'static str,
    },
    /// It cannot be written.
    #[error("cannot write in {}: {source}", path.display())]
    NotWritable {
        /// The home, or its nearest parent that is there.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
    /// There is too little room.
    #[error("cannot keep runs in {}: {} MB are free, {} MB are needed", path.display(), free >> 20, needed >> 20)]
    Full {
        /// The home.
        path: PathBuf,
        /// Free bytes.
        free: u64,
        /// Needed bytes.
        needed: u64,
    },
    /// The system does not tell.
    #[error("cannot look at the file system of {}: {source}", path.display())]
    Unknown {
        /// The path.
        path: PathBuf,
        /// What the system said.
        source: std::io::Error,
    },
}

/// Checks that runs can be kept in `home`, which need not be there yet. Creates nothing.
///
/// # Errors
/// It is on a network or user-space file system, read-only, or nearly full.
pub fn check_home(home: &Home) -> Result<(), HomeError> {
    let path = existing(home.root());
    if let Some(kind) = filesystem_kind(path)? {
        return Err(HomeError::FileSystem { path: home.root().to_owned(), kind });
    }
    access(path, Access::WRITE_OK | Access::EXEC_OK)
        .map_err(|errno| HomeError::NotWritable { path: path.to_owned(), source: errno.into() })?;
    check_space(home.root(), 0)
}

/// Checks that `bytes` fit beside [`MIN_FREE`].
///
/// # Errors
/// They do not, or the system does not tell.
pub fn check_space(path: &Path, bytes: u64) -> Result<(), HomeError> {
    let free = disk_free(path)?;
    let needed = bytes.saturating_add(MIN_FREE);
    if free >= needed { Ok(()) } else { Err(HomeError::Full { path: path.to_owned(), free, needed }) }
}

/// Bytes that this user can still write at `path` or, where it is not there, at its nearest parent.
///
/// # Errors
/// The system does not tell.
pub fn disk_free(path: &Path) -> Result<u64, HomeError> {
    let path = existing(path);
    let stat = statvfs(path).map_err(|errno| HomeError::Unknown { path: path.to_owned(), source: errno.into() })?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// The name of the file system at `path`, where it is one that prun's home cannot be on.
///
/// # Errors
/// The system does not tell.
pub fn filesystem_kind(path: &Path) -> Result<Option<&'static str>, HomeError> {
    let path = existing(path);
    let stat = statfs(path).map_err(|errno| HomeError::Unknown { path: path.to_owned(), source: errno.into() })?;
    // The type is a 32-bit number in a field whose width and sign differ between systems.
    Ok(unsuitable(stat.f_type as u32))
}

/// Names of file systems by their magic number, as in statfs(2).
fn unsuitable(magic: u32) -> Option<&'static str> {
    match magic {
        0x6969 => Some("NFS"),
        0x0BD0_0BD0 => Some("Lustre"),
        0x6573_5546 => Some("FUSE"),
        0x517B | 0xFF53_4D42 | 0xFE53_4D42 => Some("SMB"),
        0x5346_414F => Some("AFS"),
        0x00C3_6400 => Some("Ceph"),
        0x4750_4653 => Some("GPFS"),
        0x1983_0326 => Some("BeeGFS"),
        _ => None,
    }
}

/// The nearest directory on the way up that is there.
fn existing(path: &Path) -> &Path {
    path.ancestors().find(|path| path.exists()).unwrap_or(Path::new("."))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn network_file_systems_are_told_from_local_ones() {
        for (magic, name) in [(0x6969, Some("NFS")), (0x6573_5546, Some("FUSE")), (0xEF53, None), (0x0102_1994, None)] {
            assert_eq!(unsuitable(magic), name);
        }
    }

    #[test]
    fn a_home_that_is_not_there_yet_is_checked_and_not_made() {
        let dir = tempfile::tempdir().unwrap();
        let home = Home::at(dir.path().join("a/b"));
        check_home(&home).unwrap();
        assert!(!dir.path().join("a").exists());
    }

    #[test]
    fn a_read_only_home_and_a_full_disk_are_refused_by_name() {
        let error = check_home(&Home::at("/proc/prun")).unwrap_err().to_string();
        assert!(error.contains("/proc"), "{error}");
        let dir = tempfile::tempdir().unwrap();
        let error = check_space(dir.path(), u64::MAX).unwrap_err().to_string();
        assert!(error.contains("MB are needed") && error.contains(&*dir.path().to_string_lossy()), "{error}");
    }
}
