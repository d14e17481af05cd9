//! The copy engine (`AMPERE_DMA_COPY_B`, class 0xc7b5) on subchannel 4.
//!
//! Methods only set state. LAUNCH_DMA copies the state that it needs and queues a job: transfer, flush, semaphore and
//! interrupt, in this order. Jobs of a channel run sequentially, in slices, while host continues with the pushbuffer;
//! only a wait for idle waits for them. On silicon LAUNCH_DMA with pipelined transfers may overlap earlier ones.
//! Running in order is one of the legal outcomes.
//!
//! The model supports transfers between pitch-linear lines and block-linear surfaces in any combination, single and
//! multi-line, with virtual addresses, and remapping (memset and component swizzles). Physical addresses are refused,
//! because a user-space channel has no privilege for them. Conditional rendering, monitored fences, blocking interrupts
//! and conditional interrupts are refused by name.
//!
//! FLUSH_ENABLE, FLUSH_TYPE, FORCE_RMWDISABLE and DISABLE_PLC have no effect: memory is coherent, no byte is read only
//! to be written back, and there is no compression.

use std::collections::VecDeque;
use std::sync::{Arc, LazyLock};

use ampere_cmd::copy_c7b5 as class;
use ampere_cmd::method::Method;
use ampere_cmd::pushbuffer::Subchannel;

use ampere_cmd::words::join;

use crate::check::Checker;
use crate::check::{Unit, Watch};
use crate::gpu::decoder::{Decoder, MethodWord, Shadow};
use crate::gpu::semaphore::{Operation, Reduction, SemaphoreWrite, Structure};
use crate::gpu::surface::{Surface, SurfaceState};
use crate::gpu::transfer::{Component, Lines, Transfer, Work, components};
use crate::gpu::{ChannelFault, Effects, Refusal};
use crate::mmu::View;

/// Bytes that a job moves before other channels are served.
const SLICE_BYTES: u64 = 1 << 20;

/// Maximum number of queued jobs. Beyond that host stalls, as on silicon when the engine is busy.
const QUEUE_DEPTH: usize = 64;

/// Methods whose effect is not modelled.
const UNMODELLED: &[&str] = &["SET_MONITORED_FENCE_"];

static DECODER: LazyLock<Decoder> = LazyLock::new(|| Decoder::new(&class::CLASS_TABLE, UNMODELLED));

/// The work of one LAUNCH_DMA.
#[derive(Debug)]
struct Job {
    transfer: Option<Transfer>,
    semaphore: Option<SemaphoreWrite>,
    interrupt: bool,
    /// The job's watch, with the order check.
    watch: Option<Arc<Watch>>,
}

/// State of the copy engine in one channel.
#[derive(Debug)]
pub(super) struct Copy {
    shadow: Shadow,
    /// The checks of transfers, if enabled.
    checker: Option<Checker>,
    jobs: VecDeque<Job>,
}

impl Copy {
    pub(super) fn new(checker: Option<&Checker>) -> Self {
        Self { shadow: Shadow::new(&class::CLASS_TABLE), checker: checker.cloned(), jobs: VecDeque::new() }
    }

    /// Returns whether all jobs are done.
    pub(super) fn is_idle(&self) -> bool {
        self.jobs.is_empty()
    }

    /// Returns whether another job can be queued.
    pub(super) fn has_room(&self) -> bool {
        self.jobs.len() < QUEUE_DEPTH
    }

    /// Number of unfinished jobs.
    pub(super) fn pending(&self) -> usize {
        self.jobs.len()
    }

