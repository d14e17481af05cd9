//! Requests in OpenAI's format.

use infer::chat::AnswerParser;
use infer::decode::Sampling;
use infer::tokenizer::Controls;
use serde_json::Value;

use super::grammar::Constraint;
use super::reply::Kind;
use super::{Facts, messages};

/// Why a request is refused, with the field that is wrong.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Refusal {
    pub(super) status: u16,
    pub(super) text: String,
    pub(super) field: Option<&'static str>,
    pub(super) code: Option<&'static str>,
}

impl Refusal {
    pub(super) fn new(status: u16, text: impl Into<String>) -> Self {
        Self { status, text: text.into(), field: None, code: None }
    }

    pub(super) fn field(field: &'static str, text: impl Into<String>) -> Self {
        Self { field: Some(field), ..Self::new(400, text) }
    }
}

/// A request.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) tokens: Vec<u32>,
    pub(super) sampling: Sampling,
    pub(super) limit: usize,
    pub(super) stops: Vec<String>,
    /// Whether the answer is sent in parts.
    pub(super) streams: bool,
    /// Whether the last part of a stream counts tokens.
    pub(super) counts: bool,
    /// Number of answers.
    pub(super) choices: usize,
    /// Most probable tokens whose log probabilities accompany those of the answer; `None` for no log probabilities.
    pub(super) logprobs: Option<usize>,
    /// What the answer has to match.
    pub(super) constraint: Option<Constraint>,
    /// What reads the answer of a conversation.
    pub(super) parser: Option<AnswerParser>,
    /// Whether the first call of a tool ends the answer.
    pub(super) one_call: bool,
}

/// Default tokens of an answer to a text, as OpenAI's interface has it.
const DEFAULT_LIMIT: usize = 16;

/// Most texts that end an answer.
const MOST_STOPS: usize = 16;

/// Longest such text in bytes.
const MOST_STOP_BYTES: usize = 256;

/// Fields whose meaning is not supported, and their neutral values.
const UNSUPPORTED: [(&str, &[&str]); 9] = [
    ("best_of", &["1", "1.0"]),
    ("echo", &["false"]),
    ("suffix", &["\"\""]),
    ("logit_bias", &["{}"]),
    ("frequency_penalty", &["0", "0.0"]),
    ("presence_penalty", &["0", "0.0"]),
    ("functions", &["[]"]),
    ("function_call", &["\"none\""]),
    ("modalities", &["[\"text\"]"]),
];

/// Most log probabilities for the place of a token.
const MOST_LOGPROBS: u64 = 20;

/// Reads a request for the continuation of a text.
pub(super) fn completion(body: &[u8], facts: &Facts) -> Result<Request, Refusal> {
    let value = parsed(body)?;
    let one = match &value["prompt"] {
        Value::Array(list) if list.len() == 1 && !list[0].is_number() => &list[0],
        other => other,
    };
    let tokens = match one {
        Value::String(text) => facts.tokenizer.encode_prompt(text, Controls::Find),
        Value::Array(list) => tokens(list, facts)
            .ok_or_else(|| Refusal::field("prompt", "a prompt is one text, or tokens of the vocabulary"))?,
        _ => return Err(Refusal::field("prompt", "`prompt` must be one text, or a list of tokens")),
    };
    request(&value, tokens, Kind::Completion, facts)
}

/// Reads a request for an answer in a conversation.
pub(super) fn chat(body: &[u8], facts: &Facts) -> Result<Request, Refusal> {
    let value = parsed(body)?;
    let template = facts.template.as_ref().map_err(|reason| Refusal::new(400, reason.as_str()))?;
    let conversation = messages::conversation(&value, template)?;
    let one_call = messages::wants_one_call(&value)?;
    let prompt = template.encode(&facts.tokenizer, &conversation);
    let prompt = prompt.map_err(|error| Refusal::new(400, error.to_string()))?;
    let mut request = request(&value, prompt.tokens, Kind::Chat, facts)?;
    if let Some(tools) = messages::forced(&value, &conversation.tools)? {
        if request.constraint.is_some() {
            let text = "`tool_choice`: a call is forced, so `response_format` and `grammar` cannot be met";
            return Err(Refusal::field("tool_choice", text));
        }
        let thoughts = prompt.parser.continues_thoughts();
        request.constraint = Some(Constraint::call(&tools, template, &facts.tokenizer, thoughts)?);
    }
    Ok(Request { parser: Some(prompt.parser), one_call, ..request })
}

