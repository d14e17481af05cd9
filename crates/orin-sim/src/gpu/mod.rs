//! The GPU without its SMs: host scheduler, method decoders, compute and copy engines.
//!
//! The kernel model configures channels through [`Gpu`]. User space drives them only by GP_PUT and the doorbell page.
//! One thread per [`Gpu`] models all units: it polls the doorbells, feeds each channel's pushbuffer to the engines and
//! runs their work in slices, round robin, so no channel starves another.
//!
//! - `report`: what the kernel model learns ([`FaultHandler`]);
//! - `scheduler`: the thread, doorbells, time, waiting; `runlist`: the order of TSGs;
//! - `channel`: one channel's ring, pushbuffer and engines; `pointers`: its USERD pointers; `checksum` of fetched data;
//! - `host`: host methods (class 0xc76f); `semaphore`: semaphore writes of all engines;
//! - `compute` (class 0xc7c0), `inline_upload`, `sked` (launch order) and `qmd` (launch descriptors);
//! - `copy` (class 0xc7b5), `transfer` and `surface` (block-linear memory).

mod channel;
mod checksum;
mod compute;
mod copy;
mod decoder;
mod fetch;
mod host;
mod inline_upload;
mod pointers;
mod possession;
mod qmd;
mod report;
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
use crate::mmu::AddressSpace;
use crate::quirks::Quirks;
use crate::segments::SegmentWatcher;
use crate::sm::SmOptions;

pub(crate) use scheduler::panic_text;

pub use report::{ChannelFault, FaultHandler, HostCheck, Refusal, Waiter};

/// The parameters of SETUP_BIND.
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
/// use orin_sim::gpu::{ChannelGroup, ChannelSetup};
/// use orin_sim::memory::Memory;
/// use orin_sim::mmu::AddressSpace;
///
/// gpu.bind_channel(ChannelSetup {
///     channel_id: 5,
///     ring: Arc::new(Memory::new("gpfifo", 0x1000)?),
///     ring_entries: 512,
///     userd: Arc::new(Memory::new("userd", 0x1000)?),
///     address_space: Arc::new(AddressSpace::new()),
///     group: ChannelGroup::alone(5),
/// });
/// assert!(gpu.status(5).is_some());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct ChannelSetup {
    /// Channel id (0 to 511); on runlist 0 also the work-submit token.
    pub channel_id: u32,
    /// Memory of the GPFIFO ring.
    pub ring: Arc<Memory>,
    /// Number of ring entries, a power of two.
    pub ring_entries: u32,
    /// Memory of USERD: GP_GET at byte 0x88, GP_PUT at 0x8c.
    pub userd: Arc<Memory>,
    /// Address space of the channel.
    pub address_space: Arc<AddressSpace>,
    /// The scheduling group.
    pub group: ChannelGroup,
}

/// The time-slice group (TSG) of a channel. Channels of one TSG share its time slice and the engine contexts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ChannelGroup {
    /// TSG id; equal for all channels of the TSG.
    pub tsg: u32,
    /// The subcontext (VEID) of the channel, which can limit the scope of a wait for idle.
    pub veid: u32,
    /// Time slice of the TSG in microseconds. The value of the channel bound last applies.
    pub timeslice_us: u32,
}

impl ChannelGroup {
    /// A separate group for a channel, if all groups are created this way, with the time slice of a new TSG.
    pub fn alone(channel_id: u32) -> Self {
        Self { tsg: channel_id, veid: 0, timeslice_us: 1024 }
    }
}

/// Options of the modelled GPU.
#[derive(Clone, Debug)]
pub struct GpuConfig {
    /// Number of SMs reported to launches.
    pub sm_count: u32,
    /// Options of the SM model.
    pub sm: SmOptions,
    /// Selects which TSG is served first in each round; 0 keeps the binding order.
    pub seed: u64,
    /// Time without progress after which a deadlock is reported.
    pub deadlock_after: Duration,
    /// Period after which an engine that cannot be taken from a TSG causes a context-switch time-out.
    pub switch_timeout: Duration,
    /// Time that host needs for each 128 bytes of a pushbuffer.
    pub slow_fetch: Duration,
    /// Launch encodings that do not work.
    pub quirks: Quirks,
    /// Receives the pushbuffer segments that channels fetch.
    pub segments: Option<SegmentWatcher>,
}

