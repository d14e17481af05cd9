//! The launches of `kernels/gemm/packed_wide.cu`: products of vectors with packed weights with the instructions of SM
//! 9.0.

use ampere_cmd::tensor_map::{Element, TensorMap};
use tegra_hcq::{Arg, Device, Program};

use super::hopper::{self, ROW};
use super::packed::{Formats, PackedCall, is_float};
use crate::blocks::BlockType;
use crate::error::Result;
use crate::launch::{Launcher, words_with_tile};

const WIDE: &[u8] = include_bytes!("../../kernels/sm_90/gemm/packed_wide.cubin");
/// Stages of a block.
const STAGES: usize = 4;
/// More vectors than this: the tiles would be almost empty.
const FEWEST: usize = 64;

/// A tile of a block, which has an SM to itself.
struct Tile {
    vectors: usize,
    rows: usize,
    threads: u32,
    /// Time of a block, in parts of which only the ratios count.
    time: usize,
}

const TILES: [Tile; 3] = [
    Tile { vectors: 256, rows: 128, threads: 384, time: 13 },
    Tile { vectors: 128, rows: 128, threads: 512, time: 8 },
    Tile { vectors: 128, rows: 64, threads: 384, time: 5 },
];

impl Tile {
    fn blocks(&self, vectors: usize, rows: usize) -> usize {
        vectors.div_ceil(self.vectors) * rows.div_ceil(self.rows)
    }
}

/// The kernels by format and size of tiles.
#[derive(Clone, Debug)]
pub(super) struct WideKernels(Formats<{ TILES.len() }>);

impl WideKernels {
    /// Loads the kernels of the formats that `wanted` names; `None` for GPUs without their instructions.
    pub(super) fn load(device: &Device, wanted: impl Fn(BlockType) -> bool) -> Result<Option<Self>> {
        if !hopper::is_hopper(device) {
            return Ok(None);
        }
        let program = Program::load(device, WIDE)?;
        let formats = Formats::load(&program, "wide", TILES.map(|tile| tile.vectors + tile.rows), |block| {
            wanted(block) && !is_float(block)
        })?;
        Ok(Some(Self(formats)))
    }

    /// Appends a product; `false` if other kernels are for it.
    ///
    /// # Safety
    ///
    /// As for [`PackedKernels::launch`](super::packed::PackedKernels::launch).
    pub(super) unsafe fn launch(
        &self,
        to: &mut dyn Launcher,
        call: &PackedCall<'_>,
        sms: usize,
    ) -> Result<bool> {
        let Some((variant, map)) = plan(call, sms) else { return Ok(false) };
        let (tile, parameters) = (&TILES[variant], call.parameters()?);
        let [tiles, input, factors, bias, gate, output, parameters] =
            call.arguments(bytemuck::bytes_of(&parameters));
        let map = Arg::Bytes(bytemuck::bytes_of(map.words()));
        let arguments = [map, tiles, input, factors, bias, gate, output, parameters];
        // CAST: 128.
        let shared = STAGES * ROW as usize * (tile.vectors + tile.rows) + 1024;
        let [blocks, shared] = words_with_tile([tile.blocks(call.vectors, call.rows), shared])?;
        let kernel = &self.0.of(call.block)[variant];
        // SAFETY: the caller's promise is passed on; the map ends where the vectors end.
        unsafe { to.launch(kernel, blocks.into(), tile.threads.into(), shared, &arguments)? };
        Ok(true)
    }
}

/// The index of the tile and the map of the vectors; `None` if other kernels are for the product.
fn plan(call: &PackedCall<'_>, sms: usize) -> Option<(usize, TensorMap)> {
    if call.vectors <= FEWEST || is_float(call.block) {
        return None;
    }
    let variant = variant(call.vectors, call.rows, sms);
    // CAST: 128 or 256.
    let tile = TILES[variant].vectors as u32;
    let map = hopper::map(Element::F16, call.vectors_at, [1, call.vectors, call.columns], tile)?;
    Some((variant, map))
}

/// The index of the tile with which a product takes the least time.
fn variant(vectors: usize, rows: usize, sms: usize) -> usize {
    let time = |tile: &Tile| tile.blocks(vectors, rows).div_ceil(sms) * tile.time;
    (0..TILES.len()).min_by_key(|index| time(&TILES[*index])).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;
    use crate::parameters::{ActivationCode, Epilogue};

    #[test]
    fn tiles_are_those_that_take_less_time() {
        for (vectors, rows, expected) in [
            // 128 of the smallest tiles.
            (512, 2048, 2),
            // 96, instead of two turns of 192.
            (512, 3072, 1),
            // Two turns of 128 each.
            (512, 16_384, 0),
            (1024, 3072, 0),
            (128, 2048, 2),
        ] {
            assert_eq!(variant(vectors, rows, 132), expected, "{vectors} vectors, {rows} rows");
        }
    }

    #[test]
    fn every_format_that_becomes_halves_has_its_kernels() {
        let names: HashSet<&[u8]> = WIDE.split(|byte| *byte == 0).collect();
        for block in BlockType::ALL.into_iter().filter(|block| !is_float(*block)) {
            for tile in &TILES {
                let name = format!("wide_{}_{}", block.name().to_lowercase(), tile.vectors + tile.rows);
                assert!(names.contains(name.as_bytes()), "kernels/gemm/packed_wide.cu has no {name}");
            }
        }
    }

    #[test]
    fn few_vectors_floats_and_vectors_without_a_map_have_no_plan() {
        let zero = Arg::U64(0);
        let call = PackedCall {
            block: BlockType::Q4K,
            vectors: 65,
            rows: 64,
            columns: 256,
            tiles: zero,
            input: zero,
            vectors_at: 0x1000,
            factors: zero,
            bias: zero,
            gate: zero,
            output: zero,
            output_row: 64,
            after: Epilogue::Store,
            activation: ActivationCode::Silu,
        };
        let (tile, map) = plan(&call, 132).unwrap();
        assert_eq!((tile, map.words()[8] + 1, map.words()[9] + 1), (2, 256, 65));
        assert_eq!(map.words()[14] + 1, 128, "rows of a copy");
        assert!(plan(&PackedCall { vectors: 64, ..call }, 132).is_none());
        assert!(plan(&PackedCall { block: BlockType::Bf16, ..call }, 132).is_none());
        assert!(plan(&PackedCall { vectors_at: 0x1008, ..call }, 132).is_none());
    }
}
