//! Host (the PBDMA of the GPFIFO class 0xc76f): its own methods, and the routing of all others.
//!
//! Methods below 0x100 belong to host, whatever their subchannel. The others go to the engine of the subchannel: 1
//! compute, 4 copy. The model has no 3D, 2D or inline-to-memory engine. Subchannels 5 to 7 are software methods, which
//! the channel's driver does not serve.
//!
//! Acquires have no time-out here, because the kernel enables one only for kernel-submit channels.

use core::sync::atomic::{Ordering, fence};
use std::sync::LazyLock;

use ampere_cmd::gpfifo::userd;
use ampere_cmd::pushbuffer::{HOST_METHODS_END, Subchannel};
use ampere_cmd::{Method, compute_c7c0, copy_c7b5, host_c76f as class};

use crate::gpu::channel::{Engines, Flow, Siblings, Wait};
use ampere_cmd::words::join;

use crate::check::Cache;
use crate::gpu::decoder::{Decoder, MethodWord, Shadow};
use crate::gpu::semaphore::{Operation, Reduction, SemaphoreWrite, Structure, atomic32, atomic64};
use crate::gpu::{Activity, ChannelFault, Effects, Refusal};
use crate::memory::Memory;
use crate::mmu::{Access, MmuFault, View};

static DECODER: LazyLock<Decoder> = LazyLock::new(|| Decoder::new(&class::CLASS_TABLE, &[]));

/// The engine of a subchannel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Engine {
    Compute,
    Copy,
}

/// Host's state in one channel.
#[derive(Debug)]
pub(super) struct Host {
    shadow: Shadow,
    /// The engine that received the last method.
    engine: Option<Engine>,
}

impl Host {
    pub(super) fn new() -> Self {
        Self { shadow: Shadow::new(&class::CLASS_TABLE), engine: None }
    }

    /// Executes one method word of host or of an engine.
    ///
    /// # Errors
    ///
    /// The fault that ends the channel.
    pub(super) fn method(
        &mut self,
        word: MethodWord,
        engines: &mut Engines,
        userd: &Memory,
        view: &View,
        siblings: &Siblings<'_>,
        effects: &mut Effects,
    ) -> Result<Flow, ChannelFault> {
        if word.address >= HOST_METHODS_END {
            return self.forward(word, engines, view, effects);
        }
        // Misalignment and unused bits of the semaphore methods raise SEMAPHORE when the semaphore is used.
        match word.address {
            class::SemAddrLo::ADDRESS | class::Semaphoreb::ADDRESS => {
                self.shadow.set(word);
                return Ok(Flow::Done);
            }
            class::SemExecute::ADDRESS if word.data & !class::SemExecute::INFO.named_bits() != 0 => {
                let reason = format!("SEM_EXECUTE {:#010x} sets unused bits", word.data);
                return Err(ChannelFault::Semaphore { va: self.semaphore_va(), reason });
            }
            _ => {}
        }
        DECODER.check(word)?;
        self.shadow.set(word);
        let idle = engines.are_idle();
        match word.address {
            class::SetObject::ADDRESS => set_object(word, engines),
            class::SemExecute::ADDRESS => self.execute_semaphore(word, idle, view),
            class::Semaphored::ADDRESS => self.execute_old_semaphore(word, idle, view),
            class::Wfi::ADDRESS if !idle || self.siblings_keep(word, siblings) => Ok(Flow::Wait(Wait::Idle)),
            class::SetReference::ADDRESS if !idle => Ok(Flow::Wait(Wait::Idle)),
            class::Wfi::ADDRESS => {
                waited_for_idle(view);
                if let Some(watch) = view.watch() {
                    // The wait included the other channels of the TSG.
                    watch.learn_finished();
                }
                Ok(Flow::Done)
            }
            class::SetReference::ADDRESS => {
                waited_for_idle(view);
                fence(Ordering::SeqCst);
                userd.store(userd::REFERENCE as usize, word.data);
                Ok(Flow::Done)
            }
            class::NonStallInterrupt::ADDRESS => {
                effects.interrupts += 1;
                Ok(Flow::Done)
            }
            class::FbFlush::ADDRESS => {
                fence(Ordering::SeqCst);
                Ok(Flow::Done)
            }
            class::MemOpD::ADDRESS => memory_operation(word, self.shadow.get::<class::MemOpC>(), view),
            class::Yield::ADDRESS => match class::Yield::decode(word.data).op {
                class::YieldOp::Nop => Ok(Flow::Done),
                class::YieldOp::Tsg => Ok(Flow::Yield),
                class::YieldOp::Unknown(_) => Err(word.fault("YIELD has no such operation")),
            },
            class::Illegal::ADDRESS => Err(word.fault("ILLEGAL")),
            class::ClearFaulted::ADDRESS => Err(word.fault("CLEAR_FAULTED is a software method")),
            _ => Ok(Flow::Done),
        }
    }

