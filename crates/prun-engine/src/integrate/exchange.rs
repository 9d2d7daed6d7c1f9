//! Moves of names that look at what they moved, and take it back where it is not what was expected.

use std::io;

use rustix::fs::RenameFlags;
use rustix::io::Errno;

use super::root::{Place, Seen, rename, see_at};

/// The path was not as expected.
pub(super) enum Surprise {
    At(&'static str),
    System(io::Error),
}

impl From<io::Error> for Surprise {
    fn from(error: io::Error) -> Self {
        Self::System(error)
    }
}

pub(super) const STANDS: &str = "something stands there now";
pub(super) const CHANGED: &str = "it changed in the meantime";
pub(super) const GONE: &str = "it is gone, or a link or a file stands in place of its directory";

/// Errors that mean that the path is not as expected, as against a system that refuses.
pub(super) fn blocked(error: io::Error, why: &'static str) -> Surprise {
    let expected = [Errno::EXIST, Errno::NOENT, Errno::NOTDIR, Errno::LOOP, Errno::ISDIR, Errno::NOTEMPTY];
    if expected.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
        || error.kind() == io::ErrorKind::NotFound
    {
        Surprise::At(why)
    } else {
        Surprise::System(error)
    }
}

/// Exchanges the slot and the path; where something else than expected came out, both go back.
pub(super) fn exchange_expecting(held: &Place, place: &Place, expected: &Seen) -> Result<(), Surprise> {
    rename(held, place, RenameFlags::EXCHANGE).map_err(|error| blocked(error, GONE))?;
    if see_at(&held.dir, &held.name)? == *expected {
        return Ok(());
    }
    rename(held, place, RenameFlags::EXCHANGE).map_err(|error| blocked(error, GONE))?;
    Err(Surprise::At(CHANGED))
}

/// Moves what stands at `from` to `to`; where it is something else than expected, it goes back.
pub(super) fn move_expecting(from: &Place, to: &Place, expected: &Seen) -> Result<(), Surprise> {
    rename(from, to, RenameFlags::NOREPLACE).map_err(|error| blocked(error, GONE))?;
    if see_at(&to.dir, &to.name)? == *expected {
        return Ok(());
    }
    rename(to, from, RenameFlags::NOREPLACE).map_err(|error| blocked(error, STANDS))?;
    Err(Surprise::At(CHANGED))
}
