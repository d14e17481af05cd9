//! Commands of a driver, as methods of [`Encoder`]: semaphores and barriers of the host engine, set-up and launches
//! of the compute engine, transfers of the copy engine.
//!
//! ```
//! use ampere_cmd::command::{AcquireCondition, Payload, PcasAction, SemaphoreAcquire, SemaphoreRelease};
//! use ampere_cmd::{Encoder, SliceSink};
//!
//! let mut words = [0; 32];
//! let mut encoder = Encoder::new(SliceSink::new(&mut words));
//! encoder.semaphore_acquire(&SemaphoreAcquire {
//!     va: 0x11_0000_0000,
//!     payload: Payload::Bits64(3),
//!     condition: AcquireCondition::CircularGreaterOrEqual,
//!     switch_tsg: false,
//! })?;
//! encoder.invalidate_shader_caches_no_wfi()?;
//! encoder.launch(0x15_0000_0200, PcasAction::PrefetchSchedule)?;
//! encoder.semaphore_release(&SemaphoreRelease {
//!     va: 0x11_0000_0000,
//!     payload: Payload::Bits64(4),
//!     wait_for_idle: true,
//!     timestamp: true,
//! })?;
//! encoder.non_stall_interrupt()?;
//! assert_eq!(encoder.sink().len(), 19);
//! # Ok::<(), ampere_cmd::Error>(())
//! ```

mod compute;
mod copy;
mod host;

pub use compute::{LOCAL_WARP_UNIT, LocalMemorySize, PcasAction, local_memory_size};
pub use copy::{
    BlockSurface, CopyRelease, CopySide, Fill, GOB_BYTES, GOB_HEIGHT, GOB_WIDTH, LinearCopy,
    MAX_BLOCK_HEIGHT_LOG2, MAX_COPY_PIECE, Pattern, SurfaceCopy,
};
pub use host::{
    AcquireCondition, L2Operation, Payload, ReductionOperation, SemaphoreAcquire, SemaphoreReduction,
    SemaphoreRelease,
};

pub use crate::sm_layout::SmLayout;

use crate::error::Error;
use crate::pushbuffer::{Encoder, Sink, SliceSink, Target};

/// Refuses an address that the hardware would refuse or that does not fit its field.
fn check_va(what: &'static str, va: u64, alignment: u64, bits: u32) -> Result<(), Error> {
    if va >> bits != 0 {
        return Err(Error::AddressTooHigh { what, va, bits });
    }
    if !va.is_multiple_of(alignment) {
        return Err(Error::Misaligned { what, va, alignment });
    }
    Ok(())
}

/// Refuses a range that does not end within `bits` address bits.
fn check_range(what: &'static str, va: u64, bytes: u64, bits: u32) -> Result<(), Error> {
    let end = va.saturating_add(bytes);
    if end > 1 << bits {
        return Err(Error::AddressTooHigh { what, va, bits });
    }
    Ok(())
}

impl<S: Sink> Encoder<S> {
    /// Writes several headers, up to `N` words: all of them or none.
    #[inline]
    fn together<const N: usize>(
        &mut self,
        write: impl FnOnce(&mut Encoder<SliceSink<'_>>) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let mut words = [0; N];
        let mut inner = Encoder::for_target(SliceSink::new(&mut words), self.target());
        write(&mut inner)?;
        self.words(inner.sink().written())
    }
}

impl Target {
    /// Number of address bits of host semaphores (SEM_ADDR_HI of `clc76f.h`, `clc86f.h`).
    #[must_use]
    #[inline]
    pub const fn semaphore_va_bits(self) -> u32 {
        match self {
            Self::Ampere => 40,
            Self::Hopper => 57,
        }
    }

    /// Number of address bits of copies, copy semaphores, inline uploads and local memory
    /// (`clc7b5.h`, `clc8b5.h`, `clc7c0.h`, `clcbc0.h`).
    #[must_use]
    #[inline]
    pub const fn engine_va_bits(self) -> u32 {
        match self {
            Self::Ampere => 49,
            Self::Hopper => 57,
        }
    }
}
