//! Merges of pairs of tokens.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use super::alphabet::character_byte;
use super::fault::TokenizerFault;
use crate::error::{Error, Result};
use crate::gguf::Texts;

/// The merges of a vocabulary.
#[derive(Debug)]
pub(super) struct Merges {
    /// The token of each byte.
    bytes: [u32; 256],
    /// Position in the file's list and result of each pair.
    pairs: HashMap<(u32, u32), (u32, u32)>,
}

impl Default for Merges {
    fn default() -> Self {
        Self { bytes: [0; 256], pairs: HashMap::new() }
    }
}

/// No neighbour.
const NONE: usize = usize::MAX;

/// A token of a word that is being merged.
#[derive(Clone, Copy)]
struct Part {
    token: u32,
    before: usize,
    after: usize,
    /// Whether it was merged into the part before it.
    is_gone: bool,
}

/// The bytes of a text in the alphabet of bytes; `None` if it has other characters.
fn bytes(text: &str) -> Option<Vec<u8>> {
    text.chars().map(character_byte).collect()
}

impl Merges {
    /// Reads the list of merges, `"first second"` each; `words` are the tokens by their bytes.
    pub(super) fn new(list: &Texts, words: &HashMap<Box<[u8]>, u32>) -> Result<Self> {
        let fault = |fault| Err(Error::Tokenizer(fault));
        let mut merges = Self { bytes: [0; 256], pairs: HashMap::with_capacity(list.len()) };
        for byte in 0..=255 {
            let Some(token) = words.get(&[byte][..]) else { return fault(TokenizerFault::Byte(byte)) };
            merges.bytes[usize::from(byte)] = *token;
        }
        for (index, merge) in list.iter().enumerate() {
            let found = merge.split_once(' ').and_then(|(first, second)| {
                let (first, second) = (bytes(first)?, bytes(second)?);
                let joined = words.get(&[&first[..], &second[..]].concat()[..])?;
                Some((*words.get(&first[..])?, *words.get(&second[..])?, *joined))
            });
            let Some((first, second, joined)) = found else {
                return fault(TokenizerFault::Merge { index, merge: merge.to_owned() });
            };
            // Each text occupied eight bytes of the file, so there are fewer than 2^32 of them in any that fits memory.
            merges.pairs.entry((first, second)).or_insert((index as u32, joined));
        }
        Ok(merges)
    }

    /// Appends the tokens of a word.
    pub(super) fn encode(&self, word: &[u8], tokens: &mut Vec<u32>) {
        let mut parts: Vec<Part> = word
            .iter()
            .enumerate()
            .map(|(at, byte)| Part {
                token: self.bytes[usize::from(*byte)],
                before: at.checked_sub(1).unwrap_or(NONE),
                after: if at + 1 == word.len() { NONE } else { at + 1 },
                is_gone: false,
            })
            .collect();
        // Pairs that can be merged: the earliest in the list first, of equal ones the leftmost.
        let mut queue = BinaryHeap::new();
        let offer = |queue: &mut BinaryHeap<_>, parts: &[Part], at: usize| {
            let Some(second) = parts.get(parts[at].after) else { return };
            let pair = (parts[at].token, second.token);
            if let Some((rank, joined)) = self.pairs.get(&pair) {
                queue.push(Reverse((*rank, at, pair, *joined)));
            }
        };
        (0..parts.len()).for_each(|at| offer(&mut queue, &parts, at));
        while let Some(Reverse((_, at, pair, joined))) = queue.pop() {
            let first = parts[at];
            let Some(second) = parts.get(first.after).copied() else { continue };
            // Parts that were merged meanwhile have other tokens.
            if first.is_gone || (first.token, second.token) != pair {
                continue;
            }
            parts[first.after].is_gone = true;
            (parts[at].token, parts[at].after) = (joined, second.after);
            if let Some(after) = parts.get_mut(second.after) {
                after.before = at;
            }
            if first.before != NONE {
                offer(&mut queue, &parts, first.before);
            }
            offer(&mut queue, &parts, at);
        }
        tokens.extend(parts.iter().filter(|part| !part.is_gone).map(|part| part.token));
    }
}
