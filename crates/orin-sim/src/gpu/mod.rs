//! The GPU beside its SMs: host scheduler, method decoders, compute and copy engines.
//!
//! The kernel model configures channels through [`Gpu`]; user space drives them by GP_PUT and the
//! doorbell page alone. One thread per [`Gpu`] stands for all units: it polls the doorbells, feeds
//! each channel's pushbuffer to the engines and runs their work in slices, round robin, so that no
//! channel starves another.
//!
//! * `scheduler`: the thread, doorbells, time, waiting; `runlist`: whose turn it is;
//! * `channel`: one channel's ring, pushbuffer and engines; `pointers` that it shows, `checksum` of what it
//!   fetches;
//! * `host`: host methods (class 0xc76f), `semaphore` what all engines write when done;
//! * `compute` (class 0xc7c0), `inline_upload`, `sked` (launch order) and `qmd` (launch descriptors);
//! * `copy` (class 0xc7b5), `transfer` and `surface` (block-linear memory).

mod channel;
mod checksum;
mod compute;
mod copy;
mod decoder;
mod host;
mod inline_upload;
mod pointers;
mod qmd;
mod runlist;
mod scheduler;
mod semaphore;
mod sked;
mod surface;
mod transfer;

use std::sync::Arc;
use std::time::Duration;

use rustix::io::Errno;
use rustix::time::ClockId;

use crate::config::Stall;
use crate::memory::Memory;
use crate::mmu::{AddressSpace, MmuFault};
use crate::sm::{SmFault, SmOptions};
use crate::strict::Report;

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
    /// What it is scheduled with.
    pub group: ChannelGroup,
}

/// The time-slice group (TSG) of a channel. Channels of one TSG share its time slice and the contexts of
/// the engines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelGroup {
    /// The TSG; any number, the same for all its channels.
    pub tsg: u32,
    /// The subcontext (VEID) of the channel, which a wait for idle may be limited to.
    pub veid: u32,
    /// Time slice of the TSG in microseconds; that of the channel that was bound last counts.
    pub timeslice_us: u32,
}

impl ChannelGroup {
    /// A group of its own for a channel, if all groups are made so, with the time slice of a new TSG.
    pub fn alone(channel_id: u32) -> Self {
        Self { tsg: channel_id, veid: 0, timeslice_us: 1024 }
    }
}

/// What the host engine checks of what it fetches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostCheck {
    /// GP_PUT is an index of the ring (GPPTR).
    Pointer,
    /// An entry of the ring is well formed (GPENTRY).
    RingEntry,
    /// A word of a pushbuffer is a header where one is due (PBENTRY).
    PushbufferWord,
    /// A segment that may be skipped does not begin with the data of a header before it (PBSEG).
    SplitSegment,
    /// The checksum of the ring's entries is the one that GP_CRC gives (GPCRC).
    RingChecksum,
    /// The checksum of a segment is the one that PB_CRC gives (PBCRC).
    SegmentChecksum,
}

/// Why a method is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refusal {
    /// The class has no such method.
    Undefined,
    /// SET_OBJECT names a class that the subchannel's engine does not have.
    Class,
    /// The subchannel is one of those for software, which serves none.
    Software,
    /// Only a privileged channel may: a copy of physical memory.
    Privilege,
    /// SET_RENDER_ENABLE_C of the copy engine names an operation that does not exist.
    RenderOperation,
    /// The data, or anything else about it.
    Data,
}

/// Which engine or unit found a fault.
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
        /// Which check it failed; the kernel recovers from one of them only.
        check: HostCheck,
        /// GPU address of the word; for a GPFIFO entry, the address that it carries.
        va: u64,
        /// The word; for a GPFIFO entry, its first.
        word: u32,
        /// What is wrong with it.
        reason: String,
    },
    /// A method that the target class does not have, or data it refuses.
    #[error("method {address:#06x} of subchannel {subchannel} with data {data:#010x}: {reason}")]
    Method {
        /// Why; it decides which unit raises the interrupt.
        refusal: Refusal,
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
    #[error("host semaphore at {va:#x}: {reason}")]
    Semaphore {
        /// Address of the semaphore.
        va: u64,
        /// What is wrong with it.
        reason: String,
    },
    /// The launch descriptor was refused by the scheduler (SKED).
    #[error("launch descriptor at {va:#x}: {reason}")]
    LaunchDescriptor {
        /// GPU address of the descriptor.
        va: u64,
        /// Bit of the SKED ESR, where the manuals give one.
        esr_bit: Option<u32>,
        /// What is wrong with it.
        reason: String,
    },
    /// The copy engine refused its LAUNCH_DMA.
    #[error("copy engine: {reason}")]
    Copy {
        /// What is wrong with it.
        reason: String,
    },
    /// The SMs ended the grid.
    #[error("{0}")]
    Sm(SmFault),
}

