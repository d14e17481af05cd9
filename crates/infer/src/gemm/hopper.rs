//! The launches of `kernels/gemm/wide.cu`: products of matrices with the instructions of SM 9.0.

use ampere_cmd::tensor_map::{Axis, Element, Swizzle, TensorMap};
use tegra_hcq::{Device, Kernel, Program};

use super::{Form, Shape};
use crate::error::{Error, Result};

const WIDE: &[u8] = include_bytes!("../../kernels/sm_90/gemm/wide.cubin");
/// The GPUs that the kernels are for.
const SM: (u32, u32) = (9, 0);
/// Dynamic shared memory of a block in bytes: four stages, and what aligns them.
pub(super) const SHARED_BYTES: u32 = 4 * ROW * (SHORT + LONG) + 1024;
/// Bytes of a row of a stage.
pub(super) const ROW: u32 = 128;
/// Edges of the tile of the result that a block computes.
const SHORT: u32 = 128;
const LONG: u32 = 256;

/// Whether a device has the instructions.
pub(super) fn is_hopper(device: &Device) -> bool {
    device.info().sm_version == SM
}

/// The map of `batch` matrices of `rows` rows without gaps, whose copies have `tile` rows of 128 bytes; `None` if they
/// have no map.
pub(super) fn map(
    element: Element,
    va: u64,
    [batch, rows, columns]: [usize; 3],
    tile: u32,
) -> Option<TensorMap> {
    // CAST: usize is at most 64 bits; the buffers exist, so products of sizes fit.
    let row = (columns * element.bytes() as usize) as u64;
    let axes = [
        Axis { extent: columns as u64, stride: 0, tile: ROW / element.bytes() },
        Axis { extent: rows as u64, stride: row, tile },
        Axis { extent: batch as u64, stride: row * rows as u64, tile: 1 },
    ];
    TensorMap::new(element, va, &axes, Swizzle::Bytes128).ok()
}

/// The kernels by element and form.
#[derive(Clone, Debug)]
pub(super) struct HopperKernels([[Kernel; 2]; 3]);

/// A launch of one of them.
pub(super) struct Wide<'a> {
    pub(super) kernel: &'a Kernel,
    pub(super) maps: [TensorMap; 2],
    /// Blocks of a product.
    pub(super) blocks: usize,
    pub(super) threads: u32,
}

impl HopperKernels {
    /// Loads the cubin; `None` for GPUs without its instructions.
    pub(super) fn load(device: &Device) -> Result<Option<Self>> {
        if !is_hopper(device) {
            return Ok(None);
        }
        let program = Program::load(device, WIDE)?;
        let kernel = |element, form| program.kernel(&format!("wide_{element}_{form}"));
        let forms = |element| Ok::<_, Error>([kernel(element, "rows")?, kernel(element, "columns")?]);
        Ok(Some(Self([forms("f16")?, forms("bf16")?, forms("tf32")?])))
    }

    /// The launch of a product whose factors are at `vas`; `None` if there is none. `bits` selects the elements: 0 for
    /// halves, 1 for bfloat16, 2 for floats that are rounded to TF32.
    pub(super) fn of(&self, bits: usize, shape: &Shape, vas: [u64; 2]) -> Option<Wide<'_>> {
        let kernel = &self.0.get(bits)?[usize::from(shape.form == Form::Columns)];
        let element = [Element::F16, Element::Bf16, Element::Tf32][bits];
        let [rows, columns] = tile(element, shape.form);
        // The block that computes the transpose has a whole group of 128 threads beside those that multiply.
        let threads = if rows == LONG { 384 } else { 288 };
        // CAST: 128 or 256.
        let blocks = shape.m.div_ceil(rows as usize) * shape.n.div_ceil(columns as usize);
        Some(Wide { kernel, maps: maps(element, shape, vas)?, blocks, threads })
    }
}

/// Rows and columns of the tile of a block. It is the transpose of the others' where `b` has to be the first factor.
fn tile(element: Element, form: Form) -> [u32; 2] {
    if element == Element::Tf32 && form == Form::Rows { [LONG, SHORT] } else { [SHORT, LONG] }
}

/// The maps of both factors; `None` if one has no map.
fn maps(element: Element, shape: &Shape, [a, b]: [u64; 2]) -> Option<[TensorMap; 2]> {
    let Shape { batch, m, n, k, form, .. } = *shape;
    let [rows, columns] = tile(element, form);
    let second = match form {
        Form::Rows => map(element, b, [batch, k, n], ROW / element.bytes())?,
        Form::Columns => map(element, b, [batch, n, k], columns)?,
    };
    Some([map(element, a, [batch, m, k], rows)?, second])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Extents, distances in units of 16 bytes, and the box of a map.
    fn read(map: TensorMap) -> ([u32; 3], [u32; 2], [u32; 3]) {
        let words = map.words();
        let extents = [words[8] + 1, words[9] + 1, words[10] + 1];
        (extents, [words[3], words[4]], [(words[13] >> 24) + 1, words[14] % 256 + 1, (words[14] >> 8) + 1])
    }

    #[test]
    fn maps_have_the_shapes_of_the_factors() {
        let vas = [0x1000, 0x2000];
        let shape = Shape { batch: 3, ..Shape::new(10, 24, 40, Form::Columns) };
        let [a, b] = maps(Element::F16, &shape, vas).unwrap();
        assert_eq!((a.words()[0], b.words()[0]), (0x1000, 0x2000));
        assert_eq!(read(a), ([40, 10, 3], [5, 50], [64, 128, 1]));
        assert_eq!(read(b), ([40, 24, 3], [5, 120], [64, 256, 1]));
        let rows = Shape { form: Form::Rows, ..shape };
        let [first, b] = maps(Element::Bf16, &rows, vas).unwrap();
        assert_eq!(read(first), read(a));
        assert_eq!(read(b), ([24, 40, 3], [3, 120], [64, 64, 1]));
        let [a, b] = maps(Element::Tf32, &shape, vas).unwrap();
        assert_eq!(read(a), ([40, 10, 3], [10, 100], [32, 128, 1]));
        assert_eq!(read(b), ([40, 24, 3], [10, 240], [32, 256, 1]));
        let [a, b] = maps(Element::Tf32, &rows, vas).unwrap();
        assert_eq!(read(a), ([40, 10, 3], [10, 100], [32, 256, 1]));
        assert_eq!(read(b), ([24, 40, 3], [6, 240], [32, 32, 1]));
    }

    #[test]
    fn factors_without_a_map_have_none() {
        let shape = Shape::new(10, 24, 40, Form::Columns);
        assert!(maps(Element::F16, &shape, [8, 0]).is_none(), "an address within 16 bytes");
        assert!(maps(Element::F16, &shape, [0, 8]).is_none());
        let odd = Shape { k: 41, ..shape };
        assert!(maps(Element::F16, &odd, [0, 0]).is_none(), "rows within 16 bytes");
        let long = Shape { m: (1 << 32) + 1, ..shape };
        assert!(maps(Element::F16, &long, [0, 0]).is_none(), "more rows than a map has");
    }
}
