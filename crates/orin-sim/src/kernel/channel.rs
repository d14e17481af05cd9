//! Channels (`common/fifo/channel.c`, `ioctl_channel.c`, `linux-channel.c`, `common/gr/gr_setup.c`).
//!
//! A channel gets an address space, joins a TSG, has its watchdog disabled, and then gets its ring from SETUP_BIND.
//! From that moment the GPU serves its doorbell. ALLOC_OBJ_CTX creates the engine context of the TSG and allows the
//! methods of a class.

use std::os::fd::RawFd;
use std::sync::Arc;

use gpu_log::{ChannelLine, HangLine};
use nvgpu_sys::channel::{
    self as abi, AllocGpfifoExR39, AllocObjCtx, GetParam, GetUserSyncpoint, Notification, Open,
    PreemptionMode, SetErrorNotifier, SetTimeout, SetTimeoutEx, SetupBind, SubmitGpfifo,
    TIMEOUT_DISABLE_DUMP_BIT, Wait, Wdt, ZcullBind, code,
};
use nvgpu_sys::ctrl::{DeterministicOpts, OpenChannel, SetDeterministicOpts};
use parking_lot::Mutex;
use rustix::io::Errno;

use crate::chip::CHIP;
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
    pub(super) fn engine_objects(&self) -> Vec<u32> {
        if self.runlist == RUNLIST_GR { self.objects.clone() } else { vec![COPY_CLASS] }
    }
}

impl State {
    pub(super) fn channel(&mut self, id: u32, serial: u64) -> Result<&mut Channel, Errno> {
        self.channels.get_mut(&id).filter(|channel| channel.serial == serial).ok_or(Errno::TIMEDOUT)
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
