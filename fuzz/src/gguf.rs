//! Files of language models for the reader, and for what is made of them.
//!
//! For any input, reading ends with a value or an error; what was read lies within the input; a model that is accepted
//! has all its tensors and can be evaluated; a vocabulary that is accepted gives every text back.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::mem::discriminant;

use infer::Error;
use infer::chat::{Conversation, Message, Role, Template};
use infer::gguf::File;
use infer::model::Model;
use infer::reference::{CacheFormat, Reference};
use infer::tokenizer::{Controls, Tokenizer};

/// A text with words of all kinds.
const TEXT: &str = "The world's 12345 é 日本\n\n <|eot_id|>!";

/// The kind of an error.
fn kind(error: &Error) -> u64 {
    match error {
        Error::Gguf { fault, .. } => hashed(discriminant(fault)),
        Error::Model(fault) => hashed(discriminant(fault)),
        Error::Tokenizer(fault) => hashed(discriminant(fault)),
        Error::Chat(fault) => hashed(discriminant(fault)),
        other => hashed(discriminant(other)),
    }
}

fn hashed(value: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

/// Reads a file and uses what it contains. Returns the behaviour for the fuzzer.
pub(crate) fn run(data: &[u8]) -> BTreeSet<u64> {
    let mut behaviours = BTreeSet::new();
    let file = match File::from_bytes(data.to_vec()) {
        Ok(file) => file,
        Err(error) => {
            if let Error::Gguf { offset, .. } = &error {
                assert!(*offset <= data.len() as u64, "{error}");
            }
            let text = error.to_string();
            assert!(!text.contains(char::is_control), "{text:?}");
            behaviours.insert(kind(&error));
            return behaviours;
        }
    };
    let bytes: usize = file.tensors().map(|tensor| tensor.bytes.len()).sum();
    assert!(bytes <= data.len(), "tensors do not share bytes");
    for tensor in file.tensors() {
        assert_eq!(tensor.block.bytes_for(tensor.dims.iter().product()), Some(tensor.bytes.len()));
        assert_eq!(file.tensor(tensor.name).map(|same| same.bytes), Some(tensor.bytes));
        behaviours.insert(hashed((tensor.block, tensor.dims.len())));
    }
    match Tokenizer::new(&file) {
        Err(error) => {
            behaviours.insert(kind(&error));
        }
        Ok(tokenizer) => {
            let tokens = tokenizer.encode(TEXT, Controls::AsText);
            let written: Vec<u8> = tokens.iter().flat_map(|token| tokenizer.bytes(*token)).copied().collect();
            if tokenizer.adds_space() {
                let words =
                    |bytes: &[u8]| bytes.iter().filter(|byte| **byte != b' ').copied().collect::<Vec<u8>>();
                assert_eq!(words(&written), words(TEXT.as_bytes()));
            } else {
                assert_eq!(written, TEXT.as_bytes());
            }
            behaviours.insert(hashed((tokenizer.splitter(), tokens.len(), tokenizer.stops().count())));
            let conversation = Conversation::new([Message::new(Role::User, TEXT)]);
            let chat = Template::of(&file).and_then(|template| template.encode(&tokenizer, &conversation));
            behaviours.insert(match chat {
                Err(error) => kind(&error),
                Ok(mut prompt) => {
                    let parts = prompt.tokens.iter().flat_map(|token| prompt.parser.push(&tokenizer, *token));
                    let parts = parts.count() + prompt.parser.finish().len();
                    hashed((prompt.tokens.len(), parts))
                }
            });
        }
    }
    match Model::new(file) {
        Err(error) => {
            behaviours.insert(kind(&error));
        }
        Ok(model) => {
            let shape = model.shape();
            assert!(model.bytes_per_token() <= 2 * data.len());
            behaviours.insert(hashed((shape.architecture.name(), shape.tied, &shape.layers, shape.heads)));
            let mut reference = Reference::new(&model, CacheFormat::Half).expect("conversions are checked");
            let logits = reference.step(0).expect("there is at least one token and position");
            assert_eq!(logits.len(), shape.vocabulary);
        }
    }
    behaviours
}
