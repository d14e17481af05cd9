//! What an answer has to match: JSON, a schema, a grammar.
//!
//! A [`Matcher`] of `llguidance` says after each token which tokens may follow. The GPU chooses among those.

use std::sync::{Arc, OnceLock};

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

    /// Refuses long definitions.
    fn bounded(self) -> Result<Self, Refusal> {
        let len = match &self {
            Self::Schema(schema) => schema.to_string().len(),
            Self::Lark(text) | Self::Regex(text) => text.len(),
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
            Constraint::Schema(schema) => TopLevelGrammar::from_json_schema(schema.clone()),
            Constraint::Lark(lark) => TopLevelGrammar::from_lark(lark.clone()),
            Constraint::Regex(regex) => TopLevelGrammar::from_regex(regex),
        };
        let matcher = Matcher::new(factory.create_parser(grammar));
        match matcher.get_error() {
            None => Ok(matcher),
            Some(error) => Err(refused(format!("`{}`: {error}", constraint.field()))),
        }
    }
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