    /// Processes one method word.
    ///
    /// # Errors
    ///
    /// The fault of an undefined method, or of a refused launch.
    pub(super) fn method(&mut self, word: MethodWord, view: &View) -> Result<(), ChannelFault> {
        DECODER.check(word)?;
        self.shadow.set(word);
        match word.address {
            class::LaunchDma::ADDRESS => {
                let mut job = self.launch(word)?;
                job.watch = view.watch().map(|watch| account(word, watch));
                self.jobs.push_back(job);
            }
            class::SetRenderEnableC::ADDRESS => render_enable(word)?,
            // The older forms of the two origin methods, with 16-bit coordinates.
            class::SetSrcOrigin::ADDRESS => {
                let origin = class::SetSrcOrigin::decode(word.data);
                self.store::<class::SrcOriginX>(origin.x);
                self.store::<class::SrcOriginY>(origin.y);
            }
            class::SetDstOrigin::ADDRESS => {
                let origin = class::SetDstOrigin::decode(word.data);
                self.store::<class::DstOriginX>(origin.x);
                self.store::<class::DstOriginY>(origin.y);
            }
            _ => {}
        }
        Ok(())
    }

    /// Sets the state of a method as if it had been sent.
    fn store<M: Method>(&mut self, data: u32) {
        self.shadow.set(MethodWord { subchannel: Subchannel::COPY.index(), address: M::ADDRESS, data });
    }

    /// Works on the first job. Returns whether there was one.
    ///
    /// # Errors
    ///
    /// The MMU fault of a transfer or semaphore.
    pub(super) fn step(&mut self, view: &View, effects: &mut Effects) -> Result<bool, ChannelFault> {
        let mmu = |fault| ChannelFault::Mmu { client: "copy", fault };
        let Some(job) = self.jobs.front_mut() else { return Ok(false) };
        let view = &view.watched_by(job.watch.clone());
        if let Some(transfer) = &mut job.transfer {
            if let Some(checker) = &self.checker {
                transfer.check(checker, view);
            }
            if !transfer.step(view, SLICE_BYTES).map_err(mmu)? {
                return Ok(true);
            }
            job.transfer = None;
        }
        if let Some(watch) = &job.watch {
            watch.finished();
        }
        if let Some(semaphore) = job.semaphore {
            semaphore.perform(view).map_err(mmu)?;
        }
        effects.interrupts += u32::from(job.interrupt);
        self.jobs.pop_front();
        Ok(true)
    }

    fn launch(&self, word: MethodWord) -> Result<Job, ChannelFault> {
        let launch = class::LaunchDma::decode(word.data);
        let refuse = |reason: &str| Err(ChannelFault::Copy { reason: reason.to_owned() });
        if launch.reserved_start_of_copy != 0 || launch.reserved_err_code != 0 {
            return refuse("LAUNCH_DMA sets reserved bits");
        }
        if launch.vprmode != class::LaunchDmaVprmode::VprNone {
            return refuse("VPRMODE: video protected memory is not modelled");
        }
        let interrupt = match launch.interrupt_type {
            class::LaunchDmaInterruptType::None => false,
            class::LaunchDmaInterruptType::NonBlocking => true,
            _ => return refuse("INTERRUPT_TYPE: only NONE and NON_BLOCKING are modelled"),
        };
        let transfer = match launch.data_transfer_type {
            class::LaunchDmaDataTransferType::None => None,
            class::LaunchDmaDataTransferType::Pipelined | class::LaunchDmaDataTransferType::NonPipelined => {
                Some(self.transfer(word, &launch)?)
            }
            class::LaunchDmaDataTransferType::Unknown(_) => {
                return refuse("DATA_TRANSFER_TYPE 3 does not exist");
            }
        };
        Ok(Job { transfer, semaphore: self.semaphore(&launch)?, interrupt, watch: None })
    }

