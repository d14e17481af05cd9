//! Faults of vocabularies.

/// Why a file's vocabulary cannot be used.
///
/// ```
/// use infer::gguf::{File, Value, Writer};
/// use infer::tokenizer::{Tokenizer, TokenizerFault};
///
/// let mut writer = Writer::new();
/// writer.key("tokenizer.ggml.model", Value::Text("bert".to_owned()));
/// let mut bytes = Vec::new();
/// writer.write(&mut bytes)?;
/// let error = Tokenizer::new(&File::from_bytes(bytes)?).unwrap_err();
/// assert!(matches!(error, infer::Error::Tokenizer(TokenizerFault::Model(_))));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TokenizerFault {
    /// The file has no vocabulary.
    #[error("the file has no vocabulary: give tokens instead of text")]
    NoVocabulary,

    /// The vocabulary is of another kind.
    #[error(
        "vocabularies of kind {0:?} (`tokenizer.ggml.model`) are not supported, only gpt2, llama and gemma4"
    )]
    Model(String),

    /// Texts are split in an unknown way.
    #[error("texts are split into words as {0:?} (`tokenizer.ggml.pre`), which is not supported")]
    Splitter(String),

    /// Not every token has a score.
    #[error("`tokenizer.ggml.scores` has {scores} elements; the vocabulary has {count} tokens")]
    Scores {
        /// Number of scores.
        scores: usize,
        /// Number of tokens.
        count: usize,
    },

    /// There are too many tokens that are found as a whole.
    #[error("the vocabulary has {0} control and added tokens, too many to search texts for")]
    Added(usize),

    /// A key is missing.
    #[error("key `{0}` is missing")]
    Missing(&'static str),

    /// There are no tokens, or too many.
    #[error("the vocabulary has {0} tokens")]
    Count(usize),

    /// Not every token has a type.
    #[error("`tokenizer.ggml.token_type` has {kinds} elements; the vocabulary has {count} tokens")]
    Kinds {
        /// Number of types.
        kinds: usize,
        /// Number of tokens.
        count: usize,
    },

    /// A byte has no token.
    #[error("the vocabulary has no token for byte {0}")]
    Byte(u8),

    /// A merge is not two texts, or its parts or its result are no tokens.
    #[error("merge {index} ({merge:?}) does not join two tokens to a token")]
    Merge {
        /// Position in the list.
        index: usize,
        /// The merge.
        merge: String,
    },

    /// A special token is not in the vocabulary.
    #[error("`{key}` is {token}; the vocabulary has {vocabulary} tokens")]
    Special {
        /// The key.
        key: &'static str,
        /// The token.
        token: u32,
        /// Number of tokens.
        vocabulary: usize,
    },
}
