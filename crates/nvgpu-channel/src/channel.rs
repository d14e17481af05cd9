//! Channels with user-mode submission.
//!
//! The kernel requires a fixed order of set-up (`channel.c:channel_setup_bind_prechecks`): open the
//! channel, bind its address space, join its TSG, disable the watchdog (deterministic channels must not
//! have one), set up ring and USERD, register an error notifier, and allocate an engine object.
//! [`ChannelBuilder::open`] uses one type per step, so another order does not compile.
//!
//! After that, [`Channel::submit`] submits work with three stores and no system call.

use core::ptr::NonNull;
use core::time::Duration;
use std::sync::Arc;

use gpu_hal::Preemption;
use gpu_hal::barrier;
use gpu_hal::ring::{MIN_ENTRIES, Ring, RingFull};
use kernel_door::{DoorFd, Errno};
use nvgpu_sys::channel::{self as sys, SetupBindFlags, USERD_SIZE};
use nvgpu_sys::ctrl;
use nvmap::{Buffer, CacheMode};

use crate::doorbell::Doorbell;
use crate::error::{self, Error};
use crate::fault::Fault;
use crate::notifier::ErrorNotifier;
use crate::tsg::Subcontext;
use crate::va::GpuVa;

/// Default number of ring entries.
pub const DEFAULT_ENTRIES: u32 = 1024;
/// Bytes of a ring's entry.
const ENTRY_BYTES: u64 = 8;

/// A builder for a channel; created by [`Subcontext::channel`].
#[derive(Clone, Debug)]
#[must_use = "no channel exists until `open` is called"]
pub struct ChannelBuilder<'a> {
    subcontext: &'a Subcontext,
    class: u32,
    entries: u32,
    label: &'a str,
}

impl Subcontext {
    /// Returns a builder for a channel with the engine class `class`, for example 0xC7C0 for compute.
    pub fn channel(&self, class: u32) -> ChannelBuilder<'_> {
        ChannelBuilder { subcontext: self, class, entries: DEFAULT_ENTRIES, label: "channel" }
    }
}

impl<'a> ChannelBuilder<'a> {
    /// Sets the number of ring entries, a power of two; 1024 by default. One entry always stays unused.
    pub fn entries(mut self, entries: u32) -> Self {
        self.entries = entries;
        self
    }

    /// Sets the label for messages.
    pub fn label(mut self, label: &'a str) -> Self {
        self.label = label;
        self
    }

    /// Opens the channel. The first compute channel of a TSG takes about a second, because the kernel
    /// creates the engine context.
    ///
    /// # Errors
    ///
    /// [`Error::RingSize`] before any system call; [`Error::Memory`] for ring, USERD and notifier;
    /// [`Error::Call`] with the request that failed. The previous steps are undone.
    pub fn open(&self) -> Result<Channel, Error> {
        let max = self.subcontext.tsg().gpu().characteristics().max_gpfifo_entries();
        if !self.entries.is_power_of_two() || !(MIN_ENTRIES..=max).contains(&self.entries) {
            return Err(Error::RingSize { entries: self.entries, max });
        }
        let channel = Opened::open(self.subcontext, self.label)?
            .bind_address_space()?
            .join_tsg()?
            .disable_watchdog()?
            .set_up(self.entries)?
            .allocate_object(self.class)?;
        tracing::debug!(
            label = self.label,
            class = format_args!("{:#06x}", self.class),
            entries = self.entries,
            token = channel.token,
            "channel opened"
        );
        Ok(channel)
    }
}

/// An open channel descriptor, before set-up.
#[derive(Debug)]
struct Opened {
    fd: DoorFd,
    subcontext: Subcontext,
    label: String,
}

/// An open channel bound to its address space.
#[derive(Debug)]
struct AddressBound(Opened);

/// A channel in its TSG.
#[derive(Debug)]
struct InTsg(Opened);

/// A channel in its TSG, without watchdog.
#[derive(Debug)]
struct Unwatched(Opened);

/// A channel with ring, USERD, notifier and doorbell, on the runlist, without engine object.
#[derive(Debug)]
struct SetUp(Channel);

