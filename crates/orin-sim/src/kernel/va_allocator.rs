//! GPU virtual addresses: nvgpu's buddy allocator.
//!
//! User space sees the addresses that the kernel chooses, and they determine which buffers are above an address limit,
//! so the model reproduces them exactly (`common/mm/allocators/buddy_allocator.c` of nvgpu). An area is split into
//! top-level blocks of decreasing powers of two, which never merge. Each order has a list of free blocks, and its head
//! is used first.

use std::collections::{BTreeMap, VecDeque};

/// Smallest block, in bytes.
pub(super) const BLOCK_BYTES: u64 = 4096;

/// Largest order of a block (`GPU_BALLOC_MAX_ORDER`): 8 TiB.
const MAX_ORDER: u32 = 31;

/// A free or used block. Its offset is relative to the area's base.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Block {
    /// First byte, relative to the base.
    offset: u64,
    /// The size is `BLOCK_BYTES << order`.
    order: u32,
}

impl Block {
    fn bytes(self) -> u64 {
        BLOCK_BYTES << self.order
    }

    fn end(self) -> u64 {
        self.offset + self.bytes()
    }
}

/// The addresses of one area.
#[derive(Debug)]
pub(super) struct VaAllocator {
    base: u64,
    len: u64,
    /// Top-level blocks from low to high addresses.
    top: Vec<Block>,
    /// Offsets of the free blocks of each order; the front is the head of the kernel's list.
    free: Vec<VecDeque<u64>>,
    /// The blocks of each allocation, by its first offset.
    used: BTreeMap<u64, Vec<Block>>,
}

impl VaAllocator {
    /// Creates an area of `len` bytes at `base`; both are multiples of [`BLOCK_BYTES`].
    pub(super) fn new(base: u64, len: u64) -> Self {
        let mut top = Vec::new();
        let mut offset = 0;
        while len - offset >= BLOCK_BYTES {
            let order = ((len - offset) / BLOCK_BYTES).ilog2().min(MAX_ORDER);
            top.push(Block { offset, order });
            offset += BLOCK_BYTES << order;
        }
        let mut free = vec![VecDeque::new(); MAX_ORDER as usize + 1];
        for block in &top {
            free[block.order as usize].push_front(block.offset);
        }
        Self { base, len, top, free, used: BTreeMap::new() }
    }

    /// Allocates a block for `len` bytes. Returns the block's first address.
    pub(super) fn allocate(&mut self, len: u64) -> Option<u64> {
        let order = order_of(len)?;
        let from = (order..=MAX_ORDER).find(|from| !self.free[*from as usize].is_empty())?;
        let offset = self.free[from as usize].pop_front()?;
        let block = self.split(Block { offset, order: from }, Block { offset, order });
        self.used.insert(block.offset, vec![block]);
        Some(self.base + block.offset)
    }

    /// Allocates exactly `[va, va + len)`, split into aligned blocks. Returns `false` if a part is in use, outside the
    /// area or not aligned to [`BLOCK_BYTES`].
    pub(super) fn allocate_at(&mut self, va: u64, len: u64) -> bool {
        let Some(offset) = va.checked_sub(self.base) else { return false };
        let Some(end) = len.checked_next_multiple_of(BLOCK_BYTES).and_then(|len| offset.checked_add(len))
        else {
            return false;
        };
        if offset % BLOCK_BYTES != 0 || end > self.len || end == offset {
            return false;
        }
        let mut pieces = Vec::new();
        let mut at = offset;
        while at < end {
            let fit = ((end - at) / BLOCK_BYTES).ilog2();
            let aligned = if at == 0 { fit } else { (at / BLOCK_BYTES).trailing_zeros() };
            let piece = Block { offset: at, order: aligned.min(fit).min(MAX_ORDER) };
            let Some(container) = self.free_container(piece) else {
                for piece in pieces.into_iter().rev() {
                    self.give_back(piece);
                }
                return false;
            };
            self.remove_free(container);
            pieces.push(self.split(container, piece));
            at = piece.end();
        }
        self.used.insert(offset, pieces);
        true
    }

    /// Frees the allocation at `va`; does nothing if there is none.
    pub(super) fn free(&mut self, va: u64) {
        let pieces = va.checked_sub(self.base).and_then(|offset| self.used.remove(&offset));
        for piece in pieces.into_iter().flatten() {
            self.give_back(piece);
        }
    }

    /// Splits `block`, which is in no list, down to `wanted`; the other halves become free.
    fn split(&mut self, mut block: Block, wanted: Block) -> Block {
        while block.order > wanted.order {
            let order = block.order - 1;
            let left = Block { offset: block.offset, order };
            let right = Block { offset: left.end(), order };
            let (keep, other) = if wanted.offset < right.offset { (left, right) } else { (right, left) };
            self.free[order as usize].push_front(other.offset);
            block = keep;
        }
        block
    }

    /// The free block that contains the whole `piece`.
    fn free_container(&self, piece: Block) -> Option<Block> {
        (piece.order..=MAX_ORDER).find_map(|order| {
            self.free[order as usize]
                .iter()
                .map(|offset| Block { offset: *offset, order })
                .find(|block| block.offset <= piece.offset && block.end() >= piece.end())
        })
    }

    fn remove_free(&mut self, block: Block) -> bool {
        let list = &mut self.free[block.order as usize];
        let found = list.iter().position(|offset| *offset == block.offset);
        found.and_then(|at| list.remove(at)).is_some()
    }

    /// Frees a block and merges it with its buddy while that is also free.
    fn give_back(&mut self, mut block: Block) {
        while !self.top.contains(&block) {
            let buddy = Block { offset: block.offset ^ block.bytes(), order: block.order };
            if !self.remove_free(buddy) {
                break;
            }
            block = Block { offset: block.offset.min(buddy.offset), order: block.order + 1 };
        }
        self.free[block.order as usize].push_front(block.offset);
    }
}

