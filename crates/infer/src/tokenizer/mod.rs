//! Texts to tokens and back, by the vocabulary of a model's file.
//!
//! The encoding is byte-level BPE: a text is split into words, a word into the tokens of its bytes, and pairs of tokens
//! are merged in the order of the file's list. How words are split depends on the model; see [`Splitter`].

mod alphabet;
mod decoder;
pub(crate) mod fault;
mod merge;
mod split;

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};

pub use alphabet::{byte_character, character_byte};
pub use decoder::Decoder;
pub use fault::TokenizerFault;
pub use split::Splitter;
use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfc_quick};

use crate::error::{Error, Result};
use crate::gguf::{Array, File, Texts, Value};
use crate::model::Architecture;
use merge::Merges;

/// Texts of tokens that end an answer, in models of all kinds.
const STOPS: [&str; 7] = [
    "<|end_of_text|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|endoftext|>",
    "<|im_end|>",
    "<|end|>",
    "<end_of_turn>",
];

/// Type of a token that belongs to the model's format and not to texts.
const CONTROL: i128 = 3;

/// Type of a token that was added to the vocabulary and is always found in texts.
const USER_DEFINED: i128 = 4;

/// What to do with the texts of control tokens in a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Controls {
    /// They become those tokens: for text that the program wrote.
    Find,
    /// They are ordinary text: for input of users, which must not end their turn by containing a token's name.
    AsText,
}

/// A model's vocabulary.
///
/// ```
/// use infer::model::Model;
/// use infer::synthetic::Recipe;
/// use infer::tokenizer::{Controls, Tokenizer};
///
/// let model = Model::from_bytes(Recipe::tiny_llama().to_bytes()?)?;
/// let tokenizer = Tokenizer::new(model.file())?;
/// let tokens = tokenizer.encode("in the world", Controls::AsText);
/// assert_eq!(tokens.len(), 3);
/// assert_eq!(tokenizer.decode(&tokens), b"in the world");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Tokenizer {
    splitter: Splitter,
    /// Whether characters are composed first: Unicode's NFC.
    composes: bool,
    merges: Merges,
    /// The bytes of all tokens, one after another.
    bytes: Vec<u8>,
    /// Where each token ends.
    ends: Vec<usize>,
    control: Vec<bool>,
    /// Words that are one token, if the model looks for them before it merges.
    words: Option<HashMap<Box<[u8]>, u32>>,
    /// Tokens that are found in texts, longest first, and whether they are control tokens.
    added: Vec<(u32, bool)>,
    bos: Option<u32>,
    stops: BTreeSet<u32>,
}

fn fault(fault: TokenizerFault) -> Error {
    Error::Tokenizer(fault)
}

/// The texts of a key.
fn texts<'f>(file: &'f File, key: &'static str) -> Result<&'f Texts> {
    file.texts(key)?.ok_or_else(|| fault(TokenizerFault::Missing(key)))
}

impl Tokenizer {
    /// Reads the vocabulary of a file.
    ///
    /// # Errors
    ///
    /// [`Error::Tokenizer`] if the file has no vocabulary, one of a kind that is not supported (SentencePiece, for
    /// example), or one that contradicts itself; [`Error::Value`] if a key has a wrong type.
    pub fn new(file: &File) -> Result<Self> {
        let splitter = splitter(file)?;
        let tokens = texts(file, "tokenizer.ggml.tokens")?;
        let count = tokens.len();
        if count == 0 || u32::try_from(count).is_err() {
            return Err(fault(TokenizerFault::Count(count)));
        }
        let kinds = kinds(file, count)?;
        let (mut bytes, mut ends) = (Vec::new(), Vec::with_capacity(count));
        for (text, kind) in tokens.iter().zip(&kinds) {
            append(&mut bytes, text, *kind);
            ends.push(bytes.len());
        }
        let control: Vec<bool> = kinds.iter().map(|kind| *kind == CONTROL).collect();
        let mut tokenizer = Self {
            splitter,
            composes: file.text("tokenizer.ggml.pre")?.is_some_and(Splitter::composes),
            merges: Merges::default(),
            bytes,
            ends,
            control,
            words: None,
            added: Vec::new(),
            bos: None,
            stops: BTreeSet::new(),
        };
        let words = tokenizer.words(&kinds);
        tokenizer.merges = Merges::new(texts(file, "tokenizer.ggml.merges")?, &words)?;
        let added =
            (0..count as u32).filter(|token| [CONTROL, USER_DEFINED].contains(&kinds[*token as usize]));
        let added = added.filter(|token| !tokenizer.bytes(*token).is_empty());
        let mut added: Vec<_> = added.map(|token| (token, tokenizer.is_control(token))).collect();
        added.sort_by_key(|(token, _)| std::cmp::Reverse(tokenizer.bytes(*token).len()));
        tokenizer.added = added;
        tokenizer.read_special(file)?;
        tokenizer.words = splitter.takes_whole_words().then_some(words);
        Ok(tokenizer)
    }

