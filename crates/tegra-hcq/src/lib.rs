#![doc = include_str!("../README.md")]

mod args;
mod backend;
mod device;
mod error;
mod fault;
mod grid;
mod memory;
mod program;
mod queue;
mod ring;
mod timeline;
mod wait;

pub use args::{Arg, BufferUse};
pub use backend::Properties;
pub use device::{DEFAULT_TIMEOUT, Device, DeviceId, DeviceKind, MAX_QUEUES};
pub use error::{Error, Result};
pub use fault::{CodeLocation, Fault, FaultKind, WarpError};
pub use grid::{Dim3, MAX_BLOCK_THREADS};
pub use memory::{Buffer, Pod};
pub use nvgpu_channel::ErrorCode;
pub use program::{Kernel, Program};
pub use queue::Queue;
pub use wait::Fence;
