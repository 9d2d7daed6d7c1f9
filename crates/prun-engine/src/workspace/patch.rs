//! The difference of two trees in git's plain format, byte for byte.

use super::WorkspaceError;
use super::store::Store;
use crate::git::{GitCommand, GitError};

/// What to show of a difference.
#[derive(Clone, Debug, Default)]
pub struct PatchOptions {
    /// A line a file and a sum, instead of the patch.
    pub stat: bool,
    /// The names alone, instead of the patch.
    pub name_only: bool,
    /// Only these paths, taken literally; empty = all.
    pub paths: Vec<String>,
}

/// What leads from `base_tree` to `tree`, as bytes that `git apply` takes (without `stat` and `name_only`).
///
/// # Errors
/// Git fails; a tree is not there.
pub fn patch(store: &Store, base_tree: &str, tree: &str, options: &PatchOptions) -> Result<Vec<u8>, WorkspaceError> {
    Ok(patch_by(|args| store.command(args.iter().copied()), base_tree, tree, options)?)
}

/// The same by a command that sees both trees in another place.
pub(crate) fn patch_by(
    git: impl Fn(&[&str]) -> GitCommand,
    base_tree: &str,
    tree: &str,
    options: &PatchOptions,
) -> Result<Vec<u8>, GitError> {
    let form: &[&str] = match options {
        PatchOptions { name_only: true, .. } => &["--name-only"],
        PatchOptions { stat: true, .. } => &["--stat"],
        _ => &["-p", "--binary", "--full-index"],
    };
    let command = git(&["diff-tree", "-r", "--no-renames", "--no-ext-diff", "--no-textconv", "--no-color"]);
    let command = command.args(form).args([base_tree, tree, "--"]).args(&options.paths);
    Ok(command.env("GIT_LITERAL_PATHSPECS", "1").run()?.stdout)
}
