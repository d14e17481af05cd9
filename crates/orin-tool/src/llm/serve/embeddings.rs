//! `/v1/embeddings`: vectors of texts.

use anyhow::Result;
use infer::decode::Session;
use infer::gguf::File;
use infer::model::Model;
use infer::tokenizer::Controls;
use serde_json::{Value, json};

use super::Facts;
use super::request::{Refusal, integer, parsed, tokens};

/// How the vectors of a text's tokens become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Pooling {
    /// The mean over all tokens; reads a text token by token
    Mean,
    /// That of the last token
    Last,
}

impl Pooling {
    /// The pooling of a model, or why it has no embeddings.
    pub(super) fn of(model: &Model, asked: Option<Self>) -> infer::Result<Result<Self, String>> {
        if let Some(pooling) = asked {
            return Ok(Ok(pooling));
        }
        let key = format!("{}.pooling_type", model.shape().architecture);
        // llama.cpp numbers them.
        Ok(match model.file().integer::<u32>(&key)? {
            Some(1) => Ok(Self::Mean),
            Some(3) => Ok(Self::Last),
            None | Some(0) => Err(format!(
                "the model is not made for embeddings (its file has no `{key}`): start the server with --embeddings \
                 mean or last to have them anyway"
            )),
            Some(2) => Err(format!("`{key}` of the model's file is CLS, which is not supported")),
            Some(4) => Err("the model ranks texts (reranking), which is not supported".to_owned()),
            Some(other) => Err(format!("`{key}` of the model's file is {other}, which is not supported")),
        })
    }
}

/// The token that follows each text, if the model wants one.
pub(super) fn text_end(file: &File) -> infer::Result<Option<u32>> {
    let adds = file.bool("tokenizer.ggml.add_eos_token")?.unwrap_or(false);
    Ok(file.integer::<u32>("tokenizer.ggml.eos_token_id")?.filter(|_| adds))
}

/// The vectors of a text's tokens, as far as they are read.
pub(super) struct Pool {
    pooling: Pooling,
    sum: Vec<f64>,
}

impl Pool {
    /// Tokens that are read one by one between two steps of others.
    pub(super) const PIECE: usize = 16;

    pub(super) const fn new(pooling: Pooling) -> Self {
        Self { pooling, sum: Vec::new() }
    }

    /// Whether the vectors of all tokens are needed.
    pub(super) fn needs_all(&self) -> bool {
        self.pooling == Pooling::Mean
    }

    /// Adds the vector of a token.
    pub(super) fn add(&mut self, vector: &[f64]) {
        self.sum.resize(vector.len(), 0.0);
        self.sum.iter_mut().zip(vector).for_each(|(sum, x)| *sum += x);
    }

    /// The vector of the text, of length 1. The length makes no difference between a sum and a mean.
    pub(super) fn finish(mut self, session: &mut Session) -> Result<Vec<f32>> {
        if !self.needs_all() {
            self.sum = session.hidden()?;
        }
        let length = self.sum.iter().map(|x| x * x).sum::<f64>().sqrt().max(f64::MIN_POSITIVE);
        // CAST: rounded to the interface's format.
        Ok(self.sum.iter().map(|x| (x / length) as f32).collect())
    }
}

/// A request for embeddings.
#[derive(Debug, PartialEq)]
pub(super) struct Request {
    pub(super) pooling: Pooling,
    /// The tokens of each text.
    pub(super) texts: Vec<Vec<u32>>,
    /// Whether vectors are written in base64.
    pub(super) is_base64: bool,
}

/// Most texts of a request, as OpenAI's interface has it.
const MOST_TEXTS: usize = 2048;

/// Reads a request.
pub(super) fn request(body: &[u8], facts: &Facts) -> Result<Request, Refusal> {
    let value = parsed(body)?;
    let pooling = *facts.pooling.as_ref().map_err(|reason| Refusal::new(400, reason.as_str()))?;
    let is_base64 = match value["encoding_format"].as_str() {
        None if value["encoding_format"].is_null() => false,
        Some("float") => false,
        Some("base64") => true,
        _ => return Err(Refusal::field("encoding_format", "`encoding_format` must be float or base64")),
    };
    if integer(&value, "dimensions")?.is_some_and(|wanted| wanted != facts.width as u64) {
        let text = format!("`dimensions` must be {}, the model's: others are not supported", facts.width);
        return Err(Refusal::field("dimensions", text));
    }
    let input = &value["input"];
    let all: Vec<&Value> = match input {
        Value::Array(list) if !list.iter().all(Value::is_number) => list.iter().collect(),
        one => vec![one],
    };
    if all.len() > MOST_TEXTS {
        return Err(Refusal::field("input", format!("`input` has more than {MOST_TEXTS} texts")));
    }
    let texts = all.into_iter().map(|text| one(text, facts)).collect::<Result<_, _>>()?;
    Ok(Request { pooling, texts, is_base64 })
}

/// The tokens of a text, which may be given as tokens.
fn one(text: &Value, facts: &Facts) -> Result<Vec<u32>, Refusal> {
    let wrong = || {
        let text =
            "`input` must be one text or a list of texts that are not empty, or tokens of the vocabulary";
        Refusal::field("input", text)
    };
    let tokens = match text {
        Value::String(text) if !text.is_empty() => {
            let mut tokens = facts.tokenizer.encode_prompt(text, Controls::AsText);
            tokens.extend(facts.text_end.filter(|end| tokens.last() != Some(end)));
            tokens
        }
        Value::Array(list) => tokens(list, facts).ok_or_else(wrong)?,
        _ => return Err(wrong()),
    };
    if tokens.is_empty() {
        return Err(wrong());
    }
    if tokens.len() > facts.context {
        let text = format!("a text has {} tokens, but the context holds {}", tokens.len(), facts.context);
        return Err(Refusal { code: Some("context_length_exceeded"), ..Refusal::field("input", text) });
    }
    Ok(tokens)
}

/// The answer.
pub(super) fn reply(model: &str, vectors: &[Vec<f32>], is_base64: bool, prompt_tokens: usize) -> Value {
    let entry = |(index, vector): (usize, &Vec<f32>)| {
        let vector = if is_base64 { json!(base64(little_endian(vector))) } else { json!(vector) };
        json!({ "object": "embedding", "index": index, "embedding": vector })
    };
    json!({
        "object": "list",
        "data": vectors.iter().enumerate().map(entry).collect::<Vec<_>>(),
        "model": model,
        "usage": { "prompt_tokens": prompt_tokens, "total_tokens": prompt_tokens },
    })
}

/// The vector's bytes, the lowest first.
fn little_endian(vector: &[f32]) -> Vec<u8> {
    vector.iter().flat_map(|x| x.to_le_bytes()).collect()
}

/// Bytes in base64.
fn base64(bytes: Vec<u8>) -> String {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let word =
            group.iter().enumerate().fold(0_u32, |word, (at, byte)| word | u32::from(*byte) << (16 - 8 * at));
        for at in 0..4 {
            let digit = char::from(DIGITS[(word >> (18 - 6 * at) & 63) as usize]);
            text.push(if at <= group.len() { digit } else { '=' });
        }
    }
    text
}

#[cfg(test)]
mod tests {
    #[test]
    fn bytes_in_base64_are_padded() {
        let text = |bytes: &[u8]| super::base64(bytes.to_vec());
        assert_eq!([text(b""), text(b"f"), text(b"fo"), text(b"foo")], ["", "Zg==", "Zm8=", "Zm9v"]);
        assert_eq!(text(&[0xfb, 0xff, 0, 1]), "+/8AAQ==");
    }
}
