//! The shape of a model, from the keys of its file.

use core::fmt;

use super::ModelFault;
use crate::error::{Error, Result};
use crate::gguf::File;

/// The family of a model, `general.architecture`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Architecture {
    /// LLaMA 2, LLaMA 3 and models of the same structure.
    Llama,
    /// Qwen 2 and 2.5: bias on queries, keys and values.
    Qwen2,
    /// Qwen 3: queries and keys are normalised per head.
    Qwen3,
    /// GPT-2: learned positions, layer normalisation, biases everywhere.
    Gpt2,
    /// Qwen 3 with experts, such as Qwen3-30B-A3B.
    Qwen3Moe,
}

impl Architecture {
    /// All architectures.
    pub const ALL: [Self; 5] = [Self::Llama, Self::Qwen2, Self::Qwen3, Self::Gpt2, Self::Qwen3Moe];

    /// The architecture with a name; `None` if it is not supported.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|architecture| architecture.name() == name)
    }

    /// Whether layers have experts, of which a router chooses some for each token.
    pub const fn has_experts(self) -> bool {
        matches!(self, Self::Qwen3Moe)
    }

    /// The name in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Llama => "llama",
            Self::Qwen2 => "qwen2",
            Self::Qwen3 => "qwen3",
            Self::Gpt2 => "gpt2",
            Self::Qwen3Moe => "qwen3moe",
        }
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How vectors are normalised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NormKind {
    /// Division by the root of the mean square, then weights.
    Rms,
    /// Subtraction of the mean, division by the standard deviation, then weights and bias.
    Layer,
}

/// Which two components of a head are rotated together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RopePairs {
    /// 2 i and 2 i + 1.
    Neighbours,
    /// i and i + half of the rotated components.
    Halves,
}

impl RopePairs {
    /// The components of pair `pair` if `components` of a head are rotated.
    pub const fn of(self, pair: usize, components: usize) -> (usize, usize) {
        match self {
            Self::Neighbours => (2 * pair, 2 * pair + 1),
            Self::Halves => (pair, pair + components / 2),
        }
    }
}

/// A rotation of queries and keys: pairs of components are rotated by position x frequency; see
/// [`Model::rope_frequencies`](super::Model::rope_frequencies).
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Rope {
    /// Which components form a pair.
    pub pairs: RopePairs,
    /// Components of a head that are rotated, the first ones; even.
    pub components: usize,
    /// Frequency i is this number to the power of -2 i / components, before scaling.
    pub base: f64,
    /// Positions are divided by this number; 1 without scaling.
    pub scale: f64,
    /// Factor of cosine and sine; 1 without scaling.
    pub magnitude: f64,
}

/// What may differ from layer to layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct LayerShape {
    /// Newest positions that a token sees, its own among them; `None` for all.
    pub window: Option<usize>,
    /// Index of the rotation in [`Shape::ropes`]; `None` without rotation.
    pub rope: Option<usize>,
}

/// The function between the products of a feed-forward network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Activation {
    /// silu(gate) x up, silu(x) = x / (1 + exp(-x)).
    SiluGate,
    /// gelu(up) in its tanh form.
    Gelu,
}

impl Activation {
    /// Whether there is a third matrix, the gate.
    pub const fn has_gate(self) -> bool {
        matches!(self, Self::SiluGate)
    }
}

/// The experts of a layer: feed-forward networks of the same size, of which each token uses some.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Experts {
    /// Experts of a layer.
    pub count: usize,
    /// Experts that a token uses: those to which the router gives the largest numbers. Their results are added, with
    /// the softmax of these numbers as weights.
    pub used: usize,
}