    /// Returns whether other channels of the TSG keep the engine of the channel's last method busy, within the SCOPE of
    /// a WFI.
    fn siblings_keep(&self, word: MethodWord, siblings: &Siblings<'_>) -> bool {
        let all = class::Wfi::decode(word.data).scope == class::WfiScope::All;
        match self.engine {
            Some(Engine::Compute) => siblings.are_computing(all),
            Some(Engine::Copy) => siblings.are_copying(),
            None => false,
        }
    }

    /// Passes a method to the engine of its subchannel.
    fn forward(
        &mut self,
        word: MethodWord,
        engines: &mut Engines,
        view: &View,
        effects: &mut Effects,
    ) -> Result<Flow, ChannelFault> {
        let (engine, number) = engine_of(word)?;
        if !has_context(engine, number, engines) {
            return Err(word.refused(Refusal::Class, no_context(number)));
        }
        if self.engine != Some(engine) {
            // Switching between subchannel 4 and the others waits for idle (GA100 `dev_pbdma`).
            if !engines.are_idle() {
                return Ok(Flow::Wait(Wait::Idle));
            }
            waited_for_idle(view);
            self.engine = Some(engine);
        }
        match engine {
            Engine::Compute => engines.compute.method(word, view, effects),
            Engine::Copy if !engines.copy.has_room() => Ok(Flow::Wait(Wait::Idle)),
            Engine::Copy => engines.copy.method(word, view).map(|()| Flow::Done),
        }
    }

    fn semaphore_va(&self) -> u64 {
        join(self.shadow.get::<class::SemAddrHi>().offset, self.shadow.word::<class::SemAddrLo>())
    }

    fn execute_semaphore(&self, word: MethodWord, idle: bool, view: &View) -> Result<Flow, ChannelFault> {
        let execute = class::SemExecute::decode(word.data);
        let wide = execute.payload_size == class::SemExecutePayloadSize::_64bit;
        let high = self.shadow.get::<class::SemPayloadHi>().payload;
        let payload = join(if wide { high } else { 0 }, self.shadow.get::<class::SemPayloadLo>().payload);
        let va = self.semaphore_va();
        let switch_tsg = execute.acquire_switch_tsg;
        let acquire =
            |condition, name| acquire(view, Acquire { va, wide, payload, condition, name, switch_tsg });
        let reduction = match execute.operation {
            class::SemExecuteOperation::Acquire => return acquire(Condition::Equal, "ACQUIRE"),
            class::SemExecuteOperation::AcqStrictGeq => {
                return acquire(Condition::GreaterEqual, "ACQ_STRICT_GEQ");
            }
            class::SemExecuteOperation::AcqCircGeq => return acquire(Condition::Reached, "ACQ_CIRC_GEQ"),
            class::SemExecuteOperation::AcqAnd => return acquire(Condition::And, "ACQ_AND"),
            class::SemExecuteOperation::AcqNor => return acquire(Condition::Nor, "ACQ_NOR"),
            class::SemExecuteOperation::Release => None,
            class::SemExecuteOperation::Reduction => {
                let bits = execute.reduction.bits();
                let operation = Operation::of::<class::SemExecute>("REDUCTION", bits)
                    .ok_or_else(|| refusal(va, "there is no such reduction"))?;
                let signed = execute.reduction_format == class::SemExecuteReductionFormat::Signed;
                Some(Reduction { operation, signed })
            }
            class::SemExecuteOperation::Unknown(_) => {
                return Err(refusal(va, "there is no such operation"));
            }
        };
        let structure = match (execute.release_timestamp, wide) {
            (true, _) => Structure::FourWords,
            (false, true) => Structure::TwoWords,
            (false, false) => Structure::OneWord,
        };
        let write = SemaphoreWrite { va, payload, wide, structure, reduction };
        release(write, execute.release_wfi, idle, view)
    }

