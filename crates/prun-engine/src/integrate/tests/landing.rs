//! Landing while others write, and landings that are cut off.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use prun_core::outcome::Exit;

use super::Bench;
use super::bench::{Files, Node, file, put};
use crate::files::Durability;
use crate::integrate::journal::{Journal, OpKind, Phase};
use crate::integrate::land::{StopAfter, land, resume, undo};
use crate::integrate::{Check, LandError, Prepared};

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
    assert_ne!(bench.files(), before);
    bench.edit("edit", file("worked on\n"));
    land(&journal, GO).unwrap();
    assert_eq!(bench.read("edit"), file("worked on\n"));
    bench.edit("edit", file("new\n"));
    undo(&journal, GO).unwrap();
    assert_eq!(bench.files(), before);
    assert_eq!(bench.git_hash(), git);
    assert!(matches!(undo(&journal, GO), Err(LandError::NotLanded)));
    assert!(matches!(land(&journal, GO), Err(LandError::NotLanded)));
}

/// A combination of every kind of operation, checked out, to be landed again and again.
struct Ready {
    bench: Bench,
    prepared: Prepared,
    stage: PathBuf,
    before: Files,
    after: Files,
    git: String,
}

fn ready() -> Ready {
    let bench = busy();
    let (before, git) = (bench.files(), bench.git_hash());
    let prepared = bench.prepare().unwrap();
    let stage = bench.path("stage");
    prepared.stage(&stage).unwrap();
    let journal = bench.journal_from(&prepared, &stage);
    land(&journal, GO).unwrap();
    let after = bench.files();
    bench.restore(&before);
    Ready { bench, prepared, stage, before, after, git }
}

impl Ready {
    fn journal(&self) -> Journal {
        self.bench.journal_from(&self.prepared, &self.stage)
    }

    /// Cuts a landing off after `stop` steps; tells whether it was over by then.
    fn cut_off(&self, stop: usize) -> (Journal, bool) {
        self.bench.restore(&self.before);
        let journal = self.journal();
        let is_over = match land(&journal, StopAfter(Some(stop))) {
            Err(LandError::Interrupted) => false,
            other => other.map(|()| true).unwrap(),
        };
        (Journal::open(journal.dir(), Durability::Cached).unwrap(), is_over)
    }
}

#[test]
fn a_landing_cut_off_anywhere_is_finished() {
    let ready = ready();
    for stop in 0.. {
        let (journal, is_over) = ready.cut_off(stop);
        let began = journal.phase().unwrap() != Phase::Prepared;
        let phase = resume(&journal, GO).unwrap();
        assert_eq!(phase, if began { Phase::Landed } else { Phase::Prepared });
        assert_eq!(&ready.bench.files(), if began { &ready.after } else { &ready.before }, "after {stop} steps");
        if is_over {
            assert!(stop > 12, "only {stop} steps");
            break;
        }
    }
    assert_eq!(ready.bench.git_hash(), ready.git);
}

#[test]
fn a_landing_cut_off_anywhere_is_undone() {
    let ready = ready();
    for stop in 0.. {
        let (journal, is_over) = ready.cut_off(stop);
        let began = journal.phase().unwrap() != Phase::Prepared;
        assert_eq!(undo(&journal, GO).is_ok(), began);
        assert_eq!(ready.bench.files(), ready.before, "after {stop} steps");
        if is_over {
            break;
        }
    }
    assert_eq!(ready.bench.git_hash(), ready.git);
}

#[test]
fn an_undo_cut_off_anywhere_is_finished() {
    let ready = ready();
    for stop in 0.. {
        ready.bench.restore(&ready.before);
        let journal = ready.journal();
        land(&journal, GO).unwrap();
        let is_over = undo(&journal, StopAfter(Some(stop))).is_ok();
        match journal.phase().unwrap() {
            Phase::Undoing => assert_eq!(resume(&journal, GO).unwrap(), Phase::Undone),
            Phase::Landed => undo(&journal, GO).unwrap(),
            phase => assert_eq!(phase, Phase::Undone),
        }
        assert_eq!(ready.bench.files(), ready.before, "after {stop} steps");
        if is_over {
            break;
        }
    }
}

type Disturbance = fn(&Bench);

