//! Random repositories, units and users against an independent reference merge over plain maps of files.
//!
//! `PRUN_TEST_SEEDS` sets how many seeds are tried.

use std::collections::BTreeSet;
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

/// Names that collide: as files, as directories of each other, tracked and ignored.
const NAMES: &[&str] =
    &["a", "b", "c.o", "d/a", "d/b", "d/e/f", "d/e", "g/h", "g", "link", "x y", "q\"", "-n", "caf\u{e9}", "bin"];

fn text(random: &mut Random, name: &str) -> Vec<u8> {
    if random.one_in(12) {
        return Vec::new();
    }
    if name == "bin" {
        return format!("\0{}", random.below(1000)).into_bytes();
    }
    let line = |at: usize| format!("{name} {at} {}\n", random.below(100_000));
    (0..12).map(line).collect::<String>().into_bytes()
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
    files.insert(path.to_owned(), node);
}

fn edit_lines(random: &mut Random, bytes: &[u8]) -> Vec<u8> {
    let mut lines: Vec<String> = String::from_utf8_lossy(bytes).lines().map(str::to_owned).collect();
    let at = random.below(lines.len().max(1));
    let new = format!("edited {}", random.below(3));
    match random.below(4) {
        0 if !lines.is_empty() => drop(lines.remove(at)),
        1 => lines.insert(at.min(lines.len()), new),
        _ if !lines.is_empty() => lines[at] = new,
        _ => lines.push(new),
    }
    lines.iter().map(|line| format!("{line}\n")).collect::<String>().into_bytes()
}

fn edit(random: &mut Random, files: &mut Files) {
    let names: Vec<String> = files.keys().filter(|name| *name != ".gitignore").cloned().collect();
    let old = (!names.is_empty()).then(|| random.pick(&names));
    match (random.below(10), old) {
        (0, Some(name)) => drop(files.remove(&name)),
        (1, Some(name)) => {
            let to = random.pick(NAMES);
            let node = files.remove(&name).unwrap();
            set(files, to, node);
        }
        (2, Some(name)) => match files.get_mut(&name).unwrap() {
            node @ Node::File(_) => {
                let Node::File(bytes) = node.clone() else { unreachable!() };
                *node = Node::Exec(bytes);
            }
            node => *node = Node::File(b"was something else\n".to_vec()),
        },
        (3..=7, Some(name)) => match files.get_mut(&name).unwrap() {
            Node::File(bytes) | Node::Exec(bytes) => *bytes = edit_lines(random, bytes),
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
}

fn world(seed: u64) -> World {
    let mut random = Random::new(seed);
    let ignore = (".gitignore".to_owned(), Node::File(b"*.o\n".to_vec()));
    let mut base = Files::from([ignore]);
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
    let user = edited(&mut random, &committed, 3);
    write_over(bench.user(), &committed, &user);
    match random.below(4) {
        0 => drop(bench.user_git(&["add", "-A"])),
        1 => drop(bench.user_git(&["add", "-N", "."])),
        _ => {}
    }
    let scratch = bench.path("reference");
    std::fs::create_dir(&scratch).unwrap();
    let mut theirs = Ok(base.clone());
    for id in 0..=random.below(4) {
        let unit = edited(&mut random, &base, 4);
        theirs = theirs.and_then(|theirs| merge_maps(&bench.git, &scratch, &base, &theirs, &unit));
        let tree = bench.tree_of(&unit);
        bench.units.push((format!("u{id}").parse().unwrap(), tree));
    }
    let expected = theirs.and_then(|theirs| merge_maps(&bench.git, &scratch, &base, &user, &theirs));
    World { bench, user, expected }
}

/// Whether nothing landed for a reason that the reference cannot see.
fn is_about_renames(bench: &Bench) -> bool {
    let dry_run = bench.prepare().unwrap().dry_run;
    dry_run.conflicts.iter().any(|conflict| conflict.kind == ConflictKind::Rename)
        || dry_run.overlaps.iter().any(|overlap| overlap.kind == OverlapKind::EditAcrossRename)
}

/// Integrates; tells whether something landed.
fn integrate(seed: u64) -> bool {
    let World { bench, user, expected } = world(seed);
    let (before, git) = (bench.files(), bench.git_hash());
    assert_eq!(before, user, "seed {seed}");
    let outcome = bench.prepare();
    assert_eq!(
        (bench.files(), bench.git_hash()),
        (before.clone(), git.clone()),
        "seed {seed}: prepare changed something"
    );
    let prepared = match outcome {
        Ok(prepared) => prepared,
        Err(IntegrateError::Refused(Refusal::NothingToLand)) => {
            assert!(expected.is_err() || expected.is_ok_and(|expected| expected == user), "seed {seed}");
            return false;
        }
        Err(IntegrateError::Refused(Refusal::AppliedBefore(_))) => return false,
        Err(other) => panic!("seed {seed}: {other}"),
    };
    if !prepared.dry_run.ready {
        assert!(expected.is_err() || is_about_renames(&bench), "seed {seed}: {:#?}\n{expected:?}", prepared.dry_run);
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

#[test]
fn what_lands_is_what_a_reference_merge_makes_or_nothing_even_seeds() {
    let landed = (0..seeds()).step_by(2).filter(|seed| integrate(*seed)).count();
    assert!(u64::try_from(landed).unwrap() >= seeds() / 20, "only {landed} landed");
}

#[test]
fn what_lands_is_what_a_reference_merge_makes_or_nothing_odd_seeds() {
    let landed = (1..seeds()).step_by(2).filter(|seed| integrate(*seed)).count();
    assert!(u64::try_from(landed).unwrap() >= seeds() / 20, "only {landed} landed");
}
