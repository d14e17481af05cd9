//! What a model answers: text, thoughts and calls of tools.

use std::sync::Arc;

use serde_json::Value;

use super::ToolCall;
use super::syntax::{Calls, Syntax};
use crate::tokenizer::{Decoder, Tokenizer};

/// Names of control tokens that separate the parts of answers.
const SEPARATORS: [&str; 17] = [
    "<think>",
    "</think>",
    "<tool_call>",
    "</tool_call>",
    "[TOOL_CALLS]",
    "[ARGS]",
    "[CALL_ID]",
    "<|python_tag|>",
    "<|tool_call|>",
    "<|/tool_call|>",
    "<arg_key>",
    "<|channel|>",
    "<|message|>",
    "<|constrain|>",
    "<|start|>",
    "<|end|>",
    "<|call|>",
];

/// A part of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnswerPart {
    /// Text for the user.
    Text(String),
    /// The model's thoughts.
    Reasoning(String),
    /// A call of a tool.
    Call(ToolCall),
}

/// A whole answer.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Answer {
    /// Text for the user.
    pub text: String,
    /// The model's thoughts; empty without them.
    pub reasoning: String,
    /// Calls of tools.
    pub tool_calls: Vec<ToolCall>,
}

impl FromIterator<AnswerPart> for Answer {
    fn from_iter<I: IntoIterator<Item = AnswerPart>>(parts: I) -> Self {
        let mut answer = Self::default();
        for part in parts {
            match part {
                AnswerPart::Text(text) => answer.text.push_str(&text),
                AnswerPart::Reasoning(text) => answer.reasoning.push_str(&text),
                AnswerPart::Call(call) => answer.tool_calls.push(call),
            }
        }
        answer
    }
}

/// Reads an answer token by token.
///
/// Parts come as soon as they are certain: text that may be the start of a call waits for the next token. A call that
/// is not written as the template writes calls is text.
#[derive(Clone, Debug)]
pub struct AnswerParser {
    syntax: Syntax,
    tools: Arc<[Value]>,
    decoder: Decoder,
    state: State,
    /// Text that was not passed on yet.
    held: String,
    /// Spaces at the end of thoughts.
    space: String,
    /// Whether the next text begins a part whose spaces in front are not passed on.
    begins: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Nothing was read yet.
    Start,
    Text,
    Reasoning,
    Call,
    /// Between `<|start|>` and `<|message|>`, of gpt-oss.
    Header,
    /// A call of gpt-oss; its name is in front of the text that is held.
    Body,
}

impl AnswerParser {
    /// A parser for the answer to a prompt, which may end with the start of thoughts.
    pub(super) fn new(syntax: Syntax, prompt: &str, tools: &[Value]) -> Self {
        let state = match syntax.calls {
            Calls::Harmony => State::Header,
            _ if syntax.thinks && prompt.trim_end().ends_with("<think>") => State::Reasoning,
            _ => State::Start,
        };
        Self {
            syntax,
            tools: tools.into(),
            decoder: Decoder::default(),
            state,
            held: String::new(),
            space: String::new(),
            begins: state == State::Reasoning,
        }
    }

    /// Whether the answer continues thoughts, which end with `</think>`: the prompt has begun them.
    pub fn continues_thoughts(&self) -> bool {
        self.state == State::Reasoning
    }

    /// Adds a token of the answer; those that end it may be added, too.
    pub fn push(&mut self, tokenizer: &Tokenizer, token: u32) -> Vec<AnswerPart> {
        let mut text = self.decoder.push(tokenizer, token);
        if tokenizer.is_control(token) {
            let name = SEPARATORS.iter().find(|name| name.as_bytes() == tokenizer.bytes(token));
            text.push_str(name.copied().unwrap_or_default());
        }
        self.push_text(&text)
    }

    /// Adds a piece of the answer, in which the names of control tokens are texts.
    pub fn push_text(&mut self, text: &str) -> Vec<AnswerPart> {
        self.held.push_str(text);
        let mut parts = Vec::new();
        while self.step(&mut parts) {}
        parts
    }

    /// The end of the answer.
    pub fn finish(&mut self) -> Vec<AnswerPart> {
        let rest = self.decoder.finish();
        let mut parts = self.push_text(&rest);
        let held = std::mem::take(&mut self.held);
        match self.state {
            State::Call => self.call(&held, "", &mut parts),
            State::Start if self.syntax.calls == Calls::Llama => self.call(&held, "", &mut parts),
            State::Body => self.body(&held, &mut parts),
            // The header of a message without a text.
            State::Header if self.syntax.calls == Calls::Harmony && held.trim().is_empty() => {}
            _ => self.emit(&held, &mut parts),
        }
        parts
    }

    /// Passes a text on.
    fn emit(&mut self, text: &str, parts: &mut Vec<AnswerPart>) {
        let is_reasoning = self.state == State::Reasoning;
        let text = if self.begins { text.trim_start() } else { text };
        if text.is_empty() {
            return;
        }
        self.begins = false;
        if !is_reasoning {
            return parts.push(AnswerPart::Text(text.to_owned()));
        }
        let end = text.trim_end().len();
        if end == 0 {
            self.space.push_str(text);
        } else {
            let text_with_space = std::mem::take(&mut self.space) + &text[..end];
            self.space.push_str(&text[end..]);
            parts.push(AnswerPart::Reasoning(text_with_space));
        }
    }

