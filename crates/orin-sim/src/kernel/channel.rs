//! Channels (`common/fifo/channel.c`, `ioctl_channel.c`, `linux-channel.c`, `common/gr/gr_setup.c`).
//!
//! A channel gets an address space, joins a TSG, has its watchdog disabled, and then gets its ring from SETUP_BIND.
//! From that moment the GPU serves its doorbell. ALLOC_OBJ_CTX creates the engine context of the TSG and allows the
//! methods of a class.

use std::os::fd::RawFd;
use std::sync::Arc;

use gpu_log::{ChannelLine, HangLine, MemoryLine};
use nvgpu_sys::channel::{
    self as abi, AllocGpfifoExR39, AllocObjCtx, GetParam, GetUserSyncpoint, Notification, Open,
    PreemptionMode, SetErrorNotifier, SetTimeout, SetTimeoutEx, SetupBind, SetupBindFlags, SubmitGpfifo,
    TIMEOUT_DISABLE_DUMP_BIT, Wait, Wdt, ZcullBind, code,
};
use nvgpu_sys::ctrl::{DeterministicOpts, GpuFlags, OpenChannel, SetDeterministicOpts};
use parking_lot::Mutex;
use rustix::io::Errno;

use crate::chip::CHIP;
use crate::gpu::{ChannelGroup, ChannelSetup};
use crate::memory::Memory;

use super::address_space::SpaceId;
use super::argument::{Argument, Code};
use super::log::Log;
use super::nvmap::Buffer;
use super::process::task::Task;
use super::recovery;
use super::submit::KernelRing;
use super::switching::Switching;
use super::syncpoint::{SyncpointError, UserSyncpoint};
use super::tsg::preempt_timed_out;
use super::watchdog::Watchdog;
use super::{Kernel, State};

/// Maximum number of channels of one SET_DETERMINISTIC_OPTS.
const MAX_DETERMINISTIC: u32 = 512;
/// Size of an error notification in bytes.
pub(super) const NOTIFICATION_BYTES: u64 = size_of::<Notification>() as u64;
/// Number of attempts to preempt a TSG before a channel is closed, each of one context-switch period.
const PREEMPT_TRIES: u32 = 4;
/// The runlist of the graphics and compute engine.
pub(super) const RUNLIST_GR: u32 = 0;
/// The copy engine's class.
const COPY_CLASS: u32 = CHIP.classes.value.copy.number;
/// Requests that first power the GPU up. WAIT does so as well, but it first checks whether the channel can be waited
/// for.
const POWERED: [u32; 13] = [
    code::ALLOC_OBJ_CTX,
    code::SETUP_BIND,
    code::ALLOC_GPFIFO_EX,
    code::ZCULL_BIND,
    code::SET_ERROR_NOTIFIER,
    code::OPEN,
    code::ENABLE,
    code::DISABLE,
    code::PREEMPT,
    code::FORCE_RESET,
    code::SET_PREEMPTION_MODE,
    code::SET_BOOSTED_CTX,
    code::GET_USER_SYNCPOINT,
];

/// Memory for error reports.
#[derive(Clone, Debug)]
pub(super) struct Notifier {
    /// Kept alive for the channel.
    pub(super) _buffer: Buffer,
    pub(super) memory: Arc<Memory>,
    pub(super) offset: u64,
}

/// The result of SETUP_BIND.
#[derive(Debug)]
pub(super) struct Ring {
    /// Kept alive for the channel.
    pub(super) _buffers: Vec<Buffer>,
    /// First address of the ring in the kernel's area.
    pub(super) va: u64,
    /// The kernel's own ring; `None` with usermode submission.
    pub(super) kernel: Option<KernelRing>,
}

