//! The launches of `kernels/gemm/wide.cu`: products of halves and bfloat16 with the instructions of SM 9.0.

use ampere_cmd::tensor_map::{Axis, Element, Swizzle, TensorMap};
use tegra_hcq::{Device, Kernel, Program};

use super::{Form, Shape};
use crate::error::{Error, Result};

const WIDE: &[u8] = include_bytes!("../../kernels/sm_90/gemm/wide.cubin");
/// The GPUs that the kernels are for.
const SM: (u32, u32) = (9, 0);
/// Threads of a block: two groups that multiply, and a warp that copies.
pub(super) const THREADS: u32 = 288;
/// Dynamic shared memory of a block in bytes: four stages, and what aligns them.
pub(super) const SHARED_BYTES: u32 = 4 * 128 * (ROWS + COLUMNS) + 1024;
/// Rows and columns of the result that a block computes.
const ROWS: u32 = 128;
const COLUMNS: u32 = 256;
/// Columns of a part of a stage: rows of 128 bytes.
const PART: u32 = 64;

/// The kernels by element and form.
#[derive(Clone, Debug)]
pub(super) struct HopperKernels([[Kernel; 2]; 2]);

impl HopperKernels {
    /// Loads the cubin; `None` for GPUs without its instructions.
    pub(super) fn load(device: &Device) -> Result<Option<Self>> {
        if device.info().sm_version != SM {
            return Ok(None);
        }
        let program = Program::load(device, WIDE)?;
        let kernel = |element, form| program.kernel(&format!("wide_{element}_{form}"));
        let forms = |element| Ok::<_, Error>([kernel(element, "rows")?, kernel(element, "columns")?]);
        Ok(Some(Self([forms("f16")?, forms("bf16")?])))
    }

    /// The kernel of a product and the maps of its factors, which are at `vas`; `None` if there is none for it. `bits`
    /// selects the elements: 0 for halves, 1 for bfloat16.
    pub(super) fn of(&self, bits: usize, shape: &Shape, vas: [u64; 2]) -> Option<(&Kernel, [TensorMap; 2])> {
        let element = [Element::F16, Element::Bf16].get(bits)?;
        let kernel = &self.0[bits][usize::from(shape.form == Form::Columns)];
        Some((kernel, maps(*element, shape, vas)?))
    }
}

/// The maps of both factors; `None` if one has no map.
fn maps(element: Element, shape: &Shape, [a, b]: [u64; 2]) -> Option<[TensorMap; 2]> {
    let Shape { batch, m, n, k, form, .. } = *shape;
    let map = |va, rows: usize, columns: usize, tile| {
        // CAST: usize is at most 64 bits; the buffers exist, so products of sizes fit.
        let row = (columns * element.bytes() as usize) as u64;
        let axes = [
            Axis { extent: columns as u64, stride: 0, tile: PART },
            Axis { extent: rows as u64, stride: row, tile },
            Axis { extent: batch as u64, stride: row * rows as u64, tile: 1 },
        ];
        TensorMap::new(element, va, &axes, Swizzle::Bytes128).ok()
    };
    let second = match form {
        Form::Rows => map(b, k, n, PART)?,
        Form::Columns => map(b, n, k, COLUMNS)?,
    };
    Some([map(a, m, k, ROWS)?, second])
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
