//! Conversations: how a model wants turns to be written, and what its answers mean.
//!
//! A file has a template in Jinja's language, which writes a conversation as text with the names of control tokens.
//! [`Template`] runs it, with the functions and settings of the `transformers` library.
//!
//! Texts of messages and tools cannot become control tokens. Before the template sees a text, the name of each control
//! token in it gets a mark behind its first character, so the name is not found in what the template writes. The mark
//! is removed before the text becomes tokens. Only a template that itself completes a name around a text could make a
//! token of it. Tokens that a vocabulary calls added rather than control (`<think>`) are found in texts, as everywhere.
//!
//! The template is untrusted: its time and memory are limited by the size of the conversation.

mod answer;
mod call;
pub(crate) mod fault;
mod syntax;
mod template;

use serde_json::{Map, Value, json};
use std::time::SystemTime;

use crate::error::{Error, Result};
pub use answer::{Answer, AnswerParser, AnswerPart};
pub use call::CallPart;
pub use fault::ChatFault;
pub use template::{Prompt, Template};

/// The author of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Role {
    /// Instructions in front of a conversation.
    System,
    /// The user.
    User,
    /// The model.
    Assistant,
    /// A tool that the model called.
    Tool,
}

impl Role {
    /// The name in templates and in requests to servers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
            Self::Tool => "tool",
        }
    }
}

impl core::str::FromStr for Role {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let all = [Self::System, Self::User, Self::Assistant, Self::Tool];
        all.into_iter()
            .find(|role| role.name() == text)
            .ok_or_else(|| Error::Chat(ChatFault::UnknownRole(text.to_owned())))
    }
}

/// A call of a tool by the model.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ToolCall {
    /// What results name the call by; models that number their calls write it.
    pub id: Option<String>,
    /// Name of the tool.
    pub name: String,
    /// The arguments: a JSON object as text.
    pub arguments: String,
}

/// A turn of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Who says it.
    pub role: Role,
    /// The text; of a tool, its result.
    pub text: String,
    /// The model's thoughts in front of the text.
    pub reasoning: Option<String>,
    /// Tools that the model called behind the text.
    pub tool_calls: Vec<ToolCall>,
    /// The call that a tool's result belongs to.
    pub tool_call_id: Option<String>,
    /// The name of a tool or of a participant.
    pub name: Option<String>,
}

impl Message {
    /// A turn that is a text.
    pub fn new(role: Role, text: impl Into<String>) -> Self {
        Self {
            role,
            text: text.into(),
            reasoning: None,
            tool_calls: Vec::new(),
            tool_call_id: None,
            name: None,
        }
    }

    /// The message as templates read it. Their authors disagree on two fields, see [`Dialect`].
    fn value(&self, dialect: Dialect) -> Value {
        let mut value = json!({ "role": self.role.name(), "content": self.text });
        let fields = [
            ("reasoning_content", &self.reasoning),
            ("tool_call_id", &self.tool_call_id),
            ("name", &self.name),
        ];
        for (name, field) in fields {
            if let Some(text) = field {
                value[name] = json!(text);
            }
        }
        if self.tool_calls.is_empty() {
            return value;
        }
        if self.text.is_empty() && dialect.has_null {
            value["content"] = Value::Null;
        }
        let call = |call: &ToolCall| {
            let object = serde_json::from_str(&call.arguments).ok().filter(Value::is_object);
            let arguments = object.filter(|_| dialect.has_objects).unwrap_or_else(|| json!(call.arguments));
            let mut value =
                json!({ "type": "function", "function": { "name": call.name, "arguments": arguments } });
            if let Some(id) = &call.id {
                value["id"] = json!(id);
            }
            value
        };
        value["tool_calls"] = self.tool_calls.iter().map(call).collect();
        value
    }
}

/// What a template expects of a message that calls tools.
#[derive(Clone, Copy, Debug)]
struct Dialect {
    /// Arguments are objects, not texts.
    has_objects: bool,
    /// The content of a message without a text is null, not empty.
    has_null: bool,
}

/// In the order in which they are tried: the usual one first.
const DIALECTS: [Dialect; 4] = [
    Dialect { has_objects: true, has_null: true },
    Dialect { has_objects: true, has_null: false },
    Dialect { has_objects: false, has_null: true },
    Dialect { has_objects: false, has_null: false },
];

/// What a model is asked.
#[derive(Clone, Debug, Default)]
pub struct Conversation {
    /// The turns; the model's answer follows the last.
    pub messages: Vec<Message>,
    /// Tools that the model may call, as OpenAI's interface describes them:
    /// `{"type": "function", "function": {"name": .., "description": .., "parameters": ..}}`.
    pub tools: Vec<Value>,
    /// More variables of the template, such as `enable_thinking` or `reasoning_effort`.
    pub variables: Map<String, Value>,
    /// The time for templates that write the date, in the system's time zone; without it they write the date that
    /// their authors chose.
    pub now: Option<SystemTime>,
}

impl Conversation {
    /// A conversation without tools.
    pub fn new(messages: impl IntoIterator<Item = Message>) -> Self {
        Self { messages: messages.into_iter().collect(), ..Self::default() }
    }
}
