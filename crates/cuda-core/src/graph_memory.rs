//! Memory of graphs: allocated with a node, and at the same address in each launch.

use std::sync::Arc;

use crate::code::Result;
use crate::driver::Gpu;
use crate::memory::Allocation;

/// Memory that a node of a graph allocates.
#[derive(Debug)]
pub struct GraphMemory {
    gpu: &'static Gpu,
    allocation: Arc<Allocation>,
}

impl GraphMemory {
    /// Allocates memory for a node of a context's graph; if it is `managed`, the CPU sees it too.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidValue`](crate::Code::InvalidValue) for no bytes,
    /// [`Code::OutOfMemory`](crate::Code::OutOfMemory).
    pub fn create(gpu: &'static Gpu, context: u64, bytes: usize, managed: bool) -> Result<Arc<Self>> {
        let allocation = gpu.memory.allocate_for_graph(context, &gpu.device()?, bytes, managed)?;
        Ok(Arc::new(Self { gpu, allocation }))
    }

    /// Its address.
    pub fn address(&self) -> u64 {
        self.allocation.base
    }

    /// Its size in bytes.
    pub fn bytes(&self) -> usize {
        self.allocation.bytes
    }

    /// Whether the CPU sees it too.
    pub fn is_managed(&self) -> bool {
        self.allocation.is_managed()
    }

    /// Ordinal of its GPU.
    pub fn device(&self) -> usize {
        self.gpu.ordinal
    }

    /// A launch allocates it; if the graph does not free it, it is `taken` until something does.
    pub(crate) fn launch(&self, taken: bool, free_earlier: bool) -> Result<()> {
        if taken {
            self.gpu.memory.take_for_graph(&self.allocation, free_earlier)?;
        }
        self.gpu.memory.count_for_graph(&self.allocation);
        Ok(())
    }
}

impl Drop for GraphMemory {
    fn drop(&mut self) {
        self.gpu.memory.leave_graph(&self.allocation);
    }
}
