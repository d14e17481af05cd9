//! The counts of one host thread that runs blocks of a grid.

use std::collections::HashMap;

use serde::{Deserialize, Serialize};

use super::access::{Passes, SECTOR, Traffic};
use crate::check::Request;
use crate::mmu::{Access, PAGE_BYTES};
use crate::sm::Space;

/// Instructions of a page.
const PER_PAGE: usize = (PAGE_BYTES / 16) as usize;

/// Counts of one instruction.
///
/// ```
/// use orin_sim::kernel_profile::Counts;
///
/// // Two warps; in one of them the guard was false for half of the threads.
/// let counts = Counts { executed: 2, threads: 64, active: 48, ..Counts::default() };
/// assert_eq!(counts.predicated_off(), 16);
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Counts {
    /// Executions by a warp, or by the diverged part of one.
    pub executed: u64,
    /// Executions without a thread whose guard was true.
    pub skipped: u64,
    /// Threads of these executions.
    pub threads: u64,
    /// Threads whose guard was true.
    pub active: u64,
    /// Executions of a branch whose threads diverged.
    pub divergent: u64,
    /// Accesses to global memory.
    #[serde(skip_serializing_if = "is_default")]
    pub global: Traffic,
    /// Accesses to local memory.
    #[serde(skip_serializing_if = "is_default")]
    pub local: Traffic,
    /// Accesses to shared memory.
    #[serde(skip_serializing_if = "is_default")]
    pub shared: Passes,
}

fn is_default<T: Default + PartialEq>(value: &T) -> bool {
    *value == T::default()
}

impl Counts {
    /// Threads whose guard was false.
    pub fn predicated_off(&self) -> u64 {
        self.threads - self.active
    }

    /// Adds the counts of `other`.
    pub(super) fn add(&mut self, other: &Self) {
        self.executed += other.executed;
        self.skipped += other.skipped;
        self.threads += other.threads;
        self.active += other.active;
        self.divergent += other.divergent;
        self.global.add(&other.global);
        self.local.add(&other.local);
        self.shared.add(&other.shared);
    }
}

/// The sectors of global memory that a grid has touched: one bit each, by page.
#[derive(Debug, Default)]
pub(super) struct Sectors(HashMap<u64, u128>);

impl Sectors {
    fn touch(&mut self, va: u64) {
        *self.0.entry(va / PAGE_BYTES).or_default() |= 1 << (va % PAGE_BYTES / SECTOR);
    }

    fn merge(&mut self, other: &Self) {
        for (page, bits) in &other.0 {
            *self.0.entry(*page).or_default() |= bits;
        }
    }

    /// Size in bytes.
    pub(super) fn bytes(&self) -> u64 {
        SECTOR * self.0.values().map(|bits| u64::from(bits.count_ones())).sum::<u64>()
    }
}

/// Word and counts of an instruction.
type Slot = (u128, Counts);

/// The counts of a thread.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    /// Words and counts, by page of code.
    pages: Vec<(u64, Box<[Slot]>)>,
    /// Index of the page used last.
    last: usize,
    /// Sectors that were read, by loads and atomics.
    pub(super) read: Sectors,
    /// Sectors that were written, by stores and atomics.
    pub(super) written: Sectors,
}

impl Tally {
    fn page(&mut self, number: u64) -> &mut [Slot] {
        if self.pages.get(self.last).is_none_or(|(page, _)| *page != number) {
            self.last = self.pages.iter().position(|(page, _)| *page == number).unwrap_or_else(|| {
                self.pages.push((number, vec![Default::default(); PER_PAGE].into()));
                self.pages.len() - 1
            });
        }
        &mut self.pages[self.last].1
    }

    fn at(&mut self, pc: u64) -> &mut Slot {
        // CAST: an index in the page.
        &mut self.page(pc / PAGE_BYTES)[(pc % PAGE_BYTES / 16) as usize]
    }

    /// Counts an execution of the instruction `word` at `pc` by `threads` threads, of which `active` have a true guard.
    pub(crate) fn executed(&mut self, pc: u64, word: u128, threads: u32, active: u32) {
        let (slot, counts) = self.at(pc);
        *slot = word;
        counts.executed += 1;
        counts.skipped += u64::from(active == 0);
        counts.threads += u64::from(threads.count_ones());
        counts.active += u64::from((threads & active).count_ones());
    }

    /// Counts a divergent execution of the branch at `pc`.
    pub(crate) fn diverged(&mut self, pc: u64) {
        self.at(pc).1.divergent += 1;
    }

    /// Counts an access to memory by the instruction at `pc`.
    pub(crate) fn accessed(&mut self, pc: u64, request: &Request) {
        if request.mask == 0 {
            return;
        }
        match request.space {
            Space::Shared => self.at(pc).1.shared.add(&Passes::of(request)),
            Space::Local => self.at(pc).1.local.add(&Traffic::of(request)),
            Space::Global => {
                self.at(pc).1.global.add(&Traffic::of(request));
                for lane in crate::sm::lanes(request.mask) {
                    let va = request.addresses[lane];
                    if request.access != Access::Write {
                        self.read.touch(va);
                    }
                    if request.access != Access::Read {
                        self.written.touch(va);
                    }
                }
            }
        }
    }

    /// Adds the counts of another thread.
    pub(super) fn merge(&mut self, other: Self) {
        for (number, theirs) in &other.pages {
            for ((word, counts), (their_word, their_counts)) in self.page(*number).iter_mut().zip(theirs) {
                if their_counts.executed != 0 {
                    *word = *their_word;
                    counts.add(their_counts);
                }
            }
        }
        self.read.merge(&other.read);
        self.written.merge(&other.written);
    }

    /// The instructions that were executed: address, word and counts.
    pub(super) fn instructions(&self) -> impl Iterator<Item = (u64, u128, &Counts)> {
        self.pages.iter().flat_map(|(number, page)| {
            let slots = (number * PAGE_BYTES..).step_by(16).zip(page);
            slots
                .filter(|(_, (_, counts))| counts.executed != 0)
                .map(|(pc, (word, counts))| (pc, *word, counts))
        })
    }
}