#[test]
fn an_edit_between_the_dry_run_and_the_landing_survives() {
    let disturbances: &[(&str, Disturbance)] = &[
        ("edit", |bench| bench.edit("edit", file("edited\n"))),
        ("edit", |bench| bench.edit("edit", None)),
        ("edit", |bench| bench.edit("edit", Some(Node::Link("x".into())))),
        ("edit", |bench| bench.edit("edit/now", file("a directory"))),
        ("mode", |bench| bench.edit("mode", Some(Node::Exec(b"m\n".to_vec())))),
        ("gone/b", |bench| bench.edit("gone/b", file("edited\n"))),
        ("gone/b", |bench| bench.edit("gone/b", None)),
        ("fresh/deep/z", |bench| bench.edit("fresh/deep/z", file("mine\n"))),
        ("fresh/deep/z", |bench| bench.edit("fresh", file("a file\n"))),
        ("fresh/deep/z", |bench| bench.edit("fresh", Some(Node::Link("/tmp".into())))),
        ("dir/mine", |bench| bench.edit("dir/mine", file("untracked\n"))),
    ];
    let ready = ready();
    for (expected, disturb) in disturbances {
        ready.bench.restore(&ready.before);
        let journal = ready.journal();
        disturb(&ready.bench);
        let before = ready.bench.files();
        match land(&journal, GO).unwrap_err() {
            LandError::Conflict { path, .. } => assert_eq!(path.to_string(), *expected),
            other => panic!("{other}"),
        }
        assert_eq!(ready.bench.files(), before, "{expected}");
        assert_eq!(journal.phase().unwrap(), Phase::Undone);
    }
    assert_eq!(ready.bench.git_hash(), ready.git);
}

#[test]
fn a_late_write_into_a_file_that_came_out_is_put_back() {
    let ready = ready();
    let steps = (0..).find(|stop| ready.cut_off(*stop).1).unwrap();
    ready.bench.restore(&ready.before);
    let mut open = std::fs::File::options().append(true).open(ready.bench.user().join("edit")).unwrap();
    let journal = ready.journal();
    assert!(matches!(land(&journal, StopAfter(Some(steps - 3))), Err(LandError::Interrupted)));
    assert_eq!(ready.bench.read("edit"), file("new\n"));
    // An editor writes into the file that it still holds open.
    std::io::Write::write_all(&mut open, b"late\n").unwrap();
    let error = land(&journal, GO).unwrap_err();
    assert!(matches!(error, LandError::Conflict { path, .. } if path.to_string() == "edit"));
    let mut expected = ready.before.clone();
    expected.insert("edit".to_owned(), Node::File(b"old\nlate\n".to_vec()));
    assert_eq!(ready.bench.files(), expected);
}

/// The journal that the child process of the next test lands.
const CHILD: &str = "PRUN_TEST_LANDS";

#[test]
fn a_landing_killed_at_any_moment_is_finished_or_undone() {
    if let Some(dir) = std::env::var_os(CHILD) {
        let journal = Journal::open(&PathBuf::from(dir), Durability::Synced).unwrap();
        return land(&journal, GO).unwrap();
    }
    let ready = ready();
    let this = std::thread::current().name().unwrap().to_owned();
    for round in 0..30_u32 {
        ready.bench.restore(&ready.before);
        let journal = ready.journal();
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", &this])
            .env(CHILD, journal.dir())
            .stdout(std::process::Stdio::null())
            .spawn()
            .unwrap();
        // The first rounds wait for the child to begin; then the kill comes later and later.
        let deadline = Instant::now() + Duration::from_secs(60);
        while journal.phase().unwrap() == Phase::Prepared && Instant::now() < deadline {}
        let until = Instant::now() + Duration::from_micros(u64::from(round) * 30);
        while Instant::now() < until {}
        child.kill().unwrap();
        child.wait().unwrap();
        if round % 2 == 0 {
            assert_eq!(resume(&journal, GO).unwrap(), Phase::Landed);
            assert_eq!(ready.bench.files(), ready.after, "round {round}");
        } else {
            undo(&journal, GO).unwrap();
            assert_eq!(ready.bench.files(), ready.before, "round {round}");
        }
    }
    assert_eq!(ready.bench.git_hash(), ready.git);
}

#[test]
fn a_file_saved_while_landing_is_never_lost() {
    let ready = ready();
    let (mut landed, mut refused) = (0, 0);
    for round in 0..60_u32 {
        ready.bench.restore(&ready.before);
        let journal = ready.journal();
        let (path, temp) = (ready.bench.user().join("edit"), ready.bench.path("saved"));
        let go = std::sync::Barrier::new(2);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::fs::write(&temp, "saved\n").unwrap();
                go.wait();
                for _ in 0..round * 400 {
                    std::hint::spin_loop();
                }
                std::fs::rename(&temp, &path).unwrap();
            });
            go.wait();
            match land(&journal, GO) {
                Ok(()) => landed += 1,
                Err(LandError::Conflict { .. } | LandError::LeftBehind { .. }) => refused += 1,
                Err(other) => panic!("{other}"),
            }
        });
        assert_eq!(ready.bench.read("edit"), file("saved\n"), "round {round}: {landed} landed, {refused} refused");
    }
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

