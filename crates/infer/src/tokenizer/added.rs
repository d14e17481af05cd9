//! Tokens that are found in texts as a whole.

use aho_corasick::{AhoCorasick, Input, MatchKind};

use super::fault::TokenizerFault;
use crate::error::{Error, Result};

/// Tokens and the automaton that finds them: the leftmost, of several at one place the longest.
#[derive(Debug)]
pub(super) struct Added {
    automaton: AhoCorasick,
    tokens: Vec<u32>,
}

/// A token in a text.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) token: u32,
    pub(super) start: usize,
    pub(super) end: usize,
}

impl Added {
    /// Tokens and their bytes.
    pub(super) fn new<'b>(tokens: impl Iterator<Item = (u32, &'b [u8])>) -> Result<Self> {
        let (tokens, texts): (Vec<u32>, Vec<&[u8]>) = tokens.filter(|(_, bytes)| !bytes.is_empty()).unzip();
        let automaton = AhoCorasick::builder().match_kind(MatchKind::LeftmostLongest).build(&texts);
        let automaton = automaton.map_err(|_| Error::Tokenizer(TokenizerFault::Added(tokens.len())))?;
        Ok(Self { automaton, tokens })
    }

    /// The first token at or behind byte `start` of a text.
    pub(super) fn find(&self, text: &str, start: usize) -> Option<Found> {
        let found = self.automaton.find(Input::new(text).range(start..))?;
        let token = self.tokens[found.pattern().as_usize()];
        Some(Found { token, start: found.start(), end: found.end() })
    }

    /// The tokens.
    pub(super) fn tokens(&self) -> &[u32] {
        &self.tokens
    }
}