impl Opened {
    fn open(subcontext: &Subcontext, label: &str) -> Result<Self, Error> {
        let gpu = subcontext.tsg().gpu();
        let mut argument = ctrl::OpenChannel { runlist_id_or_fd: ctrl::RUNLIST_GR };
        ctrl::OPEN_CHANNEL
            .send(gpu.ctrl(), &mut argument)
            .map_err(error::call(ctrl::OPEN_CHANNEL.name(), label))?;
        // SAFETY: the request returned a new descriptor.
        let fd = unsafe { DoorFd::from_raw(gpu.door(), argument.runlist_id_or_fd) };
        Ok(Self { fd, subcontext: subcontext.clone(), label: label.into() })
    }

    fn bind_address_space(self) -> Result<AddressBound, Error> {
        use nvgpu_sys::address_space::{BIND_CHANNEL, BindChannel};
        let mut argument = BindChannel { channel_fd: self.fd.raw().cast_unsigned() };
        BIND_CHANNEL
            .send(self.subcontext.address_space().fd(), &mut argument)
            .map_err(self.failed(BIND_CHANNEL.name()))?;
        Ok(AddressBound(self))
    }

    fn failed(&self, call: &'static str) -> impl FnOnce(Errno) -> Error + use<> {
        error::call(call, self.label.clone())
    }
}

impl AddressBound {
    fn join_tsg(self) -> Result<InTsg, Error> {
        let Self(channel) = self;
        channel
            .subcontext
            .tsg()
            .bind(&channel.fd, channel.subcontext.veid())
            .map_err(channel.failed(nvgpu_sys::tsg::BIND_CHANNEL_EX.name()))?;
        Ok(InTsg(channel))
    }
}

impl InTsg {
    fn disable_watchdog(self) -> Result<Unwatched, Error> {
        let Self(channel) = self;
        let mut argument = sys::Wdt { wdt_status: sys::WDT_DISABLE, timeout_ms: 0 };
        sys::WDT.send(&channel.fd, &mut argument).map_err(channel.failed(sys::WDT.name()))?;
        Ok(Unwatched(channel))
    }
}

impl Unwatched {
    fn set_up(self, entries: u32) -> Result<SetUp, Error> {
        let Self(channel) = self;
        let gpu = channel.subcontext.tsg().gpu().clone();
        let page = nvgpu_sys::nvmap::PAGE_SIZE;
        // The hardware reads both without snooping the CPU caches.
        let memory = |size: u64, label| {
            gpu.nvmap().buffer(size).cache(CacheMode::WriteCombined).label(label).allocate()
        };
        let ring_memory = memory((u64::from(entries) * ENTRY_BYTES).max(page), "GPFIFO ring")?;
        let userd = memory(page, "USERD")?;
        debug_assert!(userd.size() >= USERD_SIZE, "a page holds USERD");
        // The kernel does not clear GP_PUT and GP_GET, so they are cleared before SETUP_BIND.
        // SAFETY: both buffers are page-aligned and large enough, and `Channel` keeps them alive next to
        // the ring; only this channel writes them.
        let ring = unsafe { Ring::new(ring_memory.pointer().cast(), userd.pointer(), entries) };
        barrier::before_doorbell();

        let flags = SetupBindFlags::USERMODE_SUPPORT | SetupBindFlags::DETERMINISTIC;
        let mut argument = sys::SetupBind {
            num_gpfifo_entries: entries,
            flags: flags.bits(),
            userd_dmabuf_fd: userd.dma_buf(),
            gpfifo_dmabuf_fd: ring_memory.dma_buf(),
            ..sys::SetupBind::default()
        };
        sys::SETUP_BIND.send(&channel.fd, &mut argument).map_err(channel.failed(sys::SETUP_BIND.name()))?;

        let notifier = ErrorNotifier::allocate(gpu.nvmap())?;
        notifier.register(&channel.fd).map_err(channel.failed(sys::SET_ERROR_NOTIFIER.name()))?;
        // The channel is deterministic now, so the GPU stays powered and the page stays accessible.
        let doorbell = gpu.doorbell()?;
        Ok(SetUp(Channel {
            token: argument.work_submit_token,
            fd: channel.fd,
            ring,
            notifier,
            doorbell,
            _userd: userd,
            _ring_memory: ring_memory,
            subcontext: channel.subcontext,
            label: channel.label,
        }))
    }
}

impl SetUp {
    fn allocate_object(self, class_num: u32) -> Result<Channel, Error> {
        let Self(channel) = self;
        let mut argument = sys::AllocObjCtx { class_num, ..sys::AllocObjCtx::default() };
        sys::ALLOC_OBJ_CTX
            .send(&channel.fd, &mut argument)
            .map_err(error::call(sys::ALLOC_OBJ_CTX.name(), channel.label.as_str()))?;
        Ok(channel)
    }
}

