//! The launches of `kernels/gemm/dense.cu`, and checks that the buffers fit.

use tegra_hcq::{Arg, Kernel, Program, Slice};

use super::{Dense, Factor, Form, Precision, Shape, Target, hopper};
use crate::error::{Error, Result};
use crate::launch::{Launcher, fits, product, words_with_tile};
use crate::parameters::DenseParams;

/// Tiles on their way or in use.
const STAGES: usize = 3;
/// Bytes of a tile's row.
const ROW: usize = 128;
/// Alignment of rows that are copied 16 bytes at a time.
const ALIGNMENT: u64 = 16;

/// The kernels by element, form and size.
pub(super) fn kernels(program: &Program) -> Result<[[[Kernel; 3]; 2]; 4]> {
    let kernel = |element, form, size| program.kernel(&format!("product_{element}_{form}_{size}"));
    let sizes = |element, form| {
        Ok::<_, Error>([
            kernel(element, form, "large")?,
            kernel(element, form, "small")?,
            kernel(element, form, "any")?,
        ])
    };
    let forms = |element| Ok::<_, Error>([sizes(element, "rows")?, sizes(element, "columns")?]);
    Ok([forms("f16")?, forms("bf16")?, forms("tf32")?, forms("f32")?])
}

/// A tile of the result: rows, columns and threads.
#[derive(Clone, Copy)]
struct Tile {
    rows: usize,
    columns: usize,
    threads: u32,
}

impl Tile {
    const SMALL: Self = Self { rows: 64, columns: 64, threads: 128 };

    const fn large(is_split: bool) -> Self {
        Self { rows: 128, columns: if is_split { 128 } else { 256 }, threads: 256 }
    }

    fn count(self, shape: &Shape) -> usize {
        shape.m.div_ceil(self.rows) * shape.n.div_ceil(self.columns)
    }
}

/// The parameters of a product of elements of `bytes` bytes.
fn parameters(shape: &Shape, bytes: usize, out: &Target<'_>) -> Result<DenseParams> {
    let Shape { m, n, k, form, .. } = *shape;
    let (output, out_bytes) = match out {
        Target::F32(_) => (0, 4),
        Target::F16(_) => (1, 2),
        Target::Bf16(_) => (2, 2),
    };
    let [m32, n32, k32] = words_with_tile([m, n, k])?;
    Ok(DenseParams {
        // CAST: usize is at most 64 bits; the buffers exist, so products of sizes fit.
        a_batch: (m * k * bytes) as u64,
        b_batch: (k * n * bytes) as u64,
        c_batch: (m * n * out_bytes) as u64,
        m: m32,
        n: n32,
        k: k32,
        a_row: k32,
        b_row: if form == Form::Rows { n32 } else { k32 },
        c_row: n32,
        output,
        accumulate: u32::from(shape.accumulate),
        scale: shape.scale,
        arrays: 0,
    })
}

impl Dense {
    /// Multiplies matrices: see [`Shape`]. `bias` has an element for each column of the result.
    ///
    /// # Errors
    ///
    /// [`Error::Length`] if a buffer does not fit, or for sums of length 0; [`Error::Factors`] if the factors' elements
    /// differ; [`Error::TooLarge`] if a size exceeds 31 bits; those of [`Launcher::launch`].
    pub fn multiply(
        &self,
        to: &mut dyn Launcher,
        shape: &Shape,
        a: Factor<'_>,
        b: Factor<'_>,
        bias: Option<Slice<'_, f32>>,
        out: Target<'_>,
    ) -> Result<()> {
        let Shape { batch, m, n, k, form, .. } = *shape;
        fits("the first factor", a.len(), product([batch, m, k]))?;
        fits("the second factor", b.len(), product([batch, k, n]))?;
        fits("the product", out.len(), product([batch, m, n]))?;
        if let Some(bias) = &bias {
            fits("the bias", bias.len(), n)?;
        }
        if out.is_empty() {
            return Ok(());
        }
        if k == 0 {
            return Err(Error::Length { what: "a sum of products", len: 0, needed: 1 });
        }
        let full = shape.precision == Precision::Full;
        let (element, bytes, [a_va, b_va]) = match (&a, &b) {
            (Factor::F16(a), Factor::F16(b)) => (0, 2, [a.gpu_va(), b.gpu_va()]),
            (Factor::Bf16(a), Factor::Bf16(b)) => (1, 2, [a.gpu_va(), b.gpu_va()]),
            (Factor::F32(a), Factor::F32(b)) => (2 + usize::from(full), 4, [a.gpu_va(), b.gpu_va()]),
            _ => return Err(Error::Factors { first: a.name(), second: b.name() }),
        };
        let parameters = parameters(shape, bytes, &out)?;
        // CAST: 2 or 4.
        let row_bytes = [parameters.a_row, parameters.b_row].map(|row| u64::from(row) * bytes as u64);
        let is_aligned = (a_va | b_va | row_bytes[0] | row_bytes[1]).is_multiple_of(ALIGNMENT);
        let large = Tile::large(element == 3);
        let (tile, kind) = match is_aligned {
            false => (Tile::SMALL, 2),
            true if large.count(shape).saturating_mul(batch) >= self.enough => (large, 0),
            true => (Tile::SMALL, 1),
        };
        let transposed = usize::from(form == Form::Columns);
        let kernel = &self.kernels[element][transposed][kind];
        let hopper = self.hopper.as_ref().filter(|_| kind == 0);
        let hopper = hopper.and_then(|hopper| hopper.of(element, shape, [a_va, b_va]));
        let argument = |factor| match factor {
            Factor::F16(slice) | Factor::Bf16(slice) => Arg::from(slice),
            Factor::F32(slice) => Arg::from(slice),
        };
        let out = match out {
            Target::F16(slice) | Target::Bf16(slice) => Arg::from(slice),
            Target::F32(slice) => Arg::from(slice),
        };
        let bias = bias.map_or(Arg::U64(0), Arg::from);
        let shared = STAGES * ROW * (tile.rows + tile.columns);
        let blocks = hopper.as_ref().map_or_else(|| tile.count(shape), |wide| wide.blocks);
        let [tiles, batch, shared] = words_with_tile([blocks, batch, shared])?;
        let (grid, parameters) = ((tiles, 1, batch).into(), Arg::Bytes(bytemuck::bytes_of(&parameters)));
        let [a, b] = [a, b].map(argument);
        // SAFETY: the buffers have the lengths that the kernels access for these sizes: checked above. The maps end
        // where the factors end.
        unsafe {
            if let Some(wide) = &hopper {
                let [a_map, b_map] =
                    wide.maps.each_ref().map(|map| Arg::Bytes(bytemuck::bytes_of(map.words())));
                let arguments = [a_map, b_map, a, b, out, bias, parameters];
                to.launch(wide.kernel, grid, wide.threads.into(), hopper::SHARED_BYTES, &arguments)?;
            } else {
                to.launch(kernel, grid, tile.threads.into(), shared, &[a, b, out, bias, parameters])?;
            }
        }
        Ok(())
    }
}
