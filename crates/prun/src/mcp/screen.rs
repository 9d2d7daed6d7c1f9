//! What a line of the client's is: a message for the protocol's library, or something to be answered at once.
//!
//! The library ends a connection on what it does not expect before the handshake and is silent on what is no
//! JSON; a client that waits for an answer would wait for ever.

use rmcp::ErrorData;
use rmcp::model::{
    ClientJsonRpcMessage, ClientRequest, JsonRpcMessage, JsonRpcRequest, RequestId, ServerJsonRpcMessage,
};
use serde_json::Value;

/// Where a request without a handshake says which version it speaks (since 2026-07-28).
const INLINE_VERSION: &str = "io.modelcontextprotocol/protocolVersion";

/// The one version that has batches, which a server must take. The one before does not mention them, the next one
/// removed them.
const WITH_BATCHES: &str = "2025-03-26";

/// Messages of a batch; each may be answered with 16 KiB.
const LARGEST_BATCH: usize = 100;

/// Requests that may come before the handshake.
const FIRST: &[&str] = &["initialize", "ping", "server/discover"];

/// Requests whose parameters the library takes for a method it does not know when they are wrong.
const KNOWN: &[&str] = &[
    "initialize",
    "tools/call",
    "tools/list",
    "resources/read",
    "resources/list",
    "resources/templates/list",
    "prompts/get",
    "prompts/list",
    "completion/complete",
];

/// What is to be done with a line.
#[derive(Debug)]
pub(super) enum Screened {
    /// It goes to the library.
    Pass(Box<ClientJsonRpcMessage>),
    /// It is answered here.
    Answer(Box<ServerJsonRpcMessage>),
    /// Nothing: an empty line, or a notification that nobody waits for.
    Drop,
    /// Each of them, and the answers in one line.
    Batch(Vec<Screened>),
}

/// Remembers whether the client has introduced itself, and for which version.
#[derive(Debug, Default)]
pub(super) struct Screen {
    opened: bool,
    has_batches: bool,
}

impl Screen {
    /// Judges a line.
    pub(super) fn judge(&mut self, line: &[u8]) -> Screened {
        let text = line.strip_prefix(b"\xEF\xBB\xBF").unwrap_or(line).trim_ascii();
        if text.is_empty() {
            return Screened::Drop;
        }
        let message: Value = match serde_json::from_slice(text) {
            Ok(message) => message,
            Err(error) => return refuse(ErrorData::parse_error(format!("not JSON: {error}"), None), None),
        };
        match message {
            Value::Array(messages) => self.batch(messages),
            message => self.message(message),
        }
    }

    fn batch(&mut self, messages: Vec<Value>) -> Screened {
        if !self.has_batches {
            return invalid("batches belong to protocol version 2025-03-26 alone: send one message a line", None);
        }
        if messages.is_empty() || messages.len() > LARGEST_BATCH {
            return invalid(&format!("a batch has 1 to {LARGEST_BATCH} messages"), None);
        }
        let judge = |message: Value| {
            if message["method"] == "initialize" {
                let id = message.get("id").and_then(|id| serde_json::from_value(id.clone()).ok());
                return invalid("initialize is no part of a batch", id);
            }
            self.message(message)
        };
        Screened::Batch(messages.into_iter().map(judge).collect())
    }

    fn message(&mut self, message: Value) -> Screened {
        let Value::Object(fields) = &message else { return invalid("not an object", None) };
        let id = fields.get("id").and_then(|id| serde_json::from_value::<RequestId>(id.clone()).ok());
        let Some(method) = fields.get("method").and_then(Value::as_str).map(str::to_owned) else {
            let is_reply = fields.contains_key("result") || fields.contains_key("error");
            return if is_reply { self.pass_or_drop(message) } else { invalid("no method", id) };
        };
        match (fields.contains_key("id"), id) {
            (false, _) => self.pass_or_drop(message),
            (true, None) => invalid("the id is no string and no whole number", None),
            (true, Some(id)) => self.request(message, &method, id),
        }
    }

    fn request(&mut self, message: Value, method: &str, id: RequestId) -> Screened {
        let is_inline = message.pointer("/params/_meta").is_some_and(|meta| meta.get(INLINE_VERSION).is_some());
        if !self.opened && !is_inline && !FIRST.contains(&method) {
            return invalid("initialize first", Some(id));
        }
        let is_known = KNOWN.contains(&method) && message["jsonrpc"] == "2.0";
        match serde_json::from_value::<ClientJsonRpcMessage>(message) {
            Err(_) if is_known => wrong_parameters(method, id),
            Err(error) => invalid(&format!("no message of the protocol: {error}"), Some(id)),
            Ok(JsonRpcMessage::Request(JsonRpcRequest { request: ClientRequest::CustomRequest(_), .. }))
                if is_known =>
            {
                wrong_parameters(method, id)
            }
            Ok(parsed) => {
                if let JsonRpcMessage::Request(JsonRpcRequest {
                    request: ClientRequest::InitializeRequest(greeting),
                    ..
                }) = &parsed
                {
                    // It is one that we know, so it is what we answer with.
                    self.has_batches = greeting.params.protocol_version.as_str() == WITH_BATCHES;
                }
                self.opened |= method == "initialize" || (is_inline && method != "server/discover" && method != "ping");
                Screened::Pass(Box::new(parsed))
            }
        }
    }

