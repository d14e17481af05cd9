//! Bodies of requests: the committed seeds, then mutations of them for `NVGPU_FUZZ_SECONDS` seconds, by
//! default one.
//!
//! For any body, reading ends with a request that can be answered or with a refusal. A text ends before its stops,
//! however it is cut.

#[path = "../../../../../fuzz/src/runner.rs"]
#[allow(clippy::print_stdout, clippy::print_stderr, reason = "the output of a test")]
mod runner;

use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::Path;
use std::sync::LazyLock;

use infer::chat::Template;
use infer::model::Model;
use infer::synthetic::Recipe;
use infer::tokenizer::Tokenizer;

use super::Facts;
use super::embeddings::{self, Pooling};
use super::grammar::{self, Constraint, Grammars};
use super::request::{Refusal, Request, chat, completion};
use super::stops::Stops;
use runner::Behaviour;

static FACTS: LazyLock<Facts> = LazyLock::new(|| {
    let model = Model::from_bytes(Recipe::tiny_llama().to_bytes().unwrap()).unwrap();
    Facts {
        name: "m".to_owned(),
        tokenizer: Tokenizer::new(model.file()).unwrap(),
        template: Template::of(model.file()).map_err(|error| error.to_string()),
        grammars: Grammars::default(),
        pooling: Ok(Pooling::Last),
        text_end: Some(0),
        context: 64,
        vocabulary: model.shape().vocabulary,
        width: model.shape().width,
        parallel: 3,
    }
});

fn hashed(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Checks the request that was read; returns its behaviour.
fn checked(read: Result<Request, Refusal>) -> (u64, Vec<String>) {
    let request = match read {
        Err(refusal) => {
            assert!(refusal.status == 400 && !refusal.text.is_empty());
            return (hashed((refusal.field, refusal.code)), Vec::new());
        }
        Ok(request) => request,
    };
    let Request { tokens, sampling, limit, stops, streams, counts, choices, logprobs, constraint, .. } =
        request;
    assert!((1..=FACTS.parallel).contains(&choices) && logprobs.is_none_or(|most| most <= 20));
    if let Some(constraint) = &constraint {
        check_grammar(constraint);
    }
    assert!(!tokens.is_empty() && tokens.iter().all(|token| (*token as usize) < FACTS.vocabulary));
    assert!(limit > 0 && tokens.len() + limit <= FACTS.context);
    sampling.check().unwrap();
    assert!(stops.len() <= 16 && stops.iter().all(|stop| !stop.is_empty() && stop.len() <= 256));
    let fields = (stops.len(), streams, counts, sampling.top_k > 0, choices, logprobs, constraint.is_some());
    (hashed(fields), stops)
}

/// A grammar is refused, or its first mask allows a token and can be advanced by it.
fn check_grammar(constraint: &Constraint) {
    let mut matcher = match FACTS.grammars.matcher(&FACTS.tokenizer, constraint) {
        Err(refusal) => return assert!(refusal.status == 400 && refusal.field.is_some()),
        Ok(matcher) => matcher,
    };
    if let Ok(words) = grammar::mask(&mut matcher, FACTS.vocabulary) {
        assert_eq!(words.len(), FACTS.vocabulary.div_ceil(32));
        let token =
            (0..FACTS.vocabulary as u32).find(|token| words[*token as usize / 32] >> (token % 32) & 1 == 1);
        token.map(|token| grammar::advance(&mut matcher, token).unwrap());
    }
}

/// Checks the texts of a request for embeddings; returns its behaviour.
fn embedded(body: &[u8]) -> u64 {
    match embeddings::request(body, &FACTS) {
        Err(refusal) => {
            assert!(refusal.status == 400 && !refusal.text.is_empty());
            hashed((refusal.field, refusal.code))
        }
        Ok(request) => {
            let fits = |text: &Vec<u32>| (1..=FACTS.context).contains(&text.len());
            assert!(request.texts.iter().all(fits));
            hashed((request.is_base64, request.texts.len().min(3)))
        }
    }
}

/// Cuts a text into pieces and looks for its stops.
fn check_stops(text: &str, texts: &[String]) {
    let mut stops = Stops::new(texts.to_vec());
    let mut shown = String::new();
    let mut rest = text;
    for size in (1..).map(|number| number * 7 % 5 + 1) {
        if rest.is_empty() || stops.is_found() {
            break;
        }
        let end = rest.char_indices().nth(size).map_or(rest.len(), |(at, _)| at);
        shown += &stops.push(&rest[..end]);
        rest = &rest[end..];
    }
    let found = stops.is_found();
    shown += &stops.finish();
    assert!(text.starts_with(&shown) && texts.iter().all(|stop| !shown.contains(stop)));
    assert_eq!(found, texts.iter().any(|stop| text.contains(stop)));
    assert!(found || shown == text);
}

fn run(body: &[u8]) -> Behaviour {
    let text = String::from_utf8_lossy(body);
    let read = [completion(body, &FACTS), chat(body, &FACTS)].map(checked);
    for (_, stops) in &read {
        check_stops(&text, stops);
    }
    let kinds = read.into_iter().map(|(behaviour, _)| behaviour).chain([embedded(body)]);
    kinds.enumerate().map(hashed).collect()
}

#[test]
fn arbitrary_bodies_break_nothing() {
    runner::run(&[Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/requests")], run);
}
