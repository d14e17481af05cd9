#![doc = include_str!("../README.md")]

mod buffer;
mod client;
mod error;
mod handle;
pub mod volatile;

pub use buffer::{Buffer, BufferBuilder, CacheMode, CacheOperation, DEFAULT_TAG};
pub use client::{HeapUsage, Nvmap};
pub use error::Error;
pub use nvgpu_sys::nvmap::Heaps;
