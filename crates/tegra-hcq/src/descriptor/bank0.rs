//! Constant bank 0: the words that NVIDIA's compiler expects of the driver, then the parameters.

use gpu_hal::Properties;
use gpu_hal::chip::Chip;

use super::Shape;

/// Byte offsets of the driver words that are the same on all generations.
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
    /// Reserved shared memory in bytes (u32): code subtracts it from the size of a block's shared memory.
    pub(super) const RESERVED_SHARED: usize = 0x114;
}

/// Returns constant bank 0 of at least `bytes` bytes, with the words that do not depend on the launch. Bank 3, the
/// `__constant__` variables, is at `constants_va`.
pub(crate) fn bank0(chip: &Chip, bytes: usize, constants_va: u64, properties: &Properties) -> Vec<u8> {
    let places = chip.bank0.value;
    let reserved = chip.shared.reserved;
    let mut bank = vec![0; bytes.max(places.end).next_multiple_of(16)];
    if let Some(at) = places.shared_window {
        put(&mut bank, at, &properties.shared_window.to_le_bytes());
    }
    put(&mut bank, at::LOCAL_WINDOW, &properties.local_window.to_le_bytes());
    put(&mut bank, at::STACK_POINTER, &chip.local.stack_pointer().to_le_bytes());
    put(&mut bank, at::SM_COUNT, &properties.sm_count.to_le_bytes());
    put(&mut bank, places.constants, &constants_va.to_le_bytes());
    put(&mut bank, at::RESERVED_SHARED, &reserved.to_le_bytes());
    if let Some(cluster) = places.cluster {
        put(&mut bank, cluster.reserved_shared_end, &reserved.to_le_bytes());
        // Each block is its own cluster.
        for axis in 0..3 {
            put(&mut bank, cluster.shape + 4 * axis, &1_u32.to_le_bytes());
        }
        put(&mut bank, cluster.reciprocal, &1_f32.to_le_bytes());
        put(&mut bank, cluster.blocks, &1_u32.to_le_bytes());
    }
    bank
}

/// Writes bytes at an offset.
fn put(bank: &mut [u8], offset: usize, bytes: &[u8]) {
    bank[offset..offset + bytes.len()].copy_from_slice(bytes);
}

/// Writes the driver words of bank 0 that depend on the launch.
#[inline]
pub(crate) fn put_shape(chip: &Chip, bank: &mut [u8], shape: &Shape) {
    let (grid, block) = (shape.grid.to_array(), shape.block.to_array());
    for (axis, (block, grid)) in block.into_iter().zip(grid).enumerate() {
        put(bank, at::BLOCK + 4 * axis, &block.to_le_bytes());
        put(bank, at::GRID + 4 * axis, &grid.to_le_bytes());
    }
    put(bank, at::DYNAMIC_SHARED, &shape.shared.dynamic_bytes.to_le_bytes());
    if let Some(cluster) = &chip.bank0.value.cluster {
        for (axis, grid) in grid.into_iter().enumerate() {
            put(bank, cluster.count + 4 * axis, &grid.to_le_bytes());
        }
    }
}
