//! Instruction fetch.
//!
//! SMs fetch through instruction caches that the compute class invalidates on request (INVALIDATE_SHADER_CACHES). A
//! driver that writes code invalidates them before the launch. The model re-reads memory for each grid: it reads a 4
//! KiB page when the grid first fetches from it, as if an invalidation preceded every launch. The fetched code of a
//! running grid does not change.
//!
//! Decoding a page takes much longer than reading it, so decoded pages are kept across launches ([`CodeCache`]). A
//! cached page is reused only if memory still contains the bytes that it was decoded from. The address alone is not
//! sufficient, because another address space or a newly loaded program may have different code there.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use parking_lot::Mutex;
use sass::Refusal;

use super::constants::Constants;
use super::exec::steps::{Compiled, Frame, Pool, Run, Source, Steps, is_supported};
use super::fetched::Fetched;
use super::warp::Row;
use super::{SmFaultCause, SmOptions, Sms, Tier};
use crate::check::Unit;
use crate::check::{Checker, Tools};
use crate::mmu::{PAGE_BYTES, View};

/// Instructions per page.
const PER_PAGE: usize = 256;

/// Capacity of the cache in pages: 16 MiB of code. The cache is emptied when it is full.
const KEPT: usize = 4096;

/// A slot of a page: the instruction, or the reason why there is none.
pub(super) type Slot = Result<Fetched, (Refusal, u128)>;

// One cache line: larger slots slow the interpreter's loop down.
const _: () = assert!(size_of::<Slot>() == 64);

/// A decoded page.
#[derive(Debug)]
struct Page {
    /// Source bytes.
    bytes: Vec<u8>,
    slots: Box<[Slot]>,
    /// Code generated from them.
    compiled: Compiled,
}

impl Page {
    fn decode(bytes: Vec<u8>, options: &SmOptions) -> Self {
        let coverage = options.coverage.as_ref();
        let tools = options.check.as_ref().map_or(Tools::empty(), Checker::tools);
        // PANIC: the chunks have 16 bytes.
        let word = |bytes: &[u8]| u128::from_le_bytes(bytes.try_into().expect("16 bytes"));
        let slots = bytes.chunks_exact(16).map(word).map(|word| {
            let instruction = sass::decode(word).map_err(|refusal| (refusal, word))?;
            let number = coverage.map(|coverage| coverage.number(word));
            Ok(Fetched::new(instruction, number, tools, options.profile.is_some()))
        });
        let slots = slots.collect();
        Self { bytes, slots, compiled: Compiled::default() }
    }
}

/// The decoded pages of a GPU.
#[derive(Debug, Default)]
pub(super) struct CodeCache(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    /// Pages by number. Pages at the same address belong to different address spaces or times.
    pages: HashMap<u64, Vec<Arc<Page>>>,
    count: usize,
    /// Pages decoded so far.
    decoded: u64,
}

impl CodeCache {
    /// Returns the number of pages decoded since the GPU was powered up.
    pub(super) fn decoded(&self) -> u64 {
        self.0.lock().decoded
    }

    /// Returns page `number` with the current contents of memory.
    fn page(&self, memory: &View, number: u64, options: &SmOptions) -> Result<Arc<Page>, SmFaultCause> {
        let mut bytes = vec![0; PER_PAGE * 16];
        // Addresses have 49 bits.
        if number >= 1 << 37 {
            return Err(SmFaultCause::PcOverflow);
        }
        let memory = memory.watched_as(Unit::Instruction);
        memory.read(number * PAGE_BYTES, &mut bytes).map_err(SmFaultCause::Mmu)?;
        let mut kept = self.0.lock();
        let same = |page: &&Arc<Page>| page.bytes == bytes;
        if let Some(page) = kept.pages.get(&number).and_then(|pages| pages.iter().find(same)) {
            return Ok(Arc::clone(page));
        }
        if kept.count == KEPT {
            kept.pages.clear();
            kept.count = 0;
        }
        kept.count += 1;
        kept.decoded += 1;
        let page = Arc::new(Page::decode(bytes, options));
        kept.pages.entry(number).or_default().push(Arc::clone(&page));
        Ok(page)
    }
}

/// An empty page, which no fetch reaches.
static NONE: LazyLock<Arc<Page>> = LazyLock::new(|| {
    Arc::new(Page { bytes: Vec::new(), slots: Box::default(), compiled: Compiled::default() })
});

/// A page of a grid's code.
#[derive(Debug)]
struct Opened {
    number: u64,
    page: Arc<Page>,
    steps: Steps,
}

