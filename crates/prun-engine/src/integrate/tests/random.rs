//! Random repositories, units and users against an independent reference merge over plain maps of files.
//!
//! `PRUN_TEST_SEEDS` sets how many seeds are tried.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::Bench;
use super::bench::{Files, Node, put};
use crate::git::Git;
use crate::integrate::land::{StopAfter, land, resume, undo};
use crate::integrate::overlap::{ConflictKind, OverlapKind};
use crate::integrate::{IntegrateError, LandError, Refusal};

/// xorshift64*, seeded: small, and the same on every machine.
struct Random(u64);

impl Random {
    fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let high = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        usize::try_from(high).unwrap() % limit
    }

    fn one_in(&mut self, count: usize) -> bool {
        self.below(count) == 0
    }

    fn pick<T: Clone>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())].clone()
    }
}

/// Names that collide: as files, as directories of each other, by their case, tracked and ignored.
const NAMES: &[&str] = &[
    "a", "A", "b", "c.o", "d/a", "d/b", "d/e/f", "d/e", "d/t.o", "D/a", "g/h", "g", "G", "link", "x y", "q\"", "-n",
    "café", "bin", "dos", "w/in.win", "new.win",
];

/// Files that every side keeps as they are.
const RULES: [&str; 2] = [".gitignore", ".gitattributes"];

fn text(random: &mut Random, name: &str) -> Vec<u8> {
    if random.one_in(12) {
        return Vec::new();
    }
    if name == "bin" {
        return format!("\0{}", random.below(1000)).into_bytes();
    }
    let end = if name == "dos" { "\r\n" } else { "\n" };
    let line = |at: usize| format!("{name} {at} {}{end}", random.below(100_000));
    (0..12).map(line).collect::<String>().into_bytes()
}

/// What stands in a working tree at such a name: the attributes ask for CRLF there.
fn in_windows_form(bytes: &[u8]) -> Vec<u8> {
    String::from_utf8_lossy(bytes).replace("\r\n", "\n").replace('\n', "\r\n").into_bytes()
}

fn node(random: &mut Random, name: &str) -> Node {
    match random.below(8) {
        0 => Node::Link(random.pick(&["a", "/etc", "d"]).to_owned()),
        1 => Node::Exec(text(random, name)),
        _ => Node::File(text(random, name)),
    }
}

/// Sets a path in a map as a file system would: what is in its way goes.
fn set(files: &mut Files, path: &str, node: Node) {
    files.retain(|other, _| !other.starts_with(&format!("{path}/")) && !path.starts_with(&format!("{other}/")));
    let node = match node {
        Node::File(bytes) if path.ends_with(".win") => Node::File(in_windows_form(&bytes)),
        Node::Exec(bytes) if path.ends_with(".win") => Node::Exec(in_windows_form(&bytes)),
        node => node,
    };
    files.insert(path.to_owned(), node);
}

/// The same name in the other case.
fn in_other_case(name: &str) -> String {
    name.chars().map(|c| if c.is_lowercase() { c.to_ascii_uppercase() } else { c.to_ascii_lowercase() }).collect()
}

/// Gives a directory another name, with all that is in it.
fn move_directory(files: &mut Files, from: &str, to: &str) {
    let inside: Vec<String> = files.keys().filter(|name| name.starts_with(&format!("{from}/"))).cloned().collect();
    for name in inside {
        let node = files.remove(&name).unwrap();
        set(files, &name.replacen(from, to, 1), node);
    }
}

fn edit_lines(random: &mut Random, bytes: &[u8]) -> Vec<u8> {
    let text = String::from_utf8_lossy(bytes);
    let end = if text.contains("\r\n") { "\r\n" } else { "\n" };
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let at = random.below(lines.len().max(1));
    let new = format!("edited {}", random.below(3));
    match random.below(4) {
        0 if !lines.is_empty() => drop(lines.remove(at)),
        1 => lines.insert(at.min(lines.len()), new),
        _ if !lines.is_empty() => lines[at] = new,
        _ => lines.push(new),
    }
    lines.iter().map(|line| format!("{line}{end}")).collect::<String>().into_bytes()
}

