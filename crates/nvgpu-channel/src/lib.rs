#![doc = include_str!("../README.md")]
#![doc = ""]
#![doc = include_str!("guide.md")]
//! # Where to find what
//!
//! - The GPU: [`Gpu`], [`Characteristics`], [`GpuFlags`], [`Engine`], [`EngineKind`], [`SmPosition`], [`SMS_PER_TPC`],
//!   [`AMPERE_COMPUTE_B`], [`AMPERE_DMA_COPY_B`], [`AMPERE_CHANNEL_GPFIFO_B`].
//! - Addresses: [`AddressSpace`], [`Reservation`], [`Placement`], [`MapOptions`], [`Access`], [`Mapping`],
//!   [`MapSource`], [`SyncpointWindow`], [`GpuVa`], [`GPU_PAGE`], [`VA_START`], [`VA_END`], [`LOCAL_WINDOW`],
//!   [`SHARED_WINDOW`].
//! - Channels: [`Tsg`], [`Subcontext`], [`Interleave`], [`SectorPromotion`], [`ShareToken`], [`ChannelBuilder`],
//!   [`Channel`], [`Watchdog`], [`Preemption`].
//! - Submission: [`Ring`], [`RingFull`], [`DEFAULT_ENTRIES`], [`Doorbell`].
//! - Waiting: [`UserSyncpoint`], [`Fence`], [`FenceNode`], [`Threshold`], [`has_reached`], [`EventKind`],
//!   [`TsgEvent`].
//! - Failures: [`Error`], [`ErrorCode`], [`ErrorNotifier`], [`Fault`], [`SmErrorStateRecord`]; the kernel's words with
//!   [`KernelLog`], [`open_kernel_log`], [`KmsgReader`].
//! - Clocks and time: [`ClockRange`], [`ClockReading`], [`ClockRequest`], [`Devfreq`], [`DevfreqState`],
//!   [`DevfreqBoost`], [`CpuClock`], [`TimePair`], [`WallClock`].
//! - Diagnosis of a board: [`examine`], [`Report`], [`Finding`], [`Severity`] in [`doctor`]; [`System`],
//!   [`LinuxSystem`] in [`system`].

mod address_space;
mod channel;
mod characteristics;
mod clocks;
pub mod doctor;
mod doorbell;
mod error;
mod fault;
mod fence;
mod gpu;
mod kernel_log;
mod notifier;
pub mod system;
mod time;
mod topology;
mod tsg;
mod tsg_sharing;
mod va;

pub use address_space::{
    Access, AddressSpace, MapOptions, MapSource, Mapping, Placement, Reservation, SyncpointWindow,
};
pub use channel::{Channel, ChannelBuilder, DEFAULT_ENTRIES, UserSyncpoint, Watchdog};
pub use characteristics::{
    AMPERE_CHANNEL_GPFIFO_B, AMPERE_COMPUTE_B, AMPERE_DMA_COPY_B, Characteristics, SMS_PER_TPC,
};
pub use clocks::{ClockRange, ClockReading, ClockRequest, Devfreq, DevfreqBoost, DevfreqState};
pub use doctor::{Finding, Report, Severity, examine};
pub use doorbell::Doorbell;
pub use error::Error;
pub use fault::Fault;
pub use fence::{Fence, FenceNode, Threshold, has_reached};
pub use gpu::Gpu;
pub use gpu_hal::{ErrorCode, Preemption, Ring, RingFull};
pub use kernel_door::KernelLog;
pub use kernel_log::{KmsgReader, open_kernel_log};
pub use notifier::ErrorNotifier;
pub use nvgpu_sys::ctrl::GpuFlags;
pub use system::{LinuxSystem, System};
pub use time::{CpuClock, TimePair, WallClock};
pub use topology::{Engine, EngineKind, SmPosition};
pub use tsg::{EventKind, Interleave, SectorPromotion, SmErrorStateRecord, Subcontext, Tsg, TsgEvent};
pub use tsg_sharing::ShareToken;
pub use va::{GPU_PAGE, GpuVa, LOCAL_WINDOW, SHARED_WINDOW, VA_END, VA_START};

/// Version of this crate.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
