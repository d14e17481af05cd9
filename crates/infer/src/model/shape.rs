//! The shape of a model, from the keys of its file.

use core::fmt;

use super::keys::Keys;
use super::rope::Rope;
use super::{Architecture, ModelFault, fault};
use crate::error::{Error, Result};
use crate::gguf::File;

/// How vectors are normalised.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NormKind {
    /// Division by the root of the mean square, then weights.
    Rms,
    /// Subtraction of the mean, division by the standard deviation, then weights and bias.
    Layer,
}

/// Positions that a convolution sees: a token's own and those before it.
pub const CONVOLVED: usize = 3;

/// What may differ from layer to layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub struct LayerShape {
    /// Newest positions that a token sees, its own among them; `None` for all.
    pub window: Option<usize>,
    /// Index of the rotation in [`Shape::ropes`]; `None` without rotation.
    pub rope: Option<usize>,
    /// Whether a convolution of [`CONVOLVED`] positions takes the place of the attention.
    pub convolution: bool,
}

/// The function between the products of a feed-forward network.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Activation {
    /// silu(gate) x up, silu(x) = x / (1 + exp(-x)).
    SiluGate,
    /// g / (1 + exp(-[`Activation::STEEPNESS`] g)) x (u + 1). The gate g is at most [`Activation::LIMIT`]; up, u, is
    /// within this distance of 0. Only in experts.
    ClampedSiluGate,
    /// gelu(gate) x up, gelu in its tanh form.
    GeluGate,
    /// gelu(up) in its tanh form.
    Gelu,
}

impl Activation {
    /// Largest gate and up of [`Activation::ClampedSiluGate`].
    pub const LIMIT: f64 = 7.0;
    /// Factor of the gate in the exponent of [`Activation::ClampedSiluGate`].
    pub const STEEPNESS: f64 = 1.702;

    /// Its name, as `orin llm info` prints it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::SiluGate => "silu with gate",
            Self::ClampedSiluGate => "clamped silu with gate",
            Self::GeluGate => "gelu with gate",
            Self::Gelu => "gelu",
        }
    }

    /// Whether there is a third matrix, the gate.
    pub const fn has_gate(self) -> bool {
        !matches!(self, Self::Gelu)
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
    /// Factor of the embedding.
    pub embedding_scale: f64,
    /// Factor of the products of queries and keys.
    pub attention_scale: f64,
    /// Factor of what attention and feed-forward network add to a vector.
    pub residual_scale: f64,
    /// Factor of the logits.
    pub logit_scale: f64,
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

    /// Layers before layer `number` that have keys and values.
    pub fn cached(&self, number: usize) -> usize {
        self.layers[..number].iter().filter(|layer| !layer.convolution).count()
    }

    /// Layers before layer `number` that are convolutions.
    pub fn convolutions(&self, number: usize) -> usize {
        number - self.cached(number)
    }

    /// Outputs of the first products of a layer: queries, keys and values, or the parts of a convolution.
    pub fn first_outputs(&self, number: usize) -> usize {
        let attention = self.query_width() + 2 * self.kv_width();
        if self.layers[number].convolution { 3 * self.width } else { attention }
    }

    /// The most of all layers.
    pub(crate) fn most_first_outputs(&self) -> usize {
        (0..self.layers.len()).map(|number| self.first_outputs(number)).max().unwrap_or(0)
    }

    /// Bytes of keys and values for `positions` positions; `None` if more than can be counted.
    pub fn kv_bytes(&self, format: KvFormat, positions: usize) -> Option<usize> {
        let layers = self.cached(self.layers.len());
        let rows = layers.checked_mul(2 * self.kv_heads)?.checked_mul(positions)?;
        rows.checked_mul(format.row_bytes(self.head_size))
    }

    /// Bytes of keys and values that a token at `position` reads, at most [`usize::MAX`]: windows limit them.
    pub fn kv_bytes_read(&self, format: KvFormat, position: usize) -> usize {
        let seen = |layer: &LayerShape| layer.window.map_or(position, |window| window.min(position));
        let layers = self.layers.iter().filter(|layer| !layer.convolution);
        let rows = layers.map(seen).fold(0, usize::saturating_add);
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
        let count = keys.size("block_count")?;
        let kv_counts = keys.kv_heads(count, heads)?;
        let kv_heads = kv_counts.iter().copied().max().unwrap_or(heads);
        let head_size = keys.size_or("attention.key_length", width / heads)?;
        keys.require("attention.value_length", head_size)?;
        if head_size * heads < heads || head_size % 2 != 0 || kv_heads == 0 || heads % kv_heads != 0 {
            return Err(fault(ModelFault::Heads { heads, kv_heads, head_size, width }));
        }
        let is_gpt2 = architecture == Architecture::Gpt2;
        let ffn =
            if architecture.has_experts() { "expert_feed_forward_length" } else { "feed_forward_length" };
        let epsilon =
            if is_gpt2 { "attention.layer_norm_epsilon" } else { "attention.layer_norm_rms_epsilon" };
        let context = keys.context()?;
        let ropes = if is_gpt2 { Vec::new() } else { keys.ropes(head_size)? };
        Ok(Self {
            architecture,
            layers: keys.layers(&kv_counts, context, &ropes)?,
            width,
            heads,
            kv_heads,
            head_size,
            ffn: keys.size(ffn)?,
            experts: keys.experts()?,
            vocabulary: keys.vocabulary()?,
            context,
            norm: if is_gpt2 { NormKind::Layer } else { NormKind::Rms },
            epsilon: keys.float(epsilon)?.ok_or_else(|| keys.missing(epsilon))?,
            learned_positions: is_gpt2,
            ropes,
            embedding_scale: keys.embedding_scale(width)?,
            attention_scale: keys.attention_scale(count, width, heads, head_size)?,
            residual_scale: keys.factor("residual_scale")?,
            logit_scale: keys.logit_scale()?,
            activation: match architecture {
                Architecture::Gpt2 => Activation::Gelu,
                Architecture::Gemma3 => Activation::GeluGate,
                Architecture::GptOss => Activation::ClampedSiluGate,
                _ => Activation::SiluGate,
            },
            tied: false,
        })
    }
}
