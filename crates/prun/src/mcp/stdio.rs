//! The streams of the protocol, taken away from everything else in this process.
//!
//! Whatever prints by mistake, and every child, finds `/dev/null` at 0 and our stderr at 1, so that nothing but
//! protocol can reach the client.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rustix::stdio::{dup2_stdin, dup2_stdout};
use tokio::sync::{mpsc as async_mpsc, watch};

/// The longest line that is read: 16 MiB. A plan may have 8.
pub(super) const LONGEST_LINE: usize = 16 << 20;

/// Lines that wait to be looked at; a client that sends more has to wait.
const QUEUE: usize = 64;

/// A line from the client, without its line break.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    /// Its bytes.
    Whole(Vec<u8>),
    /// It was longer than [`LONGEST_LINE`] and is gone.
    TooLong,
}

/// Our stdin and stdout, under other numbers.
///
/// # Errors
/// No descriptor is left.
pub(super) fn take() -> io::Result<(File, File)> {
    let keep = |fd| rustix::io::fcntl_dupfd_cloexec(fd, 3);
    let input = keep(rustix::stdio::stdin())?;
    let output = keep(rustix::stdio::stdout())?;
    dup2_stdin(File::open("/dev/null")?)?;
    dup2_stdout(rustix::stdio::stderr())?;
    Ok((input.into(), output.into()))
}

/// Reads lines on a thread of its own. The second channel says when the client has left.
///
/// # Errors
/// No thread can be started.
pub(super) fn read_lines(input: File) -> io::Result<(async_mpsc::Receiver<Line>, watch::Receiver<bool>)> {
    let (lines, received) = async_mpsc::channel(QUEUE);
    let (closing, closed) = watch::channel(false);
    thread::Builder::new().name("mcp-input".into()).spawn(move || {
        let mut input = BufReader::with_capacity(64 << 10, input);
        while let Ok(Some(line)) = read_line(&mut input) {
            if lines.blocking_send(line).is_err() {
                break;
            }
        }
        closing.send_replace(true);
        // Held to here, so that nobody hears of the end before it is said above.
        drop(lines);
    })?;
    Ok((received, closed))
}

/// The next line; `None` at the end. What stands there without a line break counts as a line.
fn read_line(input: &mut impl BufRead) -> io::Result<Option<Line>> {
    let mut line = Vec::new();
    let most = LONGEST_LINE as u64 + 1;
    if input.by_ref().take(most).read_until(b'\n', &mut line)? == 0 {
        return Ok(None);
    }
    if line.last() == Some(&b'\n') {
        line.pop();
        return Ok(Some(Line::Whole(line)));
    }
    if line.len() <= LONGEST_LINE {
        return Ok(Some(Line::Whole(line)));
    }
    skip_line(input)?;
    Ok(Some(Line::TooLong))
}

fn skip_line(input: &mut impl BufRead) -> io::Result<()> {
    loop {
        let piece = input.fill_buf()?;
        if piece.is_empty() {
            return Ok(());
        }
        let end = piece.iter().position(|byte| *byte == b'\n');
        let used = end.map_or(piece.len(), |at| at + 1);
        input.consume(used);
        if end.is_some() {
            return Ok(());
        }
    }
}

/// Writes lines on a thread of its own, so that a client that does not read holds nothing up.
#[derive(Debug)]
pub(super) struct Writer {
    lines: mpsc::Sender<Vec<u8>>,
    finished: mpsc::Receiver<()>,
}

impl Writer {
    /// Starts it.
    ///
    /// # Errors
    /// No thread can be started.
    pub(super) fn start(mut output: File) -> io::Result<Self> {
        let (lines, to_write) = mpsc::channel::<Vec<u8>>();
        let (finish, finished) = mpsc::channel();
        thread::Builder::new().name("mcp-output".into()).spawn(move || {
            for line in to_write {
                if output.write_all(&line).is_err() {
                    break;
                }
            }
            // Nobody may wait for it.
            let _ = finish.send(());
        })?;
        Ok(Self { lines, finished })
    }

    /// Where to put whole lines.
    pub(super) fn sender(&self) -> mpsc::Sender<Vec<u8>> {
        self.lines.clone()
    }

    /// Whether all that was put in is written within `limit`. Other senders must be gone.
    pub(super) fn finish(self, limit: Duration) -> bool {
        drop(self.lines);
        self.finished.recv_timeout(limit).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lines(bytes: &[u8]) -> Vec<Line> {
        let mut input = BufReader::with_capacity(1000, bytes);
        std::iter::from_fn(|| read_line(&mut input).unwrap()).collect()
    }

    #[test]
    fn lines_are_told_apart_and_the_last_one_needs_no_break() {
        let whole = |text: &str| Line::Whole(text.into());
        assert_eq!(lines(b"a\n\nb"), [whole("a"), whole(""), whole("b")]);
        assert_eq!(lines(b""), []);
    }

    #[test]
    fn a_line_that_is_too_long_is_skipped_and_the_next_one_read() {
        let mut bytes = vec![b'x'; LONGEST_LINE + 5];
        bytes.extend(b"\nnext\n");
        assert_eq!(lines(&bytes), [Line::TooLong, Line::Whole(b"next".into())]);
        let mut longest = vec![b'x'; LONGEST_LINE];
        longest.push(b'\n');
        assert!(matches!(&lines(&longest)[..], [Line::Whole(line)] if line.len() == LONGEST_LINE));
    }
}
