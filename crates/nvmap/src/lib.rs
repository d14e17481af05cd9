#![doc = include_str!("../README.md")]
#![doc = ""]
#![doc = include_str!("guide.md")]

mod buffer;
mod builder;
mod client;
mod dma_buf;
mod error;
mod handle;
mod join;
mod mapping;
mod view;

pub use buffer::{Buffer, CacheMode, CacheOperation};
pub use builder::{BufferBuilder, DEFAULT_TAG};
pub use client::{HeapUsage, Nvmap};
pub use dma_buf::{Access, DmaBuf, Parameters};
pub use error::Error;
pub use mapping::CpuMapping;
pub use nvgpu_sys::nvmap::{Heaps, Rows};
pub use view::TypedView;

/// Version of this crate.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");