    fn pass_or_drop(&self, message: Value) -> Screened {
        match serde_json::from_value(message) {
            Ok(parsed) if self.opened => Screened::Pass(Box::new(parsed)),
            _ => Screened::Drop,
        }
    }
}

fn wrong_parameters(method: &str, id: RequestId) -> Screened {
    refuse(ErrorData::invalid_params(format!("the parameters of {method} are wrong"), None), Some(id))
}

fn invalid(why: &str, id: Option<RequestId>) -> Screened {
    refuse(ErrorData::invalid_request(why.to_owned(), None), id)
}

fn refuse(error: ErrorData, id: Option<RequestId>) -> Screened {
    Screened::Answer(Box::new(ServerJsonRpcMessage::error(error, id)))
}

/// The answer to a line that is too long.
pub(super) fn too_long(most: usize) -> ServerJsonRpcMessage {
    ServerJsonRpcMessage::error(ErrorData::invalid_request(format!("a line of more than {most} bytes"), None), None)
}

#[cfg(test)]
mod tests {
    use super::*;

    const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-06-18","capabilities":{},"clientInfo":{"name":"t","version":"1"}}}"#;

    /// The code of the answer, `pass` or `drop`.
    fn judged(screen: &mut Screen, line: &[u8]) -> String {
        match screen.judge(line) {
            Screened::Pass(_) => "pass".into(),
            Screened::Drop => "drop".into(),
            Screened::Batch(messages) => format!("batch of {}", messages.len()),
            Screened::Answer(answer) => {
                let answer = serde_json::to_value(answer).unwrap();
                format!("{} {}", answer["id"], answer["error"]["code"])
            }
        }
    }

    #[test]
    fn before_the_handshake_only_its_first_words_pass() {
        let mut screen = Screen::default();
        let list = r#"{"jsonrpc":"2.0","id":"a","method":"tools/list"}"#;
        assert_eq!(judged(&mut screen, list.as_bytes()), "\"a\" -32600");
        assert_eq!(judged(&mut screen, br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#), "drop");
        assert_eq!(judged(&mut screen, br#"{"jsonrpc":"2.0","id":1,"result":{}}"#), "drop");
        assert_eq!(judged(&mut screen, br#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#), "pass");
        assert_eq!(judged(&mut screen, INITIALIZE.as_bytes()), "pass");
        assert_eq!(judged(&mut screen, list.as_bytes()), "pass");
        assert_eq!(judged(&mut screen, br#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#), "pass");
    }

    #[test]
    fn a_request_that_names_its_version_needs_no_handshake() {
        let list = r#"{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{"_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}}}"#;
        assert_eq!(judged(&mut Screen::default(), list.as_bytes()), "pass");
    }

    #[test]
    fn what_is_no_message_is_answered() {
        for (line, answer) in [
            (&b"{"[..], "null -32700"),
            (b"\xff\xfe{}", "null -32700"),
            (b"{\"a\":\"\xff\"}", "null -32700"),
            (b"[]", "null -32600"),
            (b"[{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}]", "null -32600"),
            (b"17", "null -32600"),
            (b"{}", "null -32600"),
            (br#"{"jsonrpc":"2.0","id":7}"#, "7 -32600"),
            (br#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, "null -32600"),
            (br#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, "null -32600"),
            (br#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, "1 -32600"),
            (br#"{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":5}}"#, "1 -32602"),
            (b"  \r", "drop"),
        ] {
            let mut screen = Screen { opened: true, has_batches: false };
            assert_eq!(judged(&mut screen, line), answer, "{}", String::from_utf8_lossy(line));
        }
    }

    #[test]
    fn batches_belong_to_one_version() {
        let batch = br#"[{"jsonrpc":"2.0","id":1,"method":"ping"},{"jsonrpc":"2.0","id":2,"method":"ping"}]"#;
        for (version, judged_as) in
            [("2024-11-05", "null -32600"), ("2025-03-26", "batch of 2"), ("2025-06-18", "null -32600")]
        {
            let mut screen = Screen::default();
            assert_eq!(judged(&mut screen, INITIALIZE.replace("2025-06-18", version).as_bytes()), "pass");
            assert_eq!(judged(&mut screen, batch), judged_as, "{version}");
        }
        let mut screen = Screen { opened: true, has_batches: true };
        assert_eq!(judged(&mut screen, b"[]"), "null -32600");
        let many = format!("[{}]", vec!["{}"; LARGEST_BATCH + 1].join(","));
        assert_eq!(judged(&mut screen, many.as_bytes()), "null -32600");
        let mixed = format!("[[],1,{INITIALIZE},{{\"jsonrpc\":\"2.0\",\"id\":3,\"method\":\"ping\"}}]");
        let Screened::Batch(messages) = screen.judge(mixed.as_bytes()) else { panic!("no batch") };
        assert!(matches!(
            &messages[..],
            [Screened::Answer(_), Screened::Answer(_), Screened::Answer(_), Screened::Pass(_)]
        ));
    }

    #[test]
    fn deep_nesting_is_no_json() {
        let line = "[".repeat(100_000);
        assert_eq!(judged(&mut Screen::default(), line.as_bytes()), "null -32700");
    }
}
