//! The server: connections, limits, and answers in parts.

use std::convert::Infallible;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{SyncSender, TrySendError};
use std::task::{Context, Poll};
use std::time::Duration;

use http_body_util::{BodyExt, Either, Full, Limited};
use hyper::body::{Body, Bytes, Frame as BodyFrame, Incoming};
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, HOST, HeaderValue, RETRY_AFTER};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use orin_cli::Stop;
use serde_json::{Value, json};
use tokio::runtime::{Builder, Runtime};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::timeout;

use super::reply::{Frame, Kind, error};
use super::request::{Refusal, chat, completion};
use super::{BEAT, Event, Facts, Job};

/// Most connections at a time; more are closed at once.
const MOST_CONNECTIONS: usize = 256;

/// Longest body of a request in bytes.
const MOST_BODY_BYTES: usize = 4 << 20;

/// Longest head of a request in bytes.
const MOST_HEAD_BYTES: usize = 32 << 10;

/// Longest time for the head of a request, also between two of them.
const HEAD_LIMIT: Duration = Duration::from_secs(30);

/// Longest time for the body of a request.
const BODY_LIMIT: Duration = Duration::from_secs(30);

/// What can be asked for, for the answer to other paths.
const PATHS: &str = "/health, /v1/models, /v1/completions and /v1/chat/completions";

/// The body of an answer.
type Answer = Either<Full<Bytes>, Parts>;

/// State that all connections share.
struct Shared {
    facts: Arc<Facts>,
    jobs: SyncSender<Job>,
    /// Number of the next answer.
    next: AtomicU64,
    /// Whether only programs of this machine can connect.
    is_local: bool,
}

/// A listening server.
pub(super) struct Server {
    runtime: Runtime,
    listener: tokio::net::TcpListener,
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: Stop,
}

impl Server {
    /// Prepares everything that can fail.
    pub(super) fn new(
        listener: TcpListener,
        facts: Arc<Facts>,
        jobs: SyncSender<Job>,
        stop: Stop,
    ) -> io::Result<Self> {
        let runtime = Builder::new_current_thread().enable_io().enable_time().build()?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let listener = {
            let _context = runtime.enter();
            tokio::net::TcpListener::from_std(listener)?
        };
        let is_local = address.ip().is_loopback();
        let shared = Arc::new(Shared { facts, jobs, next: AtomicU64::new(1), is_local });
        Ok(Self { runtime, listener, address, shared, stop })
    }

    /// The address that it listens on.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until a signal arrives.
    pub(super) fn run(self) -> io::Result<()> {
        let Self { runtime, listener, shared, stop, .. } = self;
        runtime.block_on(accept(&listener, &shared, &stop));
        // Connections with unfinished answers are closed.
        runtime.shutdown_timeout(BEAT);
        Ok(())
    }
}

