//! Writes a git directory by hand: no template, no hook, no remote, and nothing of the user's that was not
//! asked for. It is git's documented repository layout.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use super::encode;
use crate::files::FileError;

/// A git directory to write.
#[derive(Debug, Default)]
pub(super) struct GitDir<'a> {
    /// It has no work tree of its own.
    pub(super) bare: bool,
    /// `sha1` or `sha256`.
    pub(super) object_format: &'a str,
    /// Settings, `section.name` to value.
    pub(super) settings: BTreeMap<String, String>,
    /// What HEAD names, a full ref name.
    pub(super) head: &'a str,
    /// Refs, full name to commit id.
    pub(super) refs: BTreeMap<String, String>,
    /// Object directories to borrow from.
    pub(super) alternates: Vec<PathBuf>,
    /// `info/exclude`.
    pub(super) exclude: &'a [u8],
    /// `info/attributes`.
    pub(super) attributes: &'a [u8],
    /// The commits at which history was cut, where it was: the content of `shallow`.
    pub(super) shallow: Option<&'a [u8]>,
}

impl GitDir<'_> {
    /// Writes it at `dir`, which must not be there.
    pub(super) fn write(&self, dir: &Path) -> Result<(), FileError> {
        private_dir(dir)?;
        for sub in ["objects", "objects/info", "objects/pack", "refs", "refs/heads", "info"] {
            private_dir(&dir.join(sub))?;
        }
        put(&dir.join("HEAD"), format!("ref: {}\n", self.head).as_bytes())?;
        put(&dir.join("config"), self.config().as_bytes())?;
        put(&dir.join("info/exclude"), self.exclude)?;
        if !self.attributes.is_empty() {
            put(&dir.join("info/attributes"), self.attributes)?;
        }
        if !self.refs.is_empty() {
            put(&dir.join("packed-refs"), packed_refs(&self.refs).as_bytes())?;
        }
        if let Some(shallow) = self.shallow {
            put(&dir.join("shallow"), shallow)?;
        }
        let alternates: Vec<u8> =
            self.alternates.iter().flat_map(|path| [encode::alternates_line(path), vec![b'\n']].concat()).collect();
        if alternates.is_empty() { Ok(()) } else { put(&dir.join("objects/info/alternates"), &alternates) }
    }

    fn config(&self) -> String {
        let sha256 = self.object_format == "sha256";
        let mut text =
            format!("[core]\n\trepositoryformatversion = {}\n\tbare = {}\n", if sha256 { 1 } else { 0 }, self.bare);
        if sha256 {
            text.push_str("[extensions]\n\tobjectFormat = sha256\n");
        }
        for (key, value) in &self.settings {
            if let Some((section, name)) = key.split_once('.') {
                // Writing to a String cannot fail.
                writeln!(text, "[{section}]\n\t{name} = {}", encode::config_value(value)).ok();
            }
        }
        text
    }
}

/// The content of a `packed-refs` file.
pub(super) fn packed_refs(refs: &BTreeMap<String, String>) -> String {
    let mut text = String::from("# pack-refs with: sorted\n");
    for (name, id) in refs {
        writeln!(text, "{id} {name}").ok();
    }
    text
}

fn private_dir(dir: &Path) -> Result<(), FileError> {
    fs::DirBuilder::new().mode(0o700).create(dir).map_err(FileError::at("create", dir))
}

fn put(path: &Path, bytes: &[u8]) -> Result<(), FileError> {
    fs::write(path, bytes).map_err(FileError::at("write", path))
}
