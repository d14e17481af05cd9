//! What the GPU reports to the kernel: faults, interrupts, waits that do not end, and its own panic.

use crate::check::Finding;
use crate::mmu::MmuFault;
use crate::sm::SmFault;

/// Checks that the host engine makes on fetched data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostCheck {
    /// GP_PUT is an index of the ring (GPPTR).
    Pointer,
    /// An entry of the ring is well formed (GPENTRY).
    RingEntry,
    /// A pushbuffer word is a header where one is expected (PBENTRY).
    PushbufferWord,
    /// A conditional segment does not begin with the data of an earlier header (PBSEG).
    SplitSegment,
    /// The checksum of the ring's entries matches GP_CRC (GPCRC).
    RingChecksum,
    /// The checksum of a segment matches PB_CRC (PBCRC).
    SegmentChecksum,
}

/// Why a method is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The class has no such method.
    Undefined,
    /// SET_OBJECT names a class that the subchannel's engine does not have.
    Class,
    /// The subchannel is for software methods, which the driver does not serve.
    Software,
    /// A privileged channel is required: a copy of physical memory.
    Privilege,
    /// SET_RENDER_ENABLE_C of the copy engine contains an invalid operation.
    RenderOperation,
    /// The data, or any other reason.
    Data,
}

/// A fault of a channel, by the engine or unit that detected it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChannelFault {
    /// Host (pushbuffer fetch, semaphore) or copy engine access refused by the MMU.
    #[error("{client}: {fault}")]
    Mmu {
        /// `"host"`, `"copy"` or `"compute"`.
        client: &'static str,
        /// The refused access.
        fault: MmuFault,
    },
    /// Malformed GPFIFO entry, pushbuffer word or method header.
    #[error("pushbuffer word {word:#010x} at {va:#x}: {reason}")]
    PushbufferEntry {
        /// The failed check. The kernel recovers from only one of them.
        check: HostCheck,
        /// GPU address of the word; for a GPFIFO entry, the address that it carries.
        va: u64,
        /// The word; for a GPFIFO entry, its first word.
        word: u32,
        /// The reason.
        reason: String,
    },
    /// A method that is undefined in its class, or whose data is refused.
    #[error("method {address:#06x} of subchannel {subchannel} with data {data:#010x}: {reason}")]
    Method {
        /// The kind of refusal, which determines the interrupting unit.
        refusal: Refusal,
        /// Subchannel the method was sent to.
        subchannel: u8,
        /// Byte offset of the method.
        address: u32,
        /// Data word.
        data: u32,
        /// The reason.
        reason: String,
    },
    /// A host semaphore operation with an invalid address or operation.
    #[error("host semaphore at {va:#x}: {reason}")]
    Semaphore {
        /// Address of the semaphore.
        va: u64,
        /// The reason.
        reason: String,
    },
    /// The launch descriptor was refused by the scheduler (SKED).
    #[error("launch descriptor at {va:#x}: {reason}")]
    LaunchDescriptor {
        /// GPU address of the descriptor.
        va: u64,
        /// Bit of the SKED ESR, if documented.
        esr_bit: Option<u32>,
        /// The reason.
        reason: String,
    },
    /// The copy engine refused its LAUNCH_DMA.
    #[error("copy engine: {reason}")]
    Copy {
        /// The reason.
        reason: String,
    },
    /// The SMs stopped the grid.
    #[error("{0}")]
    Sm(SmFault),
}

/// Receives faults from the GPU thread. The kernel model writes notifiers and its log, and calls
/// [`Gpu::stop_channels`](super::Gpu::stop_channels).
///
/// A report may arrive late: `stop_channels` does not wait for a report in progress. A handler that reuses channel ids
/// calls [`Gpu::status`](super::Gpu::status), under its own lock, to check that the channel with that id is the one
/// that is [`Activity::Faulted`](super::Activity::Faulted).
pub trait FaultHandler: Send + Sync {
    /// `channel_id` has faulted and is already halted. Called without any GPU lock held.
    fn fault(&self, channel_id: u32, fault: ChannelFault);

    /// `channel_id` raised its non-stall interrupt (NON_STALL_INTERRUPT, or a completion that requests one), once or
    /// several times. Called without any GPU lock held.
    fn non_stall_interrupt(&self, channel_id: u32) {
        let _ = channel_id;
    }

    /// TSG `tsg` has kept the graphics engine for another
    /// [`GpuConfig::switch_timeout`](super::GpuConfig::switch_timeout) although another TSG waits. `abandoned`: the TSG
    /// was closed before, and nothing can be recovered. Called without any GPU lock held.
    fn switch_timeout(&self, tsg: u32, abandoned: bool) {
        let _ = (tsg, abandoned);
    }

    /// The order check has a new finding. Called without any GPU lock held, before the end of the work in question is
    /// visible other than in memory.
    fn finding(&self, finding: &Finding) {
        let _ = finding;
    }

    /// No progress was made for [`GpuConfig::deadlock_after`](super::GpuConfig::deadlock_after), and all channels with
    /// work wait for semaphores: only the CPU can resolve it. Called once, and again after any change. On a board a
    /// user-space channel waits forever. Called without any GPU lock held.
    fn deadlock(&self, waiters: &[Waiter]) {
        let _ = waiters;
    }

    /// The GPU's thread has panicked, which is a bug of the model: it serves no channel any more. `text` is the panic's
    /// message. Called once, on that thread, without any GPU lock held.
    fn panicked(&self, text: &str) {
        tracing::error!("the GPU's thread has panicked: {text}");
    }
}

/// A channel that waits for a semaphore.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use std::sync::Arc;
/// # use orin_sim::gpu::{ChannelFault, FaultHandler, Gpu, GpuConfig};
/// # struct Printer;
/// # impl FaultHandler for Printer {
/// #     fn fault(&self, channel_id: u32, fault: ChannelFault) {
/// #         eprintln!("channel {channel_id}: {fault}");
/// #     }
/// # }
/// # let gpu = Gpu::start(GpuConfig::default(), Arc::new(Printer))?;
/// # use orin_sim::gpu::{ChannelGroup, ChannelSetup};
/// # use orin_sim::memory::Memory;
/// # use orin_sim::mmu::AddressSpace;
/// # gpu.bind_channel(ChannelSetup {
/// #     channel_id: 5,
/// #     ring: Arc::new(Memory::new("gpfifo", 0x1000)?),
/// #     ring_entries: 512,
/// #     userd: Arc::new(Memory::new("userd", 0x1000)?),
/// #     address_space: Arc::new(AddressSpace::new()),
/// #     group: ChannelGroup::alone(5),
/// # });
/// for waiter in gpu.waiters() {
///     println!("{waiter}");
/// }
/// assert!(gpu.waiters().is_empty());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("channel {channel_id} waits for {condition} {payload:#x} at {va:#x}, where {memory:#x} is")]
pub struct Waiter {
    /// Channel id.
    pub channel_id: u32,
    /// GPU address of the semaphore, in the channel's address space.
    pub va: u64,
    /// Name of the condition in the class header.
    pub condition: &'static str,
    /// Value that memory is compared with.
    pub payload: u64,
    /// Value of memory at the last check.
    pub memory: u64,
    /// Whether the TSG yields its time slice while waiting (ACQUIRE_SWITCH_TSG).
    pub switch_tsg: bool,
}
