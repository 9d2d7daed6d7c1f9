//! Do two units own the same file? Then they are not independent, and their changes may conflict.
//!
//! Units are compared by files, not by patterns: by the tracked files of the base, and by one made-up file for each
//! pattern, so that patterns over files that are still to be written are compared too.

use std::collections::{BTreeMap, HashSet};

use ignore::gitignore::{Gitignore, GitignoreBuilder};

use crate::event::Mode;
use crate::gate::check::{Warning, names};
use crate::ids::UnitId;
use crate::plan::problem::shown;
use crate::plan::{PlanFile, UnitPlan};

/// Comparisons of a file with a unit's patterns, at about a microsecond each: the gate answers within seconds.
const MOST_COMPARISONS: usize = 2_000_000;

/// What is to be said about the plan's `owns`.
pub(super) fn warnings(plan: &PlanFile, tracked: Option<&[String]>) -> Vec<Warning> {
    // Members of a panel own the same on purpose, because at most one of them lands: the first stands for all.
    let mut panels = HashSet::new();
    let writers = plan.units.iter().filter(|unit| unit.mode == Mode::Write && !unit.owns.is_empty());
    let writers = writers.filter(|unit| unit.panel.as_ref().is_none_or(|panel| panels.insert(panel)));
    let claims: Vec<Claim<'_>> = writers.filter_map(Claim::new).collect();
    let files = Files::new(tracked.unwrap_or_default(), &claims);
    let owned = Owned::new(&claims, &files);
    let mut warnings = owned.overlaps(&claims, &files);
    if tracked.is_some() {
        warnings.extend(own_nothing(&claims, &files));
    }
    if !owned.complete {
        let message = "too many units and files to compare every `owns`; overlaps may be missing here".to_owned();
        warnings.push(Warning { place: None, message });
    }
    warnings
}

