//! The reading end of a ledger: follow it from a place.

use std::path::{Path, PathBuf};

use prun_core::event::{Event, EventKind};
use prun_core::ids::{Attempt, Seq, UnitId};
use prun_core::time::Timestamp;
use rusqlite::{Connection, OpenFlags};
use rustix::fs::{Access, access};
use rustix::io::Errno;

use super::{LedgerError, check_header};
use crate::home::RunDir;

/// Reads a ledger while somebody else may be writing it.
#[derive(Debug)]
pub struct Reader {
    pub(super) connection: Connection,
    pub(super) path: PathBuf,
}

struct Row {
    seq: u64,
    at: i64,
    unit: Option<String>,
    attempt: Option<u32>,
    data: String,
}

impl Reader {
    /// Opens the ledger of `run`.
    ///
    /// # Errors
    /// It cannot be opened, or is not one of this version's.
    pub fn open(run: &RunDir) -> Result<Self, LedgerError> {
        let path = run.ledger();
        // A reader of a WAL database needs its shared-memory file and so may not open it read-only.
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
        let connection = match read_only_uri(&path) {
            Some(uri) => {
                Connection::open_with_flags(uri, OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_URI)
            }
            None => Connection::open_with_flags(&path, flags),
        };
        let connection = connection.map_err(LedgerError::at("open", &path))?;
        let set = || -> rusqlite::Result<()> {
            connection.busy_timeout(std::time::Duration::from_secs(5))?;
            connection.pragma_update(None, "query_only", true)
        };
        set().map_err(LedgerError::at("open", &path))?;
        check_header(&connection, &path)?;
        Ok(Self { connection, path })
    }

    /// The events after `seq`, in order.
    ///
    /// # Errors
    /// The ledger cannot be read, or has a gap or a row that cannot be an event.
    pub fn after(&mut self, seq: Seq) -> Result<Vec<Event>, LedgerError> {
        self.after_at_most(seq, u32::MAX)
    }

    /// The first `most` events after `seq`.
    pub(super) fn after_at_most(&mut self, seq: Seq, most: u32) -> Result<Vec<Event>, LedgerError> {
        let rows = self.rows(seq, most).map_err(LedgerError::at("read", &self.path))?;
        let mut expected = seq;
        rows.into_iter()
            .map(|row| {
                expected = expected.next();
                self.event(row, expected)
            })
            .collect()
    }

    fn rows(&self, seq: Seq, most: u32) -> rusqlite::Result<Vec<Row>> {
        let mut select = self
            .connection
            .prepare_cached("SELECT seq, at, unit, attempt, data FROM events WHERE seq > ?1 ORDER BY seq LIMIT ?2")?;
        let rows = select.query_map((seq.0, most), |row| {
            Ok(Row { seq: row.get(0)?, at: row.get(1)?, unit: row.get(2)?, attempt: row.get(3)?, data: row.get(4)? })
        })?;
        rows.collect()
    }

    fn event(&self, row: Row, expected: Seq) -> Result<Event, LedgerError> {
        let damaged = |what: String| LedgerError::Damaged { path: self.path.clone(), seq: expected.0, what };
        if row.seq != expected.0 {
            return Err(damaged(format!("the next row is event {}", row.seq)));
        }
        let unit =
            row.unit.map(|unit| unit.parse::<UnitId>()).transpose().map_err(|error| damaged(error.to_string()))?;
        let kind = EventKind::from_json(unit, row.attempt.map(Attempt), &row.data);
        Ok(Event { seq: Seq(row.seq), at: Timestamp(row.at), kind })
    }
}

/// How a ledger is opened that nobody can be writing, because it stands where nothing can be written and has no
/// log beside it: SQLite would ask for its shared memory otherwise, which cannot be made there.
fn read_only_uri(path: &Path) -> Option<String> {
    let dir = path.parent()?;
    if !matches!(access(dir, Access::WRITE_OK), Err(Errno::ROFS | Errno::ACCESS)) {
        return None;
    }
    let mut log = path.as_os_str().to_owned();
    log.push("-wal");
    let is_complete = std::fs::metadata(&log).map_or(true, |meta| meta.len() == 0);
    let escape = |byte: &u8| match byte {
        b'/' | b'-' | b'_' | b'.' | b'0'..=b'9' | b'a'..=b'z' | b'A'..=b'Z' => char::from(*byte).to_string(),
        other => format!("%{other:02X}"),
    };
    let name: String = path.as_os_str().as_encoded_bytes().iter().map(escape).collect();
    is_complete.then(|| format!("file:{name}?immutable=1"))
}
