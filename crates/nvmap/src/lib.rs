#![doc = include_str!("../README.md")]
#![doc = ""]
#![doc = include_str!("guide.md")]
//! # Where to find what
//!
//! - The node: [`Nvmap`], [`open_node`], [`HeapUsage`], [`Heaps`].
//! - Buffers: [`Buffer`], [`BufferBuilder`], [`CacheMode`], [`Access`], [`DEFAULT_TAG`].
//! - Access by the CPU: [`TypedView`], [`CpuMapping`], [`Rows`], [`CacheOperation`].
//! - Sharing: [`DmaBuf`], [`Parameters`]; memory of other drivers: [`DmaBufFile`].
//! - Failures: [`Error`].

mod attributes;
mod buffer;
mod builder;
mod client;
mod dma_buf;
mod dma_buf_file;
mod error;
mod handle;
mod join;
mod mapping;
mod view;

pub use attributes::{Access, CacheMode, CacheOperation, DEFAULT_TAG};
pub use buffer::Buffer;
pub use builder::BufferBuilder;
pub use client::{HeapUsage, Nvmap, open_node};
pub use dma_buf::{DmaBuf, Parameters};
pub use dma_buf_file::DmaBufFile;
pub use error::Error;
pub use mapping::CpuMapping;
pub use nvgpu_sys::nvmap::{Heaps, Rows};
pub use view::TypedView;

/// Version of this crate.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