/// One channel.
#[derive(Debug)]
pub(super) struct Channel {
    pub(super) serial: u64,
    pub(super) runlist: u32,
    pub(super) space: Option<SpaceId>,
    pub(super) tsg: Option<u32>,
    pub(super) veid: u32,
    /// The subcontext on which it joined its TSG. A later request for another one changes only `veid`.
    pub(super) joined_veid: u32,
    /// The host engine of the runlist: 1 after a VEID above 0 was requested.
    pub(super) runqueue: u32,
    pub(super) watchdog: Watchdog,
    pub(super) switching: Switching,
    pub(super) deterministic: bool,
    /// Whether SET_DETERMINISTIC_OPTS allows the GPU to power down while this channel exists.
    pub(super) railgating: bool,
    pub(super) object_class: Option<u32>,
    /// Classes whose methods are allowed.
    pub(super) objects: Vec<u32>,
    pub(super) notifier: Option<Notifier>,
    pub(super) ring: Option<Ring>,
    pub(super) syncpoint: Option<UserSyncpoint>,
    /// Whether the channel does not run: not in a TSG yet, or ended.
    pub(super) unserviceable: bool,
    /// Whether it was removed from a TSG, which makes it permanently unserviceable.
    pub(super) retired: bool,
    /// Id of the process that opened the channel.
    pub(super) pid: u32,
    /// Name of the thread that opened the channel.
    pub(super) owner: String,
    /// Held for the duration of each request.
    gate: Arc<Mutex<()>>,
}

/// A thread's name as stored by the kernel: the first 15 bytes (TASK_COMM_LEN without the terminator).
fn task_name(name: &str) -> String {
    let end = (0..=name.len().min(15)).rev().find(|&at| name.is_char_boundary(at));
    name[..end.unwrap_or(0)].to_owned()
}

impl Channel {
    pub(super) fn new(task: &Task<'_>, runlist: u32, serial: u64) -> Self {
        Self {
            serial,
            runlist,
            space: None,
            tsg: None,
            veid: 0,
            joined_veid: 0,
            runqueue: 0,
            watchdog: Watchdog::default(),
            switching: Switching::default(),
            deterministic: false,
            railgating: false,
            object_class: None,
            objects: Vec::new(),
            notifier: None,
            ring: None,
            syncpoint: None,
            unserviceable: true,
            retired: false,
            pid: task.host_id(),
            owner: task_name(&task.thread_name()),
            gate: Arc::default(),
        }
    }

    /// All syncpoints that the channel has.
    pub(super) fn syncpoints(&self) -> impl Iterator<Item = UserSyncpoint> {
        self.syncpoint.into_iter().chain(self.kernel_fence().map(|(syncpoint, _)| syncpoint))
    }

    /// The syncpoint of kernel-mode submission, and its value after all work is done.
    pub(super) fn kernel_fence(&self) -> Option<(UserSyncpoint, u32)> {
        self.ring.as_ref()?.kernel.as_ref()?.fence
    }

    /// Classes whose methods the GPU accepts: on the graphics runlist those with a context, on the copy runlist the
    /// copy engine's without one.
    fn engine_objects(&self) -> Vec<u32> {
        if self.runlist == RUNLIST_GR { self.objects.clone() } else { vec![COPY_CLASS] }
    }
}

/// The checks of SETUP_BIND that need no buffer, in the kernel's order.
fn setup_checks(log: &Log, id: u32, channel: &Channel, args: &SetupBind, vpr: bool) -> Result<(), Errno> {
    let flags = SetupBindFlags::from_bits_retain(args.flags);
    let usermode = flags.contains(SetupBindFlags::USERMODE_SUPPORT);
    let entries = args.num_gpfifo_entries;
    if entries < if usermode { 2 } else { 4 } || !entries.is_power_of_two() || entries > u32::MAX / 8 {
        return Err(Errno::INVAL);
    }
    let refuse = |errno, line: ChannelLine| {
        log.error("channel_setup_bind_prechecks", line);
        Err(errno)
    };
    if channel.space.is_none() {
        return refuse(Errno::INVAL, ChannelLine::SetupWithoutSpace);
    }
    if channel.tsg.is_none() {
        return refuse(Errno::INVAL, ChannelLine::SetupWithoutTsg);
    }
    match &channel.ring {
        Some(Ring { kernel: None, .. }) => {
            return refuse(Errno::EXIST, ChannelLine::SetupTwice { channel: id });
        }
        Some(_) => return refuse(Errno::EXIST, ChannelLine::RingTwice { channel: id }),
        None => {}
    }
    let deterministic = flags.contains(SetupBindFlags::DETERMINISTIC);
    if deterministic && channel.watchdog.on {
        return refuse(Errno::INVAL, ChannelLine::DeterministicWatchdog);
    }
    if usermode && !deterministic {
        return refuse(Errno::INVAL, ChannelLine::NotDeterministic);
    }
    if flags.contains(SetupBindFlags::VPR_ENABLED) && !vpr { Err(Errno::INVAL) } else { Ok(()) }
}

