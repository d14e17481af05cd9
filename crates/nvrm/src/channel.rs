//! Channel groups: channels that are scheduled together and that a fault stops together. One kind of group has a
//! compute and a copy channel, both on the runlist of the graphics engine; the other has a copy channel on a
//! separate copy engine, which works while the first computes.
//!
//! A channel reads 8-byte entries from a ring (GPFIFO) at a GPU address. USERD, 512 bytes, contains the two pointers of
//! the ring. Both are adjacent in video memory: the GPU fetches them without crossing PCIe, and the stores of the CPU
//! arrive in order because they take the same path. The driver writes an error to the *notifier* of the channel, in
//! system memory, and stops the whole group.

use core::ptr::NonNull;
use core::time::Duration;
use std::sync::Arc;

use kernel_door::{DoorFd, Events};
use zerocopy::{FromBytes, IntoBytes};

use crate::abi::{alloc, control, escape};
use crate::error::{Error, Result};
use crate::gpu::Gpu;
use crate::memory::{CpuMemory, GpuMapping, Place};
use crate::rm::{self, Object};
use crate::space::Reserved;

/// Entries of a ring.
pub const RING_ENTRIES: u32 = 1024;
/// Length of a ring in bytes.
const RING_BYTES: usize = RING_ENTRIES as usize * 8;
/// Length and alignment of USERD in bytes.
const USERD_BYTES: usize = 512;
/// Distance between the control blocks (ring, then USERD) of two channels in the group's memory.
const BLOCK_BYTES: usize = 16 << 10;
/// Size of the address range that UVM needs for the context of a channel.
const CONTEXT_BYTES: u64 = 64 << 20;
/// Length of a notifier's memory in bytes; 48 are used.
const NOTIFIER_BYTES: u64 = 4096;
/// Offset of the error number in a notifier (`NvNotification.info32`).
const NOTIFIER_INFO: usize = 8;
/// Offset of the status in a notifier; not 0 after an error.
const NOTIFIER_STATUS: usize = 14;

const _: () = assert!(RING_BYTES + USERD_BYTES <= BLOCK_BYTES);

/// Engine of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Engine {
    /// Kernels.
    Compute,
    /// Copies.
    Copy,
}

/// A channel of a group.
#[derive(Debug)]
struct Channel {
    engine: Engine,
    object: Object,
    engine_object: Object,
    token: u32,
    notifier: CpuMemory,
    context: Option<Reserved>,
    block: usize,
}

/// The group object of RM, freed with its last user.
#[derive(Debug)]
struct GroupObject {
    gpu: Arc<Gpu>,
    object: Object,
}

impl Drop for GroupObject {
    fn drop(&mut self) {
        self.gpu.rm().free_or_log(self.gpu.device(), self.object, "channel group");
    }
}

/// A compute and a copy channel, or only a copy channel.
///
/// ```no_run
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use std::sync::Arc;
/// # let door: Arc<dyn kernel_door::Door> = Arc::new(kernel_door::LinuxDoor);
/// # let gpu = nvrm::Gpu::open(&door, 0)?;
/// use nvrm::{ChannelGroup, Engine};
///
/// let group = ChannelGroup::open(&gpu)?;
/// println!("the doorbell takes {:#x}", group.token(Engine::Compute));
/// assert_eq!(group.error(), None);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct ChannelGroup {
    gpu: Arc<Gpu>,
    group: Arc<GroupObject>,
    share: Option<Object>,
    channels: Vec<Channel>,
    // Before `memory`: RM does not free a mapped object.
    mapping: GpuMapping,
    memory: CpuMemory,
    debugger: Option<Object>,
    completion: Option<DoorFd>,
}

/// The error in the notifier of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ChannelError {
    /// Error number: the Xid in the kernel log (`nverror.h`).
    pub xid: u32,
}

/// An MMU fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct MmuFault {
    /// Address of the accessed 4 KiB page.
    pub address: u64,
    /// Type of the fault, `NV_PFAULT_FAULT_TYPE_*` (`dev_fault.h`).
    pub fault_type: u32,
    /// Type of the access, `NV_PFAULT_ACCESS_TYPE_*` (`dev_fault.h`).
    pub access_type: u32,
}

