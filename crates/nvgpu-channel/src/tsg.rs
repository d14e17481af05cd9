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
use nvgpu_sys::{DoorFd, Errno, ctrl};

use crate::address_space::AddressSpace;
use crate::channel::ChannelBuilder;
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

impl Tsg {
    pub(crate) fn new(gpu: &Gpu) -> Result<Self, Error> {
        let mut argument = ctrl::OpenTsg::default();
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

    /// Opens the event that follows each non-stalling interrupt of the graphics and copy engines,
    /// with which a thread sleeps until the GPU may have finished something.
    ///
    /// # Errors
    ///
    /// [`Error::Call`].
    pub fn completion_event(&self) -> Result<CompletionEvent, Error> {
        let mut argument = sys::EventIdCtrl {
            cmd: sys::EVENT_CMD_ENABLE,
            event_id: sys::EVENT_BLOCKING_SYNC,
            ..sys::EventIdCtrl::default()
        };
        sys::EVENT_ID_CTRL
            .send(&self.shared.fd, &mut argument)
            .map_err(error::call(sys::EVENT_ID_CTRL.name(), "the TSG"))?;
        let fd = DoorFd::from_raw(self.shared.fd.door(), argument.event_fd);
        Ok(CompletionEvent { fd, _tsg: self.clone() })
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

    /// Starts the description of a channel for the engine class `class`, e.g. 0xC7C0 for compute.
    pub fn channel(&self, class: u32) -> ChannelBuilder<'_> {
        ChannelBuilder::new(self, class)
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

/// Sleeps until an engine raises an interrupt.
///
/// The event says that something happened, not what: look at the awaited condition before and after
/// each wait.
#[derive(Debug)]
pub struct CompletionEvent {
    // The event does not keep the TSG alive in the kernel, so it is closed first.
    fd: DoorFd,
    _tsg: Tsg,
}

impl CompletionEvent {
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
            Err(errno) => Err(error::call("poll", "the TSG's completion event")(errno)),
        }
    }
}
