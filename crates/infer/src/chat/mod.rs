//! Conversations: how a model wants turns to be written.
//!
//! A file has a template in a language for templates. The formats of the supported models are recognised by what the
//! template writes around a turn; templates that write something else are refused, because a model that is addressed
//! in a wrong format answers badly without an error.

pub(crate) mod fault;

use crate::error::{Error, Result};
use crate::gguf::File;
use crate::tokenizer::{Controls, Tokenizer};
pub use fault::ChatFault;
use fault::KEY;

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
}

impl Role {
    /// The name in templates and in requests to servers.
    pub const fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
        }
    }
}

impl core::str::FromStr for Role {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let all = [Self::System, Self::User, Self::Assistant];
        all.into_iter()
            .find(|role| role.name() == text)
            .ok_or_else(|| fault(ChatFault::UnknownRole(text.to_owned())))
    }
}

/// A turn of a conversation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Message {
    /// Who says it.
    pub role: Role,
    /// The text.
    pub text: String,
}

impl Message {
    /// A turn.
    pub fn new(role: Role, text: impl Into<String>) -> Self {
        Self { role, text: text.into() }
    }
}

/// How a model wants conversations to be written.
///
/// ```
/// use infer::chat::{Format, Message, Role};
/// use infer::model::Model;
/// use infer::synthetic::Recipe;
/// use infer::tokenizer::Tokenizer;
///
/// let model = Model::from_bytes(Recipe::tiny_qwen2().to_bytes()?)?;
/// let tokenizer = Tokenizer::new(model.file())?;
/// let format = Format::of(model.file())?;
/// let tokens = format.encode(&tokenizer, &[Message::new(Role::User, "Hi")])?;
/// let names: Vec<u8> = tokens.iter().flat_map(|token| tokenizer.bytes(*token)).copied().collect();
/// assert_eq!(names, b"<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Format {
    family: Family,
    /// The instructions of a conversation that has none; `None` if it then begins with the first turn.
    system: Option<&'static str>,
    /// Text that the template writes in front of the instructions.
    preamble: &'static str,
    /// Whether the template removes thoughts from the model's earlier answers.
    removes_thoughts: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Family {
    /// `<|start_header_id|>role<|end_header_id|>`, two line ends, text, `<|eot_id|>`.
    Llama3,
    /// `<|im_start|>role`, line end, text, `<|im_end|>`, line end.
    ChatMl,
}

/// What LLaMA 3.1 and later write in front of the instructions. The date is the one that their template has for
/// programs that give none.
const LLAMA_PREAMBLE: &str = "Cutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n";

/// The instructions that Qwen 2 and 2.5 have without others.
const QWEN_SYSTEMS: [&str; 2] =
    ["You are Qwen, created by Alibaba Cloud. You are a helpful assistant.", "You are a helpful assistant."];

/// End of a model's thoughts.
const THOUGHTS_END: &str = "</think>";

/// A part of a conversation as it is written.
#[derive(Debug, PartialEq, Eq)]
enum Part {
    Control(&'static str),
    Text(String),
}

fn fault(fault: ChatFault) -> Error {
    Error::Chat(fault)
}

impl Format {
    /// Recognises the format of a file's template.
    ///
    /// # Errors
    ///
    /// [`ChatFault::NoTemplate`] or [`ChatFault::UnknownTemplate`].
    pub fn of(file: &File) -> Result<Self> {
        let template = file.text(KEY)?.ok_or_else(|| fault(ChatFault::NoTemplate))?;
        if template.contains("<|start_header_id|>") && template.contains("<|eot_id|>") {
            let is_dated = template.contains("Cutting Knowledge Date");
            let preamble = if is_dated { LLAMA_PREAMBLE } else { "" };
            let system = is_dated.then_some("");
            return Ok(Self { family: Family::Llama3, system, preamble, removes_thoughts: false });
        }
        if template.contains("<|im_start|>") && template.contains("<|im_end|>") {
            let system = QWEN_SYSTEMS.into_iter().find(|system| template.contains(system));
            let removes_thoughts = template.contains(THOUGHTS_END);
            return Ok(Self { family: Family::ChatMl, system, preamble: "", removes_thoughts });
        }
        Err(fault(ChatFault::UnknownTemplate { start: template.chars().take(60).collect() }))
    }

    /// The format's name.
    pub const fn name(&self) -> &'static str {
        match self.family {
            Family::Llama3 => "LLaMA 3",
            Family::ChatMl => "ChatML",
        }
    }

    /// The tokens of a conversation and of the start of the model's answer. Texts cannot contain control tokens: their
    /// names are texts there.
    ///
    /// # Errors
    ///
    /// [`ChatFault::MissingToken`] if the vocabulary lacks a token of the format.
    pub fn encode(&self, tokenizer: &Tokenizer, messages: &[Message]) -> Result<Vec<u32>> {
        let mut tokens: Vec<u32> = tokenizer.bos().into_iter().collect();
        for part in self.write(messages) {
            match part {
                Part::Text(text) => tokens.extend(tokenizer.encode(&text, Controls::AsText)),
                Part::Control(name) => {
                    let token =
                        tokenizer.control(name).ok_or_else(|| fault(ChatFault::MissingToken(name)))?;
                    tokens.push(token);
                }
            }
        }
        Ok(tokens)
    }

    /// A conversation as it is written. Texts do not follow each other: they are split into words as one.
    fn write(&self, messages: &[Message]) -> Vec<Part> {
        let mut parts = Vec::new();
        let turns = match messages.split_first() {
            Some((first, rest)) if first.role == Role::System => {
                self.turn(
                    Role::System,
                    &format!("{}{}", self.preamble, self.trimmed(&first.text)),
                    &mut parts,
                );
                rest
            }
            _ => {
                if let Some(system) = self.system {
                    self.turn(Role::System, &format!("{}{system}", self.preamble), &mut parts);
                }
                messages
            }
        };
        for message in turns {
            match message.role {
                Role::Assistant if self.removes_thoughts => {
                    let answer = message.text.rsplit_once(THOUGHTS_END);
                    let answer = answer.map_or(&*message.text, |(_, answer)| answer.trim_start_matches('\n'));
                    self.turn(Role::Assistant, answer, &mut parts);
                }
                role => self.turn(role, self.trimmed(&message.text), &mut parts),
            }
        }
        self.start(Role::Assistant, "", &mut parts);
        parts
    }

    /// LLaMA's template removes spaces around texts.
    fn trimmed<'t>(&self, text: &'t str) -> &'t str {
        if self.family == Family::Llama3 { text.trim() } else { text }
    }

    fn start(&self, role: Role, text: &str, parts: &mut Vec<Part>) {
        match self.family {
            Family::Llama3 => parts.extend([
                Part::Control("<|start_header_id|>"),
                Part::Text(role.name().to_owned()),
                Part::Control("<|end_header_id|>"),
                Part::Text(format!("\n\n{text}")),
            ]),
            Family::ChatMl => {
                parts.extend([Part::Control("<|im_start|>"), Part::Text(format!("{}\n{text}", role.name()))]);
            }
        }
    }

    fn turn(&self, role: Role, text: &str, parts: &mut Vec<Part>) {
        self.start(role, text, parts);
        match self.family {
            Family::Llama3 => parts.push(Part::Control("<|eot_id|>")),
            Family::ChatMl => parts.extend([Part::Control("<|im_end|>"), Part::Text("\n".to_owned())]),
        }
    }
}