    /// Goes to the start of a part.
    fn enter(&mut self, state: State, begins: bool) {
        (self.state, self.begins) = (state, begins);
        self.space.clear();
    }

    /// Passes on what is held in front of the first of some tags, and removes it with the tag. Returns the tag, or
    /// `None` and holds what may be the start of one.
    fn until(&mut self, tags: &[&'static str], parts: &mut Vec<AnswerPart>) -> Option<&'static str> {
        let found = tags.iter().filter_map(|tag| Some((self.held.find(tag)?, *tag))).min();
        if let Some((start, tag)) = found {
            let rest = self.held.split_off(start + tag.len());
            let text = std::mem::replace(&mut self.held, rest);
            self.emit(&text[..start], parts);
            return Some(tag);
        }
        let may_start = |at: &usize| tags.iter().any(|tag| tag.starts_with(&self.held[*at..]));
        let start = self.held.char_indices().map(|(at, _)| at).find(may_start).unwrap_or(self.held.len());
        let rest = self.held.split_off(start);
        let text = std::mem::replace(&mut self.held, rest);
        self.emit(&text, parts);
        None
    }

    /// Reads a part of what is held. Returns false if more is needed.
    fn step(&mut self, parts: &mut Vec<AnswerPart>) -> bool {
        let tags = self.syntax.tags();
        match self.state {
            State::Start => {
                let start = self.held.trim_start();
                if start.is_empty() {
                    return false;
                }
                let is_bare = self.syntax.calls == Calls::Llama && start.starts_with('{');
                if !is_bare {
                    self.state = State::Text;
                }
                !is_bare
            }
            State::Text | State::Reasoning | State::Body if self.syntax.calls == Calls::Harmony => {
                self.message(parts)
            }
            State::Text => {
                let thoughts = self.syntax.thinks.then_some("<think>");
                let open: Vec<&str> = tags.map(|(open, _)| open).into_iter().chain(thoughts).collect();
                match self.until(&open, parts) {
                    None => return false,
                    Some("<think>") => self.enter(State::Reasoning, true),
                    Some(_) => self.enter(State::Call, false),
                }
                true
            }
            State::Reasoning => {
                let is_over = self.until(&["</think>"], parts).is_some();
                if is_over {
                    self.enter(State::Text, true);
                }
                is_over
            }
            State::Call => {
                let Some((_, Some(close))) = tags else { return false };
                let Some(end) = self.held.find(close) else { return false };
                let rest = self.held.split_off(end + close.len());
                let text = std::mem::replace(&mut self.held, rest);
                self.call(&text[..end], close, parts);
                true
            }
            State::Header => self.header(),
            // Only gpt-oss has it.
            State::Body => false,
        }
    }

    /// Passes the calls of a text in front of its closing tag on, or the text if it has none.
    fn call(&mut self, text: &str, close: &str, parts: &mut Vec<AnswerPart>) {
        let is_bare = self.state == State::Start;
        self.enter(State::Text, true);
        match self.syntax.read(text, &self.tools) {
            Some(calls) => parts.extend(calls.into_iter().map(AnswerPart::Call)),
            None => {
                self.begins = false;
                let open = self.syntax.tags().filter(|_| !is_bare).map_or("", |(open, _)| open);
                self.emit(&format!("{open}{text}{close}"), parts);
            }
        }
    }

    /// Reads the header of a message of gpt-oss.
    fn header(&mut self) -> bool {
        const MESSAGE: &str = "<|message|>";
        let Some(end) = self.held.find(MESSAGE) else { return false };
        let rest = self.held.split_off(end + MESSAGE.len());
        let header = std::mem::replace(&mut self.held, rest);
        let tool = header.split_once("to=functions.").map(|(_, name)| name);
        if let Some(name) = tool {
            let end = name.find(|c: char| c.is_whitespace() || c == '<').unwrap_or(name.len());
            self.held.insert_str(0, &format!("{}\n", &name[..end]));
            self.enter(State::Body, false);
        } else if header.contains("analysis") {
            self.enter(State::Reasoning, true);
        } else {
            self.enter(State::Text, false);
        }
        true
    }

    /// Reads the text of a message of gpt-oss.
    fn message(&mut self, parts: &mut Vec<AnswerPart>) -> bool {
        const ENDS: [&str; 3] = ["<|end|>", "<|call|>", "<|start|>"];
        if self.state != State::Body {
            let is_over = self.until(&ENDS, parts).is_some();
            if is_over {
                self.enter(State::Header, true);
            }
            return is_over;
        }
        let found = ENDS.iter().filter_map(|end| Some((self.held.find(end)?, end.len()))).min();
        let Some((end, bytes)) = found else { return false };
        let rest = self.held.split_off(end + bytes);
        let body = std::mem::replace(&mut self.held, rest);
        self.body(&body[..end], parts);
        true
    }

    /// Passes on a call of gpt-oss: its name, a line end, and its arguments.
    fn body(&mut self, text: &str, parts: &mut Vec<AnswerPart>) {
        self.enter(State::Header, true);
        let (name, arguments) = text.split_once('\n').unwrap_or((text, ""));
        if serde_json::from_str::<Value>(arguments).is_ok_and(|arguments| arguments.is_object()) {
            let arguments = arguments.trim().to_owned();
            parts.push(AnswerPart::Call(ToolCall { id: None, name: name.to_owned(), arguments }));
        } else {
            self.state = State::Text;
            self.begins = false;
            self.emit(arguments, parts);
            self.enter(State::Header, true);
        }
    }
}
