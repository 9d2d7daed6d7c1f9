//! The files that a plan names, and their texts put into it.

use std::collections::HashMap;

use crate::ids::UnitId;
use crate::plan::model::{PlanFile, Prompt};
use crate::plan::problem::{Place, Problem, quoted};

/// The longest prompt file, in bytes.
pub const MAX_PROMPT_BYTES: usize = 4 << 20;

/// A file that a plan names. It never counts as uncommitted work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NamedFile<'a> {
    /// Which key names it.
    pub by: NamedBy<'a>,
    /// The file, relative to the plan.
    pub path: &'a str,
    /// Where the plan names it.
    pub place: Option<Place>,
}

/// The key that names a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NamedBy<'a> {
    /// The plan's `context_file`.
    Context,
    /// A unit's `prompt_file`.
    Unit(&'a UnitId),
}

impl PlanFile {
    /// Every file that the plan names, in its order. A file may come more than once.
    #[must_use]
    pub fn named_files(&self) -> Vec<NamedFile<'_>> {
        let context = self.context.as_ref().and_then(Prompt::path);
        let context = context.map(|path| NamedFile { by: NamedBy::Context, path, place: self.places.context_file });
        let maps = self.maps.iter().map(|map| &map.unit);
        let units = self.units.iter().chain(maps).filter_map(|unit| {
            let path = unit.prompt.path()?;
            Some(NamedFile { by: NamedBy::Unit(&unit.id), path, place: unit.places.prompt })
        });
        context.into_iter().chain(units).collect()
    }
}

/// Puts the texts of the files that the plan names into it. `read` is asked once for each path, and says why it
/// cannot give the text (not there, not UTF-8).
///
/// # Errors
/// Every file that cannot be read, is empty or too long, at the place of each key that names it.
pub fn fill_prompts(
    plan: &mut PlanFile,
    mut read: impl FnMut(&str) -> Result<String, String>,
) -> Result<(), Vec<Problem>> {
    let mut seen: HashMap<String, Result<String, String>> = HashMap::new();
    let mut problems = Vec::new();
    let context = plan.context.iter_mut().map(|prompt| ("context_file", prompt, plan.places.context_file));
    let maps = plan.maps.iter_mut().map(|map| &mut map.unit);
    let units = plan.units.iter_mut().chain(maps).map(|unit| ("prompt_file", &mut unit.prompt, unit.places.prompt));
    for (key, prompt, place) in context.chain(units) {
        let Some(path) = prompt.path().map(str::to_owned) else { continue };
        let text = seen.entry(path.clone()).or_insert_with_key(|path| read(path).and_then(usable));
        match text {
            Ok(text) => *prompt = Prompt::Loaded { path, text: text.clone() },
            Err(why) => problems.push(
                Problem::new(place, format!("`{key}`: cannot use {}: {why}", quoted(&path)))
                    .hint("paths are relative to the plan file"),
            ),
        }
    }
    problems.sort();
    if problems.is_empty() { Ok(()) } else { Err(problems) }
}

fn usable(text: String) -> Result<String, String> {
    if text.trim().is_empty() {
        return Err("it is empty".to_owned());
    }
    if text.len() > MAX_PROMPT_BYTES {
        return Err(format!("it has {} bytes; at most {MAX_PROMPT_BYTES} are allowed", text.len()));
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::{Format, parse};

    const PLAN: &str = r#"version = 1
context_file = "context.md"
[[unit]]
id = "a"
prompt_file = "a.md"
[[unit]]
id = "b"
prompt_file = "a.md"
[[unit]]
id = "c"
prompt_file = "empty.md"
[[unit]]
id = "d"
prompt = "inline"
"#;

    #[test]
    fn files_are_read_once_and_put_into_the_plan() {
        let mut plan = parse(&PLAN.replace("empty.md", "c.md"), Format::Toml).unwrap();
        assert_eq!(
            plan.named_files().iter().map(|file| file.path).collect::<Vec<_>>(),
            ["context.md", "a.md", "a.md", "c.md"]
        );
        let mut asked = Vec::new();
        fill_prompts(&mut plan, |path| {
            asked.push(path.to_owned());
            Ok(format!("text of {path}"))
        })
        .unwrap();
        assert_eq!(asked, ["context.md", "a.md", "c.md"]);
        assert_eq!(plan.context.as_ref().and_then(Prompt::text), Some("text of context.md"));
        assert_eq!(plan.units[1].prompt.text(), Some("text of a.md"));
        assert_eq!(plan.units[3].prompt.text(), Some("inline"));
        assert_eq!(plan.named_files().len(), 4, "also after they were read");
    }

    #[test]
    fn every_unusable_file_is_told_where_the_plan_names_it() {
        let mut plan = parse(PLAN, Format::Toml).unwrap();
        let read = |path: &str| match path {
            "a.md" => Err("no such file".to_owned()),
            "empty.md" => Ok(" \n".to_owned()),
            _ => Ok("x".to_owned()),
        };
        let problems = fill_prompts(&mut plan, read).unwrap_err();
        let told: Vec<_> = problems.iter().map(|p| (p.place.unwrap().line, p.message.as_str())).collect();
        assert_eq!(
            told,
            [
                (5, "`prompt_file`: cannot use `a.md`: no such file"),
                (8, "`prompt_file`: cannot use `a.md`: no such file"),
                (11, "`prompt_file`: cannot use `empty.md`: it is empty"),
            ]
        );
    }
}
