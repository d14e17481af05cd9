//! The objects that handles name.

use core::ptr;
use std::sync::Arc;

use parking_lot::Mutex;
use tegra_hcq::{Buffer, Device, Graph, GraphBuilder, Kernel, NodeId, Program, Queue, Signal, SpanGuard};

use crate::fence::FenceObject;
use crate::fork::Use;
#[cfg(feature = "gemm")]
pub(crate) use crate::product::Kernels;
use crate::profile::ProfileObject;

/// A library without products of matrices has no kernels for them.
#[cfg(not(feature = "gemm"))]
pub(crate) type Kernels = core::convert::Infallible;

/// Kind of an object, part of its handle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub(crate) enum Kind {
    Device = 1,
    Buffer,
    Program,
    Kernel,
    Queue,
    Fence,
    Signal,
    Builder,
    Graph,
    Profile,
    Gemm,
}

impl Kind {
    const ALL: [(Self, &'static str); 11] = [
        (Self::Device, "device"),
        (Self::Buffer, "buffer"),
        (Self::Program, "program"),
        (Self::Kernel, "kernel"),
        (Self::Queue, "queue"),
        (Self::Fence, "fence"),
        (Self::Signal, "signal"),
        (Self::Builder, "graph builder"),
        (Self::Graph, "graph"),
        (Self::Profile, "profile"),
        (Self::Gemm, "set of kernels for products"),
    ];

    pub(crate) fn from_number(number: u64) -> Option<Self> {
        Self::ALL.into_iter().map(|(kind, _)| kind).find(|kind| *kind as u64 == number)
    }

    /// Name in messages.
    pub(crate) fn name(self) -> &'static str {
        Self::ALL[self as usize - 1].1
    }
}

/// A kernel with its name as a C string.
#[derive(Debug)]
pub(crate) struct KernelObject {
    pub(crate) kernel: Kernel,
    pub(crate) name: std::ffi::CString,
}

/// A program with the names of its kernels as C strings.
#[derive(Debug)]
pub(crate) struct ProgramObject {
    pub(crate) program: Program,
    pub(crate) names: Vec<std::ffi::CString>,
}

/// A queue with its open spans, innermost last.
#[derive(Debug)]
pub(crate) struct QueueObject {
    pub(crate) queue: Queue,
    pub(crate) spans: Vec<SpanGuard>,
    /// Handle of the device that the queue belongs to.
    pub(crate) device: u64,
}

/// Steps of a graph that changes name by number.
#[derive(Debug)]
pub(crate) struct BuilderObject {
    pub(crate) builder: GraphBuilder,
    pub(crate) nodes: Vec<NodeId>,
}

/// A graph and its steps.
#[derive(Debug)]
pub(crate) struct GraphObject {
    pub(crate) graph: Graph,
    pub(crate) nodes: Vec<NodeId>,
}

/// An object. All but the device know the handle of the device that they belong to.
#[derive(Debug)]
pub(crate) enum Object {
    Device(Device, Use),
    Buffer(u64, Arc<Buffer<u8>>),
    Program(u64, Arc<ProgramObject>),
    Kernel(u64, Arc<KernelObject>),
    Queue(Box<QueueObject>),
    Fence(u64, Arc<FenceObject>),
    Signal(u64, Arc<Signal>),
    Builder(u64, Box<BuilderObject>),
    Graph(u64, Arc<Mutex<GraphObject>>),
    Profile(u64, Arc<ProfileObject>),
    Gemm(u64, Arc<Kernels>),
}

impl Object {
    pub(crate) fn kind(&self) -> Kind {
        match self {
            Self::Device(..) => Kind::Device,
            Self::Buffer(..) => Kind::Buffer,
            Self::Program(..) => Kind::Program,
            Self::Kernel(..) => Kind::Kernel,
            Self::Queue(_) => Kind::Queue,
            Self::Fence(..) => Kind::Fence,
            Self::Signal(..) => Kind::Signal,
            Self::Builder(..) => Kind::Builder,
            Self::Graph(..) => Kind::Graph,
            Self::Profile(..) => Kind::Profile,
            Self::Gemm(..) => Kind::Gemm,
        }
    }

    /// Handle of the device that the object belongs to.
    pub(crate) fn device(&self) -> Option<u64> {
        match self {
            Self::Device(..) => None,
            Self::Queue(queue) => Some(queue.device),
            Self::Buffer(device, _)
            | Self::Program(device, _)
            | Self::Kernel(device, _)
            | Self::Fence(device, _)
            | Self::Signal(device, _)
            | Self::Builder(device, _)
            | Self::Graph(device, _)
            | Self::Profile(device, _)
            | Self::Gemm(device, _) => Some(*device),
        }
    }

    /// What [`Table::peek`](crate::handle::Table::peek) reads: `Buffer<u8>` of a buffer, [`KernelObject`] of a kernel,
    /// null otherwise.
    pub(crate) fn peeked(&self) -> *mut () {
        match self {
            Self::Buffer(_, buffer) => Arc::as_ptr(buffer).cast_mut().cast(),
            Self::Kernel(_, kernel) => Arc::as_ptr(kernel).cast_mut().cast(),
            _ => ptr::null_mut(),
        }
    }
}
