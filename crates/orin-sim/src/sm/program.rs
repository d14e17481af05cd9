//! Instruction fetch: decodes code pages on first use and keeps them.
//!
//! Code does not change while a grid runs (the driver invalidates the instruction cache between
//! launches), so each page of 4 KiB is read and decoded once per launch.

use std::collections::HashMap;

use super::SmFaultCause;
use super::coverage::Coverage;
use super::decode::{Instruction, Refusal, decode};
use crate::mmu::{MmuFault, PAGE_BYTES, View};

/// Instructions of a page.
const PER_PAGE: usize = 256;

/// One place of a page: the instruction, or why there is none.
type Slot = Result<Instruction, (Refusal, u128)>;

/// The decoded pages of a launch.
#[derive(Debug, Default)]
pub(crate) struct Program {
    pages: Vec<Box<[Slot]>>,
    /// Index in `pages` by page number.
    index: HashMap<u64, usize>,
    /// Page number and index of the page used last.
    last: Option<(u64, usize)>,
    /// Registers that the launch gives each thread.
    registers: u32,
    /// Gives the numbers under which executions are counted, if they are.
    coverage: Option<Coverage>,
}

impl Program {
    /// No pages yet. Instructions that touch register `registers` or above are refused.
    pub(crate) fn new(registers: u32, coverage: Option<Coverage>) -> Self {
        Self { registers, coverage, ..Self::default() }
    }

    /// The instruction at `pc`.
    ///
    /// # Errors
    ///
    /// When there is none, or it cannot be executed.
    #[inline(always)]
    pub(crate) fn fetch(&mut self, memory: &View, pc: u64) -> Result<&Instruction, SmFaultCause> {
        let number = pc / PAGE_BYTES;
        let page = match self.last {
            Some((last, page)) if last == number => page,
            _ => self.find(memory, number)?,
        };
        if !pc.is_multiple_of(16) {
            return Err(SmFaultCause::InvalidPc);
        }
        // CAST: 8 bits.
        match &self.pages[page][(pc / 16) as usize % PER_PAGE] {
            Ok(instruction)
                if instruction.top_register().is_none_or(|top| u32::from(top) < self.registers) =>
            {
                Ok(instruction)
            }
            Ok(instruction) => Err(SmFaultCause::OutOfRange {
                space: "register",
                offset: u64::from(instruction.top_register().unwrap_or(0)),
                bytes: 4,
            }),
            Err((Refusal::Illegal, word)) => Err(SmFaultCause::IllegalInstruction { word: *word }),
            Err((Refusal::Unmodelled(mnemonic), word)) => {
                Err(SmFaultCause::Unmodelled { mnemonic, word: *word })
            }
        }
    }

    #[cold]
    fn find(&mut self, memory: &View, number: u64) -> Result<usize, SmFaultCause> {
        let page = match self.index.get(&number) {
            Some(&page) => page,
            None => {
                let mut bytes = vec![0; PER_PAGE * 16];
                match memory.read(number * PAGE_BYTES, &mut bytes) {
                    Ok(()) => {}
                    Err(MmuFault { .. }) => return Err(SmFaultCause::InvalidPc),
                }
                let slots = bytes.chunks_exact(16).map(|bytes| {
                    let word = u128::from_le_bytes(bytes.try_into().expect("16 bytes"));
                    let instruction = decode(word).map_err(|refusal| (refusal, word))?;
                    Ok(match &self.coverage {
                        Some(coverage) => instruction.counted(coverage.number(word)),
                        None => instruction,
                    })
                });
                self.pages.push(slots.collect());
                self.index.insert(number, self.pages.len() - 1);
                self.pages.len() - 1
            }
        };
        self.last = Some((number, page));
        Ok(page)
    }
}
