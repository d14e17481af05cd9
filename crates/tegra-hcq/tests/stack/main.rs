//! Tests of the whole stack on the software Orin, in one binary: one link step is faster than many.

#![allow(
    clippy::undocumented_unsafe_blocks,
    reason = "each launch runs a kernel of this repository within its buffers, or makes it fault outside of all memory"
)]

mod bundles;
mod compilers;
mod copies;
mod debug;
mod device_calls;
mod encodings;
mod faults;
mod files;
mod futures;
mod graphs;
mod hot_path;
mod imports;
mod kernel_log;
mod kernel_sources;
mod kernels;
mod memory;
mod peers;
mod preemption;
mod profiling;
mod queues;
mod recovery;
mod resources;
mod textures;
