//! Vocabularies of bytes.

use std::borrow::Cow;
use std::collections::HashMap;

use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfc_quick};

use super::alphabet::character_byte;
use super::fault::TokenizerFault;
use super::merge::{Merges, NO_TOKEN, merge, parts};
use super::split::Splitter;
use crate::error::{Error, Result};
use crate::gguf::Texts;

/// A vocabulary of bytes.
#[derive(Debug)]
pub(super) struct ByteLevel {
    pub(super) splitter: Splitter,
    /// The token of each byte; [`NO_TOKEN`] for those that a vocabulary may lack.
    bytes: [u32; 256],
    merges: Merges,
    /// Words that are one token, if the model looks for them before it merges.
    words: Option<HashMap<Box<[u8]>, u32>>,
}

/// The bytes of a text in the alphabet of bytes; `None` if it has other characters.
pub(super) fn bytes(text: &str) -> Option<Vec<u8>> {
    text.chars().map(character_byte).collect()
}

/// Whether a vocabulary may lack a byte: those that UTF-8 never contains, the first bytes of characters above U+3FFFF,
/// and control characters of ASCII.
fn may_lack(byte: u8) -> bool {
    matches!(byte, 0xc0 | 0xc1 | 0xf1..=0xff) || byte.is_ascii_control() && !byte.is_ascii_whitespace()
}

impl ByteLevel {
    /// A vocabulary with a list of merges; `words` are the tokens by their bytes.
    pub(super) fn new(splitter: Splitter, list: &Texts, words: HashMap<Box<[u8]>, u32>) -> Result<Self> {
        let mut tokens = [NO_TOKEN; 256];
        for byte in 0..=255 {
            match words.get(&[byte][..]) {
                Some(token) => tokens[usize::from(byte)] = *token,
                None if may_lack(byte) => {}
                None => return Err(Error::Tokenizer(TokenizerFault::Byte(byte))),
            }
        }
        let merges = Merges::new(list, &words, bytes)?;
        let words = splitter.rule().takes_whole_words.then_some(words);
        Ok(Self { splitter, bytes: tokens, merges, words })
    }

    /// Appends the tokens of a text.
    pub(super) fn encode(&self, text: &str, tokens: &mut Vec<u32>) {
        let text = if self.splitter.rule().composes { composed(text) } else { Cow::Borrowed(text) };
        for word in self.splitter.split(&text) {
            match self.words.as_ref().and_then(|words| words.get(word.as_bytes())) {
                Some(token) => tokens.push(*token),
                None => {
                    let bytes = word.bytes().map(|byte| (self.bytes[usize::from(byte)], 1));
                    let bytes = bytes.filter(|(token, _)| *token != NO_TOKEN);
                    let join = |first: u32, second: u32| self.merges.join(first, second);
                    let merged = merge(parts(bytes), |first, second| join(first.token, second.token));
                    tokens.extend(merged.map(|part| part.token));
                }
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
