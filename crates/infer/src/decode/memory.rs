//! What a model needs, as figures.

/// Memory that a model needs on a device, in bytes.
///
/// ```
/// use infer::decode::Memory;
/// use infer::model::Model;
/// use infer::synthetic::Recipe;
///
/// let model = Model::from_bytes(Recipe::tiny_llama().to_bytes()?)?;
/// let memory = Memory::of(&model, 1024)?;
/// assert_eq!(memory.cache, 2 * 2 * 128 * 2 * 1024);
/// assert!(memory.weights < model.file().len() as u64 + 65_536);
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Memory {
    /// Weights in the order in which kernels read them.
    pub weights: u64,
    /// Keys and values of a context.
    pub cache: u64,
    /// Vectors of prompts; all sessions share them.
    pub prompts: u64,
    /// Everything else.
    pub others: u64,
}

impl Memory {
    /// The sum.
    pub const fn total(&self) -> u64 {
        self.weights + self.cache + self.prompts + self.others
    }
}
