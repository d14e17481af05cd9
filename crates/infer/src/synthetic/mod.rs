//! Models with random weights, for tests and for measurements without a download.

mod mixture;
mod recipes;
mod vocabulary;

use std::io;

use fastrand::Rng;
use half::{bf16, f16};

use crate::blocks::BlockType;
use crate::error::Result;
use crate::gguf::{Array, Value, Writer};
use crate::model::{Architecture, CONVOLVED};
use mixture::Use;

/// The shape of a random model. The same recipe makes the same file, bit for bit.
///
/// ```
/// use infer::blocks::BlockType;
/// use infer::model::Model;
/// use infer::synthetic::Recipe;
///
/// let recipe = Recipe { block: BlockType::Q8_0, seed: 3, ..Recipe::tiny_qwen2() };
/// let model = Model::from_bytes(recipe.to_bytes()?)?;
/// assert!(model.layer(0).query.bias.is_some());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Recipe {
    /// The family.
    pub architecture: Architecture,
    /// Number of layers.
    pub layers: usize,
    /// Components of a token's vector.
    pub width: usize,
    /// Query heads.
    pub heads: usize,
    /// Key and value heads.
    pub kv_heads: usize,
    /// Components of a head.
    pub head_size: usize,
    /// Width of the feed-forward network, or of one expert.
    pub ffn: usize,
    /// Experts of a layer, and those that a token uses, if the architecture has experts.
    pub experts: [usize; 2],
    /// Number of tokens.
    pub vocabulary: usize,
    /// Positions.
    pub context: usize,
    /// Format of the matrices.
    pub block: BlockType,
    /// Whether some matrices have other formats, as llama.cpp's program for quantisation chooses them: `Q3_K`, `Q4_K`
    /// and `Q5_K` become what is called `Q3_K_M`, `Q4_K_M` and `Q5_K_M`. Rows that are not whole blocks get a format
    /// with smaller ones.
    pub mixed: bool,
    /// Whether the embedding is also the output matrix.
    pub tied: bool,
    /// Whether the file has LLaMA 3's or Phi's factors of frequencies.
    pub rope_factors: bool,
    /// Components of a head that are rotated; 0 for all.
    pub rotated: usize,
    /// Newest positions that a token sees; 0 for all.
    pub window: usize,
    /// Each layer with a multiple of this number, counted from 1, sees all positions; 0 for none.
    pub window_period: usize,
    /// Whether the file has a vocabulary: the 256 bytes, some words, and the special tokens. It needs 300 tokens.
    pub has_tokens: bool,
    /// Start of the random numbers.
    pub seed: u64,
}

impl Recipe {
    /// A LLaMA with 2 layers, 256 wide, 512 tokens, in F16.
    pub const fn tiny_llama() -> Self {
        Self {
            architecture: Architecture::Llama,
            layers: 2,
            width: 256,
            heads: 4,
            kv_heads: 2,
            head_size: 64,
            ffn: 512,
            experts: [8, 2],
            vocabulary: 512,
            context: 1024,
            block: BlockType::F16,
            mixed: false,
            tied: true,
            rope_factors: true,
            rotated: 0,
            window: 0,
            window_period: 0,
            has_tokens: true,
            seed: 1,
        }
    }

    /// A Qwen 2 of the size of [`Recipe::tiny_llama`].
    pub const fn tiny_qwen2() -> Self {
        Self { architecture: Architecture::Qwen2, rope_factors: false, ..Self::tiny_llama() }
    }

    /// A Qwen 3 of the size of [`Recipe::tiny_llama`]; its heads are wider than the model.
    pub const fn tiny_qwen3() -> Self {
        Self {
            architecture: Architecture::Qwen3,
            head_size: 128,
            tied: false,
            rope_factors: false,
            ..Self::tiny_llama()
        }
    }

    /// A Qwen 3 with 8 experts, of which a token uses 2.
    pub const fn tiny_qwen3moe() -> Self {
        Self { architecture: Architecture::Qwen3Moe, ffn: 256, ..Self::tiny_qwen3() }
    }

    /// A GPT-2 of the size of [`Recipe::tiny_llama`].
    pub const fn tiny_gpt2() -> Self {
        Self {
            architecture: Architecture::Gpt2,
            kv_heads: 4,
            context: 512,
            rope_factors: false,
            ..Self::tiny_llama()
        }
    }

    /// LLaMA 3.2 1B in Q6_K (1 GB file).
    pub const fn llama_1b() -> Self {
        Self {
            layers: 16,
            width: 2048,
            heads: 32,
            kv_heads: 8,
            ffn: 8192,
            vocabulary: 128_256,
            context: 131_072,
            block: BlockType::Q6K,
            ..Self::tiny_llama()
        }
    }

