//! Time-slice groups (`common/fifo/tsg.c`, `ioctl_tsg.c`).
//!
//! A TSG is the unit of scheduling: its channels share runlist, time slice, engine context and subcontexts. A
//! subcontext (VEID) belongs to one address space. VEID 0 is created by the first channel that joins without naming
//! another one.

use std::collections::BTreeMap;
use std::os::fd::RawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use gpu_log::{ChannelLine, HangLine};
use nvgpu_sys::tsg::{
    self as abi, BindChannelEx, BindSchedulingDomain, CreateSubcontext, DeleteSubcontext,
    EVENT_BLOCKING_SYNC, EVENT_CMD_ENABLE, EVENT_COUNT, EVENT_GR_SEMAPHORE_WRITE_AWAKEN, EventIdCtrl,
    GetShareToken, GetShareTokenR39, INTERLEAVE_HIGH, L2_SECTOR_PROMOTE_64B, L2_SECTOR_PROMOTE_128B,
    L2_SECTOR_PROMOTE_NONE, L2MaxWaysEvictLast, ReadSingleSmErrorState, RevokeShareToken,
    RevokeShareTokenR39, RunlistInterleave, SUBCONTEXT_ASYNC, SUBCONTEXT_SYNC, SetL2SectorPromotion,
    SmErrorStateRecord, Timeslice, VEID_COUNT, code,
};
use rustix::io::Errno;
use zerocopy::IntoBytes;

use super::address_space::SpaceId;
use super::argument::{Argument, Code};
use super::engine_rules::Modes;
use super::log::Log;
use super::process::fds::{self, Object};
use super::process::task::Task;
use super::{Kernel, State};

/// Maximum number of channels of a TSG (`hal/fifo/runlist_ram_gv11b_fusa.c`).
const MAX_CHANNELS: usize = 128;
/// Ways of the L2. Initially evict-last lines may use all of them.
const L2_WAYS: u32 = 16;
/// Time slice of a new TSG in microseconds.
const TIMESLICE_US: u32 = 1024;
/// Valid time slices in microseconds (`common/fifo/tsg.c`).
const TIMESLICES_US: std::ops::RangeInclusive<u32> = 1000..=50_000;

/// Requests that change scheduling parameters, which the `sched` node can lock.
const LOCKABLE: [u32; 3] = [code::BIND_CHANNEL_EX, code::SET_RUNLIST_INTERLEAVE, code::SET_TIMESLICE];

/// Requests that first power the GPU up.
const POWERED: [u32; 9] = [
    code::BIND_CHANNEL_EX,
    code::ENABLE,
    code::DISABLE,
    code::PREEMPT,
    code::SET_RUNLIST_INTERLEAVE,
    code::SET_TIMESLICE,
    code::SET_L2_MAX_WAYS_EVICT_LAST,
    code::GET_L2_MAX_WAYS_EVICT_LAST,
    code::BIND_SCHEDULING_DOMAIN,
];

/// Prints the line of a request that failed to power the GPU up. Returns its errno.
fn no_power(log: &Log, code: u32) -> Errno {
    let function = "nvgpu_ioctl_tsg_dev_ioctl";
    match code {
        code::BIND_CHANNEL_EX | code::SET_RUNLIST_INTERLEAVE | code::SET_TIMESLICE => {
            log.error(function, ChannelLine::NoPower);
        }
        code::SET_L2_MAX_WAYS_EVICT_LAST | code::GET_L2_MAX_WAYS_EVICT_LAST => {
            log.error(function, ChannelLine::NoPowerForRequest { request: code });
        }
        _ => log.error(function, ChannelLine::NoPowerForChannel { request: code }),
    }
    Errno::NODEV
}

/// Prints the line of a TSG that cannot be preempted.
pub(super) fn preempt_timed_out(log: &Log, tsg: u32) {
    log.error("nvgpu_fifo_preempt_tsg", HangLine::PreemptTimeout { tsg });
}

/// The engine context of a TSG, as mapped in one address space.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) space: SpaceId,
    /// First addresses of its buffers in the kernel's area.
    pub(super) buffers: Vec<u64>,
    /// First address of the circular buffer whose register holds 40 bits.
    pub(super) rtv_va: u64,
}

