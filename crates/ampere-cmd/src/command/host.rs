//! Commands of the host engine: semaphores, barriers, interrupts (`clc76f.h`).
//!
//! The host engine executes the methods of a channel in order. An acquire stalls it until a value in memory satisfies a
//! condition; a release writes a value to memory. Neither waits for the other engines, except a release with WAIT FOR
//! IDLE.

use super::check_va;
use crate::error::Error;
use crate::host_c76f::{
    MemOpA, MemOpB, MemOpC, MemOpCMembarType, MemOpD, MemOpDOperation, NonStallInterrupt, SemAddrLo,
    SemExecute, SemExecuteOperation, SemExecutePayloadSize, SemExecuteReduction, SemExecuteReductionFormat,
    SetObject, Wfi, WfiScope,
};
use crate::method::Method;
use crate::pushbuffer::{Encoder, Sink, Subchannel};
use crate::words::lower_upper;

/// Operation of a host reduction on memory and payload.
pub use crate::host_c76f::SemExecuteReduction as ReductionOperation;

/// Operation on the L2 cache.
///
/// ```
/// # fn main() -> Result<(), ampere_cmd::Error> {
/// # use ampere_cmd::{Encoder, SliceSink, Subchannel};
/// # let mut words = [0_u32; 64];
/// # let mut encoder = Encoder::new(SliceSink::new(&mut words));
/// use ampere_cmd::command::L2Operation;
///
/// encoder.l2_operation(L2Operation::SysmemInvalidate)?;
/// assert!(!encoder.sink().is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum L2Operation {
    /// Discards clean lines of system memory, so that the next read sees what the CPU wrote.
    SysmemInvalidate,
    /// Writes dirty lines to memory, so that the CPU sees what the GPU wrote.
    FlushDirty,
}

/// Value of a semaphore operation, with its width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload {
    /// 32 bits.
    Bits32(u32),
    /// 64 bits.
    Bits64(u64),
}

impl Payload {
    /// Lower and upper word.
    #[inline]
    const fn words(self) -> [u32; 2] {
        match self {
            Self::Bits32(value) => [value, 0],
            Self::Bits64(value) => lower_upper(value),
        }
    }

    #[inline]
    const fn size(self) -> SemExecutePayloadSize {
        match self {
            Self::Bits32(_) => SemExecutePayloadSize::_32bit,
            Self::Bits64(_) => SemExecutePayloadSize::_64bit,
        }
    }

    /// Size in bytes.
    #[inline]
    pub const fn bytes(self) -> u64 {
        match self {
            Self::Bits32(_) => 4,
            Self::Bits64(_) => 8,
        }
    }
}

/// Condition under which an acquire completes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AcquireCondition {
    /// memory == payload.
    Equal,
    /// memory >= payload, unsigned.
    StrictGreaterOrEqual,
    /// memory - payload >= 0, signed: correct across a wrap, as timelines and syncpoints need it.
    CircularGreaterOrEqual,
    /// memory & payload != 0.
    AnySet,
    /// !(memory | payload) != 0: some bit that is clear in the payload is clear in memory.
    AnyClear,
}

impl From<AcquireCondition> for SemExecuteOperation {
    #[inline]
    fn from(condition: AcquireCondition) -> Self {
        match condition {
            AcquireCondition::Equal => Self::Acquire,
            AcquireCondition::StrictGreaterOrEqual => Self::AcqStrictGeq,
            AcquireCondition::CircularGreaterOrEqual => Self::AcqCircGeq,
            AcquireCondition::AnySet => Self::AcqAnd,
            AcquireCondition::AnyClear => Self::AcqNor,
        }
    }
}

/// A wait until memory satisfies a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SemaphoreAcquire {
    /// GPU address, a multiple of the payload's size.
    pub va: u64,
    /// Value that memory is compared with.
    pub payload: Payload,
    /// Comparison.
    pub condition: AcquireCondition,
    /// Whether other channels of the TSG may run during the wait.
    pub switch_tsg: bool,
}

