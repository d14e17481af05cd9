//! Copies and fills as kernels (`kernels/builtin.cu`).

use std::sync::Arc;

use crate::args::Arg;
use crate::args::FillValue;
use crate::error::{RangeError, Result};
use crate::memory::{Pod, Slice, SliceMut};
use crate::program::{Kernel, Program};
use crate::shared::Shared;

/// Threads per block.
pub(crate) const BLOCK: u32 = 256;
/// Blocks per SM that saturate memory bandwidth if each thread moves many units.
const BLOCKS_PER_SM: u64 = 8;
/// Largest number of blocks for a copy in units of 16 bytes. One unit per thread is fastest on an H200: 132 µs for 256
/// MiB. Threads that stride over the memory take 144 µs, with two or four units per step 142 µs.
const COPY_BLOCKS: u64 = 1 << 20;

/// A launch that copies or fills memory.
pub(crate) struct Step<'a> {
    pub(crate) kernel: Kernel,
    pub(crate) grid: u32,
    pub(crate) arguments: [Arg<'a>; 3],
}

/// Number of blocks that stride over `units` units of work.
fn grid(device: &Shared, units: u64) -> u32 {
    blocks(units, u64::from(device.driver().properties().sm_count.max(1)) * BLOCKS_PER_SM)
}

/// Number of blocks for `units` units of work, at most `most`.
fn blocks(units: u64, most: u64) -> u32 {
    // CAST: at most a million, or eight per SM of about a hundred SMs.
    units.div_ceil(u64::from(BLOCK)).min(most) as u32
}

/// A copy of all of `source` to `target`.
pub(crate) fn copy<'a, T: Pod>(
    device: &Arc<Shared>,
    source: &Slice<'a, T>,
    target: &'a SliceMut<'_, T>,
) -> Result<Step<'a>> {
    let target = target.as_slice();
    let bytes = (source.len() * size_of::<T>()) as u64;
    if source.len() != target.len() || bytes == 0 {
        let (source_len, target_len) = (source.len(), target.len());
        return Err(if bytes == 0 && source_len == target_len {
            RangeError::EmptyStep.into()
        } else {
            RangeError::Lengths { source_len, target_len }.into()
        });
    }
    Ok(Copies::new(device)?.step(device, source, &target, bytes))
}

/// The kernels that copy.
#[derive(Debug)]
pub(crate) struct Copies {
    /// In units of 16 bytes.
    wide: Kernel,
    /// Byte by byte.
    narrow: Kernel,
}

impl Copies {
    pub(crate) fn new(device: &Arc<Shared>) -> Result<Self> {
        let program = builtin(device)?;
        Ok(Self { wide: program.kernel("copy_16")?, narrow: program.kernel("copy_1")? })
    }

    /// A copy of `bytes` bytes; both buffers have at least that size.
    pub(crate) fn step<'a, T: Pod>(
        &self,
        device: &Shared,
        source: &Slice<'a, T>,
        target: &Slice<'a, T>,
        bytes: u64,
    ) -> Step<'a> {
        let (kernel, units, grid) = self.kernel(device, source.gpu_va(), target.gpu_va(), bytes);
        Step { kernel: kernel.clone(), grid, arguments: [(*target).into(), (*source).into(), units.into()] }
    }

    /// A copy of `bytes` bytes between two GPU addresses.
    pub(crate) fn raw_step(&self, device: &Shared, source: u64, target: u64, bytes: u64) -> Step<'static> {
        let (kernel, units, grid) = self.kernel(device, source, target, bytes);
        Step { kernel: kernel.clone(), grid, arguments: [target.into(), source.into(), units.into()] }
    }

    /// The kernel for a copy between two GPU addresses, the number of its units, and the number of blocks.
    fn kernel(&self, device: &Shared, source: u64, target: u64, bytes: u64) -> (&Kernel, u64, u32) {
        if (source | target | bytes).is_multiple_of(16) {
            (&self.wide, bytes / 16, blocks(bytes / 16, COPY_BLOCKS))
        } else {
            (&self.narrow, bytes, grid(device, bytes))
        }
    }
}

/// A fill of all of `target` with `value`.
pub(crate) fn fill<'a, T: FillValue>(
    device: &Arc<Shared>,
    target: &'a SliceMut<'_, T>,
    value: T,
) -> Result<Step<'a>> {
    let target = target.as_slice();
    if target.is_empty() {
        return Err(RangeError::EmptyStep.into());
    }
    let units = target.len() as u64;
    Ok(Step {
        kernel: builtin(device)?.kernel(match size_of::<T>() {
            1 => "fill_1",
            2 => "fill_2",
            _ => "fill_4",
        })?,
        grid: grid(device, units),
        arguments: [target.into(), value.argument(), units.into()],
    })
}

/// The copy and fill kernels of a device, loaded at first use.
pub(crate) fn builtin(device: &Arc<Shared>) -> Result<Program> {
    let images: [&[u8]; 2] =
        [include_bytes!("../kernels/builtin.cubin"), include_bytes!("../kernels/sm_90/builtin.cubin")];
    let code =
        device.builtin_program(|| Ok(Arc::clone(Program::load_fitting_on(device, &images)?.loaded())))?;
    Ok(Program::from_code(code))
}