/// One TSG.
#[derive(Debug)]
pub(super) struct Tsg {
    pub(super) runlist: Option<u32>,
    /// Subcontexts in use and their address spaces. These are not references: an entry may outlive the address space,
    /// as in the kernel.
    veids: BTreeMap<u32, Option<SpaceId>>,
    pub(super) channels: Vec<u32>,
    pub(super) timeslice_us: u32,
    /// Whether it was ended by a fault, after which its channels never run again.
    pub(super) ended: bool,
    pub(super) contexts: Vec<Context>,
    /// The last error record of each SM.
    pub(super) sm_errors: Vec<SmErrorStateRecord>,
    /// Events with waiters, by event id.
    events: Vec<(u32, Arc<AtomicBool>)>,
    /// Opens of the control node that may share the TSG.
    pub(super) instances: Vec<u64>,
    /// Number of L2 ways for evict-last lines.
    l2_ways: u32,
    /// Preemption modes of the context.
    pub(super) modes: Modes,
    /// The first bound buffer for depth culling.
    pub(super) zcull_va: u64,
}

impl Tsg {
    pub(super) fn new(sm_count: u32, instance: u64) -> Self {
        Self {
            runlist: None,
            veids: BTreeMap::new(),
            channels: Vec::new(),
            timeslice_us: TIMESLICE_US,
            ended: false,
            contexts: Vec::new(),
            sm_errors: vec![SmErrorStateRecord::default(); sm_count as usize],
            events: Vec::new(),
            instances: vec![instance],
            l2_ways: L2_WAYS,
            modes: Modes::default(),
            zcull_va: 0,
        }
    }

    /// Allocates a VEID: 0 for SYNC; for ASYNC the lowest free one from 1 up, or 0 if there is none.
    fn create_subcontext(&mut self, log: &Log, kind: u32, space: SpaceId) -> Result<u32, Errno> {
        let sync = !self.veids.contains_key(&0);
        let veid = match kind {
            SUBCONTEXT_SYNC => sync.then_some(0).ok_or_else(|| {
                log.error("nvgpu_tsg_create_sync_subcontext", ChannelLine::SyncSubcontextTaken);
                Errno::NOSPC
            })?,
            SUBCONTEXT_ASYNC => {
                let free = (1..VEID_COUNT).find(|veid| !self.veids.contains_key(veid));
                free.or(sync.then_some(0)).ok_or_else(|| {
                    log.error("nvgpu_tsg_create_async_subcontext", ChannelLine::NoSubcontext);
                    Errno::NOSPC
                })?
            }
            _ => return Err(Errno::INVAL),
        };
        self.veids.insert(veid, Some(space));
        Ok(veid)
    }

    /// Handles the requests that set or read a value of the TSG. Returns the residue of their own copies.
    fn parameter(&mut self, argument: &mut Argument<'_>, sm_record_bytes: usize) -> Result<i32, Errno> {
        let (task, mut residue) = (argument.task(), 0);
        match argument.code() {
            code::SET_RUNLIST_INTERLEAVE => {
                argument.call(
                    |args: &mut RunlistInterleave| {
                        if args.level > INTERLEAVE_HIGH { Err(Errno::INVAL) } else { Ok(()) }
                    },
                )?
            }
            code::SET_TIMESLICE => argument.call(|args: &mut Timeslice| {
                if !TIMESLICES_US.contains(&args.timeslice_us) {
                    return Err(Errno::INVAL);
                }
                self.timeslice_us = args.timeslice_us;
                Ok(())
            })?,
            code::GET_TIMESLICE => argument.call(|args: &mut Timeslice| {
                args.timeslice_us = self.timeslice_us;
                Ok(())
            })?,
            code::SET_L2_MAX_WAYS_EVICT_LAST => argument.call(|args: &mut L2MaxWaysEvictLast| {
                if args.max_ways > L2_WAYS {
                    return Err(Errno::INVAL);
                }
                self.need_context()?;
                self.l2_ways = args.max_ways;
                Ok(())
            })?,
            code::GET_L2_MAX_WAYS_EVICT_LAST => argument.call(|args: &mut L2MaxWaysEvictLast| {
                self.need_context()?;
                args.max_ways = self.l2_ways;
                Ok(())
            })?,
            code::SET_L2_SECTOR_PROMOTION => argument.call(|args: &mut SetL2SectorPromotion| {
                if ![L2_SECTOR_PROMOTE_NONE, L2_SECTOR_PROMOTE_64B, L2_SECTOR_PROMOTE_128B]
                    .contains(&args.promotion_flag)
                {
                    return Err(Errno::INVAL);
                }
                self.need_context()
            })?,
            _ => argument.call(|args: &mut ReadSingleSmErrorState| {
                residue = self.sm_error_state(task, sm_record_bytes, args)?;
                Ok(())
            })?,
        }
        Ok(residue)
    }

