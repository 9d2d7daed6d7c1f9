//! Conflicts that are resolved by hand.

use super::Bench;
use super::bench::{Node, file, node_at, put};
use crate::integrate::resolve::{abort, resolved};
use crate::integrate::{IntegrateError, Refusal};

fn lines(edits: &[(usize, &str)]) -> Option<Node> {
    let mut lines: Vec<String> = (1..=20).map(|line| line.to_string()).collect();
    for (line, text) in edits {
        lines[*line - 1] = (*text).to_owned();
    }
    file(&(lines.join("\n") + "\n"))
}

#[test]
fn a_resolution_lands_over_what_the_user_did_meanwhile() {
    let mut bench = Bench::new(&[("f", lines(&[])), ("g", file("g\n")), (".gitignore", file("*.o\n"))]);
    bench.unit("one", &[("f", lines(&[(1, "one")])), ("new", file("n\n")), ("kept.o", file("o\n"))]);
    bench.unit("two", &[("f", lines(&[(1, "two"), (9, "two")])), ("g", None)]);
    bench.edit("f", lines(&[(20, "mine")]));
    let (before, git) = (bench.files(), bench.git_hash());
    let prepared = bench.prepare().unwrap();
    assert!(!prepared.dry_run.ready);
    let dir = bench.path("resolve");
    let resolution = prepared.resolve(&bench.base_tree, &bench.units, &bench.store(), &dir).unwrap();
    assert_eq!(resolution.conflicts, ["f"]);
    assert_eq!(bench.files(), before);
    let status = bench.git.command(["status", "--porcelain"]).dir(&dir).run().unwrap().text();
    assert_eq!(status, " M f\n D g\n?? new");
    let Some(Node::File(text)) = node_at(&dir.join("f")) else { panic!() };
    let text = String::from_utf8(text).unwrap();
    let markers: Vec<&str> = text.lines().filter(|line| line.starts_with(['<', '>'])).collect();
    assert_eq!(markers, ["<<<<<<< your-working-tree+one", ">>>>>>> unit/two"]);
    let refused = resolved(&bench.git, &bench.target, &resolution).unwrap_err();
    assert!(matches!(refused, IntegrateError::Refused(Refusal::Unresolved(paths)) if paths == ["f"]));
    put(&dir, "f", lines(&[(1, "both"), (9, "two"), (20, "mine")]).as_ref());
    put(&dir, "by-hand", file("added while resolving\n").as_ref());
    let taken = resolved(&bench.git, &bench.target, &resolution).unwrap();

    bench.edit("f", lines(&[(15, "later"), (20, "mine")]));
    bench.base_tree = resolution.base_tree.clone();
    bench.units = vec![("resolved".parse().unwrap(), taken.tree)];
    bench.store = taken.store;
    bench.land().unwrap();
    assert_eq!(bench.read("f"), lines(&[(1, "both"), (9, "two"), (15, "later"), (20, "mine")]));
    assert_eq!((bench.read("g"), bench.read("new")), (None, file("n\n")));
    assert_eq!(bench.read("kept.o"), file("o\n"));
    assert_eq!(bench.read("by-hand"), file("added while resolving\n"));
    assert_eq!(bench.git_hash(), git);
}

#[test]
fn an_aborted_resolution_leaves_nothing() {
    let mut bench = Bench::new(&[("f", lines(&[]))]);
    bench.unit("one", &[("f", lines(&[(1, "one")]))]).unit("two", &[("f", lines(&[(1, "two")]))]);
    let dir = bench.path("resolve");
    let prepared = bench.prepare().unwrap();
    let resolution = prepared.resolve(&bench.base_tree, &bench.units, &bench.store(), &dir).unwrap();
    assert!(node_at(&dir.join("f")) != lines(&[]));
    abort(&resolution).unwrap();
    abort(&resolution).unwrap();
    assert!(!dir.exists() && !resolution.quarantine.exists());
    assert_eq!(bench.read("f"), lines(&[]));
}
