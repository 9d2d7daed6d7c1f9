//! The ledger of a run: one SQLite file, one writer, any number of readers.
//!
//! The writer is whoever holds `supervisor.lock`. A turn of the driver is one transaction, synced before
//! anything of it is carried out. Nothing else in prun knows SQLite.

mod lock;
mod reader;
mod salvage;
mod usage;
mod writer;

pub use lock::{LockHolder, RunLock};
pub use reader::Reader;
pub use salvage::{Salvaged, keep_setup, read_setup, replace, salvage};
pub use usage::AttemptUsage;
pub use writer::Writer;

use std::path::PathBuf;

use prun_core::event::LEDGER_VERSION;

/// Marks the file as a ledger of prun: "PRUN" in ASCII.
const APPLICATION_ID: i32 = 0x5052_554E;

/// A ledger that cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// SQLite or the disk refused.
    #[error("cannot {act} the ledger {}: {source}", path.display())]
    Database {
        /// The act.
        act: &'static str,
        /// The ledger.
        path: PathBuf,
        /// What SQLite said.
        source: rusqlite::Error,
    },
    /// The file is something else.
    #[error("{} is no ledger of prun", path.display())]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// A later version of prun wrote it.
    #[error("{} has ledger version {found}; this prun reads up to {LEDGER_VERSION}", path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// Its version.
        found: u32,
    },
    /// A row that cannot be an event.
    #[error("{} is damaged at event {seq}: {what}", path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// Where.
        seq: u64,
        /// What is wrong.
        what: String,
    },
    /// The lock or its directory cannot be used.
    #[error(transparent)]
    File(#[from] crate::files::FileError),
}

impl LedgerError {
    /// The ledger, where its own bytes are at fault and not the disk, a lock or the version.
    #[must_use]
    pub fn is_damage(&self) -> Option<PathBuf> {
        match self {
            Self::Foreign { path } | Self::Damaged { path, .. } => Some(path.clone()),
            Self::Database { path, source, .. } => match source.sqlite_error_code() {
                Some(rusqlite::ErrorCode::DatabaseCorrupt | rusqlite::ErrorCode::NotADatabase) => Some(path.clone()),
                Some(rusqlite::ErrorCode::CannotOpen) if !path.exists() => Some(path.clone()),
                _ => None,
            },
            Self::Newer { .. } | Self::File(_) => None,
        }
    }

    fn at(act: &'static str, path: &std::path::Path) -> impl FnOnce(rusqlite::Error) -> Self {
        let path = path.to_owned();
        move |source| Self::Database { act, path, source }
    }
}

