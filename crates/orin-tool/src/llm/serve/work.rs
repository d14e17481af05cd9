//! The thread with the model: several requests are answered together.
//!
//! Each answer gets a session that is free, if possible one whose context starts with the same tokens: a continued
//! conversation reuses its part of the context. A prompt is read in pieces between the steps of the others; then its
//! session joins the batch, until its answer ends.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::{Duration, Instant};

use anyhow::Result;
use infer::decode::{Batch, Engine, Session, Slot};
use orin_cli::{Stop, warn};

use super::answer::{Answer, Progress};
use super::embeddings::Pool;
use super::metrics::Metrics;
use super::request::Refusal;
use super::{BEAT, Event, Facts, Job, Task, grammar, logprobs};

/// Tokens of a prompt that are read between two steps of the others.
const PIECE: usize = 256;

/// The sessions, and what they answer.
pub(super) struct Worker<'a> {
    facts: &'a Facts,
    metrics: Arc<Metrics>,
    batch: Batch,
    free: Vec<Session>,
    /// Answers of requests that were taken from the queue, in turn.
    waiting: VecDeque<Job>,
    /// Those whose prompts are read, in turn.
    reading: VecDeque<Reading>,
    writing: Vec<(Slot, Answer)>,
    /// Tokens of a step.
    made: Vec<(Slot, u32)>,
    logits: Vec<f32>,
}

/// A prompt that is read.
struct Reading {
    session: Session,
    job: Job,
    /// Tokens that were read, and that were known before.
    read: usize,
    known: usize,
    start: Instant,
    /// For an embedding.
    pool: Option<Pool>,
}

/// Number of tokens at the start of a session's context that are those of a prompt.
fn shared(session: &Session, tokens: &[u32]) -> usize {
    session.context_tokens().iter().zip(tokens).take_while(|(old, new)| old == new).count()
}

/// Why the rest of an answer is missing.
fn ends() -> Refusal {
    Refusal::new(503, "the server ends")
}

impl<'a> Worker<'a> {
    pub(super) fn new(
        engine: &Engine,
        sessions: Vec<Session>,
        facts: &'a Facts,
        metrics: Arc<Metrics>,
    ) -> Result<Self> {
        let batch = engine.batch(sessions.len())?;
        let (waiting, reading, writing, made) = <(VecDeque<_>, VecDeque<_>, Vec<_>, Vec<_>)>::default();
        let logits = vec![0.0; facts.vocabulary];
        Ok(Self { facts, metrics, batch, free: sessions, waiting, reading, writing, made, logits })
    }

    /// Answers requests until the device fails, or a signal arrives and either all answers are complete or `grace` is
    /// over.
    pub(super) fn run(mut self, jobs: &Receiver<Vec<Job>>, stop: &Stop, grace: Duration) -> Result<()> {
        let result = self.answer(jobs, stop, grace);
        let refusal = || match &result {
            Ok(()) => ends(),
            Err(error) => Refusal::new(500, format!("{error:#}")),
        };
        self.reading.iter().for_each(|reading| reading.job.fail(refusal()));
        self.writing.iter().for_each(|(_, answer)| answer.fail(refusal()));
        self.metrics.failed(self.reading.len() + self.writing.len());
        result
    }

    fn answer(&mut self, jobs: &Receiver<Vec<Job>>, stop: &Stop, grace: Duration) -> Result<()> {
        let mut end = None;
        loop {
            if stop.is_requested() {
                // Their clients learn that the server ends when the jobs are dropped.
                jobs.try_iter().for_each(|_| self.metrics.taken());
                let end = *end.get_or_insert_with(|| Instant::now() + grace);
                if self.is_idle() || Instant::now() >= end {
                    return Ok(());
                }
            }
            if !self.accept(jobs)? {
                return Ok(());
            }
            self.report();
            self.read()?;
            self.write()?;
        }
    }

    fn is_idle(&self) -> bool {
        self.waiting.is_empty() && self.reading.is_empty() && self.writing.is_empty()
    }

    /// Numbers for the metrics.
    fn report(&self) {
        let reading = self.reading.iter().map(|reading| reading.read);
        let writing = self.writing.iter().filter_map(|(slot, _)| self.batch.session(*slot)).map(Session::len);
        let (running, tokens) = (self.reading.len() + self.writing.len(), reading.chain(writing).sum());
        self.metrics.runs(running, self.waiting.len(), tokens);
    }

    /// Starts answers while sessions are free; waits for a request if there is nothing else to do. Returns false if no
    /// more requests can arrive.
    fn accept(&mut self, jobs: &Receiver<Vec<Job>>) -> Result<bool> {
        while !self.free.is_empty() {
            let Some(job) = self.waiting.pop_front() else {
                let request = if self.is_idle() {
                    self.report();
                    match jobs.recv_timeout(BEAT) {
                        Ok(request) => request,
                        Err(RecvTimeoutError::Timeout) => return Ok(true),
                        Err(RecvTimeoutError::Disconnected) => return Ok(false),
                    }
                } else {
                    match jobs.try_recv() {
                        Ok(request) => request,
                        // Answers in progress are completed.
                        Err(TryRecvError::Empty | TryRecvError::Disconnected) => return Ok(true),
                    }
                };
                self.metrics.taken();
                self.waiting.extend(request);
                continue;
            };
            // The client may have disconnected while the request waited.
            if job.is_gone() {
                self.metrics.gone();
                continue;
            }
            self.begin(job)?;
        }
        Ok(true)
    }

