//! NVIDIA's desktop and data-centre GPU driver from user space, without libcuda.
//!
//! Two kernel modules implement the driver. `nvidia` (RM) manages a tree of objects through ioctls on `/dev/nvidiactl`
//! and `/dev/nvidia<n>`: memory, channels, the doorbell page. `nvidia-uvm` owns the GPU's page tables. Once a
//! channel runs, submissions make no system call: they write commands and a ring entry to memory that the GPU
//! fetches, then a token to the doorbell.
//!
//! [`Gpu`] is an open GPU with an address space, [`Memory`] and [`HostImport`] are memory that the GPU accesses, and
//! [`ChannelGroup`] is a pair of channels. Callers encode the commands. It supports the generations
//! of [`gpu_hal::chip`] that have a doorbell class: Hopper is tested on an H200, SM 8.0, 8.6 and 8.9 were never tried.
//! It supports releases 570 to 595 of the driver; 580 is tested.

pub mod abi;
mod channel;
mod error;
mod gpu;
mod memory;
mod release;
mod rm;
mod space;
mod version;

pub use channel::{ChannelError, ChannelGroup, Engine, MmuFault, RING_ENTRIES, SmError};
pub use error::{Error, Result, Status};
pub use gpu::{Gpu, Properties};
pub use memory::{HostImport, Memory, Place};
pub use release::Release;
pub use rm::CONTROL_NODE;
pub use space::{LARGE_PAGE, LOCAL_WINDOW, SHARED_WINDOW, SMALL_PAGE, VA_END, VA_START};
pub use version::Version;

/// Version of this crate.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
