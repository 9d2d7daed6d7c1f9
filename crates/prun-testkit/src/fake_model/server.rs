//! The server: HTTP on a port of its own, on a thread of its own.

use std::collections::HashMap;
use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures_util::stream::{self, StreamExt};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::reply::{Reply, refusal, reply};
use super::request::{self, Api, Asked};
use super::script::{Place, Step};

/// A running model server. It ends, and cuts what hangs, when it is dropped.
#[derive(Debug)]
pub struct Server {
    port: u16,
    requests: Shared,
    stop: Option<oneshot::Sender<Infallible>>,
    thread: Option<JoinHandle<()>>,
}

/// Under this key the body of a gemini request says whether its path asks for a stream.
pub(super) const STREAMED: &str = "streamed";

type Shared = Arc<Mutex<Seen>>;

/// What the server remembers.
#[derive(Debug, Default)]
struct Seen {
    /// The bodies of all requests.
    bodies: Vec<Value>,
    /// How often a step with `times` was played, by the text that its script stands in and the step itself.
    played: HashMap<String, u32>,
}

impl Seen {
    fn is_played_out(&self, text: &str, step: &Step) -> bool {
        let played = self.played.get(&key(text, step)).copied().unwrap_or(0);
        step.times.is_some_and(|times| played >= times)
    }

    fn play(&mut self, asked: &Asked) {
        if asked.step.times.is_some() {
            *self.played.entry(key(&asked.text, &asked.step)).or_default() += 1;
        }
    }
}

fn key(text: &str, step: &Step) -> String {
    format!("{step:?} in {text}")
}

impl Server {
    /// Starts a server on a free port of 127.0.0.1.
    ///
    /// # Panics
    /// No port can be bound or no thread started.
    #[must_use]
    pub fn start() -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("bind a port of 127.0.0.1");
        listener.set_nonblocking(true).expect("make the socket non-blocking");
        let port = listener.local_addr().expect("a bound socket has an address").port();
        let requests = Shared::default();
        let seen = Arc::clone(&requests);
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new()
            .name("fake-model".into())
            .spawn(move || serve(listener, seen, stopped))
            .expect("start a thread");
        Self { port, requests, stop: Some(stop), thread: Some(thread) }
    }

    /// The port on 127.0.0.1.
    #[must_use]
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The base URL that clients of OpenAI's APIs take.
    #[must_use]
    pub fn base_url(&self) -> String {
        format!("{}/v1", self.origin())
    }

    /// The base URL that Claude Code and gemini take: they add the version themselves.
    #[must_use]
    pub fn origin(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// How many answers were asked for so far.
    #[must_use]
    pub fn requests(&self) -> u64 {
        locked(&self.requests).bodies.len() as u64
    }

    /// What was asked so far: the body of each request, as JSON.
    #[must_use]
    pub fn bodies(&self) -> Vec<Value> {
        locked(&self.requests).bodies.clone()
    }

    /// Waits for ever: the server's end is the process's end.
    pub fn run_forever(mut self) {
        if let Some(thread) = self.thread.take() {
            // The thread ends only on a drop of `self`, or by a panic that it has printed itself.
            drop(thread.join());
        }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

fn serve(listener: TcpListener, requests: Shared, stopped: oneshot::Receiver<Infallible>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("build a runtime");
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener).expect("register the socket");
        tokio::select! {
            served = async { axum::serve(listener, router(requests)).await } => served.expect("serve on the socket"),
            _ = stopped => {}
        }
    });
}

fn router(state: Shared) -> Router {
    Router::new()
        .route("/v1/responses", post(responses).get(refuse_websocket))
        .route("/v1/messages", post(messages))
        .route("/v1/messages/count_tokens", post(async || Json(json!({"input_tokens": 100}))))
        .route("/v1/chat/completions", post(chat))
        .route("/v1beta/models/{action}", post(gemini))
        .route("/v1/models", get(async || Json(json!({"models": [], "data": []}))))
        .layer(DefaultBodyLimit::disable())
        .with_state(state)
}

/// Codex tries a WebSocket first; this answer makes it go on with plain HTTP at once.
async fn refuse_websocket() -> StatusCode {
    StatusCode::UPGRADE_REQUIRED
}

async fn responses(State(state): State<Shared>, body: Bytes) -> Response {
    respond(Api::Responses, &state, serde_json::from_slice(&body)).await
}

async fn messages(State(state): State<Shared>, body: Bytes) -> Response {
    respond(Api::Messages, &state, serde_json::from_slice(&body)).await
}

async fn chat(State(state): State<Shared>, body: Bytes) -> Response {
    respond(Api::Chat, &state, serde_json::from_slice(&body)).await
}

