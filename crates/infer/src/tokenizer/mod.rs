//! Texts to tokens and back, by the vocabulary of a model's file.
//!
//! Vocabularies of bytes (`tokenizer.ggml.model` is `gpt2`): a text is split into words, see [`Splitter`], a word into
//! the tokens of its bytes, and pairs of tokens are merged in the order of the file's list.
//!
//! Vocabularies of characters (`llama`, the models of SentencePiece, and `gemma4`): neighbours are merged while the
//! result is a piece of the vocabulary, by scores or by a list. Characters without a token become bytes. Most of these
//! models read a space in front of each text.

mod added;
mod alphabet;
mod byte_level;
mod decoder;
pub(crate) mod fault;
mod marks;
mod merge;
mod pieces;
mod rules;
mod split;

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};

pub use alphabet::{byte_character, character_byte};
pub use decoder::Decoder;
pub use fault::TokenizerFault;
pub use split::Splitter;

use crate::error::{Error, Result};
use crate::gguf::{Array, File, Texts, Value};
use crate::model::Architecture;
use added::Added;
use byte_level::ByteLevel;
use merge::Merges;
use pieces::{Order, Pieces, SPACE, rank};

/// Texts of tokens that end an answer, in models of all kinds.
const STOPS: [&str; 14] = [
    "<|end_of_text|>",
    "<|eot_id|>",
    "<|eom_id|>",
    "<|endoftext|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<end_of_turn>",
    "<turn|>",
    "<end_of_utterance>",
    "<|END_OF_TURN_TOKEN|>",
    "<\u{ff5c}end\u{2581}of\u{2581}sentence\u{ff5c}>",
    "[EOS]",
];

/// A token of models that end messages inside of an answer with `<|end|>`.
const ANSWER_END: &str = "<|return|>";

/// Types of tokens, as files number them.
mod kind {
    /// A text outside of the alphabet of bytes, which no merge makes.
    pub(super) const UNREACHABLE: i128 = -1;
    pub(super) const TEXT: i128 = 1;
    /// Stands for what has no token.
    pub(super) const UNKNOWN: i128 = 2;
    /// Belongs to the model's format and not to texts.
    pub(super) const CONTROL: i128 = 3;
    /// Was added to the vocabulary and is always found in texts.
    pub(super) const USER_DEFINED: i128 = 4;
    /// Stands for a byte that is in no other token.
    pub(super) const BYTE: i128 = 6;
}

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
    scheme: Scheme,
    /// Whether a space is read in front of each text.
    adds_space: bool,
    /// The bytes of all tokens, one after another.
    bytes: Vec<u8>,
    /// Where each token ends.
    ends: Vec<usize>,
    control: Vec<bool>,
    /// Tokens that are found in texts that the program wrote, and in texts of users.
    found: Added,
    found_in_texts: Added,
    /// Those whose names in texts of users are marked.
    controls: Added,
    /// The tokens for the start and the end of texts.
    begin: Option<u32>,
    end: Option<u32>,
    adds_bos: bool,
    stops: BTreeSet<u32>,
}

/// How texts become tokens.
#[derive(Debug)]
enum Scheme {
    Bytes(ByteLevel),
    /// With the rules for lines, if merges do not cross them.
    Characters(Pieces, Option<Splitter>),
}

fn fault(fault: TokenizerFault) -> Error {
    Error::Tokenizer(fault)
}

/// The texts of a key.
fn texts<'f>(file: &'f File, key: &'static str) -> Result<&'f Texts> {
    file.texts(key)?.ok_or_else(|| fault(TokenizerFault::Missing(key)))
}

/// The vocabulary's kind in a file, and how words are found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Model {
    Bytes(Splitter),
    Scores,
    List(Splitter),
}

