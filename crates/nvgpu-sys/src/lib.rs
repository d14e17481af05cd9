//! Raw ioctls, structs and the one door to the kernel for the Jetson Orin's GPU.
//!
//! The GPU of an Orin (chip ga10b) is driven through two character devices of NVIDIA's L4T kernel:
//! `/dev/nvmap` hands out memory and `/dev/nvgpu/igpu0/ctrl` hands out address spaces, TSGs and
//! channels. This crate holds the numbers (request codes, struct layouts, flags) and [`Door`], the
//! trait through which every system call of the workspace passes. It allocates nothing, decides
//! nothing and logs nothing.

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

/// The example of the README, compiled.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
