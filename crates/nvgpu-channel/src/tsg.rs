//! Time-slice groups and their subcontexts.
//!
//! A TSG is the unit of scheduling. Its channels share an engine context; a fault in one stops all of
//! them. To recover, create a new TSG: address spaces and mappings stay valid. A subcontext (VEID) binds
//! channels of the TSG to one address space.

use core::time::Duration;
use std::sync::Arc;

use kernel_door::Events;
use kernel_door::{DoorFd, Errno, ValueRequest};
use nvgpu_sys::ctrl;
use nvgpu_sys::tsg as sys;
pub use nvgpu_sys::tsg::SmErrorStateRecord;

use crate::address_space::AddressSpace;
use crate::error::{self, Error};
use crate::fence::poll;
use crate::gpu::Gpu;

/// A time-slice group. Clones refer to the same group, which exists until the last clone, subcontext and
/// channel are dropped.
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
    /// [`Error::Call`]; `ENOMEM` if all 512 are in use.
    pub fn tsg(&self) -> Result<Tsg, Error> {
        Tsg::open(self, ctrl::OpenTsg::default())
    }
}

impl Tsg {
    /// Opens a TSG: a new one, or one shared by another instance.
    pub(crate) fn open(gpu: &Gpu, mut argument: ctrl::OpenTsg) -> Result<Self, Error> {
        ctrl::OPEN_TSG
            .send(gpu.ctrl(), &mut argument)
            .map_err(error::call(ctrl::OPEN_TSG.name(), "the TSG"))?;
        // SAFETY: the request returned a new descriptor.
        let fd = unsafe { DoorFd::from_raw(gpu.door(), argument.tsg_fd.cast_signed()) };
        Ok(Self { shared: Arc::new(Shared { fd, gpu: gpu.clone() }) })
    }

    /// Creates an asynchronous subcontext, the kind for compute, with the address space `space`. The first
    /// one is VEID 1; there are 63.
    ///
    /// # Errors
    ///
    /// [`Error::Call`]; `ENOSPC` if all VEIDs are in use.
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

    /// Returns the time slice, initially 1024 µs.
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

    /// Sets the time slice, from 1 µs to 50 ms.
    ///
    /// # Errors
    ///
    /// [`Error::Range`] if it does not fit the field; [`Error::Call`] if the kernel rejects it (`EINVAL`)
    /// or another process holds the scheduling control (`EPERM`).
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

    /// Sets how often the TSG appears in the runlist.
    ///
    /// # Errors
    ///
    /// [`Error::Call`]: `EPERM` if another process holds the scheduling control.
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

    /// Enables scheduling of the TSG after [`Tsg::disable`].
    ///
    /// # Errors
    ///
    /// [`Error::Call`].
    pub fn enable(&self) -> Result<(), Error> {
        self.send_value(&sys::ENABLE)
    }

    /// Disables scheduling of the TSG; running work continues until its time slice ends.
    ///
    /// # Errors
    ///
    /// [`Error::Call`].
    pub fn disable(&self) -> Result<(), Error> {
        self.send_value(&sys::DISABLE)
    }

    /// Preempts the TSG and waits, at most 100 ms, until it has left the hardware.
    ///
    /// # Errors
    ///
    /// [`Error::Call`] if the running work does not yield in time.
    pub fn preempt(&self) -> Result<(), Error> {
        self.send_value(&sys::PREEMPT)
    }

    /// Sets the number of L2 ways, of 16, for lines that kernels mark evict-last.
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

    /// Number of those ways.
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

    /// Sets the L2 fetch size on a miss.
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

