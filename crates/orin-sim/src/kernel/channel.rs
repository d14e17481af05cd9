//! Channels (`common/fifo/channel.c`, `ioctl_channel.c`, `linux-channel.c`, `common/gr/gr_setup.c`).
//!
//! A channel gets an address space, joins a TSG, has its watchdog switched off, and is then given
//! its ring by SETUP_BIND, from which moment the GPU serves its doorbell. ALLOC_OBJ_CTX makes the
//! engine context of the TSG and allows methods of a class.

use std::os::fd::RawFd;
use std::sync::{Arc, Mutex, PoisonError};

use nvgpu_sys::channel::{
    self as abi, AllocGpfifoEx, AllocObjCtx, ComputePreemption, GetParam, GetUserSyncpoint,
    GraphicsPreemption, Open, PreemptionMode, SetErrorNotifier, SetupBind, SetupBindFlags, SubmitGpfifo,
    Wait, Wdt, code,
};
use nvgpu_sys::ctrl::{DeterministicOpts, OpenChannel, SetDeterministicOpts};
use rustix::io::Errno;

use crate::gpu::ChannelSetup;
use crate::memory::Memory;

use super::address_space::SpaceId;
use super::argument::{Argument, Code};
use super::log::Log;
use super::nvmap::Buffer;
use super::recovery;
use super::state::State;
use super::submit::KernelRing;
use super::syncpoint::{SyncpointError, UserSyncpoint};
use super::{Kernel, user};

/// Channels that SET_DETERMINISTIC_OPTS takes at a time.
const MAX_DETERMINISTIC: u32 = 512;
/// Longest argument of the node, in bytes.
const MAX_BYTES: usize = 104;
/// Bytes of an error notification.
pub(super) const NOTIFICATION_BYTES: u64 = 16;
/// The runlist of the graphics and compute engine.
pub(super) const RUNLIST_GR: u32 = 0;
/// The copy engine's class.
const COPY_CLASS: u32 = 0xc7b5;
/// Requests of the real driver that have no handler here.
const NOT_MODELLED: &[u32] = &[code::ZCULL_BIND];

/// Where errors are reported.
#[derive(Clone, Debug)]
pub(super) struct Notifier {
    /// Kept alive for the channel.
    pub(super) _buffer: Buffer,
    pub(super) memory: Arc<Memory>,
    pub(super) offset: u64,
}

/// What SETUP_BIND established.
#[derive(Debug)]
pub(super) struct Ring {
    /// Kept alive for the channel.
    pub(super) _buffers: Vec<Buffer>,
    /// First address of the ring in the kernel's area.
    pub(super) va: u64,
    /// The kernel's own ring, without usermode submission.
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
    pub(super) watchdog: bool,
    pub(super) deterministic: bool,
    /// SET_DETERMINISTIC_OPTS lets the GPU power down under this channel.
    pub(super) railgating: bool,
    pub(super) object_class: Option<u32>,
    /// Classes whose methods are allowed.
    pub(super) objects: Vec<u32>,
    preemption: (u32, u32),
    pub(super) notifier: Option<Notifier>,
    pub(super) ring: Option<Ring>,
    pub(super) syncpoint: Option<UserSyncpoint>,
    /// Does not run: not in a TSG yet, or ended.
    pub(super) unserviceable: bool,
    /// Taken out of a TSG; never serviceable again.
    pub(super) retired: bool,
    /// Held for the length of each request.
    gate: Arc<Mutex<()>>,
}

impl Channel {
    pub(super) fn new(runlist: u32, serial: u64) -> Self {
        Self {
            serial,
            runlist,
            space: None,
            tsg: None,
            veid: 0,
            watchdog: true,
            deterministic: false,
            railgating: false,
            object_class: None,
            objects: Vec::new(),
            preemption: (GraphicsPreemption::WFI.bits(), ComputePreemption::WFI.bits()),
            notifier: None,
            ring: None,
            syncpoint: None,
            unserviceable: true,
            retired: false,
            gate: Arc::default(),
        }
    }

