//! Raw ioctls, structs and flags for the Jetson Orin's GPU.
//!
//! The GPU of an Orin (chip ga10b) is driven through two character devices of NVIDIA's L4T kernel:
//! `/dev/nvmap` allocates memory, and `/dev/nvgpu/igpu0/ctrl` creates address spaces, TSGs and
//! channels. This crate defines the numbers (request codes, struct layouts, flags); its requests are sent
//! through a [`kernel_door::Door`]. It sets no policy and writes no log.
//!
//! # Where to find what
//!
//! - Requests by node: [`mod@nvmap`], [`ctrl`], [`address_space`], [`tsg`], [`channel`], [`host1x`], [`sync_file`]; the
//!   nodes in [`paths`].
//! - Memory of other drivers: [`dma_buf`], [`dma_heap`], [`udmabuf`].
//! - The headers they come from: [`headers`].
//! - The releases that have a request or struct: [`Release`], [`UnknownRelease`].
//! - Advice for a node that does not open: [`cure`].

pub mod address_space;
pub mod channel;
pub mod ctrl;
pub mod cure;
pub mod dma_buf;
pub mod dma_heap;
pub mod headers;
pub mod host1x;
pub mod nvmap;
pub mod paths;
mod release;
pub mod sync_file;
pub mod tsg;
pub mod udmabuf;

pub use release::{Release, UnknownRelease};

/// All requests of this crate, node by node. No two nodes share a code.
pub fn requests() -> impl Iterator<Item = &'static kernel_door::RequestInfo> + Clone {
    let nodes = [
        nvmap::ALL,
        ctrl::ALL,
        address_space::ALL,
        tsg::ALL,
        channel::ALL,
        host1x::ALL,
        sync_file::ALL,
        dma_buf::ALL,
        dma_heap::ALL,
        udmabuf::ALL,
    ];
    nodes.into_iter().flatten()
}

/// The name of the request with a code; `None` if no node has it.
pub fn request_name(code: u32) -> Option<&'static str> {
    requests().find(|info| info.code == code).map(|info| info.name)
}

/// Version of this crate.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

/// Compiles the example of the README.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
