//! Channels that user space feeds by itself.
//!
//! A channel comes about in a fixed order (`channel.c:channel_setup_bind_prechecks`): it is opened,
//! gets its address space, joins its TSG, loses its watchdog (deterministic channels must not have
//! one), gets ring and USERD, an error notifier, and an engine object. [`ChannelBuilder::open`] walks
//! through types of which each is made from the one before, so that no other order can be written.
//!
//! From then on [`Channel::submit`] feeds it with three stores and no system call.

use core::ptr::NonNull;
use core::time::Duration;
use std::sync::Arc;

use gpu_hal::barrier;
use gpu_hal::ring::{MIN_ENTRIES, Ring, RingFull};
use nvgpu_sys::channel::{self as sys, SetupBindFlags, USERD_SIZE};
use nvgpu_sys::{DoorFd, Errno, ctrl};
use nvmap::{Buffer, CacheMode};

use crate::doorbell::Doorbell;
use crate::error::{self, Error};
use crate::fault::Fault;
use crate::notifier::ErrorNotifier;
use crate::tsg::Subcontext;
use crate::va::GpuVa;

/// Entries of a ring unless told otherwise.
pub const DEFAULT_ENTRIES: u32 = 1024;
/// Bytes of a ring's entry.
const ENTRY_BYTES: u64 = 8;

/// Description of a channel; made by [`Subcontext::channel`].
#[derive(Clone, Debug)]
#[must_use = "no channel exists until `open` is called"]
pub struct ChannelBuilder<'a> {
    subcontext: &'a Subcontext,
    class: u32,
    entries: u32,
    label: &'a str,
}

impl Subcontext {
    /// Starts the description of a channel for the engine class `class`, e.g. 0xC7C0 for compute.
    pub fn channel(&self, class: u32) -> ChannelBuilder<'_> {
        ChannelBuilder { subcontext: self, class, entries: DEFAULT_ENTRIES, label: "channel" }
    }
}

impl<'a> ChannelBuilder<'a> {
    /// Entries of the ring, a power of two; 1024 by default. One of them always stays unused.
    pub fn entries(mut self, entries: u32) -> Self {
        self.entries = entries;
        self
    }

    /// What the channel is for, in messages.
    pub fn label(mut self, label: &'a str) -> Self {
        self.label = label;
        self
    }

    /// Brings the channel up. The first compute channel of a TSG takes about a second, while the
    /// kernel makes the engine context.
    ///
    /// # Errors
    ///
    /// [`Error::RingSize`] before any call; [`Error::Memory`] for ring, USERD and notifier;
    /// [`Error::Call`] names the request that failed. Whatever had been made by then is given back.
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

/// A channel descriptor on its way up, and what it is made for.
#[derive(Debug)]
struct Opened {
    fd: DoorFd,
    subcontext: Subcontext,
    label: String,
}

/// An opened channel with its address space.
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
        let fd = DoorFd::from_raw(gpu.door(), argument.runlist_id_or_fd);
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
        // The hardware reads both without looking into the CPU's caches.
        let memory = |size: u64, label| {
            gpu.nvmap().buffer(size).cache(CacheMode::WriteCombined).label(label).allocate()
        };
        let ring_memory = memory((u64::from(entries) * ENTRY_BYTES).max(page), "GPFIFO ring")?;
        let userd = memory(page, "USERD")?;
        debug_assert!(userd.size() >= USERD_SIZE, "a page holds USERD");
        // The kernel does not clear GP_PUT and GP_GET, so that happens before it sees them.
        // SAFETY: both buffers are page-aligned, large enough and kept alive next to the ring in
        // `Channel`; only this channel writes them.
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
        // The channel is deterministic now, so the GPU stays powered and the page accessible.
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
    /// Where the GPU increments it.
    pub gpu_va: GpuVa,
    /// Its value when asked for: the base to count from. Not 0.
    pub value: u32,
}

/// How finely compute work may be preempted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
#[non_exhaustive]
pub enum Preemption {
    /// When the engine is idle.
    #[default]
    Wait,
    /// Between thread blocks.
    Block,
    /// Between instructions.
    Instruction,
}

/// The watchdog of jobs that the kernel submits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Watchdog {
    /// No watchdog.
    Off,
    /// A job may take this long.
    On {
        /// The limit, in whole milliseconds.
        limit: Duration,
        /// Whether the kernel keeps the channel's state out of its log then.
        quiet: bool,
    },
}

/// Whole milliseconds as the kernel takes them.
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

/// A channel: a ring that the GPU works through.
///
/// Dropping it closes the descriptor first, upon which the kernel takes the channel off the GPU,
/// then gives ring, USERD and notifier back. Closing waits for the GPU to let go of the channel; if
/// it does not, the kernel aborts the TSG.
#[derive(Debug)]
pub struct Channel {
    // Fields drop in this order: first the descriptor, after which the GPU uses nothing of this.
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
    /// Hands one entry to the GPU: writes it into the ring, moves GP_PUT, rings the doorbell. Takes
    /// no lock, allocates nothing, makes no system call.
    ///
    /// What the entry points to must have been written before. The barriers between are those of
    /// [`barrier`]: a full-system one before GP_PUT, which also covers the pushbuffer, and a
    /// completing one before the doorbell.
    ///
    /// # Errors
    ///
    /// [`RingFull`] if the GPU has not fetched enough of the earlier entries; nothing is changed
    /// then.
    #[inline]
    pub fn submit(&mut self, entry: u64) -> Result<(), RingFull> {
        self.ring.push(entry)?;
        self.kick();
        Ok(())
    }

