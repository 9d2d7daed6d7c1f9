use proptest::prelude::*;
use prun_core::outcome::Cause;

use super::*;

macro_rules! fixture {
    ($name:literal) => {
        ($name, include_str!(concat!("../fixtures/codex/", $name, ".jsonl")))
    };
}

fn recording(client: &str, name: &str) -> String {
    let dir = concat!(env!("CARGO_MANIFEST_DIR"), "/src/executor/fixtures");
    std::fs::read_to_string(format!("{dir}/{client}/{name}.jsonl")).unwrap()
}

/// The stream kind of a client, by the name of its recordings' directory.
fn kind_of(client: &str) -> StreamKind {
    match client {
        "codex" | "codexjs" => StreamKind::Codex,
        "claude" | "qwen" => StreamKind::Claude,
        "gemini" => StreamKind::Gemini,
        "opencode" => StreamKind::Opencode,
        other => panic!("no recordings of {other}"),
    }
}

fn read(stream: &[u8]) -> (StreamSummary, Vec<Activity>) {
    read_as(StreamKind::Codex, stream)
}

fn read_as(kind: StreamKind, stream: &[u8]) -> (StreamSummary, Vec<Activity>) {
    let mut reader = StreamReader::new(kind);
    let activities = reader.feed(stream);
    (reader.summary().clone(), activities)
}

fn shown(kind: StreamKind, stream: &str) -> Vec<(String, bool)> {
    let activities = read_as(kind, stream.as_bytes()).1.into_iter();
    activities.filter_map(|activity| Some((activity.line?, activity.is_progress))).collect()
}

fn lines(stream: &str) -> Vec<(String, bool)> {
    shown(StreamKind::Codex, stream)
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
    assert_eq!(shown[0].line.as_deref().unwrap(), "a\u{fffd}\\e[2Jb");
}