    /// The L2 policy is part of the engine context. The errno without a context is an assumption.
    pub(super) fn need_context(&self) -> Result<(), Errno> {
        if self.contexts.is_empty() { Err(Errno::INVAL) } else { Ok(()) }
    }

    /// Signals an event.
    fn post(&mut self, event: u32) {
        // After its descriptor is closed, an event has only this reference.
        self.events.retain(|(_, happened)| Arc::strong_count(happened) > 1);
        for (_, happened) in self.events.iter().filter(|(id, _)| *id == event) {
            happened.store(true, Ordering::Release);
        }
    }

    fn sm_error_state(
        &self,
        task: &Task<'_>,
        record_bytes: usize,
        args: &mut ReadSingleSmErrorState,
    ) -> Result<i32, Errno> {
        let record = self.sm_errors.get(args.sm_id as usize).ok_or(Errno::INVAL)?;
        let mut bytes = record.as_bytes().to_vec();
        // The fields that R39 appends are for clusters of thread blocks, which the chip does not have.
        bytes.resize(record_bytes, 0);
        // CAST: at most 32.
        let len = args.record_size.min(bytes.len() as u64) as usize;
        if len == 0 {
            return Ok(0);
        }
        args.record_size = len as u64;
        // CAST: at most 32. The residue is the result, as in the kernel.
        Ok(task.write_bytes(args.record_mem, &bytes[..len]) as i32)
    }
}

impl State {
    /// Adds a channel to a TSG on its current subcontext.
    fn bind_channel(&mut self, log: &Log, tsg_id: u32, id: u32) -> Result<(), Errno> {
        let channel = self.channels.get_mut(&id).ok_or(Errno::INVAL)?;
        let tsg = self.tsgs.get_mut(&tsg_id).ok_or(Errno::INVAL)?;
        if channel.veid == 0 && tsg.veids.get(&0).copied().flatten().is_none() {
            if tsg.veids.contains_key(&0) {
                log.error("nvgpu_tsg_create_sync_subcontext_internal", ChannelLine::SyncSubcontextTaken);
                return Err(Errno::NOSPC);
            }
            tsg.veids.insert(0, channel.space);
        }
        if tsg.veids.get(&channel.veid).copied().flatten() != channel.space {
            log.error("nvgpu_tsg_validate_ch_subctx_vm", ChannelLine::SubcontextSpace {});
            return Err(Errno::INVAL);
        }
        if channel.tsg.is_some() {
            return Err(Errno::INVAL);
        }
        if tsg.channels.len() >= MAX_CHANNELS {
            log.warning("nvgpu_tsg_bind_channel", ChannelLine::TsgFull { tsg: tsg_id, limit: MAX_CHANNELS });
            return Err(Errno::INVAL);
        }
        if let Some(runlist) = tsg.runlist.filter(|runlist| *runlist != channel.runlist) {
            log.error(
                "nvgpu_tsg_bind_channel",
                ChannelLine::RunlistMismatch { channel: channel.runlist, tsg: runlist },
            );
            return Err(Errno::INVAL);
        }
        tsg.runlist = Some(channel.runlist);
        tsg.channels.push(id);
        channel.tsg = Some(tsg_id);
        channel.joined_veid = channel.veid;
        channel.unserviceable = channel.retired || tsg.ended;
        Ok(())
    }

    /// EVENT_ID_CTRL: a descriptor to poll.
    fn open_event(
        &mut self,
        task: &Task<'_>,
        log: &Log,
        tsg: u32,
        args: &mut EventIdCtrl,
    ) -> Result<(), Errno> {
        if args.event_id >= EVENT_COUNT {
            return Err(Errno::INVAL);
        }
        if args.cmd != EVENT_CMD_ENABLE {
            log.error("gk20a_tsg_ioctl_event_id_ctrl", ChannelLine::EventCommand { command: args.cmd });
            return Err(Errno::INVAL);
        }
        let id = args.event_id;
        let descriptor = fds::readable(task, |number| format!("nvgpu-event{id}-fd{number}"))?;
        let happened = Arc::new(AtomicBool::new(false));
        self.tsgs.get_mut(&tsg).ok_or(Errno::INVAL)?.events.push((id, Arc::clone(&happened)));
        args.event_fd = self.fds.insert(task, descriptor, Object::Event(happened))?;
        Ok(())
    }