/// A channel's own syncpoint.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserSyncpoint {
    /// Number of the syncpoint in host1x.
    pub id: u32,
    /// GPU address that increments it.
    pub gpu_va: GpuVa,
    /// Its value at the time of the call, from which thresholds are counted. Not 0.
    pub value: u32,
}

/// Configuration of the watchdog for jobs that the kernel submits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Watchdog {
    /// No watchdog.
    Off,
    /// The kernel resets a channel whose job exceeds the limit.
    On {
        /// Time limit of a job; rounded down to milliseconds.
        limit: Duration,
        /// Whether the kernel omits the channel state from its log on expiry.
        quiet: bool,
    },
}

/// Converts a duration to milliseconds for the kernel.
fn milliseconds(what: &'static str, time: Duration) -> Result<u32, Error> {
    let milliseconds = time.as_millis();
    match u32::try_from(milliseconds) {
        Ok(value) if value != sys::NO_TIMEOUT => Ok(value),
        _ => Err(Error::Range {
            what,
            value: u64::try_from(milliseconds).unwrap_or(u64::MAX),
            rule: "it must be below 2^32 - 1",
        }),
    }
}

/// A channel: a ring of entries that the GPU processes.
///
/// Dropping it first closes the descriptor, and the kernel removes the channel from the GPU; then ring,
/// USERD and notifier are freed. The close waits until the GPU has unloaded the channel; if that fails,
/// the kernel aborts the TSG.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use std::sync::Arc;
/// # let door: Arc<dyn kernel_door::Door> = Arc::new(orin_sim::SoftwareOrin::new(orin_sim::Config::default())?);
/// # let gpu = nvgpu_channel::Gpu::open(&door)?;
/// # let space = gpu.address_space()?;
/// # let buffer = Arc::new(gpu.nvmap().buffer(8192).allocate()?);
/// # let tsg = gpu.tsg()?;
/// # let subcontext = tsg.subcontext(&space)?;
/// # let mut channel = subcontext.channel(gpu.characteristics().compute_class()).open()?;
/// // Nothing was submitted yet.
/// assert_eq!((channel.gp_get(), channel.gp_put()), (0, 0));
/// assert!(channel.error_notifier().is_none());
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct Channel {
    // Drop order: after the descriptor is closed, the GPU no longer uses the other fields.
    fd: DoorFd,
    ring: Ring,
    notifier: ErrorNotifier,
    doorbell: Arc<Doorbell>,
    _userd: Buffer,
    _ring_memory: Buffer,
    subcontext: Subcontext,
    token: u32,
    label: String,
}

impl Channel {
    /// Submits one entry: writes it to the ring, updates GP_PUT and rings the doorbell. Takes no lock,
    /// allocates nothing and makes no system call.
    ///
    /// Write the memory that the entry points to before the call. The barriers are those of
    /// [`barrier`]: a full-system barrier before GP_PUT, which also orders the pushbuffer, and a
    /// completion barrier before the doorbell.
    ///
    /// # Errors
    ///
    /// [`RingFull`] if the GPU has not fetched enough earlier entries; nothing is changed in that case.
    #[inline]
    pub fn submit(&mut self, entry: u64) -> Result<(), RingFull> {
        self.ring.push(entry)?;
        self.kick();
        Ok(())
    }

    /// Writes one entry to the ring without submitting it. [`Channel::kick`] submits all pushed entries.
    ///
    /// # Errors
    ///
    /// As [`Channel::submit`].
    #[inline]
    pub fn push(&mut self, entry: u64) -> Result<(), RingFull> {
        self.ring.push(entry).map(drop)
    }

    /// Submits the pushed entries: updates GP_PUT and rings the doorbell.
    #[inline]
    pub fn kick(&mut self) {
        self.ring.publish();
        barrier::before_doorbell();
        self.doorbell.ring(self.token);
    }

    /// The work-submit token, which is written to the doorbell: channel id in bits 11:0, runlist in 22:16.
    pub fn token(&self) -> u32 {
        self.token
    }

    /// The ring, for inspection.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// Pointer to the first slot of the ring, valid for volatile 64-bit stores to [`Channel::entries`]
    /// words while the channel is alive. For code that replays prepared submissions; do not mix it with
    /// [`Channel::submit`].
    pub fn ring_pointer(&self) -> NonNull<u64> {
        self.ring.slots()
    }