    /// The shape of GPT-2 124M, in F16: 250 MB.
    pub const fn gpt2_124m() -> Self {
        Self {
            layers: 12,
            width: 768,
            heads: 12,
            kv_heads: 12,
            ffn: 3072,
            vocabulary: 50_257,
            context: 1024,
            ..Self::tiny_gpt2()
        }
    }

    /// The shape of Qwen 3 0.6B, in Q6_K: 490 MB.
    pub const fn qwen3_600m() -> Self {
        Self {
            layers: 28,
            width: 1024,
            heads: 16,
            kv_heads: 8,
            ffn: 3072,
            vocabulary: 151_936,
            context: 40_960,
            block: BlockType::Q6K,
            tied: true,
            ..Self::tiny_qwen3()
        }
    }

    /// The shape of Qwen3-30B-A3B, in Q4_K: 17 GB.
    pub const fn qwen3_30b_a3b() -> Self {
        Self {
            layers: 48,
            width: 2048,
            heads: 32,
            kv_heads: 4,
            ffn: 768,
            experts: [128, 8],
            vocabulary: 151_936,
            context: 40_960,
            block: BlockType::Q4K,
            ..Self::tiny_qwen3moe()
        }
    }

    /// The file in memory.
    ///
    /// # Errors
    ///
    /// [`Error::Length`](crate::Error::Length) if rows are not whole blocks.
    pub fn to_bytes(&self) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        // PANIC: vectors accept everything, and `row` makes rows of the right size.
        self.writer()?.write(&mut bytes).expect("memory accepts everything");
        Ok(bytes)
    }

    /// Writes the file.
    ///
    /// # Errors
    ///
    /// Those of `to`, and one of kind [`io::ErrorKind::InvalidInput`] if rows are not whole blocks.
    pub fn write(&self, to: impl io::Write) -> io::Result<()> {
        let writer = self.writer().map_err(|error| io::Error::new(io::ErrorKind::InvalidInput, error))?;
        writer.write(to)
    }

    /// A writer with all keys and tensors.
    ///
    /// # Errors
    ///
    /// [`Error::Length`](crate::Error::Length) if rows are not whole blocks.
    pub fn writer(&self) -> Result<Writer<'static>> {
        let mut maker = Maker { recipe: self.clone(), writer: Writer::new(), tensors: 0 };
        maker.keys();
        if self.has_tokens {
            maker.tokens();
        }
        maker.tensors()?;
        Ok(maker.writer)
    }
}

struct Maker {
    recipe: Recipe,
    writer: Writer<'static>,
    /// Tensors so far: each has random numbers of its own.
    tensors: u64,
}

impl Maker {
    fn keys(&mut self) {
        let recipe = &self.recipe;
        let name = recipe.architecture.name();
        let is_gpt2 = recipe.architecture == Architecture::Gpt2;
        let epsilon = if is_gpt2 { "layer_norm_epsilon" } else { "layer_norm_rms_epsilon" };
        let mut sizes = vec![
            ("block_count", recipe.layers),
            ("context_length", recipe.context),
            ("embedding_length", recipe.width),
            ("feed_forward_length", recipe.ffn),
            ("attention.head_count", recipe.heads),
            ("vocab_size", recipe.vocabulary),
        ];
        if !is_gpt2 {
            sizes.extend([
                ("attention.key_length", recipe.head_size),
                ("attention.value_length", recipe.head_size),
                ("rope.dimension_count", recipe.rotated()),
            ]);
        }
        if recipe.architecture.has_experts() {
            let [count, used] = recipe.experts;
            sizes.extend([
                ("expert_count", count),
                ("expert_used_count", used),
                ("expert_feed_forward_length", recipe.ffn),
            ]);
        }
        if recipe.architecture == Architecture::Lfm2 {
            sizes.push(("shortconv.l_cache", CONVOLVED));
        } else if !is_gpt2 {
            sizes.push(("attention.head_count_kv", recipe.kv_heads));
        }
        if recipe.window > 0 {
            sizes.push(("attention.sliding_window", recipe.window));
        }
        if recipe.window_period > 0 {
            sizes.push(("attention.sliding_window_pattern", recipe.window_period));
        }
        if recipe.original_context() < recipe.context {
            sizes.push(("rope.scaling.original_context_length", recipe.original_context()));
        }
        let text = |text: &str| Value::Text(text.to_owned());
        self.writer.key("general.architecture", text(name));
        self.writer.key("general.name", text("random weights"));
        for (key, size) in sizes {
            self.writer.key(&format!("{name}.{key}"), Value::U32(size as u32));
        }
        self.writer.key(&format!("{name}.attention.{epsilon}"), Value::F32(1e-5));
        if !is_gpt2 {
            let base = match recipe.architecture {
                Architecture::Llama => 500_000.0,
                Architecture::GptOss => 150_000.0,
                _ => 1_000_000.0,
            };
            self.writer.key(&format!("{name}.rope.freq_base"), Value::F32(base));
        }
        if recipe.architecture == Architecture::Lfm2 {
            let heads = |number| if recipe.is_convolution(number) { 0 } else { recipe.kv_heads as i32 };
            let counts = Array::I32((0..recipe.layers).map(heads).collect());
            self.writer.key(&format!("{name}.attention.head_count_kv"), Value::Array(counts));
        }
        if matches!(recipe.architecture, Architecture::Mistral3 | Architecture::GptOss) {
            self.writer.key(&format!("{name}.rope.scaling.type"), text("yarn"));
        }
        for (key, value) in recipe.factors() {
            self.writer.key(&format!("{name}.{key}"), Value::F32(*value));
        }
    }

