//! The memory that a model needs on a GPU: the figures of [`Memory`].

use tegra_hcq::Device;

use super::convolution::KEPT;
use super::engine::MAX_CHUNKS;
use super::memory::{Memory, Sizes};
use super::{experts, prompt, weights};
use crate::error::{Error, Result};
use crate::model::{KvFormat, Model, Shape};

/// Rings, records and pushbuffers of a queue, in bytes.
const RINGS_BYTES: u64 = 1 << 20;
/// Programs and graphs, in bytes.
const OTHER_BYTES: u64 = 8 << 20;

impl Memory {
    /// The memory for a model and one session of `context` positions on a Jetson AGX Orin.
    ///
    /// # Errors
    ///
    /// [`Error::ContextTooLong`] if the model has fewer positions.
    pub fn of(model: &Model, context: usize, kv: KvFormat) -> Result<Self> {
        Self::with(model.shape(), weights::bytes(model), (context, kv), Sizes::ORIN)
    }

    /// The memory for a model and one session of `context` positions on a device.
    ///
    /// # Errors
    ///
    /// As [`Memory::of`].
    pub fn on(device: &Device, model: &Model, context: usize, kv: KvFormat) -> Result<Self> {
        Self::with(model.shape(), weights::bytes(model), (context, kv), Sizes::of(device.info()))
    }

    fn with(shape: &Shape, weights: u64, (context, kv): (usize, KvFormat), sizes: Sizes) -> Result<Self> {
        if context > shape.context || context == 0 {
            return Err(Error::ContextTooLong { wanted: context, most: shape.context });
        }
        let cache = shape.kv_bytes(kv, context).ok_or(Error::TooLarge(context))?;
        let vectors = session_bytes(shape, context);
        // CAST: usize is at most 64 bits.
        let [cache, prompts, vectors] =
            [cache, prompt::bytes(shape, context, sizes), vectors].map(|bytes| bytes as u64);
        let (queues, others) = (sizes.local + RINGS_BYTES, vectors + OTHER_BYTES);
        Ok(Self { weights, cache, prompts, queues, others })
    }

    /// Returns an error if the device has less free memory.
    ///
    /// # Errors
    ///
    /// [`Error::Memory`] with all figures.
    pub fn check(&self, device: &Device) -> Result<()> {
        match device.memory() {
            Some(memory) if memory.available < self.total() => {
                Err(Error::Memory { needed: *self, free: memory.available })
            }
            _ => Ok(()),
        }
    }
}

/// Vectors and sums of a session.
fn session_bytes(shape: &Shape, context: usize) -> usize {
    let widest = shape.width.max(shape.query_width()).max(shape.ffn);
    let logits = shape.vocabulary + shape.vocabulary.div_ceil(32);
    let floats = 3 * shape.width + 3 * shape.query_width() + 3 * shape.ffn + widest + logits + context;
    let parts = shape.heads * (shape.head_size + 2) * MAX_CHUNKS;
    let experts: usize = experts::sizes(shape).into_iter().sum();
    let kept = shape.convolutions(shape.layers.len()) * KEPT * shape.width;
    (floats + parts + kept) * 4 + experts
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::super::memory::{HOPPER_STACK_BYTES, STACK_BYTES};
    use super::*;
    use crate::synthetic::Recipe;

    #[test]
    fn a_larger_gpu_needs_more_for_each_queue() {
        let model = Model::from_bytes(Recipe::tiny_llama().to_bytes().unwrap()).unwrap();
        let orin = Memory::of(&model, 1024, KvFormat::F16).unwrap();
        // An H200: 144 SMs at most with 64 warps each.
        let large = Sizes { local: 640 * 32 * 64 * 144, prompts: 64 << 20 };
        let large = Memory::with(model.shape(), orin.weights, (1024, KvFormat::F16), large).unwrap();
        assert_eq!(large.queues - orin.queues, 640 * 32 * (64 * 144 - 96 * 16));
        let [one, four] = [1, 4].map(|sessions| large.sessions(sessions));
        assert_eq!((one, four.queues, four.others), (large, 5 * large.queues, 4 * large.others));
    }

    #[test]
    fn no_kernel_has_a_larger_stack() {
        let kernels = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels");
        let files =
            ["llm", "gemm", "sm_90/llm", "sm_90/gemm"].map(|place| kernels.join(place).read_dir().unwrap());
        let mut checked = 0;
        for file in files.into_iter().flatten() {
            let file = file.unwrap().path();
            let most = if file.iter().any(|part| part == "sm_90") { HOPPER_STACK_BYTES } else { STACK_BYTES };
            for kernel in cubin::Cubin::parse(&std::fs::read(&file).unwrap()).unwrap().kernels() {
                let (name, local) = (&kernel.name, kernel.stack_bytes(cubin::Kernel::DEFAULT_STACK_LIMIT));
                assert!(local <= most, "{}: {name}: {local} bytes", file.display());
                checked += 1;
            }
        }
        assert!(checked > 400, "{checked} kernels");
    }

    #[test]
    fn an_orin_needs_at_most_64_mib_beside_weights_and_cache() {
        let tiny = Model::from_bytes(Recipe::tiny_llama().to_bytes().unwrap()).unwrap();
        let Recipe { width, ffn, heads, kv_heads, head_size, vocabulary, .. } = Recipe::llama_1b();
        let context = 1 << 17;
        let shape =
            Shape { width, ffn, heads, kv_heads, head_size, vocabulary, context, ..tiny.shape().clone() };
        let memory = Memory::with(&shape, 0, (4096, KvFormat::F16), Sizes::ORIN).unwrap();
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