    /// Begins to read a prompt with a free session.
    fn begin(&mut self, job: Job) -> Result<()> {
        let best = (0..self.free.len()).max_by_key(|at| shared(&self.free[*at], &job.tokens));
        // PANIC: callers have seen that a session is free.
        let mut session = self.free.swap_remove(best.expect("a free session"));
        let pool = if let Task::Vector(pooling) = job.task { Some(Pool::new(pooling)) } else { None };
        let known =
            if pool.as_ref().is_some_and(Pool::needs_all) { 0 } else { shared(&session, &job.tokens) };
        session.truncate(known)?;
        self.reading.push_back(Reading { session, job, read: known, known, start: Instant::now(), pool });
        Ok(())
    }

    /// Reads a piece of a prompt. Other answers to the same prompt wait, and get a copy of its context.
    fn read(&mut self) -> Result<()> {
        let waits = |own: &Reading| {
            let ahead = |other: &Reading| (other.read, own.job.index) > (own.read, other.job.index);
            self.reading.iter().any(|other| other.has_prompt_of(own) && ahead(other))
        };
        let next = self.reading.iter().position(|reading| !waits(reading));
        let Some(mut reading) = next.and_then(|at| self.reading.remove(at)) else { return Ok(()) };
        if reading.job.is_gone() {
            self.metrics.gone();
            self.free.push(reading.session);
            return Ok(());
        }
        let (start, before) = (Instant::now(), reading.read);
        let is_read = reading.piece()?;
        self.metrics.read(reading.read - before, start.elapsed());
        if !is_read {
            self.reading.push_back(reading);
            return Ok(());
        }
        for other in &mut self.reading {
            if other.has_prompt_of(&reading) && other.read < reading.read {
                other.session.copy_context(&mut reading.session)?;
                other.read = reading.read;
            }
        }
        self.metrics.reused(reading.known);
        let Reading { mut session, mut job, known, start, pool, .. } = reading;
        match (job.take(), pool) {
            (Task::Text(mut text), _) => {
                session.set_sampling(&text.sampling)?;
                let first =
                    text.grammar.as_mut().map(|matcher| grammar::mask(matcher, self.facts.vocabulary));
                match first.transpose() {
                    Ok(mask) => session.set_mask(mask.as_deref())?,
                    Err(refusal) => {
                        job.fail(refusal);
                        self.metrics.failed(1);
                        self.free.push(session);
                        return Ok(());
                    }
                }
                let slot = self.batch.join(session)?;
                self.writing.push((slot, Answer::new(job, *text, known, start)));
            }
            (Task::Vector(_), Some(pool)) => {
                job.send(Event::Vector(pool.finish(&mut session)?));
                self.free.push(session);
            }
            (Task::Vector(_) | Task::Taken, _) => self.free.push(session),
        }
        Ok(())
    }

    /// Produces a token of each answer.
    fn write(&mut self) -> Result<()> {
        if self.writing.is_empty() {
            return Ok(());
        }
        let start = Instant::now();
        self.made.clear();
        self.made.extend_from_slice(self.batch.step()?);
        self.metrics.step(self.made.len(), start.elapsed());
        for at in 0..self.made.len() {
            let (slot, token) = self.made[at];
            let place = self.writing.iter().position(|(own, _)| *own == slot);
            // PANIC: each session of the batch has an answer.
            let place = place.expect("an answer for each session");
            let answer = &mut self.writing[place].1;
            let chosen = match answer.logprobs {
                None => None,
                Some(most) => {
                    self.batch.chosen_from(slot, &mut self.logits)?;
                    Some(logprobs::chosen(&self.logits, token, most))
                }
            };
            if answer.made == 0 {
                self.metrics.first(answer.start.elapsed());
            }
            let mut progress = answer.push(&self.facts.tokenizer, token, chosen);
            if let (Progress::More, Some(matcher)) = (&progress, &mut answer.grammar) {
                match grammar::mask(matcher, self.facts.vocabulary) {
                    Ok(mask) => self.batch.set_mask(slot, Some(&mask))?,
                    Err(refusal) => progress = Progress::Failed(refusal),
                }
            }
            if progress != Progress::More {
                let (slot, answer) = self.writing.swap_remove(place);
                self.free.push(self.batch.leave(slot)?);
                self.end(answer, progress);
            }
        }
        Ok(())
    }

    /// Ends an answer, whose session is free again.
    fn end(&self, answer: Answer, progress: Progress) {
        let start = answer.start;
        match progress {
            Progress::End(reason) => {
                let made = answer.end(reason);
                self.metrics.ended(start.elapsed());
                warn(format_args!("{made} tokens made in {:.2} s", start.elapsed().as_secs_f64()));
            }
            Progress::Failed(refusal) => {
                answer.fail(refusal);
                self.metrics.failed(1);
            }
            Progress::Gone | Progress::More => self.metrics.gone(),
        }
    }
}

impl Reading {
    /// Whether this is another answer to the same request, whose prompt ends with the same state.
    fn has_prompt_of(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.job.tokens, &other.job.tokens) && self.pool.is_none()
    }

    /// Reads a piece; returns whether the prompt is complete.
    fn piece(&mut self) -> Result<bool> {
        let tokens = &self.job.tokens;
        let end = tokens.len().min(self.read + PIECE);
        match &mut self.pool {
            Some(pool) if pool.needs_all() => {
                // Each token's vector is needed.
                let end = end.min(self.read + Pool::PIECE);
                for token in &tokens[self.read..end] {
                    self.session.feed(&[*token])?;
                    pool.add(&self.session.hidden()?);
                }
                self.read = end;
            }
            _ => {
                self.session.feed(&tokens[self.read..end])?;
                self.read = end;
            }
        }
        Ok(self.read == tokens.len())
    }
}