/// The tokens of a file while they are read.
struct Tokens {
    kinds: Vec<i128>,
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Tokens {
    fn read(file: &File, model: Model) -> Result<Self> {
        let texts = texts(file, "tokenizer.ggml.tokens")?;
        let count = texts.len();
        if count == 0 || u32::try_from(count).is_err() {
            return Err(fault(TokenizerFault::Count(count)));
        }
        let mut kinds = kinds(file, count)?;
        let (mut bytes, mut ends) = (Vec::new(), Vec::with_capacity(count));
        for (text, kind) in texts.iter().zip(&mut kinds) {
            if *kind == kind::UNKNOWN || *kind == kind::USER_DEFINED && is_control_name(text) {
                *kind = kind::CONTROL;
            }
            if *kind == kind::TEXT && matches!(model, Model::Bytes(_)) && byte_level::bytes(text).is_none() {
                *kind = kind::UNREACHABLE;
            }
            append(&mut bytes, text, *kind, model);
            ends.push(bytes.len());
        }
        Ok(Self { kinds, bytes, ends })
    }

    /// All tokens with their bytes.
    fn all(&self) -> impl Iterator<Item = (u32, &[u8])> {
        (0..self.ends.len() as u32).map(|token| (token, slice(&self.bytes, &self.ends, token)))
    }

    /// The tokens of some kinds.
    fn of(&self, kinds: &[i128]) -> impl Iterator<Item = (u32, &[u8])> {
        self.all().filter(|(token, _)| kinds.contains(&self.kinds[*token as usize]))
    }

    /// All tokens that can result from merges by their bytes; of equal ones those of texts, and the first of them.
    fn words(&self) -> HashMap<Box<[u8]>, u32> {
        let mut words = HashMap::with_capacity(self.ends.len());
        let others = [kind::UNREACHABLE, kind::CONTROL, kind::USER_DEFINED, kind::BYTE];
        let is_text = |(token, _): &(u32, &[u8])| !others.contains(&self.kinds[*token as usize]);
        let texts = self.all().filter(is_text);
        texts.chain(self.of(&[kind::USER_DEFINED])).for_each(|(token, bytes)| {
            words.entry(bytes.into()).or_insert(token);
        });
        words
    }

    fn scheme(&self, file: &File, model: Model) -> Result<Scheme> {
        let list = || texts(file, "tokenizer.ggml.merges");
        let pieces = |order| {
            let byte = |(token, bytes): (u32, &[u8])| Some((<[u8; 1]>::try_from(bytes).ok()?[0], token));
            let bytes = self.of(&[kind::BYTE]).filter_map(byte);
            Pieces::new(self.words(), bytes, order)
        };
        Ok(match model {
            Model::Bytes(splitter) => Scheme::Bytes(ByteLevel::new(splitter, list()?, self.words())?),
            Model::Scores => Scheme::Characters(pieces(Order::Scores(scores(file, self.ends.len())?))?, None),
            Model::List(splitter) => {
                let bytes = |text: &str| Some(text.replace(SPACE, " ").into_bytes());
                let merges = Merges::new(list()?, &self.words(), bytes)?;
                Scheme::Characters(pieces(Order::List(merges))?, Some(splitter))
            }
        })
    }
}

impl Tokenizer {
    /// Reads the vocabulary of a file.
    ///
    /// # Errors
    ///
    /// [`Error::Tokenizer`] if the file has no vocabulary, one of a kind that is not supported (WordPiece, for
    /// example), or one that contradicts itself; [`Error::Value`] if a key has a wrong type.
    pub fn new(file: &File) -> Result<Self> {
        let model = model(file)?;
        let tokens = Tokens::read(file, model)?;
        // One character cannot be marked as a text.
        let is_name = |bytes: &[u8]| String::from_utf8_lossy(bytes).chars().nth(1).is_some();
        let controls = || tokens.of(&[kind::CONTROL]).filter(|(_, bytes)| is_name(bytes));
        let found = Added::new(controls().chain(tokens.of(&[kind::USER_DEFINED])))?;
        let found_in_texts = Added::new(tokens.of(&[kind::USER_DEFINED]))?;
        let controls = Added::new(controls())?;
        let scheme = tokens.scheme(file, model)?;
        let is_scored = model == Model::Scores;
        let token = |key: &'static str, default: Option<u32>| -> Result<Option<u32>> {
            let token: Option<u32> = file.integer(key)?;
            match token {
                Some(token) if token as usize >= tokens.ends.len() => {
                    Err(fault(TokenizerFault::Special { key, token, vocabulary: tokens.ends.len() }))
                }
                Some(token) => Ok(Some(token)),
                None => Ok(default.filter(|token| is_scored && (*token as usize) < tokens.ends.len())),
            }
        };
        // SentencePiece's own numbers of the two.
        let begin = token("tokenizer.ggml.bos_token_id", Some(1))?;
        let end = token("tokenizer.ggml.eos_token_id", Some(2))?;
        let turn_end = token("tokenizer.ggml.eot_token_id", None)?;
        let adds_bos = match model {
            Model::Bytes(splitter) | Model::List(splitter) => splitter.rule().adds_bos,
            Model::Scores => true,
        };
        let mut tokenizer = Self {
            scheme,
            adds_space: file.bool("tokenizer.ggml.add_space_prefix")?.unwrap_or(is_scored),
            control: tokens.kinds.iter().map(|kind| *kind == kind::CONTROL).collect(),
            bytes: tokens.bytes,
            ends: tokens.ends,
            found,
            found_in_texts,
            controls,
            begin,
            end,
            adds_bos: file.bool("tokenizer.ggml.add_bos_token")?.unwrap_or(adds_bos),
            stops: end.into_iter().chain(turn_end).collect(),
        };
        tokenizer.find_stops();
        Ok(tokenizer)
    }