    /// SEMAPHORED of the older interface: 32 bits wide, with WFI and timestamp by default.
    fn execute_old_semaphore(&self, word: MethodWord, idle: bool, view: &View) -> Result<Flow, ChannelFault> {
        let execute = class::Semaphored::decode(word.data);
        let va = join(
            self.shadow.get::<class::Semaphorea>().offset_upper,
            self.shadow.word::<class::Semaphoreb>(),
        );
        let payload = u64::from(self.shadow.get::<class::Semaphorec>().payload);
        let switch_tsg = execute.acquire_switch;
        let acquire = |condition, name| {
            acquire(view, Acquire { va, wide: false, payload, condition, name, switch_tsg })
        };
        let reduction = match execute.operation {
            class::SemaphoredOperation::Acquire => return acquire(Condition::Equal, "ACQUIRE"),
            class::SemaphoredOperation::AcqGeq => return acquire(Condition::Reached, "ACQ_GEQ"),
            class::SemaphoredOperation::AcqAnd => return acquire(Condition::And, "ACQ_AND"),
            class::SemaphoredOperation::Release => None,
            class::SemaphoredOperation::Reduction => {
                let bits = execute.reduction.bits();
                let operation = Operation::of::<class::Semaphored>("REDUCTION", bits)
                    .ok_or_else(|| refusal(va, "there is no such reduction"))?;
                let signed = execute.format == class::SemaphoredFormat::Signed;
                Some(Reduction { operation, signed })
            }
            class::SemaphoredOperation::Unknown(_) => {
                return Err(refusal(va, "there is no such operation"));
            }
        };
        let structure = match execute.release_size {
            class::SemaphoredReleaseSize::_4byte => Structure::OneWord,
            _ => Structure::FourWords,
        };
        let write = SemaphoreWrite { va, payload, wide: false, structure, reduction };
        release(write, execute.release_wfi == class::SemaphoredReleaseWfi::En, idle, view)
    }
}

fn refusal(va: u64, reason: &str) -> ChannelFault {
    ChannelFault::Semaphore { va, reason: reason.to_owned() }
}

/// Strict mode: all later work is ordered after all earlier work of the channel.
fn waited_for_idle(view: &View) {
    if let Some(watch) = view.watch() {
        watch.waited_for_idle();
    }
}

fn mmu(fault: MmuFault) -> ChannelFault {
    ChannelFault::Mmu { client: "host", fault }
}

/// The engine and class of a subchannel.
fn engine_of(word: MethodWord) -> Result<(Engine, u32), ChannelFault> {
    const COMPUTE: u8 = Subchannel::COMPUTE.index();
    const COPY: u8 = Subchannel::COPY.index();
    match word.subchannel {
        COMPUTE => Ok((Engine::Compute, u32::from(compute_c7c0::CLASS))),
        COPY => Ok((Engine::Copy, u32::from(copy_c7b5::CLASS))),
        0..=3 => Err(word.fault("the engine of this subchannel is not modelled")),
        _ => Err(word.refused(Refusal::Software, "software method: the kernel serves none")),
    }
}

/// SET_OBJECT checks only that the subchannel's engine has the class.
fn set_object(word: MethodWord, engines: &Engines) -> Result<Flow, ChannelFault> {
    let object = class::SetObject::decode(word.data);
    let (engine, number) = engine_of(word)?;
    if object.engine == class::SetObjectEngine::Sw {
        return Err(word.refused(Refusal::Software, "software object: the kernel serves none"));
    }
    if object.engine.bits() != 0 || object.nvclass != number {
        let reason = format!("this subchannel's engine has only class {number:#06x}");
        return Err(word.refused(Refusal::Class, reason));
    }
    if !has_context(engine, number, engines) {
        return Err(word.fault(no_context(number)));
    }
    Ok(Flow::Done)
}

/// Returns whether the channel may send methods to an engine. The compute engine needs the context that ALLOC_OBJ_CTX
/// creates for its class.
///
/// HW: the copy engine has no context. It serves any channel that allocated a class, as seen on an AGX Orin (L4T
/// r36.4) with compute alone. The model refuses a channel without a class; this case has not been seen on a board.
fn has_context(engine: Engine, class: u32, engines: &Engines) -> bool {
    match engine {
        Engine::Compute => engines.objects.contains(&class),
        Engine::Copy => !engines.objects.is_empty(),
    }
}

fn no_context(class: u32) -> String {
    format!("class {class:#06x} has no context in this channel")
}

/// MEM_OP: barriers are fences in the model, and cache operations have no effect. Operations on translations and access
/// counters need a privileged channel; without the privilege they raise METHOD (GA100 `dev_pbdma`).
fn memory_operation(word: MethodWord, c: class::MemOpC, view: &View) -> Result<Flow, ChannelFault> {
    let operation = class::MemOpD::decode(word.data).operation;
    match operation {
        class::MemOpDOperation::Membar if matches!(c.membar_type, class::MemOpCMembarType::Unknown(_)) => {
            Err(word.fault("MEM_OP_C has no such MEMBAR_TYPE"))
        }
        class::MemOpDOperation::Membar
        | class::MemOpDOperation::L2PeermemInvalidate
        | class::MemOpDOperation::L2SysmemInvalidate
        | class::MemOpDOperation::L2CleanComptags
        | class::MemOpDOperation::L2FlushDirty
        | class::MemOpDOperation::L2WaitForSysPendingReads => {
            fence(Ordering::SeqCst);
            if operation == class::MemOpDOperation::L2SysmemInvalidate
                && let Some(watch) = view.watch()
            {
                watch.invalidate(Cache::L2);
            }
            Ok(Flow::Done)
        }
        class::MemOpDOperation::MmuTlbInvalidate
        | class::MemOpDOperation::MmuTlbInvalidateTargeted
        | class::MemOpDOperation::AccessCounterClr => {
            Err(word.fault("the operation needs a privileged channel"))
        }
        // HW: this dumps access bits of video memory, which this chip does not have.
        class::MemOpDOperation::MmuOperation => Err(word.fault("MMU_OPERATION is not modelled")),
        class::MemOpDOperation::Unknown(_) => Err(word.fault("MEM_OP has no such operation")),
    }
}

