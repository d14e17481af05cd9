//! How models write calls of tools.

use serde_json::{Map, Value};

use super::ToolCall;

/// How a model writes calls of tools, by what its template contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Syntax {
    pub(super) calls: Calls,
    /// Whether thoughts are written as `<think>..</think>`.
    pub(super) thinks: bool,
}

/// The form of calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Calls {
    /// Not known.
    None,
    /// `<tool_call>{"name": .., "arguments": ..}</tool_call>`: Hermes, Qwen.
    Tagged,
    /// `<tool_call><function=name><parameter=key>value</parameter></function></tool_call>`: Qwen's coders.
    Functions,
    /// `<tool_call>name<arg_key>key</arg_key><arg_value>value</arg_value></tool_call>`: GLM.
    Pairs,
    /// `[TOOL_CALLS][{"name": .., "arguments": ..}]`: Mistral.
    Mistral,
    /// `[TOOL_CALLS]name[ARGS]{..}`: newer models of Mistral.
    Named,
    /// `{"name": .., "parameters": ..}` as the whole answer, or behind `<|python_tag|>`: LLaMA.
    Llama,
    /// `<|tool_call|>[{"name": .., "arguments": ..}]`: Granite, Phi.
    List,
    /// `<|channel|>commentary to=functions.name<|message|>{..}<|call|>`: gpt-oss.
    Harmony,
}

impl Syntax {
    /// The syntax of a template's source.
    pub(super) fn of(source: &str) -> Self {
        let has = |text: &str| source.contains(text);
        let calls = if has("<|channel|>") && has("<|message|>") {
            Calls::Harmony
        } else if has("<tool_call>") && has("<function=") {
            Calls::Functions
        } else if has("<tool_call>") && has("<arg_key>") {
            Calls::Pairs
        } else if has("<tool_call>") {
            Calls::Tagged
        } else if has("[TOOL_CALLS]") {
            if has("[ARGS]") { Calls::Named } else { Calls::Mistral }
        } else if has("<|tool_call|>") {
            Calls::List
        } else if has("<|python_tag|>") || has("\"parameters\": dictionary of argument name") {
            Calls::Llama
        } else {
            Calls::None
        };
        Self { calls, thinks: calls != Calls::Harmony && has("</think>") }
    }

    /// The name of the form of calls; `None` if it is not known.
    pub(super) const fn name(self) -> Option<&'static str> {
        match self.calls {
            Calls::None => None,
            Calls::Tagged => Some("<tool_call>"),
            Calls::Functions => Some("<function=..>"),
            Calls::Pairs => Some("<arg_key>"),
            Calls::Mistral | Calls::Named => Some("[TOOL_CALLS]"),
            Calls::Llama => Some("JSON"),
            Calls::List => Some("<|tool_call|>"),
            Calls::Harmony => Some("<|channel|>"),
        }
    }

    /// What is in front of a call and behind it; without the latter, a call ends with the answer.
    pub(super) const fn tags(self) -> Option<(&'static str, Option<&'static str>)> {
        match self.calls {
            Calls::None | Calls::Harmony => None,
            Calls::Tagged | Calls::Functions | Calls::Pairs => Some(("<tool_call>", Some("</tool_call>"))),
            Calls::Mistral | Calls::Named => Some(("[TOOL_CALLS]", None)),
            Calls::Llama => Some(("<|python_tag|>", None)),
            Calls::List => Some(("<|tool_call|>", Some("<|/tool_call|>"))),
        }
    }

    /// The calls in the text between the tags; `None` if it has another form.
    pub(super) fn read(self, text: &str, tools: &[Value]) -> Option<Vec<ToolCall>> {
        let text = text.trim();
        match self.calls {
            Calls::None | Calls::Harmony => None,
            Calls::Functions if text.starts_with('<') => Some(vec![function(text, tools)?]),
            Calls::Pairs if !text.starts_with('{') => Some(vec![pairs(text, tools)?]),
            Calls::Mistral | Calls::Named if !text.starts_with('[') => {
                text.split("[TOOL_CALLS]").filter(|call| !call.trim().is_empty()).map(named).collect()
            }
            _ => listed(text),
        }
    }
}

