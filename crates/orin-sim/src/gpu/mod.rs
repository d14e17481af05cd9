//! The GPU beside its SMs: host scheduler, method decoders, compute and copy engines.
//!
//! The kernel model configures channels through [`Gpu`]; user space drives them by GP_PUT and the
//! doorbell page alone.

use std::sync::Arc;

use rustix::io::Errno;

use crate::memory::Memory;
use crate::mmu::{AddressSpace, MmuFault};
use crate::sm::SmFault;

/// What SETUP_BIND establishes.
#[derive(Clone, Debug)]
pub struct ChannelSetup {
    /// Channel id (0 to 511); with runlist 0 also the work-submit token.
    pub channel_id: u32,
    /// Memory of the GPFIFO ring.
    pub ring: Arc<Memory>,
    /// Number of ring entries, a power of two.
    pub ring_entries: u32,
    /// Memory of USERD: GP_GET at byte 0x88, GP_PUT at 0x8c.
    pub userd: Arc<Memory>,
    /// Address space of the channel.
    pub address_space: Arc<AddressSpace>,
}

/// Which engine or unit found a fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ChannelFault {
    /// Host (pushbuffer fetch, semaphore) or copy engine access refused by the MMU.
    Mmu {
        /// `"host"`, `"copy"` or `"compute"`.
        client: &'static str,
        /// The refused access.
        fault: MmuFault,
    },
    /// Malformed pushbuffer word or method header.
    PushbufferEntry {
        /// GPU address of the word.
        va: u64,
        /// The word.
        word: u32,
        /// What is wrong with it.
        reason: String,
    },
    /// A method that the target class does not have, or data it refuses.
    Method {
        /// Subchannel the method was sent to.
        subchannel: u8,
        /// Byte offset of the method.
        address: u32,
        /// Data word.
        data: u32,
        /// What is wrong with it.
        reason: String,
    },
    /// A host semaphore operation with a bad address or operation.
    Semaphore {
        /// Address of the semaphore.
        va: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// The launch descriptor was refused by the scheduler (SKED).
    LaunchDescriptor {
        /// GPU address of the descriptor.
        va: u64,
        /// Bit of the SKED ESR, where the manuals give one.
        esr_bit: Option<u32>,
        /// What is wrong with it.
        reason: String,
    },
    /// The copy engine refused its LAUNCH_DMA.
    Copy {
        /// What is wrong with it.
        reason: String,
    },
    /// The SMs ended the grid.
    Sm(SmFault),
}

/// Told of faults by the GPU thread; the kernel model writes notifiers and its log, and calls
/// [`Gpu::stop_channels`].
pub trait FaultHandler: Send + Sync {
    /// `channel_id` has faulted and is already halted. Called without any lock of the GPU held.
    fn fault(&self, channel_id: u32, fault: ChannelFault);
}

/// Options of the modelled GPU.
#[derive(Clone, Debug)]
pub struct GpuConfig {
    /// Number of SMs reported to launches.
    pub sm_count: u32,
}

/// Handle to the GPU and its thread. Dropping it stops the thread.
pub struct Gpu {}

impl Gpu {
    /// Powers the GPU up: starts its thread.
    ///
    /// # Errors
    ///
    /// When the thread cannot be started.
    pub fn start(_config: GpuConfig, _faults: Arc<dyn FaultHandler>) -> Result<Self, Errno> {
        Ok(Self {})
    }

    /// Watches one user-mode page (64 KiB) from now on: doorbell at byte 0x90, time at 0x80 and 0x84.
    pub fn add_doorbell_page(&self, _page: Arc<Memory>) {}

    /// Stops watching a page.
    pub fn remove_doorbell_page(&self, _page: &Arc<Memory>) {}

    /// SETUP_BIND: from now on the channel's doorbell is served.
    pub fn bind_channel(&self, _setup: ChannelSetup) {}

    /// ALLOC_OBJ_CTX: methods of `class` are accepted on the channel from now on.
    pub fn add_object(&self, _channel_id: u32, _class: u32) {}

    /// Halts channels and forgets them: a running grid is ended, and nothing of theirs is touched
    /// once the call returns. Callable from ioctl threads and from [`FaultHandler::fault`].
    pub fn stop_channels(&self, _channel_ids: &[u32]) {}
}
