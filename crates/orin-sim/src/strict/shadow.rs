//! What strict mode keeps of memory: which words the GPU has written, and who used each word last.
//!
//! The account belongs to the memory and not to an address, so that all mappings of a buffer share it. Engines
//! move whole pages, so a page whose words have all been used alike is kept as one.

use core::ops::Range;
use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use super::order::{Work, WorkId};
use super::{Accessed, Strength};
use crate::mmu::{Access, PAGE_BYTES};

/// Words of a page.
const WORDS: usize = PAGE_BYTES as usize / 4;

/// The last use of a word of one kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Use {
    work: WorkId,
    /// Others may wait for this very access.
    strong: bool,
}

/// The account of a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Word {
    writer: Use,
    reader: Use,
    /// Whether a unit of the GPU has written the word.
    written: bool,
}

const NEVER: Use = Use { work: WorkId::NONE, strong: false };
const UNUSED: Word = Word { writer: NEVER, reader: NEVER, written: false };

/// A page of words.
#[derive(Debug)]
enum Page {
    /// All have been used alike.
    Same(Word),
    /// One by one.
    Each(Box<[Word; WORDS]>),
}

impl Page {
    /// Lets `change` see some words; those that are alike once.
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

/// The account of one memory.
#[derive(Debug)]
pub(crate) struct Shadow {
    /// Whether words that hold the poison may never have been written.
    poisoned: bool,
    /// Pages that the GPU has used, by number.
    pages: Mutex<HashMap<usize, Page>>,
}

/// What is wrong with the use of some words, and which word is the first of them.
#[derive(Debug, Default)]
pub(super) struct Findings {
    /// Nobody has written the word.
    pub(super) unwritten: Option<usize>,
    /// Work that used the word too, and that nothing orders.
    pub(super) race: Option<(usize, WorkId)>,
}

impl Shadow {
    pub(crate) fn new(poisoned: bool) -> Self {
        Self { poisoned, pages: Mutex::default() }
    }

    /// Whether the memory was filled with the poison.
    pub(crate) fn is_poisoned(&self) -> bool {
        self.poisoned
    }

    /// Notes the use of words of one page, which begin at byte `offset`. `garbage` tells of a word by its
    /// number within the use whether it is read and holds the poison.
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
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
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
