//! The template of a file.

use std::error::Error as _;
use std::fmt::Write as _;

use minijinja::value::{Kwargs, Serde, StringInput, Value as Jinja};
use minijinja::{Environment, ErrorKind, State};
use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};
use serde_json::{Map, Value};

use super::answer::{Answer, AnswerParser};
use super::fault::KEY;
use super::syntax::Syntax;
use super::{CallPart, ChatFault, Conversation, DIALECTS, Dialect};
use crate::error::{Error, Result};
use crate::gguf::File;
use crate::tokenizer::Tokenizer;

/// Key of a second template, which is for conversations with tools.
const TOOLS_KEY: &str = "tokenizer.chat_template.tool_use";

/// Instructions that any conversation may take, and more for each byte of its texts. 64 bytes of memory or output have
/// the price of an instruction.
const FUEL: u64 = 1 << 19;
const FUEL_PER_BYTE: u64 = 4;

/// How a model wants conversations to be written.
///
/// ```
/// use infer::chat::{Conversation, Message, Role, Template};
/// use infer::model::Model;
/// use infer::synthetic::Recipe;
/// use infer::tokenizer::Tokenizer;
///
/// let model = Model::from_bytes(Recipe::tiny_qwen2().to_bytes()?)?;
/// let tokenizer = Tokenizer::new(model.file())?;
/// let template = Template::of(model.file())?;
/// let prompt = template.encode(&tokenizer, &Conversation::new([Message::new(Role::User, "Hi")]))?;
/// let names: Vec<u8> = prompt.tokens.iter().flat_map(|token| tokenizer.bytes(*token)).copied().collect();
/// assert_eq!(names, b"<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Template {
    environment: Environment<'static>,
    /// How answers are written.
    syntax: Syntax,
    has_tools: bool,
    /// Whether conversations with tools have a template of their own.
    has_second: bool,
}

/// A conversation as a model reads it.
#[derive(Clone, Debug)]
pub struct Prompt {
    /// The tokens, up to the start of the answer.
    pub tokens: Vec<u32>,
    /// What reads the answer.
    pub parser: AnswerParser,
}

/// A refusal by a template's `raise_exception`.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Raised(String);

fn fault(fault: ChatFault) -> Error {
    Error::Chat(fault)
}

/// Why a template failed.
fn failure(error: &minijinja::Error, wrap: fn(usize, String) -> ChatFault) -> Error {
    let mut source = error.source();
    while let Some(inner) = source {
        if let Some(Raised(text)) = inner.downcast_ref() {
            return fault(ChatFault::Refused(text.clone()));
        }
        source = inner.source();
    }
    if error.kind() == ErrorKind::OutOfFuel {
        return fault(ChatFault::TooMuch);
    }
    let detail = error.detail().map_or_else(String::new, |detail| format!(": {detail}"));
    fault(wrap(error.line().unwrap_or(0), format!("{}{detail}", error.kind())))
}

/// The environment that `transformers` gives templates.
fn environment() -> Environment<'static> {
    let mut environment = Environment::new();
    let syntax = minijinja::syntax::SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    // PANIC: the delimiters are the default ones.
    environment.set_syntax(syntax.expect("default delimiters"));
    environment.set_auto_escape_callback(|_| minijinja::AutoEscape::None);
    environment.set_unknown_method_callback(minijinja_contrib::pycompat::unknown_method_callback);
    environment.set_formatter(|out, state, value| match value.as_object() {
        None => minijinja::escape_formatter(out, state, value),
        Some(_) => write!(Paid { out, state }, "{value}").map_err(|_| ErrorKind::OutOfFuel.into()),
    });
    // Python's `None` is not: `tools is iterable and tools | length > 0`.
    environment.add_test("iterable", |value: &Jinja| !value.is_none() && value.try_iter().is_ok());
    environment.add_filter("string", string);
    environment.add_filter("join", join);
    environment.add_filter("tojson", to_json);
    environment.add_function(
        "raise_exception",
        |text: String| -> core::result::Result<Jinja, minijinja::Error> {
            Err(minijinja::Error::new(ErrorKind::InvalidOperation, "raised").with_source(Raised(text)))
        },
    );
    environment
}

