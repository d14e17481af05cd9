//! Vocabularies of characters: SentencePiece's, and those that merge characters by a list.
//!
//! A text becomes its characters, and neighbours are merged while the result is a piece of the vocabulary. Characters
//! that are in no piece become their bytes, which have tokens of their own.

use std::collections::HashMap;

use super::fault::TokenizerFault;
use super::merge::{Merges, NO_TOKEN, Part, merge, parts};
use crate::error::{Error, Result};

/// What a space is written as in files of these vocabularies.
pub(super) const SPACE: &str = "\u{2581}";

/// Which pair is merged first.
#[derive(Debug)]
pub(super) enum Order {
    /// The one whose result has the highest score; the rank of each token.
    Scores(Vec<u32>),
    /// The one that is first in a list.
    List(Merges),
}

/// A vocabulary of characters.
#[derive(Debug)]
pub(super) struct Pieces {
    /// The tokens by their bytes.
    words: HashMap<Box<[u8]>, u32>,
    /// Longest piece in bytes.
    longest: usize,
    /// The token of each byte.
    bytes: [u32; 256],
    order: Order,
}

/// The byte of a token's text `<0x0A>`.
pub(super) fn byte(text: &str) -> Option<u8> {
    let digits = text.strip_prefix("<0x")?.strip_suffix('>')?;
    (digits.len() == 2).then(|| u8::from_str_radix(digits, 16).ok()).flatten()
}

/// The rank of a score: lower for higher ones, equal for equal ones.
pub(super) fn rank(score: f32) -> u32 {
    // Adding 0 makes the negative zero positive.
    let bits = (score + 0.0).to_bits();
    // Floats in ascending order: negative ones have their bits inverted, others the sign set.
    let ascending = if bits >> 31 == 0 { bits | 1 << 31 } else { !bits };
    !ascending
}

impl Pieces {
    /// A vocabulary of pieces and tokens for bytes.
    pub(super) fn new(
        words: HashMap<Box<[u8]>, u32>,
        byte_tokens: impl Iterator<Item = (u8, u32)>,
        order: Order,
    ) -> Result<Self> {
        let mut bytes = [NO_TOKEN; 256];
        byte_tokens.for_each(|(byte, token)| bytes[usize::from(byte)] = token);
        if let Some(missing) = (0..=255).find(|byte| bytes[usize::from(*byte)] == NO_TOKEN) {
            return Err(Error::Tokenizer(TokenizerFault::Byte(missing)));
        }
        let longest = words.keys().map(|piece| piece.len()).max().unwrap_or(0);
        Ok(Self { words, longest, bytes, order })
    }

    fn piece(&self, bytes: &[u8]) -> Option<u32> {
        if bytes.len() > self.longest { None } else { self.words.get(bytes).copied() }
    }

    /// Appends the tokens of a text.
    pub(super) fn encode(&self, text: &str, tokens: &mut Vec<u32>) {
        let character = |(at, c): (usize, char)| {
            let bytes = &text.as_bytes()[at..at + c.len_utf8()];
            (self.piece(bytes).unwrap_or(NO_TOKEN), bytes.len())
        };
        let characters = parts(text.char_indices().map(character));
        let push = |part: Part| match part.token {
            NO_TOKEN => {
                let bytes = text.as_bytes()[part.start..part.end].iter();
                tokens.extend(bytes.map(|byte| self.bytes[usize::from(*byte)]));
            }
            token => tokens.push(token),
        };
        match &self.order {
            Order::List(merges) => {
                merge(characters, |first, second| merges.join(first.token, second.token)).for_each(push);
            }
            Order::Scores(ranks) => {
                let join = |first: &Part, second: &Part| {
                    let joined = self.piece(&text.as_bytes()[first.start..second.end])?;
                    Some((ranks[joined as usize], joined))
                };
                merge(characters, join).for_each(push);
            }
        }
    }
}
