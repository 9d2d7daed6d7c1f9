//! Landing while others write, and landings that are cut off.

use super::Bench;
use super::bench::{Node, file, put};
use crate::files::Durability;
use crate::integrate::LandError;
use crate::integrate::journal::{Journal, OpKind, Phase};
use crate::integrate::land::{StopAfter, land, resume, undo};

const GO: StopAfter = StopAfter(None);

/// Every kind of operation at once.
fn busy() -> Bench {
    let mut bench = Bench::new(&[
        ("edit", file("old\n")),
        ("mode", file("m\n")),
        ("gone/a", file("a\n")),
        ("gone/b", file("b\n")),
        ("turn", file("t\n")),
        ("link", Some(Node::Link("edit".into()))),
        ("dir/x", file("x\n")),
        ("mine", file("m\n")),
    ]);
    bench.unit(
        "u",
        &[
            ("edit", file("new\n")),
            ("mode", Some(Node::Exec(b"m\n".to_vec()))),
            ("gone/a", None),
            ("gone/b", None),
            ("turn", None),
            ("turn/inner/y", file("y\n")),
            ("link", file("a file now\n")),
            ("dir/x", None),
            ("dir", Some(Node::Link("gone".into()))),
            ("fresh/deep/z", file("z\n")),
        ],
    );
    bench.edit("mine", file("uncommitted\n"));
    bench.edit("untracked", file("u\n"));
    bench
}

#[test]
fn a_landing_can_be_taken_back_to_the_byte() {
    let bench = busy();
    let (before, git) = (bench.files(), bench.git_hash());
    let journal = bench.land().unwrap();
    let after = bench.files();
    assert_ne!(before, after);
    undo(&journal, GO).unwrap();
    assert_eq!(bench.files(), before);
    assert_eq!(bench.git_hash(), git);
    assert!(matches!(undo(&journal, GO), Err(LandError::NotLanded)));
}

#[test]
fn a_landing_cut_off_anywhere_is_finished_or_undone() {
    for finish in [true, false] {
        for stop in 0.. {
            let bench = busy();
            let (before, git) = (bench.files(), bench.git_hash());
            let journal = bench.journal();
            let dir = journal.dir().to_owned();
            let is_over = match land(&journal, StopAfter(Some(stop))) {
                Err(LandError::Interrupted) => false,
                other => other.map(|()| true).unwrap(),
            };
            let journal = Journal::open(&dir, Durability::Cached).unwrap();
            let began = journal.phase().unwrap() != Phase::Prepared;
            if finish {
                let phase = resume(&journal, GO).unwrap();
                assert_eq!(phase, if began { Phase::Landed } else { Phase::Prepared });
                assert_eq!(bench.read("edit"), file(if began { "new\n" } else { "old\n" }));
                assert_eq!(bench.read("fresh/deep/z").is_some(), began);
            } else if began {
                undo(&journal, GO).unwrap();
                assert_eq!(bench.files(), before, "stopped after {stop} steps");
            } else {
                assert_eq!(bench.files(), before);
            }
            assert_eq!(bench.git_hash(), git);
            if is_over {
                assert!(stop > 12, "only {stop} steps");
                break;
            }
        }
    }
}

#[test]
fn an_undo_cut_off_anywhere_is_finished() {
    for stop in 0.. {
        let bench = busy();
        let before = bench.files();
        let journal = bench.land().unwrap();
        let is_over = undo(&journal, StopAfter(Some(stop))).is_ok();
        if journal.phase().unwrap() == Phase::Undoing {
            assert_eq!(resume(&journal, GO).unwrap(), Phase::Undone);
        }
        if journal.phase().unwrap() == Phase::Undone {
            assert_eq!(bench.files(), before, "stopped after {stop} steps");
        }
        if is_over {
            break;
        }
    }
}

/// Lands after `disturb` changed the user's tree behind the journal's back; tells the path of the conflict.
fn disturbed(disturb: impl Fn(&Bench)) -> String {
    let bench = busy();
    let journal = bench.journal();
    disturb(&bench);
    let (before, git) = (bench.files(), bench.git_hash());
    let error = land(&journal, GO).unwrap_err();
    assert_eq!(bench.files(), before);
    assert_eq!(bench.git_hash(), git);
    assert_eq!(journal.phase().unwrap(), Phase::Undone);
    match error {
        LandError::Conflict { path, .. } => path.to_string(),
        other => panic!("{other}"),
    }
}