/// A template without the blocks that only training uses.
fn without_generation(source: &str) -> String {
    let mut text = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(start) = rest.find("{%") {
        let (before, tag) = rest.split_at(start);
        let end = tag.find("%}").map_or(tag.len(), |end| end + 2);
        let (tag, after) = tag.split_at(end);
        let name = tag.trim_start_matches(['{', '%', '-', '+']).trim_end_matches(['}', '%', '-', '+']).trim();
        text.push_str(before);
        match name {
            "generation" => text.push_str(&tag.replace("generation", "if true")),
            "endgeneration" => text.push_str(&tag.replace("endgeneration", "endif")),
            _ => text.push_str(tag),
        }
        rest = after;
    }
    text + rest
}

impl Template {
    /// Reads the template of a file.
    ///
    /// # Errors
    ///
    /// [`ChatFault::NoTemplate`], or [`ChatFault::Syntax`] with the line.
    pub fn of(file: &File) -> Result<Self> {
        let source = file.text(KEY)?.ok_or_else(|| fault(ChatFault::NoTemplate))?;
        let second = file.text(TOOLS_KEY)?;
        let mut environment = environment();
        let mut add = |name: &'static str, source: &str| {
            let added = environment.add_template_owned(name, without_generation(source));
            added.map_err(|error| failure(&error, |line, reason| ChatFault::Syntax { line, reason }))
        };
        add("chat", source)?;
        second.map(|source| add("tools", source)).transpose()?;
        let with_tools = second.unwrap_or(source);
        Ok(Self {
            environment,
            syntax: Syntax::of(with_tools),
            has_tools: with_tools.contains("tools"),
            has_second: second.is_some(),
        })
    }

    /// Whether the model can be given tools.
    pub fn has_tools(&self) -> bool {
        self.has_tools
    }

    /// How the model writes calls of tools; `None` if that is not known, and calls stay texts.
    pub fn calls(&self) -> Option<&'static str> {
        self.syntax.name()
    }

    /// The parts of an answer that calls a tool; `None` if the form of calls is not known.
    pub fn call(&self, tool: &Value) -> Option<Vec<CallPart>> {
        self.syntax.call(tool)
    }

    /// What a model's whole answer means, if its prompt did not begin it. [`Prompt::parser`] reads answers as they
    /// come.
    pub fn parse_answer(&self, text: &str) -> Answer {
        let mut parser = AnswerParser::new(self.syntax, "", &[]);
        let mut parts = parser.push_text(text);
        parts.extend(parser.finish());
        parts.into_iter().collect()
    }

    /// The tokens of a conversation and of the start of the model's answer, with [`Tokenizer::bos`] in front unless the
    /// template writes it.
    ///
    /// # Errors
    ///
    /// [`ChatFault::Refused`] if the template refuses the conversation, as some do with instructions or with two
    /// messages of one author in a row, [`ChatFault::Rendering`] or [`ChatFault::TooMuch`] if it fails.
    pub fn encode(&self, tokenizer: &Tokenizer, conversation: &Conversation) -> Result<Prompt> {
        let has_calls = conversation.messages.iter().any(|message| !message.tool_calls.is_empty());
        let mut first = None;
        for dialect in &DIALECTS[..if has_calls { DIALECTS.len() } else { 1 }] {
            match self.write(tokenizer, conversation, *dialect) {
                Ok(text) => {
                    let parser = AnswerParser::new(self.syntax, &text, &conversation.tools);
                    return Ok(Prompt { tokens: tokenizer.encode_marked(&text), parser });
                }
                Err(error) => first = first.or(Some(error)),
            }
        }
        // PANIC: there is at least one dialect.
        Err(first.expect("an error"))
    }

    /// The conversation as text, with marks in the names of control tokens of its texts.
    fn write(&self, tokenizer: &Tokenizer, conversation: &Conversation, dialect: Dialect) -> Result<String> {
        let (mut bytes, mut variables) = (0, conversation.variables.clone());
        variables.values_mut().for_each(|value| mark(value, tokenizer, &mut bytes));
        let mut marked = |mut value: Value| {
            mark(&mut value, tokenizer, &mut bytes);
            value
        };
        let messages = conversation.messages.iter().map(|message| {
            let mut value = marked(message.value(dialect));
            // The role is not a text of the user.
            value["role"] = message.role.name().into();
            value
        });
        let messages: Value = messages.collect();
        let tools = match &conversation.tools[..] {
            [] => Value::Null,
            tools => marked(tools.into()),
        };
        let [bos, eos] = tokenizer.ends_of_texts();
        let name = |token: Option<u32>| {
            String::from_utf8_lossy(token.map_or(&[][..], |token| tokenizer.bytes(token))).into_owned()
        };
        variables.extend([
            ("messages".to_owned(), messages),
            ("tools".to_owned(), tools),
            ("documents".to_owned(), Value::Null),
            ("add_generation_prompt".to_owned(), true.into()),
            ("bos_token".to_owned(), name(bos).into()),
            ("eos_token".to_owned(), name(eos).into()),
        ]);
        self.render(variables, conversation, bytes)
    }

    fn render(
        &self,
        variables: Map<String, Value>,
        conversation: &Conversation,
        bytes: u64,
    ) -> Result<String> {
        let failed =
            |error: minijinja::Error| failure(&error, |line, reason| ChatFault::Rendering { line, reason });
        let mut environment = self.environment.clone();
        environment.set_fuel(Some(FUEL.saturating_add(FUEL_PER_BYTE.saturating_mul(bytes))));
        if let Some(now) = conversation.now {
            environment.add_function("strftime_now", move |format: &str| date(now, format));
        }
        let has_second = self.has_second && !conversation.tools.is_empty();
        let template = environment.get_template(if has_second { "tools" } else { "chat" }).map_err(failed)?;
        template.render(Jinja::from(Serde(variables))).map_err(failed)
    }
}