    /// Adds the control tokens that end answers by their names.
    fn find_stops(&mut self) {
        let ends_messages_inside = self.control(ANSWER_END).is_some();
        let names = STOPS.iter().filter(|name| !(ends_messages_inside && **name == "<|end|>"));
        let stops: Vec<u32> = names.filter_map(|name| self.control(name)).collect();
        self.stops.extend(stops);
    }

    /// Number of tokens.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are no tokens; never true.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// How texts are split into words; `None` for vocabularies of SentencePiece, which merge across words.
    pub fn splitter(&self) -> Option<Splitter> {
        match &self.scheme {
            Scheme::Bytes(bytes) => Some(bytes.splitter),
            Scheme::Characters(_, lines) => *lines,
        }
    }

    /// Whether a space is read in front of each text, as it is in front of other words. [`Tokenizer::decode`] removes
    /// it.
    pub fn adds_space(&self) -> bool {
        self.adds_space
    }

    /// The token that begins each text; `None` if texts begin without one.
    pub fn bos(&self) -> Option<u32> {
        self.begin.filter(|_| self.adds_bos)
    }

    /// The tokens for the start and the end of texts, whether or not they are added to them.
    pub(crate) fn ends_of_texts(&self) -> [Option<u32>; 2] {
        [self.begin, self.end]
    }

    /// Whether an answer ends with this token.
    pub fn is_stop(&self, token: u32) -> bool {
        self.stops.contains(&token)
    }

    /// The tokens that end an answer, in ascending order.
    pub fn stops(&self) -> impl Iterator<Item = u32> {
        self.stops.iter().copied()
    }

    /// Whether a token belongs to the model's format and not to texts. Added tokens with names like `<|name|>` do,
    /// whatever the file calls them.
    pub fn is_control(&self, token: u32) -> bool {
        self.control.get(token as usize).is_some_and(|control| *control)
    }

    /// The bytes of a token; for control tokens their names. None for tokens outside of the vocabulary.
    pub fn bytes(&self, token: u32) -> &[u8] {
        slice(&self.bytes, &self.ends, token)
    }

    /// The bytes of tokens, without control tokens, and without the space that [`Tokenizer::encode`] adds in front.
    pub fn decode(&self, tokens: &[u32]) -> Vec<u8> {
        let texts = tokens.iter().filter(|token| !self.is_control(**token));
        let mut bytes: Vec<u8> = texts.flat_map(|token| self.bytes(*token)).copied().collect();
        if self.adds_space && bytes.first() == Some(&b' ') {
            bytes.remove(0);
        }
        bytes
    }

    /// The control token with a name; `None` if there is none.
    pub fn control(&self, name: &str) -> Option<u32> {
        self.controls.tokens().iter().copied().find(|token| self.bytes(*token) == name.as_bytes())
    }

    /// The tokens of a text; [`Tokenizer::bos`] is not added. Qwen's vocabularies compose characters first (NFC), so
    /// their tokens may give a text back in another form. Some vocabularies lack control characters of ASCII, or
    /// characters above U+3FFFF, which are left out.
    pub fn encode(&self, text: &str, controls: Controls) -> Vec<u32> {
        self.encode_parts(text, controls, Cow::Borrowed)
    }

    /// The tokens of a text whose parts between added tokens are changed first.
    fn encode_parts<'t>(
        &self,
        text: &'t str,
        controls: Controls,
        change: impl Fn(&'t str) -> Cow<'t, str>,
    ) -> Vec<u32> {
        let added = match controls {
            Controls::Find => &self.found,
            Controls::AsText => &self.found_in_texts,
        };
        let (mut tokens, mut done) = (Vec::new(), 0);
        while let Some(found) = added.find(text, done) {
            self.encode_plain(&change(&text[done..found.start]), &mut tokens);
            tokens.push(found.token);
            done = found.end;
        }
        self.encode_plain(&change(&text[done..]), &mut tokens);
        tokens
    }

    /// The tokens of a prompt: [`Tokenizer::bos`], unless the text begins with it, and the text.
    pub fn encode_prompt(&self, text: &str, controls: Controls) -> Vec<u32> {
        self.with_bos(self.encode(text, controls))
    }

