//! What combining and landing cost beside git's own way, measured in one run.

use std::path::Path;
use std::time::Instant;

use super::Bench;
use super::bench::{Node, file};
use crate::files::Durability;
use crate::integrate::land::{StopAfter, land};

const UNITS: usize = 100;
const FILES: usize = 20_000;

fn seconds<T>(act: impl FnOnce() -> T) -> (f64, T) {
    let began = Instant::now();
    let done = act();
    (began.elapsed().as_secs_f64(), done)
}

fn name(at: usize) -> String {
    format!("d{}/e{}/file{at}.rs", at % 40, at % 25)
}

fn text(at: usize, edited: Option<usize>) -> String {
    let line = |line: usize| match edited {
        Some(unit) if line == 3 => format!("edited by unit {unit}\n"),
        _ => format!("line {line} of file {at}\n"),
    };
    (0..40).map(line).collect()
}

/// The shared file: every unit that edits it has a line of its own, far from the others.
fn shared(units: &[usize]) -> String {
    let line = |line: usize| match line.is_multiple_of(20) && units.contains(&(line / 20)) {
        true => format!("edited by unit {}\n", line / 20),
        false => format!("line {line}\n"),
    };
    (0..UNITS * 20).map(line).collect()
}

/// A unit's tree, made without a checkout.
fn tree(bench: &Bench, unit: usize, overlaps: bool) -> String {
    let git = |args: &[&str]| bench.git.command(args.iter().copied()).git_dir(&bench.store);
    let mut edits: Vec<(String, String)> =
        (0..4).map(|n| unit * 150 + n * 31).map(|at| (name(at), text(at, Some(unit)))).collect();
    edits.push((format!("new/unit{unit}.rs"), text(unit, None)));
    if overlaps {
        edits.push(("shared.rs".to_owned(), shared(&[unit])));
    }
    let index = bench.path("unit.index");
    git(&["read-tree", &bench.base_tree]).index(&index).run().unwrap();
    let mut lines = String::new();
    for (name, text) in edits {
        let blob = git(&["hash-object", "-w", "--stdin"]).input(text).run().unwrap().text();
        lines += &format!("100644 {blob}\t{name}\n");
    }
    git(&["update-index", "--add", "--index-info"]).index(&index).input(lines).run().unwrap();
    git(&["write-tree"]).index(&index).run().unwrap().text()
}

fn measure(what: &str, overlaps: impl Fn(usize) -> bool) {
    let mut files: Vec<(String, Option<Node>)> = (0..FILES).map(|at| (name(at), file(&text(at, None)))).collect();
    files.push(("shared.rs".to_owned(), file(&shared(&[]))));
    let files: Vec<(&str, Option<Node>)> = files.iter().map(|(name, node)| (name.as_str(), node.clone())).collect();
    let mut bench = Bench::new(&files);
    let patches = bench.path("patches");
    std::fs::create_dir(&patches).unwrap();
    for unit in 0..UNITS {
        let tree = tree(&bench, unit, overlaps(unit));
        let args = ["diff-tree", "-p", "--binary", "--full-index", &bench.base_tree, &tree];
        let patch = bench.git.command(args).git_dir(&bench.store).run().unwrap().stdout;
        std::fs::write(patches.join(format!("{unit}")), patch).unwrap();
        bench.units.push((format!("u{unit}").parse().unwrap(), tree));
    }
    let peer = bench.path("peer");
    bench.git.command(["clone", "-q", "--local"]).arg(bench.user()).arg(&peer).run().unwrap();
    // An index as it is after a while: nothing in it is as young as itself.
    for dir in [bench.user(), &peer] {
        bench.git.command(["update-index", "-q", "--refresh"]).dir(dir).run().unwrap();
    }
    let (theirs, ()) = seconds(|| {
        for unit in 0..UNITS {
            let patch = patches.join(format!("{unit}"));
            bench.git.command(["apply", "--3way"]).arg(&patch).dir(&peer).run().unwrap();
        }
    });
    let (combine, prepared) = seconds(|| bench.prepare().unwrap());
    assert!(prepared.dry_run.ready, "{:#?}", prepared.dry_run);
    let stage = bench.path("stage");
    let (check_out, ()) = seconds(|| prepared.stage_landing(&stage).unwrap());
    let dir = bench.path("landing");
    let (journal_time, journal) = seconds(|| prepared.journal(&stage, &dir, "bench", Durability::Synced).unwrap());
    let (landing, ()) = seconds(|| land(&journal, StopAfter(None)).unwrap());
    let ours = combine + check_out + journal_time + landing;
    assert_eq!(all(bench.user(), &prepared), all(&peer, &prepared));
    println!(
        "{UNITS} units, {what}, {FILES} files: prun {ours:.2} s (combine {combine:.2}, check out {check_out:.2}, \
         journal {journal_time:.2}, land {landing:.2}); {UNITS} × git apply --3way {theirs:.2} s; ratio {:.2}",
        ours / theirs
    );
}

fn all(root: &Path, prepared: &crate::integrate::Prepared) -> Vec<Vec<u8>> {
    prepared.dry_run.files.iter().map(|file| std::fs::read(root.join(&file.path)).unwrap()).collect()
}

/// `cargo test --release -p prun-engine a_hundred_units -- --ignored --nocapture --test-threads=1`, with `TMPDIR` on
/// the file system to measure.
#[test]
#[ignore = "a measurement"]
fn a_hundred_units_beside_git_apply() {
    measure("disjoint", |_| false);
    measure("ten of them in one file", |unit| unit % 10 == 0);
}
