//! What an answer has to match: JSON, a schema, a grammar.
//!
//! A [`Matcher`] of `llguidance` says after each token which tokens may follow. The GPU chooses among those.

use std::sync::{Arc, OnceLock};

use infer::chat::{CallPart, Template};
use infer::tokenizer::Tokenizer;
use llguidance::api::TopLevelGrammar;
use llguidance::toktrie::{ApproximateTokEnv, TokEnv, TokRxInfo, TokTrie};
use llguidance::{Matcher, ParserFactory};
use serde_json::{Value, json};

use super::request::Refusal;

/// Longest schema or grammar in bytes, which bounds how many of its parts refer to each other in turn.
const MOST_BYTES: usize = 64 << 10;

/// What an answer has to match.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Constraint {
    /// JSON of a schema, with the field that asks for it.
    Schema(Value),
    /// A grammar in the format of Lark.
    Lark(String),
    /// A regular expression.
    Regex(String),
    /// A call of a tool, as a grammar in the format of Lark.
    Call(String),
}

impl Constraint {
    /// The constraint of a request; `None` if there is none.
    pub(super) fn of(value: &Value) -> Result<Option<Self>, Refusal> {
        let (format, grammar) = (of_format(&value["response_format"])?, of_grammar(&value["grammar"])?);
        match (format, grammar) {
            (Some(_), Some(_)) => {
                Err(Refusal::field("grammar", "`grammar` and `response_format` exclude each other"))
            }
            (format, grammar) => format.or(grammar).map(Self::bounded).transpose(),
        }
    }

    /// A call of one of some tools, in the form of the template, behind thoughts that the prompt has begun.
    pub(super) fn call(
        tools: &[Value],
        template: &Template,
        tokenizer: &Tokenizer,
        continues_thoughts: bool,
    ) -> Result<Self, Refusal> {
        let mut lark = Lark { tokenizer, rules: String::new() };
        let thoughts = [CallPart::Until("</think>"), CallPart::Text("\n\n".to_owned())];
        let thoughts = if continues_thoughts { lark.all(&thoughts) } else { String::new() };
        let call = |tool| template.call(tool).map(|parts| lark.all(&parts));
        let calls = tools.iter().map(call).collect::<Option<Vec<_>>>().ok_or_else(|| {
            let text = "`tool_choice`: how the model's chat template writes calls is not known, so none can be forced";
            Refusal::field("tool_choice", text)
        })?;
        let start = format!("start: {thoughts} ({})\n", calls.join(" | "));
        Self::Call(start + &lark.rules).bounded()
    }

    /// Refuses long definitions.
    fn bounded(self) -> Result<Self, Refusal> {
        let len = match &self {
            Self::Schema(schema) => schema.to_string().len(),
            Self::Lark(text) | Self::Regex(text) | Self::Call(text) => text.len(),
        };
        if len <= MOST_BYTES {
            return Ok(self);
        }
        Err(Refusal::field(self.field(), format!("`{}` has more than {MOST_BYTES} bytes", self.field())))
    }

    /// The field that asks for it.
    const fn field(&self) -> &'static str {
        match self {
            Self::Schema(_) => "response_format",
            Self::Lark(_) | Self::Regex(_) => "grammar",
            Self::Call(_) => "tool_choice",
        }
    }
}

fn of_format(format: &Value) -> Result<Option<Constraint>, Refusal> {
    let field = "response_format";
    match format["type"].as_str() {
        None if format.is_null() => Ok(None),
        Some("text") => Ok(None),
        Some("json_object") => Ok(Some(Constraint::Schema(json!({ "type": "object" })))),
        Some("json_schema") => match &format["json_schema"]["schema"] {
            schema @ (Value::Object(_) | Value::Bool(_)) => Ok(Some(Constraint::Schema(schema.clone()))),
            _ => Err(Refusal::field(field, "`response_format` has no `json_schema.schema`, an object")),
        },
        _ => {
            let text = "`response_format` must be an object whose `type` is text, json_object or json_schema";
            Err(Refusal::field(field, text))
        }
    }
}

fn of_grammar(grammar: &Value) -> Result<Option<Constraint>, Refusal> {
    let definition = grammar["definition"].as_str().map(str::to_owned);
    match (grammar, grammar["syntax"].as_str(), definition) {
        (Value::Null, ..) => Ok(None),
        (Value::String(lark), ..) => Ok(Some(Constraint::Lark(lark.clone()))),
        (_, Some("lark"), Some(lark)) => Ok(Some(Constraint::Lark(lark))),
        (_, Some("regex"), Some(regex)) => Ok(Some(Constraint::Regex(regex))),
        _ => {
            let text = "`grammar` must be a text in the format of Lark, or an object with `syntax`, which is lark or \
                        regex, and `definition`";
            Err(Refusal::field("grammar", text))
        }
    }
}

