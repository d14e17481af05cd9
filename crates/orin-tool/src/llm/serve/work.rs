//! The thread with the model: several requests are answered together.
//!
//! Each request gets a session that is free, if possible one whose context starts with the same tokens: a continued
//! conversation reuses its part of the context. A prompt is read in pieces between the steps of the others; then its
//! session joins the batch, until its answer ends.

use std::sync::mpsc::{Receiver, RecvTimeoutError, TryRecvError};
use std::time::Instant;

use anyhow::Result;
use infer::decode::{Batch, Engine, Session, Slot};
use infer::tokenizer::{Decoder, Tokenizer};
use orin_cli::{Stop, warn};

use super::stops::Stops;
use super::{BEAT, Event, Job};

/// Tokens of a prompt that are read between two steps of the others.
const PIECE: usize = 256;

/// The sessions, and what they answer.
pub(super) struct Worker<'a> {
    tokenizer: &'a Tokenizer,
    batch: Batch,
    free: Vec<Session>,
    /// Requests whose prompts are read, in turn.
    reading: Vec<(Session, Answer)>,
    writing: Vec<(Slot, Answer)>,
}

/// An unfinished answer.
struct Answer {
    job: Job,
    start: Instant,
    /// Tokens of the prompt that were read, and that were known before.
    read: usize,
    known: usize,
    decoder: Decoder,
    stops: Stops,
    made: usize,
}

/// Whether an answer continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    More,
    /// The answer is complete; whether its length ended it.
    End {
        is_cut: bool,
    },
    /// The client has disconnected.
    Gone,
}

impl Answer {
    /// Begins to answer a job with a session.
    fn new(job: Job, session: &mut Session) -> Result<Self> {
        let known = shared(session, &job.tokens);
        session.truncate(known)?;
        let stops = Stops::new(job.stops.clone());
        let start = Instant::now();
        Ok(Self { job, start, read: known, known, decoder: Decoder::default(), stops, made: 0 })
    }

    /// Adds a token to the answer.
    fn push(&mut self, tokenizer: &Tokenizer, token: u32) -> Progress {
        self.made += 1;
        if tokenizer.is_stop(token) {
            return Progress::End { is_cut: false };
        }
        let text = self.stops.push(&self.decoder.push(tokenizer, token));
        let reply = &self.job.reply;
        let is_gone =
            if text.is_empty() { reply.is_closed() } else { reply.send(Event::Text(text)).is_err() };
        if is_gone {
            Progress::Gone
        } else if self.stops.is_found() {
            Progress::End { is_cut: false }
        } else if self.made == self.job.limit {
            Progress::End { is_cut: true }
        } else {
            Progress::More
        }
    }

    /// Sends the rest.
    fn end(mut self, is_cut: bool) {
        let rest = self.stops.push(&self.decoder.finish()) + &self.stops.finish();
        // The client may disconnect at any time.
        if !rest.is_empty() {
            let _ = self.job.reply.send(Event::Text(rest));
        }
        let _ = self.job.reply.send(Event::End { is_cut, made: self.made });
        let fed = self.job.tokens.len() - self.known;
        warn(format_args!(
            "{fed} tokens read, {} made in {:.2} s",
            self.made,
            self.start.elapsed().as_secs_f64()
        ));
    }

    fn fail(&self, reason: &str) {
        // The client may have disconnected; the program ends anyway.
        let _ = self.job.reply.send(Event::Failed(reason.to_owned()));
    }
}

/// Number of tokens at the start of a session's context that are those of a prompt.
fn shared(session: &Session, tokens: &[u32]) -> usize {
    session.context_tokens().iter().zip(tokens).take_while(|(old, new)| old == new).count()
}

impl<'a> Worker<'a> {
    pub(super) fn new(engine: &Engine, sessions: Vec<Session>, tokenizer: &'a Tokenizer) -> Result<Self> {
        let batch = engine.batch(sessions.len())?;
        Ok(Self { tokenizer, batch, free: sessions, reading: Vec::new(), writing: Vec::new() })
    }

    /// Answers requests until a signal arrives or the device fails.
    pub(super) fn run(mut self, jobs: &Receiver<Job>, stop: &Stop) -> Result<()> {
        let result = self.answer(jobs, stop);
        let reason = match &result {
            Ok(()) => "the server ends".to_owned(),
            Err(error) => format!("{error:#}"),
        };
        let answers = self.reading.iter().map(|(_, answer)| answer);
        answers.chain(self.writing.iter().map(|(_, answer)| answer)).for_each(|answer| answer.fail(&reason));
        result
    }

    fn answer(&mut self, jobs: &Receiver<Job>, stop: &Stop) -> Result<()> {
        while !stop.is_requested() {
            if !self.accept(jobs)? {
                return Ok(());
            }
            self.read()?;
            self.write()?;
        }
        Ok(())
    }

    /// Takes jobs while sessions are free; waits for one if there is nothing else to do. Returns false if no more
    /// jobs can arrive.
    fn accept(&mut self, jobs: &Receiver<Job>) -> Result<bool> {
        while !self.free.is_empty() {
            let is_idle = self.reading.is_empty() && self.writing.is_empty();
            let job = if is_idle {
                match jobs.recv_timeout(BEAT) {
                    Ok(job) => job,
                    Err(RecvTimeoutError::Timeout) => return Ok(true),
                    Err(RecvTimeoutError::Disconnected) => return Ok(false),
                }
            } else {
                match jobs.try_recv() {
                    Ok(job) => job,
                    // Answers in progress are completed.
                    Err(TryRecvError::Empty | TryRecvError::Disconnected) => return Ok(true),
                }
            };
            // The client may have disconnected while the request waited.
            if job.reply.is_closed() {
                continue;
            }
            let best = (0..self.free.len()).max_by_key(|at| shared(&self.free[*at], &job.tokens));
            // PANIC: a session is free.
            let mut session = self.free.swap_remove(best.expect("a free session"));
            let answer = Answer::new(job, &mut session)?;
            self.reading.push((session, answer));
        }
        Ok(true)
    }

    /// Reads a piece of a prompt.
    fn read(&mut self) -> Result<()> {
        if self.reading.is_empty() {
            return Ok(());
        }
        let (mut session, mut answer) = self.reading.remove(0);
        if answer.job.reply.is_closed() {
            self.free.push(session);
            return Ok(());
        }
        let end = answer.job.tokens.len().min(answer.read + PIECE);
        session.feed(&answer.job.tokens[answer.read..end])?;
        answer.read = end;
        if end < answer.job.tokens.len() {
            self.reading.push((session, answer));
            return Ok(());
        }
        session.set_sampling(&answer.job.sampling)?;
        let slot = self.batch.join(session)?;
        self.writing.push((slot, answer));
        Ok(())
    }

    /// Produces a token of each answer.
    fn write(&mut self) -> Result<()> {
        if self.writing.is_empty() {
            return Ok(());
        }
        let (tokenizer, writing) = (self.tokenizer, &mut self.writing);
        let mut ended = Vec::new();
        for (slot, token) in self.batch.step()? {
            let place = writing.iter().position(|(own, _)| own == slot);
            // PANIC: each session of the batch has an answer.
            let place = place.expect("an answer for each session");
            let progress = writing[place].1.push(tokenizer, *token);
            if progress != Progress::More {
                let (slot, answer) = writing.swap_remove(place);
                ended.push((slot, answer, progress));
            }
        }
        for (slot, answer, progress) in ended {
            self.free.push(self.batch.leave(slot)?);
            if let Progress::End { is_cut } = progress {
                answer.end(is_cut);
            }
        }
        Ok(())
    }
}
