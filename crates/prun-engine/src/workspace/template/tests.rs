//! Copies of a template, and a measurement of them.

use std::collections::BTreeSet;
use std::os::unix::fs::MetadataExt;
use std::process::Command;
use std::time::Instant;

use super::*;
use crate::git::Git;
use crate::spec::HarvestSpec;
use crate::workspace::clone;
use crate::workspace::clone::ClonePlan;
use crate::workspace::mirror;
use crate::workspace::testing::{Fixture, Prepared, gits, letters, put, state_of, user_git};

struct Bench {
    fixture: Fixture,
    first: Prepared,
    mirror: mirror::Mirror,
    template: Template,
}

impl Bench {
    fn of(fixture: Fixture) -> Self {
        let first = fixture.prepare("run");
        let mirror = mirror::ensure(&fixture.home(), &first.store, &first.base).unwrap();
        let format = &first.store.facts.object_format;
        let template = Template::take(&first.base, &first.clone, format, fixture.temp.path()).unwrap().unwrap();
        Self { fixture, first, mirror, template }
    }

    fn clone(&self, name: &str) -> HarvestSpec {
        let dir = self.fixture.temp.path().join(name);
        let trusted_index = self.fixture.temp.path().join(format!("{name}.index"));
        clone::prepare(&ClonePlan {
            store: &self.first.store,
            mirror: &self.mirror,
            base: &self.first.base,
            dir: &dir,
            trusted_index: &trusted_index,
            template: Some(&self.template),
        })
        .unwrap();
        HarvestSpec { work_tree: dir, trusted_index, ..self.first.spec.clone() }
    }
}

fn inodes(dir: &Path) -> BTreeSet<(u64, u64)> {
    let files = state_of(dir).into_keys().map(|path| path.symlink_metadata().unwrap());
    files.filter(|meta| !meta.is_dir()).map(|meta| (meta.dev(), meta.ino())).collect()
}

/// Paths, modes and contents, without times and without git's own directory.
fn contents(dir: &Path) -> Vec<String> {
    let state = state_of(dir).into_iter().filter(|(path, _)| !path.starts_with(dir.join(".git")));
    let name = |path: &Path| path.strip_prefix(dir).unwrap().display().to_string();
    let words = |state: String| {
        state.split(' ').enumerate().filter(|(n, _)| *n != 1).map(|(_, w)| w.to_owned()).collect::<Vec<_>>().join(" ")
    };
    state.map(|(path, state)| format!("{} {}", name(&path), words(state))).collect()
}

fn many(git: &Git) -> Fixture {
    let fixture = Fixture::new(git);
    for n in 0..1200 {
        fixture.write(&format!("d{}/e{}/f{n}", n % 7, n % 11), &format!("{n}\n"));
    }
    fixture.write("d1/e-/x", "between a directory and its files");
    fixture.write("large", &"large\n".repeat(300_000));
    fixture.commit("many");
    fixture
}

#[test]
fn a_copy_is_what_git_writes_and_git_has_nothing_to_read_in_it() {
    for git in gits() {
        let bench = Bench::of(many(&git));
        let before = state_of(&bench.fixture.repo);
        let (one, two) = (bench.clone("one"), bench.clone("two"));
        assert_eq!(contents(&one.work_tree), contents(&bench.first.clone));
        for spec in [&one, &two] {
            // Git lists every file of which the stat data differ, whatever it holds.
            assert_eq!(user_git(&git, &spec.work_tree, &["diff-files"]), "");
            assert_eq!(user_git(&git, &spec.work_tree, &["status", "--porcelain"]), "");
            assert_eq!(user_git(&git, &spec.work_tree, &["fsck", "--full"]), "");
            // And it reads a file whose time is not older than the index.
            let index = fs::metadata(&spec.trusted_index).unwrap().mtime();
            let entries = state_of(&spec.work_tree).into_keys();
            let files = entries.filter(|path| !path.starts_with(spec.work_tree.join(".git")) && !path.is_dir());
            assert!(files.into_iter().all(|path| path.symlink_metadata().unwrap().mtime() < index));
        }
        let sets = [&bench.fixture.repo, &one.work_tree, &two.work_tree, &bench.first.clone].map(|dir| inodes(dir));
        assert_eq!(sets.iter().flatten().collect::<BTreeSet<_>>().len(), sets.iter().map(BTreeSet::len).sum::<usize>());
        assert!(state_of(&bench.fixture.repo) == before);
    }
}