    /// The tokens with [`Tokenizer::bos`] in front, unless they begin with it.
    fn with_bos(&self, mut tokens: Vec<u32>) -> Vec<u32> {
        if let Some(bos) = self.bos()
            && tokens.first() != Some(&bos)
        {
            tokens.insert(0, bos);
        }
        tokens
    }

    fn encode_plain(&self, text: &str, tokens: &mut Vec<u32>) {
        if text.is_empty() {
            return;
        }
        let text = if self.adds_space { Cow::Owned(format!(" {text}")) } else { Cow::Borrowed(text) };
        match &self.scheme {
            Scheme::Bytes(bytes) => bytes.encode(&text, tokens),
            Scheme::Characters(pieces, None) => pieces.encode(&text, tokens),
            Scheme::Characters(pieces, Some(lines)) => {
                lines.split(&text).into_iter().for_each(|line| pieces.encode(line, tokens));
            }
        }
    }
}

/// The bytes of a token in a list.
fn slice<'b>(bytes: &'b [u8], ends: &[usize], token: u32) -> &'b [u8] {
    let index = token as usize;
    let Some(end) = ends.get(index) else { return &[] };
    let start = index.checked_sub(1).map_or(0, |before| ends[before]);
    &bytes[start..*end]
}

/// The kind of the file's vocabulary.
fn model(file: &File) -> Result<Model> {
    let named = |name: &str| {
        Splitter::from_name(name).ok_or_else(|| fault(TokenizerFault::Splitter(name.to_owned())))
    };
    match file.text("tokenizer.ggml.model")? {
        Some("gpt2") => {}
        Some("llama") => return Ok(Model::Scores),
        Some("gemma4") => return Ok(Model::List(named("gemma4")?)),
        None | Some("no_vocab" | "none") => return Err(fault(TokenizerFault::NoVocabulary)),
        Some(other) => return Err(fault(TokenizerFault::Model(other.to_owned()))),
    }
    match file.text("tokenizer.ggml.pre")? {
        Some(name @ ("gemma4" | "sarvam-moe")) => Ok(Model::List(named(name)?)),
        Some(name) => Ok(Model::Bytes(named(name)?)),
        // Older files of GPT-2 lack the key; those of other models would be split wrongly.
        None if file.text("general.architecture")? == Some(Architecture::Gpt2.name()) => {
            Ok(Model::Bytes(named("gpt-2")?))
        }
        None => Err(fault(TokenizerFault::Missing("tokenizer.ggml.pre"))),
    }
}

/// The type of each token; 1, a token of texts, without the key.
fn kinds(file: &File, count: usize) -> Result<Vec<i128>> {
    let key = "tokenizer.ggml.token_type";
    let kinds: Vec<i128> = match file.value(key) {
        None => vec![kind::TEXT; count],
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

/// The ranks of the tokens' scores.
fn scores(file: &File, count: usize) -> Result<Vec<u32>> {
    let key = "tokenizer.ggml.scores";
    let ranks: Vec<u32> = match file.value(key) {
        None => return Err(fault(TokenizerFault::Missing(key))),
        Some(Value::Array(Array::F32(scores))) => scores.iter().copied().map(rank).collect(),
        Some(value) => {
            let needed = "an array of f32";
            return Err(Error::Value { key: key.to_owned(), kind: value.kind(), needed });
        }
    };
    if ranks.len() == count {
        Ok(ranks)
    } else {
        Err(fault(TokenizerFault::Scores { scores: ranks.len(), count }))
    }
}

/// Whether an added token has a name that texts do not have by chance.
fn is_control_name(text: &str) -> bool {
    [("<|", "|>"), ("<\u{ff5c}", "\u{ff5c}>")].iter().any(|(start, end)| {
        text.len() > start.len() + end.len() && text.starts_with(start) && text.ends_with(end)
    })
}

/// Appends the bytes of a token. Control and added tokens are stored as they are, others in the alphabet of bytes, or
/// with a mark for spaces.
fn append(bytes: &mut Vec<u8>, text: &str, kind: i128, model: Model) {
    let is_whole = kind == kind::CONTROL || kind == kind::USER_DEFINED;
    match model {
        Model::Bytes(_) if !is_whole => match byte_level::bytes(text) {
            Some(decoded) => bytes.extend(decoded),
            None => bytes.extend(text.as_bytes()),
        },
        Model::Scores | Model::List(_) if !is_whole => match pieces::byte(text) {
            Some(byte) if kind == kind::BYTE => bytes.push(byte),
            _ => bytes.extend(text.replace(SPACE, " ").as_bytes()),
        },
        _ => bytes.extend(text.as_bytes()),
    }
}