/// The code of a grid, as seen by one thread.
#[derive(Debug)]
pub(crate) struct Program {
    /// Number of the page used last.
    number: u64,
    /// The page used last.
    page: Arc<Page>,
    /// Index of the page used last among the pages.
    current: usize,
    /// The pages fetched from so far.
    pages: Vec<Opened>,
    /// Whether and how runs of instructions are prepared.
    tier: Tier,
    /// Constants of prepared runs.
    pool: Pool,
    /// Operands of generated code.
    frame: Box<Frame>,
    /// Registers per thread of the launch.
    registers: u32,
    memory: View,
    sms: Arc<Sms>,
}

impl Program {
    /// Creates a program without pages. Instructions that use register `registers` or above are refused.
    pub(crate) fn new(sms: Arc<Sms>, memory: View, registers: u32, constants: &Constants) -> Self {
        let mut frame = Frame::new();
        frame.set_constants(constants);
        let tier = if is_supported() { sms.options.tier } else { Tier::Interpreter };
        Self {
            number: u64::MAX,
            page: Arc::clone(&NONE),
            current: 0,
            pages: Vec::new(),
            tier,
            pool: Pool::default(),
            frame,
            registers,
            memory,
            sms,
        }
    }

    /// Whether and how runs of instructions are prepared.
    #[inline(always)]
    pub(super) fn tier(&self) -> Tier {
        self.tier
    }

    /// Returns the operands of generated code.
    pub(super) fn frame(&mut self) -> &mut Frame {
        &mut self.frame
    }

    /// Selects another tier. Returns the old one.
    pub(super) fn set_tier(&mut self, tier: Tier) -> Tier {
        core::mem::replace(&mut self.tier, tier)
    }

    /// Returns the run at `pc`, the rows of constants and the frame of generated code; `None` if the interpreter must
    /// execute the instruction there.
    #[inline(always)]
    pub(super) fn run_at(
        &mut self,
        pc: u64,
        constants: &Constants,
    ) -> Option<(Run<'_>, &mut [Row], &mut Frame)> {
        if pc / PAGE_BYTES != self.number || !pc.is_multiple_of(16) {
            return None;
        }
        let Opened { page, steps, .. } = &mut self.pages[self.current];
        let Page { slots, compiled, .. } = &**page;
        let (registers, eager) = (self.registers, self.tier == Tier::Both);
        let source = Source { slots, compiled, registers, constants, eager };
        // CAST: 8 bits.
        let run = steps.run_at(&source, (pc / 16) as usize % PER_PAGE, &mut self.pool)?;
        Some((run, self.pool.rows(), &mut self.frame))
    }

    /// Returns the instruction at `pc`.
    ///
    /// # Errors
    ///
    /// Returns a fault if there is no instruction, or if it cannot be executed.
    #[inline(always)]
    pub(super) fn fetch(&mut self, pc: u64) -> Result<&Fetched, SmFaultCause> {
        if pc / PAGE_BYTES != self.number {
            self.turn_to(pc / PAGE_BYTES)?;
        }
        // CAST: 8 bits.
        match &self.page.slots[(pc / 16) as usize % PER_PAGE] {
            Ok(instruction)
                if pc.is_multiple_of(16)
                    && instruction.top_register().is_none_or(|top| u32::from(top) < self.registers) =>
            {
                Ok(instruction)
            }
            slot => Err(refusal(slot, pc)),
        }
    }

    /// Makes page `number` the current one.
    #[cold]
    fn turn_to(&mut self, number: u64) -> Result<(), SmFaultCause> {
        let current = match self.pages.iter().position(|opened| opened.number == number) {
            Some(at) => at,
            None => {
                let page = self.sms.code.page(&self.memory, number, &self.sms.options)?;
                self.pages.push(Opened { number, page, steps: Steps::default() });
                self.pages.len() - 1
            }
        };
        (self.number, self.current, self.page) = (number, current, Arc::clone(&self.pages[current].page));
        Ok(())
    }
}

/// Returns the fault for a slot that cannot be executed.
#[cold]
fn refusal(slot: &Slot, pc: u64) -> SmFaultCause {
    match slot {
        _ if !pc.is_multiple_of(16) => SmFaultCause::MisalignedPc,
        Ok(instruction) => SmFaultCause::OutOfRange {
            space: "register",
            offset: u64::from(instruction.top_register().unwrap_or(0)),
            bytes: 4,
        },
        Err((Refusal::MisalignedRegister, word)) => SmFaultCause::MisalignedRegister { word: *word },
        Err((Refusal::Unmodelled(mnemonic), word)) => SmFaultCause::Unmodelled { mnemonic, word: *word },
        Err((_, word)) => SmFaultCause::IllegalInstruction { word: *word },
    }
}
