//! Lines that nobody would send: whatever comes, the server answers with messages or not at all, and lives.

use std::time::{Duration, Instant};

use prun_testkit::env::TestEnv;
use serde_json::{Value, json};

use super::client::Client;
use crate::support::PRUN;

/// How long, in seconds; a moment by default. `PRUN_FUZZ_SECONDS=60 cargo nextest run -p prun-cli mcp::fuzz`
const SECONDS: &str = "PRUN_FUZZ_SECONDS";

/// Numbers that differ each time and can be had again by their seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        // SplitMix64.
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, most: usize) -> usize {
        usize::try_from(self.next() % most as u64).unwrap()
    }

    fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}

fn value(random: &mut Random, depth: usize) -> Value {
    match random.below(if depth == 0 { 6 } else { 8 }) {
        0 => Value::Null,
        1 => json!(random.next().is_multiple_of(2)),
        2 => json!(random.next() as i64),
        3 => json!(random.next() as f64 / 7.0),
        4 => json!(random.pick(&["", "a/b", "../..", "\u{0}", "🦀", "-", "--json", "prun://x/plan", "\u{1b}[2J"])),
        5 => json!("x".repeat(random.below(3000))),
        6 => Value::Array((0..random.below(4)).map(|_| value(random, depth - 1)).collect()),
        _ => arguments(random, depth - 1),
    }
}

fn arguments(random: &mut Random, depth: usize) -> Value {
    const KEYS: &[&str] = &[
        "run",
        "unit",
        "plan",
        "plan_file",
        "dir",
        "since",
        "timeout_s",
        "tree",
        "file",
        "offset",
        "lines",
        "name",
        "arguments",
        "uri",
        "task",
        "why",
        "_meta",
        "progressToken",
        "requestId",
        "cursor",
    ];
    let count = random.below(4);
    Value::Object((0..count).map(|_| ((*random.pick(KEYS)).to_owned(), value(random, depth))).collect())
}

fn message(random: &mut Random) -> Vec<u8> {
    const METHODS: &[&str] = &[
        "initialize",
        "ping",
        "tools/list",
        "tools/call",
        "resources/list",
        "resources/read",
        "prompts/get",
        "prompts/list",
        "notifications/cancelled",
        "notifications/initialized",
        "notifications/progress",
        "logging/setLevel",
        "completion/complete",
        "server/discover",
        "subscriptions/listen",
        "tasks/get",
        "",
    ];
    // Nothing that starts or waits: the rest has to answer at once.
    const TOOLS: &[&str] = &[
        "check",
        "status",
        "result",
        "logs",
        "brief",
        "diff",
        "usage",
        "retry",
        "stop",
        "accept",
        "compare",
        "exclude",
        "submit",
        "reconcile",
        "integrate",
        "no-such",
    ];
    let mut message = json!({"jsonrpc": "2.0", "id": random.next() % 50, "method": random.pick(METHODS)});
    if random.below(3) > 0 {
        message["params"] = match message["method"].as_str() {
            Some("tools/call") => json!({"name": random.pick(TOOLS), "arguments": arguments(random, 2)}),
            _ => arguments(random, 3),
        };
    }
    for key in ["jsonrpc", "id", "method", "params"] {
        match random.below(12) {
            0 => drop(message.as_object_mut().unwrap().remove(key)),
            1 => message[key] = value(random, 2),
            _ => {}
        }
    }
    let mut bytes = message.to_string().into_bytes();
    match random.below(6) {
        // Bytes flipped, cut, repeated.
        0 => {
            for _ in 0..=random.below(4) {
                let at = random.below(bytes.len());
                bytes[at] = u8::try_from(random.next() % 256).unwrap();
            }
        }
        1 => bytes.truncate(random.below(bytes.len())),
        2 => bytes = [bytes.clone(), bytes].concat(),
        _ => {}
    }
    bytes.retain(|byte| *byte != b'\n');
    bytes
}

/// A message, or several in a batch.
fn line(random: &mut Random) -> Vec<u8> {
    if random.below(8) > 0 {
        return message(random);
    }
    let messages: Vec<Vec<u8>> = (0..random.below(5)).map(|_| message(random)).collect();
    [b"[", messages.join(&b","[..]).as_slice(), b"]"].concat()
}

/// C117.
#[test]
fn malformed_messages_never_end_the_server_nor_put_a_stray_byte_on_stdout() {
    let env = TestEnv::new(PRUN);
    let seconds = std::env::var(SECONDS).ok().and_then(|text| text.parse().ok()).unwrap_or(2);
    let seed = u64::from(std::process::id()) << 32 | u64::from(Instant::now().elapsed().subsec_nanos());
    let (mut random, mut client) = (Random(seed), Client::silent(&env));
    // The version that has batches.
    client.handshake("2025-03-26");
    let (deadline, mut sent) = (Instant::now() + Duration::from_secs(seconds), 0_u64);
    println!("seed {seed}");
    while Instant::now() < deadline {
        for _ in 0..50 {
            client.line(&line(&mut random));
            sent += 1;
        }
        // Reading checks each line; the last word shows that it still listens.
        let alive = client.ask("ping", json!({"seed": seed}));
        client.aside.clear();
        let id = json!(alive);
        loop {
            let message = client.next(Duration::from_secs(60)).unwrap_or_else(|| panic!("silent; seed {seed}"));
            if message["id"] == id && message.get("result").is_some_and(|result| *result == json!({})) {
                break;
            }
        }
    }
    let (status, _, errors) = client.leave();
    println!("{sent} lines");
    assert!(status.success(), "{status}; seed {seed}");
    assert!(!errors.contains("panicked"), "seed {seed}: {errors}");
    assert_eq!(env.git("status --short"), "");
}