#[test]
fn a_failed_check_lands_nothing_and_a_good_one_lands_what_was_shown() {
    let bench = busy();
    let before = bench.files();
    let check = |script: &str| Check {
        setup: Some(["sh", "-c", "echo prepared > setup"].map(str::to_owned).to_vec()),
        setup_limit: std::time::Duration::from_secs(60),
        argv: ["sh", "-c", script].map(str::to_owned).to_vec(),
        limit: std::time::Duration::from_secs(60),
        on_base: None,
        token: crate::state_dir::random_hex::<16>().unwrap(),
        guard: None,
    };
    let mut prepared = bench.prepare().unwrap();
    let tree = prepared.dry_run.tree.clone().unwrap();
    assert!(prepared.insist_on("000000").is_err());
    prepared.insist_on(&tree).unwrap();
    let stage = bench.path("stage");
    prepared.stage(&stage).unwrap();
    let journal = prepared.journal(&stage, &bench.path("landing"), "name", Durability::Cached).unwrap();
    let log = bench.path("log");
    let failed = prepared.verify(&check("test -f gone/a"), &stage, &log).unwrap();
    assert_eq!(failed.combination.exit, Exit::Code { code: 1 });
    assert_eq!(bench.files(), before);
    let script = "test -f setup && grep uncommitted mine && git rev-parse HEAD && echo spoilt > edit";
    assert!(prepared.verify(&check(script), &stage, &log).unwrap().combination.ok);
    land(&journal, GO).unwrap();
    assert_eq!((bench.read("edit"), bench.read("setup")), (file("new\n"), None));
}

/// Somebody goes on working while it lands: whatever they saved last is where they saved it, or, where they wrote
/// into a file that came out meanwhile, in its slot, from which it is put back.
#[test]
fn a_process_that_edits_while_landing_loses_nothing() {
    let ready = ready();
    let (mut landed, mut refused) = (0, 0);
    for round in 0..40_u32 {
        ready.bench.restore(&ready.before);
        let journal = ready.journal();
        let (user, temp) = (ready.bench.user().to_owned(), ready.bench.path("saved"));
        let stop = std::sync::atomic::AtomicBool::new(false);
        let go = std::sync::Barrier::new(2);
        let (outcome, saved) = std::thread::scope(|scope| {
            let editor = scope.spawn(|| {
                go.wait();
                let mut saved = Files::new();
                for turn in 0_u32.. {
                    if stop.load(std::sync::atomic::Ordering::SeqCst) {
                        break;
                    }
                    let text = format!("{round} {turn}\n");
                    let mut save = |path: &str, done: std::io::Result<()>| {
                        if done.is_ok() {
                            saved.insert(path.to_owned(), Node::File(text.clone().into_bytes()));
                        }
                    };
                    match (turn + round) % 4 {
                        // As editors save: a new file takes the place of the old one.
                        0 if round % 2 == 0 && turn == round / 2 => {
                            std::fs::write(&temp, &text).unwrap();
                            save("edit", std::fs::rename(&temp, user.join("edit")));
                        }
                        1 => save("gone/mine", std::fs::write(user.join("gone/mine"), &text)),
                        0 | 2 => save("mine", std::fs::write(user.join("mine"), &text)),
                        _ => save("fresh-too", std::fs::write(user.join("fresh-too"), &text)),
                    }
                }
                saved
            });
            go.wait();
            let outcome = land(&journal, GO);
            stop.store(true, std::sync::atomic::Ordering::SeqCst);
            (outcome, editor.join().unwrap())
        });
        match outcome {
            Ok(()) => landed += 1,
            Err(LandError::Conflict { .. } | LandError::LeftBehind { .. }) => refused += 1,
            Err(other) => panic!("{other}"),
        }
        for (path, node) in &saved {
            assert_eq!(ready.bench.read(path).as_ref(), Some(node), "round {round}: {path}");
        }
        // All of it landed, or none of it.
        let is_landed = journal.phase().unwrap() == Phase::Landed;
        let now = ready.bench.files();
        let expected = if is_landed { &ready.after } else { &ready.before };
        for (path, node) in expected.iter().filter(|(path, _)| !saved.contains_key(*path) && !path.ends_with('/')) {
            assert_eq!(now.get(path), Some(node), "round {round}, landed {is_landed}: {path}");
        }
    }
    println!("{landed} landed, {refused} refused");
}
