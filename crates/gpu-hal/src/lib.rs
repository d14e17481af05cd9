#![doc = include_str!("../README.md")]
//! # Where to find what
//!
//! - To implement: [`Driver`], [`ChannelGroup`], [`DeviceMemory`], [`AddressRange`].
//! - What a driver reports: [`Properties`], [`MemoryInfo`], [`Evidence`], [`SmRecord`], [`Refusal`], [`ErrorCode`].
//! - What a queue asks for: [`MemoryUse`], [`Engine`], [`Preemption`]; what it gets: [`Channels`], [`CopyChannel`].
//! - Memory of other devices: [`Token`], [`PeerLink`].
//! - Memory and fences of other drivers and processes: [`FileAccess`], [`FileId`], [`FencePoint`], [`FenceCounter`].
//! - Submission: [`SubmitRing`], [`SubmitPointers`], [`Owner`], [`RingView`], [`Ring`], [`RingFull`], and [`ring`]
//!   ([`Cursor`](ring::Cursor), [`MIN_ENTRIES`](ring::MIN_ENTRIES), [`USERD_GP_GET`](ring::USERD_GP_GET),
//!   [`USERD_GP_PUT`](ring::USERD_GP_PUT)), [`barrier`], [`volatile`].
//! - Generations of GPUs: [`chip`], [`SmLayout`].
//! - Failures: [`Error`], [`Shortage`], [`Result`], [`Source`].

pub mod barrier;
pub mod chip;
mod driver;
mod error;
mod error_code;
mod evidence;
mod files;
mod properties;
/// The GPFIFO ring alone, for drivers that map one themselves.
pub mod ring {
    pub use crate::submit::{Cursor, MIN_ENTRIES, Ring, RingFull, USERD_GP_GET, USERD_GP_PUT};
}
mod submit;
pub mod volatile;

pub use ampere_cmd::command::SmLayout;
pub use driver::{
    AddressRange, ChannelGroup, Channels, CopyChannel, DeviceMemory, Driver, Engine, MemoryUse, PeerLink,
    Preemption, Token,
};
pub use error::{Error, Result, Shortage, Source};
pub use error_code::ErrorCode;
pub use evidence::{Evidence, Refusal, SmRecord};
pub use files::{FenceCounter, FencePoint, FileAccess, FileId};
pub use properties::{MemoryInfo, Properties};
pub use submit::{Owner, Ring, RingFull, RingView, SubmitPointers, SubmitRing};

/// Version of this crate.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
