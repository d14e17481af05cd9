//! ALLOC_OBJ_CTX: the engine context of a TSG (`common/gr/gr_setup.c`, `common/gr/ctx_mappings.c`).
//!
//! The context belongs to the TSG and is mapped once into each address space of its channels. On Linux the request
//! creates it for every class, including the copy engine's.

use gpu_log::{ChannelLine, HangLine};
use nvgpu_sys::channel::{AllocObjCtx, AllocObjCtxFlags, ComputePreemption, GraphicsPreemption};
use rustix::io::Errno;

use super::address_space::SpaceId;
use super::channel::RUNLIST_GR;
use super::classes::{is_compute, is_graphics, is_other};
use super::engine_rules::Modes;
use super::log::Log;
use super::process::task::Task;
use super::tsg::{Context, preempt_timed_out};
use super::{Kernel, State};

/// Addresses from here on do not fit the 40-bit registers of the context.
const ADDRESS_LIMIT: u64 = 1 << 40;

/// Buffers of an engine context in the kernel's mapping order, with their lengths in bytes. The kernel does not expose
/// them to user space. The lengths are assumptions, chosen to reproduce the two *visible* effects: with 2 MiB below
/// 2^40 the context itself fits there and the RTV circular buffer does not.
const CONTEXT_BUFFERS: [u64; 8] = [
    // Subcontext header, graphics context, patch context.
    0x1000, 0x10_0000, 0x1000, // Bundle circular buffer, attribute buffer, page pool.
    0x8_0000, 0x40_0000, 0x2_0000, // RTV circular buffer.
    0x8_0000, // Privileged access map.
    0x8_0000,
];
/// Index of the graphics context.
const GRAPHICS_CONTEXT: usize = 1;
/// Index of the RTV circular buffer.
const RTV_BUFFER: usize = 6;

impl State {
    /// The part of ALLOC_OBJ_CTX before the class is passed to the GPU. Returns whether the channel already has a ring.
    fn alloc_obj_ctx(
        &mut self,
        task: &Task<'_>,
        log: &Log,
        (id, serial): (u32, u64),
        args: &AllocObjCtx,
        stalled: bool,
    ) -> Result<bool, Errno> {
        let function = "nvgpu_gr_setup_alloc_obj_ctx";
        let channel = self.channel(id, serial)?;
        let Some(space_id) = channel.space else {
            log.error(function, ChannelLine::ContextWithoutSpace {});
            return Err(Errno::INVAL);
        };
        let class = args.class_num;
        if !is_graphics(class) && !is_compute(class) && !is_other(class) {
            log.error("nvgpu_gr_setup_validate_channel_and_class", ChannelLine::ObjectClass { class });
            return Err(Errno::INVAL);
        }
        // Remains set even if the request fails.
        channel.object_class = Some(class);
        let tsg_id = channel.tsg.ok_or(Errno::INVAL)?;
        if stalled {
            preempt_timed_out(log, tsg_id);
            let errno = Errno::TIMEDOUT;
            log.error(function, HangLine::PreemptFailed { error: -errno.raw_os_error() });
            return Err(errno);
        }
        self.class_rules(log, tsg_id, id)?;
        self.map_context(task, log, tsg_id, space_id)?;
        let flags = AllocObjCtxFlags::from_bits_retain(args.flags);
        let asked = |flag, mode| if flags.contains(flag) { mode } else { 0 };
        let modes = Modes {
            graphics: asked(AllocObjCtxFlags::GFXP, GraphicsPreemption::GFXP.bits()),
            compute: asked(AllocObjCtxFlags::CILP, ComputePreemption::CILP.bits()),
        };
        // The flags belong to the graphics engine and have no meaning for other classes.
        if is_graphics(class) || is_compute(class) {
            self.set_modes(log, (tsg_id, id), modes, "nvgpu_gr_obj_ctx_init_ctxsw_preemption")?;
        }
        let channel = self.channel(id, serial)?;
        if !channel.objects.contains(&class) {
            channel.objects.push(class);
        }
        Ok(channel.ring.is_some() && channel.runlist == RUNLIST_GR)
    }

    /// Maps the context of a TSG into an address space, once.
    fn map_context(
        &mut self,
        task: &Task<'_>,
        log: &Log,
        tsg_id: u32,
        space_id: SpaceId,
    ) -> Result<(), Errno> {
        let tsg = self.tsgs.get_mut(&tsg_id).ok_or(Errno::INVAL)?;
        if !tsg.contexts.iter().any(|context| context.space == space_id) {
            let space = self.spaces.get_mut(&space_id).ok_or(Errno::INVAL)?;
            let mut buffers = Vec::new();
            for len in CONTEXT_BUFFERS {
                match space.reserve_kernel(len) {
                    Ok(va) => buffers.push(va),
                    Err(errno) => {
                        buffers.iter().for_each(|va| space.release_kernel(*va));
                        return Err(errno);
                    }
                }
            }
            let end = buffers[GRAPHICS_CONTEXT] + CONTEXT_BUFFERS[GRAPHICS_CONTEXT];
            if end > ADDRESS_LIMIT {
                buffers.iter().for_each(|va| space.release_kernel(*va));
                log.model(ChannelLine::ContextAboveLimit { end });
                self.quiesced = true;
                log.quiesce();
                return Err(Errno::NODEV);
            }
            let rtv_va = buffers[RTV_BUFFER];
            tsg.contexts.push(Context { space: space_id, buffers, rtv_va });
        }
        let above = |context: &&Context| {
            context.space == space_id && context.rtv_va + CONTEXT_BUFFERS[RTV_BUFFER] > ADDRESS_LIMIT
        };
        if tsg.contexts.iter().find(above).is_some() {
            log.kernel_warning(task, "gr_init_tu104.c:191", "tu104_gr_init_commit_rtv_cb", None);
        }
        Ok(())
    }
}

impl Kernel {
    /// ALLOC_OBJ_CTX.
    pub(super) fn alloc_obj_ctx(
        &self,
        task: &Task<'_>,
        channel: (u32, u64),
        args: &AllocObjCtx,
    ) -> Result<(), Errno> {
        let stalled = self.stalled();
        let bound = self.state.lock().alloc_obj_ctx(task, &self.log, channel, args, stalled)?;
        let tsg = self.state.lock().channel(channel.0, channel.1)?.tsg;
        if let Some(tsg) = tsg {
            self.apply_modes(tsg);
        }
        if bound {
            self.gpu(|gpu| gpu.add_object(channel.0, args.class_num));
        }
        Ok(())
    }
}