    /// Pointer to USERD, valid for volatile 32-bit accesses to 512 bytes while the channel is alive: GP_GET
    /// at [`gpu_hal::ring::USERD_GP_GET`], GP_PUT at [`gpu_hal::ring::USERD_GP_PUT`].
    pub fn userd_pointer(&self) -> NonNull<u8> {
        self.ring.userd()
    }

    /// The doorbell, accessible while the channel is alive.
    pub fn doorbell(&self) -> &Doorbell {
        &self.doorbell
    }

    /// Slots of the ring.
    pub fn entries(&self) -> u32 {
        self.ring.entries()
    }

    /// GP_GET: the next slot that the GPU fetches.
    pub fn gp_get(&self) -> u32 {
        self.ring.gp_get()
    }

    /// The slot of the next entry.
    pub fn gp_put(&self) -> u32 {
        self.ring.put()
    }

    /// Returns the fault that took the channel out of service, if any. No system call.
    pub fn error_notifier(&self) -> Option<Fault> {
        self.notifier.fault()
    }

    /// The notifier, for a watcher in another thread. It stays readable after the channel is dropped.
    pub fn notifier(&self) -> &ErrorNotifier {
        &self.notifier
    }

    /// Returns whether the channel is in service.
    ///
    /// # Errors
    ///
    /// [`Error::Call`].
    pub fn in_service(&self) -> Result<bool, Error> {
        let mut argument = sys::GetParam::default();
        match sys::GET_TIMEDOUT.send(&self.fd, &mut argument) {
            Ok(_) => Ok(argument.value == 0),
            // The kernel returns this for every request to a channel that is being torn down.
            Err(Errno::TIMEDOUT) => Ok(false),
            Err(errno) => Err(self.failed(sys::GET_TIMEDOUT.name(), errno)),
        }
    }

    /// Returns the channel's own syncpoint; the first call creates it.
    ///
    /// # Errors
    ///
    /// [`Error::Call`]; `ENOMEM` if no syncpoint is free.
    pub fn user_syncpoint(&self) -> Result<UserSyncpoint, Error> {
        let mut argument = sys::GetUserSyncpoint::default();
        sys::GET_USER_SYNCPOINT
            .send(&self.fd, &mut argument)
            .map_err(|errno| self.failed(sys::GET_USER_SYNCPOINT.name(), errno))?;
        Ok(UserSyncpoint {
            id: argument.syncpoint_id,
            gpu_va: GpuVa(argument.gpu_va),
            value: argument.syncpoint_max,
        })
    }

    /// Makes the kernel reset the TSG, which takes all its channels out of service with
    /// [`gpu_hal::ErrorCode::ChannelReset`]. Use this to abort work that hangs.
    ///
    /// # Errors
    ///
    /// [`Error::Call`].
    pub fn force_reset(&self) -> Result<(), Error> {
        sys::FORCE_RESET
            .send(&self.fd, 0)
            .map(drop)
            .map_err(|errno| self.failed(sys::FORCE_RESET.name(), errno))
    }

    /// Sets the granularity of preemption, which can only become finer. With [`Preemption::Wait`], the
    /// default, another TSG waits until a running kernel completes; the driver resets a TSG whose kernel
    /// delays other users by more than three seconds.
    ///
    /// # Errors
    ///
    /// [`Error::Call`]: `EINVAL` for a coarser mode than the current one.
    pub fn set_preemption(&self, mode: Preemption) -> Result<(), Error> {
        let compute = match mode {
            Preemption::Wait => sys::ComputePreemption::WFI,
            Preemption::Block => sys::ComputePreemption::CTA,
            Preemption::Instruction => sys::ComputePreemption::CILP,
        };
        let mut argument =
            sys::PreemptionMode { graphics_preempt_mode: 0, compute_preempt_mode: compute.bits() };
        sys::SET_PREEMPTION_MODE
            .send(&self.fd, &mut argument)
            .map(drop)
            .map_err(|errno| self.failed(sys::SET_PREEMPTION_MODE.name(), errno))
    }

