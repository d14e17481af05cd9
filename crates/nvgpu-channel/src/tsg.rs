//! Time-slice groups and their subcontexts.
//!
//! A TSG is what the GPU schedules. Its channels share an engine context; a fault in one takes all
//! of them down, and the cure is a new TSG: address spaces and mappings stay good. A subcontext
//! (VEID) ties channels of the TSG to one address space.

use core::time::Duration;
use std::sync::Arc;

use nvgpu_sys::door::{Events, PollEntry};
use nvgpu_sys::tsg as sys;
pub use nvgpu_sys::tsg::SmErrorStateRecord;
use nvgpu_sys::{DoorFd, Errno, ValueRequest, ctrl};

use crate::address_space::AddressSpace;
use crate::error::{self, Error};
use crate::gpu::Gpu;

/// A time-slice group. Cloning is cheap and means the same group; it lives until the last clone,
/// subcontext and channel is gone.
#[derive(Clone, Debug)]
pub struct Tsg {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    fd: DoorFd,
    gpu: Gpu,
}

impl Gpu {
    /// Creates a time-slice group.
    ///
    /// # Errors
    ///
    /// [`Error::Call`]; `ENOMEM` when all 512 are taken.
    pub fn tsg(&self) -> Result<Tsg, Error> {
        Tsg::open(self, ctrl::OpenTsg::default())
    }
}

impl Tsg {
    /// Opens a TSG as `argument` says: a new one, or another's.
    pub(crate) fn open(gpu: &Gpu, mut argument: ctrl::OpenTsg) -> Result<Self, Error> {
        ctrl::OPEN_TSG
            .send(gpu.ctrl(), &mut argument)
            .map_err(error::call(ctrl::OPEN_TSG.name(), "the TSG"))?;
        let fd = DoorFd::from_raw(gpu.door(), argument.tsg_fd.cast_signed());
        Ok(Self { shared: Arc::new(Shared { fd, gpu: gpu.clone() }) })
    }

    /// Creates an asynchronous subcontext, the kind for compute, over `space`. The first one is
    /// VEID 1; there are 63.
    ///
    /// # Errors
    ///
    /// [`Error::Call`]; `ENOSPC` when all VEIDs are taken.
    pub fn subcontext(&self, space: &AddressSpace) -> Result<Subcontext, Error> {
        let mut argument = sys::CreateSubcontext {
            kind: sys::SUBCONTEXT_ASYNC,
            as_fd: space.fd().raw(),
            ..sys::CreateSubcontext::default()
        };
        sys::CREATE_SUBCONTEXT
            .send(&self.shared.fd, &mut argument)
            .map_err(error::call(sys::CREATE_SUBCONTEXT.name(), "the TSG"))?;
        let inner = SubcontextShared { veid: argument.veid, tsg: self.clone(), space: space.clone() };
        Ok(Subcontext { shared: Arc::new(inner) })
    }

    /// How long the TSG runs before another one gets its turn; 1024 µs at first.
    ///
    /// # Errors
    ///
    /// [`Error::Call`].
    pub fn timeslice(&self) -> Result<Duration, Error> {
        let mut argument = sys::Timeslice::default();
        sys::GET_TIMESLICE
            .send(&self.shared.fd, &mut argument)
            .map_err(error::call(sys::GET_TIMESLICE.name(), "the TSG"))?;
        Ok(Duration::from_micros(argument.timeslice_us.into()))
    }

    /// Sets the time slice, whole microseconds from 1 to 50 ms.
    ///
    /// # Errors
    ///
    /// [`Error::Range`] if it does not fit the field, [`Error::Call`] if the kernel refuses it
    /// (`EINVAL`) or another process holds the scheduling control (`EPERM`).
    pub fn set_timeslice(&self, timeslice: Duration) -> Result<(), Error> {
        let micros = timeslice.as_micros();
        let timeslice_us = u32::try_from(micros).map_err(|_| Error::Range {
            what: "time slice in microseconds",
            value: u64::try_from(micros).unwrap_or(u64::MAX),
            rule: "it must be at most 50000",
        })?;
        let mut argument = sys::Timeslice { timeslice_us, reserved: 0 };
        sys::SET_TIMESLICE
            .send(&self.shared.fd, &mut argument)
            .map(drop)
            .map_err(error::call(sys::SET_TIMESLICE.name(), "the TSG"))
    }

    /// Sets how often the TSG gets its turn.
    ///
    /// # Errors
    ///
    /// [`Error::Call`]: `EPERM` when another process holds the scheduling control.
    pub fn set_interleave(&self, interleave: Interleave) -> Result<(), Error> {
        let level = match interleave {
            Interleave::Low => sys::INTERLEAVE_LOW,
            Interleave::Medium => sys::INTERLEAVE_MEDIUM,
            Interleave::High => sys::INTERLEAVE_HIGH,
        };
        let mut argument = sys::RunlistInterleave { level, reserved: 0 };
        sys::SET_RUNLIST_INTERLEAVE
            .send(&self.shared.fd, &mut argument)
            .map(drop)
            .map_err(error::call(sys::SET_RUNLIST_INTERLEAVE.name(), "the TSG"))
    }