/// A write to memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SemaphoreRelease {
    /// GPU address, a multiple of the payload's size; with a timestamp a multiple of 16.
    pub va: u64,
    /// Value to write.
    pub payload: Payload,
    /// Whether the host engine first waits until the engine used last is idle, then executes a system barrier.
    pub wait_for_idle: bool,
    /// Whether 16 bytes are written: the payload, extended to 64 bits, then the GPU time in ns. The time is visible
    /// no later than the payload.
    pub timestamp: bool,
}

/// An atomic operation on memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SemaphoreReduction {
    /// GPU address, a multiple of the payload's size.
    pub va: u64,
    /// The operand.
    pub payload: Payload,
    /// Operation.
    pub operation: ReductionOperation,
    /// Whether memory and operand are signed.
    pub signed: bool,
    /// Whether the host engine first waits until the engine used last is idle, then executes a system barrier.
    pub wait_for_idle: bool,
}

impl SemaphoreReduction {
    /// Refuses combinations that do not exist (GA100 dev_pbdma).
    #[inline]
    fn check(&self) -> Result<(), Error> {
        let reason = match (self.operation, self.payload, self.signed) {
            (SemExecuteReduction::Inc | SemExecuteReduction::Dec, Payload::Bits64(_), _) => {
                "INC and DEC exist in 32 bits only"
            }
            (SemExecuteReduction::Inc | SemExecuteReduction::Dec, _, true) => "INC and DEC are unsigned",
            (SemExecuteReduction::Iadd, Payload::Bits64(_), true) => "a 64-bit IADD is unsigned",
            (SemExecuteReduction::Unknown(_), ..) => "unknown reduction",
            _ => return Ok(()),
        };
        Err(Error::Semaphore { reason })
    }
}

impl<S: Sink> Encoder<S> {
    /// Selects the class of a subchannel; the engine checks that it supports the class. Drivers send it first. 2 words.
    ///
    /// # Errors
    ///
    /// [`Error::Field`] above 0xffff, or [`Error::Full`].
    #[inline]
    pub fn set_object(&mut self, subchannel: Subchannel, class: u32) -> Result<(), Error> {
        self.method(subchannel, &SetObject { nvclass: class, ..SetObject::default() })
    }

    /// Waits for a semaphore. 6 words.
    ///
    /// # Errors
    ///
    /// [`Error::Misaligned`], [`Error::AddressTooHigh`] or [`Error::Full`].
    #[inline]
    pub fn semaphore_acquire(&mut self, acquire: &SemaphoreAcquire) -> Result<(), Error> {
        let execute = SemExecute {
            operation: acquire.condition.into(),
            acquire_switch_tsg: acquire.switch_tsg,
            payload_size: acquire.payload.size(),
            ..SemExecute::default()
        };
        self.semaphore(acquire.va, acquire.payload.bytes(), acquire.payload, &execute)
    }

    /// Writes a semaphore. 6 words. Returns the position of the payload among the sink's words: the index of its lower
    /// word, which the upper word follows. A driver that submits the words again patches the value there.
    ///
    /// # Errors
    ///
    /// [`Error::Misaligned`], [`Error::AddressTooHigh`] or [`Error::Full`].
    #[inline]
    pub fn semaphore_release(&mut self, release: &SemaphoreRelease) -> Result<usize, Error> {
        let execute = SemExecute {
            operation: SemExecuteOperation::Release,
            release_wfi: release.wait_for_idle,
            payload_size: release.payload.size(),
            release_timestamp: release.timestamp,
            ..SemExecute::default()
        };
        let alignment = if release.timestamp { 16 } else { release.payload.bytes() };
        // Behind the header and the two words of the address.
        let payload = self.sink().position() + 3;
        self.semaphore(release.va, alignment, release.payload, &execute)?;
        Ok(payload)
    }

