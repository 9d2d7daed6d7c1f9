//! The result of an attempt: the first authentic channel, or what can be saved under the FALLBACK header,
//! seen to it that it stands where it was asked for. One rule for a dispatcher and for who settles after
//! its death.

use std::fs::File;
use std::path::Path;

use prun_core::contract::{self, FallbackWhy, SALVAGED_TAIL, SalvagedTail};
use prun_core::outcome::{Channel, FinalEvent, ResultFacts, Usage};

use super::diagnose;
use super::output::read_end;
use super::result_file::ResultFile;
use crate::executor::stream::StreamSummary;
use crate::files::{Durability, read_regular, write_atomically_with_mode};
use crate::spec::{AttemptSpec, Resumed};
use crate::state_dir::StateDir;

/// A last message that is larger is no message.
const MESSAGE_LIMIT: u64 = 16 * 1024 * 1024;

/// An attempt whose worker is gone.
pub(super) struct Answer<'a> {
    pub(super) spec: &'a AttemptSpec,
    pub(super) state: &'a StateDir,
    pub(super) result: &'a ResultFile,
    /// The worker's output, where it can be read.
    pub(super) tail: Option<&'a File>,
    pub(super) durability: Durability,
}

impl Answer<'_> {
    /// Finds the result, and puts it where it belongs if the worker did not.
    pub(super) fn settle(&self, stream: &StreamSummary, why: &FallbackWhy) -> Option<ResultFacts> {
        if let Some(found) = self.result.find() {
            if self.durability == Durability::Synced {
                self.result.sync();
            }
            return Some(self.facts(Channel::ResultFile, &found.head, found.bytes, self.result.path(), false));
        }
        let (channel, bytes) = self.client_message(stream).unwrap_or_else(|| (Channel::Salvage, self.salvage(why)));
        self.place(channel, &bytes)
    }

    /// What the client itself handed over as its final answer.
    fn client_message(&self, stream: &StreamSummary) -> Option<(Channel, Vec<u8>)> {
        let asked_for = self.spec.worker.as_ref().is_some_and(|worker| worker.last_message_placeholder.is_some());
        let last = asked_for.then(|| read_regular(&self.state.last_message(), MESSAGE_LIMIT).ok()).flatten();
        if let Some(bytes) = last.filter(|bytes| !contract::is_blank(bytes)) {
            return Some((Channel::LastMessage, bytes));
        }
        // The last message of a stream without a good end is not the final one. Plain text is one as a whole.
        let is_final = matches!(stream.final_event, FinalEvent::Completed | FinalEvent::NotApplicable);
        let message = stream.message.as_ref().filter(|_| is_final)?;
        (!contract::is_blank(message.as_bytes())).then(|| (Channel::FinalEvent, message.clone().into_bytes()))
    }

    fn salvage(&self, why: &FallbackWhy) -> Vec<u8> {
        let path = self.state.tail();
        let end = self.tail.and_then(|tail| read_end(tail, SALVAGED_TAIL).ok());
        let (bytes, left_out) = end.unwrap_or_default();
        let tail = SalvagedTail { bytes: &bytes, left_out, path: &path.to_string_lossy() };
        contract::fallback(&self.spec.unit, why, tail)
    }

    /// Writes a result that the worker did not write itself: where it was asked for, else in the state dir.
    fn place(&self, channel: Channel, bytes: &[u8]) -> Option<ResultFacts> {
        let size = bytes.len() as u64;
        let Err(error) = self.result.replace(bytes, &self.state.result_before(), self.durability) else {
            return Some(self.facts(channel, bytes, size, self.result.path(), false));
        };
        let path = self.state.misplaced_result();
        match write_atomically_with_mode(&path, bytes, self.durability, 0o666) {
            Ok(()) => {
                diagnose(&format!("{error}; the result is at {}", path.display()));
                Some(self.facts(channel, bytes, size, &path, true))
            }
            Err(second) => {
                let tail = self.state.tail();
                diagnose(&format!(
                    "{error}; {second}; there is no result, only what the worker said, in {}",
                    tail.display()
                ));
                None
            }
        }
    }

    fn facts(&self, channel: Channel, head: &[u8], bytes: u64, path: &Path, misplaced: bool) -> ResultFacts {
        let parsed = contract::parse(&self.spec.unit, head);
        ResultFacts {
            channel,
            path: path.to_string_lossy().into_owned(),
            bytes,
            contract_gaps: parsed.gaps,
            conclusion: parsed.conclusion,
            open_items: parsed.open_items,
            files_claimed: parsed.files,
            misplaced,
        }
    }
}

/// The attempt's own share of what the stream counts: a client that goes on in a session counts from the
/// session's start.
pub(super) fn own_usage(resumes: Option<&Resumed>, stream: &StreamSummary) -> Option<Usage> {
    let Some(total) = stream.usage else { return stream.counted };
    let goes_on = resumes.filter(|resumed| stream.session.as_ref() == Some(&resumed.session));
    let own = goes_on.map_or(total, |resumed| total.since(&resumed.spent));
    // Turns are each process's own. Where the client counts none, the answers of its model are its turns.
    let turns = total.turns.or(stream.counted.and_then(|counted| counted.turns));
    Some(Usage { turns, ..own })
}
