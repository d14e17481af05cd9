#![doc = include_str!("../README.md")]
//! # Where to find what
//!
//! - System calls: [`Door`], [`LinuxDoor`], their arguments [`MapRequest`], [`OpenFlags`], [`Protection`], [`Events`],
//!   and [`Errno`].
//! - Owners: [`DoorFd`], [`DoorMapping`], [`DoorRange`].
//! - The kernel log: [`Kmsg`], [`KernelLog`], [`KMSG`].
//! - Requests: [`requests!`], [`Request`], [`ValueRequest`], [`RequestInfo`], [`Direction`], [`encode()`].
//! - Structs: [`uapi_struct!`] and [`layout`].
//! - The end of an error message: [`cure`].
#![cfg_attr(feature = "test-support", doc = "- A door in front of another one, for tests: [`forward`].")]

pub mod cure;
mod door;
#[cfg(feature = "test-support")]
pub mod forward;
mod kmsg;
pub mod layout;
mod linux;
mod owned;
mod request;

pub use door::{Door, Events, MapRequest, OpenFlags, Protection};
pub use kmsg::{KMSG, KernelLog, Kmsg};
pub use linux::LinuxDoor;
pub use owned::{DoorFd, DoorMapping, DoorRange};
pub use request::{Direction, Request, RequestInfo, ValueRequest, encode};
pub use rustix::io::Errno;

/// Version of this crate.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
