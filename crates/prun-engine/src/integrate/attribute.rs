//! Attributes of paths, by a tree's `.gitattributes` and the user's own files.

use std::collections::BTreeMap;

use super::IntegrateError;
use super::path::RepoPath;
use super::quarantine::Quarantine;
use super::tree::nul_list;

/// The value of an attribute for paths, by the `.gitattributes` of `tree` and the user's own files.
pub(super) fn attribute<'a>(
    quarantine: &Quarantine,
    tree: &str,
    name: &str,
    paths: impl Iterator<Item = &'a RepoPath>,
) -> Result<BTreeMap<RepoPath, String>, IntegrateError> {
    let list = nul_list(paths);
    if list.is_empty() {
        return Ok(BTreeMap::new());
    }
    let index = quarantine.scratch_file("attributes.index");
    quarantine.bare(["read-tree", tree]).index(&index).run()?;
    let dir = quarantine.scratch_file("empty");
    let output =
        quarantine.beside(&dir, ["check-attr", "--cached", "-z", "--stdin", name]).index(&index).input(list).run()?;
    let fields: Vec<&[u8]> = output.fields().collect();
    let value =
        |triple: &[&[u8]]| Some((RepoPath::new(triple.first()?), String::from_utf8_lossy(triple.get(2)?).into()));
    Ok(fields.chunks(3).filter_map(value).collect())
}
