//! The memory that a model needs, as figures.

use tegra_hcq::Properties;

/// Local memory of a thread, at least what any kernel of this crate needs, in bytes: on an Orin, and on GPUs for which
/// the cubins of Hopper GPUs are loaded.
pub(super) const STACK_BYTES: u32 = 64;
pub(super) const HOPPER_STACK_BYTES: u32 = 72;

/// Sizes of a GPU that the needed memory depends on, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    /// Local memory of a queue's threads.
    pub(super) local: u64,
    /// Most memory for the vectors of prompts; wide models have smaller batches.
    pub(super) prompts: usize,
}

impl Sizes {
    /// An AGX Orin: 16 SMs, for which the driver reports 96 warps each. Its memory is small and the CPU's as well.
    pub(super) const ORIN: Self = Self { local: 640 * 32 * 96 * 16, prompts: 20 << 20 };

    pub(super) fn of(gpu: &Properties) -> Self {
        let stack_bytes = if gpu.sm_version.0 >= 9 { HOPPER_STACK_BYTES } else { STACK_BYTES };
        // Queues refuse a GPU whose size is unknown.
        let local = gpu.local_memory_bytes(stack_bytes).unwrap_or(0);
        Self { local, prompts: if gpu.unified_memory { Self::ORIN.prompts } else { 64 << 20 } }
    }
}

/// Memory that a model needs on a device, in bytes.
///
/// ```
/// use infer::decode::Memory;
/// use infer::model::{KvFormat, Model};
/// use infer::synthetic::Recipe;
///
/// let model = Model::from_bytes(Recipe::tiny_llama().to_bytes()?)?;
/// let memory = Memory::of(&model, 1024, KvFormat::F16)?;
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
    /// Queues. Most of it is local memory of all threads that the GPU may hold.
    pub queues: u64,
    /// Everything else.
    pub others: u64,
}

impl Memory {
    /// The sum.
    pub const fn total(&self) -> u64 {
        self.weights + self.cache + self.prompts + self.queues + self.others
    }

    /// The memory for this number of sessions, and for a batch if there are several.
    #[must_use]
    pub const fn sessions(self, sessions: u64) -> Self {
        let cache = self.cache.saturating_mul(sessions);
        let queues =
            self.queues.saturating_mul(if sessions > 1 { sessions.saturating_add(1) } else { sessions });
        // The vectors and sums of a batch, 2 MiB for LLaMA 1B on the tensor cores, are among the others.
        let others = self.others.saturating_mul(sessions);
        Self { cache, queues, others, ..self }
    }
}
