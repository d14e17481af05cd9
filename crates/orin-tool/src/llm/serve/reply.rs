//! Answers in OpenAI's format.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use infer::chat::{Answer, AnswerPart, ToolCall};
use serde_json::{Map, Value, json};

use super::logprobs::Chosen;
use super::request::Refusal;
use super::{Counts, Facts, Reason};

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Completion,
    Chat,
}

/// Least log probability that is written: JSON has no infinity.
const LEAST_LOGPROB: f64 = -9999.0;

/// Fields that all parts of an answer share.
pub(super) struct Frame {
    pub(super) kind: Kind,
    pub(super) id: u64,
    pub(super) facts: Arc<Facts>,
    pub(super) prompt_tokens: usize,
    /// Whether a stream counts tokens: its other parts then say that they do not.
    pub(super) counts: bool,
    /// Whether log probabilities are written.
    pub(super) has_logprobs: bool,
    created: u64,
}

/// What was written of one of the request's answers.
#[derive(Clone, Debug, Default)]
pub(super) struct Written {
    bytes: usize,
    characters: usize,
    calls: usize,
}

impl Written {
    /// The place of a token in the text, in characters, if `text` is written next.
    fn offset(&self, token: &Chosen, text: &str) -> usize {
        let before = text.get(..token.start.saturating_sub(self.bytes)).unwrap_or(text);
        self.characters + before.chars().count()
    }

    fn add(&mut self, text: &str) {
        self.bytes += text.len();
        self.characters += text.chars().count();
    }
}

/// One of the request's answers.
#[derive(Debug)]
pub(super) struct Whole {
    pub(super) answer: Answer,
    pub(super) tokens: Vec<Chosen>,
    pub(super) reason: Reason,
}

