//! Git's index as bytes: the entries of one that git has just written, and the same index with other stat data.
//!
//! The format is git's documented one (`gitformat-index`), versions 2 and 3. Git takes a file for unchanged
//! when its stat data are those of its entry and its time lies before the index's own; so a copy of a checkout
//! with an index that holds the copy's stat data is one that no command has to read again.

use std::ops::Range;

use rustix::fs::Stat;
use sha1::Sha1;
use sha2::{Digest, Sha256};

/// Bytes of an entry before its object id: nine numbers of stat data and the mode.
const STAT_BYTES: usize = 40;
/// Where the mode stands in an entry.
const MODE_AT: usize = 24;
/// The flag that says that two more bytes of flags follow.
const EXTENDED: u16 = 0x4000;

/// An index that was read.
#[derive(Debug)]
pub(super) struct IndexFile {
    bytes: Vec<u8>,
    id_bytes: usize,
    entries: Vec<Entry>,
}

/// Where an entry stands.
#[derive(Debug)]
struct Entry {
    at: usize,
    path: Range<usize>,
}

/// The stat data of an index entry, cut to 32 bits each as git does it: change time, its nanoseconds, modification
/// time, its nanoseconds, device, inode; then user, group, size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct EntryStat([u32; 9]);

impl EntryStat {
    /// What git would write for a file with this status.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the format holds 32 bits of each")]
    pub(super) fn of(stat: &Stat) -> Self {
        let size = match stat.st_size as u32 {
            // Zero is git's mark for "unknown"; a multiple of 4 GiB is written so.
            0 if stat.st_size != 0 => 1 << 31,
            size => size,
        };
        Self([
            stat.st_ctime as u32,
            stat.st_ctime_nsec as u32,
            stat.st_mtime as u32,
            stat.st_mtime_nsec as u32,
            stat.st_dev as u32,
            stat.st_ino as u32,
            stat.st_uid,
            stat.st_gid,
            size,
        ])
    }
}

impl IndexFile {
    /// Reads an index whose object ids have this format; `None` if it is of another version or broken.
    pub(super) fn parse(bytes: Vec<u8>, object_format: &str) -> Option<Self> {
        let id_bytes = if object_format == "sha256" { 32 } else { 20 };
        let version = number(&bytes, 4)?;
        if !bytes.starts_with(b"DIRC") || !(2..=3).contains(&version) {
            return None;
        }
        let (mut at, mut entries) = (12, Vec::new());
        for _ in 0..number(&bytes, 8)? {
            let flags_at = at + STAT_BYTES + id_bytes;
            let flags = u16::from_be_bytes(bytes.get(flags_at..flags_at + 2)?.try_into().ok()?);
            let path_at = flags_at + if flags & EXTENDED == 0 { 2 } else { 4 };
            let length = bytes.get(path_at..)?.iter().position(|byte| *byte == 0)?;
            entries.push(Entry { at, path: path_at..path_at + length });
            // One to eight NUL bytes fill an entry up to a multiple of eight.
            at += (path_at + length - at + 8) & !7;
        }
        (at + id_bytes <= bytes.len()).then_some(Self { bytes, id_bytes, entries })
    }

    /// How many entries there are.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The path of entry `n`, relative to the top.
    pub(super) fn path(&self, n: usize) -> &[u8] {
        &self.bytes[self.entries[n].path.clone()]
    }

    /// The mode of entry `n`: `0o100644`, `0o100755`, `0o120000` for a link, `0o160000` for a submodule.
    pub(super) fn mode(&self, n: usize) -> u32 {
        number(&self.bytes, self.entries[n].at + MODE_AT).unwrap_or(0)
    }

    /// The stat data of entry `n`.
    pub(super) fn stat(&self, n: usize) -> EntryStat {
        let at = self.entries[n].at;
        let place = |n: usize| at + if n < 6 { 4 * n } else { 4 * (n + 1) };
        EntryStat(std::array::from_fn(|n| number(&self.bytes, place(n)).unwrap_or(0)))
    }

    /// The same index with the stat data of `stats`, one an entry.
    pub(super) fn with_stats(&self, stats: &[EntryStat]) -> Vec<u8> {
        let mut bytes = self.bytes.clone();
        for (entry, EntryStat(numbers)) in self.entries.iter().zip(stats) {
            for (n, value) in numbers.iter().enumerate() {
                // The mode stands between the first six numbers and the last three.
                let at = entry.at + if n < 6 { 4 * n } else { 4 * (n + 1) };
                bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
            }
        }
        let end = bytes.len() - self.id_bytes;
        let sum: Vec<u8> = match self.id_bytes {
            32 => Sha256::digest(&bytes[..end]).to_vec(),
            _ => Sha1::digest(&bytes[..end]).to_vec(),
        };
        bytes[end..].copy_from_slice(&sum);
        bytes
    }
}

fn number(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_be_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Fixture, gits};
    use super::*;

    #[test]
    fn an_index_with_its_own_stat_data_is_the_same_byte_for_byte() {
        for git in gits() {
            for format in ["sha1", "sha256"] {
                let fixture = Fixture::with_format(&git, format);
                let bytes = std::fs::read(fixture.repo.join(".git/index")).unwrap();
                let index = IndexFile::parse(bytes.clone(), format).unwrap();
                let stats: Vec<EntryStat> = (0..index.len()).map(|n| index.stat(n)).collect();
                assert_eq!(index.with_stats(&stats), bytes);
                let listed: Vec<String> = (0..index.len())
                    .map(|n| {
                        let path = String::from_utf8_lossy(index.path(n)).into_owned();
                        format!("{:o}\t{path}", index.mode(n))
                    })
                    .collect();
                assert_eq!(listed.join("\n"), fixture.run(&["ls-files", "--format=%(objectmode)%x09%(path)"]));
                let readme = rustix::fs::lstat(fixture.repo.join("README")).unwrap();
                assert!((0..index.len()).any(|n| index.stat(n) == EntryStat::of(&readme)));
            }
        }
    }

    #[test]
    fn what_is_no_index_is_refused() {
        for bytes in [&b""[..], b"DIRC", b"DIRC\0\0\0\x04\0\0\0\0aaaaaaaaaaaaaaaaaaaa", b"DIRC\0\0\0\x02\0\0\0\x01"] {
            assert!(IndexFile::parse(bytes.to_vec(), "sha1").is_none());
        }
    }
}