    /// Executes an atomic operation in the L2 cache. The page must allow atomics. 6 words.
    ///
    /// # Errors
    ///
    /// [`Error::Semaphore`] for a combination that does not exist, [`Error::Misaligned`],
    /// [`Error::AddressTooHigh`] or [`Error::Full`].
    #[inline]
    pub fn semaphore_reduction(&mut self, reduction: &SemaphoreReduction) -> Result<(), Error> {
        reduction.check()?;
        let execute = SemExecute {
            operation: SemExecuteOperation::Reduction,
            release_wfi: reduction.wait_for_idle,
            payload_size: reduction.payload.size(),
            reduction: reduction.operation,
            reduction_format: if reduction.signed {
                SemExecuteReductionFormat::Signed
            } else {
                SemExecuteReductionFormat::Unsigned
            },
            ..SemExecute::default()
        };
        self.semaphore(reduction.va, reduction.payload.bytes(), reduction.payload, &execute)
    }

    #[inline]
    fn semaphore(
        &mut self,
        va: u64,
        alignment: u64,
        payload: Payload,
        execute: &SemExecute,
    ) -> Result<(), Error> {
        check_va("semaphore", va, alignment, self.target().semaphore_va_bits())?;
        let [va_lo, va_hi] = lower_upper(va);
        let [payload_lo, payload_hi] = payload.words();
        self.methods(
            Subchannel::HOST,
            SemAddrLo::ADDRESS,
            &[va_lo, va_hi, payload_lo, payload_hi, execute.encode()?],
        )
    }

    /// Raises the channel's non-stall interrupt. 1 word.
    ///
    /// # Errors
    ///
    /// [`Error::Full`].
    #[inline]
    pub fn non_stall_interrupt(&mut self) -> Result<(), Error> {
        self.immediate(Subchannel::HOST, NonStallInterrupt::ADDRESS, 0)
    }

    /// Stalls the host engine until the engine that got methods last is idle, for all subcontexts or for that of the
    /// channel alone. 1 word.
    ///
    /// # Errors
    ///
    /// [`Error::Full`].
    #[inline]
    pub fn wait_for_idle(&mut self, scope: WfiScope) -> Result<(), Error> {
        self.immediate(Subchannel::HOST, Wfi::ADDRESS, Wfi { scope }.encode()?)
    }

    /// An operation on the L2 cache (MEM_OP). It does not wait for engines: precede it with
    /// [`wait_for_idle`](Self::wait_for_idle) to order it after their accesses. 5 words.
    ///
    /// # Errors
    ///
    /// [`Error::Full`].
    #[inline]
    pub fn l2_operation(&mut self, operation: L2Operation) -> Result<(), Error> {
        let operation = match operation {
            L2Operation::SysmemInvalidate => MemOpDOperation::L2SysmemInvalidate,
            L2Operation::FlushDirty => MemOpDOperation::L2FlushDirty,
        };
        let operation = MemOpD { operation, ..MemOpD::default() };
        self.sequence(Subchannel::HOST, &(MemOpA::default(), MemOpB::default(), MemOpC::default(), operation))
    }

    /// Orders earlier memory accesses of the GPU before later ones, for GPU clients or for the whole system. It does
    /// not wait for engines: precede it with [`wait_for_idle`](Self::wait_for_idle) to order their accesses. 5 words.
    ///
    /// # Errors
    ///
    /// [`Error::Full`].
    #[inline]
    pub fn memory_barrier(&mut self, scope: MemOpCMembarType) -> Result<(), Error> {
        let barrier = (
            MemOpA::default(),
            MemOpB::default(),
            MemOpC { membar_type: scope, ..MemOpC::default() },
            MemOpD { operation: MemOpDOperation::Membar, ..MemOpD::default() },
        );
        self.sequence(Subchannel::HOST, &barrier)
    }
}