#[test]
fn an_edit_between_the_dry_run_and_the_landing_survives() {
    assert_eq!(disturbed(|bench| bench.edit("edit", file("edited\n"))), "edit");
    assert_eq!(disturbed(|bench| bench.edit("edit", None)), "edit");
    assert_eq!(disturbed(|bench| bench.edit("edit", Some(Node::Link("x".into())))), "edit");
    assert_eq!(disturbed(|bench| bench.edit("edit/now", file("a directory"))), "edit");
    assert_eq!(disturbed(|bench| bench.edit("mode", Some(Node::Exec(b"m\n".to_vec())))), "mode");
    assert_eq!(disturbed(|bench| bench.edit("gone/b", file("edited\n"))), "gone/b");
    assert_eq!(disturbed(|bench| bench.edit("gone/b", None)), "gone/b");
    assert_eq!(disturbed(|bench| bench.edit("fresh/deep/z", file("mine\n"))), "fresh/deep/z");
    assert_eq!(disturbed(|bench| bench.edit("fresh", file("a file\n"))), "fresh/deep/z");
    assert_eq!(disturbed(|bench| bench.edit("fresh", Some(Node::Link("/tmp".into())))), "fresh/deep/z");
    assert_eq!(disturbed(|bench| bench.edit("dir/mine", file("untracked\n"))), "dir/mine");
}

#[test]
fn a_late_write_into_a_file_that_came_out_is_put_back() {
    let bench = busy();
    let journal = bench.journal();
    let mut open = std::fs::File::options().append(true).open(bench.user().join("edit")).unwrap();
    // Every step but the last ones, then the editor writes into the file that it still holds.
    let steps = (0..).find(|stop| {
        let bench = busy();
        land(&bench.journal(), StopAfter(Some(*stop))).is_ok()
    });
    assert!(matches!(land(&journal, StopAfter(steps.map(|steps| steps - 3))), Err(LandError::Interrupted)));
    assert_eq!(bench.read("edit"), file("new\n"));
    std::io::Write::write_all(&mut open, b"late\n").unwrap();
    let error = land(&journal, GO).unwrap_err();
    assert!(matches!(error, LandError::Conflict { path, .. } if path.to_string() == "edit"));
    assert_eq!(bench.read("edit"), file("old\nlate\n"));
    assert_eq!(bench.read("turn"), file("t\n"));
}

#[test]
fn undo_refuses_by_name_what_changed_since() {
    let bench = busy();
    let journal = bench.land().unwrap();
    bench.edit("edit", file("worked on\n"));
    bench.edit("gone/a", file("again\n"));
    bench.edit("turn/inner/more", file("mine\n"));
    let landed = bench.files();
    let LandError::ChangedSince { mut paths } = undo(&journal, GO).unwrap_err() else { panic!() };
    paths.sort();
    assert_eq!(paths.iter().map(ToString::to_string).collect::<Vec<_>>(), ["edit", "gone/a", "turn"]);
    assert_eq!(bench.files(), landed);
}

#[test]
fn slots_in_the_work_tree_are_gone_at_the_end_and_undo_still_works() {
    let other = std::path::Path::new("/dev/shm");
    let device = |path: &std::path::Path| std::os::unix::fs::MetadataExt::dev(&std::fs::metadata(path).unwrap());
    let (shm, here) =
        (tempfile::tempdir_in(other), tempfile::tempdir_in(std::env::current_exe().unwrap().parent().unwrap()));
    let (Ok(shm), Ok(here)) = (shm, here) else { return };
    if device(shm.path()) == device(here.path()) {
        return;
    }
    let bench = busy();
    let elsewhere = if device(bench.user()) == device(shm.path()) { here.path() } else { shm.path() };
    let before = bench.files();
    let prepared = bench.prepare().unwrap();
    prepared.stage(&bench.path("stage")).unwrap();
    let journal = prepared.journal(&bench.path("stage"), &elsewhere.join("1"), "k3f9", Durability::Synced).unwrap();
    assert_eq!(bench.files(), before);
    assert!(matches!(land(&journal, StopAfter(Some(4))), Err(LandError::Interrupted)));
    assert!(bench.user().join(".prun-landing-k3f9").exists());
    land(&journal, GO).unwrap();
    assert!(!bench.user().join(".prun-landing-k3f9").exists());
    assert_eq!(bench.read("edit"), file("new\n"));
    undo(&journal, GO).unwrap();
    assert_eq!(bench.files(), before);
}

#[test]
fn what_a_check_writes_into_the_clone_does_not_land() {
    let bench = busy();
    let prepared = bench.prepare().unwrap();
    let stage = bench.path("stage");
    prepared.stage(&stage).unwrap();
    assert_eq!(bench.git.command(["status", "--porcelain"]).dir(&stage).run().unwrap().text(), "");
    assert_eq!(bench.git.command(["remote"]).dir(&stage).run().unwrap().text(), "");
    let journal = prepared.journal(&stage, &bench.path("landing"), "x", Durability::Cached).unwrap();
    put(&stage, "edit", file("formatted\n").as_ref());
    land(&journal, GO).unwrap();
    assert_eq!(bench.read("edit"), file("new\n"));
    assert!(journal.plan().ops.iter().filter(|op| op.kind == OpKind::Delete).count() >= 4);
}
