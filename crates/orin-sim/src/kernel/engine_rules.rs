//! Rules for sharing a TSG's engine context: classes, subcontexts and preemption modes (`common/fifo/tsg.c`,
//! `common/gr/ctx.c`, `common/gr/gr_setup.c`).
//!
//! The context, including its modes, belongs to the TSG. A mode that one channel requests is checked against the modes
//! set by all other channels of the TSG.

use gpu_log::ChannelLine;
use nvgpu_sys::channel::{
    ComputePreemption, GraphicsPreemption, PreemptionMode, ZCULL_MODE_SEPARATE_BUFFER, ZcullBind,
};
use rustix::io::Errno;

use crate::gpu::Preemption;

use super::classes::{is_compute, is_graphics};
use super::log::Log;
use super::tsg::preempt_timed_out;
use super::{Kernel, State};

/// Preemption modes of a context, graphics and compute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Modes {
    pub(super) graphics: u32,
    pub(super) compute: u32,
}

impl Default for Modes {
    fn default() -> Self {
        Self { graphics: GraphicsPreemption::WFI.bits(), compute: ComputePreemption::WFI.bits() }
    }
}

/// The mode to set; `None` if none is requested or the context already has it.
fn wanted(asked: u32, current: u32) -> Option<u32> {
    (asked != 0 && asked != current).then_some(asked)
}

/// Modes can only become finer: WFI, then GFXP or CTA, then CILP.
fn allowed(wanted: Option<u32>, current: u32, supported: u32) -> bool {
    // Refusing more than one bit at once is an assumption.
    wanted.is_none_or(|mode| mode.is_power_of_two() && mode & supported != 0 && mode >= current)
}

/// Channels of a TSG that have a class, with their positions.
struct Active<'a> {
    state: &'a State,
    tsg: u32,
}

impl Active<'_> {
    /// Returns whether a channel on VEID 0 (or another) and host engine 0 (or another) has a class of `kind`.
    fn any(&self, veid0: bool, pbdma0: bool, kind: fn(u32) -> bool) -> bool {
        let members = self.state.tsgs.get(&self.tsg).into_iter().flat_map(|tsg| &tsg.channels);
        members.filter_map(|id| self.state.channels.get(id)).any(|channel| {
            (channel.veid == 0) == veid0
                && (channel.runqueue == 0) == pbdma0
                && channel.object_class.is_some_and(kind)
        })
    }
}

impl State {
    /// Checks which classes can share the subcontexts and host engines of a TSG. Prints the first violated rule.
    pub(super) fn class_rules(&self, log: &Log, tsg: u32, id: u32) -> Result<(), Errno> {
        let channel = self.channels.get(&id).ok_or(Errno::INVAL)?;
        let Some(class) = channel.object_class else { return Err(Errno::INVAL) };
        let (graphics, compute) = (is_graphics(class), is_compute(class));
        let active = Active { state: self, tsg };
        let both_on_0 = ChannelLine::GraphicsAndCompute;
        let mixed = ChannelLine::MixedPbdma {};
        let broken = if graphics && channel.runqueue != 0 {
            Some(ChannelLine::GraphicsPbdma)
        } else if graphics && channel.veid != 0 {
            Some(ChannelLine::GraphicsSubcontext)
        } else if compute
            && active.any(true, true, is_graphics)
            && (channel.veid == 0) != (channel.runqueue == 0)
        {
            Some(if channel.veid == 0 { both_on_0 } else { mixed })
        } else if graphics && active.any(true, false, is_compute) {
            Some(both_on_0)
        } else if graphics && active.any(false, true, is_compute) {
            Some(mixed)
        } else {
            None
        };
        let Some(broken) = broken else { return Ok(()) };
        log.error("nvgpu_tsg_validate_class_veid_pbdma", broken);
        log.error("nvgpu_gr_setup_alloc_obj_ctx", ChannelLine::ClassConfig);
        Err(Errno::INVAL)
    }

    /// CILP is not allowed if graphics and asynchronous compute share the TSG.
    fn cilp_rules(&self, log: &Log, tsg: u32, id: u32) -> Result<(), Errno> {
        let channel = self.channels.get(&id).ok_or(Errno::INVAL)?;
        let Some(class) = channel.object_class else { return Err(Errno::INVAL) };
        let active = Active { state: self, tsg };
        let asynchronous = active.any(false, false, is_compute);
        let compute = is_compute(class) && active.any(true, true, is_graphics);
        let current =
            self.tsgs.get(&tsg).is_some_and(|tsg| tsg.modes.compute == ComputePreemption::CILP.bits());
        let broken = if compute && (channel.veid != 0 || asynchronous) {
            ChannelLine::CilpWithCompute
        } else if current && asynchronous && is_graphics(class) {
            ChannelLine::CilpWithGraphics
        } else {
            return Ok(());
        };
        log.error("nvgpu_tsg_validate_cilp_config", broken);
        log.error("nvgpu_gr_ctx_check_valid_preemption_mode", ChannelLine::CilpConfig {});
        Err(Errno::INVAL)
    }

