//! Operands of steps, found in advance.

use std::collections::HashMap;

use sass::{Source, URZ};

use crate::sm::constants::Constants;
use crate::sm::exec::float::SignMask;
use crate::sm::warp::Row;

/// An operand: the number of a register, or [`REGISTERS`] plus the index of a row of the pool.
pub(super) type Operand = u16;

/// Number of general registers, with RZ.
pub(super) const REGISTERS: usize = 256;

/// Rows of immediates and constants, one for each value, two for uniform registers, and those of lanes to read.
#[derive(Debug)]
pub(in crate::sm) struct Pool {
    rows: Vec<Row>,
    known: HashMap<u32, Operand>,
    shuffles: HashMap<Row, Operand>,
}

impl Pool {
    /// Most rows: 128 KiB. Instructions with further constants are left to the interpreter.
    const ROWS: usize = 1024;

    /// The rows of uniform registers, as operands.
    pub(super) const SPREAD: [Operand; 2] = [256, 257];

    /// Returns all rows.
    pub(in crate::sm) fn rows(&mut self) -> &mut [Row] {
        &mut self.rows
    }

    /// Returns the operand of a value that is the same for all lanes; `None` if the pool is full.
    pub(super) fn value(&mut self, value: u32) -> Option<Operand> {
        if let Some(&operand) = self.known.get(&value) {
            return Some(operand);
        }
        if self.rows.len() == Self::ROWS {
            return None;
        }
        let operand = self.push([value; 32]);
        self.known.insert(value, operand);
        Some(operand)
    }

    /// Returns the operand of a row; `None` if the pool is full.
    pub(super) fn row(&mut self, row: Row) -> Option<Operand> {
        if let Some(&operand) = self.shuffles.get(&row) {
            return Some(operand);
        }
        if self.rows.len() == Self::ROWS {
            return None;
        }
        let operand = self.push(row);
        self.shuffles.insert(row, operand);
        Some(operand)
    }

    fn push(&mut self, row: Row) -> Operand {
        self.rows.push(row);
        // CAST: below 1280.
        (REGISTERS + self.rows.len() - 1) as Operand
    }
}

impl Default for Pool {
    fn default() -> Self {
        Self { rows: vec![[0; 32]; 2], known: HashMap::new(), shuffles: HashMap::new() }
    }
}

/// Where the operands of a step come from.
pub(super) trait Sources {
    /// Returns the operand of a value that is the same for all lanes; `None` if there is no room for it.
    fn value(&mut self, value: u32) -> Option<Operand>;

    /// Returns the operand of a source with a sign, and the part of the sign that the step must apply.
    fn signed(&mut self, source: Source, sign: SignMask) -> Option<(Operand, SignMask)>;

    /// Returns the operands of a constant of 64 bits.
    fn double(&mut self, bank: u8, offset: u16) -> Option<[Operand; 2]>;

    /// Returns the value of an immediate or constant source; `None` if it is not known in advance.
    fn scalar(&self, source: Source) -> Option<u32>;

    /// Returns the operand of a source.
    fn operand(&mut self, source: Source) -> Option<Operand> {
        Some(self.signed(source, SignMask::NONE)?.0)
    }
}

/// Sources of a step for one launch, whose constants are known.
#[derive(Debug)]
pub(super) struct OfLaunch<'p> {
    pub(super) pool: &'p mut Pool,
    pub(super) constants: &'p Constants,
    /// Uniform registers copied to [`Pool::SPREAD`]; URZ for none.
    pub(super) spread: [u8; 2],
}

impl Sources for OfLaunch<'_> {
    fn value(&mut self, value: u32) -> Option<Operand> {
        self.pool.value(value)
    }

    fn signed(&mut self, source: Source, sign: SignMask) -> Option<(Operand, SignMask)> {
        Some(match source {
            Source::Register(number) => (number.into(), sign),
            Source::Uniform(URZ) => (self.value(sign.bits(0))?, SignMask::NONE),
            Source::Uniform(number) => {
                let free = self.spread.iter().position(|&used| used == URZ)?;
                self.spread[free] = number;
                (Pool::SPREAD[free], sign)
            }
            other => (self.pool.value(sign.bits(self.scalar(other)?))?, SignMask::NONE),
        })
    }

    fn double(&mut self, bank: u8, offset: u16) -> Option<[Operand; 2]> {
        let value = self.constants.double(bank, offset.into()).ok()?;
        // CAST: the halves of the value.
        Some([self.value(value as u32)?, self.value((value >> 32) as u32)?])
    }

    fn scalar(&self, source: Source) -> Option<u32> {
        match source {
            Source::Immediate(value) => Some(value),
            Source::Constant { bank, offset } => self.constants.word(bank, offset.into()).ok(),
            Source::Register(_) | Source::Uniform(_) => None,
        }
    }
}