    fn rng(&mut self) -> Rng {
        self.tensors += 1;
        Rng::with_seed(self.recipe.seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ self.tensors)
    }

    /// A vector around `mean`.
    fn vector(&mut self, name: &str, len: usize, mean: f32, spread: f32) -> Result<()> {
        self.vectors(name, &[len], mean, spread)
    }

    /// Vectors around `mean`.
    fn vectors(&mut self, name: &str, dims: &[usize], mean: f32, spread: f32) -> Result<()> {
        let (mut rng, len) = (self.rng(), dims[0]);
        let mut element = move |_| (mean + spread * (2.0 * rng.f32() - 1.0)).to_le_bytes();
        self.writer.tensor(name, dims, BlockType::F32, move |_| (0..len).flat_map(&mut element).collect())
    }

    fn matrix(&mut self, name: &str, inputs: usize, outputs: usize, block: BlockType) -> Result<()> {
        self.tensor(name, &[inputs, outputs], block)
    }

    fn tensor(&mut self, name: &str, dims: &[usize], block: BlockType) -> Result<()> {
        let (mut rng, inputs) = (self.rng(), dims[0]);
        let deviation = (inputs as f32).sqrt().recip();
        self.writer.tensor(name, dims, block, move |_| row(&mut rng, block, inputs, deviation))
    }

    fn norm(&mut self, name: &str) -> Result<()> {
        let width = self.recipe.width;
        self.vector(&format!("{name}.weight"), width, 1.0, 0.3)?;
        if self.recipe.architecture == Architecture::Gpt2 {
            self.vector(&format!("{name}.bias"), width, 0.0, 0.2)?;
        }
        Ok(())
    }

    fn linear(&mut self, name: &str, sizes: [usize; 2], block: BlockType, has_bias: bool) -> Result<()> {
        self.matrix(&format!("{name}.weight"), sizes[0], sizes[1], block)?;
        if has_bias { self.vector(&format!("{name}.bias"), sizes[1], 0.0, 0.2) } else { Ok(()) }
    }

    fn tensors(&mut self) -> Result<()> {
        let Recipe { width, vocabulary, context, .. } = self.recipe;
        if self.recipe.rope_factors {
            self.rope_factors()?;
        }
        let block = mixture::format(&self.recipe, Use::Embedding, 0, width);
        self.matrix("token_embd.weight", width, vocabulary, block)?;
        if self.recipe.architecture == Architecture::Gpt2 {
            self.matrix("position_embd.weight", width, context, BlockType::F32)?;
        }
        self.norm(self.recipe.architecture.output_norm())?;
        if !self.recipe.tied {
            let block = mixture::format(&self.recipe, Use::Output, 0, width);
            self.matrix("output.weight", width, vocabulary, block)?;
        }
        (0..self.recipe.layers).try_for_each(|number| self.layer(number))
    }

    fn rope_factors(&mut self) -> Result<()> {
        if self.recipe.architecture == Architecture::Phi3 {
            let pairs = self.recipe.rotated() / 2;
            self.vector("rope_factors_long.weight", pairs, 8.0, 6.0)?;
            return self.vector("rope_factors_short.weight", pairs, 1.2, 0.2);
        }
        let factors = rope_factors(self.recipe.head_size, 500_000.0);
        let bytes: Vec<u8> = factors.iter().flat_map(|factor| factor.to_le_bytes()).collect();
        self.writer.tensor("rope_freqs.weight", &[factors.len()], BlockType::F32, move |_| bytes.clone())
    }

