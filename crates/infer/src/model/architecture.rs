//! The families of models.

use core::fmt;

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
    /// Gemma 3, its text: most layers see a window; results of attention and feed-forward network are normalised, too.
    Gemma3,
    /// Phi 3 and 4: joined matrices, and rotation of a part of each head.
    Phi3,
    /// Mistral 3 and Ministral 3: LLaMA with frequencies scaled as in YaRN.
    Mistral3,
    /// Granite 3 and 4 without experts: factors of embedding, scores, results and logits.
    Granite,
    /// SmolLM 3: each fourth layer is without rotation.
    SmolLm3,
    /// LFM2 without experts: most layers are short convolutions.
    Lfm2,
    /// gpt-oss: experts with biases and a clamped activation, attention sinks, a window in every other layer.
    GptOss,
}

impl Architecture {
    /// All architectures.
    pub const ALL: [Self; 12] = [
        Self::Llama,
        Self::Qwen2,
        Self::Qwen3,
        Self::Gpt2,
        Self::Qwen3Moe,
        Self::Gemma3,
        Self::Phi3,
        Self::Mistral3,
        Self::Granite,
        Self::SmolLm3,
        Self::Lfm2,
        Self::GptOss,
    ];

    /// The architecture with a name; `None` if it is not supported.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|architecture| architecture.name() == name)
    }

    /// The name in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Llama => "llama",
            Self::Qwen2 => "qwen2",
            Self::Qwen3 => "qwen3",
            Self::Gpt2 => "gpt2",
            Self::Qwen3Moe => "qwen3moe",
            Self::Gemma3 => "gemma3",
            Self::Phi3 => "phi3",
            Self::Mistral3 => "mistral3",
            Self::Granite => "granite",
            Self::SmolLm3 => "smollm3",
            Self::Lfm2 => "lfm2",
            Self::GptOss => "gpt-oss",
        }
    }

    /// Whether layers have experts, of which a router chooses some for each token.
    pub const fn has_experts(self) -> bool {
        matches!(self, Self::Qwen3Moe | Self::GptOss)
    }

    /// Name of the normalisation in front of the output matrix.
    pub(crate) const fn output_norm(self) -> &'static str {
        if matches!(self, Self::Lfm2) { "token_embd_norm" } else { "output_norm" }
    }

    /// Name of the normalisation in front of the feed-forward network.
    pub(crate) const fn feed_forward_norm(self) -> &'static str {
        if matches!(self, Self::GptOss) { "post_attention_norm" } else { "ffn_norm" }
    }

    /// Whether results of attention and feed-forward network are normalised before they are added.
    pub const fn normalises_results(self) -> bool {
        matches!(self, Self::Gemma3)
    }

    /// Whether query and key heads are normalised before their rotation.
    pub const fn normalises_heads(self) -> bool {
        matches!(self, Self::Qwen3 | Self::Qwen3Moe | Self::Gemma3 | Self::Lfm2)
    }
}

impl fmt::Display for Architecture {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}
