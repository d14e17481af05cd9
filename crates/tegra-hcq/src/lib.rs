#![doc = include_str!("../README.md")]

mod adapter;
mod args;
mod bundle;
#[cfg(feature = "nvrtc")]
mod compile;
mod descriptor;
mod device;
mod error;
mod fault;
mod future;
mod graph;
mod grid;
mod inspect;
mod interrupt;
mod kind;
mod log;
mod memory;
mod occupancy;
mod open;
mod profile;
mod program;
mod queue;
mod recover;
mod ring;
mod shared;
mod signal;
mod timeline;
mod typed;
mod variable;
mod wait;

pub use args::{Arg, BufferUse};
#[cfg(feature = "nvrtc")]
pub use compile::{Cache, Compiled, Compiler, Source};
pub use device::{DEFAULT_TIMEOUT, Device, Properties};
pub use error::{Error, Result};
pub use fault::{CodeLocation, Fault, FaultKind, NearBuffer, WarpError};
pub use future::FenceFuture;
pub use gpu_hal::{ErrorCode, MemoryInfo, MemoryUse};
pub use graph::{Graph, GraphBuilder, NodeId};
pub use grid::{Dim3, MAX_BLOCK_THREADS};
pub use inspect::{LaunchRecord, Submission};
pub use kind::DeviceKind;
pub use memory::{Buffer, HostMemory, Pod, PoolUsage, Slice, SliceMut, View};
pub use occupancy::{Attributes, Limit, Occupancy};
pub use profile::{Profile, Span, Unfinished, Work};
pub use program::{Kernel, Program};
pub use queue::{FillValue, Queue, QueueOptions, ReleaseBy, Until};
pub use recover::Recovery;
pub use shared::{DeviceId, MAX_QUEUES};
pub use signal::Signal;
pub use typed::{ByValue, KernelArg, Signature, TypedKernel};
pub use variable::Variable;
pub use wait::{Fence, WaitPolicy};