/// The error that stopped an SM.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct SmError {
    /// Number of the SM.
    pub sm: u32,
    /// Global error status register.
    pub global_esr: u32,
    /// Warp error status register; the low byte is the error code.
    pub warp_esr: u32,
    /// Program counter of the warp.
    pub pc: u64,
    /// Address of the access.
    pub address: u64,
}

/// The engine of a group.
#[derive(Clone, Copy, Debug)]
struct Home {
    /// NV2080_ENGINE_TYPE_*.
    engine_type: u32,
    /// Context share, for engines with subcontexts.
    share: Option<Object>,
}

impl ChannelGroup {
    /// Creates a group with a compute and a copy channel, enabled and idle.
    ///
    /// # Errors
    ///
    /// If the driver rejects a step.
    pub fn open(gpu: &Arc<Gpu>) -> Result<Self> {
        let mut parameters =
            alloc::ChannelGroup { engine_type: alloc::ENGINE_GRAPHICS, ..Default::default() };
        let mut this = Self::empty(gpu, &mut parameters)?;
        this.fill()?;
        Ok(this)
    }

    /// Adds a compute and a copy channel to the group, enabled and idle, with a context share of their own. The GPU
    /// runs one group of the graphics engine at a time, so only kernels of one group overlap. The new channels begin to
    /// run when the kernels that run now have ended. A fault, and [`stop`], stop the channels of all values that share
    /// a group.
    ///
    /// [`stop`]: ChannelGroup::stop
    ///
    /// # Errors
    ///
    /// If the driver rejects a step.
    pub fn open_beside(&self) -> Result<Self> {
        let mut this = Self::in_group(&self.gpu, Arc::clone(&self.group))?;
        this.fill()?;
        Ok(this)
    }

    /// Creates a group with a copy channel, enabled and idle, on an engine that works while others compute.
    ///
    /// # Errors
    ///
    /// [`Error::Invalid`] if the GPU has no such engine; otherwise if the driver rejects a step.
    pub fn open_copy(gpu: &Arc<Gpu>) -> Result<Self> {
        Self::open_copy_on(gpu, free_copy_engine(gpu)?)
    }

    /// As [`ChannelGroup::open_copy`], on an engine for copies over NVLink that is not tied to graphics. `None` if the
    /// GPU has no such engine.
    ///
    /// # Errors
    ///
    /// If the driver rejects a step.
    pub fn open_link(gpu: &Arc<Gpu>) -> Result<Option<Self>> {
        let engines = gpu.copy_engines()?;
        let fitting = engines.iter().filter(|engine| engine.nvlink && !engine.graphics);
        let best = fitting.min_by_key(|engine| engine.shared);
        best.map(|engine| Self::open_copy_on(gpu, engine.number)).transpose()
    }

    /// Creates a group with a copy channel, enabled and idle, on the engine of that number: see [`Gpu::copy_engines`].
    ///
    /// # Errors
    ///
    /// If the driver rejects a step.
    pub fn open_copy_on(gpu: &Arc<Gpu>, number: u32) -> Result<Self> {
        let engine_type = alloc::ENGINE_COPY0 + number;
        let mut parameters =
            alloc::ChannelGroup { engine_type, va_space: gpu.va_space().0, ..Default::default() };
        let mut this = Self::empty(gpu, &mut parameters)?;
        let class = alloc::copy_engine(gpu.chip().classes.value.copy);
        let mut engine = alloc::CopyEngine { version: alloc::COPY_ENGINE_BY_TYPE, engine_type };
        let home = Home { engine_type, share: None };
        let channel = this.channel(home, Engine::Copy, &class, &mut engine)?;
        this.channels.push(channel);
        this.schedule()?;
        Ok(this)
    }

    fn empty(gpu: &Arc<Gpu>, parameters: &mut alloc::ChannelGroup) -> Result<Self> {
        let object = gpu.rm().alloc(gpu.device(), &alloc::CHANNEL_GROUP, parameters)?;
        Self::in_group(gpu, Arc::new(GroupObject { gpu: Arc::clone(gpu), object }))
    }