    /// Writes one entry into the ring without telling the GPU; [`Channel::kick`] does, for all of
    /// them at once.
    ///
    /// # Errors
    ///
    /// As [`Channel::submit`].
    #[inline]
    pub fn push(&mut self, entry: u64) -> Result<(), RingFull> {
        self.ring.push(entry).map(drop)
    }

    /// Moves GP_PUT behind the entries pushed so far and rings the doorbell.
    #[inline]
    pub fn kick(&mut self) {
        self.ring.publish();
        barrier::before_doorbell();
        self.doorbell.ring(self.token);
    }

    /// The value that rings for this channel: channel number in bits 11:0, runlist in 22:16.
    pub fn token(&self) -> u32 {
        self.token
    }

    /// The ring, to look at.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// First slot of the ring, valid for volatile 64-bit stores of [`Channel::entries`] words as
    /// long as the channel lives. For code that replays prepared submissions; it must not be mixed
    /// with [`Channel::submit`].
    pub fn ring_pointer(&self) -> NonNull<u64> {
        self.ring.slots()
    }

    /// USERD, valid for volatile 32-bit accesses of 512 bytes as long as the channel lives: GP_GET
    /// at [`gpu_hal::ring::USERD_GP_GET`], GP_PUT at [`gpu_hal::ring::USERD_GP_PUT`].
    pub fn userd_pointer(&self) -> NonNull<u8> {
        self.ring.userd()
    }

    /// The doorbell, valid as long as a channel lives.
    pub fn doorbell(&self) -> &Doorbell {
        &self.doorbell
    }

    /// Slots of the ring.
    pub fn entries(&self) -> u32 {
        self.ring.entries()
    }

    /// GP_GET: the slot that the GPU fetches next.
    pub fn gp_get(&self) -> u32 {
        self.ring.gp_get()
    }

    /// The slot that the next entry goes to.
    pub fn gp_put(&self) -> u32 {
        self.ring.put()
    }

    /// Why the kernel took the channel out of service, if it did. No system call.
    pub fn error_notifier(&self) -> Option<Fault> {
        self.notifier.fault()
    }

    /// The notifier by itself, for a watcher in another thread. It stays readable after the channel
    /// is gone.
    pub fn notifier(&self) -> &ErrorNotifier {
        &self.notifier
    }

    /// Whether the kernel still serves the channel.
    ///
    /// # Errors
    ///
    /// [`Error::Call`].
    pub fn in_service(&self) -> Result<bool, Error> {
        let mut argument = sys::GetParam::default();
        match sys::GET_TIMEDOUT.send(&self.fd, &mut argument) {
            Ok(_) => Ok(argument.value == 0),
            // What every request of a channel that is being torn down returns.
            Err(Errno::TIMEDOUT) => Ok(false),
            Err(errno) => Err(self.failed(sys::GET_TIMEDOUT.name(), errno)),
        }
    }

    /// The channel's own syncpoint, created by the first call.
    ///
    /// # Errors
    ///
    /// [`Error::Call`]; `ENOMEM` when no syncpoint is left.
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

    /// Makes the kernel reset the TSG: every channel of it goes out of service with
    /// [`gpu_hal::ErrorCode::ChannelReset`]. The way to get rid of work that hangs.
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

    /// Sets how finely work may be preempted; it can only ever get finer. With [`Preemption::Wait`], the
    /// default, another TSG waits until a kernel is over, and a kernel of more than three seconds that
    /// others wait for is killed.
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

    /// Sets for how long in all the TSG may resist being switched away before the kernel resets it;
    /// 3 s at first, `None` is without limit. With `quiet` the kernel does not print the channel's
    /// state then.
    ///
    /// The time of a channel like this one only ever adds up (`channel.c:
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

    /// Configures the watchdog, which guards jobs that the kernel submits. A channel like this one,
    /// whose jobs the kernel never sees, must not have it: the kernel takes [`Watchdog::Off`] alone.
    ///
    /// # Errors
    ///
    /// [`Error::Range`] for a limit of more than 2^32 - 2 milliseconds; [`Error::Call`], `EINVAL` for
    /// anything but off.
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

    /// Sleeps until the 32-bit word at byte `offset` of `memory` equals `payload`, at most `timeout`;
    /// whether it does. The kernel looks again whenever an engine interrupts, so what writes the word
    /// must be a release with awaken.
    ///
    /// The kernel also says yes when the channel dies meanwhile (`ioctl_channel.c:
    /// gk20a_channel_wait_semaphore`): so the word is looked at once more.
    ///
    /// # Errors
    ///
    /// [`Error::Range`] for a misaligned word, one outside the buffer, or a time-out of 0 or of more
    /// than 2^32 - 2 milliseconds; [`Error::Call`], `ETIMEDOUT` without having slept if the channel is
    /// out of service.
    pub fn wait_semaphore(
        &self,
        memory: &Buffer,
        offset: usize,
        payload: u32,
        timeout: Duration,
    ) -> Result<bool, Error> {
        let timeout = milliseconds("time-out in milliseconds", timeout)?;
        if timeout == 0 {
            let rule = "it must be at least 1, the kernel takes 0 for ever";
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

    /// What the channel is for.
    pub fn label(&self) -> &str {
        &self.label
    }

    fn failed(&self, call: &'static str, errno: Errno) -> Error {
        error::call(call, self.label.as_str())(errno)
    }
}