/// The sizes and kinds of a model's parts.
///
/// ```
/// use infer::model::{KvFormat, Model};
/// use infer::synthetic::Recipe;
///
/// let model = Model::from_bytes(Recipe::tiny_llama().to_bytes()?)?;
/// let shape = model.shape();
/// assert_eq!((shape.layers.len(), shape.width, shape.query_width(), shape.kv_width()), (2, 256, 256, 128));
/// // 2 layers, key and value, 2 bytes each.
/// assert_eq!(shape.kv_bytes(KvFormat::F16, 100), Some(2 * 2 * 128 * 2 * 100));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Shape {
    /// The family.
    pub architecture: Architecture,
    /// The layers.
    pub layers: Vec<LayerShape>,
    /// Components of a token's vector.
    pub width: usize,
    /// Number of query heads.
    pub heads: usize,
    /// Number of key and value heads; divides `heads`.
    pub kv_heads: usize,
    /// Components of a head; even.
    pub head_size: usize,
    /// Width between the products of the feed-forward network, or of one expert.
    pub ffn: usize,
    /// The experts of each layer, if the model has any.
    pub experts: Option<Experts>,
    /// Number of tokens.
    pub vocabulary: usize,
    /// Positions that the model was made for.
    pub context: usize,
    /// Kind of its normalisations.
    pub norm: NormKind,
    /// Added to a variance before its square root is taken.
    pub epsilon: f64,
    /// Whether a vector per position is added to the embedding.
    pub learned_positions: bool,
    /// The rotations that layers refer to.
    pub ropes: Vec<Rope>,
    /// Factor of a token's row of the embedding.
    pub embedding_scale: f64,
    /// Factor of the products of queries and keys.
    pub attention_scale: f64,
    /// The feed-forward network's function.
    pub activation: Activation,
    /// Whether the embedding is also the output matrix.
    pub tied: bool,
}

/// How a context stores keys and values.
///
/// ```
/// use infer::model::KvFormat;
///
/// assert_eq!((KvFormat::F16.row_bytes(128), KvFormat::Q8_0.row_bytes(128)), (256, 136));
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum KvFormat {
    /// IEEE halves.
    #[default]
    F16,
    /// 8-bit integers. 32 neighbouring components of a head share a scale, which is a half: the precision of Q8_0.
    Q8_0,
}

impl KvFormat {
    /// Components that share a scale.
    pub(crate) const GROUP: usize = 32;

    /// Its name, as those of the formats of weights.
    pub const fn name(self) -> &'static str {
        match self {
            Self::F16 => "F16",
            Self::Q8_0 => "Q8_0",
        }
    }

    /// Bytes of a component without its scale.
    pub(crate) const fn component_bytes(self) -> usize {
        match self {
            Self::F16 => 2,
            Self::Q8_0 => 1,
        }
    }

    /// Bytes of the scales of a key or value of a head.
    pub(crate) const fn scale_bytes(self, head_size: usize) -> usize {
        match self {
            Self::F16 => 0,
            Self::Q8_0 => head_size.div_ceil(Self::GROUP) * 2,
        }
    }

    /// Bytes of a key or value of a head.
    pub const fn row_bytes(self, head_size: usize) -> usize {
        head_size * self.component_bytes() + self.scale_bytes(head_size)
    }
}

impl fmt::Display for KvFormat {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl Shape {
    /// Pairs of components of all rotations.
    pub(crate) fn rope_pairs(&self) -> usize {
        self.ropes.iter().map(|rope| rope.components / 2).sum()
    }

    /// Components of all query heads.
    pub const fn query_width(&self) -> usize {
        self.heads * self.head_size
    }

    /// Components of all key heads, or of all value heads.
    pub const fn kv_width(&self) -> usize {
        self.kv_heads * self.head_size
    }

    /// Bytes of keys and values for `positions` positions; `None` if more than can be counted.
    pub fn kv_bytes(&self, format: KvFormat, positions: usize) -> Option<usize> {
        let rows = self.layers.len().checked_mul(2 * self.kv_heads)?.checked_mul(positions)?;
        rows.checked_mul(format.row_bytes(self.head_size))
    }

    /// Bytes of keys and values that a token at `position` reads, at most [`usize::MAX`]: windows limit them.
    pub fn kv_bytes_read(&self, format: KvFormat, position: usize) -> usize {
        let seen = |layer: &LayerShape| layer.window.map_or(position, |window| window.min(position));
        let rows = self.layers.iter().map(seen).fold(0, usize::saturating_add);
        rows.saturating_mul(2 * self.kv_heads).saturating_mul(format.row_bytes(self.head_size))
    }

