#![doc = include_str!("../README.md")]

mod arguments;
mod biased;
mod buffer;
mod calls;
mod device;
mod fault;
mod fence;
mod file;
mod fork;
mod gemm;
mod graph;
mod handle;
mod interrupt;
mod log;
mod object;
mod pass;
#[cfg(feature = "gemm")]
mod product;
mod profile;
mod program;
mod queue;
mod signal;
mod status;
mod types;
mod version;

pub use buffer::*;
pub use calls::*;
pub use device::*;
pub use fault::*;
pub use fence::*;
pub use file::*;
pub use gemm::*;
pub use graph::*;
pub use interrupt::*;
pub use log::*;
pub use profile::*;
pub use program::*;
pub use queue::*;
pub use signal::*;
pub use status::*;
pub use types::*;
pub use version::*;
