#![doc = include_str!("../README.md")]
//! # Where to find what
//!
//! - Devices: [`Device`], [`DeviceKind`], [`DeviceName`], [`Which`], [`DeviceOptions`], [`Properties`], [`Recovery`];
//!   encodings that a board may need: [`Encodings`], [`PcasAction`], [`Chaining`], [`Mapping`], [`ReleaseBy`].
//! - Several devices: [`PeerAccess`], [`PeerLink`], [`Link`], [`Transfer`].
//! - Memory: [`Buffer`], [`Slice`], [`SliceMut`], [`Plane`], [`PlaneMut`], [`View`], [`HostMemory`], [`MemoryUse`],
//!   [`MemoryFigures`], [`PoolUsage`], [`Pod`]; by address: [`RawPlane`].
//! - Textures: [`Texture`], their descriptions in [`texture`]; block-linear surfaces by address: [`RawSide`],
//!   [`BlockSurface`].
//! - Memory of other processes and drivers: [`SharedBuffer`], [`ReadOnlyBuffer`], [`CpuAccess`], [`FileAccess`];
//!   mapped at reserved addresses: [`AddressRange`].
//! - Programs: [`Program`], [`Kernel`], [`TypedKernel`], [`Variable`], [`Attributes`], [`Occupancy`], [`Limit`];
//!   their output: [`OutputStream`]; of build scripts: [`include_kernels!`].
//! - Parameters of typed kernels: [`Signature`], [`KernelArg`], [`Count`], [`ByValue`], [`Arguments`], [`Pass`],
//!   [`LaunchSize`]; of others: [`args!`], [`Arg`], [`BufferUse`].
//! - Work: [`Queue`], [`QueueOptions`], [`WaitPolicy`], [`Preemption`], [`Dim3`], [`MAX_BLOCK_THREADS`], [`FillValue`],
//!   [`Until`], [`Download`], [`MAX_QUEUES`], [`Priority`]; words by address: [`Payload`], [`AcquireCondition`].
//! - Waiting: [`Fence`], [`FenceFuture`], [`Signal`], [`DEFAULT_TIMEOUT`], [`set_interrupt`].
//! - Recorded work: [`GraphBuilder`], [`Graph`], [`NodeId`], [`TypedNode`].
//! - Failures: [`Error`], [`Shortage`], [`MemoryInfo`], [`Result`], [`LaunchError`], [`RangeError`],
//!   [`ErrorCode`]; [`Fault`], [`FaultKind`], [`WarpError`], [`MmuFaultType`], [`MmuAccess`],
//!   [`CodeLocation`], [`NearBuffer`], [`Submission`], [`LaunchRecord`].
//! - Times: [`Profile`], [`Span`], [`SpanGuard`], [`Range`], [`Work`], [`Unfinished`].
#![cfg_attr(
    feature = "nvrtc",
    doc = "- Compilers: [`Compiler`], [`Source`], [`Compiled`], [`Linker`], [`LinkInput`], [`JitOptions`], [`Cache`];"
)]
#![cfg_attr(feature = "nvrtc", doc = "  [`CompileError`], [`CompileRequestError`].")]
#![cfg_attr(feature = "sim", doc = "- Checks of kernels on the software Orin: [`check`].")]

/// Includes the modules that a build script has generated with the crate `orin-build`: for each source its cubin, and
/// the names of its kernels. The argument is the name of the set (`Kernels::name`), if it has one.
///
/// ```text
/// mod kernels {
///     tegra_hcq::include_kernels!();
/// }
///
/// let program = Program::load(&device, kernels::saxpy::CUBIN)?;
/// ```
#[macro_export]
macro_rules! include_kernels {
    () => {
        $crate::include_kernels!("kernels");
    };
    ($name:literal) => {
        include!(concat!(env!("OUT_DIR"), "/", $name, ".rs"));
    };
}

mod adapter;
mod allocation;
mod args;
#[cfg(feature = "sim")]
pub mod check;
#[cfg(feature = "nvrtc")]
mod compile;
mod descriptor;
mod device;
mod diagnose;
mod encodings;
mod error;
mod fault;
mod future;
mod graph;
mod heap;
mod interrupt;
mod kind;
mod launch;
mod limits;
mod log;
mod memory;
mod occupancy;
mod open;
mod peer;
mod profile;
mod program;
mod queue;
mod recover;
mod ring;
mod runtime;
mod shared;
mod signal;
mod texture_object;
mod texture_table;
mod transfer;
mod typed;
mod variable;
mod wait;
mod waiter;

pub use ampere_cmd::command::{AcquireCondition, BlockSurface, Payload, PcasAction};
pub use ampere_cmd::texture;
pub use args::{Arg, BufferUse, FillValue};
pub use device::{Device, MemoryFigures};
pub use encodings::{Chaining, DeviceOptions, Encodings, Mapping, ReleaseBy};
pub use error::{Error, LaunchError, RangeError, Result};
pub use fault::{
    CodeLocation, Fault, FaultKind, LaunchRecord, MmuAccess, MmuFaultType, NearBuffer, Submission, WarpError,
};
pub use future::FenceFuture;
pub use gpu_hal::chip::MAX_BLOCK_THREADS;
pub use gpu_hal::{ErrorCode, FileAccess, MemoryInfo, MemoryUse, PeerLink, Preemption, Shortage};
pub use graph::{Graph, GraphBuilder, NodeId};
pub use heap::PoolUsage;
pub use interrupt::set_interrupt;
pub use kind::{DeviceKind, DeviceName, Properties, Which};
pub use limits::{DEFAULT_TIMEOUT, Dim3, MAX_QUEUES, Priority};
pub use memory::{
    AddressRange, Buffer, CpuAccess, HostMemory, Plane, PlaneMut, Pod, ReadOnlyBuffer, SharedBuffer, Slice,
    SliceMut, View,
};
pub use occupancy::{Attributes, Limit, Occupancy};
#[cfg(feature = "nvrtc")]
pub use orin_compile::{
    Cache, Compiled, Compiler, Error as CompileError, JitOptions, LinkInput, Linker,
    RequestError as CompileRequestError, Source,
};
pub use peer::{Link, PeerAccess, Transfer};
pub use profile::{Profile, Range, Span, Unfinished, Work};
pub use program::{Kernel, Program};
pub use queue::profile::SpanGuard;
pub use queue::{Download, Queue, QueueOptions, RawPlane, RawSide, Until};
pub use recover::Recovery;
pub use runtime::OutputStream;
pub use signal::Signal;
pub use texture_object::Texture;
pub use typed::{Arguments, ByValue, Count, KernelArg, LaunchSize, Pass, Signature, TypedKernel, TypedNode};
pub use variable::Variable;
pub use wait::{Fence, WaitPolicy};