    /// A non-stall interrupt: every TSG with channels is notified, the channel's own TSG twice.
    pub(super) fn interrupt(&mut self, channel: u32) {
        for tsg in self.tsgs.values_mut().filter(|tsg| !tsg.channels.is_empty()) {
            tsg.post(EVENT_BLOCKING_SYNC);
            if tsg.channels.contains(&channel) {
                tsg.post(EVENT_GR_SEMAPHORE_WRITE_AWAKEN);
            }
        }
    }

    fn bind_channel_ex(
        &mut self,
        task: &Task<'_>,
        log: &Log,
        tsg: u32,
        args: &BindChannelEx,
    ) -> Result<(), Errno> {
        let id = self.fds.channel(task, args.channel_fd).ok_or(Errno::INVAL)?;
        if args.subcontext_id >= VEID_COUNT {
            return Err(Errno::INVAL);
        }
        // Both remain set even if the bind fails, and nothing resets the host engine to 0.
        let channel = self.channels.get_mut(&id).ok_or(Errno::INVAL)?;
        channel.veid = args.subcontext_id;
        if channel.veid > 0 {
            channel.runqueue = 1;
        }
        self.bind_channel(log, tsg, id)
    }

    fn create_subcontext(
        &mut self,
        task: &Task<'_>,
        log: &Log,
        tsg: u32,
        args: &mut CreateSubcontext,
    ) -> Result<(), Errno> {
        let function = "nvgpu_tsg_ioctl_create_subcontext";
        if args.kind > SUBCONTEXT_ASYNC {
            log.error(function, ChannelLine::SubcontextType { value: args.kind });
            return Err(Errno::INVAL);
        }
        let Some(space) = self.fds.space(task, args.as_fd) else {
            log.error(function, ChannelLine::NotASpace { fd: args.as_fd });
            return Err(Errno::INVAL);
        };
        let tsg = self.tsgs.get_mut(&tsg).ok_or(Errno::INVAL)?;
        args.veid = tsg.create_subcontext(log, args.kind, space)?;
        Ok(())
    }

    fn delete_subcontext(&mut self, tsg: u32, args: &DeleteSubcontext) -> Result<(), Errno> {
        let busy = |id: &u32| self.channels.get(id).is_some_and(|channel| channel.joined_veid == args.veid);
        let tsg = self.tsgs.get_mut(&tsg).ok_or(Errno::INVAL)?;
        if args.veid >= VEID_COUNT || tsg.veids.contains_key(&args.veid) && tsg.channels.iter().any(busy) {
            return Err(Errno::INVAL);
        }
        tsg.veids.remove(&args.veid);
        Ok(())
    }
}