    /// Opens the event for non-stalling interrupts of the graphics and copy engines. A thread can wait for
    /// it until the GPU may have completed work.
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
        // SAFETY: the request returned a new descriptor.
        let fd = unsafe { DoorFd::from_raw(self.shared.fd.door(), argument.event_fd) };
        Ok(TsgEvent { fd, kind, _tsg: self.clone() })
    }

    /// Returns the record of the last exception of SM `sm`, which persists until overwritten.
    ///
    /// # Errors
    ///
    /// [`Error::Call`]; `EINVAL` if the GPU has no such SM.
    pub fn sm_error_state(&self, sm: u32) -> Result<SmErrorStateRecord, Error> {
        sys::read_single_sm_error_state(&self.shared.fd, sm)
            .map_err(error::call(sys::READ_SINGLE_SM_ERROR_STATE.name(), "the TSG"))
    }

    /// The GPU of the TSG.
    pub fn gpu(&self) -> &Gpu {
        &self.shared.gpu
    }

    /// The descriptor, for requests in other modules.
    pub(crate) fn fd(&self) -> &DoorFd {
        &self.shared.fd
    }

    /// Adds an open channel on the subcontext `veid`.
    pub(crate) fn bind(&self, channel: &DoorFd, veid: u32) -> Result<(), Errno> {
        let mut argument = sys::BindChannelEx {
            channel_fd: channel.raw(),
            subcontext_id: veid,
            ..sys::BindChannelEx::default()
        };
        sys::BIND_CHANNEL_EX.send(&self.shared.fd, &mut argument).map(drop)
    }
}

/// The channels of a TSG that share one address space.
///
/// Clones refer to the same subcontext, which is deleted when the last clone and channel are dropped. It
/// keeps the address space alive; the kernel does not (`tsg.c`, unreferenced pointer).
#[derive(Clone, Debug)]
pub struct Subcontext {
    shared: Arc<SubcontextShared>,
}

#[derive(Debug)]
struct SubcontextShared {
    veid: u32,
    // Drop order, after DELETE_SUBCONTEXT.
    tsg: Tsg,
    space: AddressSpace,
}

impl Subcontext {
    /// VEID: the number of the subcontext in its TSG.
    pub fn veid(&self) -> u32 {
        self.shared.veid
    }

    /// The address space of its channels.
    pub fn address_space(&self) -> &AddressSpace {
        &self.shared.space
    }

    /// The TSG of the subcontext.
    pub fn tsg(&self) -> &Tsg {
        &self.shared.tsg
    }

    /// Creates a subcontext with the same address space on a new TSG. Use it after a fault, which stops the
    /// TSG but leaves address space and mappings valid.
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

/// How often a TSG appears in the runlist.
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

/// L2 fetch size on a miss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum SectorPromotion {
    /// The missed sector only.
    None,
    /// 64 bytes.
    Bytes64,
    /// 128 bytes.
    Bytes128,
}

/// Kind of an event.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use std::sync::Arc;
/// # let door: Arc<dyn kernel_door::Door> = Arc::new(orin_sim::SoftwareOrin::new(orin_sim::Config::default())?);
/// # let gpu = nvgpu_channel::Gpu::open(&door)?;
/// use nvgpu_channel::EventKind;
///
/// let event = gpu.tsg()?.event(EventKind::Completion)?;
/// assert_eq!(event.kind(), EventKind::Completion);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum EventKind {
    /// An SM hit a breakpoint, with a debugger attached.
    Breakpoint,
    /// An SM paused, with a debugger attached.
    Pause,
    /// An engine raised a non-stalling interrupt. Every TSG with channels receives it.
    Completion,
    /// Instruction-level preemption began.
    PreemptionStarted,
    /// Instruction-level preemption ended.
    PreemptionComplete,
    /// A channel of this TSG executed a semaphore release with awaken.
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

/// A descriptor to wait for events of a TSG.
///
/// The event does not report its cause: check the awaited condition before and after each wait.
#[derive(Debug)]
pub struct TsgEvent {
    kind: EventKind,
    // In the kernel, the event does not keep the TSG alive, so it is closed first.
    fd: DoorFd,
    _tsg: Tsg,
}

impl TsgEvent {
    /// Kind of the event.
    pub fn kind(&self) -> EventKind {
        self.kind
    }

    /// Waits at most `timeout` and returns whether the event occurred. Consumes the event.
    ///
    /// # Errors
    ///
    /// [`Error::Call`]; an interrupted wait returns `false`.
    pub fn wait(&self, timeout: Duration) -> Result<bool, Error> {
        poll(&self.fd, Events::IN | Events::PRIORITY, timeout, "the TSG's event")
    }
}
