//! Shapes of the tensor-core instructions.

use crate::field as f;
use crate::instruction::Instruction;
use crate::op::Op;

/// The matrices of one tensor-core instruction, in registers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fragment {
    /// Rows of A, C and D: 8 or 16.
    pub rows: u8,
    /// Registers of A.
    pub a: u8,
    /// Registers of B.
    pub b: u8,
    /// Registers of C and of D.
    pub c: u8,
}

impl Instruction {
    /// Returns whether A of HMMA or IMMA is sparse.
    pub fn is_sparse(&self) -> bool {
        match self.op {
            Op::Hmma => self.bit(f::HMMA_SPARSE),
            Op::Imma => self.bit(f::IMMA_SPARSE),
            _ => false,
        }
    }

    /// Returns the matrices of HMMA, IMMA and BMMA; `None` for shapes that are not modelled.
    pub fn fragment(&self) -> Option<Fragment> {
        let sparse = self.is_sparse();
        // B has eight columns of k elements; a register of all lanes holds 128 bits of each.
        let (rows, row_bits) = match self.op {
            Op::Hmma => {
                let k = match (self.bit(f::HMMA_SHAPE_HIGH), self.bit(f::MMA_SHAPE_LOW)) {
                    (false, false) => 8,
                    (false, true) => 16,
                    (true, false) => 4,
                    (true, true) => 32,
                };
                (16, k * if self.bits(f::HMMA_TYPE) == 2 { 32 } else { 16 })
            }
            Op::Imma => {
                let (rows, k) = match (self.bits(f::IMMA_SHAPE_HIGH), self.bit(f::MMA_SHAPE_LOW)) {
                    (0, false) => (8, 16),
                    (1, false) => (8, 32),
                    (2, false) => (16, 16),
                    (2, true) => (16, 32),
                    (3, false) => (16, 64),
                    (3, true) => (16, 128),
                    _ => return None,
                };
                (rows, k * if self.bit(f::IMMA_A_SMALL) { 4 } else { 8 })
            }
            Op::Bmma => match self.bits(f::BMMA_SHAPE) {
                0 => (8, 128),
                1 => (16, 128),
                2 => (16, 256),
                _ => return None,
            },
            _ => return None,
        };
        // A sparse A has half of the elements that B has.
        let (b, a) = match (row_bits, sparse) {
            (128, false) => (1, rows / 8),
            (256, false) => (2, rows / 4),
            (256, true) if rows == 16 => (2, 2),
            (512, true) if rows == 16 => (4, 4),
            _ => return None,
        };
        // An 8-row result has two words per lane; one of binary16 has two elements per word.
        let c = if rows == 8 || self.op == Op::Hmma && !self.bit(f::HMMA_SINGLE) { 2 } else { 4 };
        Some(Fragment { rows, a, b, c })
    }
}
