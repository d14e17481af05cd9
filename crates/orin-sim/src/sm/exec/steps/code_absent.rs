//! Processors for which no code is generated: there are no blocks.

use std::sync::Arc;

use super::Machine;
use crate::sm::constants::Constants;
use crate::sm::program::Slot;

/// A block, of which there is none.
#[derive(Debug)]
pub(super) enum Block {}

/// What blocks have executed.
pub(super) struct Executed {
    pub(super) instructions: usize,
    pub(super) lanes: u64,
    pub(super) slot: usize,
}

/// The operands of a block.
#[derive(Debug)]
pub(in crate::sm) struct Frame;

pub(super) fn bytes() -> usize {
    0
}

/// What stores of blocks have overwritten.
#[derive(Debug)]
pub(in crate::sm) struct Journal;

impl Journal {
    pub(in crate::sm) fn exchange(&mut self) {}

    pub(in crate::sm) fn differs(&self) -> bool {
        false
    }
}

impl Frame {
    pub(in crate::sm) fn new() -> Box<Self> {
        Box::new(Self)
    }

    pub(in crate::sm) fn start_journal(&mut self) {}

    pub(in crate::sm) fn take_journal(&mut self) -> Journal {
        Journal
    }

    pub(in crate::sm) fn set_constants(&mut self, _constants: &Constants) {}
}

impl Block {
    pub(super) fn length(&self) -> usize {
        match *self {}
    }

    pub(super) fn fits(&self, _constants: &Constants) -> bool {
        match *self {}
    }

    pub(super) fn addresses(&self) -> [usize; 2] {
        match *self {}
    }

    /// # Safety
    ///
    /// There is no block.
    pub(super) unsafe fn execute(
        &self,
        _m: &mut Machine,
        _frame: &mut Frame,
        _entries: &[[usize; 2]],
        _budget: usize,
    ) -> Option<Executed> {
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
