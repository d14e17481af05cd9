//! The server: connections, limits, and answers in parts.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc::SyncSender;
use std::time::Duration;

use http_body_util::{BodyExt, Either, Full, Limited};
use hyper::body::{Body, Bytes, Incoming};
use hyper::header::{
    ALLOW, AUTHORIZATION, CONTENT_ENCODING, CONTENT_TYPE, HOST, HeaderValue, RETRY_AFTER, WWW_AUTHENTICATE,
};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use orin_cli::Stop;
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio::runtime::{Builder, Runtime};
use tokio::sync::{Semaphore, watch};
use tokio::time::timeout;

use super::generate::Parts;
use super::key::Key;
use super::metrics::Metrics;
use super::reply::{Kind, error};
use super::request::Refusal;
use super::{BEAT, Facts, Job};

/// Most connections at a time; more are closed at once.
const MOST_CONNECTIONS: u32 = 256;

/// Longest body of a request in bytes.
const MOST_BODY_BYTES: usize = 4 << 20;

/// Longest head of a request in bytes.
const MOST_HEAD_BYTES: usize = 32 << 10;

/// Longest time for the head of a request, also between two of them.
const HEAD_LIMIT: Duration = Duration::from_secs(30);

/// Longest time for the body of a request.
const BODY_LIMIT: Duration = Duration::from_secs(30);

/// Threads that read requests, and their stacks. Parts of schemas and grammars that refer to each other are followed by
/// recursion: 2,000 of them, as many as a request can have, took 64 MiB without optimisation.
const PREPARERS: usize = 2;
const STACK_BYTES: usize = 256 << 20;

/// What can be asked for.
const PATHS: [(&str, Target); 6] = [
    ("/health", Target::Health),
    ("/metrics", Target::Metrics),
    ("/v1/models", Target::Models),
    ("/v1/completions", Target::Text(Kind::Completion)),
    ("/v1/chat/completions", Target::Text(Kind::Chat)),
    ("/v1/embeddings", Target::Embeddings),
];

/// What a path stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Target {
    Health,
    Metrics,
    Models,
    Text(Kind),
    Embeddings,
}

/// The body of an answer.
pub(super) type Answer = Either<Full<Bytes>, Parts>;

/// State that all connections share.
pub(super) struct Shared {
    pub(super) facts: Arc<Facts>,
    pub(super) metrics: Arc<Metrics>,
    /// The queue: the jobs of each request.
    pub(super) jobs: SyncSender<Vec<Job>>,
    /// Number of the next answer.
    pub(super) next: AtomicU64,
    key: Key,
    /// Whether only programs of this machine can connect.
    is_local: bool,
    stop: Stop,
}

/// A listening server.
pub(super) struct Server {
    runtime: Runtime,
    listener: tokio::net::TcpListener,
    address: SocketAddr,
    shared: Arc<Shared>,
    grace: Duration,
}

impl Server {
    /// Prepares everything that can fail.
    pub(super) fn new(listener: TcpListener, mut shared: Shared, grace: Duration) -> io::Result<Self> {
        let mut builder = Builder::new_current_thread();
        builder.enable_io().enable_time().max_blocking_threads(PREPARERS).thread_stack_size(STACK_BYTES);
        let runtime = builder.build()?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let listener = {
            let _context = runtime.enter();
            tokio::net::TcpListener::from_std(listener)?
        };
        shared.is_local = address.ip().is_loopback();
        Ok(Self { runtime, listener, address, shared: Arc::new(shared), grace })
    }

    /// The address that it listens on.
    pub(super) fn address(&self) -> SocketAddr {
        self.address
    }

    /// Serves until a signal arrives, and then until the answers in progress are sent, or `grace` is over.
    pub(super) fn run(self) -> io::Result<()> {
        let Self { runtime, listener, shared, grace, .. } = self;
        runtime.block_on(accept(listener, &shared, grace));
        // Connections with unfinished answers are closed.
        runtime.shutdown_timeout(BEAT);
        Ok(())
    }
}

async fn accept(listener: tokio::net::TcpListener, shared: &Arc<Shared>, grace: Duration) {
    let places = Arc::new(Semaphore::new(MOST_CONNECTIONS as usize));
    let (end, ended) = watch::channel(());
    while !shared.stop.is_requested() {
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
        let (shared, ended) = (Arc::clone(shared), ended.clone());
        tokio::spawn(async move {
            serve(stream, shared, ended).await;
            drop(place);
        });
    }
    // New connections are refused. Idle ones are closed, the others after their answers; the thread with the model has
    // ended all of them when the time is over.
    drop((listener, end));
    let _ = timeout(grace + BEAT * 10, places.acquire_many(MOST_CONNECTIONS)).await;
}

