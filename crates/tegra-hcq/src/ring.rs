//! Space management of every ring: a cursor that advances only over space whose work has ended.
//!
//! Pushbuffer words and launch records are stored in fixed blocks of memory that the GPU reads some time after the CPU
//! has written them. Space returned by [`Cursor::reserve`] is *open*. [`Cursor::mark`] returns the end of the open
//! space when a submission is made. [`Cursor::release`] frees the space once that submission's timeline value has been
//! seen. Space is not overwritten in between, so a submission is immutable while the GPU may read it.
//!
//! Positions count bytes since the creation of the cursor and never wrap (2^64 bytes are centuries of submissions).
//! Offsets into the memory are positions modulo the capacity.

/// Allocates contiguous blocks from a ring of `capacity` bytes.
#[derive(Debug)]
pub(crate) struct Cursor {
    capacity: u64,
    head: u64,
    tail: u64,
}

/// A position of a [`Cursor`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Mark(u64);

impl Cursor {
    /// An empty ring of `capacity` bytes, a power of two.
    pub(crate) fn new(capacity: u64) -> Self {
        debug_assert!(capacity.is_power_of_two());
        Self { capacity, head: 0, tail: 0 }
    }

    /// Offset of `len` contiguous free bytes, aligned to `align` (a power of two that divides the capacity); `None`
    /// while the ring is too full. A block never wraps: the remainder before the end is skipped.
    pub(crate) fn reserve(&mut self, len: u64, align: u64) -> Option<u64> {
        debug_assert!(align.is_power_of_two() && align <= self.capacity);
        let mut start = self.head.next_multiple_of(align);
        let offset = start % self.capacity;
        if offset + len > self.capacity {
            start += self.capacity - offset;
        }
        if start + len - self.tail > self.capacity {
            return None;
        }
        self.head = start + len;
        Some(start % self.capacity)
    }

    /// Number of complete passes before the one that contains the last reserved byte.
    #[inline]
    pub(crate) fn lap(&self) -> u64 {
        self.head.saturating_sub(1) / self.capacity
    }

    /// The end of everything reserved so far.
    pub(crate) fn mark(&self) -> Mark {
        Mark(self.head)
    }

    /// Frees everything reserved before `mark`.
    pub(crate) fn release(&mut self, mark: Mark) {
        debug_assert!(mark.0 <= self.head);
        // The mark of a submission that used no space in this ring equals an earlier mark, whose space may already be
        // free.
        self.tail = self.tail.max(mark.0);
        if self.tail == self.head {
            // An empty ring restarts at offset 0, whose cache lines are warm in the CPU.
            self.head = self.head.next_multiple_of(self.capacity);
            self.tail = self.head;
        }
    }

    /// Size of the ring in bytes.
    pub(crate) fn capacity(&self) -> u64 {
        self.capacity
    }
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn a_full_ring_refuses_until_space_is_released() {
        let mut ring = Cursor::new(1024);
        assert_eq!(ring.reserve(1000, 256), Some(0));
        let mark = ring.mark();
        assert_eq!(ring.reserve(100, 256), None);
        ring.release(mark);
        assert_eq!(ring.reserve(100, 256), Some(0), "24 bytes are left before the end: skipped");
    }

    #[test]
    fn an_empty_ring_starts_over() {
        let mut ring = Cursor::new(1024);
        for _ in 0..100 {
            assert_eq!(ring.reserve(100, 256), Some(0));
            let mark = ring.mark();
            ring.release(mark);
            ring.release(mark);
        }
    }

    #[test]
    fn more_than_the_ring_never_fits() {
        assert_eq!(Cursor::new(256).reserve(257, 4), None);
    }

    proptest! {
        #[test]
        fn pieces_in_flight_never_overlap(
            sizes in prop::collection::vec((1_u64..300, 0_u32..9, any::<bool>()), 1..400)
        ) {
            let mut ring = Cursor::new(1024);
            let mut live: VecDeque<(u64, u64, Mark)> = VecDeque::new();
            for (len, log2_align, retire) in sizes {
                let align = 1 << log2_align;
                if retire && let Some((.., mark)) = live.pop_front() {
                    ring.release(mark);
                }
                if let Some(offset) = ring.reserve(len, align) {
                    prop_assert_eq!(offset % align, 0);
                    prop_assert!(offset + len <= 1024);
                    for &(other, other_len, _) in &live {
                        prop_assert!(offset + len <= other || other + other_len <= offset);
                    }
                    live.push_back((offset, len, ring.mark()));
                } else {
                    prop_assert!(!live.is_empty(), "an empty ring takes anything that fits");
                }
            }
        }
    }
}
