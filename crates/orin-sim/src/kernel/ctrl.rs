//! The control node (`os/linux/ioctl_ctrl.c`): queries, and creation of all other objects.

use gpu_log::{ChannelLine, MemoryLine};
use nvgpu_sys::ctrl::{
    self as abi, AllocAs, Characteristics, EngineInfoItem, FlushL2, FlushL2Operations, GetCharacteristics,
    GetCpuTimeCorrelationInfo, GetEngineInfo, GetFbpL2Masks, GetGpcLogicalMap, GetGpcPhysicalMap, GetGpuTime,
    GetTpcMasks, NumVsms, OpenChannel, OpenTsg, OpenTsgFlags, SetDeterministicOpts, SmDebugMode,
    TpcExceptionEnStatus, VsmsMapping, VsmsMappingEntry, ZcullGetCtxSize, ZcullGetInfo, code,
};
use rustix::io::Errno;
use rustix::time::{ClockId, clock_gettime};
use zerocopy::{Immutable, IntoBytes};

use crate::gpu::ptimer_ns;

use super::Kernel;
use super::address_space::{KERNEL_BYTES, Space};
use super::argument::{Argument, Code};
use super::channel::RUNLIST_GR;
use super::log::DEVICE;
use super::process::fds::{self, Object};
use super::process::task::Task;

/// Alignment of an address space's bounds: the range of one lowest-level page directory.
const BOUNDS_ALIGNMENT: u64 = 2 << 20;
/// Address range of the MMU, in bytes.
const MMU_BYTES: u64 = 1 << 49;
/// The runlist of the asynchronous copy engine. The engine is known to have its own runlist; the number is an
/// assumption.
const RUNLIST_COPY: u32 = 1;
/// Size of a depth-culling context as reported by the board, in bytes.
const ZCULL_BYTES: u32 = 164_352;
/// Slices of an L2 partition, one bit per slice.
const L2_SLICES: u32 = 0xf;

/// Requests that return EINVAL if the GPU cannot be powered on.
const POWER_IS_INVALID: [u32; 3] =
    [code::GET_CHARACTERISTICS, code::SET_MMUDEBUG_MODE, code::GET_CPU_TIME_CORRELATION_INFO];
/// WAIT_FOR_PAUSE, RESUME_FROM_PAUSE and TRIGGER_SUSPEND, which ga10b does not implement.
const NOT_ON_GA10B: [u32; 3] = [code::WAIT_FOR_PAUSE, code::RESUME_FROM_PAUSE, code::TRIGGER_SUSPEND];
/// GET_EVENT_FD, the four sensor requests and SET_THERM_ALERT_LIMIT. Their features are disabled.
const FEATURE_OFF: [u32; 6] = [
    code::GET_EVENT_FD,
    code::GET_VOLTAGE,
    code::GET_CURRENT,
    code::GET_POWER,
    code::GET_TEMPERATURE,
    code::SET_THERM_ALERT_LIMIT,
];

/// Requests of R39 that are not modelled.
const NOT_MODELLED: [u32; 4] = [
    code::GET_PPC_MASKS,
    code::GET_ROP_MASKS,
    code::GET_FBP_LOCAL_TO_PHYSICAL_MAP,
    code::GET_FBP_LOCAL_TO_LOGICAL_MAP,
];

/// Return value of this node's ioctls besides 0: the number of bytes that did not reach a user buffer.
type Residue = i32;

/// Copies as many of `items` as fit into `capacity` bytes. Several handlers return the residue.
fn copy_items<T: IntoBytes + Immutable>(
    task: &Task<'_>,
    items: &[T],
    capacity: u64,
    address: u64,
) -> Residue {
    let bytes = items.as_bytes();
    // CAST: at most the length of a table of this file.
    let len = capacity.min(bytes.len() as u64) as usize;
    task.write_bytes(address, &bytes[..len]) as Residue
}

/// Copies `items` if the caller gave exactly their size.
fn copy_exactly(task: &Task<'_>, items: &[u32], capacity: u32, address: u64) -> Result<(), Errno> {
    let bytes = items.as_bytes();
    if capacity as usize != bytes.len() {
        return Err(Errno::INVAL);
    }
    if task.write_bytes(address, bytes) > 0 { Err(Errno::FAULT) } else { Ok(()) }
}

