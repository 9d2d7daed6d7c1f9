//! The writing end of a ledger.

use std::path::PathBuf;

use prun_core::event::{Event, EventKind, LEDGER_VERSION};
use rusqlite::{Connection, OpenFlags, params};

use super::lock::RunLock;
use super::{APPLICATION_ID, LedgerError, check_header};
use crate::files::Durability;
use crate::home::RunDir;

/// The one writer of a ledger; it keeps the run's lock.
#[derive(Debug)]
pub struct Writer {
    connection: Connection,
    path: PathBuf,
    lock: RunLock,
}

/// `STRICT` keeps a number a number; `seq` is the row id, so that no event is ever written twice.
const SCHEMA: &str = "
    CREATE TABLE IF NOT EXISTS events (
        seq     INTEGER PRIMARY KEY,
        at      INTEGER NOT NULL,   -- milliseconds since the Unix epoch
        unit    TEXT,               -- null: an event of the run
        attempt INTEGER,
        kind    TEXT NOT NULL,      -- the event's stable name, also in data
        data    TEXT NOT NULL       -- JSON
    ) STRICT;
    CREATE INDEX IF NOT EXISTS events_by_unit ON events (unit, seq) WHERE unit IS NOT NULL;
";

impl Writer {
    /// Makes the ledger of a new run.
    ///
    /// # Errors
    /// It cannot be made.
    pub fn create(run: &RunDir, lock: RunLock, durability: Durability) -> Result<Self, LedgerError> {
        let path = run.ledger();
        let connection = Connection::open(&path).map_err(LedgerError::at("create", &path))?;
        let set = || -> rusqlite::Result<()> {
            configure(&connection, durability)?;
            connection.pragma_update(None, "application_id", APPLICATION_ID)?;
            connection.pragma_update(None, "user_version", LEDGER_VERSION)?;
            connection.execute_batch(SCHEMA)?;
            connection.execute_batch(&super::usage::views())
        };
        set().map_err(LedgerError::at("create", &path))?;
        Ok(Self { connection, path, lock })
    }

    /// Opens the ledger of a run that exists.
    ///
    /// # Errors
    /// It cannot be opened, or is not one of this version's.
    pub fn open(run: &RunDir, lock: RunLock, durability: Durability) -> Result<Self, LedgerError> {
        let path = run.ledger();
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = Connection::open_with_flags(&path, flags).map_err(LedgerError::at("open", &path))?;
        configure(&connection, durability).map_err(LedgerError::at("open", &path))?;
        check_header(&connection, &path)?;
        Ok(Self { connection, path, lock })
    }

    /// Appends all of `events` or none, and returns when they are safe.
    ///
    /// # Errors
    /// The database or the disk refused; the ledger is as before.
    pub fn append(&mut self, events: &[Event]) -> Result<(), LedgerError> {
        if events.is_empty() {
            return Ok(());
        }
        let mut write = || -> rusqlite::Result<()> {
            let transaction = self.connection.transaction()?;
            {
                let mut insert = transaction.prepare_cached(
                    "INSERT INTO events (seq, at, unit, attempt, kind, data) VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
                )?;
                for event in events {
                    let (unit, attempt) = match &event.kind {
                        EventKind::Unit { unit, attempt, .. } => (Some(unit.as_str()), Some(attempt.0)),
                        EventKind::Run(_) | EventKind::Unknown { .. } => (None, None),
                    };
                    let (kind, data) = (event.kind.name(), event.kind.to_json());
                    insert.execute(params![event.seq.0, event.at.0, unit, attempt, kind, data])?;
                }
            }
            transaction.commit()
        };
        write().map_err(LedgerError::at("write", &self.path))
    }

    /// Ends the writing with everything in the one file; the lock goes on.
    ///
    /// # Errors
    /// The database or the disk refused.
    pub(super) fn close(self) -> Result<RunLock, LedgerError> {
        let set = || self.connection.pragma_update(None, "journal_mode", "DELETE");
        set().map_err(LedgerError::at("close", &self.path))?;
        self.connection.close().map_err(|(_, error)| LedgerError::at("close", &self.path)(error))?;
        Ok(self.lock)
    }

    /// The run's lock.
    pub fn lock_mut(&mut self) -> &mut RunLock {
        &mut self.lock
    }
}

fn configure(connection: &Connection, durability: Durability) -> rusqlite::Result<()> {
    connection.pragma_update(None, "journal_mode", "WAL")?;
    let synchronous = match durability {
        Durability::Synced => "FULL",
        Durability::Cached => "OFF",
    };
    connection.pragma_update(None, "synchronous", synchronous)?;
    connection.busy_timeout(std::time::Duration::from_secs(5))
}