async fn accept(listener: &tokio::net::TcpListener, shared: &Arc<Shared>, stop: &Stop) {
    let places = Arc::new(Semaphore::new(MOST_CONNECTIONS));
    while !stop.is_requested() {
        let stream = match timeout(BEAT, listener.accept()).await {
            Ok(Ok((stream, _))) => stream,
            // Out of file descriptors, for example: others may end meanwhile.
            Ok(Err(_)) => {
                tokio::time::sleep(BEAT).await;
                continue;
            }
            Err(_) => continue,
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else { continue };
        // Parts of an answer are small and must not wait for each other. Without it they come later.
        let _ = stream.set_nodelay(true);
        let shared = Arc::clone(shared);
        tokio::spawn(async move {
            let service = service_fn(move |request| {
                let shared = Arc::clone(&shared);
                async move { Ok::<_, Infallible>(shared.respond(request).await) }
            });
            let mut builder = hyper::server::conn::http1::Builder::new();
            builder.timer(TokioTimer::new()).header_read_timeout(HEAD_LIMIT).max_buf_size(MOST_HEAD_BYTES);
            // A client may close its side after the request.
            builder.half_close(true);
            // A failed connection does not affect the others.
            let _ = builder.serve_connection(TokioIo::new(stream), service).await;
            drop(place);
        });
    }
}

fn status(code: u16) -> StatusCode {
    StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

fn whole(code: u16, value: &Value) -> Response<Answer> {
    let mut response = Response::new(Either::Left(Full::new(Bytes::from(value.to_string()))));
    *response.status_mut() = status(code);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response
}

fn refused(refusal: &Refusal) -> Response<Answer> {
    let mut response = whole(refusal.status, &error(refusal));
    let header = match refusal.status {
        405 => Some((ALLOW, HeaderValue::from_static("GET, HEAD, POST"))),
        503 => Some((RETRY_AFTER, HeaderValue::from_static("1"))),
        _ => None,
    };
    response.headers_mut().extend(header);
    response
}

impl Shared {
    async fn respond(&self, request: Request<Incoming>) -> Response<Answer> {
        match self.answer(request).await {
            Ok(response) => response,
            Err(refusal) => refused(&refusal),
        }
    }

    async fn answer(&self, request: Request<Incoming>) -> Result<Response<Answer>, Refusal> {
        self.check_host(&request)?;
        let path = request.uri().path();
        let path = if path == "/" { path } else { path.trim_end_matches('/') };
        let path = path.to_owned();
        let kind = match path.as_str() {
            "/health" | "/v1/models" => None,
            "/v1/completions" => Some(Kind::Completion),
            "/v1/chat/completions" => Some(Kind::Chat),
            _ => return Err(Refusal::new(404, format!("there is no {path:?}; there are {PATHS}"))),
        };
        let needed = if kind.is_some() { Method::POST } else { Method::GET };
        // The body of an answer to HEAD is left out by the connection.
        let is_head = needed == Method::GET && *request.method() == Method::HEAD;
        if *request.method() != needed && !is_head {
            return Err(Refusal::new(405, format!("use {needed}")));
        }
        match kind {
            Some(kind) => self.generate(kind, request).await,
            None if path == "/health" => Ok(whole(200, &json!({ "status": "ok" }))),
            None => {
                let model =
                    json!({ "id": self.facts.name, "object": "model", "created": 0, "owned_by": "local" });
                Ok(whole(200, &json!({ "object": "list", "data": [model] })))
            }
        }
    }

    /// Rejects web pages that reach this machine by a DNS name of their own.
    fn check_host(&self, request: &Request<Incoming>) -> Result<(), Refusal> {
        let host = request.headers().get(HOST).and_then(|host| host.to_str().ok()).unwrap_or_default();
        let name = host.rsplit_once(':').filter(|(_, port)| port.bytes().all(|c| c.is_ascii_digit()));
        let name = name.map_or(host, |(name, _)| name);
        if !self.is_local || ["localhost", "[::1]"].contains(&name) || name.starts_with("127.") {
            return Ok(());
        }
        Err(Refusal::new(403, "only localhost is served"))
    }

    async fn generate(&self, kind: Kind, request: Request<Incoming>) -> Result<Response<Answer>, Refusal> {
        // Pages of the web cannot send this type to other sites without being allowed to.
        let is_json =
            request.headers().get(CONTENT_TYPE).and_then(|value| value.to_str().ok()).is_some_and(|value| {
                value
                    .split(';')
                    .next()
                    .is_some_and(|kind| kind.trim().eq_ignore_ascii_case("application/json"))
            });
        if !is_json {
            return Err(Refusal::new(415, "the content type must be application/json"));
        }
        let coding = request.headers().get(CONTENT_ENCODING).map(|value| value.to_str().unwrap_or_default());
        if coding.is_some_and(|coding| !coding.trim().eq_ignore_ascii_case("identity")) {
            let text = "bodies with a Content-Encoding are not supported: send the JSON as it is";
            return Err(Refusal::new(415, text));
        }
        let too_long = || Refusal::new(413, format!("the body has more than {MOST_BODY_BYTES} bytes"));
        if request.body().size_hint().lower() > MOST_BODY_BYTES as u64 {
            return Err(too_long());
        }
        let body = timeout(BODY_LIMIT, Limited::new(request.into_body(), MOST_BODY_BYTES).collect()).await;
        let body = match body {
            Ok(Ok(body)) => body.to_bytes(),
            Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => {
                return Err(too_long());
            }
            Ok(Err(error)) => return Err(Refusal::new(400, format!("the body is incomplete: {error}"))),
            Err(_) => return Err(Refusal::new(408, "the body takes too long")),
        };
        let read = if kind == Kind::Chat { chat } else { completion };
        let request = read(&body, &self.facts)?;
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let frame = Frame::new(kind, number, &self.facts.name, request.tokens.len());
        let (reply, mut events) = unbounded_channel();
        let (tokens, sampling, limit, stops) =
            (request.tokens, request.sampling, request.limit, request.stops);
        self.jobs.try_send(Job { tokens, sampling, limit, stops, reply }).map_err(|error| match error {
            TrySendError::Full(_) => Refusal::new(503, "too many requests wait: try again later"),
            TrySendError::Disconnected(_) => Refusal::new(503, "the server ends"),
        })?;
        if request.streams {
            let first = frame.start().map(|value| line(&value)).unwrap_or_default();
            let parts = Parts { frame, events, first, counts: request.counts, is_done: false };
            let mut response = Response::new(Either::Right(parts));
            let headers = response.headers_mut();
            headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
            headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
            return Ok(response);
        }
        let mut text = String::new();
        loop {
            match events.recv().await {
                Some(Event::Text(part)) => text.push_str(&part),
                Some(Event::End { is_cut, made }) => {
                    return Ok(whole(200, &frame.whole(&text, is_cut, made)));
                }
                Some(Event::Failed(reason)) => return Err(Refusal::new(500, reason)),
                None => return Err(Refusal::new(503, "the server ends")),
            }
        }
    }
}

/// A part of a stream as it is sent.
fn line(value: &Value) -> Vec<u8> {
    format!("data: {value}\n\n").into_bytes()
}

/// An answer that is sent in parts. Dropping it, for example when the connection ends, cancels the answer.
struct Parts {
    frame: Frame,
    events: UnboundedReceiver<Event>,
    /// Sent first.
    first: Vec<u8>,
    counts: bool,
    is_done: bool,
}

impl Parts {
    /// The parts of an event.
    fn parts(&mut self, event: Option<Event>) -> Vec<u8> {
        let end = match event {
            Some(Event::Text(text)) => return line(&self.frame.part(&text)),
            Some(Event::End { is_cut, made }) => {
                let mut end = line(&self.frame.end(is_cut));
                if self.counts {
                    end.extend(line(&self.frame.count(made)));
                }
                end
            }
            Some(Event::Failed(reason)) => line(&error(&Refusal::new(500, reason))),
            None => line(&error(&Refusal::new(503, "the server ends"))),
        };
        self.is_done = true;
        [&end[..], b"data: [DONE]\n\n"].concat()
    }
}

impl Body for Parts {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<BodyFrame<Bytes>, Infallible>>> {
        if self.is_done {
            return Poll::Ready(None);
        }
        if !self.first.is_empty() {
            let first = std::mem::take(&mut self.first);
            return Poll::Ready(Some(Ok(BodyFrame::data(first.into()))));
        }
        self.events.poll_recv(context).map(|event| Some(Ok(BodyFrame::data(self.parts(event).into()))))
    }
}