fn edit(random: &mut Random, files: &mut Files) {
    let names: Vec<String> = files.keys().filter(|name| !RULES.contains(&name.as_str())).cloned().collect();
    let old = (!names.is_empty()).then(|| random.pick(&names));
    match (random.below(12), old) {
        (0, Some(name)) => drop(files.remove(&name)),
        (1, Some(name)) => {
            let to = random.pick(NAMES);
            let node = files.remove(&name).unwrap();
            set(files, to, node);
        }
        (10, Some(name)) => {
            let node = files.remove(&name).unwrap();
            set(files, &in_other_case(&name), node);
        }
        (11, _) => {
            let names = [("d", "moved"), ("d", "D"), ("g", "d"), ("d/e", "e")];
            let (from, to) = random.pick(&names);
            move_directory(files, from, to);
        }
        (2, Some(name)) => match files.get_mut(&name).unwrap() {
            node @ Node::File(_) => {
                let Node::File(bytes) = node.clone() else { unreachable!() };
                *node = Node::Exec(bytes);
            }
            _ => set(files, &name, Node::File(b"was something else\n".to_vec())),
        },
        (3..=7, Some(name)) => match files.get_mut(&name).unwrap() {
            Node::File(bytes) | Node::Exec(bytes) => {
                let edited = edit_lines(random, bytes);
                *bytes = if name.ends_with(".win") { in_windows_form(&edited) } else { edited };
            }
            Node::Link(to) => *to = format!("to-{}", random.below(3)),
        },
        _ => {
            let name = random.pick(NAMES);
            let node = node(random, name);
            set(files, name, node);
        }
    }
}

fn edited(random: &mut Random, files: &Files, most: usize) -> Files {
    let mut files = files.clone();
    for _ in 0..random.below(most + 1) {
        edit(random, &mut files);
    }
    files
}

/// A file that the ignore rules name.
fn sometimes_ignored(random: &mut Random, files: &mut Files) {
    if random.one_in(5) {
        let node = node(random, "c.o");
        set(files, "c.o", node);
    }
}

/// Makes the directory hold these files, apart from what it holds beside `old`.
fn write_over(root: &Path, old: &Files, new: &Files) {
    for path in old.keys().filter(|path| !new.contains_key(*path)) {
        put(root, path, None);
    }
    for (path, node) in new.iter().filter(|(path, node)| old.get(*path) != Some(*node)) {
        put(root, path, Some(node));
    }
}

/// Why the reference would not combine.
#[derive(Debug)]
struct Clash;

fn bytes(node: &Node) -> Option<(&[u8], bool)> {
    match node {
        Node::File(bytes) => Some((bytes, false)),
        Node::Exec(bytes) => Some((bytes, true)),
        Node::Link(_) => None,
    }
}

/// Three-way merge of two nodes that both differ from the base and from each other.
fn merge_nodes(git: &Git, scratch: &Path, base: &Node, first: &Node, second: &Node) -> Result<Node, Clash> {
    let (Some(base), Some(first), Some(second)) = (bytes(base), bytes(first), bytes(second)) else { return Err(Clash) };
    if (first.0 == base.0) != (second.0 == base.0) {
        return Err(Clash);
    }
    let names = ["first", "base", "second"].map(|name| scratch.join(name));
    for (name, content) in names.iter().zip([first.0, base.0, second.0]) {
        std::fs::write(name, content).unwrap();
    }
    let all: Vec<i32> = (0..256).collect();
    let output = git.command(["merge-file", "-p"]).args(&names).dir(scratch).run_accepting(&all).unwrap();
    if output.status.code() != Some(0) {
        return Err(Clash);
    }
    let is_exec = if first.1 == base.1 { second.1 } else { first.1 };
    Ok(if is_exec { Node::Exec(output.stdout) } else { Node::File(output.stdout) })
}

/// The reference: path by path over maps, without renames.
fn merge_maps(git: &Git, scratch: &Path, base: &Files, first: &Files, second: &Files) -> Result<Files, Clash> {
    let mut merged = Files::new();
    let names: BTreeSet<&String> = base.keys().chain(first.keys()).chain(second.keys()).collect();
    for name in names {
        let (old, a, b) = (base.get(name), first.get(name), second.get(name));
        let node = match (old, a, b) {
            _ if a == b || b == old => a.cloned(),
            _ if a == old => b.cloned(),
            (Some(old), Some(a), Some(b)) => Some(merge_nodes(git, scratch, old, a, b)?),
            _ => return Err(Clash),
        };
        if let Some(node) = node {
            merged.insert(name.clone(), node);
        }
    }
    let is_below = |name: &String| merged.keys().any(|other| name.starts_with(&format!("{other}/")));
    if merged.keys().any(is_below) { Err(Clash) } else { Ok(merged) }
}

struct World {
    bench: Bench,
    user: Files,
    expected: Result<Files, Clash>,
    kinds: BTreeSet<&'static str>,
}

/// Every kind of edit that the seeds have to bring about, told from the files alone.
const KINDS: [&str; 14] = [
    "disjoint units",
    "two change one path",
    "deleted here, edited there",
    "renamed",
    "renamed by case alone",
    "a file became a directory",
    "a directory became a file",
    "mode",
    "symbolic link",
    "CRLF",
    "binary",
    "ignored in the way",
    "untracked in the way",
    "directory renamed",
];

