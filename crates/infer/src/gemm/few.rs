//! The launches of `kernels/gemm/few.cu`: products of at most [`MOST`] vectors that are in the memory of sequences.

use tegra_hcq::{Device, Program};

use super::packed::{Formats, PackedCall, is_float};
use crate::blocks::BlockType;
use crate::error::Result;
use crate::launch::{Launcher, cubins, words_with_tile};
use crate::parameters::{FewParams, SequenceView};

/// Most vectors.
pub(crate) const MOST: usize = 32;
/// Vectors of the kernels, largest first.
const SIZES: [usize; 2] = [MOST, 16];
/// Threads of a block, and its warps.
const BLOCK: u32 = 512;
const WARPS: usize = 16;
/// Rows of a warp.
const GROUP: usize = 16;
/// Bytes of a vector's elements in a step.
const STEP: usize = 256;
/// Bytes of a vector's sums in shared memory.
const SUM_BYTES: usize = WARPS * GROUP * 4;
/// Shared memory of a block that the kernels use themselves.
const STATIC_BYTES: usize = 1024;
/// Most parts of the columns: one block adds the sums of all.
const MAX_PARTS: usize = 16;

/// GPU addresses of memory for the sums of blocks that share rows, of the sizes of [`Partition::sums`]; zeros if no
/// blocks do.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Sums {
    pub(crate) sums: u64,
    /// Zeros before and after each product.
    pub(crate) tickets: u64,
}

/// How a product is divided. It does not depend on the number of vectors, and neither do their bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Partition {
    /// Parts of the columns: blocks that share rows.
    parts: usize,
    /// Steps of each part but the last, which may have fewer.
    steps: usize,
    /// Warps that share the columns of the same rows.
    split: usize,
    /// Rounds of a block.
    rounds: usize,
    /// Blocks that share no rows.
    tiles: usize,
}

impl Partition {
    /// The fastest way by an estimate, in nanoseconds of a Hopper GPU: all `sms` have a block, with room for `most`
    /// steps of the vectors. At most `most_parts`, unless the vectors have no room then.
    fn new(rows: usize, all: usize, sms: usize, most: usize, most_parts: usize) -> Self {
        let mut plans = Vec::new();
        let fewest = all.div_ceil(most);
        for parts in fewest..=most_parts.max(fewest) {
            let steps = all.div_ceil(parts);
            // Each part has a step.
            if steps * (parts - 1) >= all {
                continue;
            }
            for split in [1, 2, 4, 8, 16] {
                let round_rows = GROUP * WARPS / split;
                let all_rounds = rows.div_ceil(round_rows).max(1);
                let rounds = all_rounds.div_ceil((sms / parts).max(1));
                let tiles = all_rounds.div_ceil(rounds);
                let waves = (tiles * parts).div_ceil(sms);
                let (of_round, of_vectors) = (steps.div_ceil(split) * 800 + 600, steps * 170);
                let of_sums = if parts > 1 { 2000 + parts * rounds * round_rows * 4 } else { 0 };
                let time = waves * (rounds * of_round + of_vectors + of_sums);
                plans.push((time, Self { parts, steps, split, rounds, tiles }));
            }
        }
        // PANIC: the fewest parts have a plan.
        plans.into_iter().min_by_key(|(time, _)| *time).expect("a plan").1
    }

    /// Bytes of sums and of tickets.
    pub(crate) fn sums(&self) -> (usize, usize) {
        if self.parts == 1 {
            return (0, 0);
        }
        let rows = self.rounds * GROUP * WARPS / self.split;
        (self.tiles * self.parts * rows * MOST * 4, self.tiles * 4)
    }
}

/// The kernels by format and number of vectors.
#[derive(Clone, Debug)]
pub(crate) struct FewKernels {
    kernels: Formats<{ SIZES.len() }>,
    sms: usize,
}

impl FewKernels {
    /// Loads the kernels of the formats that `wanted` names.
    pub(crate) fn load(device: &Device, wanted: impl Fn(BlockType) -> bool) -> Result<Self> {
        let program = Program::load_fitting(device, &cubins!("gemm/few"))?;
        let kernels = Formats::load(&program, "few", SIZES, wanted)?;
        // CAST: usize has at least 32 bits.
        Ok(Self { kernels, sms: device.info().sm_count.max(1) as usize })
    }