/// Condition of an acquire with memory `m` and payload `p`.
#[derive(Clone, Copy, Debug)]
enum Condition {
    /// `m == p`.
    Equal,
    /// `m >= p`, unsigned.
    GreaterEqual,
    /// `m - p >= 0` as a signed difference of the payload's width.
    Reached,
    /// `m & p != 0`.
    And,
    /// `!(m | p) != 0`.
    Nor,
}

impl Condition {
    fn holds(self, memory: u64, payload: u64, wide: bool) -> bool {
        // Narrow values are shifted to the upper half, so that the 64-bit comparisons work for both widths.
        let (memory, payload, ones) =
            if wide { (memory, payload, u64::MAX) } else { (memory << 32, payload << 32, u64::MAX << 32) };
        match self {
            Self::Equal => memory == payload,
            Self::GreaterEqual => memory >= payload,
            Self::Reached => memory.wrapping_sub(payload).cast_signed() >= 0,
            Self::And => memory & payload != 0,
            Self::Nor => !(memory | payload) & ones != 0,
        }
    }
}

struct Acquire {
    va: u64,
    wide: bool,
    payload: u64,
    condition: Condition,
    name: &'static str,
    switch_tsg: bool,
}

fn acquire(view: &View, acquire: Acquire) -> Result<Flow, ChannelFault> {
    let Acquire { va, wide, payload, condition, name, switch_tsg } = acquire;
    let alignment = if wide { 8 } else { 4 };
    if !va.is_multiple_of(alignment) {
        return Err(refusal(va, &format!("the address is not a multiple of {alignment}")));
    }
    let low = atomic32(view, va, Access::Read).map_err(mmu)?;
    let memory = if wide {
        atomic64(view, va, Access::Read).map_err(mmu)?.load(Ordering::Acquire)
    } else {
        u64::from(low.load(Ordering::Acquire))
    };
    if condition.holds(memory, payload, wide) {
        if let Some(watch) = view.watch() {
            watch.acquired(core::ptr::from_ref(low).addr(), memory & 0xffff_ffff);
        }
        return Ok(Flow::Done);
    }
    let activity = Activity::WaitingForSemaphore { va, condition: name, payload, memory };
    Ok(Flow::Wait(Wait::Semaphore { activity, switch_tsg }))
}

fn release(write: SemaphoreWrite, behind_idle: bool, idle: bool, view: &View) -> Result<Flow, ChannelFault> {
    if let Some(reason) = write.refusal() {
        return Err(ChannelFault::Semaphore { va: write.va, reason });
    }
    if behind_idle {
        if !idle {
            return Ok(Flow::Wait(Wait::Idle));
        }
        waited_for_idle(view);
    }
    write.perform(view).map_err(mmu)?;
    Ok(Flow::Done)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_compare_in_the_width_of_the_payload() {
        let narrow = |condition: Condition, memory, payload| condition.holds(memory, payload, false);
        let wide = |condition: Condition, memory, payload| condition.holds(memory, payload, true);
        assert!(narrow(Condition::Equal, 5, 5) && !narrow(Condition::Equal, 5, 6));
        assert!(narrow(Condition::GreaterEqual, 0xffff_ffff, 1));
        assert!(!narrow(Condition::Reached, 0xffff_ffff, 1), "the counter has not wrapped yet");
        assert!(narrow(Condition::Reached, 1, 0xffff_ffff), "the counter has wrapped");
        assert!(wide(Condition::Reached, 0xffff_ffff, 1));
        assert!(wide(Condition::Reached, 1, u64::MAX));
        assert!(narrow(Condition::And, 6, 2) && !narrow(Condition::And, 6, 1));
        assert!(narrow(Condition::Nor, 0, 0xffff_fffe), "a bit is clear in memory and payload");
        assert!(!narrow(Condition::Nor, 1, 0xffff_fffe));
        assert!(!wide(Condition::Nor, 1, u64::MAX - 1));
    }
}