/// Writes calls in the format of Lark.
struct Lark<'a> {
    tokenizer: &'a Tokenizer,
    /// Rules that parts refer to.
    rules: String,
}

impl Lark<'_> {
    fn all(&mut self, parts: &[CallPart]) -> String {
        parts.iter().map(|part| self.part(part)).collect::<Vec<_>>().join(" ")
    }

    fn part(&mut self, part: &CallPart) -> String {
        let quoted = |text: &str| Value::from(text).to_string();
        match part {
            CallPart::Tag(name) => {
                self.tokenizer.control(name).map_or_else(|| quoted(name), |token| format!("<[{token}]>"))
            }
            CallPart::Text(text) => quoted(text),
            CallPart::OneOf(texts) => {
                format!("({})", texts.iter().map(|text| quoted(text)).collect::<Vec<_>>().join(" | "))
            }
            CallPart::Json(schema) => format!("%json {}", with_short_space(schema)),
            CallPart::Until(text) => match self.tokenizer.control(text) {
                Some(token) => format!("/(?s:.*)/ <[{token}]>"),
                None => {
                    let name = format!("until_{}", self.rules.len());
                    self.rules += &format!("{name}[suffix={}]: /(?s:.*)/\n", quoted(text));
                    name
                }
            },
            CallPart::Maybe(parts) => format!("({})?", self.all(parts)),
        }
    }
}

/// The vocabulary in the form that grammars need, which is made for the first of them.
#[derive(Default)]
pub(super) struct Grammars(OnceLock<Result<ParserFactory, String>>);

impl Grammars {
    /// A matcher for a constraint, at the start of an answer. May take seconds.
    pub(super) fn matcher(&self, tokenizer: &Tokenizer, constraint: &Constraint) -> Result<Matcher, Refusal> {
        let refused = |text: String| Refusal::field(constraint.field(), text);
        let factory =
            self.0.get_or_init(|| factory(tokenizer)).as_ref().map_err(|error| refused(error.clone()))?;
        let grammar = match constraint {
            Constraint::Schema(schema) => TopLevelGrammar::from_json_schema(with_short_space(schema)),
            Constraint::Lark(lark) | Constraint::Call(lark) => TopLevelGrammar::from_lark(lark.clone()),
            Constraint::Regex(regex) => TopLevelGrammar::from_regex(regex),
        };
        let matcher = Matcher::new(factory.create_parser(grammar));
        match matcher.get_error() {
            None => Ok(matcher),
            Some(error) => Err(refused(format!("`{}`: {error}", constraint.field()))),
        }
    }
}

/// White space between the parts of JSON: a space, or one or two line ends and an indent. Without a limit, a model can
/// fill its answer with white space.
const SPACE: &str = r" |(\r?\n){1,2}[ \t]{0,20}";

/// A schema whose JSON has little white space, unless the schema itself says something else in `x-guidance`.
fn with_short_space(schema: &Value) -> Value {
    let mut schema = if *schema == Value::Bool(true) { json!({}) } else { schema.clone() };
    if let Some(fields) = schema.as_object_mut() {
        let options = fields.entry("x-guidance").or_insert_with(|| json!({}));
        if let Some(options) =
            options.as_object_mut().filter(|options| !options.contains_key("whitespace_flexible"))
        {
            options.entry("whitespace_pattern").or_insert_with(|| SPACE.into());
        }
    }
    schema
}

fn factory(tokenizer: &Tokenizer) -> Result<ParserFactory, String> {
    let stops: Vec<u32> = tokenizer.stops().collect();
    let Some(eos) = stops.first() else {
        return Err("the vocabulary has no token that ends an answer".to_owned());
    };
    // CAST: the tokenizer checked that tokens fit 32 bits.
    let count = tokenizer.len() as u32;
    // Control tokens are no texts: grammars cannot match them by accident.
    let word = |token| match tokenizer.is_control(token) {
        true => [&[TokTrie::SPECIAL_TOKEN_MARKER], tokenizer.bytes(token)].concat(),
        false => tokenizer.bytes(token).to_vec(),
    };
    let words: Vec<Vec<u8>> = (0..count).map(word).collect();
    let trie = TokTrie::from(&TokRxInfo::new(count, *eos), &words).with_eos_tokens(&stops);
    let environment: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
    let mut factory = ParserFactory::new_simple(&environment).map_err(|error| error.to_string())?;
    factory.quiet().limits_mut().verbose_errors = false;
    Ok(factory)
}

/// The tokens that may follow, as [`infer::decode::Batch::set_mask`] takes them.
pub(super) fn mask(matcher: &mut Matcher, vocabulary: usize) -> Result<Vec<u32>, Refusal> {
    let allowed = matcher.compute_mask().map_err(|error| failed(&error))?;
    let mut words = allowed.as_slice().to_vec();
    words.resize(vocabulary.div_ceil(32), 0);
    Ok(words)
}