async fn gemini(State(state): State<Shared>, Path(action): Path<String>, body: Bytes) -> Response {
    let body = serde_json::from_slice(&body).map(|mut body: Value| {
        body[STREAMED] = action.contains(":streamGenerateContent").into();
        body
    });
    respond(Api::Gemini, &state, body).await
}

async fn respond(api: Api, state: &Shared, body: Result<Value, serde_json::Error>) -> Response {
    let id = {
        let mut seen = locked(state);
        seen.bodies.push(body.as_ref().map_or(Value::Null, Value::clone));
        seen.bodies.len() as u64
    };
    let body = match body {
        Ok(body) => body,
        Err(error) => return refuse(api, StatusCode::BAD_REQUEST, &format!("the request is no JSON: {error}")),
    };
    let asked = {
        let mut seen = locked(state);
        let found = request::asked(api, &body, |text, step| seen.is_played_out(text, step));
        if let Ok(asked) = &found {
            seen.play(asked);
        }
        found
    };
    match asked {
        Ok(asked) => play(api, &asked, &body, id).await,
        Err(why) => refuse(api, StatusCode::BAD_REQUEST, &why),
    }
}

async fn play(api: Api, asked: &Asked, body: &Value, id: u64) -> Response {
    let step = &asked.step;
    if step.hang == Some(Place::Request) {
        std::future::pending::<()>().await;
    }
    if step.drop == Some(Place::Request) {
        // Ends this connection's task, and with it the connection, without an answer; unlike a panic
        // it prints nothing.
        std::panic::resume_unwind(Box::new("dropped by the script"));
    }
    if let Some(status) = step.status {
        return error(api, step, status);
    }
    let mut events = match reply(api, asked, body, id) {
        Reply::Events(events) => events,
        // Without a stream there is no middle: it fails as a whole.
        Reply::Whole(_) if step.hang.is_some() => std::future::pending().await,
        Reply::Whole(_) if step.drop.is_some() => std::panic::resume_unwind(Box::new("dropped by the script")),
        Reply::Whole(answer) => return Json(answer).into_response(),
    };
    let place = step.hang.or(step.drop);
    match place {
        Some(Place::Headers) => events.clear(),
        Some(_) => events.truncate(events.len() / 2),
        None => {}
    }
    let pause = Duration::from_millis(step.pause.unwrap_or(0));
    let sent = stream::iter(events).then(move |event| async move {
        if !pause.is_zero() {
            tokio::time::sleep(pause).await;
        }
        Ok::<_, io::Error>(event)
    });
    let body = match (place, step.hang) {
        (None, _) => Body::from_stream(sent),
        (Some(_), Some(_)) => Body::from_stream(sent.chain(stream::pending())),
        (Some(_), None) => {
            let cut = stream::once(async {
                // A body that has nothing ready makes the server send what it holds.
                tokio::task::yield_now().await;
                Err(io::Error::other("dropped by the script"))
            });
            Body::from_stream(sent.chain(cut))
        }
    };
    ([(header::CONTENT_TYPE, "text/event-stream")], body).into_response()
}

fn error(api: Api, step: &Step, status: u16) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let message = format!("scripted status {status}");
    let (body, more) = refusal(api, status.as_u16(), step.limit_until, &message);
    let mut headers = HeaderMap::new();
    let scripted = step.headers.iter().map(|(name, value)| (name.as_str(), value.clone()));
    for (name, value) in more.into_iter().chain(scripted) {
        let name = header::HeaderName::from_bytes(name.as_bytes()).expect("the script names a header");
        headers.insert(name, value.parse().expect("the script gives a header's value"));
    }
    (status, headers, Json(step.body.clone().unwrap_or(body))).into_response()
}

/// A panic of another request's thread has left nothing half done.
fn locked(state: &Shared) -> MutexGuard<'_, Seen> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