#[test]
fn the_harvest_of_a_copy_sees_what_changed() {
    for format in ["sha1", "sha256"] {
        let bench = Bench::of(Fixture::with_format(&gits()[0], format));
        let spec = bench.clone("one");
        assert!(crate::workspace::harvest::harvest(&bench.fixture.git, &spec).unwrap().is_empty());
        // The same size, in the same second as the copy.
        put(&spec.work_tree.join("README"), "HELLO\n");
        fs::remove_file(spec.work_tree.join("link")).unwrap();
        put(&spec.work_tree.join("new"), "x");
        let changes = crate::workspace::harvest::harvest(&bench.fixture.git, &spec).unwrap();
        assert_eq!(letters(&changes), ["M README", "D link", "A new"]);
    }
}

/// A wrapper around git adds up what it reads in a harvest of a clone of 12 MB in which one file changed.
#[test]
fn a_harvest_does_not_read_again_what_did_not_change() {
    const FILES: u64 = 400;
    const SIZE: u64 = 30_000;
    let text = |n: u64| format!("{n:03}: thirty bytes, and no more\n").repeat(1000);
    let fixture = Fixture::new(&gits()[0]);
    for n in 0..FILES {
        fixture.write(&format!("big/{n}"), &text(n));
    }
    fixture.commit("big");
    let bench = Bench::of(fixture);
    let spec = bench.clone("one");
    put(&spec.work_tree.join("README"), "changed\n");
    let (wrapper, log) = (bench.fixture.temp.path().join("counts"), bench.fixture.temp.path().join("read"));
    let git = bench.fixture.git.program().display();
    let count = format!("sed -n 's/^rchar: //p' /proc/$$/io >> {}", log.display());
    put(&wrapper, &format!("#!/bin/sh\n{git} \"$@\"\ncode=$?\n{count}\nexit $code\n"));
    fs::set_permissions(&wrapper, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let read = || fs::read_to_string(&log).unwrap().lines().map(|line| line.parse::<u64>().unwrap()).sum::<u64>();
    let harvest = || crate::workspace::harvest::harvest(&Git::at(&wrapper), &spec).unwrap();
    assert_eq!(letters(&harvest()), ["M README"]);
    let once = read();
    assert!(once < FILES * SIZE / 4, "{once} bytes were read");
    // What did change is read, and the wrapper sees that.
    for n in 0..FILES {
        put(&spec.work_tree.join(format!("big/{n}")), &text(n + 1));
    }
    assert_eq!(harvest().files.len() as u64, FILES + 1);
    assert!(read() - once > FILES * SIZE, "{} bytes were read", read() - once);
}

#[test]
fn a_template_that_somebody_wrote_to_is_not_copied_any_more() {
    let bench = Bench::of(many(&gits()[0]));
    let path = format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&bench.template.file));
    let time = bench.template.file.metadata().unwrap().modified().unwrap();
    let file = File::options().write(true).open(path).unwrap();
    file.write_all_at(b"x", 5).unwrap();
    file.set_modified(time).unwrap();
    let spec = bench.clone("one");
    assert!(!bench.template.holds(&bench.first.base));
    assert_eq!(contents(&spec.work_tree), contents(&bench.first.clone));
    assert!(crate::workspace::harvest::harvest(&bench.fixture.git, &spec).unwrap().is_empty());
}

#[test]
fn a_clone_in_which_somebody_worked_is_no_template() {
    let bench = Bench::of(Fixture::new(&gits()[0]));
    put(&bench.first.clone.join("README"), "HELLO\n");
    let said = Template::take(&bench.first.base, &bench.first.clone, "sha1", bench.fixture.temp.path());
    assert!(said.unwrap_err().to_string().contains("README"));
}

#[test]
fn an_empty_tree_and_a_submodule_can_be_copied() {
    let fixture = Fixture::new(&gits()[0]);
    let head = fixture.run(&["rev-parse", "HEAD"]);
    fixture.run(&["update-index", "--add", "--cacheinfo", &format!("160000,{head},deep/mod")]);
    fixture.run(&["commit", "-q", "-m", "submodule"]);
    let bench = Bench::of(fixture);
    let spec = bench.clone("one");
    assert!(spec.work_tree.join("deep/mod").is_dir());
    assert_eq!(user_git(&bench.fixture.git, &spec.work_tree, &["status", "--porcelain"]), "");
    let fixture = Fixture::empty(&gits()[0]);
    fixture.run(&["commit", "-q", "--allow-empty", "-m", "empty"]);
    assert!(Bench::of(fixture).clone("one").work_tree.join(".git").is_dir());
}

fn seconds(act: impl FnOnce()) -> f64 {
    let began = Instant::now();
    act();
    began.elapsed().as_secs_f64()
}