/// Advances a matcher by a token of its mask; returns whether the answer is complete.
pub(super) fn advance(matcher: &mut Matcher, token: u32) -> Result<bool, Refusal> {
    matcher.consume_token(token).map_err(|error| failed(&error))?;
    Ok(matcher.is_stopped())
}

fn failed(error: &impl std::fmt::Display) -> Refusal {
    // What the library adds without its verbose errors.
    let reason = error.to_string().replace("<non-verbose/>", "");
    Refusal::new(
        400,
        format!("the grammar or schema is too complex, or allows no token: {}", reason.trim_end()),
    )
}

#[cfg(test)]
mod tests {
    use infer::gguf::{File, Value as Field, Writer};
    use infer::model::Model;
    use infer::synthetic::Recipe;
    use infer::tokenizer::Controls;

    use super::*;

    /// Whether a text is a whole answer that matches; the last of several constraints with one vocabulary.
    fn accepts(constraint: &Constraint, text: &str) -> bool {
        let model = Model::from_bytes(Recipe::tiny_llama().to_bytes().unwrap()).unwrap();
        let tokenizer = Tokenizer::new(model.file()).unwrap();
        let mut matcher = Grammars::default().matcher(&tokenizer, constraint).unwrap();
        let mut tokens = tokenizer.encode(text, Controls::AsText).into_iter();
        tokens.all(|token| matcher.consume_token(token).is_ok()) && matcher.is_accepting().unwrap()
    }

    #[test]
    fn json_has_little_white_space() {
        let schema = json!({ "type": "object", "properties": { "a": { "type": "integer" } } });
        let constraint = Constraint::Schema(schema.clone());
        for text in ["{\"a\":1}", "{ \"a\": 1 }", "{\n  \"a\": 1\n}", "{\r\n\t\"a\": 1}"] {
            assert!(accepts(&constraint, text), "{text}");
        }
        for text in ["{  \"a\": 1}", "{\n\n\n\"a\": 1}", "{\"a\":\t1}", "{\n                     \"a\": 1}"] {
            assert!(!accepts(&constraint, text), "{text}");
        }
        let mut other = schema;
        other["x-guidance"] = json!({ "whitespace_flexible": false });
        assert!(accepts(&Constraint::Schema(other.clone()), "{\"a\":1}"));
        assert!(!accepts(&Constraint::Schema(other), "{\"a\": 1}"));
        assert!(accepts(&Constraint::Schema(json!(true)), "[null, 1]"));
    }

    fn template(source: &str) -> Template {
        let mut writer = Writer::new();
        writer.key("tokenizer.chat_template", Field::Text(source.to_owned()));
        let mut bytes = Vec::new();
        writer.write(&mut bytes).unwrap();
        Template::of(&File::from_bytes(bytes).unwrap()).unwrap()
    }

    #[test]
    fn calls_can_be_forced() {
        let model = Model::from_bytes(Recipe::tiny_llama().to_bytes().unwrap()).unwrap();
        let tokenizer = Tokenizer::new(model.file()).unwrap();
        let tool = |name: &str, parameters: Value| {
            let function = json!({ "name": name, "parameters": parameters });
            json!({ "type": "function", "function": function })
        };
        let parameters = json!({ "type": "object", "properties": { "x": { "type": "integer" } },
                                 "required": ["x"], "additionalProperties": false });
        let tools = [tool("f", parameters), tool("\"g", Value::Null)];
        let call = |source, thoughts| Constraint::call(&tools, &template(source), &tokenizer, thoughts);
        let tagged = call("<tool_call>", false).unwrap();
        let text = "<tool_call>\n{\"name\": \"f\", \"arguments\": {\"x\": 7}}\n</tool_call>";
        assert!(accepts(&tagged, text));
        assert!(accepts(&tagged, &text.replace("\"f\"", "\"\\\"g\"").replace("\"x\": 7", "")));
        for (old, new) in [("7", "\"7\""), ("\"f\"", "\"h\""), ("<tool", "a<tool"), ("</tool_call>", "")] {
            assert!(!accepts(&tagged, &text.replace(old, new)), "{old} {new}");
        }
        let thought = call("<tool_call>", true).unwrap();
        assert!(accepts(&thought, &format!("a\nb</think>\n\n{text}")) && !accepts(&thought, text));
        let coder = call("<tool_call><function=", false).unwrap();
        let text = "<tool_call>\n<function=f>\n<parameter=x>\n7\n</parameter>\n</function>\n</tool_call>";
        assert!(accepts(&coder, text) && !accepts(&coder, &text.replace('7', "a")));
        let refusal = call("plain", false).unwrap_err();
        assert!(refusal.field == Some("tool_choice") && refusal.text.contains("is not known"), "{refusal:?}");
    }
}