impl Frame {
    pub(super) fn new(kind: Kind, id: u64, facts: Arc<Facts>, prompt_tokens: usize) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
        Self { kind, id, facts, prompt_tokens, counts: false, has_logprobs: false, created: now }
    }

    fn object(&self, choices: Value, is_part: bool) -> Value {
        let (prefix, object) = match (self.kind, is_part) {
            (Kind::Completion, _) => ("cmpl", "text_completion"),
            (Kind::Chat, false) => ("chatcmpl", "chat.completion"),
            (Kind::Chat, true) => ("chatcmpl", "chat.completion.chunk"),
        };
        let mut value = json!({
            "id": format!("{prefix}-{}-{}", self.created, self.id),
            "object": object,
            "created": self.created,
            "model": self.facts.name,
            "choices": choices,
        });
        if is_part && self.counts {
            value["usage"] = Value::Null;
        }
        value
    }

    fn usage(&self, counts: Counts) -> Value {
        let prompt = self.prompt_tokens;
        json!({
            "prompt_tokens": prompt,
            "completion_tokens": counts.made,
            "total_tokens": prompt + counts.made,
            "prompt_tokens_details": { "cached_tokens": counts.known },
        })
    }

    /// All answers.
    pub(super) fn whole(&self, answers: Vec<Whole>, counts: Counts) -> Value {
        let choice = |(index, whole): (usize, Whole)| {
            let Whole { answer, tokens, reason } = whole;
            let logprobs = self.logprobs(&tokens, &answer.text, &Written::default());
            let mut choice = json!({ "index": index, "finish_reason": name(reason), "logprobs": logprobs });
            match self.kind {
                Kind::Completion => choice["text"] = json!(answer.text),
                Kind::Chat => choice["message"] = self.message(index, answer),
            }
            choice
        };
        let choices = answers.into_iter().enumerate().map(choice).collect();
        let mut value = self.object(choices, false);
        value["usage"] = self.usage(counts);
        value
    }

    fn message(&self, index: usize, answer: Answer) -> Value {
        let Answer { text, reasoning, tool_calls, .. } = answer;
        let mut message = json!({ "role": "assistant", "content": text });
        if !reasoning.is_empty() {
            message["reasoning_content"] = json!(reasoning);
        }
        if !tool_calls.is_empty() {
            if text.is_empty() {
                message["content"] = Value::Null;
            }
            let calls =
                tool_calls.into_iter().enumerate().map(|(number, call)| self.call(index, number, call));
            message["tool_calls"] = calls.collect();
        }
        message
    }

    /// A call of a tool. Its id has the form that templates of all models accept: nine letters and digits.
    fn call(&self, index: usize, number: usize, call: ToolCall) -> Value {
        let new = || {
            // CAST: usize is at most 64 bits.
            let seed = [self.created, self.id, index as u64, number as u64];
            let mix = |all: u64, part: &u64| (all ^ part).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(29);
            let mut rest = seed.iter().fold(0, mix);
            let digit = |_| {
                // CAST: below 36.
                let digit = char::from_digit((rest % 36) as u32, 36);
                rest /= 36;
                digit.unwrap_or('0')
            };
            (0..9).map(digit).collect::<String>()
        };
        let id = call.id.unwrap_or_else(new);
        json!({
            "id": id,
            "type": "function",
            "function": { "name": call.name, "arguments": call.arguments },
        })
    }

    /// The part of a stream with the role; `None` if there is none.
    pub(super) fn start(&self, index: usize) -> Option<Value> {
        let delta = json!({ "role": "assistant", "content": "" });
        let choice = json!({ "index": index, "delta": delta, "finish_reason": null });
        (self.kind == Kind::Chat).then(|| self.object(json!([choice]), true))
    }

    /// A part of a stream, with the tokens of its text.
    pub(super) fn part(&self, index: usize, part: AnswerPart, tokens: &[Chosen], to: &mut Written) -> Value {
        let mut choice = json!({ "index": index, "finish_reason": null });
        if let (true, AnswerPart::Text(text)) = (self.has_logprobs, &part) {
            choice["logprobs"] = self.logprobs(tokens, text, to);
        }
        let delta = match (self.kind, part) {
            (Kind::Completion, AnswerPart::Text(text)) => {
                to.add(&text);
                choice["text"] = json!(text);
                return self.object(json!([choice]), true);
            }
            (_, AnswerPart::Text(text)) => json!({ "content": text }),
            (_, AnswerPart::Reasoning(text)) => json!({ "reasoning_content": text }),
            (_, AnswerPart::Call(call)) => {
                let mut value = self.call(index, to.calls, call);
                value["index"] = json!(to.calls);
                to.calls += 1;
                json!({ "tool_calls": [value] })
            }
        };
        choice["delta"] = delta;
        self.object(json!([choice]), true)
    }

    /// The part of a stream with the reason of the end.
    pub(super) fn end(&self, index: usize, reason: Reason) -> Value {
        let mut choice = json!({ "index": index, "finish_reason": name(reason) });
        match self.kind {
            Kind::Completion => choice["text"] = json!(""),
            Kind::Chat => choice["delta"] = json!({}),
        }
        self.object(json!([choice]), true)
    }

    /// The part of a stream that counts tokens.
    pub(super) fn count(&self, counts: Counts) -> Value {
        let mut value = self.object(json!([]), true);
        value["usage"] = self.usage(counts);
        value
    }

    /// Log probabilities of the tokens of a text, which follows what was written; null if none are wanted.
    fn logprobs(&self, tokens: &[Chosen], text: &str, written: &Written) -> Value {
        if !self.has_logprobs {
            return Value::Null;
        }
        let entry = |token: u32, logprob: f64| {
            let bytes = self.facts.tokenizer.bytes(token);
            json!({ "token": self.text(token), "logprob": logprob.max(LEAST_LOGPROB), "bytes": bytes })
        };
        if self.kind == Kind::Chat {
            let token = |chosen: &Chosen| {
                let mut value = entry(chosen.token, chosen.logprob);
                value["top_logprobs"] =
                    chosen.top.iter().map(|(token, logprob)| entry(*token, *logprob)).collect();
                value
            };
            return json!({ "content": tokens.iter().map(token).collect::<Vec<_>>(), "refusal": null });
        }
        let top = |chosen: &Chosen| {
            let all = chosen.top.iter().copied().chain([(chosen.token, chosen.logprob)]);
            all.map(|(token, logprob)| (self.text(token), json!(logprob.max(LEAST_LOGPROB))))
                .collect::<Map<_, _>>()
        };
        json!({
            "tokens": tokens.iter().map(|chosen| self.text(chosen.token)).collect::<Vec<_>>(),
            "token_logprobs": tokens.iter().map(|chosen| chosen.logprob.max(LEAST_LOGPROB)).collect::<Vec<_>>(),
            "top_logprobs": tokens.iter().map(top).collect::<Vec<_>>(),
            "text_offset": tokens.iter().map(|chosen| written.offset(chosen, text)).collect::<Vec<_>>(),
        })
    }

    /// A token as text; bytes that are no text as OpenAI's interface writes them.
    fn text(&self, token: u32) -> String {
        let bytes = self.facts.tokenizer.bytes(token);
        match str::from_utf8(bytes) {
            Ok(text) => text.to_owned(),
            Err(_) => bytes.iter().fold("bytes:".to_owned(), |text, byte| text + &format!("\\x{byte:02x}")),
        }
    }
}

/// Why an answer ends.
fn name(reason: Reason) -> &'static str {
    match reason {
        Reason::Stop => "stop",
        Reason::Length => "length",
        Reason::Calls => "tool_calls",
    }
}

/// An error.
pub(super) fn error(refusal: &Refusal) -> Value {
    let kind = if refusal.status < 500 { "invalid_request_error" } else { "server_error" };
    json!({ "error": { "message": refusal.text, "type": kind, "param": refusal.field, "code": refusal.code } })
}