/// Paths in which `new` differs from `old`.
fn changed(old: &Files, new: &Files) -> BTreeSet<String> {
    old.keys().chain(new.keys()).filter(|name| old.get(*name) != new.get(*name)).cloned().collect()
}

fn kinds_of(base: &Files, committed: &Files, user: &Files, units: &[Files]) -> BTreeSet<&'static str> {
    let mut found = BTreeSet::new();
    let sides: Vec<(&Files, BTreeSet<String>)> = units
        .iter()
        .chain([user])
        .map(|side| (side, changed(base, side)))
        .filter(|(_, paths)| !paths.is_empty())
        .collect();
    let dir_of = |name: &str| name.rsplit_once('/').map(|(dir, _)| dir.to_owned());
    for (at, (side, paths)) in sides.iter().enumerate() {
        for name in paths {
            let (old, new) = (base.get(name), side.get(name));
            let gone = |other: &&String| base.get(*other) == new && !side.contains_key(*other);
            if new.is_some() && old.is_none() {
                let sources: Vec<&String> = base.keys().filter(gone).collect();
                found.extend((!sources.is_empty()).then_some("renamed"));
                found.extend(
                    sources.iter().any(|from| from.eq_ignore_ascii_case(name)).then_some("renamed by case alone"),
                );
                let moved = |from: &&String| dir_of(from).is_some() && dir_of(from) != dir_of(name);
                found.extend(sources.iter().any(moved).then_some("directory renamed"));
            }
            let is_dir = |files: &Files| files.keys().any(|other| other.starts_with(&format!("{name}/")));
            found.extend((old.is_some() && is_dir(side)).then_some("a file became a directory"));
            found.extend((new.is_some() && is_dir(base)).then_some("a directory became a file"));
            found.extend(match (old, new) {
                (Some(Node::File(old)), Some(Node::Exec(new))) if old == new => Some("mode"),
                (_, Some(Node::Link(_))) => Some("symbolic link"),
                (_, Some(Node::File(bytes))) if bytes.contains(&0) => Some("binary"),
                (Some(Node::File(old)), Some(Node::File(new))) if old != new && new.ends_with(b"\r\n") => Some("CRLF"),
                _ => None,
            });
            for (other, theirs) in &sides[at + 1..] {
                if theirs.contains(name) && other.get(name) != new {
                    found.insert("two change one path");
                    let edits = |node: Option<&Node>| node.is_some() && old.is_some();
                    let deletes = new.is_none() && edits(other.get(name)) || other.get(name).is_none() && edits(new);
                    found.extend(deletes.then_some("deleted here, edited there"));
                }
            }
            let in_the_way = at < units.len() && user.contains_key(name) && !committed.contains_key(name);
            found.extend(in_the_way.then_some(if name.ends_with(".o") {
                "ignored in the way"
            } else {
                "untracked in the way"
            }));
        }
    }
    let disjoint =
        |first: &(&Files, BTreeSet<String>), second: &(&Files, BTreeSet<String>)| first.1.is_disjoint(&second.1);
    let two = sides.len() > 1 && (1..sides.len()).all(|at| disjoint(&sides[at - 1], &sides[at]));
    found.extend(two.then_some("disjoint units"));
    found
}

fn world(seed: u64) -> World {
    let mut random = Random::new(seed);
    let rules = [("*.o\n", RULES[0]), ("*.win text eol=crlf\n", RULES[1])];
    let rule = |(text, name): (&str, &str)| (name.to_owned(), Node::File(text.as_bytes().to_vec()));
    let mut base = Files::from(rules.map(rule));
    for _ in 0..random.below(12) {
        let name = random.pick(NAMES);
        let node = node(&mut random, name);
        set(&mut base, name, node);
    }
    base.retain(|name, _| !name.ends_with(".o"));
    let edits: Vec<(&str, Option<Node>)> =
        base.iter().map(|(name, node)| (name.as_str(), Some(node.clone()))).collect();
    let mut bench = Bench::new(&edits);
    let committed = edited(&mut random, &base, 2);
    write_over(bench.user(), &base, &committed);
    bench.user_git(&["add", "-A"]);
    bench.user_git(&["commit", "-q", "--allow-empty", "-m", "more"]);
    let mut user = edited(&mut random, &committed, 3);
    sometimes_ignored(&mut random, &mut user);
    write_over(bench.user(), &committed, &user);
    match random.below(4) {
        0 => drop(bench.user_git(&["add", "-A"])),
        1 => drop(bench.user_git(&["add", "-N", "."])),
        _ => {}
    }
    let scratch = bench.path("reference");
    std::fs::create_dir(&scratch).unwrap();
    let mut theirs = Ok(base.clone());
    let mut units = Vec::new();
    for id in 0..=random.below(4) {
        let mut unit = edited(&mut random, &base, 3);
        sometimes_ignored(&mut random, &mut unit);
        theirs = theirs.and_then(|theirs| merge_maps(&bench.git, &scratch, &base, &theirs, &unit));
        let tree = bench.tree_of(&unit);
        bench.units.push((format!("u{id}").parse().unwrap(), tree));
        units.push(unit);
    }
    let expected = theirs.and_then(|theirs| merge_maps(&bench.git, &scratch, &base, &user, &theirs));
    let kinds = kinds_of(&base, &committed, &user, &units);
    World { bench, user, expected, kinds }
}

