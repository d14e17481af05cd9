//! Inline-to-memory: data in the pushbuffer itself.
//!
//! LAUNCH_DMA of the compute class starts an upload of LINE_COUNT lines of LINE_LENGTH_IN bytes. LOAD_INLINE_DATA then
//! provides the bytes, four at a time. The last word of an upload may be used partially. The upload happens in the
//! front end: it does not wait for earlier grids.

use std::sync::Arc;

use ampere_cmd::compute_c7c0 as class;
use ampere_cmd::method::Method;

use ampere_cmd::words::join;

use crate::check::{Checker, Rows};
use crate::check::{Unit, Watch};
use crate::gpu::decoder::{MethodWord, Shadow};
use crate::gpu::semaphore::{Operation, Reduction, SemaphoreWrite, Structure};
use crate::gpu::{ChannelFault, Effects};
use crate::mmu::{Access, View};

/// An upload that expects data.
#[derive(Debug)]
pub(super) struct InlineUpload {
    /// Start of the current line.
    line: u64,
    pitch: u64,
    /// Bytes per line.
    length: u64,
    /// Number of incomplete lines, including the current one.
    lines: u32,
    /// Number of bytes written in the current line.
    done: u64,
    semaphore: Option<SemaphoreWrite>,
    interrupt: bool,
    /// The upload's watch, with the order check.
    watch: Option<Arc<Watch>>,
}

impl InlineUpload {
    /// Starts an upload as described by LAUNCH_DMA `word` and the state before it.
    ///
    /// # Errors
    ///
    /// The fault of a launch that is refused by the class or not modelled.
    pub(super) fn launch(word: MethodWord, shadow: &Shadow, view: &View) -> Result<Self, ChannelFault> {
        let launch = class::LaunchDma::decode(word.data);
        if launch.dst_memory_layout != class::LaunchDmaDstMemoryLayout::Pitch {
            return Err(word.fault("DST_MEMORY_LAYOUT: block-linear surfaces are not modelled"));
        }
        let length = u64::from(shadow.get::<class::LineLengthIn>().value);
        let lines = shadow.get::<class::LineCount>().value;
        if length == 0 || lines == 0 {
            return Err(word.fault("LINE_LENGTH_IN and LINE_COUNT must not be zero"));
        }
        if lines > 1 && !length.is_multiple_of(4) {
            return Err(word.fault("several lines of partial words are not modelled"));
        }
        let semaphore = match launch.completion_type {
            class::LaunchDmaCompletionType::FlushDisable | class::LaunchDmaCompletionType::FlushOnly => None,
            class::LaunchDmaCompletionType::ReleaseSemaphore => Some(semaphore(word, &launch, shadow)?),
            class::LaunchDmaCompletionType::Unknown(_) => {
                return Err(word.fault("there is no such COMPLETION_TYPE"));
            }
        };
        let interrupt = match launch.interrupt_type {
            class::LaunchDmaInterruptType::None => false,
            class::LaunchDmaInterruptType::Interrupt => true,
            class::LaunchDmaInterruptType::Unknown(_) => {
                return Err(word.fault("there is no such INTERRUPT_TYPE"));
            }
        };
        Ok(Self {
            line: join(shadow.get::<class::OffsetOutUpper>().value, shadow.get::<class::OffsetOut>().value),
            pitch: u64::from(shadow.get::<class::PitchOut>().value),
            length,
            lines,
            done: 0,
            semaphore,
            interrupt,
            watch: view.watch().map(|watch| watch.issue("an inline upload".to_owned(), Unit::Transfer)),
        })
    }

    /// Checks the target against the objects.
    pub(super) fn check(&self, checker: &Checker, view: &View) {
        let rows = Rows { va: self.line, pitch: self.pitch, bytes: self.length, count: self.lines };
        checker.transfer(view, "upload", rows, Access::Write);
        checker.transferred(view, None, rows);
        checker.transfer_under_view(view, "upload", rows);
    }

    /// Processes one word of data. Returns whether it was the last one.
    ///
    /// # Errors
    ///
    /// The MMU fault of the write or of the semaphore after it.
    pub(super) fn data(
        &mut self,
        data: u32,
        view: &View,
        effects: &mut Effects,
    ) -> Result<bool, ChannelFault> {
        let mmu = |fault| ChannelFault::Mmu { client: "compute", fault };
        let view = &view.watched_by(self.watch.clone());
        let bytes = data.to_le_bytes();
        // CAST: at most 4.
        let len = (self.length - self.done).min(4) as usize;
        view.write(self.line.wrapping_add(self.done), &bytes[..len]).map_err(mmu)?;
        self.done += len as u64;
        if self.done < self.length {
            return Ok(false);
        }
        self.done = 0;
        self.line = self.line.wrapping_add(self.pitch);
        self.lines -= 1;
        if self.lines > 0 {
            return Ok(false);
        }
        if let Some(watch) = &self.watch {
            watch.finished_in_order();
        }
        if let Some(semaphore) = self.semaphore {
            semaphore.perform(view).map_err(mmu)?;
        }
        effects.interrupts += u32::from(self.interrupt);
        Ok(true)
    }
}

fn semaphore(
    word: MethodWord,
    launch: &class::LaunchDma,
    shadow: &Shadow,
) -> Result<SemaphoreWrite, ChannelFault> {
    let structure = match launch.semaphore_struct_size {
        class::LaunchDmaSemaphoreStructSize::OneWord => Structure::OneWord,
        _ => Structure::FourWords,
    };
    let reduction = if launch.reduction_enable {
        let operation = Operation::of::<class::LaunchDma>("REDUCTION_OP", launch.reduction_op.bits())
            .ok_or_else(|| word.fault("there is no such REDUCTION_OP"))?;
        let signed = match launch.reduction_format {
            class::LaunchDmaReductionFormat::Unsigned32 => false,
            class::LaunchDmaReductionFormat::Signed32 => true,
            class::LaunchDmaReductionFormat::Unknown(_) => {
                return Err(word.fault("there is no such REDUCTION_FORMAT"));
            }
        };
        Some(Reduction { operation, signed })
    } else {
        None
    };
    let write = SemaphoreWrite {
        va: join(
            shadow.get::<class::SetI2mSemaphoreA>().offset_upper,
            shadow.get::<class::SetI2mSemaphoreB>().offset_lower,
        ),
        payload: u64::from(shadow.get::<class::SetI2mSemaphoreC>().payload),
        wide: false,
        structure,
        reduction,
    };
    match write.refusal() {
        Some(reason) => Err(word.fault(format!("semaphore at {:#x}: {reason}", write.va))),
        None => Ok(write),
    }
}