/// Refuses files of others and of later versions.
fn check_header(connection: &rusqlite::Connection, path: &std::path::Path) -> Result<(), LedgerError> {
    let pragma = |name: &str| connection.pragma_query_value(None, name, |row| row.get::<_, i32>(0));
    let application = pragma("application_id").map_err(LedgerError::at("read", path))?;
    if application != APPLICATION_ID {
        return Err(LedgerError::Foreign { path: path.to_owned() });
    }
    let found = pragma("user_version").map_err(LedgerError::at("read", path))?;
    let found = u32::try_from(found).unwrap_or(u32::MAX);
    if found > LEDGER_VERSION {
        return Err(LedgerError::Newer { path: path.to_owned(), found });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

    use prun_core::event::{Event, EventKind, Mode, RunEvent, RunSetup, UnitEvent, UnitSetup};
    use prun_core::ids::{Attempt, Seq};
    use prun_core::run::RunState;
    use prun_core::time::Timestamp;

    use super::*;
    use crate::files::Durability;
    use crate::home::RunDir;

    fn events() -> Vec<Event> {
        let unit = UnitSetup {
            id: "csv".parse().unwrap(),
            mode: Mode::Write,
            executors: vec!["codex".parse().unwrap()],
            retries: 1,
            owns: Vec::new(),
            panel: None,
            priority: 0,
            budget: prun_core::budget::Budget::default(),
        };
        let setup = RunSetup {
            title: "t".into(),
            plan_digest: "d".into(),
            repo: None,
            subdir: String::new(),
            base: None,
            base_tree: None,
            carried: 0,
            unseen: 0,
            guard: None,
            jobs: 2,
            jobs_are_chosen: false,
            verifies: false,
            budget: prun_core::budget::Budget::default(),
            units: vec![unit.clone()],
        };
        let began = UnitEvent::AttemptBegan {
            executor: "codex".parse().unwrap(),
            dir: "units/csv/1".into(),
            why: "first".into(),
        };
        let kinds =
            [EventKind::run(RunEvent::PlanAccepted(Box::new(setup))), EventKind::unit(&unit.id, Attempt(1), began)];
        let numbered = kinds.into_iter().zip(1..);
        numbered.map(|(kind, seq)| Event { seq: Seq(seq), at: Timestamp(1000 + seq as i64), kind }).collect()
    }

    fn ledger() -> (tempfile::TempDir, RunDir) {
        let dir = tempfile::tempdir().unwrap();
        let run = RunDir::at(dir.path());
        (dir, run)
    }

    #[test]
    fn what_was_written_is_read_back() {
        let (_dir, run) = ledger();
        let lock = RunLock::try_take(&run).unwrap().expect("nobody holds it");
        let mut writer = Writer::create(&run, lock, Durability::Cached).unwrap();
        writer.append(&events()).unwrap();
        let mut reader = Reader::open(&run).unwrap();
        assert_eq!(reader.after(Seq(0)).unwrap(), events());
        assert_eq!(reader.after(Seq(1)).unwrap(), events()[1..]);
        assert_eq!(RunState::replay(&reader.after(Seq(0)).unwrap()).unwrap().seq, Seq(2));
    }

    #[test]
    fn one_run_has_one_writer() {
        let (_dir, run) = ledger();
        let lock = RunLock::try_take(&run).unwrap();
        assert!(lock.is_some());
        assert!(RunLock::try_take(&run).unwrap().is_none());
        drop(lock);
        assert!(RunLock::try_take(&run).unwrap().is_some());
    }

    #[test]
    fn whoever_looks_at_the_lock_is_in_nobodys_way() {
        let (_dir, run) = ledger();
        assert_eq!(RunLock::holder(&run).unwrap(), LockHolder::Nobody);
        let (mut taken, mut missed) = (0_u32, 0_u32);
        let (looks, done) = (AtomicU32::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Bounded, so that a failed assertion below ends the test.
                for _ in (0..1_000_000).take_while(|_| !done.load(Ordering::Relaxed)) {
                    RunLock::holder(&run).unwrap();
                    looks.fetch_add(1, Ordering::Relaxed);
                }
            });
            // Either thread may be slow to begin.
            while taken < 500 || (looks.load(Ordering::Relaxed) < 500 && taken < 1_000_000) {
                let Some(mut lock) = RunLock::try_take(&run).unwrap() else {
                    missed += 1;
                    continue;
                };
                taken += 1;
                let own = crate::process::own_identity();
                lock.sign(&own).unwrap();
                assert_eq!(RunLock::holder(&run).unwrap(), LockHolder::Somebody(Some(own)));
            }
            done.store(true, Ordering::Relaxed);
        });
        // A fork of a neighbouring test holds a copy of the lock for a moment, until its exec.
        assert!(missed * 20 < taken, "{missed} of {taken}");
    }

    #[test]
    fn an_event_is_never_overwritten() {
        let (_dir, run) = ledger();
        let lock = RunLock::try_take(&run).unwrap().unwrap();
        let mut writer = Writer::create(&run, lock, Durability::Cached).unwrap();
        writer.append(&events()).unwrap();
        assert!(writer.append(&events()[1..]).is_err());
        assert_eq!(Reader::open(&run).unwrap().after(Seq(0)).unwrap().len(), 2);
    }

    #[test]
    fn foreign_newer_and_damaged_files_are_refused_by_name() {
        let (_dir, run) = ledger();
        std::fs::write(run.ledger(), "no database at all, but long enough to be taken for one").unwrap();
        assert!(Reader::open(&run).unwrap_err().to_string().contains("ledger.db"));
        std::fs::remove_file(run.ledger()).unwrap();
        let lock = RunLock::try_take(&run).unwrap().unwrap();
        let mut writer = Writer::create(&run, lock, Durability::Cached).unwrap();
        writer.append(&events()).unwrap();
        let other = rusqlite::Connection::open(run.ledger()).unwrap();
        other.execute("DELETE FROM events WHERE seq = 1", []).unwrap();
        let error = Reader::open(&run).unwrap().after(Seq(0)).unwrap_err();
        assert!(matches!(error, LedgerError::Damaged { seq: 1, .. }), "{error}");
        other.pragma_update(None, "user_version", 99).unwrap();
        assert!(matches!(Reader::open(&run), Err(LedgerError::Newer { found: 99, .. })));
    }
}