/// Whether nothing landed for a reason that the reference cannot see.
fn is_about_renames(bench: &Bench) -> bool {
    let dry_run = bench.prepare().unwrap().dry_run;
    dry_run.conflicts.iter().any(|conflict| conflict.kind == ConflictKind::Rename)
        || dry_run.overlaps.iter().any(|overlap| overlap.kind == OverlapKind::EditAcrossRename)
}

/// Integrates; tells whether something landed, and what kinds of edits there were.
fn integrate(seed: u64) -> (bool, BTreeSet<&'static str>) {
    let World { bench, user, expected, kinds } = world(seed);
    (integrate_one(seed, &bench, &user, expected), kinds)
}

fn integrate_one(seed: u64, bench: &Bench, user: &Files, expected: Result<Files, Clash>) -> bool {
    let (before, git) = (bench.files(), bench.git_hash());
    assert_eq!(&before, user, "seed {seed}");
    let outcome = bench.prepare();
    assert_eq!(
        (bench.files(), bench.git_hash()),
        (before.clone(), git.clone()),
        "seed {seed}: prepare changed something"
    );
    let prepared = match outcome {
        Ok(prepared) => prepared,
        Err(IntegrateError::Refused(Refusal::NothingToLand)) => {
            assert!(expected.is_err() || expected.is_ok_and(|expected| expected == *user), "seed {seed}");
            return false;
        }
        Err(IntegrateError::Refused(Refusal::AppliedBefore(_))) => return false,
        Err(other) => panic!("seed {seed}: {other}"),
    };
    if !prepared.dry_run.ready {
        assert!(expected.is_err() || is_about_renames(bench), "seed {seed}: {:#?}\n{expected:?}", prepared.dry_run);
        return false;
    }
    let Ok(expected) = expected else { panic!("seed {seed}: the reference is at odds: {:#?}", prepared.dry_run) };
    let journal = bench.journal_of(&prepared);
    let stop = StopAfter(Some(usize::try_from(seed).unwrap() % 12));
    match land(&journal, stop) {
        Err(LandError::Interrupted) if seed.is_multiple_of(2) => {
            resume(&journal, StopAfter(None)).unwrap();
            land_again_where_nothing_began(&journal);
        }
        Err(LandError::Interrupted) => {
            match undo(&journal, StopAfter(None)) {
                Ok(()) | Err(LandError::NotLanded) => {}
                Err(other) => panic!("seed {seed}: {other}"),
            }
            assert_eq!(bench.files(), before, "seed {seed}: undone");
            land(&bench.journal(), StopAfter(None)).unwrap();
        }
        other => other.unwrap(),
    }
    assert_eq!((bench.files(), bench.git_hash()), (expected, git), "seed {seed}");
    true
}

fn land_again_where_nothing_began(journal: &crate::integrate::journal::Journal) {
    if journal.phase().unwrap() == crate::integrate::journal::Phase::Prepared {
        land(journal, StopAfter(None)).unwrap();
    }
}

fn seeds() -> u64 {
    std::env::var("PRUN_TEST_SEEDS").ok().and_then(|count| count.parse().ok()).unwrap_or(100)
}

/// Tries every second seed.
fn try_seeds(first: u64) {
    let (mut landed, mut seen) = (0, BTreeMap::<&str, u64>::new());
    for seed in (first..seeds()).step_by(2) {
        let (has_landed, kinds) = integrate(seed);
        landed += u64::from(has_landed);
        for kind in kinds {
            *seen.entry(kind).or_default() += 1;
        }
    }
    println!("{landed} landed of {}; {seen:?}", seeds() / 2);
    assert!(landed >= seeds() / 20, "only {landed} landed");
    let missing: Vec<&&str> = KINDS.iter().filter(|kind| !seen.contains_key(**kind)).collect();
    assert!(seeds() < 100 || missing.is_empty(), "no seed has {missing:?}");
}

#[test]
fn what_lands_is_what_a_reference_merge_makes_or_nothing_even_seeds() {
    try_seeds(0);
}

#[test]
fn what_lands_is_what_a_reference_merge_makes_or_nothing_odd_seeds() {
    try_seeds(1);
}