/// Told of faults by the GPU thread; the kernel model writes notifiers and its log, and calls
/// [`Gpu::stop_channels`].
///
/// A report may come late: [`Gpu::stop_channels`] does not wait for a report that is on its way. A
/// handler that reuses channel ids asks [`Gpu::status`], under its own lock, whether the channel
/// it knows by that id is the one that is [`Activity::Faulted`].
pub trait FaultHandler: Send + Sync {
    /// `channel_id` has faulted and is already halted. Called without any lock of the GPU held.
    fn fault(&self, channel_id: u32, fault: ChannelFault);

    /// `channel_id` raised its non-stall interrupt (NON_STALL_INTERRUPT, or a completion that asks
    /// for one), once or several times. Called without any lock of the GPU held.
    fn non_stall_interrupt(&self, channel_id: u32) {
        let _ = channel_id;
    }

    /// Strict mode has something to report. Called without any lock of the GPU held, before the end of the
    /// work that it is about can be seen elsewhere than in memory.
    fn strict_report(&self, report: &Report) {
        let _ = report;
    }

    /// For [`GpuConfig::deadlock_after`] nothing has been done, all channels that have work wait for
    /// semaphores, and these are they: only the CPU can help. Told once, and again when any of it has
    /// changed. On a board a channel of user space waits for ever. Called without any lock of the GPU held.
    fn deadlock(&self, waiters: &[Waiter]) {
        let _ = waiters;
    }
}

/// A channel that waits for a semaphore.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("channel {channel_id} waits for {condition} {payload:#x} at {va:#x}, where {memory:#x} is")]
pub struct Waiter {
    /// Which channel.
    pub channel_id: u32,
    /// GPU address of the semaphore, in the channel's address space.
    pub va: u64,
    /// Name of the condition as the class header has it.
    pub condition: &'static str,
    /// Value that memory is compared with.
    pub payload: u64,
    /// What memory held at the last look.
    pub memory: u64,
    /// Whether the TSG gives its time away while it waits (ACQUIRE_SWITCH_TSG).
    pub switch_tsg: bool,
}

/// Options of the modelled GPU.
#[derive(Clone, Debug)]
pub struct GpuConfig {
    /// Number of SMs reported to launches.
    pub sm_count: u32,
    /// How they are modelled.
    pub sm: SmOptions,
    /// Decides which TSG is served first in each round; 0 is the order in which they were bound.
    pub seed: u64,
    /// After how long a standstill is reported as a deadlock.
    pub deadlock_after: Duration,
    /// Strict mode: see [`crate::strict`].
    pub strict: bool,
}

impl Default for GpuConfig {
    /// A GPU without SMs that takes a second for a deadlock.
    fn default() -> Self {
        let deadlock_after = Duration::from_secs(1);
        Self { sm_count: 0, sm: SmOptions::default(), seed: 0, deadlock_after, strict: false }
    }
}

/// What a channel is doing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Activity {
    /// Everything up to the last doorbell is done.
    Idle,
    /// Pushbuffer words are being processed.
    Fetching,
    /// Host waits until memory at `va` satisfies an acquire.
    WaitingForSemaphore {
        /// GPU address of the semaphore.
        va: u64,
        /// Name of the condition as the class header has it.
        condition: &'static str,
        /// Value that memory is compared with.
        payload: u64,
        /// What memory held at the last look.
        memory: u64,
    },
    /// Host waits for the engines, which have copies left.
    Copying {
        /// Jobs that are not finished.
        jobs: usize,
    },
    /// A grid runs, or is about to.
    RunningGrid {
        /// GPU address of its launch descriptor.
        qmd_va: u64,
        /// GPU address of its program; zero while the descriptor has not been read.
        program_va: u64,
        /// Grids that wait behind it.
        queued: usize,
    },
    /// A fault has been reported; nothing happens until the channel is stopped.
    Faulted,
}

/// What [`Gpu::status`] tells about a channel, for logs and debug dumps.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelStatus {
    /// Index of the next ring entry to fetch.
    pub gp_get: u32,
    /// GP_PUT as of the last doorbell.
    pub gp_put: u32,
    /// GPU address of the pushbuffer word that is fetched next, zero between segments.
    pub pushbuffer_get: u64,
    /// What it is doing.
    pub activity: Activity,
}

/// Things that engines cause outside of memory while a slice runs.
#[derive(Debug, Default)]
struct Effects {
    /// Non-stall interrupts raised.
    interrupts: u32,
}