    /// Lets the scheduler pick the TSG again after [`Tsg::disable`].
    ///
    /// # Errors
    ///
    /// [`Error::Call`].
    pub fn enable(&self) -> Result<(), Error> {
        self.send_value(&sys::ENABLE)
    }

    /// Keeps the scheduler from picking the TSG again; what runs goes on until its time is over.
    ///
    /// # Errors
    ///
    /// [`Error::Call`].
    pub fn disable(&self) -> Result<(), Error> {
        self.send_value(&sys::DISABLE)
    }

    /// Waits until the TSG is off the hardware, for 100 ms at most.
    ///
    /// # Errors
    ///
    /// [`Error::Call`] when what runs does not yield in time.
    pub fn preempt(&self) -> Result<(), Error> {
        self.send_value(&sys::PREEMPT)
    }

    /// Sets how many of the L2's 16 ways may hold lines that kernels mark evict-last.
    ///
    /// # Errors
    ///
    /// [`Error::Call`]: `EINVAL` for more than 16, and before the first channel has an engine object.
    pub fn set_l2_evict_last_ways(&self, max_ways: u32) -> Result<(), Error> {
        let mut argument = sys::L2MaxWaysEvictLast { max_ways, reserved: 0 };
        sys::SET_L2_MAX_WAYS_EVICT_LAST
            .send(&self.shared.fd, &mut argument)
            .map(drop)
            .map_err(error::call(sys::SET_L2_MAX_WAYS_EVICT_LAST.name(), "the TSG"))
    }

    /// How many ways those are.
    ///
    /// # Errors
    ///
    /// [`Error::Call`].
    pub fn l2_evict_last_ways(&self) -> Result<u32, Error> {
        let mut argument = sys::L2MaxWaysEvictLast::default();
        sys::GET_L2_MAX_WAYS_EVICT_LAST
            .send(&self.shared.fd, &mut argument)
            .map_err(error::call(sys::GET_L2_MAX_WAYS_EVICT_LAST.name(), "the TSG"))?;
        Ok(argument.max_ways)
    }

    /// Sets how much the L2 fetches around a miss.
    ///
    /// # Errors
    ///
    /// [`Error::Call`].
    pub fn set_l2_sector_promotion(&self, promotion: SectorPromotion) -> Result<(), Error> {
        let promotion_flag = match promotion {
            SectorPromotion::None => sys::L2_SECTOR_PROMOTE_NONE,
            SectorPromotion::Bytes64 => sys::L2_SECTOR_PROMOTE_64B,
            SectorPromotion::Bytes128 => sys::L2_SECTOR_PROMOTE_128B,
        };
        let mut argument = sys::SetL2SectorPromotion { promotion_flag, reserved: 0 };
        sys::SET_L2_SECTOR_PROMOTION
            .send(&self.shared.fd, &mut argument)
            .map(drop)
            .map_err(error::call(sys::SET_L2_SECTOR_PROMOTION.name(), "the TSG"))
    }

    fn send_value(&self, request: &ValueRequest) -> Result<(), Error> {
        request.send(&self.shared.fd, 0).map(drop).map_err(error::call(request.name(), "the TSG"))
    }

    /// Opens the event that follows each non-stalling interrupt of the graphics and copy engines,
    /// with which a thread sleeps until the GPU may have finished something.
    ///
    /// # Errors
    ///
    /// [`Error::Call`].
    pub fn completion_event(&self) -> Result<TsgEvent, Error> {
        self.event(EventKind::Completion)
    }

    /// Opens an event.
    ///
    /// # Errors
    ///
    /// [`Error::Call`].
    pub fn event(&self, kind: EventKind) -> Result<TsgEvent, Error> {
        let mut argument = sys::EventIdCtrl {
            cmd: sys::EVENT_CMD_ENABLE,
            event_id: kind.raw(),
            ..sys::EventIdCtrl::default()
        };
        sys::EVENT_ID_CTRL
            .send(&self.shared.fd, &mut argument)
            .map_err(error::call(sys::EVENT_ID_CTRL.name(), "the TSG"))?;
        let fd = DoorFd::from_raw(self.shared.fd.door(), argument.event_fd);
        Ok(TsgEvent { fd, kind, _tsg: self.clone() })
    }

    /// What SM `sm` recorded about its last exception; persists until overwritten.
    ///
    /// # Errors
    ///
    /// [`Error::Call`]; `EINVAL` if there is no such SM.
    pub fn sm_error_state(&self, sm: u32) -> Result<SmErrorStateRecord, Error> {
        sys::read_single_sm_error_state(&self.shared.fd, sm)
            .map_err(error::call(sys::READ_SINGLE_SM_ERROR_STATE.name(), "the TSG"))
    }

    /// The GPU that the TSG belongs to.
    pub fn gpu(&self) -> &Gpu {
        &self.shared.gpu
    }

