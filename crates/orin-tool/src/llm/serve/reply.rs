//! Answers in OpenAI's format.

use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};

use super::request::Refusal;

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Completion,
    Chat,
}

/// Fields that all parts of an answer share.
#[derive(Clone, Debug)]
pub(super) struct Frame {
    pub(super) kind: Kind,
    pub(super) id: u64,
    pub(super) model: String,
    pub(super) prompt_tokens: usize,
    created: u64,
}

impl Frame {
    pub(super) fn new(kind: Kind, id: u64, model: &str, prompt_tokens: usize) -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
        Self { kind, id, model: model.to_owned(), prompt_tokens, created: now }
    }

    fn object(&self, choices: Value, is_part: bool) -> Value {
        let (prefix, object) = match (self.kind, is_part) {
            (Kind::Completion, _) => ("cmpl", "text_completion"),
            (Kind::Chat, false) => ("chatcmpl", "chat.completion"),
            (Kind::Chat, true) => ("chatcmpl", "chat.completion.chunk"),
        };
        json!({
            "id": format!("{prefix}-{}-{}", self.created, self.id),
            "object": object,
            "created": self.created,
            "model": self.model,
            "choices": choices,
        })
    }

    fn usage(&self, made: usize) -> Value {
        let prompt = self.prompt_tokens;
        json!({ "prompt_tokens": prompt, "completion_tokens": made, "total_tokens": prompt + made })
    }

    /// The whole answer.
    pub(super) fn whole(&self, text: &str, is_cut: bool, made: usize) -> Value {
        let mut choice = json!({ "index": 0, "finish_reason": reason(is_cut), "logprobs": null });
        match self.kind {
            Kind::Completion => choice["text"] = json!(text),
            Kind::Chat => choice["message"] = json!({ "role": "assistant", "content": text }),
        }
        let mut value = self.object(json!([choice]), false);
        value["usage"] = self.usage(made);
        value
    }

    /// The part of a stream with the role; `None` if there is none.
    pub(super) fn start(&self) -> Option<Value> {
        let delta = json!({ "role": "assistant", "content": "" });
        let choice = json!({ "index": 0, "delta": delta, "finish_reason": null });
        (self.kind == Kind::Chat).then(|| self.object(json!([choice]), true))
    }

    /// A part of a stream.
    pub(super) fn part(&self, text: &str) -> Value {
        let mut choice = json!({ "index": 0, "finish_reason": null });
        match self.kind {
            Kind::Completion => choice["text"] = json!(text),
            Kind::Chat => choice["delta"] = json!({ "content": text }),
        }
        self.object(json!([choice]), true)
    }

    /// The part of a stream with the reason of the end.
    pub(super) fn end(&self, is_cut: bool) -> Value {
        let mut choice = json!({ "index": 0, "finish_reason": reason(is_cut) });
        match self.kind {
            Kind::Completion => choice["text"] = json!(""),
            Kind::Chat => choice["delta"] = json!({}),
        }
        self.object(json!([choice]), true)
    }

    /// The part of a stream that counts tokens.
    pub(super) fn count(&self, made: usize) -> Value {
        let mut value = self.object(json!([]), true);
        value["usage"] = self.usage(made);
        value
    }
}

/// Why an answer ends.
fn reason(is_cut: bool) -> &'static str {
    if is_cut { "length" } else { "stop" }
}

/// An error.
pub(super) fn error(refusal: &Refusal) -> Value {
    let kind = if refusal.status < 500 { "invalid_request_error" } else { "server_error" };
    json!({ "error": { "message": refusal.text, "type": kind, "param": refusal.field, "code": refusal.code } })
}