/// Tokens that a request gives; `None` if they are others than those of the vocabulary.
pub(super) fn tokens(list: &[Value], facts: &Facts) -> Option<Vec<u32>> {
    let token = |value: &Value| whole(value).and_then(|token| u32::try_from(token).ok());
    let known = |token: &u32| (*token as usize) < facts.vocabulary;
    list.iter().map(|value| token(value).filter(known)).collect()
}

/// A whole number, also if it is written as 2.0; `None` if the value is something else.
fn whole(value: &Value) -> Option<u64> {
    // Larger numbers lose digits.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    let float = || value.as_f64().filter(|float| float.fract() == 0.0 && (0.0..=EXACT).contains(float));
    // CAST: a whole number of at most 53 bits.
    value.as_u64().or_else(|| float().map(|float| float as u64))
}

pub(super) fn parsed(body: &[u8]) -> Result<Value, Refusal> {
    let value: Value =
        serde_json::from_slice(body).map_err(|error| Refusal::new(400, format!("no JSON: {error}")))?;
    if !value.is_object() {
        return Err(Refusal::new(400, "the body must be an object"));
    }
    for (field, harmless) in UNSUPPORTED {
        let asked = &value[field];
        if !asked.is_null() && !harmless.contains(&asked.to_string().as_str()) {
            return Err(Refusal::field(field, format!("`{field}` is not supported")));
        }
    }
    Ok(value)
}

/// Reads the fields that both kinds of requests have.
fn request(value: &Value, tokens: Vec<u32>, kind: Kind, facts: &Facts) -> Result<Request, Refusal> {
    if tokens.is_empty() {
        return Err(Refusal::field("prompt", "the prompt is empty"));
    }
    if tokens.len() >= facts.context {
        let text = format!("the prompt has {} tokens, but the context holds {}", tokens.len(), facts.context);
        return Err(Refusal { code: Some("context_length_exceeded"), ..Refusal::new(400, text) });
    }
    let room = facts.context - tokens.len();
    let asked = match integer(value, "max_completion_tokens")? {
        None => integer(value, "max_tokens")?,
        some => some,
    };
    // CAST: at most `room`.
    let limit = asked.map_or(if kind == Kind::Chat { room } else { DEFAULT_LIMIT }, |limit| {
        limit.min(room as u64) as usize
    });
    if limit == 0 {
        return Err(Refusal::field("max_tokens", "`max_tokens` must be at least 1"));
    }
    // CAST: 64-bit numbers of JSON to the sampler's.
    let number = |field, default: f64| float(value, field).map(|number| number.unwrap_or(default) as f32);
    let sampling = Sampling {
        temperature: number("temperature", 1.0)?,
        top_p: number("top_p", 1.0)?,
        min_p: number("min_p", 0.0)?,
        penalty: number("repeat_penalty", 1.0)?,
        // CAST: more tokens than 32 bits count are all.
        top_k: integer(value, "top_k")?.unwrap_or(0).min(u32::MAX.into()) as u32,
        seed: integer(value, "seed")?.unwrap_or_else(seed),
        ..Sampling::default()
    };
    // OpenAI's limit; the kernels accept more.
    if !(0.0..=2.0).contains(&sampling.temperature) {
        return Err(Refusal::field("temperature", "`temperature` must be 0 to 2"));
    }
    sampling.check().map_err(|error| Refusal::new(400, error.to_string()))?;
    let streams = flag(&value["stream"], "stream")?;
    let counts = flag(&value["stream_options"]["include_usage"], "stream_options")?;
    if !streams && !value["stream_options"].is_null() {
        return Err(Refusal::field("stream_options", "`stream_options` needs `stream`"));
    }
    let choices = integer(value, "n")?.unwrap_or(1);
    if choices == 0 || choices > facts.parallel as u64 {
        let text = format!("`n` must be 1 to {}, the server's --parallel", facts.parallel);
        return Err(Refusal::field("n", text));
    }
    let (logprobs, constraint) = (logprobs(value, kind)?, Constraint::of(value)?);
    let stops = stops(&value["stop"])?;
    // CAST: at most the number of sessions.
    let choices = choices as usize;
    let (parser, one_call) = (None, false);
    Ok(Request {
        tokens,
        sampling,
        limit,
        stops,
        streams,
        counts,
        choices,
        logprobs,
        constraint,
        parser,
        one_call,
    })
}

