//! A ledger that cannot be written or read: nothing new starts, what runs settles in its own directory, the error is
//! clear, and no result is lost.

use std::io::{Seek, SeekFrom, Write};
use std::os::unix::fs::FileExt;
use std::path::PathBuf;

use insta::assert_snapshot;
use prun_testkit::env::{Printed, TestEnv, read_if_there};
use prun_testkit::locks::hold_byte;

use crate::support::{json, open_gate, place, run, start, tree_shown, unit, unit_of, wait_for_end, wait_for_state};

fn ledger(env: &TestEnv) -> PathBuf {
    env.home().join("runs").join(&env.run_ids()[0]).join("ledger.db")
}

/// Two units; the first succeeds in its second attempt.
fn ended() -> (TestEnv, String) {
    let env = place(
        "",
        &[unit("a", "[ $PRUN_ATTEMPT = 2 ] || exit 3; echo a > a.txt; result"), unit("b", "echo b > b.txt; result")],
    );
    let id = run(&env);
    env.assert_all_gone();
    (env, id)
}

/// Nothing of a ledger's tables can be read any more.
fn spoil(env: &TestEnv) {
    let file = std::fs::File::options().write(true).open(ledger(env)).unwrap();
    let pages = file.metadata().unwrap().len() / 4096;
    for page in 1..pages {
        file.write_all_at(&[0xAA; 4096], page * 4096).unwrap();
    }
}

fn is_refused(said: &Printed, why: &str) {
    assert_eq!(said.code, 7, "{said}");
    assert!(said.stderr.contains(why), "{said}");
}

