//! From a request to its answer, whole or in parts.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::TrySendError;
use std::task::{Context, Poll};

use http_body_util::Either;
use hyper::Response;
use hyper::body::{Body, Bytes, Frame as BodyFrame};
use hyper::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use infer::chat::AnswerPart;
use infer::tokenizer::Decoder;
use serde_json::Value;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::task::spawn_blocking;

use super::answer::Source;
use super::http::{Answer, Shared, whole};
use super::reply::{Frame, Kind, Whole, Written, error};
use super::request::{Refusal, Request, chat, completion};
use super::{Counts, Event, Facts, Job, Reason, Task, Text, embeddings};

type Events = UnboundedReceiver<(usize, Event)>;

/// Why an answer is missing when the thread with the model has ended.
fn ended() -> Refusal {
    Refusal::new(503, "the server ends")
}

/// The jobs of a request, which only differ in their random numbers.
fn texts(request: &Request, facts: &Facts) -> Result<Vec<Text>, Refusal> {
    let grammar = request.constraint.as_ref();
    let grammar =
        grammar.map(|constraint| facts.grammars.matcher(&facts.tokenizer, constraint)).transpose()?;
    let text = |index: usize| {
        let mut sampling = request.sampling;
        // CAST: usize is at most 64 bits.
        sampling.seed = sampling.seed.wrapping_add(index as u64);
        let source = match &request.parser {
            Some(parser) => Source::Parsed(Box::new(parser.clone())),
            None => Source::Plain(Decoder::default()),
        };
        Text {
            source,
            sampling,
            limit: request.limit,
            stops: request.stops.clone(),
            logprobs: request.logprobs,
            grammar: grammar.clone(),
            one_call: request.one_call,
        }
    };
    Ok((0..request.choices).map(text).collect())
}

impl Shared {
    /// Puts the jobs of a request into the queue.
    fn submit(&self, jobs: impl Iterator<Item = (Arc<[u32]>, Task)>) -> Result<Events, Refusal> {
        let (reply, events) = unbounded_channel();
        let job = |(index, (tokens, task))| Job { index, tokens, task, reply: reply.clone() };
        self.metrics.queued();
        self.jobs.try_send(jobs.enumerate().map(job).collect()).map_err(|error| {
            self.metrics.taken();
            match error {
                TrySendError::Full(_) => Refusal::new(503, "too many requests wait: try again later"),
                TrySendError::Disconnected(_) => ended(),
            }
        })?;
        Ok(events)
    }

    /// Makes texts.
    pub(super) async fn generate(
        self: &Arc<Self>,
        kind: Kind,
        body: Bytes,
    ) -> Result<Response<Answer>, Refusal> {
        let shared = Arc::clone(self);
        let (request, texts) = prepared(move || {
            let read = if kind == Kind::Chat { chat } else { completion };
            let request = read(&body, &shared.facts)?;
            let texts = texts(&request, &shared.facts)?;
            Ok((request, texts))
        })
        .await?;
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let mut frame = Frame::new(kind, id, Arc::clone(&self.facts), request.tokens.len());
        (frame.counts, frame.has_logprobs) = (request.counts, request.logprobs.is_some());
        let tokens: Arc<[u32]> = request.tokens.into();
        let choices = texts.len();
        let jobs = texts.into_iter().map(|text| (Arc::clone(&tokens), Task::Text(Box::new(text))));
        let events = self.submit(jobs)?;
        if !request.streams {
            return Ok(whole(200, &collect(&frame, events, choices).await?));
        }
        let first =
            (0..choices).filter_map(|index| frame.start(index)).flat_map(|value| line(&value)).collect();
        let written = vec![Written::default(); choices];
        let parts =
            Parts { frame, events, first, written, open: choices, counts: Counts::default(), is_done: false };
        let mut response = Response::new(Either::Right(parts));
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
        Ok(response)
    }