    /// Refuses a prompt that does not fit: `prompt` tokens in a context of `context`, of which at least one must
    /// remain.
    ///
    /// # Errors
    ///
    /// [`Error::PromptTooLong`] if it does not fit; [`Error::ContextTooLong`] if the model has fewer positions than
    /// `context`.
    pub fn admit(&self, prompt: usize, context: usize) -> Result<()> {
        if context > self.context {
            return Err(Error::ContextTooLong { wanted: context, most: self.context });
        }
        if prompt >= context {
            return Err(Error::PromptTooLong { tokens: prompt, context });
        }
        Ok(())
    }

    /// Reads the keys of a file; `tied` is left false.
    pub(super) fn read(file: &File) -> Result<Self> {
        let name = file.text("general.architecture")?;
        let name = name.ok_or_else(|| fault(ModelFault::MissingKey("general.architecture".to_owned())))?;
        let Some(architecture) = Architecture::from_name(name) else {
            return Err(fault(ModelFault::Architecture(name.to_owned())));
        };
        let keys = Keys { file, architecture };
        keys.refuse_foreign()?;
        let (width, heads) = (keys.size("embedding_length")?, keys.size("attention.head_count")?);
        let kv_heads = keys.size_or("attention.head_count_kv", heads)?;
        let head_size = keys.size_or("attention.key_length", width / heads)?;
        keys.require("attention.value_length", head_size)?;
        if architecture != Architecture::Gpt2 {
            keys.require("rope.dimension_count", head_size)?;
        }
        if head_size * heads < heads || head_size % 2 != 0 || heads % kv_heads != 0 {
            return Err(fault(ModelFault::Heads { heads, kv_heads, head_size, width }));
        }
        let is_gpt2 = architecture == Architecture::Gpt2;
        let ffn =
            if architecture.has_experts() { "expert_feed_forward_length" } else { "feed_forward_length" };
        let epsilon =
            if is_gpt2 { "attention.layer_norm_epsilon" } else { "attention.layer_norm_rms_epsilon" };
        let ropes = if is_gpt2 { Vec::new() } else { vec![keys.rope(head_size)?] };
        let layer = LayerShape { window: None, rope: (!is_gpt2).then_some(0) };
        Ok(Self {
            architecture,
            layers: vec![layer; keys.size("block_count")?],
            width,
            heads,
            kv_heads,
            head_size,
            ffn: keys.size(ffn)?,
            experts: keys.experts()?,
            vocabulary: keys.vocabulary()?,
            context: keys.size("context_length")?,
            norm: if is_gpt2 { NormKind::Layer } else { NormKind::Rms },
            epsilon: keys.float(epsilon)?.ok_or_else(|| keys.missing(epsilon))?,
            learned_positions: is_gpt2,
            ropes,
            embedding_scale: 1.0,
            attention_scale: 1.0 / (head_size as f64).sqrt(),
            activation: if is_gpt2 { Activation::Gelu } else { Activation::SiluGate },
            tied: false,
        })
    }
}

fn fault(fault: ModelFault) -> Error {
    Error::Model(fault)
}

/// Largest size in a shape: products of three sizes fit 64 bits, and kernels count in 32.
const MOST: usize = 1 << 20;

/// Largest number of positions.
pub(crate) const MOST_CONTEXT: usize = 1 << 30;

/// The keys of an architecture.
struct Keys<'a> {
    file: &'a File,
    architecture: Architecture,
}

