//! Looks over left-over trees. What stands there may be anything, and change at any moment: every name
//! is looked at from an open directory, no link is followed, nothing is opened that could block, and the
//! times of what is read stay as they are where the system permits it.

use std::collections::HashSet;
use std::ffi::{CStr, OsStr};
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, RawMode, Stat, fstat, openat, statat};
use rustix::io::Errno;

use super::super::record::ENTRY_LIMIT;
use super::{DiscoveryError, ErrorClass, Report, ResultReport, ResultState, Stage, UnitReport, Unresolved};
use crate::state_dir::NAME_PREFIX;

/// Looks over `roots`, and at the state dirs `also`.
#[must_use]
pub fn report(roots: &[PathBuf], also: &[PathBuf], include_legacy_pid: bool) -> Report {
    let mut sweep =
        Sweep { report: Report::default(), roots: HashSet::new(), units: HashSet::new(), include_legacy_pid };
    for root in roots {
        sweep.root(&absolute(root));
    }
    for unit in also {
        sweep.unit(absolute(unit));
    }
    sweep.report.units.sort_by(|one, other| one.unit.cmp(&other.unit));
    sweep.report
}

/// A directory as the file system knows it.
type DirId = (u64, u64);

struct Sweep {
    report: Report,
    roots: HashSet<DirId>,
    units: HashSet<DirId>,
    include_legacy_pid: bool,
}

impl Sweep {
    /// A root may be a link: the user named it.
    fn root(&mut self, root: &Path) {
        let opened = open_quietly(CWD, root.as_os_str(), OFlags::RDONLY | OFlags::DIRECTORY)
            .and_then(|fd| Ok((id(&fstat(&fd)?), Dir::new(fd)?)));
        match opened {
            Ok((root_id, _)) if !self.roots.insert(root_id) => return,
            Ok((_, mut dir)) => self.entries(root, &mut dir),
            Err(error) => self.report.discovery_errors.push(DiscoveryError::Root(root.to_owned(), error.into())),
        }
        self.report.roots.push(root.to_owned());
    }

    fn entries(&mut self, root: &Path, dir: &mut Dir) {
        for entry in dir {
            match entry {
                Ok(entry) if is_unit(entry.file_name(), entry.file_type()) => {
                    self.unit(root.join(OsStr::from_bytes(entry.file_name().to_bytes())));
                }
                Ok(_) => {}
                Err(error) => {
                    self.report.discovery_errors.push(DiscoveryError::Root(root.to_owned(), error.into()));
                    return;
                }
            }
        }
    }

    fn unit(&mut self, unit: PathBuf) {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = openat(CWD, &unit, flags, Mode::empty()).and_then(|fd| Ok((id(&fstat(&fd)?), fd)));
        match opened {
            Ok((unit_id, _)) if !self.units.insert(unit_id) => {}
            Ok((_, fd)) => self.report.units.push(look_at(unit, fd.as_fd(), self.include_legacy_pid)),
            // It went, or is a link or a file by now: no unit.
            Err(Errno::NOENT | Errno::NOTDIR | Errno::LOOP) => {}
            Err(error) => self.report.discovery_errors.push(DiscoveryError::UnitEntry(unit, error.into())),
        }
    }
}

fn is_unit(name: &CStr, kind: FileType) -> bool {
    name.to_bytes().starts_with(NAME_PREFIX.as_bytes()) && matches!(kind, FileType::Directory | FileType::Unknown)
}

fn look_at(unit: PathBuf, dir: BorrowedFd<'_>, include_legacy_pid: bool) -> UnitReport {
    let mut errors = Vec::new();
    let result = look_at_result(&unit, dir, &mut errors);
    let tail_bytes = look_at_tail(dir, &mut errors);
    let legacy_pid = include_legacy_pid.then(|| look_at_pid(dir, &mut errors)).flatten();
    UnitReport { unit, result, tail_bytes, errors, legacy_pid }
}

fn look_at_result(unit: &Path, dir: BorrowedFd<'_>, errors: &mut Vec<(Stage, ErrorClass)>) -> ResultReport {
    let recorded = match read_entry(dir, "result-file") {
        Ok(Some(entry)) => entry,
        Ok(None) => return ResultReport::Unresolved(Unresolved::AbsentEntry),
        Err(error) => {
            errors.push((Stage::ResultEntry, error));
            return ResultReport::Unresolved(Unresolved::Unreadable);
        }
    };
    let place = place(&recorded, || read_entry(dir, "result-path").ok().flatten());
    let (target, seen) = match place {
        Some(Place::Absolute(path)) => {
            let seen = lstat(CWD, path.as_os_str());
            (path, seen)
        }
        Some(Place::Inside(path)) => match stat_inside(dir, &path) {
            Inside::Escapes => return ResultReport::Unresolved(Unresolved::InvalidEntry),
            Inside::Seen(seen) => (unit.join(path), seen),
        },
        None => return ResultReport::Unresolved(Unresolved::InvalidEntry),
    };
    let result = match seen {
        Ok(stat) if !is_regular(&stat) => {
            errors.push((Stage::ResultTarget, ErrorClass::NotARegularFile));
            ResultState::Unknown
        }
        Ok(stat) if stat.st_size == 0 => ResultState::Empty,
        Ok(_) => ResultState::Present,
        Err(Errno::NOENT) => ResultState::Missing,
        Err(error) => {
            errors.push((Stage::ResultTarget, error.into()));
            ResultState::Unknown
        }
    };
    ResultReport::Resolved { target, result }
}

/// Where a recorded result is to be looked for.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Place {
    Absolute(PathBuf),
    /// Relative to the unit, without `.` and `..`.
    Inside(PathBuf),
}

