//! Operands of steps, found in advance.

use std::collections::HashMap;

use sass::{Source, URZ};

use crate::sm::constants::Constants;
use crate::sm::warp::Row;

/// An operand: the number of a register, or [`REGISTERS`] plus the index of a row of the pool.
pub(super) type Operand = u16;

/// Number of general registers, with RZ.
pub(super) const REGISTERS: usize = 256;

/// Rows of immediates and constants, one for each value, and two for uniform registers.
#[derive(Debug)]
pub(in crate::sm) struct Pool {
    rows: Vec<Row>,
    known: HashMap<u32, Operand>,
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
        // CAST: below 1280.
        let operand = (REGISTERS + self.rows.len()) as Operand;
        self.rows.push([value; 32]);
        self.known.insert(value, operand);
        Some(operand)
    }

    /// Returns the value of an immediate or constant source; `None` for a register, and for a constant that faults.
    pub(super) fn scalar(source: Source, constants: &Constants) -> Option<u32> {
        match source {
            Source::Immediate(value) => Some(value),
            Source::Constant { bank, offset } => constants.word(bank, offset.into()).ok(),
            Source::Register(_) | Source::Uniform(_) => None,
        }
    }
}

impl Default for Pool {
    fn default() -> Self {
        Self { rows: vec![[0; 32]; 2], known: HashMap::new() }
    }
}

/// The uniform registers that a step copies to rows.
#[derive(Debug)]
pub(super) struct Sources<'p> {
    pub(super) pool: &'p mut Pool,
    pub(super) constants: &'p Constants,
    /// Uniform registers copied to [`Pool::SPREAD`]; URZ for none.
    pub(super) spread: [u8; 2],
}

impl Sources<'_> {
    /// Returns the operand of a source, of whose constants `modify` is taken; `None` if it has none.
    pub(super) fn operand(&mut self, source: Source, modify: impl Fn(u32) -> u32) -> Option<Operand> {
        match source {
            Source::Register(number) => Some(number.into()),
            Source::Uniform(URZ) => self.pool.value(modify(0)),
            Source::Uniform(number) => {
                let free = self.spread.iter().position(|&used| used == URZ)?;
                self.spread[free] = number;
                Some(Pool::SPREAD[free])
            }
            other => self.pool.value(modify(Pool::scalar(other, self.constants)?)),
        }
    }
}