#[test]
fn a_damaged_ledger_is_made_again_from_the_attempts_and_nothing_is_lost() {
    let (env, id) = ended();
    let tree = tree_shown(&env.prun("integrate --dry-run"));
    spoil(&env);
    assert_snapshot!(env.prun(&format!("status {id}")), @r"
    exit 7
    --- stderr
    error: cannot read the ledger [home]/runs/[run-id]/ledger.db: database disk image is malformed
    hint: every attempt's own directory still holds its facts and results
    hint: `prun ledger rebuild [run-id]` makes it again from what the attempts left
    ");
    let other = env.prun("runs");
    assert!(other.code == 0 && other.stderr.contains("malformed"), "{other}");
    let rebuilt = env.prun(&format!("ledger rebuild {id}"));
    assert_snapshot!(rebuilt, @r"
    exit 0
    --- stdout
    rebuilt: 0 events were read back, 15 follow from the directories of 3 attempts
    the old ledger is kept in [home]/runs/[run-id]/ledger.damaged-1
    what only it knew after those events is gone: accept, exclude and holds have to be said again
    next: prun status [run], then prun resume [run]
    --- stderr
    the old ledger was damaged: Tree 2 page 2: btreeInitPage() returns error code 11
    ");
    assert_eq!(json(&env, &format!("status {id} --json"))["state"], "supervisor-lost");
    assert_eq!(env.prun(&format!("resume {id}")).code, 0);
    assert_eq!(
        (unit_of(&env, &id, "a")["attempt"].as_u64(), unit_of(&env, &id, "b")["attempt"].as_u64()),
        (Some(2), Some(1))
    );
    assert!(env.prun("result a").stdout.contains("Body of a."));
    assert_eq!(tree_shown(&env.prun("integrate --dry-run")), tree);
    assert_snapshot!(env.prun(&format!("ledger rebuild {id}")), @r"
    exit 0
    --- stdout
    the ledger of run [run] is sound; nothing was changed
    ");
}

/// **C103** Whatever is cut off, filled with zeros or missing: what is whole is read back, and the rest is told.
#[test]
fn a_torn_ledger_keeps_what_is_whole() {
    let (env, id) = ended();
    let whole = std::fs::read(ledger(&env)).unwrap();
    for (number, torn) in [&whole[..whole.len() - 4096], &whole[..5000], &[0; 8192][..], &[][..]].iter().enumerate() {
        std::fs::write(ledger(&env), torn).unwrap();
        let rebuilt = env.prun(&format!("ledger rebuild {id}"));
        assert!(rebuilt.code == 0 && rebuilt.stdout.starts_with("rebuilt: "), "{rebuilt}");
        let resumed = env.prun(&format!("resume {id}"));
        assert_eq!(resumed.code, 0, "{resumed}");
        assert_eq!(json(&env, &format!("status {id} --json"))["counts"]["succeeded"], 2);
        let aside = ledger(&env).with_file_name(format!("ledger.damaged-{}", number + 1)).join("ledger.db");
        assert_eq!(std::fs::read(aside).unwrap(), *torn, "the damaged one is kept");
    }
    std::fs::remove_file(ledger(&env)).unwrap();
    is_refused(&env.prun(&format!("status {id}")), "prun ledger rebuild");
    assert_eq!(env.prun(&format!("ledger rebuild {id}")).code, 0);
}

#[test]
fn a_landing_is_known_again_after_its_ledger_was_lost() {
    let (env, id) = ended();
    let tree = tree_shown(&env.prun("integrate --dry-run"));
    assert_eq!(env.prun(&format!("integrate --tree {tree}")).code, 0);
    let landed = env.tree("repo");
    spoil(&env);
    assert_eq!(env.prun(&format!("ledger rebuild {id}")).code, 0);
    let resumed = env.prun(&format!("resume {id}"));
    assert_eq!(resumed.code, 3, "{resumed}");
    let told = env.prun(&format!("status {id}"));
    assert!(told.stdout.contains("LANDING"), "{told}");
    let again = env.prun(&format!("integrate {id} --continue"));
    assert_eq!(again.code, 0, "{again}");
    assert_eq!(landed.changes(&env.tree("repo")), [""; 0]);
    let undone = env.prun(&format!("undo {id}"));
    assert_eq!(undone.code, 0, "{undone}");
    assert_eq!(env.read("a.txt"), "");
}

#[test]
fn a_ledger_of_a_later_version_is_left_to_that_version() {
    let (env, id) = ended();
    let mut file = std::fs::File::options().write(true).open(ledger(&env)).unwrap();
    // The user version stands at offset 60 of SQLite's header, big-endian.
    file.seek(SeekFrom::Start(60)).unwrap();
    file.write_all(&99_u32.to_be_bytes()).unwrap();
    drop(file);
    let before = std::fs::read(ledger(&env)).unwrap();
    for line in ["status ID", "resume ID", "retry ID/a", "ledger rebuild ID", "integrate ID --dry-run"] {
        is_refused(&env.prun(&line.replace("ID", &id)), "has ledger version 99; this prun reads up to");
    }
    assert_eq!(std::fs::read(ledger(&env)).unwrap(), before);
}

#[test]
fn a_ledger_that_is_driven_is_not_made_again() {
    let env = place("", &[unit("a", "await go; echo a > a.txt; result")]);
    let id = start(&env);
    let refused = env.prun(&format!("ledger rebuild {id}"));
    assert!(refused.code == 2 && refused.stderr.contains("is under way"), "{refused}");
    open_gate(&env, "go");
    assert_eq!(wait_for_end(&env, &id).code, 0);
}

/// Somebody holds SQLite's write lock for longer than prun waits.
#[test]
fn a_locked_ledger_ends_the_supervisor_and_loses_nothing() {
    let env = place("jobs = 1", &[unit("a", "await go; echo a > a.txt; result"), unit("b", "echo b > b.txt; result")]);
    let id = start(&env);
    wait_for_state(&env, &id, "a", "running");
    // The byte of the shared memory that stands for the right to write.
    let shared = ledger(&env).with_file_name("ledger.db-shm");
    let held = hold_byte(&shared, 120).unwrap();
    let viewer = env.start(&["attach", &id]);
    open_gate(&env, "go");
    env.assert_all_gone_but(&["attach"]);
    let seen = env.finish(viewer);
    is_refused(&seen, "cannot write the ledger");
    assert!(seen.stderr.contains(&format!("prun resume {id}")), "{seen}");
    let told = unit_of(&env, &id, "a");
    assert_eq!(told["why"], "it has settled meanwhile; a resume records it");
    assert_eq!(unit_of(&env, &id, "b")["state"], "queued", "nothing new was started");
    drop(held);
    assert_eq!(env.prun(&format!("resume {id}")).code, 0);
    assert_eq!(
        (unit_of(&env, &id, "a")["attempt"].as_u64(), unit_of(&env, &id, "b")["attempt"].as_u64()),
        (Some(1), Some(1))
    );
}

/// A home on a small disk of its own, in a mount space of its own; `None` where that may not be made.
fn on_a_small_disk(env: &TestEnv, script: &str) -> Option<Printed> {
    // More than prun asks for before it starts anything.
    let mount = "mount -t tmpfs -o size=215m none \"$PRUN_HOME\"";
    let mut command = env.program("unshare");
    command.args(["-rm", "sh", "-c", &format!("{mount} || exit 99\n{script}")]);
    let child = command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn().ok()?;
    let printed = env.finish(child);
    let works = printed.code != 99 && !printed.stderr.contains("unshare failed");
    let required = std::env::var_os("PRUN_TEST_REQUIRE_ALL").is_some_and(|value| value == "1");
    assert!(works || !required, "{printed}");
    works.then_some(printed)
}

#[test]
fn a_full_disk_ends_the_supervisor_and_a_resume_goes_on_once_there_is_room() {
    let env = place(
        "jobs = 1",
        &[
            unit("a", "echo . > \"$PRUN_TEST_MARK/up\"; await go; echo a > a.txt; result"),
            unit("b", "echo b > b.txt; result"),
        ],
    );
    let script = format!(
        r#"
wait_for() {{ n=0; until eval "$1"; do sleep 0.05; n=$((n+1)); [ $n -lt 600 ] || {{ echo "in vain: $1"; exit 98; }}; done; }}
prun={prun}
id=$($prun run -d 2>/dev/null) || exit 97
wait_for '[ -e "$PRUN_TEST_MARK/up" ]'
cat /dev/zero > "$PRUN_HOME/fill" 2>/dev/null
touch "$PRUN_TEST_MARK/go"
wait_for '$prun status $id --json | grep -q supervisor-lost'
$prun attach $id 2>&1 >/dev/null | grep -c "No space\|full"
$prun resume $id 2>"$PRUN_TEST_MARK/told"; echo "without room $?"
rm "$PRUN_HOME/fill"
$prun resume $id 2>/dev/null; echo "resume $?"
"#,
        prun = crate::support::PRUN
    );
    let Some(said) = on_a_small_disk(&env, &script) else { return };
    assert_eq!(said.code, 0, "{said}");
    let told = read_if_there(&env.at("told"));
    assert!(said.stdout.contains("without room 7\n") && told.contains("is full"), "{said}\n{told}");
    assert!(said.stdout.contains("2/2 done"), "{said}");
    assert!(said.stdout.ends_with("resume 0\n"), "{said}");
    env.assert_all_gone();
}

#[test]
fn a_home_that_can_only_be_read_can_be_looked_at() {
    let (env, id) = ended();
    let home = env.home().to_string_lossy().into_owned();
    let mut command = env.program("bwrap");
    command.args(["--dev-bind", "/", "/", "--ro-bind", &home, &home, crate::support::PRUN, "status", &id]);
    let Ok(child) = command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()).spawn() else {
        let required = std::env::var_os("PRUN_TEST_REQUIRE_ALL").is_some_and(|value| value == "1");
        return assert!(!required, "bubblewrap is missing");
    };
    let said = env.finish(child);
    assert!(said.code == 0 && said.stdout.contains("2/2 done"), "{said}");
}
