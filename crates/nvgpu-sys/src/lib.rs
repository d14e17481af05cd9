//! Raw ioctls, structs and the one door to the kernel for the Jetson Orin's GPU.
//!
//! The GPU of an Orin (chip ga10b) is driven through two character devices of NVIDIA's L4T kernel:
//! `/dev/nvmap` hands out memory and `/dev/nvgpu/igpu0/ctrl` hands out address spaces, TSGs and
//! channels. This crate holds the numbers (request codes, struct layouts, flags) and [`Door`], the
//! trait through which every system call of the workspace passes. It allocates nothing, decides
//! nothing and logs nothing.

pub mod door;
mod linux;

pub use door::{Door, DoorFd, DoorMapping, MapRequest};
pub use linux::LinuxDoor;
pub use rustix::io::Errno;