/// One call, or a list of them, as JSON.
fn listed(text: &str) -> Option<Vec<ToolCall>> {
    let mut calls = Vec::new();
    // LLaMA writes several objects with semicolons between them.
    for value in serde_json::Deserializer::from_str(&text.replace("};", "}\n")).into_iter::<Value>() {
        match value.ok()? {
            Value::Array(list) => calls.extend(list.iter().map(call).collect::<Option<Vec<_>>>()?),
            object => calls.push(call(&object)?),
        }
    }
    (!calls.is_empty()).then_some(calls)
}

/// A call as an object.
fn call(value: &Value) -> Option<ToolCall> {
    let value = value.get("function").filter(|function| function.is_object()).unwrap_or(value);
    let arguments = ["arguments", "parameters"].iter().find_map(|name| value.get(name));
    let arguments = match arguments {
        None => "{}".to_owned(),
        Some(Value::String(text)) => text.clone(),
        Some(object @ Value::Object(_)) => object.to_string(),
        Some(_) => return None,
    };
    let id = value.get("id").and_then(Value::as_str).map(str::to_owned);
    Some(ToolCall { id, name: value.get("name")?.as_str()?.to_owned(), arguments })
}

/// `name[ARGS]{..}` or `name{..}`, with `[CALL_ID]id` behind the name.
fn named(text: &str) -> Option<ToolCall> {
    let (head, arguments) = text.trim().split_at(text.trim().find('{')?);
    let head = head.strip_suffix("[ARGS]").unwrap_or(head);
    let (name, id) = match head.split_once("[CALL_ID]") {
        Some((name, id)) => (name, Some(id.trim().to_owned())),
        None => (head, None),
    };
    let arguments: Value = serde_json::from_str(arguments).ok().filter(Value::is_object)?;
    Some(ToolCall { id, name: name.trim().to_owned(), arguments: arguments.to_string() })
        .filter(|call| !call.name.is_empty())
}

/// The value of an argument that is written as a text: JSON, unless the tool's parameter is a text.
fn argument(tools: &[Value], tool: &str, name: &str, text: &str) -> Value {
    let functions = tools.iter().map(|tool| tool.get("function").unwrap_or(tool));
    let tool = functions.into_iter().find(|function| function["name"] == tool);
    let is_text = tool.is_some_and(|tool| tool["parameters"]["properties"][name]["type"] == "string");
    let value = (!is_text).then(|| serde_json::from_str(text).ok()).flatten();
    value.unwrap_or_else(|| text.into())
}

fn finished(name: &str, arguments: Map<String, Value>) -> Option<ToolCall> {
    let name = name.trim();
    let arguments = Value::Object(arguments).to_string();
    (!name.is_empty()).then(|| ToolCall { id: None, name: name.to_owned(), arguments })
}

/// `<function=name><parameter=key>value</parameter></function>`.
fn function(text: &str, tools: &[Value]) -> Option<ToolCall> {
    let (name, mut rest) = text.strip_prefix("<function=")?.split_once('>')?;
    let mut arguments = Map::new();
    while let Some((_, parameter)) = rest.split_once("<parameter=") {
        let (key, value) = parameter.split_once('>')?;
        let (value, after) = value.split_once("</parameter>")?;
        let value = value.strip_prefix('\n').unwrap_or(value);
        let value = value.strip_suffix('\n').unwrap_or(value);
        arguments.insert(key.trim().to_owned(), argument(tools, name, key, value));
        rest = after;
    }
    rest.contains("</function>").then(|| finished(name, arguments)).flatten()
}

/// `name<arg_key>key</arg_key><arg_value>value</arg_value>`.
fn pairs(text: &str, tools: &[Value]) -> Option<ToolCall> {
    let mut parts = text.split("<arg_key>");
    let name = parts.next()?.trim();
    let mut arguments = Map::new();
    for part in parts {
        let (key, rest) = part.split_once("</arg_key>")?;
        let (value, _) = rest.split_once("<arg_value>")?.1.split_once("</arg_value>")?;
        arguments.insert(key.trim().to_owned(), argument(tools, name, key, value));
    }
    finished(name, arguments)
}