/// The place that the entry `result-file` names; `None` where it is empty or leads out of its unit. Of a
/// relative path prun also recorded what it meant, which `in_full` reads.
pub(super) fn place(recorded: &[u8], in_full: impl Fn() -> Option<Vec<u8>>) -> Option<Place> {
    let path = path_of(recorded)?;
    if path.is_absolute() {
        return Some(Place::Absolute(path));
    }
    let in_full = in_full().and_then(|entry| path_of(&entry)).filter(|path| path.is_absolute());
    if let Some(path) = in_full {
        return Some(Place::Absolute(path));
    }
    let mut inside = PathBuf::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => inside.push(name),
            Component::CurDir => {}
            Component::ParentDir if inside.pop() => {}
            _ => return None,
        }
    }
    (!inside.as_os_str().is_empty()).then_some(Place::Inside(inside))
}

/// An entry without its final newline, where it holds anything.
fn path_of(entry: &[u8]) -> Option<PathBuf> {
    let path = entry.strip_suffix(b"\n").unwrap_or(entry);
    let is_path = !path.iter().all(u8::is_ascii_whitespace) && !path.contains(&0);
    is_path.then(|| PathBuf::from(OsStr::from_bytes(path)))
}

enum Inside {
    /// A link on the way leads elsewhere.
    Escapes,
    Seen(Result<Stat, Errno>),
}

/// Looks at a path below `dir` step by step, so that no link on the way is followed.
fn stat_inside(dir: BorrowedFd<'_>, path: &Path) -> Inside {
    let names: Vec<&OsStr> = path.iter().collect();
    let Some((last, parents)) = names.split_last() else { return Inside::Escapes };
    let mut below: Option<OwnedFd> = None;
    for name in parents {
        let from = below.as_ref().map_or(dir, AsFd::as_fd);
        let is_link = lstat(from, name).is_ok_and(|stat| kind(&stat) == FileType::Symlink);
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(from, *name, flags, Mode::empty()) {
            _ if is_link => return Inside::Escapes,
            Ok(fd) => below = Some(fd),
            Err(error) => return Inside::Seen(Err(error)),
        }
    }
    Inside::Seen(lstat(below.as_ref().map_or(dir, AsFd::as_fd), last))
}

fn look_at_tail(dir: BorrowedFd<'_>, errors: &mut Vec<(Stage, ErrorClass)>) -> Option<u64> {
    let error = match lstat(dir, OsStr::new("tail")) {
        Ok(stat) if is_regular(&stat) => return Some(u64::try_from(stat.st_size).unwrap_or(0)),
        Ok(_) => ErrorClass::NotARegularFile,
        Err(Errno::NOENT) => return Some(0),
        Err(error) => error.into(),
    };
    errors.push((Stage::Tail, error));
    None
}

fn look_at_pid(dir: BorrowedFd<'_>, errors: &mut Vec<(Stage, ErrorClass)>) -> Option<String> {
    let text = read_entry(dir, "dispatch-pid").and_then(|entry| {
        let Some(entry) = entry else { return Ok(None) };
        let text = String::from_utf8(entry).map_err(|_| ErrorClass::ValueError)?;
        Ok(Some(text.trim().to_owned()))
    });
    text.unwrap_or_else(|error| {
        errors.push((Stage::LegacyPid, error));
        None
    })
}

/// Reads an entry of a unit whole; `None` where it does not exist.
fn read_entry(dir: BorrowedFd<'_>, name: &str) -> Result<Option<Vec<u8>>, ErrorClass> {
    let fits = |stat: &Stat| {
        if !is_regular(stat) {
            Err(ErrorClass::NotARegularFile)
        } else if u64::try_from(stat.st_size).is_ok_and(|size| size <= ENTRY_LIMIT) {
            Ok(())
        } else {
            Err(ErrorClass::EntryTooLarge)
        }
    };
    match lstat(dir, OsStr::new(name)) {
        Ok(stat) => fits(&stat)?,
        Err(Errno::NOENT) => return Ok(None),
        Err(error) => return Err(error.into()),
    }
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let fd = match open_quietly(dir, OsStr::new(name), flags) {
        Ok(fd) => fd,
        Err(Errno::NOENT) => return Ok(None),
        // It became a link, or a socket, since.
        Err(Errno::LOOP | Errno::NXIO) => return Err(ErrorClass::NotARegularFile),
        Err(error) => return Err(error.into()),
    };
    fits(&fstat(&fd)?)?;
    let mut bytes = Vec::new();
    File::from(fd).take(ENTRY_LIMIT + 1).read_to_end(&mut bytes).map_err(|_| ErrorClass::OSError)?;
    if bytes.len() as u64 > ENTRY_LIMIT { Err(ErrorClass::EntryTooLarge) } else { Ok(Some(bytes)) }
}

/// Opens without a change of the access time, where this user may ask for that: the owner may.
fn open_quietly(dir: BorrowedFd<'_>, name: &OsStr, flags: OFlags) -> Result<OwnedFd, Errno> {
    let flags = flags | OFlags::CLOEXEC;
    match openat(dir, name, flags | OFlags::NOATIME, Mode::empty()) {
        Err(Errno::PERM) => openat(dir, name, flags, Mode::empty()),
        opened => opened,
    }
}

fn lstat(dir: BorrowedFd<'_>, name: &OsStr) -> Result<Stat, Errno> {
    statat(dir, name, AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT)
}

fn kind(stat: &Stat) -> FileType {
    FileType::from_raw_mode(stat.st_mode as RawMode)
}

fn is_regular(stat: &Stat) -> bool {
    kind(stat) == FileType::RegularFile
}

fn id(stat: &Stat) -> DirId {
    (stat.st_dev, stat.st_ino)
}

fn absolute(path: &Path) -> PathBuf {
    std::path::absolute(path).unwrap_or_else(|_| path.to_owned())
}