    /// Sets modes of a TSG's context for a channel; 0 requests nothing. Only requested modes are compared with each
    /// other, so CILP can join a context that already has GFXP.
    ///
    /// # Errors
    ///
    /// EINVAL, with a log line of `function`.
    pub(super) fn set_modes(
        &mut self,
        log: &Log,
        (tsg_id, id): (u32, u32),
        asked: Modes,
        function: &str,
    ) -> Result<(), Errno> {
        let current = self.tsgs.get(&tsg_id).ok_or(Errno::INVAL)?.modes;
        let graphics = wanted(asked.graphics, current.graphics);
        let compute = wanted(asked.compute, current.compute);
        if graphics.is_none() && compute.is_none() {
            return Ok(());
        }
        let class = self.channels.get(&id).and_then(|channel| channel.object_class).unwrap_or(0);
        let cilp = compute == Some(ComputePreemption::CILP.bits());
        let both = graphics == Some(GraphicsPreemption::GFXP.bits()) && cilp;
        let mut result = Ok(());
        if !allowed(graphics, current.graphics, GraphicsPreemption::all().bits())
            || !allowed(compute, current.compute, ComputePreemption::all().bits())
            || both
        {
            result = Err(Errno::INVAL);
        } else if is_graphics(class) || is_compute(class) && cilp {
            result = self.cilp_rules(log, tsg_id, id);
        } else if !is_compute(class) {
            // Only the graphics engine has modes.
            result = Err(Errno::INVAL);
        }
        result.inspect_err(|_| log.error(function, ChannelLine::PreemptionMode))?;
        let tsg = self.tsgs.get_mut(&tsg_id).ok_or(Errno::INVAL)?;
        tsg.modes.graphics = graphics.unwrap_or(current.graphics);
        tsg.modes.compute = compute.unwrap_or(current.compute);
        Ok(())
    }

    /// Returns the TSG of a channel with a class, checking in the kernel's order.
    fn context_of(&mut self, channel: (u32, u64)) -> Result<u32, Errno> {
        let channel = self.channel(channel.0, channel.1)?;
        channel.object_class.ok_or(Errno::INVAL)?;
        channel.tsg.ok_or(Errno::INVAL)
    }
}

impl Kernel {
    /// Preempts a TSG before a change of its context.
    ///
    /// # Errors
    ///
    /// ETIMEDOUT if the engines are stalled.
    fn preempt_for_change(&self, tsg: u32, stalled: bool) -> Result<(), Errno> {
        if !stalled {
            return Ok(());
        }
        preempt_timed_out(&self.log, tsg);
        self.log.error("nvgpu_gr_setup_set_preemption_mode", ChannelLine::PreemptChannel {});
        Err(Errno::TIMEDOUT)
    }

    /// SET_PREEMPTION_MODE.
    pub(super) fn set_preemption_mode(
        &self,
        channel: (u32, u64),
        args: &PreemptionMode,
    ) -> Result<(), Errno> {
        let stalled = self.stalled();
        let mut state = self.state.lock();
        let tsg = state.context_of(channel)?;
        self.preempt_for_change(tsg, stalled)?;
        let asked = Modes { graphics: args.graphics_preempt_mode, compute: args.compute_preempt_mode };
        state.set_modes(&self.log, (tsg, channel.0), asked, "nvgpu_gr_setup_set_preemption_mode")?;
        drop(state);
        self.apply_modes(tsg);
        Ok(())
    }

    /// Tells the GPU where the grids of a TSG can be preempted.
    pub(super) fn apply_modes(&self, tsg: u32) {
        let mode = self
            .state
            .lock()
            .tsgs
            .get(&tsg)
            .map(|entry| ComputePreemption::from_bits_retain(entry.modes.compute));
        let preemption = match mode {
            Some(ComputePreemption::CILP) => Preemption::Instruction,
            Some(ComputePreemption::CTA) => Preemption::Block,
            _ => Preemption::Wait,
        };
        self.gpu(|gpu| gpu.set_preemption(tsg, preemption));
    }

    /// ZCULL_BIND: binds the buffer for depth culling to a TSG's context. The first one stays; later ones are accepted
    /// and ignored. Refusing a TSG without a context is an assumption.
    pub(super) fn zcull_bind(&self, channel: (u32, u64), args: &ZcullBind) -> Result<(), Errno> {
        let stalled = self.stalled();
        let mut state = self.state.lock();
        let tsg_id = state.channel(channel.0, channel.1)?.tsg.ok_or(Errno::INVAL)?;
        let tsg = state.tsgs.get_mut(&tsg_id).ok_or(Errno::INVAL)?;
        if tsg.zcull_va != 0 {
            return Ok(());
        }
        tsg.need_context()?;
        tsg.zcull_va = args.gpu_va;
        self.preempt_for_change(tsg_id, stalled)?;
        if args.mode == ZCULL_MODE_SEPARATE_BUFFER && args.gpu_va == 0 {
            self.log.error("nvgpu_gr_setup_zcull", ChannelLine::Zcull);
            return Err(Errno::INVAL);
        }
        Ok(())
    }
}
