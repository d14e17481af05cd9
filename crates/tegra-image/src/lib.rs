#![doc = include_str!("../README.md")]
//! # Where to find what
//!
//! - Images in memory: [`Surface`], [`Plane`], [`Layout`], [`MAX_SIDE`]; numbers of NvBufSurface: [`NvBufPlane`].
//! - Formats: [`Format`], [`Bayer`], [`Depth`], [`Packing`].
//! - Kernels: [`Kernels`]; planar floats: [`Shape`]; parameters: [`Colour`], [`Matrix`], [`Range`], [`Develop`],
//!   [`Fit`], [`Placement`], [`Camera`], [`Lens`].
//! - Failures: [`Error`], [`Result`].

#[cfg(doctest)]
#[doc = include_str!("../../../docs/images.md")]
struct Page;

#[cfg(doctest)]
#[doc = include_str!("../../../docs/camera.md")]
struct CameraPage;

mod error;
mod format;
mod kernels;
mod surface;

pub use error::{Error, Result};
pub use format::{Bayer, Depth, Format, Packing};
pub use kernels::{Camera, Colour, Develop, Fit, Kernels, Lens, Matrix, Placement, Range, Shape};
pub use surface::{Layout, MAX_SIDE, NvBufPlane, Plane, Surface};
