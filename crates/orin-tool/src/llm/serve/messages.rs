//! The messages and tools of a conversation.

use std::time::SystemTime;

use infer::chat::{Conversation, Message, Role, Template, ToolCall};
use serde_json::{Map, Value};

use super::request::{Refusal, flag};

/// Most tools of a request, as OpenAI's interface has it.
const MOST_TOOLS: usize = 128;

/// The conversation of a request.
pub(super) fn conversation(value: &Value, template: &Template) -> Result<Conversation, Refusal> {
    let wrong =
        || Refusal::field("messages", "`messages` must be a list of objects with `role` and `content`");
    let list = value["messages"].as_array().ok_or_else(wrong)?;
    if list.is_empty() {
        return Err(Refusal::field("messages", "`messages` is empty: give at least one"));
    }
    let messages = list.iter().enumerate().map(|(at, value)| message(at, value));
    let messages = messages.collect::<Result<Vec<Message>, Refusal>>()?;
    let tools = tools(value)?;
    if !tools.is_empty() && !template.has_tools() {
        return Err(Refusal::field("tools", "`tools`: the model's chat template has none"));
    }
    Ok(Conversation { messages, tools, variables: variables(value)?, now: Some(SystemTime::now()) })
}

/// Whether the model may call at most one tool.
pub(super) fn wants_one_call(value: &Value) -> Result<bool, Refusal> {
    let field = "parallel_tool_calls";
    Ok(!value[field].is_null() && !flag(&value[field], field)?)
}

/// The tools that the model may call.
fn tools(value: &Value) -> Result<Vec<Value>, Refusal> {
    let wrong = || {
        let text =
            "`tools` must be a list of objects with the `type` function, and a `function` with a `name`";
        Refusal::field("tools", text)
    };
    let tools = match &value["tools"] {
        Value::Null => Vec::new(),
        Value::Array(tools) => tools.clone(),
        _ => return Err(wrong()),
    };
    if tools.len() > MOST_TOOLS {
        return Err(Refusal::field("tools", format!("`tools` has more than {MOST_TOOLS}")));
    }
    let is_function = |tool: &Value| tool["type"] == "function" && tool["function"]["name"].is_string();
    if !tools.iter().all(is_function) {
        return Err(wrong());
    }
    let is_none = value["tool_choice"] == "none";
    Ok(if is_none { Vec::new() } else { tools })
}

/// The tools of which the answer has to call one; `None` if the model chooses whether to call.
pub(super) fn forced(value: &Value, tools: &[Value]) -> Result<Option<Vec<Value>>, Refusal> {
    let choice = &value["tool_choice"];
    let refused = |text: &str| Err(Refusal::field("tool_choice", format!("`tool_choice` {text}")));
    let chosen: Vec<Value> = match (choice.as_str(), choice["function"]["name"].as_str()) {
        (None, None) if choice.is_null() => return Ok(None),
        (Some("none" | "auto"), _) => return Ok(None),
        (Some("required"), _) => tools.to_vec(),
        (None, Some(name)) => tools.iter().filter(|tool| tool["function"]["name"] == name).cloned().collect(),
        _ => return refused("must be none, auto, required, or an object with a `function` with a `name`"),
    };
    if chosen.is_empty() { refused("names no tool of `tools`") } else { Ok(Some(chosen)) }
}

/// Variables of the template.
fn variables(value: &Value) -> Result<Map<String, Value>, Refusal> {
    let mut variables = match &value["chat_template_kwargs"] {
        Value::Null => Map::new(),
        Value::Object(variables) => variables.clone(),
        _ => return Err(Refusal::field("chat_template_kwargs", "`chat_template_kwargs` must be an object")),
    };
    match &value["reasoning_effort"] {
        Value::Null => {}
        Value::String(effort) => {
            variables.insert("reasoning_effort".to_owned(), Value::String(effort.clone()));
        }
        _ => return Err(Refusal::field("reasoning_effort", "`reasoning_effort` must be a text")),
    }
    Ok(variables)
}

/// The turn at a place of the list.
fn message(at: usize, value: &Value) -> Result<Message, Refusal> {
    let wrong = |text: String| Refusal::field("messages", format!("`messages[{at}]`: {text}"));
    let role = match value["role"].as_str() {
        None => return Err(wrong("it must be an object with `role` and `content`".to_owned())),
        Some("developer") => Role::System,
        Some(name) => name.parse().map_err(|_| {
            wrong(format!("`role` must be system, developer, user, assistant or tool, not {}", shown(name)))
        })?,
    };
    if !value["function_call"].is_null() {
        return Err(wrong("`function_call` is not supported, only `tool_calls`".to_owned()));
    }
    let calls =
        if role == Role::Assistant { calls(&value["tool_calls"]).map_err(wrong)? } else { Vec::new() };
    let text = match &value["content"] {
        Value::String(text) => text.clone(),
        Value::Array(parts) => parts.iter().map(part).collect::<Result<Vec<_>, _>>().map_err(wrong)?.concat(),
        Value::Null if !calls.is_empty() => String::new(),
        Value::Null => return Err(wrong("`content` is missing or null; give a text".to_owned())),
        _ => return Err(wrong("`content` must be a text, or a list of parts of type `text`".to_owned())),
    };
    let field = |name: &str| match &value[name] {
        Value::Null => Ok(None),
        Value::String(text) => Ok(Some(text.clone())),
        _ => Err(wrong(format!("`{name}` must be a text"))),
    };
    Ok(Message {
        reasoning: field("reasoning_content")?,
        tool_calls: calls,
        tool_call_id: field("tool_call_id")?,
        name: field("name")?,
        ..Message::new(role, text)
    })
}

/// The text of a part of a message.
fn part(part: &Value) -> Result<String, String> {
    match (part["type"].as_str(), part["text"].as_str()) {
        (Some("text"), Some(text)) => Ok(text.to_owned()),
        (Some("text"), None) => Err("a part of type `text` has no text".to_owned()),
        (Some(kind), _) => Err(format!("parts of type {} are not supported, only text", shown(kind))),
        (None, _) => Err("a part of `content` has no `type`".to_owned()),
    }
}

/// The calls of tools of an earlier answer.
fn calls(value: &Value) -> Result<Vec<ToolCall>, String> {
    let wrong = || {
        "`tool_calls` must be a list of objects with a `function`, whose `name` and `arguments` are texts"
            .to_owned()
    };
    let call = |value: &Value| {
        let (name, arguments) =
            (value["function"]["name"].as_str()?, value["function"]["arguments"].as_str()?);
        let id = value["id"].as_str().map(str::to_owned);
        Some(ToolCall { id, name: name.to_owned(), arguments: arguments.to_owned() })
    };
    match value {
        Value::Null => Ok(Vec::new()),
        Value::Array(list) => list.iter().map(call).collect::<Option<_>>().ok_or_else(wrong),
        _ => Err(wrong()),
    }
}

/// A word of a request for a message, shortened.
fn shown(word: &str) -> String {
    format!("`{}`", word.chars().take(40).collect::<String>())
}