    /// All syncpoints that the channel has.
    pub(super) fn syncpoints(&self) -> impl Iterator<Item = UserSyncpoint> {
        self.syncpoint.into_iter().chain(self.kernel_fence().map(|(syncpoint, _)| syncpoint))
    }

    /// The syncpoint of kernel-mode submission, and its value when all work is done.
    pub(super) fn kernel_fence(&self) -> Option<(UserSyncpoint, u32)> {
        self.ring.as_ref()?.kernel.as_ref()?.fence
    }

    /// Classes whose methods the GPU takes: those with a context on the graphics runlist, the copy
    /// engine's without one on its own.
    fn engine_objects(&self) -> Vec<u32> {
        if self.runlist == RUNLIST_GR { self.objects.clone() } else { vec![COPY_CLASS] }
    }

    fn watchdog(&mut self, args: &Wdt) -> Result<(), Errno> {
        let status = args.wdt_status & (abi::WDT_DISABLE | abi::WDT_ENABLE);
        if self.deterministic && status != abi::WDT_DISABLE {
            return Err(Errno::INVAL);
        }
        self.watchdog = match status {
            abi::WDT_DISABLE => false,
            abi::WDT_ENABLE => true,
            _ => return Err(Errno::INVAL),
        };
        Ok(())
    }

    /// Modes only ever get finer: WFI, then GFXP or CTA, then CILP; 0 keeps the mode.
    fn preemption_mode(&mut self, args: &PreemptionMode) -> Result<(), Errno> {
        if self.object_class.is_none() || self.tsg.is_none() {
            return Err(Errno::INVAL);
        }
        let (graphics, compute) = self.preemption;
        let wanted = (
            if args.graphics_preempt_mode == 0 { graphics } else { args.graphics_preempt_mode },
            if args.compute_preempt_mode == 0 { compute } else { args.compute_preempt_mode },
        );
        let known = GraphicsPreemption::all().bits() & wanted.0 == wanted.0
            && ComputePreemption::all().bits() & wanted.1 == wanted.1
            && wanted.0.is_power_of_two()
            && wanted.1.is_power_of_two();
        let both = wanted.0 == GraphicsPreemption::GFXP.bits() && wanted.1 == ComputePreemption::CILP.bits();
        if !known || both || wanted.0 < graphics || wanted.1 < compute {
            return Err(Errno::INVAL);
        }
        self.preemption = wanted;
        Ok(())
    }
}

/// The checks of SETUP_BIND that need no buffer, in the kernel's order.
fn setup_checks(log: &Log, id: u32, channel: &Channel, args: &SetupBind) -> Result<(), Errno> {
    let flags = SetupBindFlags::from_bits_retain(args.flags);
    let usermode = flags.contains(SetupBindFlags::USERMODE_SUPPORT);
    let entries = args.num_gpfifo_entries;
    if entries < if usermode { 2 } else { 4 } || !entries.is_power_of_two() || entries > u32::MAX / 8 {
        return Err(Errno::INVAL);
    }
    let refuse = |errno, message: std::fmt::Arguments<'_>| {
        log.error("channel_setup_bind_prechecks", message);
        Err(errno)
    };
    if channel.space.is_none() {
        return refuse(Errno::INVAL, format_args!("not bound to an address space at time of setup_bind"));
    }
    if channel.tsg.is_none() {
        return refuse(Errno::INVAL, format_args!("not bound to tsg at time of setup_bind"));
    }
    match &channel.ring {
        Some(Ring { kernel: None, .. }) => {
            return refuse(Errno::EXIST, format_args!("channel {id} : usermode buffers allocated"));
        }
        Some(_) => return refuse(Errno::EXIST, format_args!("channel {id} :gpfifo already allocated")),
        None => {}
    }
    let deterministic = flags.contains(SetupBindFlags::DETERMINISTIC);
    if deterministic && channel.watchdog {
        return refuse(Errno::INVAL, format_args!("deterministic is not compatible with watchdog"));
    }
    if usermode && !deterministic {
        return refuse(Errno::INVAL, format_args!("need deterministic for usermode submit"));
    }
    Ok(())
}

