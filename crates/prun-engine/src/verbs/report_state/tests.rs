//! Left-over trees of every kind, and what is reported of them.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use super::look::{Place, place};
use super::render::base64;
use super::*;

/// A directory with units in it.
struct Tree(tempfile::TempDir);

impl Tree {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn at(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn unit(&self, name: &str, entries: &[(&str, &[u8])]) -> PathBuf {
        let dir = self.at(&format!("prun-task-{name}"));
        std::fs::create_dir(&dir).unwrap();
        for (name, bytes) in entries {
            std::fs::write(dir.join(name), bytes).unwrap();
        }
        dir
    }

    fn fifo(&self, name: &str) {
        rustix::fs::mknodat(rustix::fs::CWD, self.at(name), rustix::fs::FileType::Fifo, 0o600.into(), 0).unwrap();
    }

    fn report(&self) -> Report {
        report(&[self.0.path().to_owned()], &[], true)
    }

    fn one(&self, name: &str) -> UnitReport {
        let unit = self.at(&format!("prun-task-{name}"));
        self.report().units.into_iter().find(|found| found.unit == unit).unwrap()
    }

    /// Everything there is.
    fn paths(&self) -> Vec<PathBuf> {
        let mut found = vec![self.0.path().to_owned()];
        let mut next = 0;
        while let Some(path) = found.get(next).cloned() {
            next += 1;
            if path.symlink_metadata().unwrap().is_dir() {
                found.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
            }
        }
        found
    }
}

/// Sizes and all times.
fn stamps(paths: &[PathBuf]) -> Vec<String> {
    let stamp = |path: &PathBuf| {
        let meta = path.symlink_metadata().unwrap();
        let times = [meta.atime(), meta.atime_nsec(), meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec()];
        format!("{} {} {times:?}", path.display(), meta.len())
    };
    paths.iter().map(stamp).collect()
}

#[test]
fn every_legal_pair_can_be_seen_and_no_other() {
    let tree = Tree::new();
    std::fs::write(tree.at("full"), "x").unwrap();
    std::fs::write(tree.at("empty"), "").unwrap();
    for name in ["full", "empty", "gone", "full/below"] {
        let entry = format!("{}\n", tree.at(name).display());
        tree.unit(&name.replace('/', "-"), &[("result-file", entry.as_bytes())]);
    }
    tree.unit("absent", &[]);
    tree.unit("blank", &[("result-file", b"\n")]);
    tree.unit("zero", &[("result-file", b"")]);
    tree.unit("escape", &[("result-file", b"a/../../x\n")]);
    tree.unit("dir", &[]);
    std::fs::create_dir(tree.at("prun-task-dir/result-file")).unwrap();
    let seen: HashSet<_> = tree.report().units.iter().map(|unit| unit.result.pair()).collect();
    assert_eq!(seen, HashSet::from(LEGAL_PAIRS));
    let below = tree.one("full-below");
    assert_eq!(below.result.pair(), (PathState::Resolved, ResultState::Unknown), "only not-found proves a target gone");
    assert_eq!(below.errors, [(Stage::ResultTarget, ErrorClass::NotADirectoryError)]);
}

#[test]
fn a_report_writes_nothing_and_changes_no_time() {
    let tree = Tree::new();
    std::fs::write(tree.at("r"), "x").unwrap();
    for name in ["a", "b"] {
        let entry = format!("{}\n", tree.at("r").display());
        tree.unit(name, &[("result-file", entry.as_bytes()), ("tail", b"t"), ("dispatch-pid", b"7\n")]);
    }
    // Access times older than the changes would be brought up to date by a plain read.
    let paths = tree.paths();
    let old = std::fs::FileTimes::new().set_accessed(std::time::UNIX_EPOCH);
    for path in &paths {
        std::fs::File::open(path).unwrap().set_times(old).unwrap();
    }
    let before = stamps(&paths);
    tree.report();
    assert_eq!((stamps(&paths), tree.paths()), (before, paths));
}

/// C67, C71.
#[test]
fn hostile_entries_are_reported_one_by_one_and_block_nobody() {
    let tree = Tree::new();
    let unit = tree.unit("x", &[]);
    tree.fifo("prun-task-x/result-file");
    symlink("/etc/hostname", unit.join("tail")).unwrap();
    std::fs::write(unit.join("dispatch-pid"), vec![b'1'; 70_000]).unwrap();
    symlink(".", unit.join("loop")).unwrap();
    let found = tree.one("x");
    assert_eq!((found.result.pair().0, found.tail_bytes, &found.legacy_pid), (PathState::Unreadable, None, &None));
    assert_eq!(
        found.errors,
        [
            (Stage::ResultEntry, ErrorClass::NotARegularFile),
            (Stage::Tail, ErrorClass::NotARegularFile),
            (Stage::LegacyPid, ErrorClass::EntryTooLarge)
        ]
    );
    assert_eq!(tree.report().exit_code(), 1);
    tree.unit("y", &[("result-file", vec![b'/'; 70_000].as_slice()), ("dispatch-pid", b"\xff")]);
    let errors = tree.one("y").errors;
    assert_eq!(errors, [(Stage::ResultEntry, ErrorClass::EntryTooLarge), (Stage::LegacyPid, ErrorClass::ValueError)]);
}

#[test]
fn a_result_that_is_no_file_is_not_claimed() {
    let tree = Tree::new();
    tree.fifo("fifo");
    std::fs::write(tree.at("real"), "x").unwrap();
    symlink(tree.at("real"), tree.at("link")).unwrap();
    symlink("loop", tree.at("loop")).unwrap();
    for name in ["fifo", "link", "loop"] {
        tree.unit(name, &[("result-file", tree.at(name).as_os_str().as_bytes())]);
        let found = tree.one(name);
        assert_eq!(found.result, ResultReport::Resolved { target: tree.at(name), result: ResultState::Unknown });
        assert_eq!(found.errors, [(Stage::ResultTarget, ErrorClass::NotARegularFile)], "{name}");
    }
    let long = [b"/", vec![b'n'; 300].as_slice()].concat();
    tree.unit("long", &[("result-file", &long)]);
    assert_eq!(tree.one("long").errors, [(Stage::ResultTarget, ErrorClass::OSError)]);
}

#[test]
fn a_relative_path_stays_in_its_unit() {
    let tree = Tree::new();
    let unit = tree.unit("in", &[("result-file", b"./work/../work/r.md\n")]);
    assert_eq!(tree.one("in").result.pair().1, ResultState::Missing);
    std::fs::create_dir(unit.join("work")).unwrap();
    std::fs::write(unit.join("work/r.md"), "x").unwrap();
    let target = unit.join("work/r.md");
    assert_eq!(tree.one("in").result, ResultReport::Resolved { target, result: ResultState::Present });
    std::fs::remove_dir_all(unit.join("work")).unwrap();
    symlink("/etc", unit.join("work")).unwrap();
    assert_eq!(tree.one("in").result, ResultReport::Unresolved(Unresolved::InvalidEntry));
    let none = || None;
    let full = || Some(b"/real/r.md\n".to_vec());
    for escaping in [&b".."[..], b"../x", b"a/../../x", b"a/..", b".", b" ", b"a\0b", b"\n"] {
        assert_eq!(place(escaping, none), None, "{escaping:?}");
    }
    assert_eq!(place(b"../r.md\n", full), Some(Place::Absolute("/real/r.md".into())), "prun recorded what was meant");
    assert_eq!(place(b"", full), None);
    assert_eq!(place(b"/a\nb\n", none), Some(Place::Absolute("/a\nb".into())));
}

/// C74.
#[test]
fn a_unit_counts_once_and_a_root_that_is_not_there_is_told() {
    let tree = Tree::new();
    tree.unit("a", &[("tail", b"1")]);
    let link = Tree::new();
    symlink(tree.0.path(), link.at("to")).unwrap();
    symlink(tree.at("prun-task-a"), tree.at("prun-task-link")).unwrap();
    std::fs::write(tree.at("prun-task-file"), "").unwrap();
    let nowhere = PathBuf::from("/nonexistent/root");
    let roots = [tree.0.path().to_owned(), tree.at("."), link.at("to"), nowhere.clone()];
    let found = report(&roots, &[tree.at("prun-task-a")], false);
    assert_eq!((found.units.len(), &found.roots), (1, &vec![tree.0.path().to_owned(), nowhere.clone()]));
    assert_eq!(found.discovery_errors, [DiscoveryError::Root(nowhere, ErrorClass::FileNotFoundError)]);
    assert_eq!(found.exit_code(), 1);
    assert!(report(&[tree.at("prun-task-file")], &[], false).exit_code() == 1);
}

#[test]
fn a_denial_is_no_outcome() {
    if rustix::process::geteuid().is_root() {
        // Nothing is denied to root; the test below covers the mapping.
        return;
    }
    let tree = Tree::new();
    let unit = tree.unit("a", &[("result-file", b"/x\n"), ("tail", b"t")]);
    std::fs::set_permissions(&unit, std::fs::Permissions::from_mode(0o000)).unwrap();
    let found = tree.one("a");
    std::fs::set_permissions(&unit, std::fs::Permissions::from_mode(0o700)).unwrap();
    assert_eq!((found.result.pair().0, found.tail_bytes), (PathState::Unreadable, None));
    assert_eq!(found.errors[0], (Stage::ResultEntry, ErrorClass::PermissionError));
}

#[test]
fn failures_have_stable_classes() {
    for (error, name) in [
        (Errno::ACCESS, "PermissionError"),
        (Errno::PERM, "PermissionError"),
        (Errno::NOENT, "FileNotFoundError"),
        (Errno::NOTDIR, "NotADirectoryError"),
        (Errno::IO, "OSError"),
        (Errno::LOOP, "OSError"),
        (Errno::NAMETOOLONG, "OSError"),
    ] {
        assert_eq!(ErrorClass::from(error).name(), name);
    }
}

/// C73.
#[test]
fn json_holds_any_bytes_without_loss() {
    let tree = Tree::new();
    let name = OsStr::from_bytes(b"prun-task-\xe9\n\"");
    std::fs::create_dir(tree.0.path().join(name)).unwrap();
    let target = b"/nowhere/\xff\n";
    std::fs::write(tree.0.path().join(name).join("result-file"), target).unwrap();
    let tail = std::fs::File::create(tree.0.path().join(name).join("tail")).unwrap();
    tail.set_len(5_000_000_000).unwrap();
    let args = ReportArgs { summary: true, ..ReportArgs::default() };
    let text = json(&report(&[tree.0.path().to_owned()], &[], false), &args).to_string();
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    let unit = &value["units"][0];
    assert_eq!(unit["unit_base64"], base64(tree.0.path().join(name).as_os_str().as_bytes()));
    assert_eq!(unit["result_target_base64"], base64(b"/nowhere/\xff"));
    assert_eq!(unit["tail_bytes"], 5_000_000_000_u64);
    assert_eq!(value["summary"]["missing_or_empty_result"], 5_000_000_000_u64);
    assert!(unit.get("legacy_pid_unverified").is_none() && value.get("roots_base64").is_none());
}

#[test]
fn base64_is_the_standards() {
    for (bytes, text) in
        [(&b""[..], ""), (b"f", "Zg=="), (b"fo", "Zm8="), (b"foo", "Zm9v"), (b"\xff\xfe\xfd\xfc", "//79/A==")]
    {
        assert_eq!(base64(bytes), text);
    }
}

fn unit(name: &str, result: ResultReport, tail_bytes: Option<u64>) -> UnitReport {
    UnitReport { unit: Path::new("/r").join(name), result, tail_bytes, errors: Vec::new(), legacy_pid: None }
}

fn resolved(result: ResultState) -> ResultReport {
    ResultReport::Resolved { target: "/t".into(), result }
}

#[test]
fn the_two_counters_never_overlap() {
    let absent = || ResultReport::Unresolved(Unresolved::AbsentEntry);
    let found = Report {
        units: vec![
            unit("a", resolved(ResultState::Missing), Some(100)),
            unit("b", resolved(ResultState::Empty), Some(10)),
            unit("c", absent(), Some(200)),
            unit("d", resolved(ResultState::Unknown), Some(1)),
            unit("e", resolved(ResultState::Present), Some(400)),
            unit("f", absent(), Some(0)),
            unit("g", absent(), None),
        ],
        ..Report::default()
    };
    let counted =
        Summary { missing_or_empty_units: 2, missing_or_empty_bytes: 110, unresolved_units: 2, unresolved_bytes: 201 };
    assert_eq!(found.summary(), counted);
}

#[test]
fn sorting_and_the_smallest_tail_shape_the_display_alone() {
    let found = Report {
        units: vec![
            unit("a", resolved(ResultState::Present), Some(5)),
            unit("b", resolved(ResultState::Present), None),
            unit("c", resolved(ResultState::Present), Some(50)),
            unit("d", resolved(ResultState::Present), Some(50)),
        ],
        ..Report::default()
    };
    let args = ReportArgs { sort: Sort::TailBytesDesc, min_tail_bytes: 10, ..ReportArgs::default() };
    let value = json(&found, &args);
    let names: Vec<&str> =
        value["units"].as_array().unwrap().iter().map(|unit| unit["unit"].as_str().unwrap()).collect();
    assert_eq!((names, &value["unit_count"]), (vec!["/r/c", "/r/d", "/r/b"], &serde_json::json!(4)));
    assert!(text(&found, &args).contains("units=4 shown=3"));
    assert!(text(&found, &args).ends_with(&format!("{SAFETY}\n")));
}