impl Kernel {
    pub(super) fn tsg_ioctl(&self, task: &Task<'_>, id: u32, code: Code, address: u64) -> Result<i32, Errno> {
        self.check(code, abi::FAMILY, self.config.characteristics.tsg_ioctl_nr_last, abi::ALL)?;
        let mut argument = Argument::copy_in(task, code, address)?;
        let (log, facts) = (&self.log, self.facts());
        if code.code == code::UNBIND_CHANNEL {
            argument.call(|fd: &mut RawFd| self.unbind_channel(task, id, *fd, code.code))?;
            return Ok(0);
        }
        let mut state = self.state.lock();
        if state.scheduling_locked && LOCKABLE.contains(&code.code) {
            return Err(Errno::PERM);
        }
        if state.quiesced && POWERED.contains(&code.code) {
            return Err(no_power(log, code.code));
        }
        let tsg = state.tsgs.get_mut(&id).ok_or(Errno::NODEV)?;
        match code.code {
            code::ENABLE | code::DISABLE => {
                let channels = tsg.channels.clone();
                drop(state);
                self.gpu(|gpu| gpu.set_enabled(&channels, code.code == code::ENABLE));
                return Ok(0);
            }
            code::PREEMPT => {
                // A TSG without channels is not on the hardware.
                let members = !tsg.channels.is_empty();
                drop(state);
                if members && self.stalled() {
                    preempt_timed_out(log, id);
                    return Err(Errno::TIMEDOUT);
                }
                return Ok(0);
            }
            code::GET_SHARE_TOKEN if facts.joint_tokens => argument.call(|args: &mut GetShareTokenR39| {
                args.share_token = state.share_jointly(id, args.target_device_instance_id)?;
                Ok(())
            })?,
            code::REVOKE_SHARE_TOKEN if facts.joint_tokens => {
                argument.call(|args: &mut RevokeShareTokenR39| {
                    let [source, number] = args.share_token;
                    state.revoke(id, (source, args.target_device_instance_id), number)
                })?;
            }
            code::GET_SHARE_TOKEN => argument.call(|args: &mut GetShareToken| {
                let between = (args.source_device_instance_id, args.target_device_instance_id);
                args.share_token = state.share(id, between)?;
                Ok(())
            })?,
            code::REVOKE_SHARE_TOKEN => argument.call(|args: &mut RevokeShareToken| {
                let between = (args.source_device_instance_id, args.target_device_instance_id);
                state.revoke(id, between, args.share_token)
            })?,
            // No scheduling domain can be created, so no descriptor refers to one.
            code::BIND_SCHEDULING_DOMAIN => argument.call(|args: &mut BindSchedulingDomain| {
                let reserved = args.reserved0 != 0 || args.reserved != [0; 3];
                Err(if reserved { Errno::INVAL } else { Errno::NOENT })
            })?,
            code::EVENT_ID_CTRL => {
                argument.call(|args: &mut EventIdCtrl| state.open_event(task, log, id, args))?;
            }
            code::SET_RUNLIST_INTERLEAVE
            | code::SET_TIMESLICE
            | code::GET_TIMESLICE
            | code::SET_L2_MAX_WAYS_EVICT_LAST
            | code::GET_L2_MAX_WAYS_EVICT_LAST
            | code::SET_L2_SECTOR_PROMOTION
            | code::READ_SINGLE_SM_ERROR_STATE => {
                let residue = tsg.parameter(&mut argument, facts.sm_record_bytes)?;
                if residue > 0 {
                    return Ok(residue);
                }
                if argument.code() == code::SET_TIMESLICE {
                    let timeslice_us = tsg.timeslice_us;
                    drop(state);
                    self.gpu(|gpu| gpu.set_timeslice(id, timeslice_us));
                    return Ok(argument.residue());
                }
            }
            code::BIND_CHANNEL => argument.call(|fd: &mut RawFd| {
                let channel = state.fds.channel(task, *fd).ok_or(Errno::INVAL)?;
                let result = state.bind_channel(log, id, channel);
                if result.is_err() {
                    // The board's kernel leaks a reference here, so close() would never return.
                    log.model(ChannelLine::BindHangsClose { channel });
                }
                result
            })?,
            code::BIND_CHANNEL_EX => {
                argument.call(|args: &mut BindChannelEx| state.bind_channel_ex(task, log, id, args))?;
            }
            code::CREATE_SUBCONTEXT => {
                argument.call(|args: &mut CreateSubcontext| state.create_subcontext(task, log, id, args))?;
            }
            code::DELETE_SUBCONTEXT => {
                argument.call(|args: &mut DeleteSubcontext| state.delete_subcontext(id, args))?;
            }
            _ => {
                log.error("nvgpu_ioctl_tsg_dev_ioctl", ChannelLine::UnknownTsgRequest { request: code.code });
                return Err(Errno::NOTTY);
            }
        }
        drop(state);
        Ok(argument.residue())
    }

    /// UNBIND_CHANNEL: the channel is stopped and cannot be used again.
    fn unbind_channel(&self, task: &Task<'_>, tsg_id: u32, fd: RawFd, code: u32) -> Result<(), Errno> {
        if fd < 0 {
            return Err(Errno::INVAL);
        }
        let stalled = self.stalled();
        let mut state = self.state.lock();
        if state.quiesced {
            return Err(no_power(&self.log, code));
        }
        let id = state.fds.channel(task, fd).ok_or(Errno::INVAL)?;
        let channel = state.channels.get_mut(&id).ok_or(Errno::INVAL)?;
        if channel.tsg != Some(tsg_id) {
            return Err(Errno::INVAL);
        }
        if stalled {
            return Err(Errno::AGAIN);
        }
        (channel.unserviceable, channel.retired) = (true, true);
        drop(state);
        self.gpu(|gpu| gpu.stop_channels(&[id]));
        let mut state = self.state.lock();
        if let Some(channel) = state.channels.get_mut(&id) {
            channel.tsg = None;
        }
        if let Some(tsg) = state.tsgs.get_mut(&tsg_id) {
            tsg.channels.retain(|member| *member != id);
        }
        state.reap();
        Ok(())
    }
}