impl Kernel {
    pub(super) fn ctrl_ioctl(
        &self,
        task: &Task<'_>,
        instance: u64,
        code: Code,
        address: u64,
    ) -> Result<i32, Errno> {
        self.check(code, abi::FAMILY, self.config.characteristics.gpu_ioctl_nr_last, abi::ALL)?;
        let mut argument = Argument::copy_in(task, code, address)?;
        self.power_up();
        // Which requests work without the GPU is unknown; in the model none does.
        if self.state.lock().quiesced {
            return Err(if POWER_IS_INVALID.contains(&code.code) { Errno::INVAL } else { Errno::NODEV });
        }
        let residue = match code.code {
            code::ALLOC_AS | code::OPEN_TSG | code::OPEN_CHANNEL => {
                self.make(instance, &mut argument)?;
                0
            }
            code::GET_GPU_TIME | code::GET_CPU_TIME_CORRELATION_INFO => {
                times(&mut argument)?;
                0
            }
            _ => self.query(instance, code, &mut argument)?,
        };
        Ok(if residue > 0 { residue } else { argument.residue() })
    }

    /// Handles the requests that create descriptors.
    fn make(&self, instance: u64, argument: &mut Argument<'_>) -> Result<(), Errno> {
        let task = argument.task();
        match argument.code() {
            code::ALLOC_AS => argument.call(|args: &mut AllocAs| self.alloc_as(task, args)),
            code::OPEN_TSG => argument.call(|args: &mut OpenTsg| self.open_tsg(task, instance, args)),
            _ => argument.call(|args: &mut OpenChannel| self.open_channel(task, args)),
        }
    }

    /// Handles the requests that query the chip.
    fn query(&self, instance: u64, code: Code, argument: &mut Argument<'_>) -> Result<Residue, Errno> {
        let (task, mut residue) = (argument.task(), 0);
        match code.code {
            code::GET_CHARACTERISTICS => argument.call(|args: &mut GetCharacteristics| {
                let all = Characteristics { device_instance_id: instance, ..self.config.characteristics };
                let bytes = all.write(self.config.release);
                let capacity = args.gpu_characteristics_buf_size;
                residue = copy_items(task, &bytes, capacity, args.gpu_characteristics_buf_addr);
                args.gpu_characteristics_buf_size = bytes.len() as u64;
                Ok(())
            })?,
            code::GET_TPC_MASKS => argument.call(|args: &mut GetTpcMasks| {
                let masks = self.config.tpc_masks;
                residue = copy_items(task, &masks, u64::from(args.mask_buf_size), args.mask_buf_addr);
                // CAST: 8.
                args.mask_buf_size = size_of_val(&masks) as u32;
                Ok(())
            })?,
            code::GET_FBP_L2_MASKS => argument.call(|args: &mut GetFbpL2Masks| {
                let present = self.config.characteristics.fbp_en_mask;
                let masks = [0, 1].map(|partition| L2_SLICES * (present >> partition & 1));
                residue = copy_items(task, &masks, u64::from(args.mask_buf_size), args.mask_buf_addr);
                // CAST: 8.
                args.mask_buf_size = size_of_val(&masks) as u32;
                Ok(())
            })?,
            code::NUM_VSMS => argument.call(|args: &mut NumVsms| {
                args.num_vsms = self.config.sm_count();
                Ok(())
            })?,
            code::VSMS_MAPPING => argument.call(|args: &mut VsmsMapping| {
                residue = copy_items(task, &self.vsms(), u64::MAX, args.vsms_map_buf_addr);
                Ok(())
            })?,
            code::GET_ENGINE_INFO => argument.call(|args: &mut GetEngineInfo| {
                let engines = engines();
                let capacity = u64::from(args.engine_info_buf_size) / size_of::<EngineInfoItem>() as u64;
                // CAST: at most the number of engines.
                let fit = capacity.min(engines.len() as u64) as usize;
                for (at, engine) in (0_u64..).zip(&engines[..fit]) {
                    // Copied one by one, up to the first one that cannot be stored.
                    let address = args.engine_info_buf_addr.wrapping_add(at * size_of_val(engine) as u64);
                    residue = copy_items(task, core::slice::from_ref(engine), u64::MAX, address);
                    if residue > 0 {
                        return Ok(());
                    }
                }
                // CAST: a few dozen bytes.
                args.engine_info_buf_size = size_of_val(&engines) as u32;
                Ok(())
            })?,
            code::GET_GPC_LOCAL_TO_PHYSICAL_MAP => argument.call(|args: &mut GetGpcPhysicalMap| {
                copy_exactly(task, &self.gpcs(), args.map_buf_size, args.physical_gpc_buf_addr)
            })?,
            code::GET_GPC_LOCAL_TO_LOGICAL_MAP => argument.call(|args: &mut GetGpcLogicalMap| {
                // CAST: at most two.
                let logical: Vec<u32> = (0..self.gpcs().len() as u32).collect();
                copy_exactly(task, &logical, args.map_buf_size, args.logical_gpc_buf_addr)
            })?,
            code::FLUSH_L2 => argument.call(|args: &mut FlushL2| flush_l2(args))?,
            // CAST: at most 8.
            code::CLK_GET_VF_POINTS => residue = self.clock_points(argument)? as Residue,
            code::CLK_GET_RANGE | code::CLK_GET_INFO | code::CLK_SET_INFO => {
                self.clock(instance, argument)?;
            }
            code::REGISTER_BUFFER
            | code::GET_BUFFER_INFO
            | code::PREPARE_COMPRESSIBLE_READ
            | code::MARK_COMPRESSIBLE_WRITE
            | code::ALLOC_VIDMEM
            | code::GET_MEMORY_STATE => self.buffer_request(argument)?,
            code::SET_DETERMINISTIC_OPTS => argument.call(|args: &mut SetDeterministicOpts| {
                self.state.lock().set_deterministic_opts(task, args)
            })?,
            code::SET_MMUDEBUG_MODE => {}
            code::SET_SM_DEBUG_MODE => argument.call(|args: &mut SmDebugMode| {
                self.state.lock().fds.channel(task, args.channel_fd).map(|_| ()).ok_or(Errno::INVAL)
            })?,
            code::GET_TPC_EXCEPTION_EN_STATUS => argument.call(|args: &mut TpcExceptionEnStatus| {
                // Every SM reports exceptions.
                args.tpc_exception_en_sm_mask = (1 << self.config.sm_count()) - 1;
                Ok(())
            })?,
            // The geometry of depth culling is unknown.
            code::ZCULL_GET_INFO => argument.call(|args: &mut ZcullGetInfo| {
                *args = ZcullGetInfo::default();
                Ok(())
            })?,
            code::ZCULL_GET_CTX_SIZE => argument.call(|args: &mut ZcullGetCtxSize| {
                args.size = ZCULL_BYTES;
                Ok(())
            })?,
            code::ZBC_SET_TABLE | code::ZBC_QUERY_TABLE => self.clear_values(argument)?,
            code::CLEAR_SM_ERRORS => {
                for tsg in self.state.lock().tsgs.values_mut() {
                    tsg.sm_errors.fill(Default::default());
                }
            }
            other if NOT_ON_GA10B.contains(&other) => return Err(Errno::NOSYS),
            other if FEATURE_OFF.contains(&other) => return Err(Errno::INVAL),
            _ => return Err(self.unhandled(code, &NOT_MODELLED)),
        }
        Ok(residue)
    }