/// The smallest order whose block has at least `len` bytes.
fn order_of(len: u64) -> Option<u32> {
    let blocks = len.div_ceil(BLOCK_BYTES);
    let order = blocks.checked_next_power_of_two()?.ilog2();
    (blocks > 0 && order <= MAX_ORDER).then_some(order)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const KIB: u64 = 1 << 10;
    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;

    /// The range in the logs: [0x200000, 2^40 - 2 MiB).
    fn logged() -> VaAllocator {
        VaAllocator::new(0x20_0000, 0xff_ffe0_0000 - 0x20_0000)
    }

    #[test]
    fn first_addresses_are_those_of_the_board() {
        for (len, va) in [
            (4 * KIB, 0xff_ffa0_0000),
            (MIB, 0xff_ffa0_0000),
            (4 * MIB, 0xff_ffa0_0000),
            (5 * MIB, 0xff_ff20_0000),
            (8 * MIB, 0xff_ff20_0000),
            (16 * MIB, 0xff_fe20_0000),
            (64 * MIB, 0xff_f820_0000),
            (GIB, 0xff_8020_0000),
            (4 * GIB, 0xfe_0020_0000),
            (257 * GIB, 0x20_0000),
        ] {
            assert_eq!(logged().allocate(len), Some(va), "{len:#x}");
        }
    }

    #[test]
    fn sequences_of_addresses_are_those_of_the_board() {
        let mut area = logged();
        // Sizes and addresses in the order of the log.
        for (len, va) in [
            (4 * KIB, 0xff_ffa0_0000),
            (4 * KIB, 0xff_ffa0_1000),
            (64 * KIB, 0xff_ffa1_0000),
            (MIB, 0xff_ffb0_0000),
            (16 * MIB, 0xff_fe20_0000),
            (64 * MIB, 0xff_f820_0000),
        ] {
            assert_eq!(area.allocate(len), Some(va), "{len:#x}");
        }
    }

    #[test]
    fn buffers_reach_4_gib_blocks_once_the_small_ones_are_gone() {
        let mut area = logged();
        for order in 10..20 {
            assert!(area.allocate(BLOCK_BYTES << order).is_some());
        }
        assert_eq!(area.allocate(512 * MIB), Some(0xfe_0020_0000));
    }

    #[test]
    fn a_freed_block_is_the_next_one_used() {
        let mut area = logged();
        let first = area.allocate(4 * KIB).unwrap();
        let second = area.allocate(4 * KIB).unwrap();
        area.free(first);
        assert_eq!(area.allocate(4 * KIB), Some(first));
        area.free(second);
        area.free(first);
        assert_eq!(area.allocate(4 * MIB), Some(first), "everything has merged again");
    }

    #[test]
    fn fixed_ranges_are_taken_exactly() {
        let mut area = logged();
        assert!(area.allocate_at(0xfd_0000_0000, GIB));
        assert!(!area.allocate_at(0xfd_3fff_f000, 0x2000), "overlaps the first");
        assert!(area.allocate_at(0xfd_4000_0000, 0x2000));
        assert!(!area.allocate_at(0x1f_f000, 0x1000), "below the area");
        assert!(!area.allocate_at(0xff_ffdf_f000, 0x2000), "beyond the area");
        assert!(!area.allocate_at(0x20_0800, 0x1000), "not aligned");
        area.free(0xfd_0000_0000);
        area.free(0xfd_4000_0000);
        assert!(area.allocate_at(0x20_0000, 0xff_ffe0_0000 - 0x20_0000), "all of it is free again");
    }

    #[test]
    fn the_kernel_area_is_one_block() {
        let mut area = VaAllocator::new(0xff_ffe0_0000, 4 * GIB);
        assert_eq!(area.allocate(8 * KIB), Some(0xff_ffe0_0000));
        assert_eq!(area.allocate(64 * MIB), Some(0xff_ffe0_0000 + 64 * MIB));
        assert_eq!(area.allocate(64 * KIB), Some(0xff_ffe1_0000));
    }

    #[test]
    fn impossible_sizes_are_refused() {
        let mut area = logged();
        assert_eq!(area.allocate(0), None);
        assert_eq!(area.allocate(u64::MAX), None);
        assert_eq!(area.allocate(1 << 40), None);
        assert!(!area.allocate_at(0x20_0000, 0));
        assert!(!area.allocate_at(0x20_0000, u64::MAX));
    }

    proptest! {
        #[test]
        fn allocations_never_overlap_and_everything_merges_back(
            steps in prop::collection::vec((any::<bool>(), 1_u64..1 << 24, 0_u64..1 << 32), 1..200)
        ) {
            let (base, len) = (0x20_0000, (1_u64 << 33) - (1 << 22));
            let mut area = VaAllocator::new(base, len);
            let mut live: Vec<(u64, u64)> = Vec::new();
            for (fixed, bytes, at) in steps {
                let va = if fixed {
                    let va = base + at / BLOCK_BYTES * BLOCK_BYTES;
                    area.allocate_at(va, bytes).then_some(va)
                } else {
                    area.allocate(bytes)
                };
                let Some(va) = va else { continue };
                let end = va + bytes;
                prop_assert!(va >= base && end <= base + len);
                prop_assert!(live.iter().all(|(a, b)| end <= *a || va >= *b));
                live.push((va, end));
                if live.len() > 20 {
                    area.free(live.swap_remove(0).0);
                }
            }
            for (va, _) in live {
                area.free(va);
            }
            prop_assert!(area.allocate_at(base, len));
        }
    }
}
