//! Constant bank 0: the words that NVIDIA's compiler expects of the driver, then the parameters.

use super::{Generation, RESERVED_SHARED, STACK_POINTER, Shape};
use gpu_hal::Properties;

impl Generation {
    /// Constant bank 0 of `bytes` bytes or more, with the words that are the same for every launch. Bank 3, the
    /// `__constant__` variables, lies at `constants_va`.
    pub(crate) fn bank0(self, bytes: usize, constants_va: u64, properties: &Properties) -> Vec<u8> {
        let places = self.places();
        let mut bank = vec![0; bytes.max(places.end).next_multiple_of(16)];
        if let Some(at) = places.shared_window {
            put(&mut bank, at, &properties.shared_window.to_le_bytes());
        }
        put(&mut bank, at::LOCAL_WINDOW, &properties.local_window.to_le_bytes());
        put(&mut bank, at::STACK_POINTER, &STACK_POINTER.to_le_bytes());
        put(&mut bank, at::SM_COUNT, &properties.sm_count.to_le_bytes());
        put(&mut bank, places.constants, &constants_va.to_le_bytes());
        put(&mut bank, at::RESERVED_SHARED, &RESERVED_SHARED.to_le_bytes());
        if self == Self::Hopper {
            put(&mut bank, at::RESERVED_SHARED_END, &RESERVED_SHARED.to_le_bytes());
            // A block is a cluster of its own.
            for axis in 0..3 {
                put(&mut bank, at::CLUSTER + 4 * axis, &1_u32.to_le_bytes());
            }
            put(&mut bank, at::CLUSTER_RECIPROCAL, &1_f32.to_le_bytes());
            put(&mut bank, at::CLUSTER_BLOCKS, &1_u32.to_le_bytes());
        }
        bank
    }

    fn places(self) -> Places {
        match self {
            Self::Ampere => Places { shared_window: Some(0x18), constants: 0x50, end: 0x160 },
            Self::Hopper => Places { shared_window: None, constants: 0xd0, end: 0x210 },
        }
    }
}

/// Where bank 0 has what the generations place differently, as byte offsets.
struct Places {
    /// Generic address of the shared window (u64).
    shared_window: Option<usize>,
    /// Generic address of constant bank 3 (u64).
    constants: usize,
    /// End of the driver words; parameters begin here or later.
    end: usize,
}

/// Byte offsets of the driver words in constant bank 0.
mod at {
    /// Block size x, y, z (u32 each).
    pub(super) const BLOCK: usize = 0x00;
    /// Grid size x, y, z (u32 each).
    pub(super) const GRID: usize = 0x0c;
    /// Generic address of the local window (u64).
    pub(super) const LOCAL_WINDOW: usize = 0x20;
    /// Initial stack pointer (u32).
    pub(super) const STACK_POINTER: usize = 0x28;
    /// Dynamic shared memory in bytes (u32).
    pub(super) const DYNAMIC_SHARED: usize = 0x2c;
    /// Number of SMs (u32).
    pub(super) const SM_COUNT: usize = 0x10c;
    /// Shared memory that belongs to the system (u32): what code subtracts from the size of a block's shared memory.
    pub(super) const RESERVED_SHARED: usize = 0x114;
    /// Hopper: where that ends (u32).
    pub(super) const RESERVED_SHARED_END: usize = 0x68;
    /// Hopper: blocks of a cluster x, y, z (u32 each).
    pub(super) const CLUSTER: usize = 0x144;
    /// Hopper: 1 / blocks of a cluster in x (f32).
    pub(super) const CLUSTER_RECIPROCAL: usize = 0x150;
    /// Hopper: clusters of the grid x, y, z (u32 each).
    pub(super) const CLUSTERS: usize = 0x15c;
    /// Hopper: blocks of a cluster (u32).
    pub(super) const CLUSTER_BLOCKS: usize = 0x188;
}

/// Writes bytes at an offset.
fn put(bank: &mut [u8], offset: usize, bytes: &[u8]) {
    bank[offset..offset + bytes.len()].copy_from_slice(bytes);
}

/// Writes the driver words of bank 0 that depend on the launch.
#[inline]
pub(crate) fn put_shape(generation: Generation, bank: &mut [u8], shape: &Shape) {
    let (grid, block) = (shape.grid.to_array(), shape.block.to_array());
    for (axis, (block, grid)) in block.into_iter().zip(grid).enumerate() {
        put(bank, at::BLOCK + 4 * axis, &block.to_le_bytes());
        put(bank, at::GRID + 4 * axis, &grid.to_le_bytes());
    }
    put(bank, at::DYNAMIC_SHARED, &shape.shared.dynamic_bytes.to_le_bytes());
    if generation == Generation::Hopper {
        for (axis, grid) in grid.into_iter().enumerate() {
            put(bank, at::CLUSTERS + 4 * axis, &grid.to_le_bytes());
        }
    }
}
