//! An answer in progress: what tokens become on their way to the client.

use std::time::Instant;

use infer::chat::{AnswerParser, AnswerPart};
use infer::tokenizer::{Decoder, Tokenizer};
use llguidance::Matcher;

use super::grammar::advance;
use super::logprobs::{Chosen, Held};
use super::request::Refusal;
use super::stops::Stops;
use super::{Counts, Event, Job, Reason, Text};

/// What makes text of tokens.
pub(super) enum Source {
    /// The text as it is.
    Plain(Decoder),
    /// Text, thoughts and calls of tools.
    Parsed(Box<AnswerParser>),
}

impl Source {
    fn push(&mut self, tokenizer: &Tokenizer, token: u32) -> Vec<AnswerPart> {
        match self {
            // A token that ends the answer is none of its text.
            Self::Plain(_) if tokenizer.is_stop(token) => Vec::new(),
            Self::Plain(decoder) => vec![AnswerPart::Text(decoder.push(tokenizer, token))],
            Self::Parsed(parser) => parser.push(tokenizer, token),
        }
    }

    fn finish(&mut self) -> Vec<AnswerPart> {
        match self {
            Self::Plain(decoder) => vec![AnswerPart::Text(decoder.finish())],
            Self::Parsed(parser) => parser.finish(),
        }
    }
}

/// An unfinished answer with text.
pub(super) struct Answer {
    job: Job,
    source: Source,
    stops: Stops,
    held: Held,
    pub(super) limit: usize,
    /// Log probabilities beside those of the answer; `None` for none.
    pub(super) logprobs: Option<usize>,
    pub(super) grammar: Option<Matcher>,
    /// Whether the first call of a tool ends the answer.
    one_call: bool,
    has_calls: bool,
    pub(super) start: Instant,
    /// Tokens of the prompt that were known before.
    known: usize,
    pub(super) made: usize,
}

/// Whether an answer continues.
#[derive(Debug, PartialEq)]
pub(super) enum Progress {
    More,
    /// The answer is complete.
    End(Reason),
    /// The answer cannot be completed.
    Failed(Refusal),
    /// The client has disconnected.
    Gone,
}

impl Answer {
    pub(super) fn new(job: Job, text: Text, known: usize, start: Instant) -> Self {
        let Text { source, stops, limit, logprobs, grammar, one_call, .. } = text;
        let (stops, held) = (Stops::new(stops), Held::default());
        Self {
            job,
            source,
            stops,
            held,
            limit,
            logprobs,
            grammar,
            one_call,
            has_calls: false,
            start,
            known,
            made: 0,
        }
    }

    /// Adds a token to the answer. `chosen` has its log probability, if it is wanted.
    pub(super) fn push(&mut self, tokenizer: &Tokenizer, token: u32, chosen: Option<Chosen>) -> Progress {
        self.made += 1;
        let parts = self.source.push(tokenizer, token);
        let is_end = tokenizer.is_stop(token);
        if let Some(chosen) = chosen.filter(|_| !is_end) {
            let text = |part: &AnswerPart| if let AnswerPart::Text(text) = part { text.len() } else { 0 };
            self.held.push(chosen, parts.iter().map(text).sum());
        }
        let sent = self.send(parts);
        if is_end {
            return Progress::End(Reason::Stop);
        }
        let is_complete = match self.grammar.as_mut().map(|matcher| advance(matcher, token)) {
            Some(Err(refusal)) => return Progress::Failed(refusal),
            Some(Ok(is_complete)) => is_complete,
            None => false,
        };
        if !sent {
            Progress::Gone
        } else if self.stops.is_found() || is_complete || self.one_call && self.has_calls {
            Progress::End(Reason::Stop)
        } else if self.made == self.limit {
            Progress::End(Reason::Length)
        } else {
            Progress::More
        }
    }

    /// Sends parts of the answer up to a text that ends it; returns whether there is a client.
    fn send(&mut self, parts: Vec<AnswerPart>) -> bool {
        let (mut sent, mut bytes) = (Vec::new(), 0);
        for part in parts {
            match part {
                AnswerPart::Text(text) => {
                    let text = self.stops.push(&text);
                    bytes += text.len();
                    sent.push(AnswerPart::Text(text));
                }
                // Nothing follows the text that ends the answer.
                _ if self.stops.is_found() => {}
                AnswerPart::Call(_) if self.one_call && self.has_calls => {}
                AnswerPart::Call(call) => {
                    let text = self.stops.finish();
                    bytes += text.len();
                    self.has_calls = true;
                    sent.extend([AnswerPart::Text(text), AnswerPart::Call(call)]);
                }
                reasoning @ AnswerPart::Reasoning(_) => sent.push(reasoning),
            }
        }
        let is_empty = |part: &AnswerPart| match part {
            AnswerPart::Text(text) | AnswerPart::Reasoning(text) => text.is_empty(),
            AnswerPart::Call(_) => false,
        };
        sent.retain(|part| !is_empty(part));
        if sent.is_empty() {
            return !self.job.is_gone();
        }
        self.job.send(Event::Parts { parts: sent, tokens: self.held.pass(bytes) })
    }

    /// Sends the rest.
    pub(super) fn end(mut self, reason: Reason) -> usize {
        let rest = self.source.finish();
        self.send(rest);
        let text = self.stops.finish();
        let mut tokens = self.held.pass(text.len());
        if !self.stops.is_found() {
            tokens.extend(self.held.rest());
        }
        if !text.is_empty() || !tokens.is_empty() {
            self.job.send(Event::Parts { parts: vec![AnswerPart::Text(text)], tokens });
        }
        let reason = if reason == Reason::Stop && self.has_calls { Reason::Calls } else { reason };
        self.job.send(Event::End { reason, counts: Counts { made: self.made, known: self.known } });
        self.made
    }

    pub(super) fn fail(&self, refusal: Refusal) {
        self.job.send(Event::Failed(refusal));
    }
}
