//! Faults of a model's chat template.

/// Key of the template.
pub(super) const KEY: &str = "tokenizer.chat_template";

/// Why conversations with a model are not possible.
///
/// ```
/// use infer::chat::{ChatFault, Format};
/// use infer::model::Model;
/// use infer::synthetic::Recipe;
///
/// let model = Model::from_bytes(Recipe::tiny_gpt2().to_bytes()?)?;
/// let error = Format::of(model.file()).unwrap_err();
/// assert!(matches!(error, infer::Error::Chat(ChatFault::NoTemplate)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChatFault {
    /// The file has no template.
    #[error("the model does not support conversations (it has no `{KEY}`): give a prompt instead")]
    NoTemplate,

    /// The file's template is of an unknown format.
    #[error(
        "the model's `{KEY}` is neither LLaMA 3's nor ChatML's (it begins with {start:?}): give a prompt in \
         the format of the model"
    )]
    UnknownTemplate {
        /// The start of the template.
        start: String,
    },

    /// The vocabulary lacks a token of the format.
    #[error("the vocabulary has no control token {0}, which the model's `{KEY}` needs")]
    MissingToken(&'static str),

    /// A role is unknown.
    #[error("{0:?} is not a role; roles are system, user and assistant")]
    UnknownRole(String),
}