/// Bytes on disk below `dir`, as `du` counts them.
fn disk(dir: &Path) -> u64 {
    let said = Command::new("du").arg("-s").arg(dir).output().unwrap();
    String::from_utf8_lossy(&said.stdout).split_whitespace().next().unwrap().parse::<u64>().unwrap() / 1024
}

/// `cargo test --release -p prun-engine clones_beside_git -- --ignored --nocapture`, with `TMPDIR` on the file
/// system to measure.
#[test]
#[ignore = "a measurement"]
fn clones_beside_git_clone_local() {
    let clones: usize = std::env::var("CLONES").map_or(32, |count| count.parse().unwrap());
    let fixture = Fixture::new(&gits()[0]);
    for n in 0..20_000_u32 {
        let lines = 20 + (n * 7919) % 200;
        let text: String =
            (0..lines).map(|line| format!("line {line} of file {n}: {}\n", n.wrapping_mul(line))).collect();
        fixture.write(&format!("d{}/e{}/file{n}.rs", n % 40, n % 25), &text);
    }
    fixture.run(&["config", "gc.auto", "0"]);
    fixture.run(&["config", "maintenance.auto", "false"]);
    fixture.commit("many");
    fixture.run(&["gc", "-q"]);
    let root = fixture.temp.path().to_owned();
    let mut ours = Vec::new();
    let mut theirs = Vec::new();
    let mut bench = None;
    let first = seconds(|| {
        bench = Some(Bench::of(Fixture {
            git: fixture.git.clone(),
            temp: tempfile::tempdir().unwrap(),
            repo: fixture.repo.clone(),
        }));
    });
    let bench = bench.unwrap();
    println!("mirror, one clone by git and the template: {first:.2} s");
    for n in 0..clones {
        // One of each in turn, so that both meet the same machine.
        ours.push(seconds(|| drop(bench.clone(&format!("ours{n}")))));
        let to = root.join(format!("theirs{n}"));
        let args = ["clone", "-q", "--local", fixture.repo.to_str().unwrap(), to.to_str().unwrap()];
        theirs.push(seconds(|| drop(user_git(&fixture.git, &root, &args))));
    }
    let sum = |times: &[f64]| times.iter().sum::<f64>();
    println!(
        "one at a time: ours {:.2} s, git {:.2} s, ratio {:.2}",
        sum(&ours),
        sum(&theirs),
        sum(&ours) / sum(&theirs)
    );
    let here = bench.fixture.temp.path();
    let status = |dir: std::path::PathBuf| seconds(|| drop(user_git(&fixture.git, &dir, &["status", "--porcelain"])));
    println!("first git status: ours {:.3} s, git {:.3} s", status(here.join("ours0")), status(root.join("theirs0")));
    println!("disk: ours {} MB, git {} MB", disk(&here.join("ours1")), disk(&root.join("theirs1")));
    let spec = HarvestSpec {
        work_tree: here.join("ours3"),
        trusted_index: here.join("ours3.index"),
        ..bench.first.spec.clone()
    };
    put(&spec.work_tree.join("d1/new"), "x");
    let harvest =
        seconds(|| assert_eq!(crate::workspace::harvest::harvest(&fixture.git, &spec).unwrap().files.len(), 1));
    // What git does with an index that knows the files, and with one that does not: it reads all of them.
    let add = |index: &str, from: Option<&Path>| {
        let index = here.join(index);
        from.map(|from| fs::copy(from, &index).unwrap());
        seconds(|| {
            for args in [&["add", "-A"][..], &["write-tree"]] {
                let command = fixture.git.command(args.iter().copied()).dir(&spec.work_tree);
                command.git_dir(spec.work_tree.join(".git")).work_tree(&spec.work_tree).index(&index).run().unwrap();
            }
        })
    };
    let (known, unknown) = (add("known.index", Some(&spec.trusted_index)), add("unknown.index", None));
    println!(
        "harvest of one changed file: {harvest:.3} s; git add and write-tree {known:.3} s, reading all {unknown:.3} s"
    );
    let pool = |act: &(dyn Fn(usize) + Sync)| {
        seconds(|| {
            std::thread::scope(|scope| {
                (0..2).for_each(|t| drop(scope.spawn(move || (0..clones / 2).for_each(|n| act(2 * n + t)))));
            });
        })
    };
    let theirs = pool(&|n| {
        let to = root.join(format!("pool{n}"));
        user_git(
            &fixture.git,
            &root,
            &["clone", "-q", "--local", fixture.repo.to_str().unwrap(), to.to_str().unwrap()],
        );
    });
    let ours = pool(&|n| drop(bench.clone(&format!("pool{n}"))));
    println!("two at a time: ours {ours:.2} s, git {theirs:.2} s, ratio {:.2}", ours / theirs);
}
