//! What a call of a tool looks like, for answers that have to be one.

use serde_json::{Map, Value, json};

use super::syntax::{Calls, Syntax};

/// A part of a call of a tool, in the form of the model's template.
#[derive(Clone, Debug, PartialEq)]
pub enum CallPart {
    /// A control token by name, or this text if the vocabulary has none.
    Tag(&'static str),
    /// A text.
    Text(String),
    /// One of several texts.
    OneOf(Vec<String>),
    /// JSON of a schema.
    Json(Value),
    /// Any text, up to this one.
    Until(&'static str),
    /// Parts that may be absent.
    Maybe(Vec<Self>),
}

impl Syntax {
    /// The parts of a call of a tool, which has the form that requests describe tools in. `None` if the form of calls
    /// is not known.
    pub(super) fn call(self, tool: &Value) -> Option<Vec<CallPart>> {
        use CallPart::{Json, Tag, Text};
        let function = tool.get("function").unwrap_or(tool);
        let name = function["name"].as_str().unwrap_or_default();
        let object = |field: &str| Text(format!("{{\"name\": {}, \"{field}\": ", json!(name)));
        let (parameters, text) = (object_schema(&function["parameters"]), |text: &str| Text(text.to_owned()));
        let arguments = || Json(parameters.clone().into());
        Some(match self.calls {
            Calls::None => return None,
            Calls::Tagged => vec![
                Tag("<tool_call>"),
                text("\n"),
                object("arguments"),
                arguments(),
                text("}\n"),
                Tag("</tool_call>"),
            ],
            Calls::Functions => {
                let mut parts = vec![Tag("<tool_call>"), Text(format!("\n<function={name}>\n"))];
                parts.extend(pairs(&parameters, "<parameter=", ">\n", "\n</parameter>\n"));
                parts.extend([text("</function>\n"), Tag("</tool_call>")]);
                parts
            }
            Calls::Pairs => {
                let mut parts = vec![Tag("<tool_call>"), Text(format!("{name}\n"))];
                parts.extend(pairs(&parameters, "<arg_key>", "</arg_key>\n<arg_value>", "</arg_value>\n"));
                parts.push(Tag("</tool_call>"));
                parts
            }
            Calls::Mistral => {
                vec![Tag("[TOOL_CALLS]"), text("["), object("arguments"), arguments(), text("}]")]
            }
            Calls::Named => vec![Tag("[TOOL_CALLS]"), text(name), Tag("[ARGS]"), arguments()],
            Calls::Llama => vec![object("parameters"), arguments(), text("}")],
            Calls::List => {
                vec![Tag("<|tool_call|>"), text("["), object("arguments"), arguments(), text("}]")]
            }
            Calls::Harmony => vec![
                Tag("<|channel|>"),
                Text(format!("commentary to=functions.{name} ")),
                Tag("<|constrain|>"),
                text("json"),
                Tag("<|message|>"),
                arguments(),
            ],
        })
    }
}

/// The schema of a tool's arguments: an object, which is empty if the tool describes none.
fn object_schema(parameters: &Value) -> Map<String, Value> {
    let mut schema = parameters.as_object().cloned().unwrap_or_default();
    if schema.is_empty() {
        schema.insert("additionalProperties".to_owned(), false.into());
    }
    schema.entry("type").or_insert_with(|| "object".into());
    schema
}

/// Arguments that are written one by one: texts as they are, all others as JSON.
fn pairs<'a>(
    schema: &'a Map<String, Value>,
    open: &'a str,
    middle: &'a str,
    close: &'static str,
) -> impl Iterator<Item = CallPart> + 'a {
    let required = schema.get("required").and_then(Value::as_array);
    let properties = schema.get("properties").and_then(Value::as_object);
    properties.into_iter().flatten().flat_map(move |(key, property)| {
        let values: Option<Vec<String>> = property["enum"]
            .as_array()
            .and_then(|values| values.iter().map(|value| value.as_str().map(str::to_owned)).collect());
        let closed = CallPart::Text(close.to_owned());
        let value = match values {
            Some(values) => vec![CallPart::OneOf(values), closed],
            None if property["type"] == "string" => vec![CallPart::Until(close)],
            None => vec![CallPart::Json(with_definitions(property, schema)), closed],
        };
        let parts: Vec<_> =
            [CallPart::Text(format!("{open}{key}{middle}"))].into_iter().chain(value).collect();
        let is_required = required.is_some_and(|required| required.iter().any(|name| name == key));
        if is_required { parts } else { vec![CallPart::Maybe(parts)] }
    })
}

/// The schema of a property, with the definitions that it may refer to.
fn with_definitions(property: &Value, schema: &Map<String, Value>) -> Value {
    let mut property = property.clone();
    for name in ["$defs", "definitions"] {
        if let (Some(definitions), Some(property)) = (schema.get(name), property.as_object_mut()) {
            property.entry(name).or_insert_with(|| definitions.clone());
        }
    }
    property
}