fn refuse(api: Api, status: StatusCode, message: &str) -> Response {
    (status, Json(refusal(api, status.as_u16(), None, message).0)).into_response()
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::TcpStream;
    use std::time::Duration;

    use super::super::script::directive;
    use super::*;

    /// Sends one request for `steps` and reads until the server closes or is silent.
    fn exchange(server: &Server, method: &str, steps: &[Step]) -> (String, Closed) {
        let body = json!({"input": [{"role": "user", "content": directive(steps)}]});
        exchange_at(server, &format!("{method} /v1/responses"), &body)
    }

    fn exchange_at(server: &Server, method_and_path: &str, body: &Value) -> (String, Closed) {
        let body = body.to_string();
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port())).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        let head = format!("{method_and_path} HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n", body.len());
        write!(stream, "{head}content-type: application/json\r\nconnection: close\r\n\r\n{body}").unwrap();
        let mut answer = Vec::new();
        let closed = match stream.read_to_end(&mut answer) {
            Ok(_) => Closed::Yes,
            Err(_) => Closed::No,
        };
        (String::from_utf8(answer).unwrap(), closed)
    }

    #[derive(Debug, PartialEq, Eq)]
    enum Closed {
        Yes,
        No,
    }

    #[test]
    fn an_answer_is_a_whole_stream_of_events() {
        let server = Server::start();
        let (answer, closed) = exchange(&server, "POST", &[Step::text("hello")]);
        assert!(answer.starts_with("HTTP/1.1 200") && answer.contains("text/event-stream"), "{answer}");
        assert!(answer.contains("event: response.completed") && answer.ends_with("0\r\n\r\n"), "{answer}");
        assert_eq!((closed, server.requests()), (Closed::Yes, 1));
    }

    #[test]
    fn errors_and_websockets_are_answered_as_scripted() {
        let server = Server::start();
        let (answer, _) = exchange(&server, "POST", &[Step::usage_limit(7)]);
        assert!(answer.starts_with("HTTP/1.1 429") && answer.contains("\"resets_at\":7"), "{answer}");
        let slow = Step { headers: [("retry-after".to_owned(), "2".to_owned())].into(), ..Step::status(503) };
        let (answer, _) = exchange(&server, "POST", &[slow]);
        assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("retry-after: 2"), "{answer}");
        assert!(exchange(&server, "GET", &[]).0.starts_with("HTTP/1.1 426"));
    }

    #[test]
    fn a_drop_closes_and_a_hang_keeps_the_connection_where_it_says() {
        let server = Server::start();
        for (place, head, events) in
            [(Place::Request, false, false), (Place::Headers, true, false), (Place::Mid, true, true)]
        {
            let dropped = Step { drop: Some(place), ..Step::text("hello") };
            let hanging = Step { hang: Some(place), ..Step::text("hello") };
            for (step, expected) in [(dropped, Closed::Yes), (hanging, Closed::No)] {
                let (answer, closed) = exchange(&server, "POST", &[step]);
                assert_eq!(closed, expected, "{place:?}");
                assert_eq!((answer.starts_with("HTTP/1.1 200"), answer.contains("response.created")), (head, events));
                assert!(!answer.contains("response.completed"), "{answer}");
            }
        }
    }

    /// A request of each API with one tool, whose script is `steps`.
    fn requests(steps: &[Step]) -> [(&'static str, Value); 3] {
        let text = directive(steps);
        let user = json!([{"role": "user", "content": text}]);
        [
            ("POST /v1/messages", json!({"stream": true, "tools": [{"name": "Bash"}], "messages": user})),
            (
                "POST /v1/chat/completions",
                json!({"stream": true, "tools": [{"function": {"name": "bash"}}], "messages": user}),
            ),
            (
                "POST /v1beta/models/m:streamGenerateContent",
                json!({"tools": [{"functionDeclarations": [{"name": "run_shell_command"}]}],
                       "contents": [{"role": "user", "parts": [{"text": text}]}]}),
            ),
        ]
    }

    #[test]
    fn each_api_gets_text_and_a_tool_call_in_its_own_words() {
        let server = Server::start();
        let step = Step { text: Some("I look.".into()), ..Step::sh("ls -a") };
        let marks = [
            ["\"type\":\"tool_use\"", "event: message_stop", "cache_read_input_tokens\":60"],
            ["\"tool_calls\"", "data: [DONE]", "cached_tokens\":60"],
            ["\"functionCall\"", "\"finishReason\":\"STOP\"", "cachedContentTokenCount\":60"],
        ];
        for ((path, body), marks) in requests(&[step]).into_iter().zip(marks) {
            let (answer, closed) = exchange_at(&server, path, &body);
            assert_eq!(closed, Closed::Yes, "{path}");
            for mark in marks.into_iter().chain(["ls -a"]) {
                assert!(answer.contains(mark), "{path}: no {mark} in {answer}");
            }
        }
    }

    #[test]
    fn a_refusal_is_worded_by_its_api_and_may_be_played_once() {
        let marks = ["anthropic-ratelimit-unified-reset: 7", "usage_limit_reached", "RESOURCE_EXHAUSTED"];
        let steps = [Step::usage_limit(7).once(), Step::text("hello")];
        for ((path, body), mark) in requests(&steps).into_iter().zip(marks) {
            let server = Server::start();
            let (answer, _) = exchange_at(&server, path, &body);
            assert!(answer.starts_with("HTTP/1.1 429") && answer.contains(mark), "{path}: {answer}");
            assert!(exchange_at(&server, path, &body).0.starts_with("HTTP/1.1 200"), "{path}");
        }
    }
}