    fn in_group(gpu: &Arc<Gpu>, group: Arc<GroupObject>) -> Result<Self> {
        let memory = CpuMemory::new(gpu, Place::Video, 2 * BLOCK_BYTES as u64)?;
        let mapping = GpuMapping::new(gpu, memory.object(), memory.bytes())?;
        // From here, dropping the group frees everything.
        Ok(Self {
            gpu: Arc::clone(gpu),
            group,
            share: None,
            channels: Vec::with_capacity(2),
            mapping,
            memory,
            debugger: None,
            completion: None,
        })
    }

    fn fill(&mut self) -> Result<()> {
        let rm = self.gpu.rm();
        let mut parameters = alloc::ContextShare {
            va_space: self.gpu.va_space().0,
            flags: alloc::CONTEXT_SHARE_ASYNC,
            ..Default::default()
        };
        let share = rm.alloc(self.group.object, &alloc::CONTEXT_SHARE, &mut parameters)?;
        self.share = Some(share);
        let home = Home { engine_type: alloc::ENGINE_GRAPHICS, share: Some(share) };
        let classes = self.gpu.chip().classes.value;
        for (engine, class) in [(Engine::Compute, classes.compute), (Engine::Copy, classes.copy)] {
            let channel = self.channel(home, engine, &alloc::engine(class), &mut ())?;
            self.channels.push(channel);
        }
        self.schedule()?;
        let rm = self.gpu.rm();
        let mut parameters = alloc::Debugger {
            app_client: rm.client().0,
            compute_object: self.of(Engine::Compute).engine_object.0,
            ..Default::default()
        };
        match rm.alloc(self.gpu.device(), &alloc::DEBUGGER, &mut parameters) {
            Ok(debugger) => self.debugger = Some(debugger),
            Err(error) => tracing::debug!(%error, "errors of SMs cannot be read"),
        }
        match completion_file(&self.gpu) {
            Ok(file) => self.completion = Some(file),
            Err(error) => tracing::debug!(%error, "waits cannot sleep in the kernel"),
        }
        Ok(())
    }

    /// Lets the channels run.
    fn schedule(&self) -> Result<()> {
        let mut schedule = control::GpfifoSchedule { enable: 1, ..Default::default() };
        self.gpu.rm().control(self.group.object, &control::GPFIFO_SCHEDULE, &mut schedule)
    }

    /// Creates one channel of the group, with an engine object.
    fn channel<P: FromBytes + IntoBytes>(
        &self,
        home: Home,
        engine: Engine,
        class: &crate::abi::Class<P>,
        class_parameters: &mut P,
    ) -> Result<Channel> {
        let (gpu, rm) = (&self.gpu, self.gpu.rm());
        let block = self.channels.len() * BLOCK_BYTES;
        self.clear(block);
        let notifier = CpuMemory::new(gpu, Place::System, NOTIFIER_BYTES)?;
        // SAFETY: the memory is newly allocated, not shared yet, and longer.
        unsafe { notifier.pointer().as_ptr().write_bytes(0, NOTIFIER_BYTES as usize) };
        let mut parameters = alloc::ChannelGpfifo {
            object_error: notifier.object().0,
            gpfifo_va: self.mapping.va() + block as u64,
            gpfifo_entries: RING_ENTRIES,
            context_share: home.share.map_or(0, |share| share.0),
            engine_type: home.engine_type,
            ..Default::default()
        };
        parameters.userd_memory[0] = self.memory.object().0;
        parameters.userd_offset[0] = (block + RING_BYTES) as u64;
        let object = rm.alloc(
            self.group.object,
            &alloc::channel_gpfifo(gpu.chip().classes.value.channel),
            &mut parameters,
        )?;
        let engine_object = rm.alloc(object, class, class_parameters)?;
        let mut token = control::WorkSubmitToken::default();
        rm.control(object, &control::GPFIFO_GET_WORK_SUBMIT_TOKEN, &mut token)?;
        let context = gpu.space().reserve_context(CONTEXT_BYTES)?;
        if let Err(error) = gpu.space().register_channel(rm, object, &context) {
            gpu.space().release(context);
            return Err(error);
        }
        let token = token.token;
        Ok(Channel { engine, object, engine_object, token, notifier, context: Some(context), block })
    }

