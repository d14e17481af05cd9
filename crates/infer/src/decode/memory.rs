//! What a model needs, as figures.

use tegra_hcq::{Device, Properties};

use super::engine::MAX_CHUNKS;
use super::{prompt, weights};
use crate::error::{Error, Result};
use crate::model::{Model, Shape};

/// Local memory of a thread, at least what any kernel of this crate needs, in bytes.
const STACK_BYTES: u32 = 64;
/// Rings, records and pushbuffers of a queue, in bytes.
const RINGS_BYTES: u64 = 1 << 20;
/// Programs and graphs, in bytes.
const OTHER_BYTES: u64 = 8 << 20;

/// Sizes of a GPU that the needed memory depends on, in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Sizes {
    /// Local memory of a queue's threads.
    local: u64,
    /// Most memory for the vectors of prompts; wide models have smaller batches.
    pub(super) prompts: usize,
}

impl Sizes {
    /// An AGX Orin: 16 SMs, for which the driver reports 96 warps each. Its memory is small and the CPU's as well.
    const ORIN: Self = Self { local: 640 * 32 * 96 * 16, prompts: 20 << 20 };

    pub(super) fn of(gpu: &Properties) -> Self {
        // Queues refuse a GPU whose size is unknown.
        let local = gpu.local_memory_bytes(STACK_BYTES).unwrap_or(0);
        Self { local, prompts: if gpu.unified_memory { Self::ORIN.prompts } else { 64 << 20 } }
    }
}

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
    /// Queues. Most of it is local memory of all threads that the GPU may hold.
    pub queues: u64,
    /// Everything else.
    pub others: u64,
}

impl Memory {
    /// What a model with one session of `context` positions needs on a Jetson AGX Orin.
    ///
    /// # Errors
    ///
    /// [`Error::ContextTooLong`] if the model has fewer positions.
    pub fn of(model: &Model, context: usize) -> Result<Self> {
        Self::with(model.shape(), weights::bytes(model), context, Sizes::ORIN)
    }

    /// What a model with one session of `context` positions needs on a device.
    ///
    /// # Errors
    ///
    /// As [`Memory::of`].
    pub fn on(device: &Device, model: &Model, context: usize) -> Result<Self> {
        Self::with(model.shape(), weights::bytes(model), context, Sizes::of(device.info()))
    }

    fn with(shape: &Shape, weights: u64, context: usize, sizes: Sizes) -> Result<Self> {
        if context > shape.context || context == 0 {
            return Err(Error::ContextTooLong { wanted: context, most: shape.context });
        }
        let cache = shape.kv_bytes(context).ok_or(Error::TooLarge(context))?;
        let vectors = session_bytes(shape, context);
        // CAST: usize is at most 64 bits.
        let [cache, prompts, vectors] =
            [cache, prompt::bytes(shape, context, sizes), vectors].map(|bytes| bytes as u64);
        let (queues, others) = (sizes.local + RINGS_BYTES, vectors + OTHER_BYTES);
        Ok(Self { weights, cache, prompts, queues, others })
    }

    /// The sum.
    pub const fn total(&self) -> u64 {
        self.weights + self.cache + self.prompts + self.queues + self.others
    }

    /// What the model needs with as many sessions, and with a batch if there are several.
    #[must_use]
    pub const fn sessions(self, sessions: u64) -> Self {
        let cache = self.cache.saturating_mul(sessions);
        let queues =
            self.queues.saturating_mul(if sessions > 1 { sessions.saturating_add(1) } else { sessions });
        // The vectors and sums of a batch of more than 8, 1 MiB on an Orin and 10 on an H200, are among the others.
        let others = self.others.saturating_mul(sessions);
        Self { cache, queues, others, ..self }
    }

    /// Refuses a device that has less memory left.
    ///
    /// # Errors
    ///
    /// [`Error::Memory`] with all figures.
    pub fn check(&self, device: &Device) -> Result<()> {
        match device.memory_info() {
            Some(info) if info.free < self.total() => Err(Error::Memory { needed: *self, free: info.free }),
            _ => Ok(()),
        }
    }
}

/// Vectors and sums of a session.
fn session_bytes(shape: &Shape, context: usize) -> usize {
    let widest = shape.width.max(shape.query_width()).max(shape.ffn);
    let floats = shape.width + 3 * shape.query_width() + 3 * shape.ffn + widest + shape.vocabulary + context;
    let parts = shape.heads * (shape.head_size + 2) * MAX_CHUNKS;
    (floats + parts) * 4
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic::Recipe;

    #[test]
    fn a_larger_gpu_needs_more_for_each_queue() {
        let model = Model::from_bytes(Recipe::tiny_llama().to_bytes().unwrap()).unwrap();
        let orin = Memory::of(&model, 1024).unwrap();
        // An H200: 144 SMs at most with 64 warps each.
        let large = Sizes { local: 640 * 32 * 64 * 144, prompts: 64 << 20 };
        let large = Memory::with(model.shape(), orin.weights, 1024, large).unwrap();
        assert_eq!(large.queues - orin.queues, 640 * 32 * (64 * 144 - 96 * 16));
        let [one, four] = [1, 4].map(|sessions| large.sessions(sessions));
        assert_eq!((one, four.queues, four.others), (large, 5 * large.queues, 4 * large.others));
    }

    #[test]
    fn an_orin_needs_at_most_64_mib_beside_weights_and_cache() {
        let tiny = Model::from_bytes(Recipe::tiny_llama().to_bytes().unwrap()).unwrap();
        let Recipe { width, ffn, heads, kv_heads, head_size, vocabulary, .. } = Recipe::llama_1b();
        let context = 1 << 17;
        let shape =
            Shape { width, ffn, heads, kv_heads, head_size, vocabulary, context, ..tiny.shape().clone() };
        let memory = Memory::with(&shape, 0, 4096, Sizes::ORIN).unwrap();
        let rest = memory.total() - memory.cache;
        assert!((32 << 20..=64 << 20).contains(&rest), "{rest} bytes");
        assert_eq!(prompt::tokens(&shape, 4096, Sizes::ORIN, 512), 192);
        let large = Sizes { prompts: 64 << 20, ..Sizes::ORIN };
        assert_eq!(prompt::tokens(&shape, 4096, large, 512), 512);
        assert_eq!(prompt::tokens(&shape, 100, large, 512), 100);
    }

    #[test]
    fn the_software_orin_is_an_orin() {
        let device = Device::open(tegra_hcq::DeviceKind::Sim).unwrap();
        assert_eq!(Sizes::of(device.info()), Sizes::ORIN);
    }
}
