//! Which addresses of one range are taken.
//!
//! The kernel hands addresses out too, but each answer is a system call, and an address that was
//! given back comes back in its own order. Here the free parts of a range are kept by address, merged
//! with their neighbours when something is given back, and the smallest part that fits is used: what
//! is freed is used again first, and large parts stay whole.

use std::collections::BTreeMap;

/// Free and taken parts of `0..len`.
///
/// Plain arithmetic: it knows nothing of GPUs and makes no calls. [`crate::VaPool`] applies it to
/// reserved addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VaAllocator {
    len: u64,
    /// Lengths by start; never touching one another.
    free: BTreeMap<u64, u64>,
    /// Lengths by start.
    taken: BTreeMap<u64, u64>,
}

impl VaAllocator {
    /// `0..len`, all free.
    pub fn new(len: u64) -> Self {
        let free = if len == 0 { BTreeMap::new() } else { BTreeMap::from([(0, len)]) };
        Self { len, free, taken: BTreeMap::new() }
    }

    /// Length of the range.
    pub fn len(&self) -> u64 {
        self.len
    }

    /// Whether the range has no length at all.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Free bytes, in however many parts.
    pub fn free_bytes(&self) -> u64 {
        self.free.values().sum()
    }

    /// The largest `len` that [`VaAllocator::allocate`] would grant without alignment.
    pub fn largest_free(&self) -> u64 {
        self.free.values().copied().max().unwrap_or(0)
    }

    /// Takes `len` bytes at a multiple of `alignment`; `None` if no free part is large enough. A `len`
    /// or `alignment` of 0 is never granted.
    pub fn allocate(&mut self, len: u64, alignment: u64) -> Option<u64> {
        if len == 0 || alignment == 0 {
            return None;
        }
        let fit = |start: u64, size: u64| {
            let at = start.checked_next_multiple_of(alignment)?;
            (at.checked_add(len)? <= start + size).then_some((size, start, at))
        };
        let (size, start, at) = self.free.iter().filter_map(|(start, size)| fit(*start, *size)).min()?;
        self.free.remove(&start);
        if at > start {
            self.free.insert(start, at - start);
        }
        if at + len < start + size {
            self.free.insert(at + len, start + size - at - len);
        }
        self.taken.insert(at, len);
        Some(at)
    }

    /// Gives back what [`VaAllocator::allocate`] returned; whether it was taken.
    pub fn free(&mut self, at: u64) -> bool {
        let Some(mut len) = self.taken.remove(&at) else { return false };
        let mut start = at;
        if let Some((before, size)) = self.free.range(..at).next_back().map(|(before, size)| (*before, *size))
            && before + size == at
        {
            self.free.remove(&before);
            (start, len) = (before, size + len);
        }
        if let Some(size) = self.free.remove(&(start + len)) {
            len += size;
        }
        self.free.insert(start, len);
        true
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_freed_is_used_again() {
        let mut range = VaAllocator::new(16 * 4096);
        let first = range.allocate(4096, 4096).unwrap();
        let second = range.allocate(8192, 4096).unwrap();
        let third = range.allocate(4096, 4096).unwrap();
        assert_eq!((first, second, third), (0, 4096, 12_288));
        assert!(range.free(second));
        assert!(!range.free(second), "only once");
        assert_eq!(range.allocate(4096, 4096), Some(4096), "the hole before the large rest");
        assert_eq!(range.allocate(8192, 4096), Some(16_384), "which no longer fits the hole");
    }

    #[test]
    fn alignment_leaves_usable_parts() {
        let mut range = VaAllocator::new(1 << 20);
        assert_eq!(range.allocate(4096, 4096), Some(0));
        assert_eq!(range.allocate(65_536, 65_536), Some(65_536));
        assert_eq!(range.allocate(61_440, 4096), Some(4096), "between the two");
        assert_eq!(range.allocate(1, 0), None);
        assert_eq!(range.allocate(0, 1), None);
        assert_eq!(range.allocate(1 << 20, 1), None);
        assert_eq!(range.allocate(u64::MAX, u64::MAX), None);
    }

    /// A step of the test below: allocate (length, alignment exponent), or free the nth block.
    #[derive(Clone, Debug)]
    enum Step {
        Allocate(u64, u32),
        Free(prop::sample::Index),
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            3 => (1..40_u64, 0..4_u32).prop_map(|(len, alignment)| Step::Allocate(len, alignment)),
            2 => any::<prop::sample::Index>().prop_map(Step::Free),
        ]
    }

    proptest! {
        /// Against a bitmap: blocks are aligned, inside and disjoint, refusal is right, nothing is
        /// lost, and free parts are always merged.
        #[test]
        fn it_agrees_with_a_bitmap(len in 0..300_u64, steps in prop::collection::vec(step(), 0..120)) {
            let mut range = VaAllocator::new(len);
            let mut map = vec![false; usize::try_from(len).unwrap()];
            let mut blocks: Vec<(u64, u64)> = Vec::new();
            let span = |at: u64, len: u64| usize::try_from(at).unwrap()..usize::try_from(at + len).unwrap();
            for step in steps {
                match step {
                    Step::Allocate(size, exponent) => {
                        let alignment = 1_u64 << exponent;
                        match range.allocate(size, alignment) {
                            Some(at) => {
                                prop_assert!(at.is_multiple_of(alignment) && at + size <= len);
                                prop_assert!(map[span(at, size)].iter().all(|taken| !taken));
                                map[span(at, size)].fill(true);
                                blocks.push((at, size));
                            }
                            None => {
                                let fits = (0..len)
                                    .step_by(usize::try_from(alignment).unwrap())
                                    .filter(|at| at + size <= len)
                                    .any(|at| map[span(at, size)].iter().all(|taken| !taken));
                                prop_assert!(!fits, "{size} bytes fit");
                            }
                        }
                    }
                    Step::Free(index) if !blocks.is_empty() => {
                        let (at, size) = blocks.swap_remove(index.index(blocks.len()));
                        prop_assert!(range.free(at));
                        map[span(at, size)].fill(false);
                    }
                    Step::Free(_) => prop_assert!(!range.free(0)),
                }
                let free = map.iter().filter(|taken| !**taken).count() as u64;
                prop_assert_eq!(range.free_bytes(), free);
                let longest = map.split(|taken| *taken).map(<[bool]>::len).max().unwrap_or(0) as u64;
                prop_assert_eq!(range.largest_free(), longest);
            }
            for (at, _) in blocks {
                prop_assert!(range.free(at));
            }
            prop_assert_eq!(range, VaAllocator::new(len));
        }
    }
}