    /// Zeroes a ring and its USERD.
    fn clear(&self, block: usize) {
        // SAFETY: the block is inside the group's memory, and no channel uses it yet.
        unsafe { self.memory.pointer().as_ptr().add(block).write_bytes(0, BLOCK_BYTES) };
    }

    /// The engines of the channels of the group.
    pub fn engines(&self) -> impl Iterator<Item = Engine> + '_ {
        self.channels.iter().map(|channel| channel.engine)
    }

    fn of(&self, engine: Engine) -> &Channel {
        let channel = self.channels.iter().find(|channel| channel.engine == engine);
        // PANIC: documented for each caller.
        channel.expect("the group has a channel for the engine")
    }

    /// First slot of a ring of [`RING_ENTRIES`] entries; write-combined, valid while `self` is alive.
    ///
    /// # Panics
    ///
    /// Panics if the group has no channel for the engine; see [`ChannelGroup::engines`].
    pub fn ring(&self, engine: Engine) -> NonNull<u64> {
        // SAFETY: the block is inside the group's memory.
        unsafe { self.memory.pointer().add(self.of(engine).block) }.cast()
    }

    /// USERD of a channel, 512 bytes; write-combined, valid while `self` is alive.
    ///
    /// # Panics
    ///
    /// Panics if the group has no channel for the engine; see [`ChannelGroup::engines`].
    pub fn userd(&self, engine: Engine) -> NonNull<u8> {
        // SAFETY: as in `ring`.
        unsafe { self.memory.pointer().add(self.of(engine).block + RING_BYTES) }
    }

    /// The work-submit token of a channel, which is written to the doorbell.
    ///
    /// # Panics
    ///
    /// Panics if the group has no channel for the engine; see [`ChannelGroup::engines`].
    pub fn token(&self, engine: Engine) -> u32 {
        self.of(engine).token
    }

    /// Returns the first error in the notifiers of the group.
    pub fn error(&self) -> Option<ChannelError> {
        self.channels.iter().find_map(|channel| {
            let at = |offset: usize| {
                // SAFETY: the notifier is longer, and mapped while the channel is alive.
                unsafe { channel.notifier.pointer().add(offset) }
            };
            // SAFETY: an aligned volatile load; the firmware may write at any time.
            let status = unsafe { at(NOTIFIER_STATUS).cast::<u16>().as_ptr().read_volatile() };
            if status == 0 {
                return None;
            }
            core::sync::atomic::fence(core::sync::atomic::Ordering::Acquire);
            // SAFETY: as above.
            let xid = unsafe { at(NOTIFIER_INFO).cast::<u32>().as_ptr().read_volatile() };
            Some(ChannelError { xid })
        })
    }

    /// Returns the last MMU fault of a kernel of the group, if any. The driver does not report faults of copies and
    /// of the host engine.
    ///
    /// # Errors
    ///
    /// If the driver rejects the query.
    pub fn mmu_fault(&self) -> Result<Option<MmuFault>> {
        let Some(debugger) = self.debugger else { return Ok(None) };
        let mut report = control::MmuFaults::default();
        self.gpu.rm().control(debugger, &control::READ_MMU_FAULT_INFO, &mut report)?;
        // CAST: at most four.
        let last = report.faults.iter().take(report.count as usize).next_back();
        Ok(last.map(|&control::MmuFault { address, fault_type, access_type, .. }| MmuFault {
            address,
            fault_type,
            access_type,
        }))
    }

    /// Returns the SMs that stopped with an error.
    ///
    /// # Errors
    ///
    /// If the driver rejects the query.
    pub fn sm_errors(&self) -> Result<Vec<SmError>> {
        let Some(debugger) = self.debugger else { return Ok(Vec::new()) };
        let properties = self.gpu.properties();
        // The driver rejects the query if it covers more SMs than exist.
        let total = properties.tpcs * properties.sms_per_tpc;
        let mut errors = Vec::new();
        let mut first = 0;
        while first < total {
            let mut states: Box<control::SmErrorStates> = Box::default();
            states.target_channel = self.channels[0].object.0;
            // CAST: 100.
            states.count = (total - first).min(control::SM_STATES as u32);
            states.first = first;
            self.gpu.rm().control(debugger, &control::READ_ALL_SM_ERROR_STATES, &mut *states)?;
            let stopped = |state: &control::SmErrorState| state.global_esr != 0 || state.warp_esr != 0;
            for (sm, state) in (first..).zip(states.states.iter().take(states.count as usize)) {
                if stopped(state) {
                    errors.push(SmError {
                        sm,
                        global_esr: state.global_esr,
                        warp_esr: state.warp_esr,
                        pc: state.warp_esr_pc64,
                        address: state.esr_address,
                    });
                }
            }
            first += control::SM_STATES as u32;
        }
        Ok(errors)
    }

    /// Disables scheduling of the group.
    ///
    /// # Errors
    ///
    /// If the driver rejects the request.
    pub fn stop(&self) -> Result<()> {
        let mut schedule = control::GpfifoSchedule::default();
        self.gpu.rm().control(self.group.object, &control::GPFIFO_SCHEDULE, &mut schedule)
    }

    /// Sleeps until a channel of the GPU executes NON_STALL_INTERRUPT, at most `timeout`. Returns `false` if the driver
    /// does not support such waits.
    pub fn sleep(&self, timeout: Duration) -> bool {
        let Some(file) = &self.completion else { return false };
        file.poll(Events::IN | Events::PRIORITY, timeout).is_ok()
    }
}

