//! Processors for which no code is generated: there are no blocks.

use std::sync::Arc;

use super::Machine;
use crate::sm::constants::Constants;
use crate::sm::program::Slot;

/// A block, of which there is none.
#[derive(Debug)]
pub(super) enum Block {}

/// The operands of a block.
#[derive(Debug)]
pub(in crate::sm) struct Frame;

impl Frame {
    pub(in crate::sm) fn new() -> Box<Self> {
        Box::new(Self)
    }
}

impl Block {
    pub(super) fn length(&self) -> usize {
        match *self {}
    }

    pub(super) fn fits(&self, _constants: &Constants) -> bool {
        match *self {}
    }

    /// # Safety
    ///
    /// There is no block.
    pub(super) unsafe fn execute(&self, _m: &mut Machine, _frame: &mut Frame, _mask: u32) -> Option<u64> {
        match *self {}
    }
}

/// The blocks of a page of code.
#[derive(Debug, Default)]
pub(in crate::sm) struct Compiled;

impl Compiled {
    pub(super) fn block(&self, _at: usize) -> Option<&Arc<Block>> {
        None
    }

    pub(super) fn warm(&self, _slots: &[Slot], _at: usize, _length: usize, _eager: bool) -> bool {
        true
    }
}