    fn layer(&mut self, number: usize) -> Result<()> {
        let recipe = self.recipe.clone();
        let Recipe { architecture, width, heads, kv_heads, head_size, ffn, .. } = recipe;
        let of = |what: Use, columns: usize| mixture::format(&recipe, what, number, columns);
        let (queries, keys) = (heads * head_size, kv_heads * head_size);
        let (is_gpt2, is_phi) = (architecture == Architecture::Gpt2, architecture == Architecture::Phi3);
        let is_gpt_oss = architecture == Architecture::GptOss;
        let name = |part: &str| format!("blk.{number}.{part}");
        self.norm(&name("attn_norm"))?;
        let is_convolution = self.recipe.is_convolution(number);
        if is_convolution {
            self.linear(&name("shortconv.in_proj"), [width, 3 * width], of(Use::Other, width), false)?;
            self.matrix(&name("shortconv.conv.weight"), CONVOLVED, width, BlockType::F32)?;
        } else if is_gpt2 || is_phi {
            self.linear(&name("attn_qkv"), [width, queries + 2 * keys], of(Use::Value, width), is_gpt2)?;
        } else {
            let has_bias = architecture == Architecture::Qwen2 || is_gpt_oss;
            self.linear(&name("attn_q"), [width, queries], of(Use::Other, width), has_bias)?;
            self.linear(&name("attn_k"), [width, keys], of(Use::Other, width), has_bias)?;
            self.linear(&name("attn_v"), [width, keys], of(Use::Value, width), has_bias)?;
        }
        if architecture.normalises_heads() && !is_convolution {
            self.vector(&name("attn_q_norm.weight"), head_size, 1.0, 0.3)?;
            self.vector(&name("attn_k_norm.weight"), head_size, 1.0, 0.3)?;
        }
        let output = if is_convolution { ("shortconv.out_proj", width) } else { ("attn_output", queries) };
        let has_bias = is_gpt2 || is_gpt_oss;
        self.linear(&name(output.0), [output.1, width], of(Use::AttentionOutput, output.1), has_bias)?;
        if is_gpt_oss {
            self.vector(&name("attn_sinks.weight"), heads, 0.0, 1.0)?;
        }
        if architecture.normalises_results() {
            self.norm(&name("post_attention_norm"))?;
            self.norm(&name("post_ffw_norm"))?;
        }
        self.norm(&name(architecture.feed_forward_norm()))?;
        if architecture.has_experts() {
            return self.experts(number);
        }
        if !is_gpt2 && !is_phi {
            self.linear(&name("ffn_gate"), [width, ffn], of(Use::Other, width), false)?;
        }
        self.linear(
            &name("ffn_up"),
            [width, if is_phi { 2 * ffn } else { ffn }],
            of(Use::Other, width),
            is_gpt2,
        )?;
        self.linear(&name("ffn_down"), [ffn, width], of(Use::Down, ffn), is_gpt2)
    }

    fn experts(&mut self, layer: usize) -> Result<()> {
        let recipe = self.recipe.clone();
        let Recipe { architecture, width, ffn, experts: [count, _], .. } = recipe;
        let has_bias = architecture == Architecture::GptOss;
        let name = |part: &str| format!("blk.{layer}.ffn_{part}");
        self.linear(&name("gate_inp"), [width, count], BlockType::F32, has_bias)?;
        let sizes = [
            ("gate_exps", Use::Experts, width, ffn),
            ("up_exps", Use::Experts, width, ffn),
            ("down_exps", Use::DownOfExperts, ffn, width),
        ];
        for (part, what, inputs, outputs) in sizes {
            let block = mixture::format(&recipe, what, layer, inputs);
            self.tensor(&name(&format!("{part}.weight")), &[inputs, outputs, count], block)?;
            if has_bias {
                // Some gates and ups are beyond the limit of the activation.
                let spread = if what == Use::Experts { 8.0 } else { 0.2 };
                self.vectors(&name(&format!("{part}.bias")), &[outputs, count], 0.0, spread)?;
            }
        }
        Ok(())
    }
}