    /// Steps of the columns of a format.
    pub(super) fn steps(block: BlockType, columns: usize) -> usize {
        (columns * if is_float(block) { 4 } else { 2 }).div_ceil(STEP).max(1)
    }

    /// Most steps of a part: their vectors are in shared memory.
    pub(super) fn most_steps(&self, block: BlockType) -> usize {
        // CAST: usize has at least 32 bits.
        let shared = self.kernels.of(block)[0].attributes().max_dynamic_shared_bytes as usize;
        (shared.saturating_sub(STATIC_BYTES + MOST * SUM_BYTES) / (MOST * STEP)).max(1)
    }

    /// How a product is divided whose blocks can share rows.
    pub(crate) fn partition(&self, block: BlockType, rows: usize, columns: usize) -> Partition {
        Partition::new(rows, Self::steps(block, columns), self.sms, self.most_steps(block), MAX_PARTS)
    }

    /// The same for blocks that cannot; `None` if the vectors have no room in one.
    pub(super) fn partition_alone(&self, block: BlockType, rows: usize, columns: usize) -> Option<Partition> {
        let (steps, most) = (Self::steps(block, columns), self.most_steps(block));
        (steps <= most).then(|| Partition::new(rows, steps, self.sms, most, 1))
    }

    /// Appends a product with at most [`MOST`] vectors. Gates and outputs are at their places in the memory of each
    /// sequence, if `sequences` are given.
    ///
    /// # Safety
    ///
    /// As for [`Launcher::launch`]: the addresses lead to memory of the sizes that the call and the partition give.
    pub(crate) unsafe fn launch(
        &self,
        to: &mut dyn Launcher,
        call: &PackedCall<'_>,
        partition: Partition,
        sequences: SequenceView,
        Sums { sums, tickets }: Sums,
    ) -> Result<()> {
        let Partition { parts, steps, split, rounds, tiles } = partition;
        let variant = usize::from(call.vectors <= SIZES[1]);
        let shared = SIZES[variant] * (SUM_BYTES + steps * STEP);
        let [blocks, shared] = words_with_tile([parts * tiles, shared])?;
        let [parts, steps, split, rounds] = words_with_tile([parts, steps, split, rounds])?;
        let product = call.parameters()?;
        let parameters =
            FewParams { product, parts, steps, split, rounds, unused: 0, sums, tickets, sequences };
        let (kernel, arguments) =
            (&self.kernels.of(call.block)[variant], call.arguments(bytemuck::bytes_of(&parameters)));
        // SAFETY: the caller's promise is passed on.
        unsafe { to.launch(kernel, blocks.into(), BLOCK.into(), shared, &arguments)? };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn a_plan_takes_all_rows_and_columns_once(
            (rows, all) in (1..200_000_usize, 1..300_usize),
            (sms, most, most_parts) in (1..200_usize, 1..30_usize, 1..20_usize),
        ) {
            let Partition { parts, steps, split, rounds, tiles } = Partition::new(rows, all, sms, most, most_parts);
            prop_assert!(steps <= most && parts * steps >= all && (parts - 1) * steps < all);
            prop_assert!(parts <= most_parts.max(all.div_ceil(most)));
            prop_assert!(WARPS.is_multiple_of(split));
            let tile_rows = rounds * GROUP * WARPS / split;
            prop_assert!(tiles * tile_rows >= rows && (tiles - 1) * tile_rows < rows);
        }
    }

    #[test]
    fn the_products_of_llama_1b_keep_the_sms_of_an_h100_busy() {
        // Rows, steps of 128 columns, parts of a block, warps that share columns, rounds.
        let products =
            [(3072, 16, 1, 8, 1), (2048, 16, 1, 16, 1), (16_384, 16, 1, 2, 1), (2048, 64, 4, 4, 1)];
        for (rows, all, parts, split, rounds) in products {
            let plan = Partition::new(rows, all, 132, 24, MAX_PARTS);
            assert_eq!((plan.parts, plan.split, plan.rounds), (parts, split, rounds), "{rows} rows");
            assert!((96..=132).contains(&(plan.tiles * plan.parts)), "{rows} rows: {plan:?}");
            let sums = if parts == 1 { 0 } else { rows * parts * MOST * 4 };
            assert_eq!(plan.sums().0, sums);
        }
    }
}
