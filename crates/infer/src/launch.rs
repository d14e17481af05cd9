//! Launches: the kernels' cubins, where launches go, and sizes as kernels take them.

use tegra_hcq::{Arg, Dim3, GraphBuilder, Kernel, Queue};

use crate::error::{Error, Result};

/// The cubins of a source for an Orin and for Hopper GPUs.
macro_rules! cubins {
    ($name:literal) => {
        [
            include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/", $name, ".cubin")) as &[u8],
            include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/sm_90/", $name, ".cubin")),
        ]
    };
}
pub(crate) use cubins;

/// Takes launches: a queue runs them, a graph records them.
pub trait Launcher {
    /// Appends a launch with `shared_bytes` of dynamic shared memory per block.
    ///
    /// # Errors
    ///
    /// Returns the errors of [`Queue::launch_with_shared`].
    ///
    /// # Safety
    ///
    /// As for [`Queue::launch_with_shared`] and [`GraphBuilder::launch_with_shared`].
    unsafe fn launch(
        &mut self,
        kernel: &Kernel,
        grid: Dim3,
        block: Dim3,
        shared_bytes: u32,
        arguments: &[Arg<'_>],
    ) -> tegra_hcq::Result<()>;
}

impl Launcher for Queue {
    unsafe fn launch(
        &mut self,
        kernel: &Kernel,
        grid: Dim3,
        block: Dim3,
        shared_bytes: u32,
        arguments: &[Arg<'_>],
    ) -> tegra_hcq::Result<()> {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.launch_with_shared(kernel, grid, block, shared_bytes, arguments) }
    }
}

impl Launcher for GraphBuilder {
    unsafe fn launch(
        &mut self,
        kernel: &Kernel,
        grid: Dim3,
        block: Dim3,
        shared_bytes: u32,
        arguments: &[Arg<'_>],
    ) -> tegra_hcq::Result<()> {
        // SAFETY: the caller's promise is passed on.
        unsafe { self.launch_with_shared(kernel, grid, block, shared_bytes, arguments).map(drop) }
    }
}

/// A size as kernels count it.
pub(crate) fn word(size: usize) -> Result<u32> {
    u32::try_from(size).map_err(|_| Error::TooLarge(size))
}

/// The same for several sizes.
pub(crate) fn words<const N: usize>(sizes: [usize; N]) -> Result<[u32; N]> {
    let mut words = [0; N];
    for (word_of, size) in words.iter_mut().zip(sizes) {
        *word_of = word(size)?;
    }
    Ok(words)
}

/// The same for kernels that add a tile to their sizes: they are below 2^31.
pub(crate) fn words_with_tile<const N: usize>(sizes: [usize; N]) -> Result<[u32; N]> {
    match sizes.into_iter().find(|size| i32::try_from(*size).is_err()) {
        Some(size) => Err(Error::TooLarge(size)),
        None => words(sizes),
    }
}

/// Returns an error if a buffer has another number of elements than needed.
pub(crate) fn fits(what: &'static str, len: usize, needed: usize) -> Result<()> {
    if len == needed { Ok(()) } else { Err(Error::Length { what, len, needed }) }
}

/// The product of sizes; `usize::MAX`, which no buffer has, if it overflows.
pub(crate) fn product<const N: usize>(sizes: [usize; N]) -> usize {
    sizes.into_iter().fold(1, usize::saturating_mul)
}
