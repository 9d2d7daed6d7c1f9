//! A disk that fills up while units land: on a small file system of its own, which only a mount namespace allows.

use std::path::Path;
use std::process::Command;

use super::Bench;
use super::bench::{Node, file};
use crate::files::Durability;
use crate::integrate::journal::{Journal, Phase};
use crate::integrate::land::{StopAfter, land, resume, undo};
use crate::integrate::{IntegrateError, LandError};

const GO: StopAfter = StopAfter(None);

/// Set in the child that has the small file system as its temporary directory.
const CHILD: &str = "PRUN_TEST_SMALL_DISK";

/// What takes the room: bytes, or names.
#[derive(Clone, Copy, Debug)]
enum Room {
    Bytes,
    Names,
}

/// Fills the disk at `dir` up to `left` pages or names.
fn fill(dir: &Path, room: Room, left: usize) {
    std::fs::create_dir(dir).unwrap();
    match room {
        Room::Bytes => {
            let page = [1; 4096];
            let mut count = 0_usize;
            while std::fs::write(dir.join(format!("{count}")), page).is_ok() {
                count += 1;
            }
            // The last one may be there with nothing in it.
            for at in count.saturating_sub(left)..=count {
                std::fs::remove_file(dir.join(format!("{at}"))).ok();
            }
        }
        Room::Names => {
            let mut count = 0_usize;
            while std::fs::write(dir.join(format!("{count}")), "").is_ok() {
                count += 1;
            }
            for at in count.saturating_sub(left)..count {
                std::fs::remove_file(dir.join(format!("{at}"))).unwrap();
            }
        }
    }
}

fn busy() -> Bench {
    let mut files = vec![("turn".to_owned(), file("t\n")), ("mine".to_owned(), file("m\n"))];
    let mut edits = vec![("turn".to_owned(), None), ("turn/inner/y".to_owned(), file("y\n"))];
    for n in 0..6 {
        files.push((format!("edit{n}"), file("old\n")));
        files.push((format!("gone{n}/deep/f"), file("g\n")));
        edits.push((format!("edit{n}"), Some(Node::Exec(b"new\n".to_vec()))));
        edits.push((format!("gone{n}/deep/f"), None));
        edits.push((format!("fresh{n}/very/deep/inside/z"), file("z\n")));
    }
    let named = |list: &[(String, Option<Node>)]| list.to_vec();
    let (files, edits) = (named(&files), named(&edits));
    fn borrowed(list: &[(String, Option<Node>)]) -> Vec<(&str, Option<Node>)> {
        list.iter().map(|(name, node)| (name.as_str(), node.clone())).collect()
    }
    let mut bench = Bench::new(&borrowed(&files));
    bench.unit("u", &borrowed(&edits));
    bench.edit("mine", file("uncommitted\n"));
    bench
}

fn on_a_small_disk() {
    let bench = busy();
    let before = bench.files();
    let prepared = bench.prepare().unwrap();
    let stage = bench.path("stage");
    prepared.stage(&stage).unwrap();
    let journal = bench.journal_from(&prepared, &stage);
    land(&journal, GO).unwrap();
    let after = bench.files();
    undo(&journal, GO).unwrap();
    let (mut landed, mut refused, mut stuck) = (0, 0, 0);
    for room in [Room::Bytes, Room::Names] {
        for left in 0..30 {
            let filler = bench.path("filler");
            // No room for the journal: nothing is begun.
            fill(&filler, room, left);
            let dir = bench.path(&format!("full-{room:?}-{left}"));
            match prepared.journal(&stage, &dir, "test", Durability::Cached) {
                Ok(_) => {}
                Err(IntegrateError::File(_)) => assert!(!dir.exists()),
                Err(other) => panic!("{other}"),
            }
            assert_eq!(bench.files(), before);
            std::fs::remove_dir_all(&filler).unwrap();
            std::fs::remove_dir_all(&dir).ok();
            // No room once it is written.
            let journal = bench.journal_from(&prepared, &stage);
            fill(&filler, room, left);
            let outcome = land(&journal, GO);
            let found = bench.files();
            std::fs::remove_dir_all(&filler).unwrap();
            let journal = Journal::open(journal.dir(), Durability::Cached).unwrap();
            match outcome {
                Ok(()) => landed += 1,
                Err(LandError::File(_)) if found == before => refused += 1,
                Err(LandError::File(_)) => stuck += 1,
                Err(other) => panic!("{room:?} {left}: {other}"),
            }
            if left % 2 == 0 {
                let phase = resume(&journal, GO).unwrap();
                let expected = if phase == Phase::Landed { &after } else { &before };
                assert_eq!(&bench.files(), expected, "{room:?} {left}: {phase:?}");
                undo(&journal, GO).ok();
            } else {
                match undo(&journal, GO) {
                    Ok(()) | Err(LandError::NotLanded) => {}
                    Err(other) => panic!("{room:?} {left}: {other}"),
                }
            }
            assert_eq!(bench.files(), before, "{room:?} {left}");
            std::fs::remove_dir_all(journal.dir()).unwrap();
        }
    }
    println!("{landed} landed, {refused} were put back at once, {stuck} after there was room again");
    assert!(landed > 0 && refused > 0);
}

#[test]
fn a_disk_that_fills_up_leaves_nothing_half_done() {
    if std::env::var_os(CHILD).is_some() {
        return on_a_small_disk();
    }
    let dir = tempfile::tempdir().unwrap();
    let this = std::env::current_exe().unwrap();
    let test = std::thread::current().name().unwrap().to_owned();
    let script =
        "mount -t tmpfs -o size=6m,nr_inodes=1200 none \"$TMPDIR\" || exit 77; exec \"$0\" --nocapture --exact \"$1\"";
    let output = Command::new("unshare")
        .args(["--mount", "--map-root-user", "sh", "-c", script])
        .arg(this)
        .arg(test)
        .env("TMPDIR", dir.path())
        .env(CHILD, "1")
        .output();
    match output {
        Ok(output) if output.status.success() => print!("{}", String::from_utf8_lossy(&output.stdout)),
        Ok(output) if output.status.code() == Some(77) => {
            let is_required = std::env::var_os("PRUN_TEST_REQUIRE_ALL").is_some_and(|value| value == "1");
            assert!(!is_required, "cannot mount: {output:?}");
            eprintln!("LEFT OUT: a full disk: no file system can be mounted here");
        }
        Ok(output) => panic!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr)),
        Err(error) => panic!("{error}"),
    }
}
