//! What can still be read of a damaged ledger, and a new one in its place.

use std::path::{Path, PathBuf};

use prun_core::event::{Event, RunSetup};
use prun_core::ids::Seq;
use prun_core::run::RunState;

use super::LedgerError;
use super::lock::RunLock;
use super::reader::Reader;
use super::writer::Writer;
use crate::files::{Durability, FileError, read_regular, sync_dir};
use crate::home::RunDir;

/// Files of SQLite's beside the ledger.
const BESIDE: [&str; 2] = ["-wal", "-shm"];

/// No set-up is larger.
const SETUP_LIMIT: u64 = 256 << 20;

/// What could be read.
#[derive(Debug, Default)]
pub struct Salvaged {
    /// The events up to the first that cannot be read or cannot follow.
    pub events: Vec<Event>,
    /// Their fold.
    pub state: RunState,
    /// Why there are no more; `None`: the ledger is sound.
    pub trouble: Option<String>,
}

/// Reads as much of the ledger of `run` as still makes sense.
///
/// # Errors
/// A later version of prun wrote it: that one has to look after it.
pub fn salvage(run: &RunDir) -> Result<Salvaged, LedgerError> {
    let mut found = Salvaged::default();
    let mut reader = match Reader::open(run) {
        Ok(reader) => reader,
        Err(error @ LedgerError::Newer { .. }) => return Err(error),
        Err(error) => return Ok(Salvaged { trouble: Some(error.to_string()), ..found }),
    };
    found.trouble = reader.trouble();
    loop {
        match reader.one_after(found.state.seq) {
            Ok(None) => return Ok(found),
            Ok(Some(event)) => {
                if let Err(error) = found.state.apply(&event) {
                    found.trouble.get_or_insert(error.to_string());
                    return Ok(found);
                }
                found.events.push(event);
            }
            Err(error) => {
                found.trouble.get_or_insert(error.to_string());
                return Ok(found);
            }
        }
    }
}

/// Puts a ledger of `events` in the place of the one of `run`, which is kept aside; where.
///
/// Cut off at any moment, it leaves the old ledger or the new one, and the old one's bytes in any case.
///
/// # Errors
/// The disk refused; the old ledger stands then.
pub fn replace(run: &RunDir, lock: RunLock, events: &[Event], durability: Durability) -> Result<PathBuf, LedgerError> {
    let aside = keep_aside(run)?;
    let place = run.root().join("rebuilt");
    // One that was cut off.
    let _ = std::fs::remove_dir_all(&place);
    std::fs::create_dir(&place).map_err(FileError::at("create", &place))?;
    let new = RunDir::at(&place);
    let mut writer = Writer::create(&new, lock, durability)?;
    writer.append(events)?;
    // The lock is held to the end of it.
    let _lock = writer.close()?;
    for name in BESIDE {
        // Pages of the old ledger must not be taken for the new one's.
        remove(&beside(&run.ledger(), name))?;
    }
    let old = run.ledger();
    std::fs::rename(new.ledger(), &old).map_err(FileError::at("replace", &old))?;
    sync_dir(run.root())?;
    // Empty but for what SQLite leaves; it is removed with the run otherwise.
    let _ = std::fs::remove_dir_all(&place);
    Ok(aside)
}

fn keep_aside(run: &RunDir) -> Result<PathBuf, FileError> {
    let free = (1_u32..).map(|number| run.root().join(format!("ledger.damaged-{number}"))).find(|dir| !dir.exists());
    let aside = free.expect("numbers do not end");
    std::fs::create_dir(&aside).map_err(FileError::at("create", &aside))?;
    let ledger = run.ledger();
    let files = BESIDE.iter().map(|name| beside(&ledger, name)).chain([ledger.clone()]);
    for file in files.filter(|file| file.exists()) {
        let to = aside.join(file.file_name().unwrap_or_default());
        std::fs::copy(&file, &to).map_err(FileError::at("copy", &file))?;
    }
    sync_dir(&aside)?;
    Ok(aside)
}

fn beside(ledger: &Path, name: &str) -> PathBuf {
    let mut path = ledger.as_os_str().to_owned();
    path.push(name);
    path.into()
}

fn remove(path: &Path) -> Result<(), FileError> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != std::io::ErrorKind::NotFound => Err(FileError::at("remove", path)(error)),
        _ => Ok(()),
    }
}

/// Keeps what a run was started with beside its ledger, so that the ledger can be made again without it.
///
/// # Errors
/// It cannot be written.
pub fn keep_setup(run: &RunDir, setup: &RunSetup, durability: Durability) -> Result<(), FileError> {
    let text = serde_json::to_vec(setup).expect("plain data with string keys");
    crate::files::write_atomically(&run.setup(), &text, durability)
}

/// What a run was started with, as it was kept beside the ledger.
///
/// # Errors
/// It was not kept, or cannot be read.
pub fn read_setup(run: &RunDir) -> Result<RunSetup, FileError> {
    let path = run.setup();
    let text = read_regular(&path, SETUP_LIMIT).map_err(FileError::at("read", &path))?;
    serde_json::from_slice(&text).map_err(std::io::Error::from).map_err(FileError::at("understand", &path))
}

impl Reader {
    /// What SQLite itself finds wrong with the file.
    fn trouble(&self) -> Option<String> {
        let look = || self.connection.query_row("PRAGMA quick_check(1)", [], |row| row.get::<_, String>(0));
        match look() {
            Ok(said) if said == "ok" => None,
            Ok(said) => Some(said.lines().last().unwrap_or_default().to_owned()),
            Err(error) => Some(error.to_string()),
        }
    }

    /// The event after `seq`.
    fn one_after(&mut self, seq: Seq) -> Result<Option<Event>, LedgerError> {
        Ok(self.after_at_most(seq, 1)?.pop())
    }
}