    /// The descriptor, for requests of other modules.
    pub(crate) fn fd(&self) -> &DoorFd {
        &self.shared.fd
    }

    /// Adds an opened channel on the subcontext `veid`.
    pub(crate) fn bind(&self, channel: &DoorFd, veid: u32) -> Result<(), Errno> {
        let mut argument = sys::BindChannelEx {
            channel_fd: channel.raw(),
            subcontext_id: veid,
            ..sys::BindChannelEx::default()
        };
        sys::BIND_CHANNEL_EX.send(&self.shared.fd, &mut argument).map(drop)
    }
}

/// The channels of a TSG that work in one address space.
///
/// Cloning is cheap and means the same subcontext; it is deleted when the last clone and channel are
/// gone. It keeps the address space alive, which the kernel would not (`tsg.c`, unreferenced pointer).
#[derive(Clone, Debug)]
pub struct Subcontext {
    shared: Arc<SubcontextShared>,
}

#[derive(Debug)]
struct SubcontextShared {
    veid: u32,
    // Dropped in this order, after DELETE_SUBCONTEXT.
    tsg: Tsg,
    space: AddressSpace,
}

impl Subcontext {
    /// Number of the subcontext in its TSG.
    pub fn veid(&self) -> u32 {
        self.shared.veid
    }

    /// The address space that its channels see.
    pub fn address_space(&self) -> &AddressSpace {
        &self.shared.space
    }

    /// The TSG that it belongs to.
    pub fn tsg(&self) -> &Tsg {
        &self.shared.tsg
    }

    /// A subcontext over the same address space on a TSG of its own: what to go on with after a fault,
    /// which ends the TSG but leaves address space and mappings good.
    ///
    /// # Errors
    ///
    /// As [`Gpu::tsg`] and [`Tsg::subcontext`].
    pub fn renew(&self) -> Result<Self, Error> {
        self.tsg().gpu().tsg()?.subcontext(self.address_space())
    }
}

impl Drop for SubcontextShared {
    fn drop(&mut self) {
        let mut argument = sys::DeleteSubcontext { veid: self.veid, reserved: 0 };
        if let Err(errno) = sys::DELETE_SUBCONTEXT.send(&self.tsg.shared.fd, &mut argument) {
            tracing::warn!(veid = self.veid, %errno, "NVGPU_TSG_IOCTL_DELETE_SUBCONTEXT failed");
        }
    }
}

/// How often a TSG appears in the runlist, and so gets its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Interleave {
    /// Once per round.
    #[default]
    Low,
    /// More often.
    Medium,
    /// As often as possible.
    High,
}

/// How much the L2 fetches around a miss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SectorPromotion {
    /// The sector that was missed.
    None,
    /// 64 bytes.
    Bytes64,
    /// 128 bytes.
    Bytes128,
}

/// What an event is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EventKind {
    /// An SM hit a breakpoint, with a debugger attached.
    Breakpoint,
    /// An SM paused, with a debugger attached.
    Pause,
    /// An engine raised a non-stalling interrupt. Every TSG with channels hears of each.
    Completion,
    /// Preemption in the middle of a kernel began.
    PreemptionStarted,
    /// Preemption in the middle of a kernel ended.
    PreemptionComplete,
    /// A channel of this TSG released a semaphore with awaken.
    SemaphoreAwaken,
}

impl EventKind {
    fn raw(self) -> u32 {
        match self {
            Self::Breakpoint => sys::EVENT_BPT_INT,
            Self::Pause => sys::EVENT_BPT_PAUSE,
            Self::Completion => sys::EVENT_BLOCKING_SYNC,
            Self::PreemptionStarted => sys::EVENT_CILP_PREEMPTION_STARTED,
            Self::PreemptionComplete => sys::EVENT_CILP_PREEMPTION_COMPLETE,
            Self::SemaphoreAwaken => sys::EVENT_GR_SEMAPHORE_WRITE_AWAKEN,
        }
    }
}

/// Sleeps until something happens to a TSG.
///
/// The event says that something happened, not what: look at the awaited condition before and after
/// each wait.
#[derive(Debug)]
pub struct TsgEvent {
    kind: EventKind,
    // The event does not keep the TSG alive in the kernel, so it is closed first.
    fd: DoorFd,
    _tsg: Tsg,
}

impl TsgEvent {
    /// What the event is about.
    pub fn kind(&self) -> EventKind {
        self.kind
    }

    /// Waits at most `timeout`; whether the event came. Consumes the event.
    ///
    /// # Errors
    ///
    /// [`Error::Call`]; an interruption by a signal is no event.
    pub fn wait(&self, timeout: Duration) -> Result<bool, Error> {
        let wanted = Events::IN | Events::PRIORITY;
        let mut entries = [PollEntry { fd: self.fd.raw(), wanted, happened: Events::empty() }];
        match self.fd.door().poll(&mut entries, timeout) {
            Ok(_) => Ok(entries[0].happened.intersects(wanted)),
            Err(Errno::INTR) => Ok(false),
            Err(errno) => Err(error::call("poll", "the TSG's event")(errno)),
        }
    }
}
