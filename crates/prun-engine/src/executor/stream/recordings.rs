//! What prun makes of everything that the real clients were recorded to say: one row a recording.
//!
//! `fixtures/index.tsv` tells of each recording the client's exit code (a signal's is negative), whether a
//! file was edited and whether a result was written. The recordings were made against a scripted model with the
//! client's own retries; ids, times and what no parser reads are left out.

use prun_core::judge::judge;
use prun_core::outcome::{
    AttemptFacts, ChangeKind, Changes, Channel, Exit, FileChange, FinalEvent, ResultFacts, SweepFacts,
};
use prun_core::time::Timestamp;

use super::{StreamKind, StreamReader, StreamSummary};

fn kind_of(client: &str) -> StreamKind {
    match client {
        "codex" | "codexjs" => StreamKind::Codex,
        "claude" | "qwen" => StreamKind::Claude,
        "gemini" => StreamKind::Gemini,
        "opencode" => StreamKind::Opencode,
        other => panic!("no parser for {other}"),
    }
}

fn fixtures(name: &str) -> String {
    let path = format!("{}/src/executor/fixtures/{name}", env!("CARGO_MANIFEST_DIR"));
    let bytes = std::fs::read(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The facts of a write unit whose client ended so. What it says and what it left is all there is to judge by;
/// a result that is there is taken to meet the contract.
fn facts(stream: &StreamSummary, exit: i32, edited: bool, result: bool) -> AttemptFacts {
    let answered = stream.final_event == FinalEvent::Completed && stream.message.is_some();
    let channel = if result { Channel::ResultFile } else { Channel::FinalEvent };
    let result = ResultFacts {
        channel: if result || answered { channel } else { Channel::Salvage },
        path: "/r".into(),
        bytes: 1,
        contract_gaps: Vec::new(),
        conclusion: None,
        open_items: None,
        files_claimed: None,
        misplaced: false,
    };
    let change = FileChange { path: "target.txt".into(), kind: ChangeKind::Modified, added: None, removed: None };
    let files = if edited { vec![change] } else { Vec::new() };
    AttemptFacts {
        version: 1,
        unit: "u".parse().unwrap(),
        attempt: prun_core::ids::Attempt(1),
        exit: if exit < 0 { Exit::Signal { signal: -exit } } else { Exit::Code { code: exit } },
        stopped: None,
        dispatcher_signal: None,
        dispatcher_died: false,
        setup: None,
        final_event: stream.final_event.clone(),
        error: stream.error.clone(),
        result: Some(result),
        missing_deliverables: Vec::new(),
        verify: None,
        expects_changes: true,
        changes: Some(Changes { files, ..Changes::default() }),
        harvest_error: None,
        sweep: SweepFacts::default(),
        read_only: Vec::new(),
        usage: stream.usage.or(stream.counted),
        model: stream.model.clone(),
        denied: stream.denied.clone(),
        session: stream.session.clone(),
        silent: Vec::new(),
        peak_rss_kib: None,
        cpu_millis: None,
        peak_memory_kib: None,
        oom_killed: false,
        started_at: Timestamp(0),
        ended_at: Timestamp(1),
        worker_millis: 1,
    }
}

fn row(line: &str) -> String {
    let [client, name, exit, edited, result] = line.split('\t').collect::<Vec<_>>()[..] else { panic!("{line}") };
    let mut reader = StreamReader::new(kind_of(client));
    reader.feed(fixtures(&format!("{client}/{name}.jsonl")).as_bytes());
    let stream = reader.summary();
    let outcome = judge(&facts(stream, exit.parse().unwrap(), edited == "edited", result == "result"));
    let tokens = stream.usage.or(stream.counted).map_or_else(
        || "-".to_owned(),
        |usage| {
            let money = usage.cost_micro_usd.map_or_else(String::new, |micro| format!(" {micro}µ$"));
            let turns = usage.turns.map_or_else(String::new, |turns| format!(" {turns}t"));
            format!("{}({})/{}{money}{turns}", usage.input_tokens, usage.cached_input_tokens, usage.output_tokens)
        },
    );
    let said = stream.error.as_ref().map(|error| &error.message).or(stream.message.as_ref());
    let said = said.map_or("", |said| said.lines().next().unwrap_or(""));
    let said: String = said.chars().take(48).collect();
    format!("{client} {name} exit {exit}: {outcome} | {tokens} | {said}").trim_end().to_owned()
}

#[test]
fn each_recording_has_its_verdict_usage_and_last_word() {
    let table: Vec<String> = fixtures("index.tsv").lines().map(row).collect();
    insta::assert_snapshot!(table.join("\n"), @r#"
    claude 400 exit 1: failed(worker) | 0(0)/0 0µ$ 1t | API Error: 400 fake error 400
    claude 401 exit 1: failed(auth) | 0(0)/0 0µ$ 1t | Invalid API key · Fix external API key
    claude 401_retry1 exit 1: failed(auth) | 0(0)/0 0µ$ 1t | Invalid API key · Fix external API key
    claude 403 exit 1: failed(auth) | 0(0)/0 0µ$ 1t | Failed to authenticate. API Error: 403 fake erro
    claude 404 exit 1: failed(worker) | 0(0)/0 0µ$ 1t | There's an issue with the selected model (claude
    claude 429 exit 1: failed(rate-limit) | 0(0)/0 0µ$ 1t | API Error: Request rejected (429) · This request
    claude 429_quota exit 1: failed(usage-limit) | 0(0)/0 0µ$ 1t | Credit balance is too low
    claude 429_ra2 exit 1: failed(rate-limit) | 0(0)/0 0µ$ 1t | API Error: Request rejected (429) · This request
    claude 429_ra3600 exit 1: failed(usage-limit) | 0(0)/0 0µ$ 1t | API Error: Request rejected (429) · This request
    claude 429_ra60 exit 1: failed(rate-limit) | 0(0)/0 0µ$ 1t | API Error: Request rejected (429) · This request
    claude 429_usage exit 1: failed(usage-limit) | 0(0)/0 0µ$ 1t | API Error: Request rejected (429) · This request
    claude 500 exit 1: failed(rate-limit) | 0(0)/0 0µ$ 1t | API Error: 500 Internal server error. This is a
    claude 500_once exit 0: incomplete(no-change) | 1200(1000)/34 840µ$ 1t | All done after a retry. RESULT: ok
    claude 500_retry1 exit 1: failed(rate-limit) | 0(0)/0 0µ$ 1t | API Error: 500 Internal server error. This is a
    claude 503 exit 1: failed(rate-limit) | 0(0)/0 0µ$ 1t | API Error: 503 fake error 503. This is a server-
    claude 529 exit 1: failed(rate-limit) | 0(0)/0 0µ$ 1t | API Error: 529 Overloaded. This is a server-side
    claude accept_edits exit 0: succeeded | 2400(2000)/68 1680µ$ 2t | Edited target.txt and wrote result.json.
    claude bgtool_ceil3s exit -9: failed(signal) | 2400(2000)/68 1680µ$ 2t | Done.
    claude bgtool_default exit -9: failed(signal) | 4800(4000)/136 3360µ$ 2t | Done.
    claude bgtool_disabled exit 0: incomplete(no-change) | 2400(2000)/68 1680µ$ 2t | Done.
    claude drop exit 1: failed(network) | 0(0)/0 0µ$ 1t | API Error: Connection dropped (ECONNRESET). Chec
    claude drop_mid exit 1: failed(network) | 3600(3000)/27 1770µ$ 1t | API Error: Connection dropped (ECONNRESET). Chec
    claude drop_mid_once exit 0: incomplete(no-change) | 1200(1000)/34 840µ$ 1t | All done after a retry. RESULT: ok
    claude edit_write exit 0: succeeded | 4800(4000)/136 3360µ$ 4t | Done.
    claude empty exit 0: failed(no-work) | 2400(2000)/68 1680µ$ 2t |
    claude exit_bg exit 0: incomplete(no-change) | 2400(2000)/68 1680µ$ 2t | Done.
    claude exit_bgtool exit -9: failed(signal) | 2400(2000)/68 1680µ$ 2t | Done.
    claude exit_devserver exit 0: incomplete(no-change) | 2400(2000)/68 1680µ$ 2t | Left a dev server.
    claude exit_nohup exit 0: incomplete(no-change) | 2400(2000)/68 1680µ$ 2t | Left a nohup job.
    claude exit_setsid exit 0: incomplete(no-change) | 2400(2000)/68 1680µ$ 2t | Left a setsid job.
    claude fgtool_default exit -9: failed(signal) | 2400(2000)/68 1680µ$ 2t | Done.
    claude fgtool_t10 exit -9: failed(signal) | 2400(2000)/68 1680µ$ 2t | Done.
    claude fgtool_t10_nobg exit 0: incomplete(no-change) | 2400(2000)/68 1680µ$ 2t | Done.
    claude hang exit -9: failed(network) | - | retry 1/10 in 0 s: unknown
    claude hang_headers exit -9: failed(signal) | - |
    claude hang_mid exit -9: failed(network) | - | retry 1/9 in 0 s: unknown
    claude hang_t10 exit 1: failed(network) | 0(0)/0 0µ$ 1t | Request timed out. If the API is slow to answer,
    claude hanghdr_idle exit 1: failed(network) | 0(0)/0 0µ$ 1t | Request timed out. If the API is slow to answer,
    claude json_schema exit 0: incomplete(no-change) | 1200(1000)/34 840µ$ 2t | {"status":"ok"}
    claude json_schema_ignored exit 0: incomplete(no-change) | 2400(2000)/68 1680µ$ 2t | All done. RESULT: ok
    claude max_budget exit 1: failed(worker) | 1200(1000)/34 840µ$ 1t | Reached maximum budget ($0.0001)
    claude max_turns exit 1: failed(worker) | 1200(1000)/34 840µ$ 2t | Reached maximum number of turns (1)
    claude mcp_long exit 0: incomplete(no-change) | 2400(2000)/68 1680µ$ 2t | Done.
    claude mcp_short exit 0: incomplete(no-change) | 2400(2000)/68 1680µ$ 2t | Done.
    claude not_logged_in exit 1: failed(auth) | 0(0)/0 0µ$ 1t | Not logged in · Please run /login
    claude partial_messages exit 0: incomplete(no-change) | 1200(1000)/34 840µ$ 1t | one two three four five six seven eight nine ten
    claude permission_denied exit 0: failed(permission) | 2400(2000)/68 1680µ$ 2t | Edited target.txt and wrote result.json.
    claude reasoning exit 0: succeeded | 2400(2000)/68 1680µ$ 2t | Edited target.txt and wrote result.json.
    claude recommended exit 0: succeeded | 2400(2000)/68 1680µ$ 2t | Edited target.txt and wrote result.json.
    claude refused exit 1: failed(network) | 0(0)/0 0µ$ 1t | API Error: Connection refused — a firewall or pr
    claude root_refused exit 1: failed(exit-code) | - |
    claude sighup_idle exit 129: failed(exit-code) | - |
    claude sigint_bg exit 0: failed(worker) | 1200(1000)/34 840µ$ 3t | [ede_diagnostic] result_type=user last_content_t
    claude sigint_fgbg exit 0: failed(worker) | 1200(1000)/34 840µ$ 3t | [ede_diagnostic] result_type=user last_content_t
    claude sigint_idle exit 0: incomplete(no-final-event) | - |
    claude sigint_tool exit 0: incomplete(no-final-event) | - |
    claude sigkill_bg exit -9: failed(signal) | - |
    claude sigkill_bgtool exit -9: failed(signal) | - |
    claude sigkill_idle exit -9: failed(signal) | - |
    claude sigkill_pgid_bg exit -9: failed(signal) | - |
    claude sigkill_pgid_tool exit -9: failed(signal) | - |
    claude sigkill_tool exit -9: failed(signal) | - |
    claude sigterm_bg exit 143: failed(exit-code) | - |
    claude sigterm_bgtool exit 143: failed(exit-code) | - |
    claude sigterm_fgbg exit 143: failed(exit-code) | - |
    claude sigterm_idle exit 143: failed(exit-code) | - |
    claude sigterm_pgid_bg exit 143: failed(exit-code) | - |
    claude sigterm_pgid_tool exit 143: failed(exit-code) | - |
    claude sigterm_tool exit 143: failed(exit-code) | - |
    claude slow exit 0: incomplete(no-change) | 1200(1000)/34 840µ$ 1t | one two three four five six seven eight nine ten
    claude sse_context exit 1: failed(context) | 1200(1000)/1 0µ$ 1t | Prompt is too long · the request is ~300000 toke
    claude sse_overload exit 1: failed(rate-limit) | 3600(3000)/3 0µ$ 1t | API Error: 529 Overloaded. This is a server-side
    claude sse_quota exit 1: failed(usage-limit) | 1200(1000)/1 0µ$ 1t | API Error: 529 You exceeded your current quota.
    claude sse_rate exit 1: failed(rate-limit) | 1200(1000)/1 0µ$ 1t | API Error: 529 Rate limit reached for fake-model
    claude text exit 0: incomplete(no-change) | 1200(1000)/34 840µ$ 1t | All done. RESULT: ok
    claude tool exit 0: succeeded | 2400(2000)/68 1680µ$ 2t | Edited target.txt and wrote result.json.
    claude toolfail exit 0: incomplete(no-change) | 2400(2000)/68 1680µ$ 2t | The command failed with exit 3.
    codex 400 exit 1: failed(worker) | - | error 400
    codex 401 exit 1: failed(auth) | - | unexpected status 401 Unauthorized: Incorrect AP
    codex 403 exit 1: failed(auth) | - | unexpected status 403 Forbidden: error 403
    codex 404 exit 1: failed(worker) | - | unexpected status 404 Not Found: error 404
    codex 429 exit 1: failed(rate-limit) | - | exceeded retry limit, last status: 429 Too Many
    codex 429_quota exit 1: failed(usage-limit) | - | Quota exceeded. Check your plan and billing deta
    codex 429_ra2 exit 1: failed(rate-limit) | - | exceeded retry limit, last status: 429 Too Many
    codex 429_ra3600 exit -9: failed(signal) | - |
    codex 429_ra60 exit -9: failed(signal) | - |
    codex 429_usage exit 1: failed(usage-limit) | - | You’ve hit your usage limit. Visit the settings
    codex 500 exit 1: failed(rate-limit) | - | We’re currently experiencing high demand, which
    codex 500_once exit 0: incomplete(no-change) | 1200(1000)/34 | All done after a retry. RESULT: ok
    codex 503 exit 1: failed(rate-limit) | - | unexpected status 503 Service Unavailable: error
    codex codemode_gpt-5.5 exit 0: succeeded | 2400(2000)/68 | Edited target.txt and wrote result.json.
    codex codemode_gpt-6.2-sol exit 0: succeeded | 2400(2000)/68 | Edited target.txt and wrote result.json.
    codex codemode_tool exit 0: succeeded | 2400(2000)/68 | Edited target.txt and wrote result.json.
    codex drop exit 1: failed(network) | - | stream disconnected before completion: error sen
    codex drop_mid exit 1: failed(network) | - | stream disconnected before completion: Transport
    codex drop_mid_once exit 0: incomplete(no-change) | 1200(1000)/34 | All done after a retry. RESULT: ok
    codex empty exit 0: failed(no-work) | 1200(1000)/34 |
    codex exit_bg exit 0: incomplete(no-change) | 2400(2000)/68 | Left a background job.
    codex exit_devserver exit 0: incomplete(no-change) | 2400(2000)/68 | Left a dev server.
    codex exit_nohup exit 0: incomplete(no-change) | 2400(2000)/68 | Left a nohup job.
    codex exit_running_session exit 0: incomplete(no-change) | 2400(2000)/68 | Done.
    codex exit_setsid exit 0: incomplete(no-change) | 2400(2000)/68 | Left a setsid job.
    codex file_change exit 0: succeeded | 2400(2000)/68 | Patched.
    codex hang exit -9: failed(signal) | - |
    codex hang_headers exit -9: failed(signal) | - |
    codex hang_mid exit -9: failed(signal) | - |
    codex left_running exit 0: incomplete(no-change) | 2400(2000)/68 | Done.
    codex mcp_long exit 0: incomplete(no-change) | 2400(2000)/68 | Done.
    codex mcp_short exit 0: incomplete(no-change) | 2400(2000)/68 | Done.
    codex mcp_tt3 exit 0: incomplete(no-change) | 2400(2000)/68 | Done.
    codex no_key exit 1: failed(auth) | - | Missing environment variable: `FAKE_KEY`.
    codex otel_stderr exit 0: succeeded | 2400(2000)/68 | Edited target.txt and wrote result.json.
    codex output_schema exit 0: incomplete(no-change) | 1200(1000)/34 | {"status":"ok"}
    codex readonly_denied exit 0: incomplete(no-change) | 2400(2000)/68 | Edited target.txt and wrote result.json.
    codex reasoning exit 0: succeeded | 2400(2000)/68 | Edited target.txt and wrote result.json.
    codex recommended exit 0: succeeded | 2400(2000)/68 | Edited target.txt and wrote result.json.
    codex refused exit -9: failed(signal) | - |
    codex refused_bounded exit 1: failed(network) | - | Connection failed: error sending request
    codex sighup_idle exit -1: failed(signal) | - |
    codex sigint_bg exit 1: failed(exit-code) | - |
    codex sigint_fgbg exit 1: failed(exit-code) | - |
    codex sigint_idle exit 1: failed(exit-code) | - |
    codex sigint_pgid_tool exit 1: failed(exit-code) | - |
    codex sigint_tool exit 1: failed(exit-code) | - |
    codex sigkill_bg exit -9: failed(signal) | - |
    codex sigkill_idle exit -9: failed(signal) | - |
    codex sigkill_pgid_bg exit -9: failed(signal) | - |
    codex sigkill_pgid_tool exit -9: failed(signal) | - |
    codex sigkill_tool exit -9: failed(signal) | - |
    codex sigterm_bg exit -15: failed(signal) | - |
    codex sigterm_fgbg exit -15: failed(signal) | - |
    codex sigterm_idle exit -15: failed(signal) | - |
    codex sigterm_pgid_bg exit -15: failed(signal) | - |
    codex sigterm_tool exit -15: failed(signal) | - |
    codex slow exit 0: incomplete(no-change) | 1200(1000)/34 | one two three four five six seven eight nine ten
    codex sse_context exit 1: failed(context) | - | Codex ran out of room in the model's context win
    codex sse_overload exit 1: failed(rate-limit) | - | Selected model is at capacity. Please try a diff
    codex sse_quota exit 1: failed(usage-limit) | - | Quota exceeded. Check your plan and billing deta
    codex sse_rate exit 1: failed(rate-limit) | - | rate limit exceeded: Rate limit reached for some
    codex text exit 0: incomplete(no-change) | 1200(1000)/34 | All done. RESULT: ok
    codex tool exit 0: succeeded | 2400(2000)/68 | Edited target.txt and wrote result.json.
    codex toolfail exit 0: incomplete(no-change) | 2400(2000)/68 | The command failed with exit 3.
    codex workspace_write exit 0: succeeded | 2400(2000)/68 | Edited target.txt and wrote result.json.
    codex ws_killpg exit -9: failed(signal) | - |
    codex ws_sigint exit 1: failed(exit-code) | - |
    codex ws_sigkill exit -9: failed(signal) | - |
    codex ws_sigterm exit -15: failed(signal) | - |
    codexjs sigint_idle exit 1: failed(exit-code) | - |
    codexjs sigkill_idle exit -9: failed(signal) | - |
    codexjs sigkill_pgid_idle exit -9: failed(signal) | - |
    codexjs sigterm_idle exit -15: failed(signal) | - |
    codexjs sigterm_pgid_tool exit -15: failed(signal) | - |
    codexjs text exit 0: incomplete(no-change) | 1200(1000)/34 | ok
    gemini 401 exit 145: failed(auth) | 0(0)/0 | [API Error: {"error":{"code":401,"message":"fake
    gemini 429 exit -9: failed(signal) | - |
    gemini 429_usage exit 173: failed(usage-limit) | 0(0)/0 | [API Error: You have exhausted your daily quota
    gemini 500 exit -9: failed(signal) | - |
    gemini drop_mid exit 1: failed(network) | 0(0)/0 | [API Error: terminated]
    gemini hang_mid exit -9: failed(signal) | - |
    gemini text exit 0: incomplete(no-change) | 1200(1000)/34 | All done. RESULT: ok
    gemini tool exit 0: succeeded | 2400(2000)/68 | Edited target.txt and wrote result.json.
    opencode 401 exit 1: failed(auth) | - | Incorrect API key provided: test-key.
    opencode 429 exit 1: failed(rate-limit) | - | Rate limit reached for fake-model on tokens per
    opencode 429_usage exit 1: failed(usage-limit) | - | The usage limit has been reached
    opencode 500 exit 1: failed(rate-limit) | - | The server had an error while processing your re
    opencode drop_mid exit 1: failed(network) | - | Connection reset by server
    opencode hang_mid exit -9: failed(signal) | - |
    opencode text exit 0: incomplete(no-change) | 1200(1000)/34 0µ$ 1t | All done. RESULT: ok
    opencode tool exit 0: succeeded | 2400(2000)/68 0µ$ 2t | Edited target.txt and wrote result.json.
    qwen 401 exit 1: failed(auth) | 0(0)/0 1t | [API Error: 401 Incorrect API key provided: test
    qwen 429 exit -9: failed(rate-limit) | - | retry 1 in 60 s
    qwen 429_usage exit -9: failed(rate-limit) | - | retry 1 in 60 s
    qwen 500 exit 1: failed(rate-limit) | 0(0)/0 1t | [API Error: 500 The server had an error while pr
    qwen drop_mid exit 1: failed(network) | 0(0)/0 1t | [API Error: terminated (cause: UND_ERR_SOCKET: o
    qwen hang_mid exit -9: failed(signal) | - |
    qwen text exit 0: incomplete(no-change) | 2400(2000)/68 1t | All done. RESULT: ok
    qwen tool exit 0: succeeded | 2400(2000)/68 2t | Edited target.txt and wrote result.json.
    "#);
}
