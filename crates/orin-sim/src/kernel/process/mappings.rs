//! CPU mappings.

use std::sync::Arc;

use crate::memory::Memory;

use super::ProcessId;
use crate::kernel::nvmap::Buffer;

/// The target of a CPU mapping.
#[derive(Debug)]
pub(in crate::kernel) enum Mapped {
    /// A dma-buf from `offset` on, kept alive by the mapping.
    DmaBuf { buffer: Buffer, offset: u64 },
    /// The doorbell page of one open of the control node.
    Doorbell { instance: u64, page: Arc<Memory> },
}

/// One CPU mapping.
#[derive(Debug)]
pub(in crate::kernel) struct Mapping {
    pub(in crate::kernel) len: usize,
    pub(in crate::kernel) owner: ProcessId,
    pub(in crate::kernel) mapped: Mapped,
}
