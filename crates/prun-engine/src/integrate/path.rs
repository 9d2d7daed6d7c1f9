//! Paths as git stores them: bytes, relative to the top level, separated by slashes.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A path inside a repository, as bytes.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RepoPath(Vec<u8>);

impl RepoPath {
    /// The path with these bytes.
    #[must_use]
    pub fn new(bytes: &[u8]) -> Self {
        Self(bytes.to_vec())
    }

    /// Its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// As a path of the system, relative.
    #[must_use]
    pub fn as_path(&self) -> &Path {
        Path::new(OsStr::from_bytes(&self.0))
    }

    /// Its components, outermost first.
    pub fn components(&self) -> impl DoubleEndedIterator<Item = &[u8]> {
        self.0.split(|byte| *byte == b'/')
    }

    /// The directories above it, outermost first, without the top level.
    pub fn ancestors(&self) -> impl DoubleEndedIterator<Item = Self> + '_ {
        self.0.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| Self::new(&self.0[..at]))
    }

    /// What every path below it starts with.
    #[must_use]
    pub fn as_prefix(&self) -> Self {
        let mut bytes = self.0.clone();
        bytes.push(b'/');
        Self(bytes)
    }

    /// Whether it stands below `dir`.
    #[must_use]
    pub fn is_below(&self, dir: &Self) -> bool {
        self.0.strip_prefix(dir.0.as_slice()).is_some_and(|rest| rest.first() == Some(&b'/'))
    }

    /// Why no tree of a worker may bring this path, where that is so.
    ///
    /// Such names leave the work tree, reach into a `.git`, or mean another file on other systems (NTFS
    /// drops trailing dots and spaces and knows `git~1` and streams; HFS+ ignores some characters).
    #[must_use]
    pub fn hazard(&self) -> Option<&'static str> {
        if self.0.is_empty() || self.0[0] == b'/' || self.0.contains(&0) {
            return Some("it is not relative to the top level");
        }
        // A backslash separates on Windows.
        self.0.split(|byte| matches!(byte, b'/' | b'\\')).find_map(component_hazard)
    }
}

fn component_hazard(name: &[u8]) -> Option<&'static str> {
    if matches!(name, b"" | b"." | b"..") {
        return Some("it has an empty component, `.` or `..`");
    }
    let plain: String = String::from_utf8_lossy(name).chars().filter(|c| !is_ignored_by_hfs(*c)).collect();
    let stem = plain.split(':').next().unwrap_or("").trim_end_matches(['.', ' ']).to_ascii_lowercase();
    if stem == ".git" || stem == "git~1" {
        return Some("it leads into a `.git`");
    }
    if name.ends_with(b".") || name.ends_with(b" ") {
        return Some("a component ends in a dot or a space");
    }
    None
}

/// The code points that HFS+ leaves out when it compares names.
fn is_ignored_by_hfs(c: char) -> bool {
    matches!(c, '\u{200c}'..='\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{206a}'..='\u{206f}' | '\u{feff}')
}

impl fmt::Display for RepoPath {
    /// Lossy where not UTF-8.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.0))
    }
}

impl From<&str> for RepoPath {
    fn from(text: &str) -> Self {
        Self::new(text.as_bytes())
    }
}

/// Starts the stored form of a path that is not UTF-8; no path holds a NUL.
const HEX: &str = "\0hex:";

impl Serialize for RepoPath {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match std::str::from_utf8(&self.0) {
            Ok(text) => serializer.serialize_str(text),
            Err(_) => {
                let hex: String = self.0.iter().map(|byte| format!("{byte:02x}")).collect();
                serializer.serialize_str(&format!("{HEX}{hex}"))
            }
        }
    }
}

impl<'de> Deserialize<'de> for RepoPath {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let Some(hex) = text.strip_prefix(HEX) else { return Ok(Self(text.into_bytes())) };
        let byte = |pair: &[u8]| std::str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok());
        let bytes: Option<Vec<u8>> = hex.as_bytes().chunks(2).map(byte).collect();
        bytes.map(Self).ok_or_else(|| serde::de::Error::custom("a path with bad hex digits"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hostile_names_are_refused() {
        let bad = "../x|a/../b|/etc/x|.git/config|a/.GIT/hooks/x|git~1/x|GIT~1|.git./x|.git /x|.git::$INDEX_ALLOCATION/x\
                   |a//b|a/.|x./y|x /y|name.|a\\..\\b|.git\\config|.g\u{200c}it/config";
        for path in bad.split('|') {
            assert!(RepoPath::from(path).hazard().is_some(), "{path:?}");
        }
        assert!(RepoPath::new(b"").hazard().is_some());
        for path in ["a", ".gitignore", "a/.gitmodules", "git/x", "a b/ c", "..a", "x.git/y", "caf\u{e9}", "-rf"] {
            assert_eq!(RepoPath::from(path).hazard(), None, "{path:?}");
        }
        assert_eq!(RepoPath::new(b"a/\xff\n").hazard(), None);
    }

    #[test]
    fn any_bytes_survive_storing() {
        for bytes in [&b"a/b"[..], b"\xff\n/x", b"hex:ab"] {
            let path = RepoPath::new(bytes);
            let stored = serde_json::to_string(&path).unwrap();
            assert_eq!(serde_json::from_str::<RepoPath>(&stored).unwrap(), path);
        }
    }
}
