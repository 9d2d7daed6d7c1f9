use proptest::prelude::*;
use prun_core::outcome::Cause;

use super::*;

const SESSION: &str = "01a22ca0-0000-7000-8000-000000000001";

macro_rules! fixture {
    ($name:literal) => {
        ($name, include_str!(concat!("../fixtures/codex/", $name, ".jsonl")))
    };
}

/// How a recording ends: completed with (tokens in, last message), failed with a class, or neither.
enum End {
    Completed(u64, Option<&'static str>),
    Failed(Cause),
    Missing,
}
use End::{Completed, Failed, Missing};

fn read(stream: &[u8]) -> (StreamSummary, Vec<Activity>) {
    let mut reader = StreamReader::new(StreamKind::Codex);
    let activities = reader.feed(stream);
    (reader.summary().clone(), activities)
}

fn lines(stream: &str) -> Vec<(String, bool)> {
    read(stream.as_bytes()).1.into_iter().map(|activity| (activity.line, activity.is_progress)).collect()
}

#[test]
fn each_recording_ends_as_it_did() {
    const EDITED: &str = "Edited target.txt and wrote result.json.";
    for ((name, stream), end) in [
        (fixture!("text"), Completed(1200, Some("All done. RESULT: ok"))),
        (fixture!("tool"), Completed(2400, Some(EDITED))),
        (fixture!("toolfail"), Completed(2400, Some("The command failed with exit 3."))),
        (fixture!("reasoning"), Completed(2400, Some(EDITED))),
        (fixture!("file_change"), Completed(2400, Some("Patched."))),
        (fixture!("codemode_tool"), Completed(2400, Some(EDITED))),
        (fixture!("readonly_denied"), Completed(2400, Some(EDITED))),
        (fixture!("left_running"), Completed(2400, Some("Done."))),
        (fixture!("mcp_short"), Completed(2400, Some("Done."))),
        (fixture!("mcp_tt3"), Completed(2400, Some("Done."))),
        (fixture!("empty"), Completed(1200, None)),
        (fixture!("500_once"), Completed(1200, Some("All done after a retry. RESULT: ok"))),
        (fixture!("drop_mid_once"), Completed(1200, Some("All done after a retry. RESULT: ok"))),
        (fixture!("400"), Failed(Cause::Worker)),
        (fixture!("401"), Failed(Cause::Auth)),
        (fixture!("403"), Failed(Cause::Auth)),
        (fixture!("404"), Failed(Cause::Worker)),
        (fixture!("no_key"), Failed(Cause::Auth)),
        (fixture!("429"), Failed(Cause::RateLimit)),
        (fixture!("429_ra2"), Failed(Cause::RateLimit)),
        (fixture!("429_usage"), Failed(Cause::UsageLimit)),
        (fixture!("429_quota"), Failed(Cause::UsageLimit)),
        (fixture!("500"), Failed(Cause::RateLimit)),
        (fixture!("503"), Failed(Cause::RateLimit)),
        (fixture!("sse_rate"), Failed(Cause::RateLimit)),
        (fixture!("sse_overload"), Failed(Cause::RateLimit)),
        (fixture!("sse_quota"), Failed(Cause::UsageLimit)),
        (fixture!("sse_context"), Failed(Cause::Context)),
        (fixture!("drop"), Failed(Cause::Network)),
        (fixture!("drop_mid"), Failed(Cause::Network)),
        (fixture!("refused_bounded"), Failed(Cause::Network)),
        (fixture!("refused"), Missing),
        (fixture!("sigkill_tool"), Missing),
    ] {
        let (summary, _) = read(stream.as_bytes());
        assert_eq!(summary.session.as_deref(), Some(SESSION), "{name}");
        let (input, message) = (summary.usage.map(|usage| usage.input_tokens), summary.message.as_deref());
        let class = summary.error.as_ref().map(|error| error.class);
        let seen = (summary.final_event, class, input, message);
        match end {
            Completed(tokens, text) => assert_eq!(seen, (FinalEvent::Completed, None, Some(tokens), text), "{name}"),
            Failed(cause) => assert_eq!(seen, (FinalEvent::Failed, Some(cause), None, None), "{name}"),
            Missing => assert_eq!(seen, (FinalEvent::Missing, None, None, None), "{name}"),
        }
    }
}

#[test]
fn work_is_shown_line_by_line() {
    let (_, tool) = fixture!("tool");
    let shown = lines(tool);
    assert!(shown[1].0.starts_with("warning: Model metadata") && !shown[1].1);
    assert!(shown[3].0.starts_with("$ printf 'edited by worker\\n' >> target.txt &&"), "{shown:?}");
    assert!(shown[4].0.starts_with("exit 0: printf") && shown[4].1);
    assert_eq!(shown[5].0, "Edited target.txt and wrote result.json.");
    let (_, edit) = fixture!("file_change");
    assert_eq!(lines(edit)[2].0, "edits +/w/result.json, /w/target.txt");
    let (_, mcp) = fixture!("mcp_tt3");
    assert_eq!(lines(mcp)[2].0, "calls stub.sleep");
    assert!(lines(mcp)[3].0.starts_with("called stub.sleep: tool call error"));
}

#[test]
fn a_retry_is_no_progress_and_no_failure() {
    let (_, refused) = fixture!("refused");
    let shown = lines(refused);
    assert!(shown[2..].iter().all(|(line, progress)| line.starts_with("Reconnecting...") && !progress), "{shown:?}");
    let stream = [
        r#"{"type":"error","message":"Reconnecting... 1/5 (unexpected status 401 Unauthorized)"}"#,
        r#"{"type":"item.completed","item":{"type":"error","message":"rate limit 429"}}"#,
        r#"{"type":"turn.completed","usage":{"input_tokens":1}}"#,
    ]
    .join("\n");
    let (summary, _) = read(format!("{stream}\n").as_bytes());
    assert_eq!((summary.final_event, summary.error), (FinalEvent::Completed, None));
}

#[test]
fn an_error_that_work_follows_was_not_the_end() {
    let error = r#"{"type":"error","message":"rate limit exceeded"}"#;
    let work = r#"{"type":"item.started","item":{"type":"command_execution","command":"ls"}}"#;
    let class = |stream: &str| read(stream.as_bytes()).0.error.map(|error| error.class);
    assert_eq!(class(&format!("{error}\n")), Some(Cause::RateLimit));
    assert_eq!(class(&format!("{error}\n{work}\n")), None);
}

#[test]
fn failure_words_in_ordinary_text_are_no_failure() {
    let stream = [
        r#"{"type":"item.completed","item":{"type":"agent_message","text":"Documented: usage limit, 429, rate limit exceeded, turn.failed"}}"#,
        r#"{"type":"item.completed","item":{"type":"command_execution","command":"cat e","aggregated_output":"{\"type\":\"turn.failed\",\"error\":{\"message\":\"You’ve hit your usage limit\"}}\n","exit_code":0}}"#,
    ]
    .join("\n");
    let (summary, _) = read(format!("{stream}\n").as_bytes());
    assert_eq!((summary.final_event, summary.error), (FinalEvent::Missing, None));
}

#[test]
fn a_last_line_that_was_cut_does_not_count() {
    let (_, text) = fixture!("text");
    let (summary, _) = read(text.trim_end().as_bytes());
    assert_eq!(summary.final_event, FinalEvent::Missing);
    assert_eq!(summary.message.as_deref(), Some("All done. RESULT: ok"));
}

#[test]
fn lines_that_come_twice_change_nothing() {
    for (_, stream) in [fixture!("tool"), fixture!("429_usage")] {
        let twice: String = stream.lines().flat_map(|line| [line, "\n", line, "\n"]).collect();
        assert_eq!(read(twice.as_bytes()).0, read(stream.as_bytes()).0);
        assert_eq!(read(stream.repeat(2).as_bytes()).0, read(stream.as_bytes()).0);
    }
}

#[test]
fn noise_between_the_lines_changes_nothing() {
    let (_, tool) = fixture!("tool");
    let mut noisy = Vec::new();
    for line in tool.lines() {
        noisy.extend_from_slice(
            b"\0\0\xff\xfe not json\n\n[1,2]\n\"text\"\n{\"type\":7}\n{\"type\":\"of.tomorrow\",\"item\":null}\n",
        );
        noisy.extend_from_slice(b"{\"type\":\"item.completed\"}\n{\"type\":\"turn.failed\n\0\0");
        noisy.extend_from_slice(line.as_bytes());
        noisy.extend_from_slice(b"\r\n");
    }
    assert_eq!(read(&noisy).0, read(tool.as_bytes()).0);
    assert_eq!(read(&noisy).1, read(tool.as_bytes()).1);
}

#[test]
fn invalid_utf8_in_a_message_is_replaced() {
    let (summary, shown) =
        read(b"{\"type\":\"item.completed\",\"item\":{\"type\":\"agent_message\",\"text\":\"a\xff\\u001b[2Jb\"}}\n");
    assert_eq!(summary.message.as_deref(), Some("a\u{fffd}\u{1b}[2Jb"));
    assert_eq!(shown[0].line, "a\u{fffd}\\e[2Jb");
}

#[test]
fn an_over_long_line_is_skipped_and_said() {
    let mut reader = StreamReader::with_line_cap(StreamKind::Codex, 100);
    let mut shown = reader.feed(&[b'x'; 60]);
    shown.extend(reader.feed(&[b'x'; 60]));
    shown.extend(reader.feed(b"\n{\"type\":\"turn.completed\"}\n"));
    let said: Vec<&str> = shown.iter().map(|activity| activity.line.as_str()).collect();
    assert_eq!(said, ["(a line of more than 100 bytes was skipped)", "turn completed"]);
    assert_eq!(reader.summary().final_event, FinalEvent::Completed);
}

#[test]
fn the_message_of_an_error_body_is_shown() {
    let (_, stream) = fixture!("400");
    assert_eq!(read(stream.as_bytes()).0.error.unwrap().message, "error 400");
}

#[test]
fn the_reset_time_is_added_on_request() {
    let (_, stream) = fixture!("429_usage");
    let now: ZonedDateTime = "2026-11-30T14:11:00+00:00[UTC]".parse().unwrap();
    let error = read(stream.as_bytes()).0.with_reset_time(&now).error.unwrap();
    assert_eq!(error.resets_at.unwrap().0, "2026-11-30T14:23:00Z".parse::<jiff::Timestamp>().unwrap().as_millisecond());
}

proptest! {
    #[test]
    fn any_cutting_into_pieces_reads_the_same(
        order in prop::collection::vec(0usize..6, 1..12),
        noise in prop::collection::vec(any::<u8>(), 0..40),
        sizes in prop::collection::vec(1usize..400, 1..40),
    ) {
        let parts: [&[u8]; 6] = [
            fixture!("tool").1.as_bytes(), fixture!("429_usage").1.as_bytes(), fixture!("mcp_tt3").1.as_bytes(),
            fixture!("refused").1.as_bytes(), &noise, b"{\"type\":\"turn.completed\"}\n",
        ];
        let stream: Vec<u8> = order.iter().flat_map(|part| parts[*part].iter().copied()).collect();
        let mut whole = StreamReader::with_line_cap(StreamKind::Codex, 500);
        let expected = whole.feed(&stream);
        let mut cut = StreamReader::with_line_cap(StreamKind::Codex, 500);
        let (mut rest, mut shown) = (stream.as_slice(), Vec::new());
        for size in sizes.iter().cycle() {
            if rest.is_empty() { break; }
            let (piece, tail) = rest.split_at((*size).min(rest.len()));
            shown.extend(cut.feed(piece));
            rest = tail;
        }
        prop_assert_eq!(shown, expected);
        prop_assert_eq!(cut.summary(), whole.summary());
    }
}
