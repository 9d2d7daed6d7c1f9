//! What of the user's own git configuration counts in prun's repositories: line ends, the file system's
//! abilities, ignore rules, attributes, and the name for commits. Nothing that could start a program.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::encode;
use crate::files::read_regular;
use crate::git::{Git, GitError};

/// Keys that change how bytes become blobs and back, or which names the file system tells apart.
const CARRIED: [&str; 10] = [
    "core.autocrlf",
    "core.eol",
    "core.filemode",
    "core.symlinks",
    "core.ignorecase",
    "core.precomposeunicode",
    "core.protecthfs",
    "core.protectntfs",
    "i18n.commitencoding",
    "i18n.logoutputencoding",
];

/// The largest ignore or attributes file that is read, in bytes.
const MAX_RULES: u64 = 4 << 20;

/// The user's settings that prun's own repositories take over.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settings {
    /// Carried settings, `section.name` in lower case to value.
    pub carried: BTreeMap<String, String>,
    /// The user's name for commits, where one is set.
    pub user_name: Option<String>,
    /// The user's address for commits, where one is set.
    pub user_email: Option<String>,
    /// The user's ignore rules that are in no tree: `core.excludesFile`, then `info/exclude`.
    pub exclude: Vec<u8>,
    /// The user's attributes that are in no tree: `core.attributesFile`, then `info/attributes`.
    pub attributes: Vec<u8>,
}

impl Settings {
    /// Reads what counts for the repository at `git_dir`.
    ///
    /// # Errors
    /// `git config` fails.
    pub fn read(git: &Git, git_dir: &Path, common_dir: &Path) -> Result<Self, GitError> {
        let listed = git
            .command(["config", "--list", "-z", "--show-scope", "--includes"])
            .git_dir(git_dir)
            .with_user_config()
            .run()?;
        let all = effective(listed.fields());
        let carried = CARRIED.iter().filter_map(|key| Some(((*key).to_owned(), all.get(*key)?.clone()))).collect();
        let local = |name: &str| rules(&common_dir.join("info").join(name));
        let named = |key, default: &str| all.get(key).map_or_else(|| default_file(default), |value| home_path(value));
        Ok(Self {
            carried,
            user_name: all.get("user.name").cloned(),
            user_email: all.get("user.email").cloned(),
            exclude: joined(named("core.excludesfile", "ignore"), &local("exclude")),
            attributes: joined(named("core.attributesfile", "attributes"), &local("attributes")),
        })
    }
}

/// The last value of each key. The scope `command` is what prun itself adds to every command.
fn effective<'a>(mut fields: impl Iterator<Item = &'a [u8]>) -> BTreeMap<String, String> {
    let mut all = BTreeMap::new();
    while let (Some(scope), Some(entry)) = (fields.next(), fields.next()) {
        let entry = encode::lossy(entry);
        // A key without a value means true.
        let (key, value) = entry.split_once('\n').unwrap_or((&entry, "true"));
        if scope != b"command" {
            all.insert(key.to_owned(), value.to_owned());
        }
    }
    all
}

fn rules(path: &Path) -> Vec<u8> {
    read_regular(path, MAX_RULES).unwrap_or_default()
}

fn joined(first: Option<PathBuf>, second: &[u8]) -> Vec<u8> {
    let mut bytes = first.map(|path| rules(&path)).unwrap_or_default();
    if !bytes.is_empty() && !bytes.ends_with(b"\n") {
        bytes.push(b'\n');
    }
    bytes.extend_from_slice(second);
    bytes
}

/// Git's own default place for this file.
fn default_file(name: &str) -> Option<PathBuf> {
    let config = std::env::var_os("XDG_CONFIG_HOME").filter(|dir| !dir.is_empty()).map(PathBuf::from);
    config
        .or_else(|| Some(PathBuf::from(std::env::var_os("HOME")?).join(".config")))
        .map(|dir| dir.join("git").join(name))
}

fn home_path(value: &str) -> Option<PathBuf> {
    match value.strip_prefix("~/") {
        Some(rest) => Some(PathBuf::from(std::env::var_os("HOME")?).join(rest)),
        None => Some(PathBuf::from(value)).filter(|path| path.is_absolute()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_value_counts_and_our_own_do_not() {
        let fields: Vec<&[u8]> =
            vec![b"global", b"core.eol\nlf", b"local", b"core.eol\ncrlf", b"command", b"core.eol\nx", b"local", b"a.b"];
        let all = effective(fields.into_iter());
        assert_eq!(all["core.eol"], "crlf");
        assert_eq!(all["a.b"], "true");
    }
}
