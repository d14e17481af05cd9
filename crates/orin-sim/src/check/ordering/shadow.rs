//! Shadow memory: the words that the GPU has written, and the last access to each word.
//!
//! The shadow belongs to the memory and not to an address, so all mappings of a buffer share it. Engines move whole
//! pages, so a page whose words have the same history is stored as one.

use core::ops::Range;
use std::collections::HashMap;

use parking_lot::Mutex;

use super::order::{Work, WorkId};
use super::{Accessed, Strength};
use crate::mmu::{Access, PAGE_BYTES};

/// Words per page.
const WORDS: usize = PAGE_BYTES as usize / 4;

/// The last access of one kind to a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Use {
    work: WorkId,
    /// Whether other work may wait for this access.
    strong: bool,
}

/// The history of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Word {
    writer: Use,
    reader: Use,
    /// Whether a unit of the GPU has written the word.
    written: bool,
}

const NEVER: Use = Use { work: WorkId::NONE, strong: false };
const UNUSED: Word = Word { writer: NEVER, reader: NEVER, written: false };

/// The history of a page.
#[derive(Debug)]
enum Page {
    /// All words have the same history.
    Same(Word),
    /// One history per word.
    Each(Box<[Word; WORDS]>),
}

impl Page {
    /// Applies `change` to some words; once for words with the same history.
    fn change(&mut self, words: Range<usize>, mut change: impl FnMut(usize, &mut Word)) {
        if let Self::Same(word) = self {
            if words.len() == WORDS {
                change(0, word);
                return;
            }
            *self = Self::Each(Box::new([*word; WORDS]));
        }
        let Self::Each(all) = self else { return };
        let whole = words.len() == WORDS;
        words.for_each(|at| change(at, &mut all[at]));
        if whole && all.iter().all(|word| *word == all[0]) {
            *self = Self::Same(all[0]);
        }
    }
}

/// The shadow of one memory.
#[derive(Debug)]
pub(crate) struct Shadow {
    /// Whether words that contain the poison may be unwritten.
    poisoned: bool,
    /// Pages that the GPU has accessed, by number.
    pages: Mutex<HashMap<usize, Page>>,
}

/// Violations in an access to some words, with the first word of each.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// The first unwritten word.
    pub(super) unwritten: Option<usize>,
    /// The first word that is accessed without ordering, and the other work.
    pub(super) race: Option<(usize, WorkId)>,
}

impl Shadow {
    pub(crate) fn new(poisoned: bool) -> Self {
        Self { poisoned, pages: Mutex::default() }
    }

    /// Returns whether the memory was filled with the poison.
    pub(crate) fn is_poisoned(&self) -> bool {
        self.poisoned
    }

    /// Records an access to words of one page, starting at byte `offset`. `garbage` returns for a word, by its index in
    /// the access, whether it is read and contains the poison.
    pub(super) fn access(
        &self,
        offset: usize,
        count: usize,
        accessed: &Accessed<'_>,
        work: Option<&Work>,
        garbage: impl Fn(usize) -> bool,
    ) -> Findings {
        let first = offset / 4 % WORDS;
        debug_assert!(first + count <= WORDS);
        let mut findings = Findings::default();
        let mut pages = self.pages.lock();
        let page = pages.entry(offset / PAGE_BYTES as usize).or_insert(Page::Same(UNUSED));
        let strong = accessed.strength == Strength::Strong || accessed.access == Access::Atomic;
        let writes = accessed.access != Access::Read;
        page.change(first..first + count, |at, word| {
            let at = at - first;
            if self.poisoned && !word.written && findings.unwritten.is_none() && garbage(at) {
                findings.unwritten = Some(at);
            }
            word.written |= writes;
            let Some(work) = work else { return };
            let collides = |before: Use| {
                let same = before.work == WorkId::NONE || before.work == work.id;
                let waited_for = before.strong && strong || work.follows(before.work);
                (!same && !waited_for).then_some((at, before.work))
            };
            let now = Use { work: work.id, strong };
            if findings.race.is_none() {
                let reader = || if writes { collides(word.reader) } else { None };
                findings.race = collides(word.writer).or_else(reader);
            }
            if writes {
                word.writer = now;
            } else {
                word.reader = now;
            }
        });
        findings
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_are_one_as_long_as_their_words_are_alike() {
        let mut page = Page::Same(UNUSED);
        let mut calls = 0;
        page.change(0..WORDS, |_, _| calls += 1);
        assert_eq!(calls, 1);
        page.change(3..5, |_, word| word.written = true);
        let Page::Each(words) = &page else { panic!("words differ") };
        assert_eq!(words.iter().filter(|word| word.written).count(), 2);
        page.change(0..WORDS, |_, word| word.written = true);
        assert!(matches!(page, Page::Same(Word { written: true, .. })));
    }
}
