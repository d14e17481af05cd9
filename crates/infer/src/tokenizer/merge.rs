//! Merges of pairs of tokens.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use super::fault::TokenizerFault;
use crate::error::{Error, Result};
use crate::gguf::Texts;

/// Token of a part that is not in the vocabulary.
pub(super) const NO_TOKEN: u32 = u32::MAX;

/// A part of a word that is being merged.
#[derive(Clone, Copy, Debug)]
pub(super) struct Part {
    /// The token, or [`NO_TOKEN`].
    pub(super) token: u32,
    /// Its bytes in the word.
    pub(super) start: usize,
    pub(super) end: usize,
    before: usize,
    after: usize,
    /// Whether it was merged into the part before it.
    is_gone: bool,
}

/// No neighbour.
const NONE: usize = usize::MAX;

/// Parts in a row: the token and the number of bytes of each.
pub(super) fn parts(tokens: impl Iterator<Item = (u32, usize)>) -> Vec<Part> {
    let mut end = 0;
    let part = |(at, (token, bytes)): (usize, (u32, usize))| {
        let start = end;
        end += bytes;
        let before = at.checked_sub(1).unwrap_or(NONE);
        Part { token, start, end, before, after: at + 1, is_gone: false }
    };
    let mut parts: Vec<Part> = tokens.enumerate().map(part).collect();
    if let Some(last) = parts.last_mut() {
        last.after = NONE;
    }
    parts
}

/// Merges neighbours: the pair of the lowest rank first, of equal ones the leftmost. `join` gives the rank and the
/// token of two parts that can be merged.
pub(super) fn merge(
    mut parts: Vec<Part>,
    join: impl Fn(&Part, &Part) -> Option<(u32, u32)>,
) -> impl Iterator<Item = Part> {
    let mut queue = BinaryHeap::new();
    let offer = |queue: &mut BinaryHeap<_>, parts: &[Part], at: usize| {
        let Some(second) = parts.get(parts[at].after) else { return };
        if let Some((rank, joined)) = join(&parts[at], second) {
            queue.push(Reverse((rank, at, second.end, joined)));
        }
    };
    (0..parts.len()).for_each(|at| offer(&mut queue, &parts, at));
    while let Some(Reverse((_, at, end, joined))) = queue.pop() {
        let first = parts[at];
        let Some(second) = parts.get(first.after).copied() else { continue };
        // A merge of either part with another has moved the end.
        if first.is_gone || second.end != end {
            continue;
        }
        parts[first.after].is_gone = true;
        (parts[at].token, parts[at].end, parts[at].after) = (joined, end, second.after);
        if let Some(after) = parts.get_mut(second.after) {
            after.before = at;
        }
        if first.before != NONE {
            offer(&mut queue, &parts, first.before);
        }
        offer(&mut queue, &parts, at);
    }
    parts.into_iter().filter(|part| !part.is_gone)
}

/// A list of merges.
#[derive(Debug)]
pub(super) struct Merges {
    /// Position in the file's list and result of each pair.
    pairs: HashMap<(u32, u32), (u32, u32)>,
}

impl Merges {
    /// Reads the list of merges, `"first second"` each; `words` are the tokens by their bytes, and `bytes` are those of
    /// a text of the list.
    pub(super) fn new(
        list: &Texts,
        words: &HashMap<Box<[u8]>, u32>,
        bytes: impl Fn(&str) -> Option<Vec<u8>>,
    ) -> Result<Self> {
        let mut pairs = HashMap::with_capacity(list.len());
        for (index, merge) in list.iter().enumerate() {
            let found = merge.split_once(' ').and_then(|(first, second)| {
                let (first, second) = (bytes(first)?, bytes(second)?);
                let joined = words.get(&[&first[..], &second[..]].concat()[..])?;
                Some((*words.get(&first[..])?, *words.get(&second[..])?, *joined))
            });
            let Some((first, second, joined)) = found else {
                return Err(Error::Tokenizer(TokenizerFault::Merge { index, merge: merge.to_owned() }));
            };
            // Each text occupied eight bytes of the file, so there are fewer than 2^32 of them in any that fits memory.
            pairs.entry((first, second)).or_insert((index as u32, joined));
        }
        Ok(Self { pairs })
    }

    /// Rank and result of a pair.
    pub(super) fn join(&self, first: u32, second: u32) -> Option<(u32, u32)> {
        self.pairs.get(&(first, second)).copied()
    }
}
