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
}

/// Remembers whether the client has introduced itself.
#[derive(Debug, Default)]
pub(super) struct Screen {
    opened: bool,
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
        let Value::Object(fields) = &message else {
            let what =
                if message.is_array() { "batches are not taken: send one message a line" } else { "not an object" };
            return refuse(ErrorData::invalid_request(what, None), None);
        };
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
            let mut screen = Screen { opened: true };
            assert_eq!(judged(&mut screen, line), answer, "{}", String::from_utf8_lossy(line));
        }
    }

    #[test]
    fn deep_nesting_is_no_json() {
        let line = "[".repeat(100_000);
        assert_eq!(judged(&mut Screen::default(), line.as_bytes()), "null -32700");
    }
}
