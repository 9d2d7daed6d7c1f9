//! A client of `prun mcp` that trusts nothing: every line it reads has to be a message of the protocol.

#![expect(clippy::needless_pass_by_value, reason = "what is sent is made in the call")]

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, ChildStdin, ExitStatus, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use prun_testkit::env::TestEnv;
use serde_json::{Value, json};

/// How long an answer may take. Generous: a loaded machine must not fail a test.
const PATIENCE: Duration = Duration::from_secs(60);

pub(crate) struct Client {
    child: Child,
    stdin: Option<ChildStdin>,
    lines: Receiver<String>,
    errors: Receiver<String>,
    next_id: u64,
    /// Notifications and answers to others, in the order in which they came.
    pub(crate) aside: Vec<Value>,
}

impl Client {
    /// A server that nobody has greeted yet.
    pub(crate) fn silent(env: &TestEnv) -> Self {
        let mut command = env.command(&["mcp"]);
        command.env("RUST_LOG", "debug").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let (sender, lines) = channel();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        std::thread::spawn(move || {
            for line in stdout.split(b'\n') {
                if sender.send(String::from_utf8(line.unwrap()).expect("stdout is UTF-8")).is_err() {
                    break;
                }
            }
        });
        let (sender, errors) = channel();
        let mut stderr = child.stderr.take().unwrap();
        std::thread::spawn(move || {
            let mut text = String::new();
            let _ = stderr.read_to_string(&mut text);
            let _ = sender.send(text);
        });
        Self { stdin: child.stdin.take(), child, lines, errors, next_id: 1_000, aside: Vec::new() }
    }

    /// A server after the handshake.
    pub(crate) fn new(env: &TestEnv) -> Self {
        let mut client = Self::silent(env);
        client.handshake("2025-06-18");
        client
    }

    /// Introduces itself; the version that the server answers with.
    pub(crate) fn handshake(&mut self, version: &str) -> String {
        let info =
            json!({"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}});
        let answer = self.request("initialize", info);
        self.notify("notifications/initialized", json!({}));
        answer["result"]["protocolVersion"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    }

    /// Sends a line as it is.
    pub(crate) fn line(&mut self, bytes: &[u8]) {
        let stdin = self.stdin.as_mut().unwrap();
        stdin.write_all(bytes).and_then(|()| stdin.write_all(b"\n")).unwrap();
    }

    pub(crate) fn notify(&mut self, method: &str, params: Value) {
        self.line(json!({"jsonrpc": "2.0", "method": method, "params": params}).to_string().as_bytes());
    }

    /// Sends a request and does not wait; its id.
    pub(crate) fn ask(&mut self, method: &str, params: Value) -> u64 {
        let id = self.next_id;
        self.next_id += 1;
        self.line(json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}).to_string().as_bytes());
        id
    }

    pub(crate) fn request(&mut self, method: &str, params: Value) -> Value {
        let id = self.ask(method, params);
        self.answer_to(id)
    }

    /// The answer to a request; what comes before it is kept aside.
    pub(crate) fn answer_to(&mut self, id: u64) -> Value {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let message = self.next(deadline.saturating_duration_since(Instant::now()));
            let message = message.unwrap_or_else(|| panic!("no answer to {id}; until then: {:?}", self.aside));
            if message["id"] == id {
                return message;
            }
            self.aside.push(message);
        }
    }

    /// The next message, or the answers to a batch, if one comes in time. A line that is none fails the test.
    pub(crate) fn next(&mut self, limit: Duration) -> Option<Value> {
        let line = self.lines.recv_timeout(limit).ok()?;
        let line: Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("stray output {line:?}: {error}"));
        let messages = line.as_array().map_or(std::slice::from_ref(&line), Vec::as_slice);
        assert!(!messages.is_empty() && messages.iter().all(|message| message["jsonrpc"] == "2.0"), "{line}");
        Some(line)
    }

    /// The answers to a batch: the next line.
    pub(crate) fn next_batch(&mut self) -> Vec<Value> {
        let answers = self.next(PATIENCE).expect("an answer");
        answers.as_array().unwrap_or_else(|| panic!("no batch: {answers}")).clone()
    }

    /// Calls a tool; its whole answer.
    pub(crate) fn call(&mut self, tool: &str, arguments: Value) -> Value {
        let answer = self.request("tools/call", json!({"name": tool, "arguments": arguments}));
        assert!(answer.get("result").is_some(), "{tool}: {answer}");
        answer["result"].clone()
    }

    /// Calls a tool that has to succeed: its text and its data.
    pub(crate) fn good(&mut self, tool: &str, arguments: Value) -> (String, Value) {
        let answer = self.call(tool, arguments);
        assert_ne!(answer["isError"], true, "{tool}: {answer}");
        (answer["content"][0]["text"].as_str().unwrap().to_owned(), answer["structuredContent"].clone())
    }

    /// Calls a tool that has to fail: its text and its data.
    pub(crate) fn bad(&mut self, tool: &str, arguments: Value) -> (String, Value) {
        let answer = self.call(tool, arguments);
        assert_eq!(answer["isError"], true, "{tool}: {answer}");
        (answer["content"][0]["text"].as_str().unwrap().to_owned(), answer["structuredContent"].clone())
    }

    /// Waits, call after call, until the run has ended; the last answer's data.
    pub(crate) fn wait_for_end(&mut self, run: &str) -> Value {
        let mut since = 0;
        loop {
            let (_, data) = self.good("wait", json!({"run": run, "since": since}));
            if data["state"] != "running" {
                return data;
            }
            since = data["next"].as_u64().unwrap();
        }
    }

    /// Memory at its peak, in KiB.
    pub(crate) fn peak_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse().unwrap()
    }

    /// Closes the server's stdin: how it ended, what it had still to say, and its stderr.
    pub(crate) fn leave(mut self) -> (ExitStatus, Vec<Value>, String) {
        drop(self.stdin.take());
        let mut last = std::mem::take(&mut self.aside);
        while let Some(message) = self.next(PATIENCE) {
            last.push(message);
        }
        let status = self.child.wait().unwrap();
        (status, last, self.errors.recv().unwrap_or_default())
    }
}

impl Drop for Client {
    fn drop(&mut self) {
        drop(self.stdin.take());
        // It was waited for already where the test left it properly.
        let _ = self.child.wait();
    }
}