    /// All tokens of texts by their bytes; the first of equal ones.
    fn words(&self, kinds: &[i128]) -> HashMap<Box<[u8]>, u32> {
        let mut words = HashMap::with_capacity(self.len());
        for token in (0..self.len() as u32).filter(|token| kinds[*token as usize] != CONTROL) {
            words.entry(self.bytes(token).into()).or_insert(token);
        }
        words
    }

    /// Reads which tokens begin and end texts.
    fn read_special(&mut self, file: &File) -> Result<()> {
        let token = |key: &'static str| -> Result<Option<u32>> {
            let token: Option<u32> = file.integer(key)?;
            match token {
                Some(token) if token as usize >= self.len() => {
                    Err(fault(TokenizerFault::Special { key, token, vocabulary: self.len() }))
                }
                token => Ok(token),
            }
        };
        let bos = token("tokenizer.ggml.bos_token_id")?;
        let [eos, eot] = [token("tokenizer.ggml.eos_token_id")?, token("tokenizer.ggml.eot_token_id")?];
        let adds = file.bool("tokenizer.ggml.add_bos_token")?.unwrap_or(self.splitter.adds_bos());
        self.bos = bos.filter(|_| adds);
        self.stops.extend(eos.into_iter().chain(eot));
        let known = self.added.iter().filter(|(_, is_control)| *is_control).map(|(token, _)| *token);
        let stops: Vec<u32> =
            known.filter(|token| STOPS.iter().any(|stop| stop.as_bytes() == self.bytes(*token))).collect();
        self.stops.extend(stops);
        Ok(())
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are no tokens; never true.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// How texts are split into words.
    pub fn splitter(&self) -> Splitter {
        self.splitter
    }

    /// The token that begins each text; `None` if texts begin without one.
    pub fn bos(&self) -> Option<u32> {
        self.bos
    }

    /// Whether an answer ends with this token.
    pub fn is_stop(&self, token: u32) -> bool {
        self.stops.contains(&token)
    }

    /// The tokens that end an answer, in ascending order.
    pub fn stops(&self) -> impl Iterator<Item = u32> {
        self.stops.iter().copied()
    }

    /// Whether a token belongs to the model's format and not to texts.
    pub fn is_control(&self, token: u32) -> bool {
        self.control.get(token as usize).is_some_and(|control| *control)
    }

    /// The bytes of a token; for control tokens their names. None for tokens outside of the vocabulary.
    pub fn bytes(&self, token: u32) -> &[u8] {
        let index = token as usize;
        let Some(end) = self.ends.get(index) else { return &[] };
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.bytes[start..*end]
    }

    /// The bytes of tokens, without control tokens.
    pub fn decode(&self, tokens: &[u32]) -> Vec<u8> {
        let texts = tokens.iter().filter(|token| !self.is_control(**token));
        texts.flat_map(|token| self.bytes(*token)).copied().collect()
    }

    /// The control token with a name; `None` if there is none.
    pub fn control(&self, name: &str) -> Option<u32> {
        let controls = self.added.iter().filter(|(_, is_control)| *is_control);
        controls.map(|(token, _)| *token).find(|token| self.bytes(*token) == name.as_bytes())
    }

