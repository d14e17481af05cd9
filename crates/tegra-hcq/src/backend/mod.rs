//! The back end: what a queue needs of a GPU driver.
//!
//! A back end offers properties, memory, channel groups and the reason of a failure. It hands out
//! rings and memory as plain pointers ([`SubmitRing`], [`DeviceMemory::cpu`]), so that the hot path
//! contains no dynamic call. The only implementation so far is [`nvgpu`]; it drives the real kernel
//! driver and the software Orin alike, because both answer through the same door.

use core::fmt::Debug;
use core::ptr::NonNull;

use nvgpu_channel::ring::{Ring, RingFull};
use nvgpu_channel::{ErrorCode, barrier};

use crate::device::DeviceKind;
use crate::error::Result;

pub(crate) mod nvgpu;

/// What the GPU is and where things lie in its address space.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Properties {
    /// Which kind of device answers; never [`DeviceKind::Auto`].
    pub kind: DeviceKind,
    /// Name of the chip, for example `ga10b`.
    pub chip: String,
    /// Class of the compute engine (0xc7c0 on ga10b).
    pub compute_class: u32,
    /// Class of the copy engine (0xc7b5 on ga10b).
    pub copy_class: u32,
    /// Class of the channel (0xc76f on ga10b).
    pub gpfifo_class: u32,
    /// SM version, major and minor; (8, 7) on ga10b.
    pub sm_version: (u32, u32),
    /// Graphics processing clusters in use.
    pub gpc_count: u32,
    /// Texture processing clusters in use, over all GPCs.
    pub tpc_count: u32,
    /// Streaming multiprocessors in use.
    pub sm_count: u32,
    /// Warps for which local memory is laid out per SM.
    pub warps_per_sm: u32,
    /// Size of the L2 cache in bytes.
    pub l2_bytes: u64,
    /// Highest GPU clock in Hz.
    pub max_clock_hz: u64,
    /// Lowest GPU address that buffers get.
    pub va_start: u64,
    /// End of the GPU addresses that buffers get.
    pub va_end: u64,
    /// Generic address at which an SM sees its shared memory.
    pub shared_window: u64,
    /// Generic address at which a thread sees its local memory.
    pub local_window: u64,
    /// Further numbers that the driver reports, under the driver's own names.
    pub driver: Vec<(&'static str, i64)>,
}

/// Memory that CPU and GPU see.
pub(crate) trait DeviceMemory: Send + Sync + Debug {
    /// First address on the GPU.
    fn gpu_va(&self) -> u64;

    /// First byte on the CPU, page aligned; valid for the bytes that were asked for as long as `self`
    /// lives.
    fn cpu(&self) -> NonNull<u8>;
}

/// The two engines that a queue feeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Engine {
    /// Kernels.
    Compute,
    /// Linear copies.
    Copy,
}

/// A GPFIFO ring with its doorbell: all that a submission touches.
#[derive(Debug)]
pub(crate) struct SubmitRing {
    ring: Ring,
    doorbell: NonNull<u32>,
    token: u32,
}

// SAFETY: the doorbell is a device register that any thread may write; the ring is `Send` itself.
unsafe impl Send for SubmitRing {}
// SAFETY: `&SubmitRing` only reads the number of entries.
unsafe impl Sync for SubmitRing {}

impl SubmitRing {
    /// A ring and the register that `token` is written to.
    ///
    /// # Safety
    ///
    /// `doorbell` is valid for volatile stores as long as the value is used.
    pub(crate) unsafe fn new(ring: Ring, doorbell: NonNull<u32>, token: u32) -> Self {
        Self { ring, doorbell, token }
    }

    /// Slots of the ring.
    pub(crate) fn entries(&self) -> u32 {
        self.ring.entries()
    }

    /// Hands one entry to the GPU: entry, barrier, GP_PUT, barrier, doorbell.
    #[inline]
    pub(crate) fn submit(&mut self, entry: u64) -> Result<(), RingFull> {
        self.ring.push(entry)?;
        self.ring.publish();
        barrier::before_doorbell();
        // SAFETY: valid by the contract of `new`.
        unsafe { self.doorbell.as_ptr().write_volatile(self.token) };
        Ok(())
    }
}

/// A compute and a copy channel that are scheduled, and die, together (one TSG).
pub(crate) trait ChannelGroup: Send + Sync + Debug {
    /// The submission ring of one engine's channel, to be asked for once and before anything is
    /// submitted. It must not be used after the group is dropped.
    fn ring(&self, engine: Engine) -> SubmitRing;

    /// The error that the kernel has recorded for the group, if there is one.
    fn error(&self) -> Option<ErrorCode>;
}

/// A GPU driver.
pub(crate) trait Backend: Send + Sync + Debug {
    /// What the GPU is.
    fn properties(&self) -> &Properties;

    /// Memory of at least `bytes` bytes, cached by the CPU and kept coherent by the SoC.
    fn allocate(&self, bytes: u64, label: &str) -> Result<Box<dyn DeviceMemory>>;

    /// A fresh channel group.
    fn open_channels(&self) -> Result<Box<dyn ChannelGroup>>;

    /// Lines that the kernel has logged about the GPU since the last call, or why they cannot be read.
    fn kernel_log(&self) -> Result<Vec<String>, String>;
}