/// Maps the ring, then takes USERD's buffer. If the second step fails, the first is undone. Returns both buffers and
/// the address of the ring.
fn setup_buffers(
    state: &mut State,
    task: &Task<'_>,
    log: &Log,
    space: SpaceId,
    args: &SetupBind,
) -> Result<([Buffer; 2], u64), Errno> {
    if args.gpfifo_dmabuf_fd == 0 || args.userd_dmabuf_fd == 0 {
        return Err(Errno::INVAL);
    }
    if args.gpfifo_dmabuf_offset != 0 || args.userd_dmabuf_offset != 0 {
        return Err(Errno::INVAL);
    }
    let State { fds, spaces, .. } = state;
    let pinned = |fd| {
        let buffer = fds.dma_buf(task, fd)?;
        if buffer.handle.storage().is_none() {
            log.warning("nvgpu_vm_map_linux", MemoryLine::PinFailed {});
            return Err(Errno::INVAL);
        }
        Ok(buffer)
    };
    let ring = pinned(args.gpfifo_dmabuf_fd)?;
    if ring.handle.size() < (u64::from(args.num_gpfifo_entries) * 8).max(4096) {
        return Err(Errno::INVAL);
    }
    let space = spaces.get_mut(&space).ok_or(Errno::INVAL)?;
    let va = space.map_kernel(&ring)?;
    let userd = pinned(args.userd_dmabuf_fd).inspect_err(|_| space.unmap_kernel(va))?;
    Ok(([ring, userd], va))
}

impl State {
    pub(super) fn channel(&mut self, id: u32, serial: u64) -> Result<&mut Channel, Errno> {
        self.channels.get_mut(&id).filter(|channel| channel.serial == serial).ok_or(Errno::TIMEDOUT)
    }

    /// The part of SETUP_BIND before the GPU starts to serve the channel.
    fn setup_bind(
        &mut self,
        task: &Task<'_>,
        log: &Log,
        (id, serial): (u32, u64),
        args: &mut SetupBind,
        vpr: bool,
    ) -> Result<ChannelSetup, Errno> {
        let channel = self.channel(id, serial)?;
        setup_checks(log, id, channel, args, vpr)?;
        let (space, runlist) = (channel.space.ok_or(Errno::INVAL)?, channel.runlist);
        let (tsg, veid) = (channel.tsg.ok_or(Errno::INVAL)?, channel.veid);
        let acquire_limit = channel.watchdog.acquire_limit();
        let timeslice_us = self.tsgs.get(&tsg).ok_or(Errno::INVAL)?.timeslice_us;
        let group = ChannelGroup { tsg, veid, timeslice_us };
        let usermode =
            SetupBindFlags::from_bits_retain(args.flags).contains(SetupBindFlags::USERMODE_SUPPORT);
        let deterministic =
            SetupBindFlags::from_bits_retain(args.flags).contains(SetupBindFlags::DETERMINISTIC);
        if !usermode {
            let space = self.spaces.get_mut(&space).ok_or(Errno::INVAL)?;
            let (entries, jobs) = (args.num_gpfifo_entries, args.num_inflight_jobs);
            let (ring, va) = KernelRing::new(space, entries, jobs, acquire_limit)?;
            let setup = ring.setup(id, group, space);
            let channel = self.channel(id, serial)?;
            channel.ring = Some(Ring { _buffers: Vec::new(), va, kernel: Some(ring) });
            channel.deterministic = deterministic;
            return Ok(setup);
        }
        let (buffers, va) = setup_buffers(self, task, log, space, args).inspect_err(|_| {
            log.error("nvgpu_channel_setup_usermode", ChannelLine::UsermodeBuffers);
            log.error("nvgpu_channel_setup_bind", ChannelLine::SetupFailed {});
        })?;
        let address_space = Arc::clone(&self.spaces.get(&space).ok_or(Errno::INVAL)?.mmu);
        let memory = |buffer: &Buffer| buffer.handle.memory().map(Arc::clone).ok_or(Errno::INVAL);
        let setup = ChannelSetup {
            channel_id: id,
            ring: memory(&buffers[0])?,
            ring_entries: args.num_gpfifo_entries,
            userd: memory(&buffers[1])?,
            address_space,
            group,
        };
        // Entries beyond GP_PUT are never fetched, so the order check needs no poison there.
        setup.ring.clear_poison();
        let channel = self.channel(id, serial)?;
        channel.ring = Some(Ring { _buffers: buffers.into(), va, kernel: None });
        channel.deterministic = deterministic;
        args.work_submit_token = id | runlist << 16;
        (args.gpfifo_gpu_va, args.userd_gpu_va, args.usermode_mmio_gpu_va) = (0, 0, 0);
        Ok(setup)
    }

