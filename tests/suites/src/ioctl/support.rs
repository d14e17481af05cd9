//! Helpers of this suite.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ampere_cmd::gpfifo;
use ampere_cmd::pushbuffer::Encoder;
use nvgpu_channel::{AddressSpace, Channel, Gpu, GpuVa, MapOptions, Mapping};
use nvmap::{Buffer, CacheMode};

use test_harness::{Check, Context};

/// A GPU with an address space.
pub(super) struct Rig {
    pub(super) gpu: Gpu,
    pub(super) space: AddressSpace,
}

/// Memory that CPU and GPU both map.
pub(super) struct Memory {
    pub(super) buffer: Arc<Buffer>,
    pub(super) mapping: Mapping,
}

impl Memory {
    /// GPU address of the byte at `offset`.
    pub(super) fn va(&self, offset: u64) -> u64 {
        self.mapping.va().get() + offset
    }
}

impl Rig {
    pub(super) fn new(context: &Context) -> Result<Self, nvgpu_channel::Error> {
        let gpu = context.gpu()?;
        let space = gpu.address_space()?;
        Ok(Self { gpu, space })
    }

    /// Allocates and maps `bytes`.
    pub(super) fn memory(
        &self,
        bytes: u64,
        mode: CacheMode,
        label: &str,
    ) -> Result<Memory, nvgpu_channel::Error> {
        let buffer = Arc::new(self.gpu.nvmap().buffer(bytes).cache(mode).label(label).allocate()?);
        let mapping = self.space.map(&buffer, MapOptions::default())?;
        Ok(Memory { buffer, mapping })
    }

    /// Opens a compute channel with 1024 ring entries on its own TSG.
    pub(super) fn compute_channel(&self) -> Result<Channel, nvgpu_channel::Error> {
        let class = self.gpu.characteristics().compute_class();
        self.gpu.tsg()?.subcontext(&self.space)?.channel(class).entries(1024).label("compute").open()
    }
}

/// The encoded words of `commands`.
pub(super) fn words<R>(
    commands: impl FnOnce(&mut Encoder<Vec<u32>>) -> Result<R, ampere_cmd::Error>,
) -> Result<Vec<u32>, ampere_cmd::Error> {
    let mut encoder = Encoder::new(Vec::new());
    commands(&mut encoder)?;
    Ok(encoder.into_sink())
}

/// Stores words at the start of `pushbuffer` and submits them to the channel.
pub(super) fn submit(channel: &mut Channel, pushbuffer: &Memory, words: &[u32]) -> Check {
    pushbuffer.buffer.copy_from_slice(0, words)?;
    let segment = gpfifo::Segment::new(pushbuffer.va(0), u32::try_from(words.len())?);
    channel.submit(gpfifo::Entry::from(segment).encode()?)?;
    Ok(())
}

/// Waits until `done`. Returns an error if the channel dies, or if the wait exceeds `limit` (on a board).
pub(super) fn await_gpu(
    context: &Context,
    channel: &Channel,
    limit: Duration,
    mut done: impl FnMut() -> bool,
) -> Check {
    let patience = context.patience(limit);
    let start = Instant::now();
    while !done() {
        if let Some(fault) = channel.error_notifier() {
            return Err(format!("the kernel stopped the channel: {fault}").into());
        }
        if start.elapsed() > patience {
            let (get, put) = (channel.gp_get(), channel.gp_put());
            return Err(format!("not done after {patience:?}; GP_GET {get}, GP_PUT {put}").into());
        }
        std::thread::yield_now();
    }
    context.note(format!("seen after {:.1} µs", start.elapsed().as_secs_f64() * 1e6));
    Ok(())
}

/// Whether an address range lies within the bounds that this workspace uses.
pub(super) fn is_user_range(va: GpuVa, len: u64) -> bool {
    va >= nvgpu_channel::VA_START && va.checked_add(len).is_some_and(|end| end <= nvgpu_channel::VA_END)
}
