//! Which format each matrix of a mixed file has: the rules of llama.cpp's program for quantisation.

use super::Recipe;
use crate::blocks::BlockType;

/// What a matrix is for, as far as the rules tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    Embedding,
    Output,
    /// Values, alone or with queries and keys.
    Value,
    AttentionOutput,
    /// The last product of a feed-forward network.
    Down,
    DownOfExperts,
    /// The other products of experts.
    Experts,
    Other,
}

/// The format of a matrix of layer `layer` whose rows have `columns` columns.
pub(super) fn format(recipe: &Recipe, what: Use, layer: usize, columns: usize) -> BlockType {
    let (block, layers) = (recipe.block, recipe.layers);
    if !recipe.mixed || block.weights() == 1 {
        return block;
    }
    let eighth = layers / 8;
    // The first and the last eighth of the layers, and every third of those between.
    let has_more_bits = layer < eighth || layer >= 7 * layers / 8 || (layer - eighth) % 3 == 2;
    // Values are small then.
    let shares_keys = recipe.heads >= 4 * recipe.kv_heads;
    let is_output = what == Use::Output || what == Use::Embedding && recipe.tied;
    let what = if what == Use::DownOfExperts && block != BlockType::Mxfp4 { Use::Down } else { what };
    let wanted = match (block, what) {
        (BlockType::Q8_0, _) | (BlockType::Mxfp4, Use::Experts | Use::DownOfExperts) => block,
        (BlockType::Mxfp4, _) => BlockType::Q8_0,
        _ if is_output => BlockType::Q6K,
        (BlockType::Q4K | BlockType::Q5K, Use::Value | Use::Down) if has_more_bits => BlockType::Q6K,
        (BlockType::Q3K, Use::Value) if layer < 2 => BlockType::Q5K,
        (BlockType::Q3K, Use::Down) if layer < layers / 16 => BlockType::Q5K,
        (BlockType::Q3K, Use::Value | Use::Down | Use::AttentionOutput) => BlockType::Q4K,
        (BlockType::Q2K, Use::Value) if shares_keys => BlockType::Q4K,
        (BlockType::Q2K, Use::Value | Use::Down | Use::AttentionOutput) => BlockType::Q3K,
        (BlockType::Iq4Nl | BlockType::Iq4Xs, Use::Value) if shares_keys => BlockType::Q5K,
        (BlockType::Iq4Nl | BlockType::Iq4Xs, Use::Down) if layer < eighth => BlockType::Q5K,
        _ => block,
    };
    fitting(wanted, columns)
}

/// The format, or one whose blocks are smaller, if rows are not whole blocks.
fn fitting(wanted: BlockType, columns: usize) -> BlockType {
    let smaller = match wanted {
        _ if columns.is_multiple_of(wanted.weights()) => return wanted,
        BlockType::Q2K | BlockType::Q3K => BlockType::Q4_0,
        BlockType::Q4K => BlockType::Q5_0,
        BlockType::Q5K => BlockType::Q5_1,
        BlockType::Q6K => BlockType::Q8_0,
        BlockType::Iq4Xs => BlockType::Iq4Nl,
        _ => BlockType::F16,
    };
    if columns.is_multiple_of(smaller.weights()) { smaller } else { BlockType::F16 }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn matrices_have_the_formats_of_known_files() {
        // The shape of Qwen 2.5 0.5B, whose Q4_K_M file has these numbers of matrices, and its middle layers.
        let (block, mixed) = (BlockType::Q4K, true);
        let recipe = Recipe { block, mixed, layers: 24, heads: 14, kv_heads: 2, ..Recipe::tiny_qwen2() };
        let (width, ffn) = (896, 4864);
        let mut counts = BTreeMap::new();
        let mut count = |format| *counts.entry(format).or_insert(0) += 1;
        count(format(&recipe, Use::Embedding, 0, width));
        for layer in 0..recipe.layers {
            count(format(&recipe, Use::Value, layer, width));
            count(format(&recipe, Use::AttentionOutput, layer, width));
            count(format(&recipe, Use::Down, layer, ffn));
            (0..4).for_each(|_| count(format(&recipe, Use::Other, layer, width)));
        }
        let expected =
            [(BlockType::Q5_0, 132), (BlockType::Q8_0, 13), (BlockType::Q4K, 12), (BlockType::Q6K, 12)];
        assert_eq!(counts, expected.into());

        for (block, what, layer, columns, expected) in [
            (BlockType::Q5K, Use::Down, 3, 4864, BlockType::Q5K),
            (BlockType::Q5K, Use::Other, 3, 896, BlockType::Q5_1),
            (BlockType::Q3K, Use::Value, 1, 1024, BlockType::Q5K),
            (BlockType::Q3K, Use::Down, 1, 1024, BlockType::Q4K),
            (BlockType::Q3K, Use::Other, 1, 576, BlockType::Q4_0),
            (BlockType::Q2K, Use::Value, 9, 1024, BlockType::Q4K),
            (BlockType::Q2K, Use::AttentionOutput, 9, 1024, BlockType::Q3K),
            (BlockType::Iq4Xs, Use::Down, 2, 1024, BlockType::Q5K),
            (BlockType::Iq4Xs, Use::Down, 3, 576, BlockType::Iq4Nl),
            (BlockType::Q4_0, Use::Output, 0, 1024, BlockType::Q6K),
            (BlockType::Mxfp4, Use::DownOfExperts, 0, 2880, BlockType::Mxfp4),
            (BlockType::Mxfp4, Use::Value, 0, 2880, BlockType::Q8_0),
            (BlockType::Q4K, Use::Other, 0, 40, BlockType::F16),
            (BlockType::F16, Use::Output, 0, 1024, BlockType::F16),
        ] {
            let recipe = Recipe { block, ..recipe.clone() };
            assert_eq!(format(&recipe, what, layer, columns), expected, "{block} {what:?} {layer} {columns}");
        }
    }
}