    /// The tokens of a text; [`Tokenizer::bos`] is not added. Qwen's vocabularies compose characters first (NFC), so
    /// their tokens may give a text back in another form.
    pub fn encode(&self, text: &str, controls: Controls) -> Vec<u32> {
        let is_wanted = |is_control: bool| !is_control || controls == Controls::Find;
        let added = self.added.iter().filter(|(_, is_control)| is_wanted(*is_control));
        let added: Vec<u32> = added.map(|(token, _)| *token).collect();
        let mut firsts = [false; 256];
        added.iter().for_each(|token| firsts[usize::from(self.bytes(*token)[0])] = true);
        let (mut tokens, mut done, mut at) = (Vec::new(), 0, 0);
        while let Some(first) = text.as_bytes().get(at) {
            let rest = &text.as_bytes()[at..];
            let is_here = |token: &&u32| rest.starts_with(self.bytes(**token));
            // The longest of those at the same place comes first.
            let found = firsts[usize::from(*first)].then(|| added.iter().find(is_here)).flatten();
            match found {
                None => at += 1,
                Some(token) => {
                    self.encode_plain(&text[done..at], &mut tokens);
                    tokens.push(*token);
                    at += self.bytes(*token).len();
                    done = at;
                }
            }
        }
        self.encode_plain(&text[done..], &mut tokens);
        tokens
    }

    /// The tokens of a prompt: [`Tokenizer::bos`], unless the text begins with it, and the text.
    pub fn encode_prompt(&self, text: &str, controls: Controls) -> Vec<u32> {
        let mut tokens = self.encode(text, controls);
        if let Some(bos) = self.bos
            && tokens.first() != Some(&bos)
        {
            tokens.insert(0, bos);
        }
        tokens
    }

    fn encode_plain(&self, text: &str, tokens: &mut Vec<u32>) {
        let text = if self.composes { composed(text) } else { Cow::Borrowed(text) };
        for word in self.splitter.split(&text) {
            match self.words.as_ref().and_then(|words| words.get(word.as_bytes())) {
                Some(token) => tokens.push(*token),
                None => self.merges.encode(word.as_bytes(), tokens),
            }
        }
    }
}

/// A text in Unicode's form NFC.
fn composed(text: &str) -> Cow<'_, str> {
    match is_nfc_quick(text.chars()) {
        IsNormalized::Yes => Cow::Borrowed(text),
        IsNormalized::No | IsNormalized::Maybe => Cow::Owned(text.nfc().collect()),
    }
}

/// How the file's model splits texts.
fn splitter(file: &File) -> Result<Splitter> {
    match file.text("tokenizer.ggml.model")? {
        Some("gpt2") => {}
        None | Some("no_vocab" | "none") => return Err(fault(TokenizerFault::NoVocabulary)),
        Some("llama") => return Err(fault(TokenizerFault::SentencePiece)),
        Some(other) => return Err(fault(TokenizerFault::Model(other.to_owned()))),
    }
    match file.text("tokenizer.ggml.pre")? {
        Some(name) => {
            Splitter::from_name(name).ok_or_else(|| fault(TokenizerFault::Splitter(name.to_owned())))
        }
        // Older files of GPT-2 lack the key; those of other models would be split wrongly.
        None if file.text("general.architecture")? == Some(Architecture::Gpt2.name()) => Ok(Splitter::Gpt2),
        None => Err(fault(TokenizerFault::Missing("tokenizer.ggml.pre"))),
    }
}

/// The type of each token; 1, a token of texts, without the key.
fn kinds(file: &File, count: usize) -> Result<Vec<i128>> {
    let key = "tokenizer.ggml.token_type";
    let kinds: Vec<i128> = match file.value(key) {
        None => vec![1; count],
        Some(Value::Array(Array::I32(kinds))) => kinds.iter().map(|kind| i128::from(*kind)).collect(),
        Some(Value::Array(Array::U32(kinds))) => kinds.iter().map(|kind| i128::from(*kind)).collect(),
        Some(value) => {
            let needed = "an array of i32";
            return Err(Error::Value { key: key.to_owned(), kind: value.kind(), needed });
        }
    };
    if kinds.len() == count {
        Ok(kinds)
    } else {
        Err(fault(TokenizerFault::Kinds { kinds: kinds.len(), count }))
    }
}

/// Appends the bytes of a token. Added tokens are stored as they are, all others in the alphabet of bytes.
fn append(bytes: &mut Vec<u8>, text: &str, kind: i128) {
    let start = bytes.len();
    if kind != CONTROL && kind != USER_DEFINED {
        for character in text.chars() {
            match character_byte(character) {
                Some(byte) => bytes.push(byte),
                None => {
                    bytes.truncate(start);
                    break;
                }
            }
        }
    }
    if bytes.len() == start {
        bytes.extend(text.as_bytes());
    }
}
