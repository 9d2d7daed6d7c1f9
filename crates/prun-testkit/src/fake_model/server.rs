//! The server: HTTP on a port of its own, on a thread of its own.

use std::convert::Infallible;
use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use futures_util::stream::{self, StreamExt};
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::script::{Place, Step};
use super::{reply, request};

/// A running model server. It ends, and cuts what hangs, when it is dropped.
#[derive(Debug)]
pub struct Server {
    port: u16,
    requests: Requests,
    stop: Option<oneshot::Sender<Infallible>>,
    thread: Option<JoinHandle<()>>,
}

/// The bodies of all requests so far.
type Requests = Arc<Mutex<Vec<Value>>>;

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
        let requests = Requests::default();
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

    /// The base URL that a client takes.
    #[must_use]
    pub fn base_url(&self) -> String {
        format!("http://127.0.0.1:{}/v1", self.port)
    }

    /// How many answers were asked for so far.
    #[must_use]
    pub fn requests(&self) -> u64 {
        locked(&self.requests).len() as u64
    }

    /// What was asked so far: the body of each request, as JSON.
    #[must_use]
    pub fn bodies(&self) -> Vec<Value> {
        locked(&self.requests).clone()
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

fn serve(listener: TcpListener, requests: Requests, stopped: oneshot::Receiver<Infallible>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("build a runtime");
    runtime.block_on(async {
        let listener = tokio::net::TcpListener::from_std(listener).expect("register the socket");
        tokio::select! {
            served = async { axum::serve(listener, router(requests)).await } => served.expect("serve on the socket"),
            _ = stopped => {}
        }
    });
}

fn router(requests: Requests) -> Router {
    Router::new()
        .route("/v1/responses", post(respond).get(refuse_websocket))
        .route("/v1/models", get(async || Json(json!({"models": []}))))
        .layer(DefaultBodyLimit::disable())
        .with_state(requests)
}

/// Codex tries a WebSocket first; this answer makes it go on with plain HTTP at once.
async fn refuse_websocket() -> StatusCode {
    StatusCode::UPGRADE_REQUIRED
}

async fn respond(State(requests): State<Requests>, body: Bytes) -> Response {
    let parsed = serde_json::from_slice(&body);
    let id = {
        let mut requests = locked(&requests);
        requests.push(parsed.as_ref().map_or(Value::Null, Value::clone));
        requests.len() as u64
    };
    let body: Value = match parsed {
        Ok(body) => body,
        Err(error) => return refuse(StatusCode::BAD_REQUEST, &format!("the request is no JSON: {error}")),
    };
    match request::step(&body) {
        Ok(step) => play(&step, &body, id).await,
        Err(why) => refuse(StatusCode::BAD_REQUEST, &why),
    }
}

async fn play(step: &Step, body: &Value, id: u64) -> Response {
    if step.hang == Some(Place::Request) {
        std::future::pending::<()>().await;
    }
    if step.drop == Some(Place::Request) {
        // Ends this connection's task, and with it the connection, without an answer; unlike a panic
        // it prints nothing.
        std::panic::resume_unwind(Box::new("dropped by the script"));
    }
    if let Some(status) = step.status {
        return error(step, status);
    }
    let mut events = reply::events(step, body, id);
    let place = step.hang.or(step.drop);
    match place {
        Some(Place::Headers) => events.clear(),
        Some(_) => events.truncate(events.len() / 2),
        None => {}
    }
    let sent = stream::iter(events.into_iter().map(Ok::<_, io::Error>));
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

fn error(step: &Step, status: u16) -> Response {
    let status = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut headers = HeaderMap::new();
    for (name, value) in &step.headers {
        let name = header::HeaderName::from_bytes(name.as_bytes()).expect("the script names a header");
        headers.insert(name, value.parse().expect("the script gives a header's value"));
    }
    match &step.body {
        Some(body) => (status, headers, Json(body)).into_response(),
        None => (headers, refuse(status, &format!("scripted status {status}"))).into_response(),
    }
}

/// A panic of another request's thread has left nothing half done.
fn locked(requests: &Requests) -> MutexGuard<'_, Vec<Value>> {
    requests.lock().unwrap_or_else(PoisonError::into_inner)
}

fn refuse(status: StatusCode, message: &str) -> Response {
    (status, Json(json!({"error": {"type": "error", "message": message}}))).into_response()
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
        let body = json!({"input": [{"role": "user", "content": directive(steps)}]}).to_string();
        let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port())).unwrap();
        stream.set_read_timeout(Some(Duration::from_millis(300))).unwrap();
        let head = format!("{method} /v1/responses HTTP/1.1\r\nhost: x\r\ncontent-length: {}\r\n", body.len());
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
}