    /// SET_DETERMINISTIC_OPTS, up to the first failure.
    pub(super) fn set_deterministic_opts(
        &mut self,
        task: &Task<'_>,
        args: &mut SetDeterministicOpts,
    ) -> Result<(), Errno> {
        if args.num_channels > MAX_DETERMINISTIC {
            return Err(Errno::INVAL);
        }
        let size = size_of::<RawFd>() as u64;
        let options = DeterministicOpts::from_bits_retain(args.flags);
        let (allow, disallow) = (
            options.contains(DeterministicOpts::ALLOW_RAILGATING),
            options.contains(DeterministicOpts::DISALLOW_RAILGATING),
        );
        for at in 0..args.num_channels {
            let fd: RawFd = task.read(args.channels.wrapping_add(u64::from(at) * size))?;
            let id = self.fds.channel(task, fd).ok_or(Errno::INVAL)?;
            let channel = self.channels.get_mut(&id).ok_or(Errno::INVAL)?;
            if !channel.deterministic || allow && disallow {
                return Err(Errno::INVAL);
            }
            channel.railgating = allow || channel.railgating && !disallow;
        }
        Ok(())
    }

    /// GET_USER_SYNCPOINT: returns the channel's own syncpoint, created by the first call.
    fn user_syncpoint(
        &mut self,
        log: &Log,
        (id, serial): (u32, u64),
        args: &mut GetUserSyncpoint,
    ) -> Result<(), Errno> {
        let channel = self.channel(id, serial)?;
        let syncpoint = match channel.syncpoint {
            Some(syncpoint) => syncpoint,
            None => {
                let Some(space) = channel.space else {
                    log.model(ChannelLine::SyncpointWithoutSpace { channel: id });
                    return Err(Errno::INVAL);
                };
                let space = self.spaces.get_mut(&space).ok_or(Errno::INVAL)?;
                let syncpoint = self.syncpoints.take(space).map_err(|error| {
                    let function = "nvgpu_channel_user_syncpt_create";
                    match error {
                        SyncpointError::NoneLeft => {
                            log.error(function, ChannelLine::NoSyncpoint);
                        }
                        SyncpointError::NoAddresses => {
                            log.error("gv11b_syncpt_alloc_buf", ChannelLine::SyncpointAddress);
                            log.error(function, ChannelLine::SyncpointBuffer);
                        }
                    }
                    Errno::NOMEM
                })?;
                self.channel(id, serial)?.syncpoint = Some(syncpoint);
                syncpoint
            }
        };
        args.gpu_va = syncpoint.va;
        args.syncpoint_id = syncpoint.id;
        args.syncpoint_max = self.syncpoints.value(syncpoint.id);
        Ok(())
    }

    /// SET_ERROR_NOTIFIER: removes the old notifier before it checks the new descriptor.
    fn set_error_notifier(
        &mut self,
        task: &Task<'_>,
        log: &Log,
        (id, serial): (u32, u64),
        args: &SetErrorNotifier,
    ) -> Result<(), Errno> {
        let function = "gk20a_init_error_notifier";
        if args.mem == 0 {
            log.error(function, ChannelLine::NotifierHandle {});
            return Err(Errno::INVAL);
        }
        self.channel(id, serial)?.notifier = None;
        // CAST: a descriptor is the same 32 bits.
        let fd = args.mem as RawFd;
        let buffer = self.fds.dma_buf(task, fd).map_err(|_| {
            log.error(function, ChannelLine::NotifierDescriptor { fd });
            Errno::INVAL
        })?;
        if args.offset.checked_add(NOTIFICATION_BYTES).is_none_or(|end| end > buffer.handle.size()) {
            log.error(function, ChannelLine::NotifierOffset);
            return Err(Errno::INVAL);
        }
        let memory = buffer.handle.memory().map(Arc::clone).ok_or_else(|| {
            log.error(function, ChannelLine::NotifierMapping);
            Errno::NOMEM
        })?;
        let notifier = Notifier { _buffer: buffer, memory, offset: args.offset };
        recovery::clear_notifier(&notifier);
        self.channel(id, serial)?.notifier = Some(notifier);
        Ok(())
    }
}

