//! The possible contents of the GPU's caches.
//!
//! A cache is a set of lines that have been read since its last invalidation, each with a fingerprint of memory at that
//! time. Lines of the SMs' caches are identified by virtual address, as in hardware, those of the L2 by memory. A real
//! cache has evicted most of them; the model tracks what may still be there. A line that an SM stores to is removed
//! from the L1 here, because that SM's copy is up to date.

use std::collections::HashMap;
use std::hash::{BuildHasher, Hasher, RandomState};

use super::Accessed;
use super::cause::Cache;
use super::order::WorkId;

/// Maximum number of lines in a cache; beyond that all are forgotten.
const MOST: usize = 1 << 18;

/// A line at the time of its read.
#[derive(Clone, Copy, Debug)]
struct Line {
    contents: u64,
    /// The work that has already checked it.
    seen: Option<WorkId>,
}

/// The lines of one cache.
#[derive(Debug)]
pub(super) struct Lines {
    cache: Cache,
    lines: HashMap<(u64, u64), Line>,
    hasher: RandomState,
}

/// All caches.
#[derive(Debug)]
pub(super) struct Caches([Lines; 4]);

impl Default for Caches {
    fn default() -> Self {
        let lines = |cache| Lines { cache, lines: HashMap::new(), hasher: RandomState::new() };
        Self([Cache::Constants, Cache::Instructions, Cache::Data, Cache::L2].map(lines))
    }
}

impl Caches {
    /// The lines of a memory cache.
    pub(super) fn lines(&mut self, cache: Cache) -> &mut Lines {
        let [constants, instructions, data, l2] = &mut self.0;
        match cache {
            Cache::Constants => constants,
            Cache::Instructions => instructions,
            Cache::L2 => l2,
            // Descriptors have their own cache in the scheduler, and never reach this point.
            Cache::Data | Cache::Descriptors => data,
        }
    }

    /// Records a store of an SM.
    pub(super) fn written(&mut self, accessed: &Accessed<'_>) {
        self.lines(Cache::Data).written(accessed);
    }
}

impl Lines {
    pub(super) fn clear(&mut self) {
        self.lines.clear();
    }

    /// The start of the first line of an access, its distance from the access, and the number of lines.
    fn span(&self, accessed: &Accessed<'_>) -> (u64, u64, u64) {
        let size = self.cache.line();
        let before = accessed.va % size;
        (accessed.va - before, before, (before + accessed.len).div_ceil(size))
    }

    /// The key of the line `index` lines after the one that starts at `va`.
    fn key(&self, accessed: &Accessed<'_>, va: u64, index: u64) -> (u64, u64) {
        let size = self.cache.line();
        if self.cache == Cache::L2 {
            // CAST: an address of this process.
            return (u64::MAX, accessed.pointer().addr() as u64 / size + index);
        }
        (accessed.space, va / size + index)
    }

    /// Records a read. Returns the address of the first line whose earlier contents differ.
    pub(super) fn read(&mut self, work: Option<WorkId>, accessed: &Accessed<'_>) -> Option<u64> {
        let size = self.cache.line();
        let (va, before, count) = self.span(accessed);
        let mut stale = None;
        if self.lines.len() > MOST {
            self.clear();
        }
        for index in 0..count {
            let key = self.key(accessed, va, index);
            if let Some(line) = self.lines.get(&key)
                && work.is_some()
                && line.seen == work
            {
                continue;
            }
            let mut hasher = self.hasher.build_hasher();
            // Mappings begin and end on page boundaries, so the mapping contains the whole line. CAST: offsets of a CPU
            // mapping fit usize.
            let first = accessed.offset() - before as usize + (index * size) as usize;
            (0..size as usize)
                .step_by(4)
                .for_each(|at| hasher.write_u32(accessed.range.memory.load(first + at)));
            let line = Line { contents: hasher.finish(), seen: work };
            let old = self.lines.insert(key, line);
            if old.is_some_and(|old| old.contents != line.contents) {
                stale = stale.or(Some(va + index * size));
            }
        }
        stale
    }

    /// Records a store by a unit that uses the cache.
    pub(super) fn written(&mut self, accessed: &Accessed<'_>) {
        let (va, _, count) = self.span(accessed);
        for index in 0..count {
            let key = self.key(accessed, va, index);
            self.lines.remove(&key);
        }
    }
}
