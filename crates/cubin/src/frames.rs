//! Stack frames, derived from the code.
//!
//! Register 1 is the stack pointer. A function with a frame begins with `IADD3 R1, R1, -bytes, RZ`, on sm_90
//! sometimes with `VIADD R1, R1, -bytes`: opcode in bits 0 to 11, predicate in 12 to 15, destination and first source
//! in 16 to 31, immediate in 32 to 63. For functions in the section of the kernel that calls them, NVRTC 12.6 to 13.0
//! record a FRAME_SIZE of 0 on sm_90, so the code is the only source.

use crate::elf::u32_at;

/// Opcode of IADD3 with an immediate.
const IADD3: u32 = 0x810;
/// Opcode of VIADD with an immediate.
const VIADD: u32 = 0x836;
/// Destination and first source: R1.
const R1_R1: u32 = 0x0101 << 16;

/// Largest number of bytes by which one instruction of the code lowers the stack pointer.
pub(crate) fn frame_bytes(code: &[u8]) -> u32 {
    let frame = |instruction: &[u8]| {
        let opcode = u32_at(instruction, 0)? & 0xffff_0fff;
        let moved = u32_at(instruction, 4)?.cast_signed();
        let is_move = opcode == R1_R1 | IADD3 || opcode == R1_R1 | VIADD;
        (is_move && moved < 0).then_some(moved.unsigned_abs())
    };
    code.chunks_exact(16).filter_map(frame).max().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moves_of_the_stack_pointer_are_seen() {
        let code = |words: &[(u32, i32)]| {
            let bytes = |&(word, immediate): &(u32, i32)| {
                [word.to_le_bytes(), immediate.to_le_bytes(), [0; 4], [0; 4]].concat()
            };
            words.iter().flat_map(bytes).collect::<alloc::vec::Vec<_>>()
        };
        // IADD3 and VIADD down, IADD3 up again, IADD3 of other registers, MOV of a negative number.
        assert_eq!(frame_bytes(&code(&[(0x0101_7810, -0x18), (0x0101_7810, 0x18)])), 0x18);
        assert_eq!(frame_bytes(&code(&[(0x0101_0836, -0x20), (0x0101_7810, -0x18)])), 0x20);
        assert_eq!(frame_bytes(&code(&[(0x0102_7810, -8), (0x0201_7810, -8), (0x0101_7802, -8)])), 0);
        assert_eq!(frame_bytes(&[0x10, 0x78, 1, 1]), 0);
    }
}