    /// Sets the total time that the TSG may delay context switches before the kernel resets it: initially
    /// 3 s, `None` for no limit. With `quiet`, the kernel does not print the channel state on expiry.
    ///
    /// For a channel with user-mode submission, the time is never reset to 0 (`channel.c:
    /// nvgpu_channel_update_and_check_ctxsw_timeout`).
    ///
    /// # Errors
    ///
    /// [`Error::Range`] for more than 2^32 - 2 milliseconds, [`Error::Call`].
    pub fn set_switch_limit(&self, limit: Option<Duration>, quiet: bool) -> Result<(), Error> {
        let timeout = match limit {
            None => sys::NO_TIMEOUT,
            Some(limit) => milliseconds("time limit in milliseconds", limit)?,
        };
        let flags = u32::from(quiet) << sys::TIMEOUT_DISABLE_DUMP_BIT;
        let mut argument = sys::SetTimeoutEx { timeout, flags };
        sys::SET_TIMEOUT_EX
            .send(&self.fd, &mut argument)
            .map(drop)
            .map_err(|errno| self.failed(sys::SET_TIMEOUT_EX.name(), errno))
    }

    /// Configures the watchdog for jobs that the kernel submits. A channel with user-mode submission must
    /// not have a watchdog: the kernel only accepts [`Watchdog::Off`].
    ///
    /// # Errors
    ///
    /// [`Error::Range`] for a limit of more than 2^32 - 2 milliseconds; [`Error::Call`], `EINVAL` for
    /// other values than [`Watchdog::Off`].
    pub fn set_watchdog(&self, watchdog: Watchdog) -> Result<(), Error> {
        let mut argument = match watchdog {
            Watchdog::Off => sys::Wdt { wdt_status: sys::WDT_DISABLE, timeout_ms: 0 },
            Watchdog::On { limit, quiet } => {
                let dump = if quiet { sys::WDT_DISABLE_DUMP } else { 0 };
                let timeout_ms = milliseconds("watchdog limit in milliseconds", limit)?;
                sys::Wdt { wdt_status: sys::WDT_ENABLE | sys::WDT_SET_TIMEOUT | dump, timeout_ms }
            }
        };
        sys::WDT.send(&self.fd, &mut argument).map(drop).map_err(|errno| self.failed(sys::WDT.name(), errno))
    }

    /// Sleeps until the 32-bit word at byte `offset` of `memory` equals `payload`, at most for `timeout`.
    /// Returns whether it does. The kernel checks the word after each interrupt of an engine, so a
    /// release with awaken has to write it.
    ///
    /// The kernel also reports success if the channel dies during the wait (`ioctl_channel.c:
    /// gk20a_channel_wait_semaphore`), so this function checks the word again.
    ///
    /// # Errors
    ///
    /// [`Error::Range`] for a misaligned word, one outside the buffer, or a time-out of 0 or of more
    /// than 2^32 - 2 milliseconds; [`Error::Call`], `ETIMEDOUT` at once if the channel is out
    /// of service.
    pub fn wait_semaphore(
        &self,
        memory: &Buffer,
        offset: usize,
        payload: u32,
        timeout: Duration,
    ) -> Result<bool, Error> {
        let timeout = milliseconds("time-out in milliseconds", timeout)?;
        if timeout == 0 {
            let rule = "it must be at least 1: for the kernel, 0 is no limit";
            return Err(Error::Range { what: "time-out in milliseconds", value: 0, rule });
        }
        let inside = offset.checked_add(4).is_some_and(|end| end <= memory.size());
        let place = u32::try_from(offset).ok().filter(|_| inside && offset.is_multiple_of(4));
        let place = place.ok_or(Error::Range {
            what: "offset of a semaphore",
            // CAST: an offset has at most 64 bits.
            value: offset as u64,
            rule: "it must be a multiple of 4 inside the buffer and below 4 GiB",
        })?;
        let mut argument = sys::Wait {
            kind: sys::WAIT_SEMAPHORE,
            timeout,
            dmabuf_fd: memory.dma_buf().cast_unsigned(),
            offset: place,
            payload,
            padding: 0,
        };
        let reached = || memory.load_u32(offset, core::sync::atomic::Ordering::Acquire) == payload;
        match sys::WAIT.send(&self.fd, &mut argument) {
            Ok(_) | Err(Errno::INTR) => Ok(reached()),
            Err(Errno::TIMEDOUT) if self.in_service()? => Ok(reached()),
            Err(errno) => Err(self.failed(sys::WAIT.name(), errno)),
        }
    }

    /// The subcontext that the channel is bound to.
    pub fn subcontext(&self) -> &Subcontext {
        &self.subcontext
    }

    /// Label for messages.
    pub fn label(&self) -> &str {
        &self.label
    }

    fn failed(&self, call: &'static str, errno: Errno) -> Error {
        error::call(call, self.label.as_str())(errno)
    }
}
