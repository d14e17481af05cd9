//! Raw ioctls, structs and the one door to the kernel for the Jetson Orin's GPU.
//!
//! The GPU of an Orin (chip ga10b) is driven through two character devices of NVIDIA's L4T kernel:
//! `/dev/nvmap` allocates memory, and `/dev/nvgpu/igpu0/ctrl` creates address spaces, TSGs and
//! channels. This crate defines the numbers (request codes, struct layouts, flags) and [`Door`], the
//! trait through which every system call of the workspace passes. It sets no policy and writes no
//! log.
//!
//! # Where to find what
//!
//! - System calls: [`Door`], [`LinuxDoor`], [`DoorFd`], [`DoorMapping`], [`MapRequest`], [`Errno`], and their flags in
//!   [`door`].
//! - Requests: [`Request`], [`ValueRequest`], [`RequestInfo`] in [`request`]; structs and their layouts in [`layout`],
//!   the headers they come from in [`headers`].
//! - Requests by node: [`mod@nvmap`], [`ctrl`], [`address_space`], [`tsg`], [`channel`], [`host1x`], [`sync_file`]; the
//!   nodes in [`paths`].
//! - Advice for an errno: [`cure`].
#![cfg_attr(feature = "test-support", doc = "- A door in front of another one, for tests: [`forward`].")]

pub mod address_space;
pub mod channel;
pub mod ctrl;
pub mod cure;
pub mod door;
#[cfg(feature = "test-support")]
pub mod forward;
pub mod headers;
pub mod host1x;
pub mod layout;
mod linux;
pub mod nvmap;
pub mod paths;
pub mod request;
pub mod sync_file;
pub mod tsg;

pub use door::{Door, DoorFd, DoorMapping, MapRequest};
pub use linux::LinuxDoor;
pub use request::{Request, RequestInfo, ValueRequest};
pub use rustix::io::Errno;

/// Version of this crate.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