#[test]
fn an_over_long_line_is_skipped_and_said() {
    let mut reader = StreamReader::with_line_cap(StreamKind::Codex, 100);
    let mut shown = reader.feed(&[b'x'; 60]);
    shown.extend(reader.feed(&[b'x'; 60]));
    shown.extend(reader.feed(b"\n{\"type\":\"turn.completed\"}\n"));
    let said: Vec<&str> = shown.iter().map(|activity| activity.line.as_deref().unwrap_or_default()).collect();
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

#[test]
fn claudes_work_is_shown_line_by_line_and_pieces_of_messages_are_progress_alone() {
    let recorded = recording("claude", "recommended");
    let lines = shown(StreamKind::Claude, &recorded);
    let texts: Vec<&str> = lines.iter().map(|(line, _)| line.as_str()).collect();
    assert!(texts[0].contains("model claude-sonnet-5-5, permissions bypassPermissions"), "{texts:?}");
    assert!(texts[1].starts_with("$ printf 'edited by worker"), "{texts:?}");
    assert_eq!(texts[2..], ["Edited target.txt and wrote result.json.", "finished"]);
    let (_, all) = read_as(StreamKind::Claude, recorded.as_bytes());
    let pulses = all.iter().filter(|activity| activity.line.is_none());
    assert!(pulses.clone().count() >= 5 && pulses.clone().all(|activity| activity.is_progress), "{all:?}");
}

#[test]
fn claudes_retries_and_heartbeats_are_no_progress() {
    let (summary, activities) = read_as(StreamKind::Claude, recording("claude", "hang").as_bytes());
    assert!(!activities.last().unwrap().is_progress, "{activities:?}");
    let error = summary.error.map(|error| error.class);
    assert_eq!((summary.final_event, error), (FinalEvent::Missing, Some(Cause::Network)), "what it tries again for");
    let beat = r#"{"type":"tool_progress","tool_use_id":"t","tool_name":"Bash","elapsed_time_seconds":30}"#;
    assert_eq!(read_as(StreamKind::Claude, format!("{beat}\n").as_bytes()).1, []);
}

#[test]
fn a_claude_that_is_ended_has_told_what_it_used() {
    let recorded = recording("claude", "recommended");
    let without_result: String =
        recorded.lines().filter(|line| !line.contains(r#""type":"result""#)).map(|line| format!("{line}\n")).collect();
    let (summary, _) = read_as(StreamKind::Claude, without_result.as_bytes());
    assert_eq!(summary.final_event, FinalEvent::Missing);
    let usage = |text: &str| {
        {
            let summary = read_as(StreamKind::Claude, text.as_bytes()).0;
            summary.usage.or(summary.counted)
        }
        .map(|usage| (usage.input_tokens, usage.output_tokens))
    };
    assert_eq!(usage(&without_result), Some((2400, 68)));
    assert_eq!(usage(&without_result.repeat(2)), Some((2400, 68)), "messages that come twice count once");
    assert_eq!(usage(&recorded), Some((2400, 68)));
}

#[test]
fn a_limit_that_claude_reports_in_an_event_tells_its_reset() {
    let limit = r#"{"type":"rate_limit_event","rate_limit_info":{"status":"rejected","resetsAt":1796046000,"rateLimitType":"five_hour"}}"#;
    let failed = recording("claude", "429_usage");
    let (summary, _) = read_as(StreamKind::Claude, format!("{limit}\n{failed}").as_bytes());
    let error = summary.error.unwrap();
    assert_eq!((error.class, error.resets_at.map(|at| at.0)), (Cause::UsageLimit, Some(1_796_046_000_000)));
    let near = limit.replace("rejected", "allowed_warning");
    let (summary, activities) = read_as(StreamKind::Claude, format!("{near}\n{failed}").as_bytes());
    assert_eq!(summary.error.unwrap().resets_at, None);
    assert!(activities.iter().all(|activity| activity.line.as_deref() != Some("the limit five_hour is used up")));
}

#[test]
fn tools_that_need_a_person_are_not_denied_tools() {
    let denial = |tool: &str| {
        format!(
            r#"{{"type":"result","subtype":"success","is_error":false,"result":"r","permission_denials":[{{"tool_name":"{tool}"}},{{"tool_name":"{tool}"}}]}}"#
        )
    };
    let denied = |tool: &str| read_as(StreamKind::Claude, format!("{}\n", denial(tool)).as_bytes()).0.denied;
    assert_eq!(denied("Bash"), ["Bash"]);
    assert_eq!(denied("AskUserQuestion"), Vec::<String>::new());
}

#[test]
fn a_subagents_words_are_not_the_answer() {
    let own = r#"{"type":"assistant","message":{"content":[{"type":"text","text":"mine"}]},"parent_tool_use_id":null}"#;
    let other = own.replace("mine", "theirs").replace("null", "\"toolu_1\"");
    let (summary, activities) = read_as(StreamKind::Claude, format!("{own}\n{other}\n").as_bytes());
    assert_eq!((summary.message.as_deref(), activities.len()), (Some("mine"), 2));
}

#[test]
fn a_plain_answer_is_kept_whole_up_to_its_limit() {
    let (summary, activities) = read_as(StreamKind::Text, "one\nzwö".as_bytes());
    assert_eq!(summary.message.as_deref(), Some("one\nzwö"));
    assert_eq!((activities.len(), summary.final_event), (1, FinalEvent::NotApplicable));
    let mut reader = StreamReader::new(StreamKind::Text);
    for _ in 0..=TEXT_CAP / 1000 {
        reader.feed(&[b'x'; 1000]);
    }
    reader.feed(b"end");
    assert_eq!(reader.summary().message, None);
}

/// **C111**: only the last word of a client is final, whatever errors it told of before.
#[test]
fn errors_on_the_way_are_not_the_end() {
    for client in ["codex", "claude"] {
        for name in ["500_once", "drop_mid_once"] {
            let (summary, _) = read_as(kind_of(client), recording(client, name).as_bytes());
            assert_eq!((summary.final_event, summary.error), (FinalEvent::Completed, None), "{client} {name}");
        }
    }
}

/// **C112**: a unit that documents errors has not failed by its words, in any client's stream.
#[test]
fn failure_words_of_a_worker_are_no_failure() {
    let words = "API Error: 429 usage limit reached, rate_limit, turn.failed, is_error true, 401 Unauthorized";
    let quoted = r#"{\"type\":\"result\",\"is_error\":true,\"type\":\"turn.failed\",\"status\":\"error\"}"#;
    for (kind, lines) in [
        (
            StreamKind::Claude,
            vec![
                r#"{"type":"assistant","message":{"content":[{"type":"text","text":"WORDS"}]}}"#,
                r#"{"type":"user","message":{"content":[{"type":"tool_result","is_error":true,"content":"WORDS"}]}}"#,
                r#"{"type":"result","subtype":"success","is_error":false,"result":"WORDS"}"#,
            ],
        ),
        (
            StreamKind::Gemini,
            vec![
                r#"{"type":"message","role":"assistant","content":"WORDS","delta":true}"#,
                r#"{"type":"result","status":"success","stats":{}}"#,
            ],
        ),
        (
            StreamKind::Opencode,
            vec![
                r#"{"type":"text","sessionID":"s","part":{"text":"WORDS"}}"#,
                r#"{"type":"tool_use","sessionID":"s","part":{"tool":"bash","state":{"output":"WORDS","error":"WORDS"}}}"#,
                r#"{"type":"step_finish","sessionID":"s","part":{"id":"p","reason":"stop","tokens":{}}}"#,
            ],
        ),
        (
            StreamKind::Codex,
            vec![
                r#"{"type":"item.completed","item":{"type":"agent_message","text":"WORDS"}}"#,
                r#"{"type":"item.completed","item":{"type":"command_execution","command":"c","aggregated_output":"WORDS","exit_code":1}}"#,
                r#"{"type":"turn.completed","usage":{}}"#,
            ],
        ),
    ] {
        for words in [words, quoted] {
            let stream: String = lines.iter().map(|line| line.replace("WORDS", words) + "\n").collect();
            let (summary, _) = read_as(kind, stream.as_bytes());
            assert_eq!((summary.final_event, summary.error), (FinalEvent::Completed, None), "{kind:?} {stream}");
        }
    }
}

/// **C110**: what a kill cut off does not count, wherever it fell; without the last line nothing is final.
#[test]
fn a_stream_that_is_cut_anywhere_ends_without_a_last_word() {
    for (client, name) in
        [("codex", "tool"), ("claude", "tool"), ("gemini", "tool"), ("opencode", "tool"), ("qwen", "tool")]
    {
        let whole = recording(client, name);
        let last = whole.trim_end().rfind('\n').unwrap() + 1;
        for end in (last..whole.trim_end().len()).chain([last / 2]) {
            let (summary, _) = read_as(kind_of(client), &whole.as_bytes()[..end]);
            assert_eq!((summary.final_event, summary.error), (FinalEvent::Missing, None), "{client} cut at {end}");
        }
    }
}

/// Noise of 10 MB in one line is skipped or read, and what follows is understood.
#[test]
fn a_line_of_ten_megabytes_costs_no_more_than_its_size() {
    let long =
        format!(r#"{{"type":"item.completed","item":{{"type":"agent_message","text":"{}"}}}}"#, "x".repeat(10 << 20));
    let mut reader = StreamReader::new(StreamKind::Codex);
    for piece in long.as_bytes().chunks(64 * 1024).chain([&b"\n{\"type\":\"turn.completed\"}\n"[..]]) {
        reader.feed(piece);
    }
    assert_eq!(reader.summary().message.as_ref().map(String::len), Some(10 << 20));
    assert_eq!(reader.summary().final_event, FinalEvent::Completed);
    assert!(reader.lines.begun.capacity() <= 64 * 1024, "the line is not held");
}

const CLIENTS: [(StreamKind, [&str; 4]); 4] = [
    (StreamKind::Codex, ["codex/tool", "codex/429_usage", "codex/mcp_tt3", "codex/refused"]),
    (StreamKind::Claude, ["claude/recommended", "claude/429_usage", "claude/permission_denied", "qwen/429"]),
    (StreamKind::Gemini, ["gemini/tool", "gemini/429_usage", "gemini/drop_mid", "gemini/text"]),
    (StreamKind::Opencode, ["opencode/tool", "opencode/429_usage", "opencode/hang_mid", "opencode/text"]),
];

proptest! {
    #[test]
    fn any_cutting_into_pieces_reads_the_same(
        client in 0usize..4,
        order in prop::collection::vec(0usize..6, 1..10),
        noise in prop::collection::vec(any::<u8>(), 0..40),
        sizes in prop::collection::vec(1usize..400, 1..40),
    ) {
        let (kind, names) = CLIENTS[client];
        let recordings = names.map(|name| name.split_once('/').map(|(client, name)| recording(client, name)).unwrap());
        let mut parts: Vec<&[u8]> = recordings.iter().map(String::as_bytes).collect();
        parts.extend([&noise, &b"{\"type\":\"turn.completed\"}\n"[..]]);
        let stream: Vec<u8> = order.iter().flat_map(|part| parts[*part].iter().copied()).collect();
        let mut whole = StreamReader::with_line_cap(kind, 900);
        let expected = whole.feed(&stream);
        let mut cut = StreamReader::with_line_cap(kind, 900);
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

    #[test]
    fn noise_lines_and_lines_that_come_twice_change_nothing_for_any_client(
        client in 0usize..4,
        which in 0usize..4,
        noise in prop::collection::vec("[^\n{]{0,60}", 1..8),
        twice in prop::collection::vec(any::<bool>(), 1..8),
    ) {
        let (kind, names) = CLIENTS[client];
        let recorded = names[which].split_once('/').map(|(client, name)| recording(client, name)).unwrap();
        let lines: Vec<&str> = recorded.lines().collect();
        let mut noisy = String::new();
        for (at, line) in lines.iter().enumerate() {
            noisy += &format!("{}\n{line}\n", noise[at % noise.len()]);
            // Pieces of a message are told apart by nothing.
            let is_piece = line.contains(r#""delta":true"#);
            if twice[at % twice.len()] && !is_piece {
                noisy += &format!("{line}\n");
            }
        }
        prop_assert_eq!(read_as(kind, noisy.as_bytes()).0, read_as(kind, recorded.as_bytes()).0);
    }
}
