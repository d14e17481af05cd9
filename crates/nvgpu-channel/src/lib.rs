#![doc = include_str!("../README.md")]
#![doc = ""]
#![doc = include_str!("guide.md")]

mod address_space;
mod channel;
mod characteristics;
mod clocks;
pub mod doctor;
mod doorbell;
mod error;
mod fence;
mod gpu;
mod kernel_log;
mod kmsg;
mod notifier;
mod sparse;
pub mod system;
mod time;
mod topology;
mod tsg;
mod tsg_sharing;
mod va_allocator;
mod va_pool;

pub use address_space::{
    Access, AddressSpace, GPU_PAGE, GpuVa, LOCAL_WINDOW, MapOptions, Mapping, Placement, Reservation,
    SHARED_WINDOW, SyncpointWindow, VA_END, VA_START,
};
pub use channel::{Channel, ChannelBuilder, DEFAULT_ENTRIES, Preemption, UserSyncpoint, Watchdog};
pub use characteristics::{AMPERE_CHANNEL_GPFIFO_B, AMPERE_COMPUTE_B, AMPERE_DMA_COPY_B, Characteristics};
pub use clocks::{ClockRange, ClockReading, ClockRequest, Devfreq, DevfreqBoost, DevfreqState};
pub use doctor::{Finding, Report, Severity, examine};
pub use doorbell::Doorbell;
pub use error::Error;
pub use fence::{Fence, FenceNode, SyncpointPoller, Threshold, has_reached};
pub use gpu::Gpu;
pub use gpu_hal::{ErrorCode, KernelLog, Ring, RingFull};
pub use kernel_log::open_kernel_log;
pub use kmsg::KmsgReader;
pub use notifier::{ErrorNotifier, Fault};
pub use nvgpu_sys::ctrl::GpuFlags;
pub use sparse::{PageChange, PageOptions};
pub use system::{LinuxSystem, System};
pub use time::{CpuClock, TimePair, WallClock};
pub use topology::{Engine, EngineKind, SmPosition};
pub use tsg::{EventKind, Interleave, SectorPromotion, SmErrorStateRecord, Subcontext, Tsg, TsgEvent};
pub use tsg_sharing::ShareToken;
pub use va_allocator::VaAllocator;
pub use va_pool::{VaBlock, VaPool};

/// Version of this crate.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