/// Marks the names of control tokens in all texts of a value, and counts their bytes.
fn mark(value: &mut Value, tokenizer: &Tokenizer, bytes: &mut u64) {
    match value {
        Value::String(text) => {
            *bytes += text.len() as u64;
            if let std::borrow::Cow::Owned(marked) = tokenizer.mark(text) {
                *text = marked;
            }
        }
        Value::Array(values) => values.iter_mut().for_each(|value| mark(value, tokenizer, bytes)),
        Value::Object(fields) => {
            for (name, mut value) in std::mem::take(fields) {
                *bytes += name.len() as u64;
                mark(&mut value, tokenizer, bytes);
                fields.insert(tokenizer.mark(&name).into_owned(), value);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// A time by a format of `strftime`, in the system's time zone.
fn date(now: std::time::SystemTime, format: &str) -> core::result::Result<String, minijinja::Error> {
    let wrong = |error: jiff::Error| minijinja::Error::new(ErrorKind::InvalidOperation, error.to_string());
    let now = jiff::Timestamp::try_from(now).map_err(wrong)?.to_zoned(jiff::tz::TimeZone::system());
    jiff::fmt::strtime::format(format, &now).map_err(wrong)
}

/// Python's form of JSON on one line.
struct OneLine;

impl Formatter for OneLine {
    fn begin_array_value<W: ?Sized + std::io::Write>(
        &mut self,
        out: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        if first { Ok(()) } else { out.write_all(b", ") }
    }

    fn begin_object_key<W: ?Sized + std::io::Write>(
        &mut self,
        out: &mut W,
        first: bool,
    ) -> std::io::Result<()> {
        if first { Ok(()) } else { out.write_all(b", ") }
    }

    fn begin_object_value<W: ?Sized + std::io::Write>(&mut self, out: &mut W) -> std::io::Result<()> {
        out.write_all(b": ")
    }
}

/// The filter `tojson` of `transformers`: without escapes for HTML and for other alphabets.
fn to_json(
    state: &State,
    value: &Jinja,
    indent: Option<Jinja>,
    options: Kwargs,
) -> core::result::Result<String, minijinja::Error> {
    let wrong = |error: serde_json::Error| match error.is_io() {
        true => ErrorKind::OutOfFuel.into(),
        false => minijinja::Error::new(ErrorKind::InvalidOperation, format!("no JSON: {error}")),
    };
    let _: Option<bool> = options.get("ensure_ascii")?;
    let _: Option<Jinja> = options.get("separators")?;
    let sorts: Option<bool> = options.get("sort_keys")?;
    let indent = match indent {
        None => options.get::<Option<Jinja>>("indent")?,
        some => some,
    };
    options.assert_all_used()?;
    let format = indent.and_then(|indent| usize::try_from(indent).ok());
    let mut text = json(state, value, format).map_err(wrong)?;
    if sorts == Some(true) {
        let mut value: Value = serde_json::from_slice(&text).map_err(wrong)?;
        value.sort_all_objects();
        text = json(state, &value, format).map_err(wrong)?;
    }
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// A value as JSON, on one line or with an indent.
fn json(state: &State, value: &impl Serialize, indent: Option<usize>) -> serde_json::Result<Vec<u8>> {
    let mut bytes = Paid { out: Vec::new(), state };
    match indent {
        None => value.serialize(&mut Serializer::with_formatter(&mut bytes, OneLine))?,
        Some(indent) => {
            let spaces = " ".repeat(indent.min(80));
            let format = PrettyFormatter::with_indent(spaces.as_bytes());
            value.serialize(&mut Serializer::with_formatter(&mut bytes, format))?;
        }
    }
    Ok(bytes.out)
}

/// What is written is paid for as it is written: a list that contains itself several times can be longer than all
/// memory, and the engine counts only what was written.
struct Paid<'s, 't, 'e, W> {
    out: W,
    state: &'s State<'t, 'e>,
}

impl<W> Paid<'_, '_, '_, W> {
    fn pay(&self, bytes: usize) -> core::result::Result<(), minijinja::Error> {
        self.state.consume_fuel(1 + bytes as u64 / 64)
    }
}

impl std::io::Write for Paid<'_, '_, '_, Vec<u8>> {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.pay(bytes.len()).map_err(std::io::Error::other)?;
        self.out.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

impl<W: core::fmt::Write> core::fmt::Write for Paid<'_, '_, '_, W> {
    fn write_str(&mut self, text: &str) -> core::fmt::Result {
        self.pay(text.len()).map_err(|_| core::fmt::Error)?;
        self.out.write_str(text)
    }
}

/// The filter `string`.
fn string(state: &State, value: &Jinja) -> core::result::Result<Jinja, minijinja::Error> {
    if value.as_str().is_some() {
        return Ok(value.clone());
    }
    let mut text = Paid { out: String::new(), state };
    write!(text, "{value}").map_err(|_| minijinja::Error::from(ErrorKind::OutOfFuel))?;
    Ok(text.out.into())
}

/// The filter `join`: items that are lists or objects are paid for as they are written.
fn join(
    state: &mut State,
    value: &Jinja,
    joiner: Option<StringInput<'_>>,
    attribute: Option<&str>,
    options: Kwargs,
) -> core::result::Result<Jinja, minijinja::Error> {
    let attribute = match attribute {
        None => options.get::<Option<&str>>("attribute")?,
        some => some,
    };
    let Ok(items) = value.try_iter() else {
        // The engine says why.
        return minijinja::filters::join(state, value, joiner, None, options);
    };
    let mut texts = Vec::new();
    for mut item in items {
        state.consume_fuel(1)?;
        for name in attribute.into_iter().flat_map(|path| path.split('.')) {
            let key = name.parse().map_or_else(|_| Jinja::from(name), |place: u32| Jinja::from(place));
            item = item.get_item(&key).unwrap_or_default();
        }
        texts.push(if item.as_object().is_some() { string(state, &item)? } else { item });
    }
    minijinja::filters::join(state, &Jinja::from(texts), joiner, None, options)
}
