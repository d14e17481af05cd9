//! Recipes of the shapes of published models, and tiny ones of their architectures.

use super::Recipe;
use crate::blocks::BlockType;
use crate::model::Architecture;

impl Recipe {
    /// Components of a head that are rotated.
    pub(super) const fn rotated(&self) -> usize {
        if self.rotated == 0 { self.head_size } else { self.rotated }
    }

    /// Positions before an extension of the context.
    pub(super) const fn original_context(&self) -> usize {
        match self.architecture {
            Architecture::Phi3 if self.rope_factors => self.context.div_ceil(8),
            Architecture::Mistral3 => self.context.div_ceil(16),
            Architecture::GptOss => self.context.div_ceil(32),
            _ => self.context,
        }
    }

    /// Keys with factors.
    pub(super) const fn factors(&self) -> &'static [(&'static str, f32)] {
        match self.architecture {
            Architecture::Phi3 => &[("rope.scaling.attn_factor", 1.19)],
            Architecture::Mistral3 => &[
                ("rope.scaling.factor", 16.0),
                ("rope.scaling.yarn_beta_fast", 32.0),
                ("rope.scaling.yarn_beta_slow", 1.0),
                ("rope.scaling.yarn_log_multiplier", 1.0),
            ],
            Architecture::GptOss => &[
                ("rope.scaling.factor", 32.0),
                ("rope.scaling.yarn_beta_fast", 32.0),
                ("rope.scaling.yarn_beta_slow", 1.0),
            ],
            Architecture::Granite => &[
                ("embedding_scale", 12.0),
                ("residual_scale", 0.22),
                ("attention.scale", 0.1),
                ("logit_scale", 8.0),
            ],
            _ => &[],
        }
    }

    /// Whether a layer is a convolution: in LFM2, all but those of an attention.
    pub(super) const fn is_convolution(&self, number: usize) -> bool {
        matches!(self.architecture, Architecture::Lfm2) && !matches!(number, 2 | 5 | 8 | 10 | 12 | 14)
    }

    /// A Gemma 3 of the size of [`Recipe::tiny_llama`], whose first layer has a window of 32 positions.
    pub const fn tiny_gemma3() -> Self {
        Self { window: 32, window_period: 2, ..Self::tiny(Architecture::Gemma3) }
    }

    /// A Phi 3 of the size of [`Recipe::tiny_llama`], with 48 of 64 components of a head rotated, and other factors of
    /// frequencies in contexts of more than 128 positions.
    pub const fn tiny_phi3() -> Self {
        Self { rotated: 48, rope_factors: true, ..Self::tiny(Architecture::Phi3) }
    }

    /// A Mistral of the size of [`Recipe::tiny_llama`]: a LLaMA with a window of 32 positions in all layers.
    pub const fn tiny_mistral() -> Self {
        Self { window: 32, ..Self::tiny(Architecture::Llama) }
    }

    /// A Mistral 3 of the size of [`Recipe::tiny_llama`], extended from 64 positions.
    pub const fn tiny_mistral3() -> Self {
        Self::tiny(Architecture::Mistral3)
    }

    /// A Granite of the size of [`Recipe::tiny_llama`].
    pub const fn tiny_granite() -> Self {
        Self::tiny(Architecture::Granite)
    }

    /// A SmolLM 3 of the size of [`Recipe::tiny_llama`], but of 4 layers: the last one is without rotation.
    pub const fn tiny_smollm3() -> Self {
        Self { layers: 4, ..Self::tiny(Architecture::SmolLm3) }
    }

    /// An LFM2 of the size of [`Recipe::tiny_llama`], but of 4 layers: the third one is an attention.
    pub const fn tiny_lfm2() -> Self {
        Self { layers: 4, ..Self::tiny(Architecture::Lfm2) }
    }

    /// A gpt-oss of the size of [`Recipe::tiny_llama`] with 8 experts, of which a token uses 2, extended from 32
    /// positions. Its first layer has a window of 32 positions. Experts are in MXFP4, the other matrices in Q8_0.
    pub const fn tiny_gpt_oss() -> Self {
        let (block, mixed) = (BlockType::Mxfp4, true);
        Self { ffn: 256, window: 32, tied: false, block, mixed, ..Self::tiny(Architecture::GptOss) }
    }

    const fn tiny(architecture: Architecture) -> Self {
        Self { architecture, rope_factors: false, ..Self::tiny_llama() }
    }

    /// The shape of Gemma 3 270M, in Q8_0: 290 MB.
    pub const fn gemma3_270m() -> Self {
        let shape = Self::tiny_gemma3().with([18, 640, 4, 1, 256, 2048, 262_144, 32_768]);
        Self { window: 512, window_period: 6, ..shape }
    }

    /// The shape of Gemma 3 1B, in Q8_0: 1.1 GB.
    pub const fn gemma3_1b() -> Self {
        let shape = Self::tiny_gemma3().with([26, 1152, 4, 1, 256, 6912, 262_144, 32_768]);
        Self { window: 512, window_period: 6, ..shape }
    }

    /// The shape of the text part of Gemma 3 4B, in Q8_0: 4.1 GB.
    pub const fn gemma3_4b() -> Self {
        let shape = Self::tiny_gemma3().with([34, 2560, 8, 4, 256, 10_240, 262_144, 131_072]);
        Self { window: 1024, window_period: 6, ..shape }
    }

    /// The shape of Qwen 2.5 0.5B, in Q8_0: 530 MB.
    pub const fn qwen25_500m() -> Self {
        Self::tiny_qwen2().with([24, 896, 14, 2, 64, 4864, 151_936, 32_768])
    }

    /// The shape of SmolLM2 135M, in Q8_0: 140 MB.
    pub const fn smollm2_135m() -> Self {
        Self::tiny(Architecture::Llama).with([30, 576, 9, 3, 64, 1536, 49_152, 8192])
    }

    /// The shape of SmolLM 3 3B, in Q8_0: 3.3 GB.
    pub const fn smollm3_3b() -> Self {
        Self::tiny_smollm3().with([36, 2048, 16, 4, 128, 11_008, 128_256, 65_536])
    }

    /// The shape of Phi-4-mini, in Q8_0: 4.1 GB.
    pub const fn phi4_mini() -> Self {
        Self { rotated: 96, ..Self::tiny_phi3().with([32, 3072, 24, 8, 128, 8192, 200_064, 131_072]) }
    }

    /// The shape of Granite 3.3 2B, in Q8_0: 2.7 GB.
    pub const fn granite_2b() -> Self {
        Self::tiny_granite().with([40, 2048, 32, 8, 64, 8192, 49_159, 131_072])
    }

    /// The shape of LFM2 350M, in Q8_0: 380 MB.
    pub const fn lfm2_350m() -> Self {
        Self::tiny_lfm2().with([16, 1024, 16, 8, 64, 4608, 65_536, 128_000])
    }

    /// The shape of LFM2 1.2B, in Q8_0: 1.2 GB.
    pub const fn lfm2_1b() -> Self {
        Self::tiny_lfm2().with([16, 2048, 32, 8, 64, 8192, 65_536, 128_000])
    }

    /// The shape of Ministral 3 3B, in Q8_0: 3.6 GB.
    pub const fn ministral3_3b() -> Self {
        Self::tiny_mistral3().with([26, 3072, 32, 8, 128, 9216, 131_072, 262_144])
    }

    /// The shape of gpt-oss 20B, with the experts in MXFP4 and the other matrices in Q8_0: 12 GB.
    pub const fn gpt_oss_20b() -> Self {
        let shape = Self::tiny_gpt_oss().with([24, 2880, 64, 8, 64, 2880, 201_088, 131_072]);
        Self { experts: [32, 4], window: 128, block: BlockType::Mxfp4, ..shape }
    }

    /// Layers, width, heads, key heads, components of a head, width of the feed-forward network, tokens and positions;
    /// in Q8_0, which fits all widths.
    const fn with(self, sizes: [usize; 8]) -> Self {
        let [layers, width, heads, kv_heads, head_size, ffn, vocabulary, context] = sizes;
        let block = BlockType::Q8_0;
        Self { layers, width, heads, kv_heads, head_size, ffn, vocabulary, context, block, ..self }
    }
}
