//! SETUP_BIND (`nvgpu_channel_setup_bind`): the ring of a channel, from which on the GPU serves its doorbell.

use std::sync::Arc;

use gpu_log::{ChannelLine, MemoryLine};
use nvgpu_sys::channel::{SetupBind, SetupBindFlags};
use nvgpu_sys::ctrl::GpuFlags;
use rustix::io::Errno;

use crate::gpu::{ChannelGroup, ChannelSetup};

use super::address_space::SpaceId;
use super::channel::{Channel, Ring};
use super::log::Log;
use super::nvmap::Buffer;
use super::process::task::Task;
use super::submit::KernelRing;
use super::{Kernel, State};

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
    kernel: &Kernel,
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
        let failed = |_: &Errno| kernel.log.warning("nvgpu_vm_map_linux", MemoryLine::PinFailed {});
        kernel.pin(&buffer).inspect_err(failed)?;
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
    /// The part of SETUP_BIND before the GPU starts to serve the channel.
    fn setup_bind(
        &mut self,
        task: &Task<'_>,
        kernel: &Kernel,
        (id, serial): (u32, u64),
        args: &mut SetupBind,
        vpr: bool,
    ) -> Result<ChannelSetup, Errno> {
        let log = &kernel.log;
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
        let (buffers, va) = setup_buffers(self, task, kernel, space, args).inspect_err(|_| {
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
}

impl Kernel {
    pub(super) fn setup_bind(
        &self,
        task: &Task<'_>,
        channel: (u32, u64),
        args: &mut SetupBind,
    ) -> Result<(), Errno> {
        let (setup, objects) = {
            let flags = GpuFlags::from_bits_retain(self.config.characteristics.flags);
            let mut state = self.state.lock();
            let setup = state.setup_bind(task, self, channel, args, flags.contains(GpuFlags::SUPPORT_VPR))?;
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
        self.check_panic()?;
        // A fault of another channel may have ended the TSG before the GPU knew this channel.
        if self.state.lock().channel(channel.0, channel.1)?.unserviceable {
            self.gpu(|gpu| gpu.stop_channels(&[channel.0]));
        }
        if self.facts().returns_channel {
            args.reserved[0] = channel.0;
        }
        Ok(())
    }
}