/// The ring's and USERD's buffers.
fn setup_buffers(state: &State, log: &Log, args: &SetupBind) -> Result<[Buffer; 2], Errno> {
    if args.gpfifo_dmabuf_fd == 0 || args.userd_dmabuf_fd == 0 {
        return Err(Errno::INVAL);
    }
    if args.gpfifo_dmabuf_offset != 0 || args.userd_dmabuf_offset != 0 {
        return Err(Errno::INVAL);
    }
    let pinned = |fd| {
        let buffer = state.fds.dma_buf(fd)?;
        if buffer.handle.storage().is_none() {
            log.warning("nvgpu_vm_map_linux", format_args!("Failed to pin dma_buf!"));
            return Err(Errno::INVAL);
        }
        Ok(buffer)
    };
    let ring = pinned(args.gpfifo_dmabuf_fd)?;
    if ring.handle.size() < (u64::from(args.num_gpfifo_entries) * 8).max(4096) {
        return Err(Errno::INVAL);
    }
    Ok([ring, pinned(args.userd_dmabuf_fd)?])
}

impl State {
    pub(super) fn channel(&mut self, id: u32, serial: u64) -> Result<&mut Channel, Errno> {
        self.channels.get_mut(&id).filter(|channel| channel.serial == serial).ok_or(Errno::TIMEDOUT)
    }

    /// SETUP_BIND up to the moment where the GPU takes over.
    fn setup_bind(
        &mut self,
        log: &Log,
        (id, serial): (u32, u64),
        args: &mut SetupBind,
    ) -> Result<ChannelSetup, Errno> {
        let channel = self.channel(id, serial)?;
        setup_checks(log, id, channel, args)?;
        let (space, runlist) = (channel.space.ok_or(Errno::INVAL)?, channel.runlist);
        let usermode =
            SetupBindFlags::from_bits_retain(args.flags).contains(SetupBindFlags::USERMODE_SUPPORT);
        let deterministic =
            SetupBindFlags::from_bits_retain(args.flags).contains(SetupBindFlags::DETERMINISTIC);
        if !usermode {
            let space = self.spaces.get_mut(&space).ok_or(Errno::INVAL)?;
            let (ring, va) = KernelRing::new(space, args.num_gpfifo_entries)?;
            let setup = ring.setup(id, space);
            let channel = self.channel(id, serial)?;
            channel.ring = Some(Ring { _buffers: Vec::new(), va, kernel: Some(ring) });
            channel.deterministic = deterministic;
            return Ok(setup);
        }
        let fail = |errno: &Errno| {
            let function = "nvgpu_channel_setup_usermode";
            log.error(function, format_args!("Usermode buffer alloc failed"));
            log.error("nvgpu_channel_setup_bind", format_args!("fail: {}", errno.raw_os_error()));
        };
        let buffers = setup_buffers(self, log, args).inspect_err(fail)?;
        let space = self.spaces.get_mut(&space).ok_or(Errno::INVAL)?;
        let address_space = Arc::clone(&space.mmu);
        let va = space.map_kernel(&buffers[0]).inspect_err(fail)?;
        let memory = |buffer: &Buffer| buffer.handle.memory().map(Arc::clone).ok_or(Errno::INVAL);
        let setup = ChannelSetup {
            channel_id: id,
            ring: memory(&buffers[0])?,
            ring_entries: args.num_gpfifo_entries,
            userd: memory(&buffers[1])?,
            address_space,
        };
        let channel = self.channel(id, serial)?;
        channel.ring = Some(Ring { _buffers: buffers.into(), va, kernel: None });
        channel.deterministic = deterministic;
        args.work_submit_token = id | runlist << 16;
        (args.gpfifo_gpu_va, args.userd_gpu_va, args.usermode_mmio_gpu_va) = (0, 0, 0);
        Ok(setup)
    }