    /// Positions of the GPCs with TPCs.
    fn gpcs(&self) -> Vec<u32> {
        // CAST: two positions.
        let masks = self.config.tpc_masks.iter().enumerate();
        masks.filter(|(_, mask)| **mask != 0).map(|(gpc, _)| gpc as u32).collect()
    }

    /// The position of each SM: SMs 2k and 2k + 1 belong to TPC k.
    fn vsms(&self) -> Vec<VsmsMappingEntry> {
        let mut entries = Vec::new();
        let present = self.config.tpc_masks.iter().filter(|mask| **mask != 0);
        for (gpc, mask) in present.enumerate() {
            for tpc in 0..mask.count_ones() {
                for sm in 0..2 {
                    // CAST: two GPCs of at most 32 TPCs with two SMs.
                    entries.push(VsmsMappingEntry {
                        gpc_logical_index: gpc as u8,
                        gpc_virtual_index: gpc as u8,
                        tpc_local_logical_index: tpc as u8,
                        tpc_global_logical_index: (entries.len() / 2) as u8,
                        sm_local_id: sm,
                        tpc_migratable_index: tpc as u8,
                    });
                }
            }
        }
        entries
    }

    fn alloc_as(&self, task: &Task<'_>, args: &mut AllocAs) -> Result<(), Errno> {
        let descriptor = fds::descriptor(task, |number| format!("nvhost-ga10b-fd{number}"))?;
        if args.big_page_size != 0 {
            // Not a power of two, or not a big-page size of this chip, which has none.
            return Err(Errno::INVAL);
        }
        let aligned = |bound: u64| bound != 0 && bound.is_multiple_of(BOUNDS_ALIGNMENT);
        let (start, end) = (args.va_range_start, args.va_range_end);
        if !aligned(start) || !aligned(end) || start >= end || args.va_range_split != 0 {
            return Err(Errno::INVAL);
        }
        if end.checked_add(KERNEL_BYTES).is_none_or(|end| end > MMU_BYTES) {
            self.log.kernel_warning(
                task,
                "vm.c:0",
                "nvgpu_vm_do_init",
                Some(MemoryLine::SpaceOverlap.into()),
            );
            return Err(Errno::NOMEM);
        }
        let mut state = self.state.lock();
        let id = state.add_space(Space::new(start, end));
        let installed = state.fds.insert(task, descriptor, Object::Space(id));
        // Without a descriptor it is unused.
        args.as_fd = installed.inspect_err(|_| state.reap())?;
        Ok(())
    }

