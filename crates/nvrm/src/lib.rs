#![doc = include_str!("../README.md")]
//! # Where to find what
//!
//! - The GPU: [`Gpu`], [`Properties`], [`Version`], [`Release`], [`Listed`], [`CopyEngine`], [`CONTROL_NODE`].
//! - Memory: [`Memory`], [`Place`], [`HostImport`]; of other GPUs: [`PeerMemory`], [`SharedMemory`], [`PeerLink`].
//! - Channels: [`ChannelGroup`], [`Engine`], [`RING_ENTRIES`].
//! - Addresses: [`Reservation`], [`MappedPart`], [`VA_START`], [`VA_END`], [`SHARED_WINDOW`], [`LOCAL_WINDOW`],
//!   [`SMALL_PAGE`], [`LARGE_PAGE`].
//! - Failures: [`Error`], [`Result`], [`Status`]; of channels [`ChannelError`], [`MmuFault`], [`SmError`].
//! - The driver's raw interface: [`abi`].

pub mod abi;
mod channel;
mod error;
mod gpu;
mod memory;
mod release;
mod reservation;
mod rm;
mod space;
mod version;

pub use channel::{ChannelError, ChannelGroup, Engine, MmuFault, RING_ENTRIES, SmError};
pub use error::{Error, Result, Status};
pub use gpu::{CopyEngine, Gpu, Listed, Properties};
pub use memory::{HostImport, Memory, PeerMemory, Place, SharedMemory};
pub use release::Release;
pub use reservation::{MappedPart, Reservation};
pub use rm::CONTROL_NODE;
pub use space::{LARGE_PAGE, LOCAL_WINDOW, PeerLink, SHARED_WINDOW, SMALL_PAGE, VA_END, VA_START};
pub use version::Version;

/// Version of this crate.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
