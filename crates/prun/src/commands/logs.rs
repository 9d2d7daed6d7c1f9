//! `prun logs`: what a unit's worker wrote.

use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

use prun_core::ids::{Attempt, UnitId};
use prun_engine::home::AttemptDir;
use prun_engine::recover::Presence;
use prun_engine::state_dir;

use crate::context::{Context, Intent, OpenRun};
use crate::error::{CliError, CliResult};
use crate::exit_code::ExitCode;
use crate::interrupt;

/// How often a tail that is followed is looked at.
const LOOK: Duration = Duration::from_millis(200);

/// Bytes in which the last lines are looked for: 4 MiB.
const WINDOW: u64 = 4 << 20;

/// Show what a unit's worker wrote
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The unit, as UNIT or RUN/UNIT
    unit: String,
    /// Show the last N lines; 0 shows everything
    #[arg(short = 'n', long, value_name = "N", default_value_t = 50)]
    lines: usize,
    /// Go on as it grows, until the attempt is settled
    #[arg(short, long)]
    follow: bool,
    /// Show this attempt instead of the last one
    #[arg(long, value_name = "N")]
    attempt: Option<u32>,
}

pub(crate) fn run(context: &Context, args: &Args) -> CliResult {
    let (mut run, unit) = context.find_unit(&args.unit, Intent::Look)?;
    let dir = attempt_dir(&run, &unit, args.attempt)?;
    let tail = tail_of(&run, &unit, &dir)?;
    let mut shown = show_end(context, &tail, args.lines)?;
    if !args.follow {
        return Ok(ExitCode::Ok);
    }
    let interrupted = interrupt::listen()?;
    loop {
        run.refresh()?;
        // Asked before the last look, so that nothing written in between is missed.
        let is_over = run.unit(&unit).attempts.iter().any(|it| run.dir.attempt(&it.dir) == dir && it.ended.is_some());
        shown += show_from(context, &tail, shown)?;
        if is_over || (!run.driven && run.state.ended.is_some()) {
            return Ok(ExitCode::Ok);
        }
        if run.is_lost() && run.presence(run.unit(&unit)) != Some(Presence::Alive) {
            // Nobody writes on, and nobody will say that it is over.
            return Err(super::run::lost(context, &run.card.run));
        }
        match interrupted.recv_timeout(LOOK) {
            Err(RecvTimeoutError::Timeout) => {}
            Ok(()) | Err(RecvTimeoutError::Disconnected) => return Ok(ExitCode::Interrupted),
        }
    }
}

/// The file that holds what an attempt's worker wrote.
///
/// # Errors
/// There is none yet.
pub(crate) fn tail_of(run: &OpenRun, unit: &UnitId, dir: &AttemptDir) -> CliResult<PathBuf> {
    let Some(state) = state_dir::find_in(dir.root()) else {
        let settled = run.unit(unit).is_settled();
        let error = CliError::usage(format!("{unit} has not written anything yet"));
        let hint = format!("`prun explain {}/{unit}` tells why", run.card.run.short());
        return Err(if settled { error.hint(hint) } else { error });
    };
    Ok(state.join("tail"))
}

/// The directory of an attempt, by its number or the last one.
///
/// # Errors
/// There is no such attempt.
pub(crate) fn attempt_dir(run: &OpenRun, unit: &UnitId, attempt: Option<u32>) -> CliResult<AttemptDir> {
    let Some(number) = attempt else { return run.last_attempt(unit) };
    let record = run.unit(unit).attempts.iter().find(|record| record.attempt == Attempt(number));
    let record = record.ok_or_else(|| CliError::usage(format!("{unit} has no attempt {number}")))?;
    Ok(run.dir.attempt(&record.dir))
}

/// Shows the last lines; the size up to which the file was shown.
fn show_end(context: &Context, tail: &Path, lines: usize) -> CliResult<u64> {
    if lines == 0 {
        return show_from(context, tail, 0);
    }
    let (begin, end) = read_end(tail, WINDOW)?;
    context.ui.foreign(last_lines(&end, lines))?;
    Ok(begin + end.len() as u64)
}

/// The last bytes of a file, `window` at most, and where they begin.
///
/// # Errors
/// It cannot be read.
pub(crate) fn read_end(tail: &Path, window: u64) -> std::io::Result<(u64, Vec<u8>)> {
    let mut file = File::open(tail)?;
    let begin = file.metadata()?.len().saturating_sub(window);
    let mut end = Vec::new();
    file.seek(SeekFrom::Start(begin))?;
    file.take(window).read_to_end(&mut end)?;
    Ok((begin, end))
}

fn show_from(context: &Context, tail: &Path, from: u64) -> CliResult<u64> {
    let mut file = File::open(tail)?;
    file.seek(SeekFrom::Start(from))?;
    let mut piece = vec![0; 64 * 1024];
    let mut shown = 0;
    loop {
        let count = file.read(&mut piece)?;
        if count == 0 {
            return Ok(shown);
        }
        context.ui.foreign(&piece[..count])?;
        shown += count as u64;
    }
}

/// The last lines of a text, whole.
pub(crate) fn last_lines(bytes: &[u8], lines: usize) -> &[u8] {
    let body = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let breaks = body.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n');
    breaks.map(|(at, _)| at).nth(lines.saturating_sub(1)).map_or(bytes, |at| &bytes[at + 1..])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_lines_are_whole() {
        assert_eq!(last_lines(b"a\nb\nc\n", 2), b"b\nc\n");
        assert_eq!(last_lines(b"a\nb\nc", 1), b"c");
        assert_eq!(last_lines(b"a\n", 5), b"a\n");
        assert_eq!(last_lines(b"", 5), b"");
    }
}