    fn semaphore(&self, launch: &class::LaunchDma) -> Result<Option<SemaphoreWrite>, ChannelFault> {
        let refuse = |reason: String| ChannelFault::Copy { reason };
        let wide = launch.semaphore_payload_size == class::LaunchDmaSemaphorePayloadSize::TwoWord;
        let structure = match launch.semaphore_type {
            class::LaunchDmaSemaphoreType::None => return Ok(None),
            class::LaunchDmaSemaphoreType::ReleaseSemaphoreWithTimestamp => Structure::FourWords,
            class::LaunchDmaSemaphoreType::ReleaseSemaphoreNoTimestamp if wide => Structure::TwoWords,
            class::LaunchDmaSemaphoreType::ReleaseSemaphoreNoTimestamp => Structure::OneWord,
            _ => return Err(refuse("SEMAPHORE_TYPE: conditional interrupts are not modelled".to_owned())),
        };
        let reduction = if launch.semaphore_reduction_enable {
            let signed = launch.semaphore_reduction_sign == class::LaunchDmaSemaphoreReductionSign::Signed;
            let bits = launch.semaphore_reduction.bits();
            let operation = Operation::of::<class::LaunchDma>("SEMAPHORE_REDUCTION", bits)
                .ok_or_else(|| refuse("SEMAPHORE_REDUCTION: there is no such reduction".to_owned()))?;
            Some(Reduction { operation, signed })
        } else {
            None
        };
        let upper = self.shadow.get::<class::SetSemaphorePayloadUpper>().payload;
        let write = SemaphoreWrite {
            va: join(
                self.shadow.get::<class::SetSemaphoreA>().upper,
                self.shadow.get::<class::SetSemaphoreB>().lower,
            ),
            payload: join(
                if wide { upper } else { 0 },
                self.shadow.get::<class::SetSemaphorePayload>().payload,
            ),
            wide,
            structure,
            reduction,
        };
        match write.refusal() {
            Some(reason) => Err(refuse(format!("semaphore at {:#x}: {reason}", write.va))),
            None => Ok(Some(write)),
        }
    }

    fn transfer(&self, word: MethodWord, launch: &class::LaunchDma) -> Result<Transfer, ChannelFault> {
        if launch.src_type == class::LaunchDmaSrcType::Physical
            || launch.dst_type == class::LaunchDmaDstType::Physical
        {
            let reason = "HCE_PRIV: physical addresses need a privileged channel";
            return Err(word.refused(Refusal::Privilege, reason));
        }
        let length = u64::from(self.shadow.get::<class::LineLengthIn>().value);
        let lines = if launch.multi_line_enable { self.shadow.get::<class::LineCount>().value } else { 1 };
        let rectangle = (length, lines);
        let remap = if launch.remap_enable { Some(self.remap()?) } else { None };
        let source_bytes = remap.as_ref().map_or(1, |remap| remap.size * remap.sources);
        let target_bytes = remap.as_ref().map_or(1, |remap| remap.size * remap.components.len());
        let source = || self.source(launch.src_memory_layout, source_bytes, rectangle);
        let work = match remap {
            None => Work::Copy(source()?),
            Some(Remap { size, sources, components }) => {
                let reads = components.iter().any(|component| matches!(component, Component::Source(_)));
                Work::Remap { source: reads.then(source).transpose()?, size, sources, components }
            }
        };
        let target = self.target(launch.dst_memory_layout, target_bytes, rectangle)?;
        Ok(Transfer::new(work, target, length, lines))
    }

    /// The source side, for elements of `element` bytes.
    fn source(
        &self,
        layout: class::LaunchDmaSrcMemoryLayout,
        element: usize,
        rectangle: (u64, u32),
    ) -> Result<Lines, ChannelFault> {
        let shadow = &self.shadow;
        let va = join(shadow.get::<class::OffsetInUpper>().upper, shadow.get::<class::OffsetInLower>().value);
        if layout == class::LaunchDmaSrcMemoryLayout::Pitch {
            return Ok(Lines::Pitch { va, pitch: u64::from(shadow.get::<class::PitchIn>().value) });
        }
        let state = SurfaceState {
            va,
            block_size: shadow.word::<class::SetSrcBlockSize>(),
            width: shadow.get::<class::SetSrcWidth>().v,
            height: shadow.get::<class::SetSrcHeight>().v,
            depth: shadow.get::<class::SetSrcDepth>().v,
            layer: shadow.get::<class::SetSrcLayer>().v,
            x: shadow.get::<class::SrcOriginX>().value,
            y: shadow.get::<class::SrcOriginY>().value,
        };
        surface("source", &state, element, rectangle)
    }