/// Divisors of the frequencies in models that LLaMA 3.2 extended from 8,192 positions: frequencies whose wave is longer
/// than 8,192 positions are divided by 32, those shorter than 2,048 are kept, and those between are blended.
fn rope_factors(head_size: usize, base: f64) -> Vec<f32> {
    let factor = |pair: usize| {
        let wave = std::f64::consts::TAU * base.powf(2.0 * pair as f64 / head_size as f64);
        let blend = ((8192.0 / wave - 1.0) / 3.0).clamp(0.0, 1.0);
        (1.0 / ((1.0 - blend) / 32.0 + blend)) as f32
    };
    (0..head_size / 2).map(factor).collect()
}

/// A scale near `around`, as a half.
fn scale(rng: &mut Rng, around: f32) -> [u8; 2] {
    f16::from_f32(around * (0.8 + 0.4 * rng.f32())).to_le_bytes()
}

/// A row of random weights with a standard deviation of about `deviation`.
pub(crate) fn row(rng: &mut Rng, block: BlockType, inputs: usize, deviation: f32) -> Vec<u8> {
    let mut bytes = vec![0; inputs / block.weights() * block.bytes()];
    match block {
        BlockType::F32 | BlockType::F16 | BlockType::Bf16 => {
            for weight in bytes.chunks_exact_mut(block.bytes()) {
                // Uniform numbers of this range have a deviation of 1.
                let value = deviation * 3.0_f32.sqrt() * (2.0 * rng.f32() - 1.0);
                match block {
                    BlockType::F32 => weight.copy_from_slice(&value.to_le_bytes()),
                    BlockType::F16 => weight.copy_from_slice(&f16::from_f32(value).to_le_bytes()),
                    _ => weight.copy_from_slice(&bf16::from_f32(value).to_le_bytes()),
                }
            }
        }
        _ => {
            rng.fill(&mut bytes);
            bytes.chunks_exact_mut(block.bytes()).for_each(|bytes| scales(rng, block, bytes, deviation));
        }
    }
    bytes
}

/// Replaces the random bytes of a block's scales by ones that give the deviation.
fn scales(rng: &mut Rng, block: BlockType, bytes: &mut [u8], deviation: f32) {
    match block {
        BlockType::Q4_0 => bytes[..2].copy_from_slice(&scale(rng, deviation / 4.6)),
        BlockType::Q5_0 => bytes[..2].copy_from_slice(&scale(rng, deviation / 9.25)),
        BlockType::Q8_0 => bytes[..2].copy_from_slice(&scale(rng, deviation / 74.0)),
        BlockType::Iq4Nl => bytes[..2].copy_from_slice(&scale(rng, deviation / 67.4)),
        BlockType::Mxfp4 => {
            // The root mean square of the integers is 5.85. Powers of two, below or above the right scale.
            let scale = deviation / 5.85;
            let above = scale.log2().floor();
            let excess = (scale / above.exp2()).powi(2) - 1.0;
            // CAST: a deviation is 2^-128 or more.
            bytes[0] = (above as i32 + 128) as u8 + u8::from(3.0 * rng.f32() < excess);
        }
        BlockType::Q6K => {
            // 2 to 17 with a random sign: their root mean square is 10.6, that of the integers 18.5.
            for scale in &mut bytes[192..208] {
                let (size, is_negative) = ((*scale & 15) + 2, *scale & 16 != 0);
                *scale = if is_negative { size.wrapping_neg() } else { size };
            }
            bytes[208..].copy_from_slice(&scale(rng, deviation / (18.5 * 10.6)));
        }
        BlockType::Iq4Xs => bytes[..2].copy_from_slice(&scale(rng, deviation / (67.4 * 18.5))),
        BlockType::Q3K => bytes[108..].copy_from_slice(&scale(rng, deviation / (2.35 * 18.5))),
        BlockType::Q2K => minimum(rng, &mut bytes[80..], deviation / 13.9, 1.5),
        BlockType::Q4_1 => minimum(rng, &mut bytes[..4], deviation / 4.6, -7.5),
        BlockType::Q5_1 => minimum(rng, &mut bytes[..4], deviation / 9.2, -15.5),
        BlockType::Q4K => minimum(rng, &mut bytes[..4], deviation / 258.0, 7.5),
        BlockType::Q5K => minimum(rng, &mut bytes[..4], deviation / 530.0, 15.5),
        BlockType::F32 | BlockType::F16 | BlockType::Bf16 => {}
    }
}

/// A scale near `around`, and a minimum: the middle of the integers times the scale.
fn minimum(rng: &mut Rng, to: &mut [u8], around: f32, middle: f32) {
    let d = scale(rng, around);
    let (first, second) = to.split_at_mut(2);
    first.copy_from_slice(&d);
    second.copy_from_slice(&f16::from_f32(f16::from_le_bytes(d).to_f32() * middle).to_le_bytes());
}