/// Time of the GPU in nanoseconds: what PTIMER counts, the user-mode page shows and semaphores are
/// stamped with. It runs in steps of 32 ns and is the host's monotonic clock.
pub fn ptimer_ns() -> u64 {
    let now = rustix::time::clock_gettime(ClockId::Monotonic);
    // CAST: the monotonic clock is never negative.
    (now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64) & !31
}

/// Handle to the GPU and its thread.
///
/// A doorbell is a word of shared memory here, in which a token can be overwritten before it is read.
/// So any write to a doorbell makes the GPU read GP_PUT of all bound channels, whatever the token.
///
/// Dropping the handle ends running grids, stops the thread and waits for it. As the thread may be in
/// [`FaultHandler::fault`], the handle is not to be dropped under a lock that the handler takes.
#[derive(Debug)]
pub struct Gpu {
    scheduler: scheduler::Scheduler,
}

impl Gpu {
    /// Powers the GPU up: starts its thread.
    ///
    /// # Errors
    ///
    /// When the thread cannot be started.
    pub fn start(config: GpuConfig, faults: Arc<dyn FaultHandler>) -> Result<Self, Errno> {
        Ok(Self { scheduler: scheduler::Scheduler::start(config, faults)? })
    }

    /// Watches one user-mode page (64 KiB) from now on: doorbell at byte 0x90, time at 0x80 and 0x84.
    ///
    /// The doorbell word is set to all ones, which no token is. The page shows the time only while
    /// some channel is bound, as a board may power the GPU down otherwise.
    pub fn add_doorbell_page(&self, page: Arc<Memory>) {
        self.scheduler.add_page(page);
    }

    /// Stops watching a page.
    pub fn remove_doorbell_page(&self, page: &Arc<Memory>) {
        self.scheduler.remove_page(page);
    }

    /// SETUP_BIND: from now on the channel's doorbell is served. A channel of the same id is
    /// stopped first.
    pub fn bind_channel(&self, setup: ChannelSetup) {
        self.scheduler.bind(setup);
    }

    /// What strict mode has found so far, oldest first; nothing when it is off.
    pub fn strict_reports(&self) -> Vec<Report> {
        self.scheduler.reports()
    }

    /// ALLOC_OBJ_CTX: methods of `class` are accepted on the channel from now on.
    pub fn add_object(&self, channel_id: u32, class: u32) {
        self.scheduler.add_object(channel_id, class);
    }

    /// Lets host work on channels, or not: the slice in progress is finished, then nothing moves until
    /// they are enabled again, when GP_PUT is looked at anew. Channels are enabled when bound.
    pub fn set_enabled(&self, channel_ids: &[u32], enabled: bool) {
        self.scheduler.set_enabled(channel_ids, enabled);
    }

    /// Changes the time slice of a TSG, in microseconds.
    pub fn set_timeslice(&self, tsg: u32, timeslice_us: u32) {
        self.scheduler.set_timeslice(tsg, timeslice_us);
    }

    /// The channels that wait for semaphores now, whatever others do.
    pub fn waiters(&self) -> Vec<Waiter> {
        self.scheduler.waiters()
    }

    /// Plans disturbances: doorbell writes that are lost and stalls of the engines, counted from 1.
    pub fn disturb(&self, lost_doorbells: &[u64], stalls: &[Stall]) {
        self.scheduler.disturb(lost_doorbells, stalls);
    }

    /// Loses the next `count` doorbell writes.
    pub fn lose_doorbells(&self, count: u64) {
        self.scheduler.lose_doorbells(count);
    }

    /// How many of the doorbell writes that [`Gpu::lose_doorbells`] asked for are still to be lost.
    pub fn doorbells_to_lose(&self) -> u64 {
        self.scheduler.doorbells_to_lose()
    }

    /// Keeps the engines from making progress until told otherwise.
    pub fn stall(&self, stalled: bool) {
        self.scheduler.stall(stalled);
    }

    /// Whether the engines make no progress now.
    pub fn is_stalled(&self) -> bool {
        self.scheduler.is_stalled()
    }

    /// Halts channels and forgets them: a running grid is ended, and nothing of theirs is touched
    /// once the call returns. Callable from ioctl threads and from [`FaultHandler::fault`].
    pub fn stop_channels(&self, channel_ids: &[u32]) {
        self.scheduler.stop(channel_ids);
    }

    /// What a channel is doing, `None` when it is not bound. Waits for the end of the channel's
    /// current slice.
    pub fn status(&self, channel_id: u32) -> Option<ChannelStatus> {
        self.scheduler.status(channel_id)
    }
}