pub(super) fn flag(value: &Value, field: &'static str) -> Result<bool, Refusal> {
    let wrong = || Refusal::field(field, format!("`{field}` must be true or false"));
    value.as_bool().or(value.is_null().then_some(false)).ok_or_else(wrong)
}

/// The number of log probabilities in addition to the answer's own; `None` if none are wanted.
fn logprobs(value: &Value, kind: Kind) -> Result<Option<usize>, Refusal> {
    let field = if kind == Kind::Chat { "top_logprobs" } else { "logprobs" };
    let is_wanted = match kind {
        Kind::Chat => flag(&value["logprobs"], "logprobs")?,
        // Some clients send it in the form for conversations.
        Kind::Completion => value["logprobs"] != Value::Bool(false),
    };
    let most = if kind == Kind::Chat || is_wanted { integer(value, field)? } else { None };
    if most.is_some_and(|most| most > MOST_LOGPROBS) {
        return Err(Refusal::field(field, format!("`{field}` must be at most {MOST_LOGPROBS}")));
    }
    if kind == Kind::Chat && !is_wanted && most.is_some_and(|most| most > 0) {
        return Err(Refusal::field(field, "`top_logprobs` needs `logprobs`"));
    }
    // CAST: at most MOST_LOGPROBS.
    let most = most.map(|most| most as usize);
    Ok(if kind == Kind::Chat { is_wanted.then_some(most.unwrap_or(0)) } else { most })
}

/// A start of the random numbers that differs from request to request.
fn seed() -> u64 {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    now.map_or(0, |now| u64::from(now.subsec_nanos()) ^ now.as_secs() << 30)
}

pub(super) fn integer(value: &Value, field: &'static str) -> Result<Option<u64>, Refusal> {
    match &value[field] {
        Value::Null => Ok(None),
        number => match whole(number) {
            Some(number) => Ok(Some(number)),
            None => Err(Refusal::field(field, format!("`{field}` must be a whole number, 0 or more"))),
        },
    }
}

fn float(value: &Value, field: &'static str) -> Result<Option<f64>, Refusal> {
    match &value[field] {
        Value::Null => Ok(None),
        number => match number.as_f64() {
            Some(number) => Ok(Some(number)),
            None => Err(Refusal::field(field, format!("`{field}` must be a number"))),
        },
    }
}

fn stops(value: &Value) -> Result<Vec<String>, Refusal> {
    let wrong = || {
        let most = format!("at most {MOST_STOPS} of at most {MOST_STOP_BYTES} bytes");
        Refusal::field("stop", format!("`stop` must be a text or a list of texts that are not empty, {most}"))
    };
    let all: Vec<&Value> = match value {
        Value::Null => Vec::new(),
        Value::Array(list) => list.iter().collect(),
        one => vec![one],
    };
    let fits = |text: &&str| !text.is_empty() && text.len() <= MOST_STOP_BYTES;
    let texts: Option<Vec<String>> =
        all.iter().map(|value| value.as_str().filter(fits).map(str::to_owned)).collect();
    texts.filter(|texts| texts.len() <= MOST_STOPS).ok_or_else(wrong)
}
