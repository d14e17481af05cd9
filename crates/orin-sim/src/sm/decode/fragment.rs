//! Shapes of the tensor-core instructions.

use super::Instruction;
use super::table::Op;

/// The fragments of one matrix instruction in registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fragment {
    /// Rows of A, C and D: 8 or 16.
    pub(crate) rows: u8,
    /// Registers of A.
    pub(crate) a: u8,
    /// Registers of B.
    pub(crate) b: u8,
    /// Registers of C and of D.
    pub(crate) c: u8,
}

impl Instruction {
    /// The fragments of HMMA, IMMA and BMMA; `None` for shapes that are not modelled.
    pub(crate) fn fragment(&self) -> Option<Fragment> {
        // B has eight columns of k elements; a register of all lanes holds 128 bits of each.
        let (rows, row_bits) = match self.op {
            Op::Hmma => {
                let k = match (self.bit(78), self.bit(75)) {
                    (false, false) => 8,
                    (false, true) => 16,
                    (true, false) => 4,
                    (true, true) => return None,
                };
                (16, k * if self.bits(82, 2) == 2 { 32 } else { 16 })
            }
            Op::Imma => {
                let (rows, k) = match (self.bits(85, 2), self.bit(75)) {
                    (0, false) => (8, 16),
                    (1, false) => (8, 32),
                    (2, false) => (16, 16),
                    (2, true) => (16, 32),
                    (3, false) => (16, 64),
                    _ => return None,
                };
                (rows, k * if self.bit(83) { 4 } else { 8 })
            }
            Op::Bmma => match self.bits(75, 2) {
                0 => (8, 128),
                1 => (16, 128),
                2 => (16, 256),
                _ => return None,
            },
            _ => return None,
        };
        let b = match row_bits {
            128 => 1,
            256 => 2,
            _ => return None,
        };
        // An 8-row result has two words per lane; one of binary16 has two elements per word.
        let c = if rows == 8 || self.op == Op::Hmma && !self.bit(76) { 2 } else { 4 };
        Some(Fragment { rows, a: b * (rows / 8), b, c })
    }
}