impl Kernel {
    pub(super) fn channel_ioctl(
        &self,
        task: &Task<'_>,
        id: u32,
        serial: u64,
        code: Code,
        address: u64,
    ) -> Result<i32, Errno> {
        self.check(code, abi::FAMILY, self.config.characteristics.ioctl_channel_nr_last, abi::ALL)?;
        let mut argument = Argument::copy_in(task, code, address)?;
        if code.code == code::WAIT {
            // WAIT releases the gate while it sleeps, so it does not take the gate.
            argument.call(|args: &mut Wait| self.channel_wait(task, (id, serial), args))?;
            return Ok(argument.residue());
        }
        let gate = Arc::clone(&self.state.lock().channel(id, serial)?.gate);
        let _gate = gate.lock();
        // The channel may have been closed while this request waited.
        let mut state = self.state.lock();
        state.channel(id, serial)?;
        let log = &self.log;
        if state.quiesced && POWERED.contains(&code.code) {
            if code.code != code::OPEN {
                log.device("gk20a_channel_ioctl", ChannelLine::NoPowerForChannel { request: code.code });
            }
            return Err(Errno::NODEV);
        }
        match code.code {
            code::SETUP_BIND => {
                drop(state);
                argument.call(|args: &mut SetupBind| self.setup_bind(task, (id, serial), args))?;
            }
            code::ALLOC_GPFIFO_EX | code::ALLOC_GPFIFO_EX_R39 if self.has(abi::ALL, code) => {
                drop(state);
                argument.call(|args: &mut AllocGpfifoExR39| self.alloc_gpfifo(task, (id, serial), args))?;
            }
            code::SUBMIT_GPFIFO => {
                drop(state);
                argument.call(|args: &mut SubmitGpfifo| self.submit(task, (id, serial), args))?;
            }
            code::ALLOC_OBJ_CTX => {
                drop(state);
                argument.call(|args: &mut AllocObjCtx| self.alloc_obj_ctx(task, (id, serial), args))?;
            }
            code::FORCE_RESET => {
                let tsg = state.channel(id, serial)?.tsg;
                drop(state);
                match tsg {
                    Some(tsg) => self.end_tsg(tsg, Some(recovery::RESET)),
                    None => log.error("nvgpu_tsg_force_reset_ch", ChannelLine::NotInTsg { channel: id }),
                }
            }
            code::SET_ERROR_NOTIFIER => argument.call(|args: &mut SetErrorNotifier| {
                state.set_error_notifier(task, log, (id, serial), args)
            })?,
            code::GET_USER_SYNCPOINT => {
                argument.call(|args: &mut GetUserSyncpoint| state.user_syncpoint(log, (id, serial), args))?
            }
            code::WDT => argument.call(|args: &mut Wdt| {
                let channel = state.channel(id, serial)?;
                channel.watchdog.set(channel.deterministic, args)
            })?,
            code::GET_TIMEDOUT => argument.call(|args: &mut GetParam| {
                args.value = u32::from(state.channel(id, serial)?.unserviceable);
                Ok(())
            })?,
            code::SET_PREEMPTION_MODE => {
                drop(state);
                argument.call(|args: &mut PreemptionMode| self.set_preemption_mode((id, serial), args))?
            }
            code::ZCULL_BIND => {
                drop(state);
                argument.call(|args: &mut ZcullBind| self.zcull_bind((id, serial), args))?
            }
            code::PREEMPT => {
                let tsg = state.channel(id, serial)?.tsg.ok_or(Errno::INVAL)?;
                let channels = state.tsgs.get(&tsg).map(|tsg| tsg.channels.clone()).unwrap_or_default();
                drop(state);
                // The result depends on whether the TSG could be enabled again.
                if self.stalled() {
                    preempt_timed_out(log, tsg);
                }
                self.gpu(|gpu| gpu.set_enabled(&channels, true));
            }
            code::SET_NVMAP_FD => {}
            code::SET_TIMEOUT => argument.call(|args: &mut SetTimeout| {
                state.channel(id, serial)?.switching.set_limit(args.timeout);
                Ok(())
            })?,
            code::SET_TIMEOUT_EX => argument.call(|args: &mut SetTimeoutEx| {
                let switching = &mut state.channel(id, serial)?.switching;
                switching.set_limit(args.timeout);
                switching.set_dump(args.flags & 1 << TIMEOUT_DISABLE_DUMP_BIT == 0);
                Ok(())
            })?,
            code::ENABLE | code::DISABLE => {
                drop(state);
                self.gpu(|gpu| gpu.set_enabled(&[id], code.code == code::ENABLE));
            }
            code::OPEN => {
                drop(state);
                argument.call(|args: &mut Open| {
                    // The kernel ignores the number in the argument and uses runlist 0.
                    let mut open = OpenChannel { runlist_id_or_fd: 0 };
                    self.open_channel(task, &mut open)?;
                    args.channel_fd = open.runlist_id_or_fd;
                    Ok(())
                })?;
            }
            code::SET_BOOSTED_CTX => return Err(Errno::INVAL),
            // EPERM without the privilege, else ENOSYS, because ga10b lacks the hook.
            code::RESCHEDULE_RUNLIST => {
                return Err(if self.config.cap_sys_nice { Errno::NOSYS } else { Errno::PERM });
            }
            _ => return Err(Errno::NOTTY),
        }
        Ok(argument.residue())
    }