    /// The target side, for elements of `element` bytes.
    fn target(
        &self,
        layout: class::LaunchDmaDstMemoryLayout,
        element: usize,
        rectangle: (u64, u32),
    ) -> Result<Lines, ChannelFault> {
        let shadow = &self.shadow;
        let va =
            join(shadow.get::<class::OffsetOutUpper>().upper, shadow.get::<class::OffsetOutLower>().value);
        if layout == class::LaunchDmaDstMemoryLayout::Pitch {
            return Ok(Lines::Pitch { va, pitch: u64::from(shadow.get::<class::PitchOut>().value) });
        }
        let state = SurfaceState {
            va,
            block_size: shadow.word::<class::SetDstBlockSize>(),
            width: shadow.get::<class::SetDstWidth>().v,
            height: shadow.get::<class::SetDstHeight>().v,
            depth: shadow.get::<class::SetDstDepth>().v,
            layer: shadow.get::<class::SetDstLayer>().v,
            x: shadow.get::<class::DstOriginX>().value,
            y: shadow.get::<class::DstOriginY>().value,
        };
        surface("target", &state, element, rectangle)
    }

    /// The current remapping.
    fn remap(&self) -> Result<Remap, ChannelFault> {
        let refuse = |reason: &str| ChannelFault::Copy { reason: format!("SET_REMAP_COMPONENTS: {reason}") };
        let remap = self.shadow.get::<class::SetRemapComponents>();
        // The two-bit counts and sizes are stored minus one. CAST: at most 4.
        let count = |bits: u32| bits as usize + 1;
        let sources = count(remap.num_src_components.bits());
        let targets = count(remap.num_dst_components.bits());
        let selectors = [remap.dst_x.bits(), remap.dst_y.bits(), remap.dst_z.bits(), remap.dst_w.bits()];
        let constants =
            [self.shadow.get::<class::SetRemapConstA>().v, self.shadow.get::<class::SetRemapConstB>().v];
        for &selector in &selectors[..targets] {
            match selector {
                // CAST: below 4.
                0..=3 if selector as usize >= sources => {
                    return Err(refuse("a component beyond NUM_SRC_COMPONENTS is selected"));
                }
                0..=6 => {}
                _ => return Err(refuse("selector 7 does not exist")),
            }
        }
        let size = count(remap.component_size.bits());
        Ok(Remap { size, sources, components: components(&selectors[..targets], constants) })
    }
}

/// The settings of SET_REMAP_COMPONENTS.
struct Remap {
    /// Bytes of a component.
    size: usize,
    /// Components of a source element.
    sources: usize,
    /// Components of a target element.
    components: Vec<Component>,
}

/// SET_RENDER_ENABLE_C. A channel starts with TRUE.
fn render_enable(word: MethodWord) -> Result<(), ChannelFault> {
    match class::SetRenderEnableC::decode(word.data).mode {
        class::SetRenderEnableCMode::True => Ok(()),
        class::SetRenderEnableCMode::Unknown(_) => {
            Err(word.refused(Refusal::RenderOperation, "HCE_RE_ILLEGAL_OP: there is no such MODE"))
        }
        _ => Err(word.fault("conditional rendering is not modelled")),
    }
}

/// A block-linear side. Widths and origins count elements, which are bytes without remapping.
fn surface(
    side: &str,
    state: &SurfaceState,
    element: usize,
    rectangle: (u64, u32),
) -> Result<Lines, ChannelFault> {
    // CAST: an element has at most 16 bytes.
    let surface = Surface::new(state, element as u64, rectangle)
        .map_err(|reason| ChannelFault::Copy { reason: format!("block-linear {side}: {reason}") })?;
    Ok(Lines::Blocks(surface))
}

/// Creates the watch of a job, for the order check. Only pipelined transfers may overlap earlier ones.
fn account(word: MethodWord, watch: &Watch) -> Arc<Watch> {
    let name = "a copy".to_owned();
    if class::LaunchDma::decode(word.data).data_transfer_type == class::LaunchDmaDataTransferType::Pipelined {
        watch.issue(name, Unit::Transfer)
    } else {
        watch.issue_in_order(name, Unit::Transfer)
    }
}