    /// SET_DETERMINISTIC_OPTS, up to the first failure.
    pub(super) fn set_deterministic_opts(&mut self, args: &mut SetDeterministicOpts) -> Result<(), Errno> {
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
            let fd: RawFd = user::read(args.channels.wrapping_add(u64::from(at) * size))?;
            let id = self.fds.channel(fd).ok_or(Errno::INVAL)?;
            let channel = self.channels.get_mut(&id).ok_or(Errno::INVAL)?;
            if !channel.deterministic || allow && disallow {
                return Err(Errno::INVAL);
            }
            channel.railgating = allow || channel.railgating && !disallow;
        }
        Ok(())
    }

    /// GET_USER_SYNCPOINT: the channel's own, made by the first call.
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
                    log.model(format_args!(
                        "GET_USER_SYNCPOINT on channel {id} without an address space: a board's kernel \
                         follows a null pointer here"
                    ));
                    return Err(Errno::INVAL);
                };
                let space = self.spaces.get_mut(&space).ok_or(Errno::INVAL)?;
                let syncpoint = self.syncpoints.take(space).map_err(|error| {
                    let (function, message) = match error {
                        SyncpointError::NoneLeft => {
                            ("nvgpu_channel_user_syncpt_create", "failed to get free syncpt")
                        }
                        SyncpointError::NoAddresses => {
                            ("gv11b_syncpt_alloc_buf", "failed to map syncpt buffer")
                        }
                    };
                    log.error(function, format_args!("{message}"));
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

    /// SET_ERROR_NOTIFIER: the old notifier is gone before the new descriptor is looked at.
    fn set_error_notifier(
        &mut self,
        log: &Log,
        (id, serial): (u32, u64),
        args: &SetErrorNotifier,
    ) -> Result<(), Errno> {
        let function = "gk20a_init_error_notifier";
        if args.mem == 0 {
            log.error(function, format_args!("gk20a_init_error_notifier: invalid memory handle"));
            return Err(Errno::INVAL);
        }
        self.channel(id, serial)?.notifier = None;
        // CAST: a descriptor is the same 32 bits.
        let fd = args.mem as RawFd;
        let buffer = self.fds.dma_buf(fd).map_err(|_| {
            log.error(function, format_args!("Invalid handle: {fd}"));
            Errno::INVAL
        })?;
        if args.offset.checked_add(NOTIFICATION_BYTES).is_none_or(|end| end > buffer.handle.size()) {
            log.error(function, format_args!("gk20a_init_error_notifier: invalid offset"));
            return Err(Errno::INVAL);
        }
        let memory = buffer.handle.memory().map(Arc::clone).ok_or_else(|| {
            log.error(function, format_args!("Cannot map notifier handle"));
            Errno::NOMEM
        })?;
        let notifier = Notifier { _buffer: buffer, memory, offset: args.offset };
        recovery::clear_notifier(&notifier);
        self.channel(id, serial)?.notifier = Some(notifier);
        Ok(())
    }
}

impl Kernel {
    pub(super) fn channel_ioctl(&self, id: u32, serial: u64, code: Code, address: u64) -> Result<i32, Errno> {
        code.check(abi::FAMILY, self.config.characteristics.ioctl_channel_nr_last, MAX_BYTES)?;
        let mut argument = Argument::copy_in(code, address)?;
        if code.code == code::WAIT {
            // Gives the gate up while it sleeps, so it is as well without.
            argument.call(|args: &mut Wait| self.channel_wait((id, serial), args))?;
            return Ok(argument.residue());
        }
        let gate = Arc::clone(&self.lock().channel(id, serial)?.gate);
        let _gate = gate.lock().unwrap_or_else(PoisonError::into_inner);
        // It may have been closed while this request waited.
        let mut state = self.lock();
        state.channel(id, serial)?;
        if state.quiesced && code.code != code::SUBMIT_GPFIFO {
            return Err(Errno::NODEV);
        }
        let log = &self.log;
        match code.code {
            code::SETUP_BIND => {
                drop(state);
                argument.call(|args: &mut SetupBind| self.setup_bind((id, serial), args))?;
            }
            code::ALLOC_GPFIFO_EX => {
                drop(state);
                argument.call(|args: &mut AllocGpfifoEx| self.alloc_gpfifo((id, serial), args))?;
            }
            code::SUBMIT_GPFIFO => {
                drop(state);
                argument.call(|args: &mut SubmitGpfifo| self.submit((id, serial), args))?;
            }
            code::ALLOC_OBJ_CTX => {
                drop(state);
                argument.call(|args: &mut AllocObjCtx| self.alloc_obj_ctx((id, serial), args))?;
            }
            code::FORCE_RESET => {
                let tsg = state.channel(id, serial)?.tsg;
                drop(state);
                match tsg {
                    Some(tsg) => self.end_tsg(tsg, Some(recovery::RESET)),
                    None => {
                        log.error("nvgpu_tsg_force_reset_ch", format_args!("chid: {id} is not bound to tsg"))
                    }
                }
            }
            code::SET_ERROR_NOTIFIER => argument
                .call(|args: &mut SetErrorNotifier| state.set_error_notifier(log, (id, serial), args))?,
            code::GET_USER_SYNCPOINT => {
                argument.call(|args: &mut GetUserSyncpoint| state.user_syncpoint(log, (id, serial), args))?
            }
            code::WDT => argument.call(|args: &mut Wdt| state.channel(id, serial)?.watchdog(args))?,
            code::GET_TIMEDOUT => argument.call(|args: &mut GetParam| {
                args.value = u32::from(state.channel(id, serial)?.unserviceable);
                Ok(())
            })?,
            code::SET_PREEMPTION_MODE => {
                argument.call(|args: &mut PreemptionMode| state.channel(id, serial)?.preemption_mode(args))?
            }
            code::PREEMPT => {
                state.channel(id, serial)?.tsg.ok_or(Errno::INVAL)?;
            }
            code::SET_NVMAP_FD | code::SET_TIMEOUT | code::SET_TIMEOUT_EX => {}
            code::ENABLE | code::DISABLE => {
                drop(state);
                self.gpu(|gpu| gpu.set_enabled(&[id], code.code == code::ENABLE));
            }
            code::OPEN => {
                drop(state);
                argument.call(|args: &mut Open| {
                    // The number in the argument is not read: runlist 0.
                    let mut open = OpenChannel { runlist_id_or_fd: 0 };
                    self.open_channel(&mut open)?;
                    args.channel_fd = open.runlist_id_or_fd;
                    Ok(())
                })?;
            }
            code::SET_BOOSTED_CTX => return Err(Errno::INVAL),
            // Without the privilege, or without the hook that ga10b lacks.
            code::RESCHEDULE_RUNLIST => {
                return Err(if self.config.cap_sys_nice { Errno::NOSYS } else { Errno::PERM });
            }
            _ => return Err(self.unhandled(code, NOT_MODELLED)),
        }
        Ok(argument.residue())
    }

    pub(super) fn setup_bind(&self, channel: (u32, u64), args: &mut SetupBind) -> Result<(), Errno> {
        let (setup, objects) = {
            let mut state = self.lock();
            let setup = state.setup_bind(&self.log, channel, args)?;
            let entry = state.channel(channel.0, channel.1)?;
            if entry.unserviceable {
                return Ok(());
            }
            (setup, entry.engine_objects())
        };
        self.gpu(|gpu| {
            gpu.bind_channel(setup);
            objects.iter().for_each(|class| gpu.add_object(channel.0, *class));
        });
        // A fault of another channel may have ended the TSG meanwhile, before the GPU knew this one.
        let ended = self.lock().channel(channel.0, channel.1)?.unserviceable;
        if ended {
            self.gpu(|gpu| gpu.stop_channels(&[channel.0]));
        }
        Ok(())
    }

    /// close(): what runs is stopped first, then everything the channel held is released.
    pub(super) fn close_channel(&self, id: u32, serial: u64) {
        let gate = match self.lock().channel(id, serial) {
            Ok(channel) => Arc::clone(&channel.gate),
            Err(_) => return,
        };
        let _gate = gate.lock().unwrap_or_else(PoisonError::into_inner);
        let tsg = self.lock().channels.get(&id).and_then(|channel| channel.tsg);
        if let Some(tsg) = tsg.filter(|_| self.stalled()) {
            self.log.error(
                "nvgpu_tsg_unbind_channel",
                format_args!("Channel {id} unbind failed, tearing down TSG {tsg}"),
            );
            self.end_tsg(tsg, None);
        }
        self.gpu(|gpu| gpu.stop_channels(&[id]));
        self.lock().remove_channel(id);
        self.log.pulse.beat();
    }
}