    /// Makes vectors of texts.
    pub(super) async fn embed(self: &Arc<Self>, body: Bytes) -> Result<Response<Answer>, Refusal> {
        let facts = Arc::clone(&self.facts);
        let request = prepared(move || embeddings::request(&body, &facts)).await?;
        let prompt_tokens = request.texts.iter().map(Vec::len).sum();
        let mut vectors = vec![Vec::new(); request.texts.len()];
        let texts = request.texts.into_iter();
        let mut events = self.submit(texts.map(|tokens| (tokens.into(), Task::Vector(request.pooling))))?;
        for _ in 0..vectors.len() {
            match events.recv().await {
                Some((index, Event::Vector(vector))) => vectors[index] = vector,
                Some((_, Event::Failed(refusal))) => return Err(refusal),
                _ => return Err(ended()),
            }
        }
        Ok(whole(200, &embeddings::reply(&self.facts.name, &vectors, request.is_base64, prompt_tokens)))
    }
}

/// The result of a function that may take time, for a large conversation or schema, in which others are answered.
async fn prepared<T: Send + 'static>(
    prepare: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    // A panic is a bug, but one request must not end the server.
    spawn_blocking(prepare).await.unwrap_or_else(|error| Err(Refusal::new(500, error.to_string())))
}

/// Waits for all answers of a request.
async fn collect(frame: &Frame, mut events: Events, choices: usize) -> Result<Value, Refusal> {
    let mut parts: Vec<(Vec<AnswerPart>, Vec<_>, Reason)> =
        (0..choices).map(|_| (Vec::new(), Vec::new(), Reason::Stop)).collect();
    let (mut open, mut all) = (choices, Counts::default());
    while open > 0 {
        match events.recv().await {
            Some((index, Event::Parts { parts: more, tokens })) => {
                parts[index].0.extend(more);
                parts[index].1.extend(tokens);
            }
            Some((index, Event::End { reason, counts })) => {
                parts[index].2 = reason;
                all.add(counts);
                open -= 1;
            }
            Some((_, Event::Failed(refusal))) => return Err(refusal),
            Some((_, Event::Vector(_))) | None => return Err(ended()),
        }
    }
    let join = |(parts, tokens, reason): (Vec<AnswerPart>, _, _)| Whole {
        answer: parts.into_iter().collect(),
        tokens,
        reason,
    };
    Ok(frame.whole(parts.into_iter().map(join).collect(), all))
}

/// A part of a stream as it is sent.
fn line(value: &Value) -> Vec<u8> {
    format!("data: {value}\n\n").into_bytes()
}

/// An answer that is sent in parts. Dropping it, for example when the connection ends, cancels the answer.
pub(super) struct Parts {
    frame: Frame,
    events: Events,
    /// Sent first.
    first: Vec<u8>,
    /// What was sent of each answer.
    written: Vec<Written>,
    /// Answers that are not complete.
    open: usize,
    counts: Counts,
    is_done: bool,
}

impl Parts {
    /// The parts of an event.
    fn parts(&mut self, event: Option<(usize, Event)>) -> Vec<u8> {
        let mut out = match event {
            Some((index, Event::Parts { parts, tokens })) => {
                let mut tokens = tokens.as_slice();
                let mut out = Vec::new();
                for part in parts {
                    let is_text = matches!(part, AnswerPart::Text(_));
                    out.extend(line(&self.frame.part(index, part, tokens, &mut self.written[index])));
                    // They belong to the first text.
                    tokens = if is_text { &[] } else { tokens };
                }
                return out;
            }
            Some((index, Event::End { reason, counts })) => {
                self.open -= 1;
                self.counts.add(counts);
                let mut out = line(&self.frame.end(index, reason));
                if self.open > 0 {
                    return out;
                }
                if self.frame.counts {
                    out.extend(line(&self.frame.count(self.counts)));
                }
                out
            }
            Some((_, Event::Failed(refusal))) => line(&error(&refusal)),
            Some((_, Event::Vector(_))) | None => line(&error(&ended())),
        };
        self.is_done = true;
        out.extend(b"data: [DONE]\n\n");
        out
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