/// Units whose patterns match no file of the base: new files, or a slip. More than three mean it, and are told at once.
fn own_nothing(claims: &[Claim<'_>], files: &Files) -> Vec<Warning> {
    let idle: Vec<(&Claim<'_>, String)> =
        claims.iter().filter_map(|claim| Some((claim, claim.idle_patterns(files)?))).collect();
    let warning = |claim: &Claim<'_>, message| Warning { place: claim.unit.places.owns, message };
    if let [(first, patterns), _, _, _, ..] = &idle[..] {
        let (count, id) = (idle.len(), first.name());
        let others = names(idle[1..].iter().map(|(claim, _)| claim.name()));
        let message = format!("{count} units own paths where the base has no file: {id} ({patterns}), {others}");
        return vec![warning(first, message)];
    }
    let single = |(claim, patterns): (&Claim<'_>, String)| {
        warning(claim, format!("{} owns {patterns}, where the base has no file", claim.name()))
    };
    idle.into_iter().map(single).collect()
}

/// A unit's patterns.
struct Claim<'a> {
    unit: &'a UnitPlan,
    patterns: Gitignore,
}

impl<'a> Claim<'a> {
    /// `None` for a pattern that the plan's reader refuses.
    fn new(unit: &'a UnitPlan) -> Option<Self> {
        Some(Self { unit, patterns: matcher(&unit.owns)? })
    }

    /// The unit's, or its panel's.
    fn name(&self) -> &UnitId {
        self.unit.panel.as_ref().unwrap_or(&self.unit.id)
    }

    fn owns(&self, path: &str) -> bool {
        owns(&self.patterns, path)
    }

    /// The patterns that match no file of the base; `None` where there is none.
    fn idle_patterns(&self, files: &Files) -> Option<String> {
        let idle = |pattern: &&String| {
            let Some(single) = matcher(std::slice::from_ref(*pattern)) else { return false };
            !pattern.starts_with('!')
                && !files.below(root_of(pattern)).any(|file| file.tracked && owns(&single, &file.path))
        };
        let idle: Vec<String> = self.unit.owns.iter().filter(idle).map(|pattern| shown(pattern, 60)).collect();
        (!idle.is_empty()).then(|| idle.join(", "))
    }
}

fn matcher(patterns: &[String]) -> Option<Gitignore> {
    let mut builder = GitignoreBuilder::new("");
    for pattern in patterns {
        builder.add_line(None, pattern).ok()?;
    }
    builder.build().ok()
}

/// A path that no tree holds (absolute, or with an empty or dotted part) is nobody's; the matcher would panic.
fn owns(patterns: &Gitignore, path: &str) -> bool {
    let is_plain = path.split('/').all(|part| !matches!(part, "" | "." | ".."));
    is_plain && patterns.matched_path_or_any_parents(path, false).is_ignore()
}

/// A path that units are compared by.
struct File {
    path: String,
    tracked: bool,
    /// How it is named in a message: a made-up one by its pattern.
    name: String,
}

/// Files sorted by path.
struct Files(Vec<File>);

impl Files {
    fn new(tracked: &[String], claims: &[Claim<'_>]) -> Self {
        // An absolute path is none of the repository's, and the matcher would panic.
        let tracked = tracked.iter().filter(|path| !path.starts_with('/'));
        let tracked = tracked.map(|path| File { path: path.clone(), tracked: true, name: shown(path, 200) });
        let made_up = claims.iter().flat_map(|claim| claim.unit.owns.iter().filter_map(|pattern| made_up(pattern)));
        let mut files: Vec<File> = tracked.chain(made_up).collect();
        files.sort_by(|a, b| (&a.path, !a.tracked).cmp(&(&b.path, !b.tracked)));
        files.dedup_by(|later, first| later.path == first.path);
        Self(files)
    }

    fn below<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = &'a File> {
        self.numbers_below(prefix).map(|number| &self.0[number])
    }

    fn numbers_below(&self, prefix: &str) -> std::ops::Range<usize> {
        let start = self.0.partition_point(|file| file.path.as_str() < prefix);
        let count = self.0[start..].partition_point(|file| file.path.starts_with(prefix));
        start..start + count
    }
}

/// The owners of each file, by their numbers.
struct Owned {
    owners: Vec<Vec<usize>>,
    complete: bool,
}

impl Owned {
    fn new(claims: &[Claim<'_>], files: &Files) -> Self {
        let mut owners = vec![Vec::new(); files.0.len()];
        let mut comparisons = 0;
        for (number, claim) in claims.iter().enumerate() {
            for range in ranges(claim, files) {
                comparisons += range.len();
                if comparisons > MOST_COMPARISONS {
                    return Self { owners, complete: false };
                }
                for file in range.filter(|file| claim.owns(&files.0[*file].path)) {
                    owners[file].push(number);
                }
            }
        }
        Self { owners, complete: true }
    }

    /// One warning for each set of units that own a file together.
    fn overlaps(&self, claims: &[Claim<'_>], files: &Files) -> Vec<Warning> {
        let mut sets: BTreeMap<&[usize], Vec<&File>> = BTreeMap::new();
        for (owners, file) in self.owners.iter().zip(&files.0) {
            if owners.len() > 1 {
                sets.entry(owners).or_default().push(file);
            }
        }
        sets.into_iter().map(|(owners, files)| overlap(owners, &files, claims)).collect()
    }
}

fn overlap(owners: &[usize], files: &[&File], claims: &[Claim<'_>]) -> Warning {
    let tracked: Vec<&&File> = files.iter().filter(|file| file.tracked).collect();
    let what = match tracked.as_slice() {
        [] => files.first().map(|file| file.name.clone()).unwrap_or_default(),
        [only] => only.name.clone(),
        [first, more @ ..] => format!("{} and {} more", first.name, more.len()),
    };
    let word = if owners.len() == 2 { "both" } else { "all" };
    let who = names(owners.iter().map(|number| claims[*number].name()));
    // The later unit is the one to change.
    let place = owners.last().and_then(|number| claims[*number].unit.places.owns);
    Warning { place, message: format!("{who} {word} own {what}") }
}

/// Where a unit's files can be, without overlap.
fn ranges(claim: &Claim<'_>, files: &Files) -> Vec<std::ops::Range<usize>> {
    let claiming = claim.unit.owns.iter().filter(|pattern| !pattern.starts_with('!'));
    let mut ranges: Vec<_> = claiming.map(|pattern| files.numbers_below(root_of(pattern))).collect();
    ranges.sort_by_key(|range| range.start);
    let mut end = 0;
    for range in &mut ranges {
        range.start = range.start.max(end);
        end = end.max(range.end);
    }
    ranges
}

/// The text that every path of a pattern begins with: its part before the first special character, if a slash in it
/// ties it to the top.
fn root_of(pattern: &str) -> &str {
    if !pattern.trim_end_matches('/').contains('/') {
        return "";
    }
    let tied = pattern.strip_prefix('/').unwrap_or(pattern);
    // A trailing space may or may not belong to the pattern.
    let literal = tied.find(|c| "*?[]{}\\ ".contains(c)).map_or(tied, |end| &tied[..end]);
    literal.trim_end_matches('/')
}

/// A path that the pattern stands for; `None` where that is not plain.
fn made_up(pattern: &str) -> Option<File> {
    if pattern.starts_with('!') || pattern.contains(|c| "[]{}\\ ".contains(c)) {
        return None;
    }
    let path = pattern.strip_prefix('/').unwrap_or(pattern).replace("**", "_").replace(['*', '?'], "_");
    let path = if path.ends_with('/') { path + "_" } else { path };
    let own = matcher(&[pattern.to_owned()])?;
    (!path.starts_with('/') && owns(&own, &path)).then(|| File { path, tracked: false, name: shown(pattern, 60) })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::plan::{Format, parse};

    fn told(owns: &[&[&str]], tracked: &[&str]) -> Vec<String> {
        let units = owns
            .iter()
            .enumerate()
            .map(|(at, owns)| format!("[[unit]]\nid = \"u{at}\"\nprompt = \"x\"\nowns = {owns:?}\n"));
        let plan = format!("version = 1\n{}", units.collect::<String>());
        let plan = parse(&plan, Format::Toml).unwrap();
        let tracked: Vec<String> = tracked.iter().map(|path| (*path).to_owned()).collect();
        warnings(&plan, Some(&tracked)).into_iter().map(|warning| warning.message).collect()
    }

    #[test]
    fn members_of_a_panel_own_the_same_on_purpose() {
        let unit =
            |id: &str, more: &str| format!("[[unit]]\nid = \"{id}\"\nprompt = \"x\"\nowns = [\"src/a.rs\"]\n{more}\n");
        let told = |units: &[String]| {
            let plan = parse(&format!("version = 1\n{}", units.concat()), Format::Toml).unwrap();
            let warnings = warnings(&plan, Some(&["src/a.rs".to_owned()]));
            warnings.into_iter().map(|warning| warning.message).collect::<Vec<_>>()
        };
        let (panel, samples) = (unit("p", "panel = [\"codex\", \"claude\"]"), unit("s", "samples = 3"));
        assert_eq!(told(std::slice::from_ref(&panel)), [""; 0]);
        assert_eq!(told(&[panel.clone(), unit("u", "")]), ["p, u both own src/a.rs"]);
        assert_eq!(told(&[panel, samples]), ["p, s both own src/a.rs"]);
    }

    #[test]
    fn units_that_own_the_same_file_are_named_with_it() {
        let files = ["src/parsers/csv.rs", "src/parsers/mod.rs", "src/parsers/tsv.rs"];
        let check = |owns: &[&[&str]], expected: &[&str]| assert_eq!(told(owns, &files), expected, "{owns:?}");
        check(&[&["src/parsers/csv.rs"], &["src/parsers/tsv.rs"]], &[]);
        check(&[&["src/parsers/[cm]*.rs"], &["mod.rs", "tsv.rs"]], &["u0, u1 both own src/parsers/mod.rs"]);
        check(
            &[&["src/**"], &["*.rs"], &["mod.rs"]],
            &[
                "u0, u1 both own src/parsers/csv.rs and 1 more",
                "u0, u1, u2 all own src/parsers/mod.rs",
                "u1, u2 both own mod.rs",
            ],
        );
        check(&[&["src/", "!mod.rs"], &["mod.rs"]], &[]);
    }

    #[test]
    fn files_that_are_still_to_be_written_overlap_too() {
        let nothing = |owns: &[&[&str]]| {
            let told = told(owns, &["README.md"]);
            told.into_iter().filter(|line| !line.contains("has no file")).collect::<Vec<_>>()
        };
        assert_eq!(nothing(&[&["src/new/**"], &["src/new/**"]]), ["u0, u1 both own src/new/**"]);
        assert_eq!(nothing(&[&["src/new/"], &["/src/new/a.rs"]]), ["u0, u1 both own /src/new/a.rs"]);
        assert_eq!(nothing(&[&["src/a.rs"], &["src/b.rs"], &["tests/*.rs"]]), Vec::<String>::new());
    }

    #[test]
    fn patterns_without_a_file_are_named() {
        let told = told(&[&["src/**", "tests/csv/**", "!x"], &[]], &["src/a.rs"]);
        assert_eq!(told, ["u0 owns tests/csv/**, where the base has no file"]);
        let told = self::told(&[&["a"], &["b"], &["c"], &["d", "e"]], &["src/a.rs"]);
        assert_eq!(told, ["4 units own paths where the base has no file: u0 (a), u1, u2, u3"]);
    }

    #[test]
    fn more_than_can_be_compared_is_said() {
        let files: Vec<String> = (0..2_000).map(|n| format!("f{n}")).collect();
        let files: Vec<&str> = files.iter().map(String::as_str).collect();
        let owns: Vec<&[&str]> = vec![&["nothing-*"]; 1_001];
        let told = told(&owns, &files);
        assert!(told.iter().any(|line| line.contains("overlaps may be missing")), "{:?}", told.last());
    }

    proptest! {
        #[test]
        fn no_file_of_a_pattern_lies_outside_its_root(
            pattern in "!?/?[ab*?]{1,3}(/[ab*?]{1,2}){0,2}/?",
            path in "[ab]{1,3}(/[ab]{1,2}){0,3}",
        ) {
            let patterns = matcher(std::slice::from_ref(&pattern)).unwrap();
            if owns(&patterns, &path) {
                prop_assert!(path.starts_with(root_of(&pattern)), "{pattern} {path}");
            }
        }

        #[test]
        fn any_patterns_are_compared_without_a_panic(
            patterns in prop::collection::vec("[a-c*?!\\[\\]{}\\\\ /#.-]{1,8}", 1..4),
            paths in prop::collection::vec("/?[a-c ./]{0,8}", 0..4),
        ) {
            let list: Vec<String> = patterns.iter().map(|pattern| format!("{pattern:?}")).collect();
            let unit = format!("[[unit]]\nid = \"a\"\nprompt = \"x\"\nowns = [{}]\n", list.join(","));
            let plan = format!("version = 1\n{unit}{}", unit.replace("\"a\"", "\"b\""));
            if let Ok(plan) = parse(&plan, Format::Toml) {
                let _ = warnings(&plan, Some(&paths));
            }
        }
    }
}