impl Drop for ChannelGroup {
    fn drop(&mut self) {
        let rm = self.gpu.rm();
        for channel in &mut self.channels {
            // This stops the channel first.
            self.gpu.space().unregister_channel(channel.object);
        }
        if let Some(debugger) = self.debugger.take() {
            rm.free_or_log(self.gpu.device(), debugger, "debugger");
        }
        let group = self.group.object;
        for channel in &self.channels {
            rm.free_or_log(group, channel.object, "channel");
        }
        if let Some(share) = self.share {
            rm.free_or_log(group, share, "context share");
        }
        for channel in &mut self.channels {
            if let Some(context) = channel.context.take() {
                self.gpu.space().release(context);
            }
        }
    }
}

/// Returns the number of a copy engine that accesses system memory and is not tied to graphics; prefers an unshared
/// one.
fn free_copy_engine(gpu: &Gpu) -> Result<u32> {
    let engines = gpu.copy_engines()?;
    let fitting = engines.iter().filter(|engine| !engine.graphics && engine.system_memory);
    let best = fitting.min_by_key(|engine| engine.shared).map(|engine| engine.number);
    best.ok_or_else(|| {
        Error::Invalid("the GPU has no copy engine besides the one of the graphics engine".to_owned())
    })
}

/// Opens a file that becomes ready when an engine of the GPU executes NON_STALL_INTERRUPT.
fn completion_file(gpu: &Gpu) -> Result<DoorFd> {
    let rm = gpu.rm();
    let file = rm::open(rm.door(), rm::CONTROL_NODE)?;
    let fd =
        u32::try_from(file.raw()).map_err(|_| Error::Invalid("the descriptor is negative".to_owned()))?;
    let mut argument =
        escape::AllocOsEvent { client: rm.client().0, device: gpu.device().0, fd, ..Default::default() };
    // SAFETY: no addresses inside.
    unsafe { rm::escape(&file, "ALLOC_OS_EVENT", escape::ALLOC_OS_EVENT, &mut argument) }?;
    rm::check("ALLOC_OS_EVENT", "a completion file", argument.status)?;
    let mut parameters = alloc::Event {
        parent_client: rm.client().0,
        source: gpu.subdevice().0,
        class: alloc::EVENT.number,
        notify_index: alloc::NOTIFIER_FIFO_EVENT | alloc::EVENT_NON_STALL | alloc::EVENT_WITHOUT_DATA,
        data: u64::from(fd),
    };
    rm.alloc(gpu.subdevice(), &alloc::EVENT, &mut parameters)?;
    Ok(file)
}
