//! Faults of a model's chat template.

/// Key of the template.
pub(super) const KEY: &str = "tokenizer.chat_template";

/// Why conversations with a model are not possible.
///
/// ```
/// use infer::chat::{ChatFault, Template};
/// use infer::model::Model;
/// use infer::synthetic::Recipe;
///
/// let model = Model::from_bytes(Recipe::tiny_gpt2().to_bytes()?)?;
/// let error = Template::of(model.file()).unwrap_err();
/// assert!(matches!(error, infer::Error::Chat(ChatFault::NoTemplate)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChatFault {
    /// The file has no template.
    #[error("the model does not support conversations (it has no `{KEY}`): give a prompt instead")]
    NoTemplate,

    /// The file's template is not one.
    #[error(
        "line {line} of the model's `{KEY}` is wrong: {reason}; give a prompt in the format of the model"
    )]
    Syntax {
        /// Line of the template, from 1; 0 if unknown.
        line: usize,
        /// The template engine's reason.
        reason: String,
    },

    /// The template fails for this conversation.
    #[error("line {line} of the model's `{KEY}` cannot write this conversation: {reason}")]
    Rendering {
        /// Line of the template, from 1; 0 if unknown.
        line: usize,
        /// The template engine's reason.
        reason: String,
    },

    /// The template refuses this conversation.
    #[error("the model's `{KEY}` refuses this conversation: {0}")]
    Refused(String),

    /// The template needs more time or memory than a conversation of this size is given.
    #[error("the model's `{KEY}` takes too long, or writes too much")]
    TooMuch,

    /// A role is unknown.
    #[error("{0:?} is not a role; roles are system, user, assistant and tool")]
    UnknownRole(String),
}