/// Serves a connection, until the sender of `ended` is dropped and the current answer is sent.
async fn serve(stream: TcpStream, shared: Arc<Shared>, mut ended: watch::Receiver<()>) {
    let service = service_fn(move |request| {
        let shared = Arc::clone(&shared);
        async move { Ok::<_, Infallible>(shared.respond(request).await) }
    });
    let mut builder = hyper::server::conn::http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_LIMIT).max_buf_size(MOST_HEAD_BYTES);
    // A client may close its side after the request.
    builder.half_close(true);
    let mut connection = pin!(builder.serve_connection(TokioIo::new(stream), service));
    let mut end = pin!(async move { while ended.changed().await.is_ok() {} });
    let mut is_ending = false;
    // A failed connection does not affect the others.
    let _ = poll_fn(|context| {
        if !is_ending && end.as_mut().poll(context).is_ready() {
            is_ending = true;
            connection.as_mut().graceful_shutdown();
        }
        connection.as_mut().poll(context)
    })
    .await;
}

fn status(code: u16) -> StatusCode {
    StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
}

fn of_kind(code: u16, kind: HeaderValue, text: String) -> Response<Answer> {
    let mut response = Response::new(Either::Left(Full::new(Bytes::from(text))));
    *response.status_mut() = status(code);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// An answer in JSON.
pub(super) fn whole(code: u16, value: &Value) -> Response<Answer> {
    of_kind(code, HeaderValue::from_static("application/json"), value.to_string())
}

fn refused(refusal: &Refusal) -> Response<Answer> {
    let mut response = whole(refusal.status, &error(refusal));
    let header = match refusal.status {
        401 => Some((WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"))),
        405 => Some((ALLOW, HeaderValue::from_static("GET, HEAD, POST"))),
        503 => Some((RETRY_AFTER, HeaderValue::from_static("1"))),
        _ => None,
    };
    response.headers_mut().extend(header);
    response
}

impl Shared {
    pub(super) fn new(
        facts: Arc<Facts>,
        metrics: Arc<Metrics>,
        jobs: SyncSender<Vec<Job>>,
        key: Key,
        stop: Stop,
    ) -> Self {
        Self { facts, metrics, jobs, next: AtomicU64::new(1), key, is_local: true, stop }
    }

    async fn respond(self: Arc<Self>, request: Request<Incoming>) -> Response<Answer> {
        let path = request.uri().path();
        let path = if path == "/" { path } else { path.trim_end_matches('/') };
        let known = PATHS.into_iter().find(|(name, _)| *name == path);
        let answer = match known {
            Some((_, target)) => self.answer(target, request).await,
            None => {
                let names = PATHS.map(|(name, _)| name).join(", ");
                Err(Refusal::new(404, format!("there is no {path:?}; there are {names}")))
            }
        };
        let response = answer.unwrap_or_else(|refusal| refused(&refusal));
        self.metrics.answered(known.map_or("other", |(name, _)| name), response.status().as_u16());
        response
    }

    async fn answer(
        self: &Arc<Self>,
        target: Target,
        request: Request<Incoming>,
    ) -> Result<Response<Answer>, Refusal> {
        self.check_host(&request)?;
        let header = request.headers().get(AUTHORIZATION).map(HeaderValue::as_bytes);
        if target != Target::Health && !self.key.admits(header) {
            let text = "give the server's key as `Authorization: Bearer KEY`";
            return Err(Refusal { code: Some("invalid_api_key"), ..Refusal::new(401, text) });
        }
        let needed = match target {
            Target::Text(_) | Target::Embeddings => Method::POST,
            Target::Health | Target::Metrics | Target::Models => Method::GET,
        };
        // The body of an answer to HEAD is left out by the connection.
        let is_head = needed == Method::GET && *request.method() == Method::HEAD;
        if *request.method() != needed && !is_head {
            return Err(Refusal::new(405, format!("use {needed}")));
        }
        if needed == Method::POST && self.stop.is_requested() {
            return Err(Refusal::new(503, "the server ends"));
        }
        match target {
            Target::Text(kind) => self.generate(kind, Self::body(request).await?).await,
            Target::Embeddings => self.embed(Self::body(request).await?).await,
            Target::Health => Ok(whole(200, &json!({ "status": "ok" }))),
            Target::Metrics => {
                let text = self.metrics.text(self.facts.context * self.facts.parallel);
                let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
                Ok(of_kind(200, kind, text))
            }
            Target::Models => {
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

    /// The body of a request, which has to be JSON.
    async fn body(request: Request<Incoming>) -> Result<Bytes, Refusal> {
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
        match timeout(BODY_LIMIT, Limited::new(request.into_body(), MOST_BODY_BYTES).collect()).await {
            Ok(Ok(body)) => Ok(body.to_bytes()),
            Ok(Err(error)) if error.is::<http_body_util::LengthLimitError>() => Err(too_long()),
            Ok(Err(error)) => Err(Refusal::new(400, format!("the body is incomplete: {error}"))),
            Err(_) => Err(Refusal::new(408, "the body takes too long")),
        }
    }
}
