//! Commands of the compute engine (`clc7c0.h`): set-up, cache invalidation, launches, uploads.

use super::{check_range, check_va};
use crate::compute_c7c0::{
    InvalidateShaderCachesNoWfi, InvalidateSkedCaches, LaunchDma, LaunchDmaCompletionType,
    LaunchDmaDstMemoryLayout, LineLengthIn, SendPcasA, SendSignalingPcas2B, SetShaderLocalMemoryA,
    SetShaderLocalMemoryNonThrottledA, SetShaderLocalMemoryNonThrottledB, SetShaderLocalMemoryNonThrottledC,
    SetShaderLocalMemoryWindowA, SetShaderSharedMemoryWindowA, SetTexHeaderPoolA, SetTexHeaderPoolB,
    SetTexHeaderPoolC, SetTexSamplerPoolA, SetTexSamplerPoolB, SetTexSamplerPoolC,
};
use crate::error::Error;
use crate::method::Method;
use crate::pushbuffer::{Encoder, MAX_COUNT, Sink, Subchannel};
use crate::sm_layout::SmLayout;
use crate::words::upper_lower;

/// Action of the scheduler on a launch descriptor. Drivers use `PrefetchSchedule`, which may use a cached copy of the
/// descriptor, or `InvalidateCopySchedule`, which reads the descriptor from memory.
pub use crate::compute_c7c0::SendSignalingPcas2BPcasAction as PcasAction;

/// Number of address bits of the shared- and local-memory windows (both compute classes).
const WINDOW_VA_BITS: u32 = 49;
/// Number of address bits of a launch descriptor: 32 bits, for the address shifted right by 8.
const QMD_VA_BITS: u32 = 40;

/// Size of the backing store of local memory.
///
/// ```
/// # fn main() -> Result<(), ampere_cmd::Error> {
/// use ampere_cmd::command::SmLayout;
/// use ampere_cmd::command::local_memory_size;
///
/// let layout = SmLayout { warps_per_sm: 48, sm_per_tpc: 2, tpc_count: 4 };
/// assert_eq!(local_memory_size(0, layout)?.area_bytes, 0);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalMemorySize {
    /// Bytes per TPC, as the engine expects it.
    pub bytes_per_tpc: u64,
    /// Bytes to allocate for all TPCs.
    pub area_bytes: u64,
}

/// Unit of a warp's share of local memory in bytes.
pub const LOCAL_WARP_UNIT: u64 = 0x200;

/// Returns the size of the backing store for programs that need `bytes_per_thread` bytes of local memory. The share
/// of a warp is a multiple of 512 bytes, the share of a TPC a multiple of 32 KiB, the total a multiple of 128 KiB.
///
/// # Errors
///
/// [`Error::LocalMemory`] if a size does not fit 64 bits.
pub fn local_memory_size(bytes_per_thread: u32, layout: SmLayout) -> Result<LocalMemorySize, Error> {
    let per_warp = (u64::from(bytes_per_thread) * 32).next_multiple_of(LOCAL_WARP_UNIT);
    let warps = u64::from(layout.warps_per_sm) * u64::from(layout.sm_per_tpc);
    let size = || {
        let bytes_per_tpc = per_warp.checked_mul(warps)?.checked_next_multiple_of(0x8000)?;
        let area_bytes = bytes_per_tpc.checked_mul(u64::from(layout.tpc_count))?;
        Some(LocalMemorySize { bytes_per_tpc, area_bytes: area_bytes.checked_next_multiple_of(0x2_0000)? })
    };
    size().ok_or(Error::LocalMemory { bytes_per_thread, layout })
}

impl<S: Sink> Encoder<S> {
    /// Sets the window of generic addresses that access shared memory. The window has no backing store and must not
    /// overlap a mapping or the local window. On Hopper it is aligned to 4 GiB. 3 words.
    ///
    /// # Errors
    ///
    /// [`Error::AddressTooHigh`] or [`Error::Full`].
    #[inline]
    pub fn shader_shared_memory_window(&mut self, va: u64) -> Result<(), Error> {
        check_va("shared-memory window", va, 1, WINDOW_VA_BITS)?;
        self.methods(Subchannel::COMPUTE, SetShaderSharedMemoryWindowA::ADDRESS, &upper_lower(va))
    }

    /// Sets the window of generic addresses, 16 MiB, that access the local memory of a thread. Like the shared window
    /// it has no backing store. 3 words.
    ///
    /// # Errors
    ///
    /// [`Error::AddressTooHigh`] or [`Error::Full`].
    #[inline]
    pub fn shader_local_memory_window(&mut self, va: u64) -> Result<(), Error> {
        check_va("local-memory window", va, 1, WINDOW_VA_BITS)?;
        self.methods(Subchannel::COMPUTE, SetShaderLocalMemoryWindowA::ADDRESS, &upper_lower(va))
    }

    /// Sets the address of the backing store of local memory. The engine must be idle. 3 words.
    ///
    /// # Errors
    ///
    /// [`Error::AddressTooHigh`] or [`Error::Full`].
    #[inline]
    pub fn shader_local_memory(&mut self, va: u64) -> Result<(), Error> {
        check_va("local memory", va, 1, self.target().engine_va_bits())?;
        self.methods(Subchannel::COMPUTE, SetShaderLocalMemoryA::ADDRESS, &upper_lower(va))
    }