impl Keys<'_> {
    fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.architecture)
    }

    fn missing(&self, name: &str) -> Error {
        fault(ModelFault::MissingKey(self.key(name)))
    }

    /// A positive size.
    fn size(&self, name: &str) -> Result<usize> {
        self.optional(name)?.ok_or_else(|| self.missing(name))
    }

    fn size_or(&self, name: &str, default: usize) -> Result<usize> {
        Ok(self.optional(name)?.unwrap_or(default))
    }

    fn optional(&self, name: &str) -> Result<Option<usize>> {
        let most = if name == "context_length" { MOST_CONTEXT } else { MOST };
        let size: Option<u64> = self.file.integer(&self.key(name))?;
        match size {
            None => Ok(None),
            Some(size) if size >= 1 && size <= most as u64 => Ok(Some(size as usize)),
            Some(size) => Err(fault(ModelFault::Size { key: self.key(name), size, most })),
        }
    }

    /// Refuses a key whose value is not `needed`; the key may be missing.
    fn require(&self, name: &str, needed: usize) -> Result<()> {
        match self.optional(name)? {
            Some(value) if value != needed => {
                Err(fault(ModelFault::Differs { key: self.key(name), value, needed }))
            }
            _ => Ok(()),
        }
    }

    fn float(&self, name: &str) -> Result<Option<f64>> {
        self.file.float(&self.key(name))
    }

    /// Refuses properties of models with the same architecture's name that are not supported.
    fn refuse_foreign(&self) -> Result<()> {
        let foreign = [
            ("expert_count", "a mixture of experts", !self.architecture.has_experts()),
            ("expert_shared_count", "experts that all tokens use", true),
            ("expert_group_count", "groups of experts", true),
        ];
        for (name, what, is_foreign) in foreign {
            let count: Option<u64> = self.file.integer(&self.key(name))?;
            if is_foreign && count.is_some_and(|count| count > 0) {
                return Err(fault(ModelFault::Unsupported { what, key: self.key(name) }));
            }
        }
        Ok(())
    }

    fn experts(&self) -> Result<Option<Experts>> {
        if !self.architecture.has_experts() {
            return Ok(None);
        }
        let (count, used) = (self.size("expert_count")?, self.size("expert_used_count")?);
        if used > count {
            let (key, size) = (self.key("expert_used_count"), used as u64);
            return Err(fault(ModelFault::Size { key, size, most: count }));
        }
        Ok(Some(Experts { count, used }))
    }

    /// The number of tokens, of the vocabulary or of a key.
    fn vocabulary(&self) -> Result<usize> {
        let tokens = self.file.texts("tokenizer.ggml.tokens")?.map(crate::gguf::Texts::len);
        let stated = self.optional("vocab_size")?;
        match (tokens, stated) {
            (Some(tokens), Some(stated)) if tokens != stated => {
                Err(fault(ModelFault::Differs { key: self.key("vocab_size"), value: stated, needed: tokens }))
            }
            (Some(0), _) => {
                Err(fault(ModelFault::Size { key: "tokenizer.ggml.tokens".to_owned(), size: 0, most: MOST }))
            }
            (Some(tokens), _) if tokens > MOST => {
                let (key, size) = ("tokenizer.ggml.tokens".to_owned(), tokens as u64);
                Err(fault(ModelFault::Size { key, size, most: MOST }))
            }
            (Some(tokens), _) => Ok(tokens),
            (None, Some(stated)) => Ok(stated),
            (None, None) => self.embedding_rows(),
        }
    }

    /// The rows of the embedding, for files without tokens.
    fn embedding_rows(&self) -> Result<usize> {
        let embedding = self.file.tensor("token_embd.weight");
        let embedding =
            embedding.ok_or_else(|| fault(ModelFault::MissingTensor("token_embd.weight".to_owned())))?;
        let rows = embedding.dims.get(1).copied().unwrap_or(1);
        if rows <= MOST {
            return Ok(rows);
        }
        Err(fault(ModelFault::Size { key: "token_embd.weight".to_owned(), size: rows as u64, most: MOST }))
    }

    fn rope(&self, components: usize) -> Result<Rope> {
        let pairs =
            if self.architecture == Architecture::Llama { RopePairs::Neighbours } else { RopePairs::Halves };
        // Default of LLaMA 1 and 2, whose files may lack the key.
        let base = self.float("rope.freq_base")?.unwrap_or(10_000.0);
        if base <= 1.0 {
            return Err(fault(ModelFault::Float { key: self.key("rope.freq_base"), value: base }));
        }
        let factor = self.float("rope.scaling.factor")?.unwrap_or(1.0);
        let scale = match self.file.text(&self.key("rope.scaling.type"))? {
            None | Some("none") => 1.0,
            Some("linear") if factor > 0.0 => factor,
            Some("linear") => {
                return Err(fault(ModelFault::Float { key: self.key("rope.scaling.factor"), value: factor }));
            }
            Some(other) => return Err(fault(ModelFault::RopeScaling(other.to_owned()))),
        };
        Ok(Rope { pairs, components, base, scale, magnitude: 1.0 })
    }
}