    fn open_tsg(&self, task: &Task<'_>, instance: u64, args: &mut OpenTsg) -> Result<(), Errno> {
        let share = OpenTsgFlags::from_bits_retain(args.flags).contains(OpenTsgFlags::SHARE);
        let (source, token) = (args.source_device_instance_id, args.share_token);
        let refused = if share { source == 0 || token == 0 } else { source != 0 || token != 0 };
        if refused {
            let line = if share { ChannelLine::TokenMissing } else { ChannelLine::TokenWithoutFlag };
            self.log.error("gk20a_ctrl_open_tsg", line);
            return Err(Errno::INVAL);
        }
        let descriptor = fds::descriptor(task, |number| format!("nvgpu-ga10b-tsg{number}"))?;
        let mut state = self.state.lock();
        let id = if share {
            state.redeem(instance, args).inspect_err(|_| {
                self.log.error("nvgpu_ioctl_tsg_open", ChannelLine::TokenInvalid);
            })?
        } else {
            state.add_tsg(self.config.sm_count(), instance)?
        };
        // CAST: a descriptor is never negative.
        let installed = state.fds.insert(task, descriptor, Object::Tsg(id));
        args.tsg_fd = installed.inspect_err(|_| state.reap())? as u32;
        Ok(())
    }

    pub(super) fn open_channel(&self, task: &Task<'_>, args: &mut OpenChannel) -> Result<(), Errno> {
        let descriptor = fds::descriptor(task, |number| format!("nvhost-{DEVICE}-fd{number}"))?;
        let runlist = match args.runlist_id_or_fd {
            abi::RUNLIST_GR => RUNLIST_GR,
            other => u32::try_from(other).map_err(|_| {
                self.log.kernel_warning(task, "channel.c:0", "nvgpu_channel_open_new", None);
                Errno::INVAL
            })?,
        };
        if ![RUNLIST_GR, RUNLIST_COPY].contains(&runlist) {
            return Err(Errno::INVAL);
        }
        let mut state = self.state.lock();
        let (id, serial) = state.add_channel(task, runlist).ok_or(Errno::NOMEM)?;
        let installed = state.fds.insert(task, descriptor, Object::Channel { id, serial });
        args.runlist_id_or_fd = installed.inspect_err(|_| state.remove_channel(id))?;
        Ok(())
    }
}

/// The engines: graphics with its two copy engines on one runlist, and a copy engine on its own runlist.
fn engines() -> [EngineInfoItem; 4] {
    let engine = |engine_id, engine_instance, runlist: u32| EngineInfoItem {
        engine_id,
        engine_instance,
        // CAST: 0 or 1.
        runlist_id: runlist as i32,
        reserved: 0,
    };
    [
        engine(abi::ENGINE_GR, 0, RUNLIST_GR),
        engine(abi::ENGINE_GR_COPY, 0, RUNLIST_GR),
        engine(abi::ENGINE_GR_COPY, 1, RUNLIST_GR),
        engine(abi::ENGINE_ASYNC_COPY, 0, RUNLIST_COPY),
    ]
}

/// Only makes the checks, because the model has no caches.
fn flush_l2(args: &FlushL2) -> Result<(), Errno> {
    let operations = FlushL2Operations::from_bits_retain(args.operations);
    let flush = operations.contains(FlushL2Operations::L2_FLUSH);
    let nothing = !flush && !operations.contains(FlushL2Operations::FB_FLUSH);
    if nothing || operations.contains(FlushL2Operations::L2_INVALIDATE) && !flush {
        return Err(Errno::INVAL);
    }
    Ok(())
}

/// Handles the clock-reading requests.
fn times(argument: &mut Argument<'_>) -> Result<(), Errno> {
    if argument.code() == code::GET_GPU_TIME {
        return argument.call(|args: &mut GetGpuTime| {
            args.gpu_timestamp = ptimer_ns();
            Ok(())
        });
    }
    argument.call(|args: &mut GetCpuTimeCorrelationInfo| {
        if args.count > abi::TIME_CORRELATION_MAX_COUNT {
            return Err(Errno::INVAL);
        }
        // CAST: clocks past their epoch; their nanoseconds fit 64 bits.
        let nanoseconds = |clock| {
            let now = clock_gettime(clock);
            now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
        };
        let cpu: &dyn Fn() -> u64 = match args.source_id {
            // The counter of arm64 at 31.25 MHz.
            abi::TIME_SOURCE_TSC => &|| nanoseconds(ClockId::Monotonic) / 32,
            // Microseconds since the epoch.
            abi::TIME_SOURCE_OSTIME => &|| nanoseconds(ClockId::Realtime) / 1000,
            _ => return Err(Errno::INVAL),
        };
        for sample in args.samples.iter_mut().take(args.count as usize) {
            sample.gpu_timestamp = ptimer_ns();
            sample.cpu_timestamp = cpu();
        }
        Ok(())
    })
}