    /// Sets the size of each TPC's share of the backing store in bytes (40 bits, see [`local_memory_size`]) and the
    /// largest number of SMs (9 bits; drivers pass 0xff). 4 words.
    ///
    /// # Errors
    ///
    /// [`Error::Field`] for a value that does not fit, or [`Error::Full`].
    #[inline]
    pub fn shader_local_memory_size(&mut self, bytes_per_tpc: u64, max_sm_count: u32) -> Result<(), Error> {
        let [size_upper, size_lower] = upper_lower(bytes_per_tpc);
        let size = (
            SetShaderLocalMemoryNonThrottledA { size_upper },
            SetShaderLocalMemoryNonThrottledB { size_lower },
            SetShaderLocalMemoryNonThrottledC { max_sm_count },
        );
        self.sequence(Subchannel::COMPUTE, &size)
    }

    /// Sets the table of texture headers: [`Header`](crate::texture::Header)s of 32 bytes, of which kernels may name
    /// those up to number `last`. 4 words.
    ///
    /// # Errors
    ///
    /// [`Error::Misaligned`], [`Error::AddressTooHigh`], [`Error::Field`] for a number that does not fit 22 bits, or
    /// [`Error::Full`].
    pub fn texture_headers(&mut self, va: u64, last: u32) -> Result<(), Error> {
        check_va("table of texture headers", va, crate::texture::BYTES, self.target().engine_va_bits())?;
        let [offset_upper, offset_lower] = upper_lower(va);
        let table = (
            SetTexHeaderPoolA { offset_upper },
            SetTexHeaderPoolB { offset_lower },
            SetTexHeaderPoolC { maximum_index: last },
        );
        self.sequence(Subchannel::COMPUTE, &table)
    }

    /// Sets the table of [`Sampler`](crate::texture::Sampler)s, as [`Encoder::texture_headers`]. 4 words.
    ///
    /// # Errors
    ///
    /// As [`Encoder::texture_headers`], for 20 bits.
    pub fn texture_samplers(&mut self, va: u64, last: u32) -> Result<(), Error> {
        check_va("table of samplers", va, crate::texture::BYTES, self.target().engine_va_bits())?;
        let [offset_upper, offset_lower] = upper_lower(va);
        let table = (
            SetTexSamplerPoolA { offset_upper },
            SetTexSamplerPoolB { offset_lower },
            SetTexSamplerPoolC { maximum_index: last },
        );
        self.sequence(Subchannel::COMPUTE, &table)
    }

    /// Invalidates the SMs' caches of instructions, global data and constants, without waiting for idle. Required
    /// before a launch that uses what the CPU or a copy has written since. 2 words.
    ///
    /// # Errors
    ///
    /// [`Error::Full`].
    #[inline]
    pub fn invalidate_shader_caches_no_wfi(&mut self) -> Result<(), Error> {
        let all = InvalidateShaderCachesNoWfi { instruction: true, global_data: true, constant: true };
        self.method(Subchannel::COMPUTE, &all)
    }

    /// Drops the descriptors in the scheduler's caches that no grid uses: INVALIDATE_SKED_CACHES. 2 words.
    ///
    /// # Errors
    ///
    /// [`Error::Full`].
    #[inline]
    pub fn invalidate_sked_caches(&mut self) -> Result<(), Error> {
        self.method(Subchannel::COMPUTE, &InvalidateSkedCaches::default())
    }

    /// Passes a launch descriptor to the scheduler: SEND_PCAS_A, SEND_SIGNALING_PCAS2_B. The descriptor is aligned to
    /// 256 bytes and below 2^40. 4 words.
    ///
    /// # Errors
    ///
    /// [`Error::Misaligned`], [`Error::AddressTooHigh`] or [`Error::Full`].
    #[inline]
    pub fn launch(&mut self, qmd_va: u64, action: PcasAction) -> Result<(), Error> {
        check_va("launch descriptor", qmd_va, crate::qmd::ALIGNMENT, QMD_VA_BITS)?;
        let qmd_address_shifted8 = crate::qmd::pointer(qmd_va)?;
        self.together::<4>(|encoder| {
            let address = SendPcasA { qmd_address_shifted8 };
            encoder.method(Subchannel::COMPUTE, &address)?;
            let action = SendSignalingPcas2B { pcas_action: action, ..SendSignalingPcas2B::default() };
            encoder.method(Subchannel::COMPUTE, &action)
        })
    }

    /// Writes data from the pushbuffer to memory: LINE_LENGTH_IN to OFFSET_OUT, then LAUNCH_DMA followed by the data.
    /// 1 to 8190 words of data; 7 words more than the data.
    ///
    /// # Errors
    ///
    /// [`Error::Length`], [`Error::Misaligned`] (4), [`Error::AddressTooHigh`] or [`Error::Full`].
    #[inline]
    pub fn inline_upload(&mut self, va: u64, data: &[u32]) -> Result<(), Error> {
        const MAX_WORDS: u64 = MAX_COUNT as u64 - 1;
        let words = data.len() as u64;
        if words == 0 || words > MAX_WORDS {
            return Err(Error::Length { what: "words of an inline upload", value: words, max: MAX_WORDS });
        }
        let bytes = words * 4;
        check_va("inline upload", va, 4, self.target().engine_va_bits())?;
        check_range("inline upload", va, bytes, self.target().engine_va_bits())?;
        let launch = LaunchDma {
            dst_memory_layout: LaunchDmaDstMemoryLayout::Pitch,
            completion_type: LaunchDmaCompletionType::FlushOnly,
            ..LaunchDma::default()
        };
        let launch = launch.encode()?;
        self.fits(data.len() + 7)?;
        let [upper, lower] = upper_lower(va);
        // CAST: at most 8190 words.
        self.methods(Subchannel::COMPUTE, LineLengthIn::ADDRESS, &[bytes as u32, 1, upper, lower])?;
        self.increment_once_with(Subchannel::COMPUTE, LaunchDma::ADDRESS, launch, data)
    }
}
