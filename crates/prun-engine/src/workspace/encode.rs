//! How git wants bytes to be written in its own files and variables.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// One line for `objects/info/alternates`, without the newline.
pub(super) fn alternates_line(path: &Path) -> Vec<u8> {
    let bytes = path.as_os_str().as_bytes();
    let plain = !bytes.contains(&b'\n') && !bytes.starts_with(b"\"") && !bytes.starts_with(b"#");
    if plain { bytes.to_owned() } else { c_quoted(bytes) }
}

/// The value of `GIT_ALTERNATE_OBJECT_DIRECTORIES` for these directories.
pub(super) fn alternates_variable<'a>(paths: impl IntoIterator<Item = &'a Path>) -> OsString {
    let quoted: Vec<Vec<u8>> = paths.into_iter().map(|path| c_quoted(path.as_os_str().as_bytes())).collect();
    OsString::from_vec(quoted.join(&b':'))
}

/// A value for a git configuration file.
pub(super) fn config_value(value: &str) -> String {
    let mut quoted = String::from('"');
    for c in value.chars() {
        match c {
            '\\' => quoted.push_str("\\\\"),
            '"' => quoted.push_str("\\\""),
            '\n' => quoted.push_str("\\n"),
            '\t' => quoted.push_str("\\t"),
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

/// Bytes that git printed as a path.
pub(super) fn path(bytes: &[u8]) -> PathBuf {
    PathBuf::from(OsStr::from_bytes(bytes))
}

/// For reports: text, with a mark where the bytes are none.
pub(super) fn lossy(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Items for a command that reads `-z` lists from stdin.
pub(super) fn nul_list<'a>(items: impl IntoIterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut list = Vec::new();
    for item in items {
        list.extend_from_slice(item);
        list.push(0);
    }
    list
}

fn c_quoted(bytes: &[u8]) -> Vec<u8> {
    let mut quoted = vec![b'"'];
    for byte in bytes {
        match byte {
            b'"' | b'\\' => quoted.extend_from_slice(&[b'\\', *byte]),
            b'\n' => quoted.extend_from_slice(b"\\n"),
            byte => quoted.push(*byte),
        }
    }
    quoted.push(b'"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_quoted_as_git_reads_them() {
        assert_eq!(config_value("a \"b\" \\ \n"), r#""a \"b\" \\ \n""#);
        assert_eq!(alternates_line(Path::new("/a b")), b"/a b");
        assert_eq!(alternates_line(Path::new("/a\nb")), b"\"/a\\nb\"");
        assert_eq!(alternates_variable([Path::new("/a:b"), Path::new("/c")]), OsString::from("\"/a:b\":\"/c\""));
    }
}