impl Default for GpuConfig {
    /// A GPU without SMs that reports a deadlock after one second and a context-switch time-out after 100 ms.
    fn default() -> Self {
        let deadlock_after = Duration::from_secs(1);
        let switch_timeout = Duration::from_millis(100);
        Self {
            sm_count: 0,
            sm: SmOptions::default(),
            seed: 0,
            deadlock_after,
            switch_timeout,
            slow_fetch: Duration::ZERO,
            quirks: Quirks::default(),
            segments: None,
        }
    }
}

/// Where the grids of a TSG can be preempted when another TSG has work.
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
/// use orin_sim::gpu::Preemption;
///
/// gpu.set_preemption(5, Preemption::Instruction);
/// assert!(!gpu.occupies_engine(5));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Preemption {
    /// At their end only (WFI).
    #[default]
    Wait,
    /// Between blocks (CTA): the blocks on the SMs must end, and no further one starts.
    Block,
    /// At any instruction (CILP).
    Instruction,
}

/// The activity of a channel.
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
/// use orin_sim::gpu::Activity;
///
/// let status = gpu.status(5).expect("the channel is bound");
/// assert_eq!(status.activity, Activity::Idle);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Activity {
    /// All work up to the last doorbell is done.
    Idle,
    /// Pushbuffer words are being processed.
    Fetching,
    /// Host waits until memory at `va` satisfies an acquire.
    WaitingForSemaphore {
        /// GPU address of the semaphore.
        va: u64,
        /// Name of the condition in the class header.
        condition: &'static str,
        /// Value that memory is compared with.
        payload: u64,
        /// Value of memory at the last check.
        memory: u64,
    },
    /// Host waits for the copy engine, which has pending jobs.
    Copying {
        /// Number of unfinished jobs.
        jobs: usize,
    },
    /// A grid runs, or is about to run.
    RunningGrid {
        /// GPU address of its launch descriptor.
        qmd_va: u64,
        /// GPU address of its program; zero before the descriptor has been read.
        program_va: u64,
        /// Number of grids queued after it.
        queued: usize,
    },
    /// A fault has been reported; the channel makes no progress until it is stopped.
    Faulted,
}

/// The state of a channel for logs and debug dumps, returned by [`Gpu::status`].
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
/// let status = gpu.status(5).expect("the channel is bound");
/// assert_eq!((status.gp_get, status.gp_put), (0, 0));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChannelStatus {
    /// Index of the next ring entry to fetch.
    pub gp_get: u32,
    /// GP_PUT as of the last doorbell.
    pub gp_put: u32,
    /// GPU address of the next pushbuffer word, zero between segments.
    pub pushbuffer_get: u64,
    /// The activity of the channel.
    pub activity: Activity,
}

/// Effects of engines outside memory during a slice.
#[derive(Debug, Default)]
struct Effects {
    /// Non-stall interrupts raised.
    interrupts: u32,
}

/// GPU time in nanoseconds, used by PTIMER, the user-mode page and semaphore timestamps. It has a resolution of 32 ns
/// and follows the host's monotonic clock.
pub fn ptimer_ns() -> u64 {
    let now = rustix::time::clock_gettime(ClockId::Monotonic);
    // CAST: the monotonic clock is never negative.
    (now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64) & !31
}

/// Handle to the GPU and its thread.
///
/// A doorbell is a word of shared memory in the model, so a token can be overwritten before it is read. Therefore any
/// write to a doorbell makes the GPU read GP_PUT of all bound channels, whatever the token.
///
/// Dropping the handle ends running grids, stops the thread and waits for it. The thread may be in
/// [`FaultHandler::fault`], so do not drop the handle under a lock that the handler takes.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use std::sync::Arc;
/// use orin_sim::gpu::{ChannelFault, FaultHandler, Gpu, GpuConfig};
///
/// struct Printer;
///
/// impl FaultHandler for Printer {
///     fn fault(&self, channel_id: u32, fault: ChannelFault) {
///         eprintln!("channel {channel_id}: {fault}");
///     }
/// }
///
/// let gpu = Gpu::start(GpuConfig { sm_count: 8, ..GpuConfig::default() }, Arc::new(Printer))?;
/// assert!(gpu.status(5).is_none());
/// assert!(!gpu.is_stalled());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Gpu {
    scheduler: scheduler::Scheduler,
}

