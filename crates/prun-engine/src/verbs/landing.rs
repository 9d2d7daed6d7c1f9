//! Has a result landed? One rule for `gather` and `monitor`, over what was observed. Pure.

use std::time::Duration;

/// What stands at the place of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Standing {
    /// Nothing.
    Nothing,
    /// A file without a byte, or with white space alone.
    Blank,
    /// Something that is no regular file; its kind, for messages.
    Other(&'static str),
    /// A file that says something.
    Text(Quiet),
}

/// For how long a file has been left alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Quiet {
    /// By its own time; `None` where that lies in the future.
    pub(super) by_its_time: Option<Duration>,
    /// For how long it was watched and stayed as it is.
    pub(super) watched: Duration,
}

/// Who writes the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Writer {
    /// Nobody that we know of, or one that is gone without a word.
    Unknown,
    /// A dispatcher of prun's that lives and has not settled.
    Living,
    /// A dispatcher of prun's that settled the result as it stands.
    Settled,
}

/// Whether a result has landed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Landing {
    /// It is there, whole.
    Landed,
    /// It is not; `again_in` is when time alone can change that.
    NotYet {
        /// When to look again.
        again_in: Option<Duration>,
    },
}

/// The contract's rule. A file of a writer that we cannot ask has landed when it was quiet for `window`.
pub(super) fn landing(standing: Standing, writer: Writer, window: Duration) -> Landing {
    let Standing::Text(quiet) = standing else { return Landing::NotYet { again_in: None } };
    match writer {
        Writer::Settled => Landing::Landed,
        Writer::Living => Landing::NotYet { again_in: None },
        Writer::Unknown => {
            let quiet = quiet.by_its_time.unwrap_or_default().max(quiet.watched);
            match window.checked_sub(quiet) {
                None | Some(Duration::ZERO) => Landing::Landed,
                again_in => Landing::NotYet { again_in },
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Duration = Duration::from_secs(10);

    fn text(by_its_time: Option<u64>, watched: u64) -> Standing {
        let by_its_time = by_its_time.map(Duration::from_secs);
        Standing::Text(Quiet { by_its_time, watched: Duration::from_secs(watched) })
    }

    fn not_yet(seconds: Option<u64>) -> Landing {
        Landing::NotYet { again_in: seconds.map(Duration::from_secs) }
    }

    #[test]
    fn a_file_of_an_unknown_writer_lands_when_it_is_quiet() {
        let of = |standing| landing(standing, Writer::Unknown, WINDOW);
        assert_eq!(of(text(Some(10), 0)), Landing::Landed);
        assert_eq!(of(text(Some(9), 0)), not_yet(Some(1)));
        assert_eq!(of(text(Some(3), 9)), not_yet(Some(1)), "watched for longer than its time says");
        assert_eq!(landing(text(Some(0), 0), Writer::Unknown, Duration::ZERO), Landing::Landed);
    }

    #[test]
    fn a_time_in_the_future_is_measured_by_watching() {
        assert_eq!(landing(text(None, 4), Writer::Unknown, WINDOW), not_yet(Some(6)));
        assert_eq!(landing(text(None, 10), Writer::Unknown, WINDOW), Landing::Landed);
    }

    #[test]
    fn the_dispatchers_word_needs_no_window() {
        assert_eq!(landing(text(Some(0), 0), Writer::Settled, WINDOW), Landing::Landed);
        assert_eq!(landing(text(None, 0), Writer::Settled, WINDOW), Landing::Landed);
    }

    #[test]
    fn a_living_dispatch_has_not_landed_however_quiet_its_file_is() {
        assert_eq!(landing(text(Some(3600), 3600), Writer::Living, WINDOW), not_yet(None));
    }

    #[test]
    fn only_a_regular_file_that_says_something_lands() {
        for standing in [Standing::Nothing, Standing::Blank, Standing::Other("a FIFO")] {
            for writer in [Writer::Unknown, Writer::Living, Writer::Settled] {
                assert_eq!(landing(standing, writer, Duration::ZERO), not_yet(None), "{standing:?}");
            }
        }
    }
}
