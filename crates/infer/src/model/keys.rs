//! The keys of a file, read with their ranges.

use super::rope::{Rope, RopePairs, Yarn};
use super::{Architecture, CONVOLVED, Experts, LayerShape, ModelFault, fault};
use crate::error::{Error, Result};
use crate::gguf::{Array, File, Value};

/// Largest size in a shape: products of three sizes fit 64 bits, and kernels count in 32.
const MOST: usize = 1 << 20;

/// Largest number of positions.
pub(crate) const MOST_CONTEXT: usize = 1 << 30;

/// The keys of an architecture.
pub(super) struct Keys<'a> {
    pub(super) file: &'a File,
    pub(super) architecture: Architecture,
}

impl Keys<'_> {
    pub(super) fn key(&self, name: &str) -> String {
        format!("{}.{name}", self.architecture)
    }

    pub(super) fn missing(&self, name: &str) -> Error {
        fault(ModelFault::MissingKey(self.key(name)))
    }

    /// A positive size.
    pub(super) fn size(&self, name: &str) -> Result<usize> {
        self.optional(name)?.ok_or_else(|| self.missing(name))
    }

    pub(super) fn size_or(&self, name: &str, default: usize) -> Result<usize> {
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
    pub(super) fn require(&self, name: &str, needed: usize) -> Result<()> {
        match self.optional(name)? {
            Some(value) if value != needed => {
                Err(fault(ModelFault::Differs { key: self.key(name), value, needed }))
            }
            _ => Ok(()),
        }
    }

    pub(super) fn float(&self, name: &str) -> Result<Option<f64>> {
        self.file.float(&self.key(name))
    }

    /// A positive factor; 1 if the key is missing. Files without a use for it do not have the key.
    pub(super) fn factor(&self, name: &str) -> Result<f64> {
        let factor = self.float(name)?.filter(|_| self.architecture == Architecture::Granite).unwrap_or(1.0);
        if factor > 0.0 {
            Ok(factor)
        } else {
            Err(fault(ModelFault::Float { key: self.key(name), value: factor }))
        }
    }

    /// Refuses properties of models with the same architecture's name that are not supported.
    pub(super) fn refuse_foreign(&self) -> Result<()> {
        let unsupported =
            |what, name: &str| Err(fault(ModelFault::Unsupported { what, key: self.key(name) }));
        let foreign = [
            ("expert_count", "a mixture of experts", !self.architecture.has_experts()),
            ("expert_shared_count", "experts that all tokens use", true),
            ("expert_group_count", "groups of experts", true),
        ];
        for (name, what, is_foreign) in foreign {
            let count: Option<u64> = self.file.integer(&self.key(name))?;
            if is_foreign && count.is_some_and(|count| count > 0) {
                return unsupported(what, name);
            }
        }
        for name in ["attn_logit_softcapping", "final_logit_softcapping"] {
            if self.float(name)?.is_some_and(|most| most != 0.0) {
                return unsupported("soft limits of scores or logits", name);
            }
        }
        let name = "expert_weights_scale";
        // 0 stands for none.
        if self.float(name)?.is_some_and(|factor| factor != 0.0 && factor != 1.0) {
            return unsupported("a factor of the experts' results", name);
        }
        Ok(())
    }

    pub(super) fn experts(&self) -> Result<Option<Experts>> {
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

    /// Positions that the model was made for.
    pub(super) fn context(&self) -> Result<usize> {
        let context = self.size("context_length")?;
        // Scores have a factor that grows with the position, from the first positions after the original context on.
        let grows = self.float("attention.temperature_scale")?.is_some_and(|scale| scale != 0.0);
        Ok(if grows { context.min(self.original_context(context)?) } else { context })
    }

    /// Positions that the model had before its context was extended.
    pub(super) fn original_context(&self, context: usize) -> Result<usize> {
        self.size_or("rope.scaling.original_context_length", context)
    }

    pub(super) fn embedding_scale(&self, width: usize) -> Result<f64> {
        match self.architecture {
            Architecture::Gemma3 => Ok((width as f64).sqrt()),
            _ => self.factor("embedding_scale"),
        }
    }

    /// The factor of scores.
    pub(super) fn attention_scale(
        &self,
        layers: usize,
        width: usize,
        heads: usize,
        head: usize,
    ) -> Result<f64> {
        // Gemma 3 27B divides by the share of a head in the width; its files do not say so.
        let (gemma, largest) = (self.architecture == Architecture::Gemma3, 62);
        let size = if gemma && layers == largest { width / heads } else { head };
        let given = self.factor("attention.scale")?;
        Ok(if given == 1.0 { 1.0 / (size as f64).sqrt() } else { given })
    }

    /// The factor of logits: files contain a divisor.
    pub(super) fn logit_scale(&self) -> Result<f64> {
        Ok(1.0 / self.factor("logit_scale")?)
    }

    /// Key and value heads of each layer: the same number in all, or 0 in convolutions.
    pub(super) fn kv_heads(&self, count: usize, heads: usize) -> Result<Vec<usize>> {
        let name = "attention.head_count_kv";
        let key = self.key(name);
        let counts: Vec<i64> = match self.file.value(&key) {
            Some(Value::Array(Array::I32(counts))) => counts.iter().copied().map(i64::from).collect(),
            Some(Value::Array(Array::U32(counts))) => counts.iter().copied().map(i64::from).collect(),
            _ => return Ok(vec![self.size_or(name, heads)?; count]),
        };
        if counts.len() != count {
            let (value, needed) = (counts.len(), count);
            return Err(fault(ModelFault::Differs { key, value, needed }));
        }
        let has_convolutions = self.architecture == Architecture::Lfm2;
        let most = counts.iter().copied().max().unwrap_or(0);
        match counts.iter().find(|count| **count != most && !(has_convolutions && **count == 0)) {
            None if (1..=MOST as i64).contains(&most) => {
                // CAST: 0 to MOST.
                Ok(counts.into_iter().map(|count| count as usize).collect())
            }
            _ => Err(fault(ModelFault::Unsupported { what: "layers with different numbers of heads", key })),
        }
    }

    /// The layers, by their numbers of key and value heads.
    pub(super) fn layers(
        &self,
        kv_heads: &[usize],
        context: usize,
        ropes: &[Rope],
    ) -> Result<Vec<LayerShape>> {
        if self.architecture == Architecture::Lfm2 {
            self.require("shortconv.l_cache", CONVOLVED)?;
        }
        let window = self.window()?;
        let is_windowed = self.windowed(kv_heads.len())?;
        let layer = |number: usize| {
            let window = window.filter(|_| is_windowed(number));
            let rope = match self.architecture {
                Architecture::SmolLm3 if number % 4 == 3 => None,
                // The second rotation is that of layers with a window.
                Architecture::Gemma3 => Some(usize::from(window.is_some())),
                _ => Some(0),
            };
            let (window, rope) =
                (window.filter(|window| *window < context), rope.filter(|rope| *rope < ropes.len()));
            match kv_heads[number] {
                0 => LayerShape { convolution: true, ..LayerShape::default() },
                _ => LayerShape { window, rope, convolution: false },
            }
        };
        Ok((0..kv_heads.len()).map(layer).collect())
    }

    /// Newest positions that a token sees in layers with a window; `None` if there are no such layers.
    fn window(&self) -> Result<Option<usize>> {
        let name = "attention.sliding_window";
        // 0 stands for none.
        let window: Option<u32> = self.file.integer(&self.key(name))?.filter(|window| *window > 0);
        // CAST: usize has at least 32 bits.
        let window = window.map(|window| window as usize);
        match self.architecture {
            Architecture::GptOss if window.is_none() => Err(self.missing(name)),
            Architecture::Llama
            | Architecture::Mistral3
            | Architecture::Phi3
            | Architecture::Gemma3
            | Architecture::Lfm2
            | Architecture::GptOss => Ok(window),
            _ if window.is_none() => Ok(None),
            _ => Err(fault(ModelFault::Unsupported { what: "attention windows", key: self.key(name) })),
        }
    }

    /// Whether a layer has a window, if the model has one: all, or those that a pattern names, or all but each n-th.
    fn windowed(&self, count: usize) -> Result<impl Fn(usize) -> bool> {
        let key = self.key("attention.sliding_window_pattern");
        let (pattern, period) = match self.file.value(&key) {
            Some(Value::Array(Array::Bool(pattern))) if pattern.len() >= count => {
                (Some(pattern.clone()), None)
            }
            Some(Value::Array(pattern)) => {
                let (value, needed) = (pattern.len(), count);
                return Err(fault(ModelFault::Differs { key, value, needed }));
            }
            Some(_) => (None, Some(self.size("attention.sliding_window_pattern")?)),
            None => match self.architecture {
                Architecture::Gemma3 => (None, Some(6)),
                Architecture::GptOss => (None, Some(2)),
                _ => (None, None),
            },
        };
        Ok(move |number: usize| match (&pattern, period) {
            (Some(pattern), _) => pattern[number],
            (None, Some(period)) => number % period < period - 1,
            (None, None) => true,
        })
    }

    /// The number of tokens, of the vocabulary or of a key.
    pub(super) fn vocabulary(&self) -> Result<usize> {
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

    /// The rotations that layers refer to.
    pub(super) fn ropes(&self, head_size: usize) -> Result<Vec<Rope>> {
        // Granite's key says whether there is a rotation.
        let finetuned = self.file.bool(&self.key("rope.scaling.finetuned"))?;
        if self.architecture == Architecture::Granite && finetuned == Some(false) {
            return Ok(Vec::new());
        }
        let components = if self.architecture == Architecture::Phi3 {
            self.size_or("rope.dimension_count", head_size)?
        } else {
            self.require("rope.dimension_count", head_size)?;
            head_size
        };
        if components % 2 != 0 || components > head_size {
            let (key, size) = (self.key("rope.dimension_count"), components as u64);
            return Err(fault(ModelFault::Size { key, size, most: head_size }));
        }
        let pairs = match self.architecture {
            Architecture::Llama | Architecture::Mistral3 | Architecture::Granite | Architecture::SmolLm3 => {
                RopePairs::Neighbours
            }
            _ => RopePairs::Halves,
        };
        let original = self.original_context(self.size("context_length")?)?;
        // Default of LLaMA 1 and 2, whose files may lack the key.
        let base = self.base("rope.freq_base")?;
        let plain = Rope { pairs, components, base, scale: 1.0, magnitude: 1.0, original, yarn: None };
        let rope = self.scaled(plain)?;
        let of_windows = "rope.freq_base_swa";
        if self.architecture == Architecture::GptOss && self.float(of_windows)?.is_some_and(|own| own != base)
        {
            let key = self.key(of_windows);
            return Err(fault(ModelFault::Unsupported {
                what: "another rotation in layers with windows",
                key,
            }));
        }
        if self.architecture != Architecture::Gemma3 {
            return Ok(vec![rope]);
        }
        let base = self.base(of_windows)?;
        Ok(vec![rope, Rope { base, magnitude: rope.magnitude, ..plain }])
    }

    fn base(&self, name: &str) -> Result<f64> {
        let base = self.float(name)?.unwrap_or(10_000.0);
        if base > 1.0 { Ok(base) } else { Err(fault(ModelFault::Float { key: self.key(name), value: base })) }
    }

    /// A rotation with the scaling that the keys describe.
    fn scaled(&self, plain: Rope) -> Result<Rope> {
        let positive = |name: &str, default: f64| match self.float(name)?.unwrap_or(default) {
            value if value > 0.0 => Ok(value),
            value => Err(fault(ModelFault::Float { key: self.key(name), value })),
        };
        let scale = || match self.float("rope.scaling.factor")? {
            None => positive("rope.scale_linear", 1.0),
            // 0 stands for none.
            Some(0.0) => Ok(1.0),
            Some(_) => positive("rope.scaling.factor", 1.0),
        };
        let magnitude = positive("rope.scaling.attn_factor", 1.0)?;
        match self.file.text(&self.key("rope.scaling.type"))? {
            Some("none") => Ok(Rope { magnitude, ..plain }),
            None | Some("linear") => Ok(Rope { scale: scale()?, magnitude, ..plain }),
            // The factors of frequencies are tensors.
            Some("longrope") if self.architecture == Architecture::Phi3 => Ok(Rope { magnitude, ..plain }),
            Some("yarn") => {
                let scale = scale()?;
                let grown = |by: f64| if scale > 1.0 { 0.1 * by * scale.ln() + 1.0 } else { 1.0 };
                let by = self.float("rope.scaling.yarn_log_multiplier")?.unwrap_or(0.0);
                let fast = positive("rope.scaling.yarn_beta_fast", 32.0)?;
                let slow = positive("rope.scaling.yarn_beta_slow", 1.0)?;
                let magnitude = magnitude * grown(1.0) / grown(by);
                Ok(Rope { scale, magnitude, yarn: Some(Yarn { fast, slow }), ..plain })
            }
            Some(other) => Err(fault(ModelFault::RopeScaling(other.to_owned()))),
        }
    }
}
