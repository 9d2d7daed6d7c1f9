//! Settles an attempt whose dispatcher died: ends what is left of its tree, and saves what can be saved.

use std::io::Read;

use prun_core::contract::FallbackWhy;
use prun_core::outcome::{AttemptFacts, Exit, FACTS_VERSION, FinalEvent, SweepFacts};

use super::answer::{Answer, own_usage};
use super::live::with_reset_time;
use super::notes::last_told_usage;
use super::result_file::{ResultFile, open_regular};
use super::{now, read_spec};
use crate::contain::reap_by_token;
use crate::executor::stream::{StreamKind, StreamReader, StreamSummary};
use crate::files::Durability;
use crate::git::Git;
use crate::home::AttemptDir;
use crate::state_dir::{self, StateDir};
use crate::workspace::harvest::harvest;

/// What can still be seen of an attempt in `dir`, written down as its facts. The caller holds its fence.
/// `None` where not even the spec or the state dir can be read.
#[must_use]
pub fn settle_dead(dir: &AttemptDir, durability: Durability) -> Option<AttemptFacts> {
    let spec = read_spec(&dir.spec()).ok()?;
    let state = StateDir::at(state_dir::find_in(dir.root())?);
    let sweep = state_dir::read_identity(state.root()).map_or_else(|_| SweepFacts::default(), |it| reap_by_token(&it));
    let mut stream = replay(&state, spec.worker.as_ref().map_or(StreamKind::Plain, |worker| worker.stream));
    if stream.final_event == FinalEvent::NotApplicable {
        // Whether what it printed is its answer, nobody can tell.
        stream.message = None;
    }
    // A run's result path is the attempt's own, so nothing of before can stand there.
    let result = ResultFile::absent_before(&spec.result_file);
    let tail = open_regular(&state.tail()).ok();
    let answer = Answer { spec: &spec, state: &state, result: &result, tail: tail.as_ref(), durability };
    let result = answer.settle(&stream, &FallbackWhy::Missing);
    // Some clients tell of their tokens before the end only in a log, of which little is kept.
    let usage = own_usage(spec.resumes.as_ref(), &stream).or_else(|| last_told_usage(&dir.notes()));
    let (changes, harvest_error) = match spec.harvest.as_ref().map(|spec| harvest(&Git::from_env(), spec)) {
        None => (None, None),
        Some(Ok(changes)) => (Some(changes), None),
        Some(Err(error)) => (None, Some(error.to_string())),
    };
    let missing_deliverables =
        spec.cwd.as_deref().map_or_else(Vec::new, |cwd| super::settle::missing_deliverables(cwd, &spec.deliverables));
    let read_only = super::settle::read_only(&spec);
    let facts = AttemptFacts {
        version: FACTS_VERSION,
        unit: spec.unit,
        attempt: spec.attempt,
        exit: Exit::Unobserved,
        stopped: None,
        dispatcher_signal: None,
        dispatcher_died: true,
        setup: None,
        final_event: stream.final_event,
        error: stream.error,
        result,
        missing_deliverables,
        verify: None,
        expects_changes: spec.expects_changes,
        changes,
        harvest_error,
        sweep,
        read_only,
        usage,
        model: stream.model.or_else(|| spec.worker.and_then(|worker| worker.model)),
        denied: stream.denied,
        session: stream.session,
        silent: Vec::new(),
        peak_rss_kib: None,
        cpu_millis: None,
        peak_memory_kib: None,
        oom_killed: false,
        started_at: now(),
        ended_at: now(),
        worker_millis: 0,
    };
    // Without the file the ledger still holds the facts.
    let _ = state.write_facts(&facts, durability);
    Some(facts)
}

fn replay(state: &StateDir, kind: StreamKind) -> StreamSummary {
    let mut reader = StreamReader::new(kind);
    if kind != StreamKind::Plain
        && let Ok(mut file) = open_regular(&state.events())
    {
        let mut piece = vec![0; 64 * 1024];
        while let Ok(count @ 1..) = file.read(&mut piece) {
            reader.feed(&piece[..count]);
        }
    }
    with_reset_time(reader.summary().clone())
}
