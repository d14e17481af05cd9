//! GPU virtual addresses, and the layout of the address space on ga10b.

use core::fmt;

use nvgpu_sys::address_space as sys;

/// First address of the user range: 2 MiB, the lowest that ALLOC_AS accepts.
pub const VA_START: GpuVa = GpuVa(0x20_0000);

/// End of the user range, and start of the kernel's 4 GiB.
///
/// All addresses must be below 2^40: several hardware fields have only 40 address bits, among them the
/// base of the ring, the pointer to the engine context and the address of a pushbuffer. The kernel
/// accepts an end just below 2^40, but its own range would then be above 2^40, and the hardware would
/// truncate the addresses of contexts in it. The two shader windows must not overlap a mapping, because
/// an SM interprets addresses inside them as local or shared memory. With this end, the kernel's range
/// is 0xFC_0000_0000 to 0xFD_0000_0000, below 2^40, and both windows are above it, where no mapping can
/// be.
pub const VA_END: GpuVa = GpuVa(0xfc_0000_0000);

/// Start of the window in which generic addresses refer to local memory.
pub const LOCAL_WINDOW: GpuVa = GpuVa(0xfd_0000_0000);

/// Start of the window in which generic addresses refer to shared memory.
pub const SHARED_WINDOW: GpuVa = GpuVa(0xfe_0000_0000);

/// Size of the kernel's range after the user range, in bytes (`mm_gp10b_fusa.c`).
const KERNEL_RANGE: u64 = 4 << 30;

// The kernel's range ends at the windows or below, and both windows start below 2^40.
const _: () = assert!(VA_END.0 + KERNEL_RANGE <= LOCAL_WINDOW.0);
const _: () = assert!(SHARED_WINDOW.0 < 1 << 40);

/// Size of a GPU page in bytes.
pub const GPU_PAGE: u64 = sys::PAGE_SIZE as u64;

/// A virtual address of the GPU.
///
/// ```
/// use nvgpu_channel::GpuVa;
///
/// let va = GpuVa(0x20_0000);
/// assert!(va.is_aligned(4096));
/// assert_eq!(va.checked_add(4096), Some(GpuVa(0x20_1000)));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct GpuVa(pub u64);

impl GpuVa {
    /// Returns the address as a number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Adds `bytes`; `None` on overflow.
    pub const fn checked_add(self, bytes: u64) -> Option<Self> {
        match self.0.checked_add(bytes) {
            Some(address) => Some(Self(address)),
            None => None,
        }
    }

    /// Returns whether the address is a multiple of `alignment`, a power of two.
    pub const fn is_aligned(self, alignment: u64) -> bool {
        self.0 & (alignment - 1) == 0
    }
}

impl fmt::Display for GpuVa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:#x}", self.0)
    }
}

impl fmt::LowerHex for GpuVa {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::LowerHex::fmt(&self.0, f)
    }
}
