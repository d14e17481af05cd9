//! The back end: what a queue needs of a GPU driver.
//!
//! A back end offers properties, memory, channel groups and the reason of a failure. It hands out
//! rings and memory as plain pointers ([`GpfifoRing`], [`DeviceMemory::cpu`]), so that the hot path
//! contains no dynamic call. The only implementation so far is [`nvgpu`]; it drives the real kernel
//! driver and the software Orin alike, because both answer through the same door.

use core::fmt::Debug;
use core::ptr::NonNull;

use nvgpu_channel::GpfifoRing;

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
}

/// Memory that CPU and GPU see.
pub(crate) trait DeviceMemory: Send + Sync + Debug {
    /// First address on the GPU.
    fn gpu_va(&self) -> u64;

    /// First byte on the CPU, page aligned; valid for [`DeviceMemory::len`] bytes as long as `self`
    /// lives.
    fn cpu(&self) -> NonNull<u8>;

    /// Length in bytes, a multiple of the page size.
    fn len(&self) -> usize;
}

/// The two engines that a queue feeds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Engine {
    /// Kernels.
    Compute,
    /// Linear copies.
    Copy,
}

/// A compute and a copy channel that are scheduled, and die, together (one TSG).
pub(crate) trait ChannelGroup: Send + Sync + Debug {
    /// Takes the submission ring of one engine's channel out of the group, once. The memory behind
    /// it lives as long as the group.
    fn take_ring(&mut self, engine: Engine) -> GpfifoRing;

    /// The error that the kernel has recorded for the group, if there is one.
    fn error(&self) -> Option<ChannelError>;
}

/// What the kernel recorded when it stopped a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ChannelError {
    /// Number of the error notifier.
    pub(crate) code: u32,
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
