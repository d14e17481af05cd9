//! Gates of kernels: instructions in front of a kernel that hold it until the launch before it has ended.
//!
//! In a chain, the GPU can place a grid as soon as all blocks of the grid before it have ended. That grid's stores may
//! not be visible yet, and the wait for them is an instruction of the program (`griddepcontrol.wait` of PTX). So a
//! chained launch begins at the kernel's gate: ACQBULK, then BRA to the kernel. Placing blocks and loading code then
//! overlap the end of the grid before. On an H100 an empty kernel in a graph of 100 takes 0.46 µs with a gate, and
//! 0.71 µs if it is placed when the grid before it has ended.
//!
//! The encodings are those of SM 9.0, read from NVIDIA's disassembler; only chips with
//! [`early_start`](gpu_hal::chip::Chip::early_start) have gates.

use core::ops::Range;

/// Size of a gate in bytes: NVIDIA's compilers align code that launches begin at to so many.
const BYTES: u64 = 128;
/// Size of an instruction in bytes.
const INSTRUCTION: u64 = 16;
/// Waits until the latch that the descriptor names is open.
const ACQBULK: u128 = 0x000f_ce00_0000_0000_0000_0000_0000_782e;
/// Branch to the next instruction.
const BRA: u128 = 0x000f_ea00_0380_0000_0000_0000_0000_7947;

/// The gates of a program, behind its image.
#[derive(Clone, Copy, Debug)]
pub(super) struct Gates {
    /// Offset of the first from the start of the image, in bytes.
    offset: u64,
    kernels: usize,
}

impl Gates {
    /// Room for gates of a number of kernels, behind an image of `image_bytes`.
    pub(super) fn new(image_bytes: u64, kernels: usize) -> Self {
        Self { offset: image_bytes.next_multiple_of(BYTES), kernels }
    }

    /// Bytes of the image with its gates. The instruction prefetcher reads on behind the last one.
    pub(super) fn end(self) -> u64 {
        self.of(self.kernels) + cubin::PREFETCH_SLACK_BYTES
    }

    /// Offset of the gate of a kernel.
    pub(super) fn of(self, index: usize) -> u64 {
        // CAST: usize is at most 64 bits.
        self.offset + index as u64 * BYTES
    }
}

/// The addresses of a gate at `va`.
pub(super) fn range(va: u64) -> Range<u64> {
    va..va + BYTES
}

/// The instructions of a gate whose kernel begins `distance` bytes behind it (a negative number: before it).
pub(super) fn code(distance: i64) -> [u128; 2] {
    // From the end of the branch, in words. CAST: 32 fits.
    let words = (distance - 2 * INSTRUCTION as i64) / 4;
    // CAST: the lowest 8 bits, and the 48 above them in two's complement: an image has at most 4 GiB.
    let (low, high) = (words as u8, (words >> 8) as u64 & 0xffff_ffff_ffff);
    [ACQBULK, BRA | u128::from(low) << 16 | u128::from(high) << 34]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn branches_are_those_of_nvidias_compiler() {
        // Bytes from the end of a branch to its target, and the lower half of its word without the predicate: from code
        // of NVRTC 12.6 for SM 9.0.
        for (distance, seen) in [
            (0x20, 0x0008_7947),
            (0x760, 0x4_00d8_7947),
            (-0x750, 0xffff_fff8_002c_7947),
            (-0x10, 0xffff_fffc_00fc_7947),
        ] {
            let [wait, branch] = code(distance + 32);
            assert_eq!(wait, ACQBULK);
            // CAST: the lower half.
            assert_eq!(branch as u64, seen, "{distance:#x}");
            let high = if distance < 0 { 0x383_ffff } else { 0x380_0000 };
            assert_eq!(branch >> 64, 0x000f_ea00_0000_0000 | high, "{distance:#x}");
        }
    }

    #[test]
    fn gates_lie_behind_the_image() {
        let gates = Gates::new(0x1234, 3);
        assert_eq!([0, 1, 2].map(|at| gates.of(at)), [0x1280, 0x1300, 0x1380]);
        assert_eq!(gates.end(), 0x1400 + cubin::PREFETCH_SLACK_BYTES);
        assert_eq!(range(0x1280), 0x1280..0x1300);
    }
}