impl Gpu {
    /// Powers the GPU up: starts its thread.
    ///
    /// # Errors
    ///
    /// Fails if the thread cannot be started.
    pub fn start(config: GpuConfig, faults: Arc<dyn FaultHandler>) -> Result<Self, Errno> {
        Ok(Self { scheduler: scheduler::Scheduler::start(config, faults)? })
    }

    /// Starts polling a user-mode page (64 KiB): doorbell at byte 0x90, time at 0x80 and 0x84.
    ///
    /// The doorbell word is set to all ones, which is not a valid token. The page shows the time only while a channel
    /// is bound, because a board may otherwise power the GPU down.
    pub fn add_doorbell_page(&self, page: Arc<Memory>) {
        self.scheduler.add_page(page);
    }

    /// Stops polling a page.
    pub fn remove_doorbell_page(&self, page: &Arc<Memory>) {
        self.scheduler.remove_page(page);
    }

    /// SETUP_BIND: starts serving the channel's doorbell. A channel of the same id is stopped first.
    pub fn bind_channel(&self, setup: ChannelSetup) {
        self.scheduler.bind(setup);
    }

    /// ALLOC_OBJ_CTX: the channel accepts methods of `class` from now on.
    pub fn add_object(&self, channel_id: u32, class: u32) {
        self.scheduler.add_object(channel_id, class);
    }

    /// Enables or disables channels. Disabling finishes the current slice; then the channels make no progress until
    /// they are enabled again, which rereads GP_PUT. Channels are enabled when bound.
    pub fn set_enabled(&self, channel_ids: &[u32], enabled: bool) {
        self.scheduler.set_enabled(channel_ids, enabled);
    }

    /// Changes the time slice of a TSG, in microseconds.
    pub fn set_timeslice(&self, tsg: u32, timeslice_us: u32) {
        self.scheduler.set_timeslice(tsg, timeslice_us);
    }

    /// Sets where the grids of a TSG can be preempted; [`Preemption::Wait`] for a new TSG.
    pub fn set_preemption(&self, tsg: u32, preemption: Preemption) {
        self.scheduler.set_preemption(tsg, preemption);
    }

    /// Begins or ends the preemption of a TSG by the kernel: meanwhile, no further block of the TSG starts if its
    /// grids can be preempted between blocks.
    pub fn preempt(&self, tsg: u32, preempt: bool) {
        self.scheduler.preempt(tsg, preempt);
    }

    /// Whether a TSG has unfinished grids, or blocks on the SMs, that cannot be preempted.
    pub fn occupies_engine(&self, tsg: u32) -> bool {
        self.scheduler.occupies_engine(tsg)
    }

    /// Leaves the engine permanently to the unfinished grids of a TSG, as the kernel does if it closes a TSG that it
    /// could not preempt. No TSG is served afterwards. The caller must still stop the channels.
    pub fn abandon_engine(&self, tsg: u32) {
        self.scheduler.abandon_engine(tsg);
    }

    /// The channels that currently wait for semaphores, regardless of other work.
    pub fn waiters(&self) -> Vec<Waiter> {
        self.scheduler.waiters()
    }

    /// Schedules disturbances: lost doorbell writes and stalls of the engines, counted from 1.
    pub fn disturb(&self, lost_doorbells: &[u64], stalls: &[Stall]) {
        self.scheduler.disturb(lost_doorbells, stalls);
    }

    /// Loses the next `count` doorbell writes.
    pub fn lose_doorbells(&self, count: u64) {
        self.scheduler.lose_doorbells(count);
    }

    /// Returns how many doorbell writes are still to be lost.
    pub fn doorbells_to_lose(&self) -> u64 {
        self.scheduler.doorbells_to_lose()
    }

    /// Stalls or resumes the engines.
    pub fn stall(&self, stalled: bool) {
        self.scheduler.stall(stalled);
    }

    /// Returns whether the engines are stalled.
    pub fn is_stalled(&self) -> bool {
        self.scheduler.is_stalled()
    }

    /// Stops and removes channels: a running grid is ended, and none of their memory is accessed after the call
    /// returns. Can be called from ioctl threads and from [`FaultHandler::fault`].
    pub fn stop_channels(&self, channel_ids: &[u32]) {
        self.scheduler.stop(channel_ids);
    }

    /// Returns what a channel is doing; `None` if it is not bound. Waits for the end of the channel's current slice.
    pub fn status(&self, channel_id: u32) -> Option<ChannelStatus> {
        self.scheduler.status(channel_id)
    }
}