    pub(super) fn setup_bind(
        &self,
        task: &Task<'_>,
        channel: (u32, u64),
        args: &mut SetupBind,
    ) -> Result<(), Errno> {
        let (setup, objects) = {
            let flags = GpuFlags::from_bits_retain(self.config.characteristics.flags);
            let mut state = self.state.lock();
            let setup =
                state.setup_bind(task, &self.log, channel, args, flags.contains(GpuFlags::SUPPORT_VPR))?;
            let entry = state.channel(channel.0, channel.1)?;
            if entry.watchdog.on {
                self.start_watchdog();
            }
            if entry.unserviceable {
                return Ok(());
            }
            (setup, entry.engine_objects())
        };
        self.gpu(|gpu| {
            gpu.bind_channel(setup);
            objects.iter().for_each(|class| gpu.add_object(channel.0, *class));
        });
        // A fault of another channel may have ended the TSG before the GPU knew this channel.
        if self.state.lock().channel(channel.0, channel.1)?.unserviceable {
            self.gpu(|gpu| gpu.stop_channels(&[channel.0]));
        }
        if self.facts().returns_channel {
            args.reserved[0] = channel.0;
        }
        Ok(())
    }

    /// Takes a TSG off the engines before one of its channels is closed (nvgpu_tsg_unbind_channel). If that fails, the
    /// TSG is torn down. Grids that cannot be preempted then keep the engine: on silicon the preemption itself only
    /// prints a line and relies on the context-switch time-out, which then finds no channel.
    fn preempt_for_close(&self, id: u32, tsg: u32) {
        let occupied = || {
            let mut occupied = false;
            self.gpu(|gpu| occupied = gpu.occupies_engine(tsg));
            occupied
        };
        self.gpu(|gpu| gpu.preempt(tsg, true));
        for _ in 0..PREEMPT_TRIES {
            if !occupied() {
                break;
            }
            std::thread::sleep(self.config.switch_timeout);
        }
        let kept = occupied();
        self.gpu(|gpu| gpu.preempt(tsg, false));
        if !kept && !self.stalled() {
            return;
        }
        if kept {
            self.log.error("gv11b_fifo_is_preempt_pending", HangLine::PreemptEngine { tsg });
            preempt_timed_out(&self.log, tsg);
            self.gpu(|gpu| gpu.abandon_engine(tsg));
        }
        let function = "nvgpu_tsg_unbind_channel";
        let errno = -Errno::AGAIN.raw_os_error();
        self.log.error(function, HangLine::UnbindFailed { error: errno });
        self.log.error(function, HangLine::TsgTornDown { channel: id, tsg });
        self.end_tsg(tsg, None);
    }

    /// close(): stops running work first, then releases everything that the channel held.
    pub(super) fn close_channel(&self, id: u32, serial: u64) {
        let gate = match self.state.lock().channel(id, serial) {
            Ok(channel) => Arc::clone(&channel.gate),
            Err(_) => return,
        };
        let _gate = gate.lock();
        let tsg = self.state.lock().channels.get(&id).and_then(|channel| channel.tsg);
        if let Some(tsg) = tsg {
            self.preempt_for_close(id, tsg);
        }
        self.gpu(|gpu| gpu.stop_channels(&[id]));
        self.state.lock().remove_channel(id);
        self.log.pulse.beat();
    }
}
