//! CPU mappings.

use std::sync::Arc;

use crate::memory::Memory;

use super::nvmap::Buffer;
use super::process::ProcessId;

/// The target of a CPU mapping.
#[derive(Debug)]
pub(super) enum Mapped {
    /// A dma-buf from `offset` on, kept alive by the mapping.
    DmaBuf { buffer: Buffer, offset: u64 },
    /// The doorbell page of one open of the control node.
    Doorbell { instance: u64, page: Arc<Memory> },
}

/// One CPU mapping.
#[derive(Debug)]
pub(super) struct Mapping {
    pub(super) len: usize,
    pub(super) owner: ProcessId,
    pub(super) mapped: Mapped,
}
