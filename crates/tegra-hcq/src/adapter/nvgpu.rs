//! The Orin's kernel driver, nvgpu with nvmap, on a board or in the software Orin.

use core::ptr::NonNull;
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use gpu_hal::{
    AddressRange, ChannelGroup, Channels, DeviceMemory, Driver, ErrorCode, Evidence, FenceCounter,
    FencePoint, FileAccess, FileId, MemoryInfo, MemoryUse, Owner, Preemption, Properties, Result, SmLayout,
    SmRecord, SubmitPointers, SubmitRing, chip,
};
use kernel_door::layout::Uapi;
use kernel_door::{Door, DoorFd, KernelLog};
use nvgpu_channel::{
    AddressSpace, Channel, ErrorNotifier, FenceNode, Gpu, GpuVa, LOCAL_WINDOW, MapOptions, SHARED_WINDOW,
    SMS_PER_TPC, SyncpointWindow, Threshold, Tsg, TsgEvent, UserSyncpoint, VA_END, VA_START, open_kernel_log,
};
use nvmap::{CacheMode, DmaBufFile};
use parking_lot::Mutex;
use rustix::io::Errno;
use zerocopy::IntoBytes;

use crate::encodings::Mapping as Flags;

mod memory;

use memory::{NvgpuFile, NvgpuMemory, NvgpuRange};

/// The bits of a work-submit token that hold the channel id.
const CHANNEL_BITS: u32 = 0xfff;

/// An opened Orin GPU with one address space.
#[derive(Debug)]
pub(crate) struct Nvgpu {
    properties: Properties,
    // Declared before `gpu`: the log is read through the same door.
    log: Mutex<KernelLog>,
    space: AddressSpace,
    /// Flags of GPU mappings.
    mapping: Flags,
    /// From the first fence as a file on.
    fences: OnceLock<Fences>,
    gpu: Gpu,
}

/// What waits for fences as files need.
#[derive(Debug)]
struct Fences {
    node: FenceNode,
    window: SyncpointWindow,
}

impl Nvgpu {
    /// Opens the GPU behind `door` and creates its address space.
    pub(crate) fn open(door: &Arc<dyn Door>, mapping: Option<Flags>) -> Result<Self> {
        let log = Mutex::new(open_kernel_log(door));
        let gpu = Gpu::open(door)?;
        let space = gpu.address_space()?;
        let properties = properties(&gpu);
        let mapping = mapping.unwrap_or(Flags::Plain);
        Ok(Self { properties, log, space, mapping, fences: OnceLock::new(), gpu })
    }

    /// The node and window of syncpoints, opened by the first call.
    fn fences(&self) -> Result<&Fences> {
        if let Some(fences) = self.fences.get() {
            return Ok(fences);
        }
        let node = FenceNode::open(self.gpu.door())?;
        let window = self.space.syncpoint_window()?;
        // Of two threads, one closes its own again.
        Ok(self.fences.get_or_init(|| Fences { node, window }))
    }

    /// How memory for a purpose is mapped on the GPU.
    fn options(&self, purpose: MemoryUse) -> MapOptions {
        // The host engine polls signals and reads commands, and no command can invalidate before it is read.
        // CPU and GPU may use unified memory at the same time.
        // What other processes and drivers write invalidates nothing here.
        let shared = matches!(
            purpose,
            MemoryUse::Signals | MemoryUse::Commands | MemoryUse::Unified | MemoryUse::Shared
        );
        MapOptions {
            gpu_cached: self.mapping == Flags::L2Cached && !shared,
            coherent: self.mapping == Flags::SystemCoherent,
            ..MapOptions::default()
        }
    }
}

/// Properties of the GPU, as reported by the driver.
fn properties(gpu: &Gpu) -> Properties {
    let characteristics = gpu.characteristics();
    let raw = characteristics.raw();
    Properties {
        chip: characteristics.chip_name(),
        compute_class: characteristics.compute_class(),
        copy_class: characteristics.copy_class(),
        gpfifo_class: characteristics.gpfifo_class(),
        sm_version: characteristics.sm_version(),
        gpc_count: characteristics.gpc_count(),
        // No GPU of this driver has clusters of blocks.
        gpc_sms: Vec::new(),
        tpc_count: characteristics.sm_count().div_ceil(SMS_PER_TPC),
        sm_count: characteristics.sm_count(),
        // The driver reports 96, twice the warps that an SM of compute capability 8.7 holds.
        warps_per_sm: chip::of(characteristics.sm_version())
            .map_or(raw.sm_arch_warp_count, |chip| chip.sm.warps),
        // The driver's number costs memory, and is the one that ran on a board.
        local_layout: SmLayout {
            warps_per_sm: raw.sm_arch_warp_count,
            sm_per_tpc: SMS_PER_TPC,
            tpc_count: characteristics.gpc_count() * characteristics.tpcs_per_gpc(),
        },
        unified_memory: true,
        l2_bytes: characteristics.l2_bytes(),
        max_clock_hz: characteristics.max_frequency_hz(),
        va_start: VA_START.0,
        va_end: VA_END.0,
        shared_window: SHARED_WINDOW.0,
        local_window: LOCAL_WINDOW.0,
        driver: driver_fields(raw),
    }
}

/// The numbers of the driver's characteristics under their names in the driver's header, without text and padding.
/// Signed numbers are negative where the driver reports "none".
fn driver_fields(raw: &nvgpu_sys::ctrl::Characteristics) -> Vec<(&'static str, i64)> {
    let bytes = raw.as_bytes();
    let is_text = |name: &str| name == "chipname" || name.starts_with("pad") || name.starts_with("reserved");
    <nvgpu_sys::ctrl::Characteristics as Uapi>::FIELDS
        .iter()
        .filter(|field| field.size <= 8 && !is_text(field.name))
        .map(|field| {
            let mut word = [0; 8];
            word[..field.size].copy_from_slice(&bytes[field.offset..field.offset + field.size]);
            let value = u64::from_le_bytes(word);
            // The only signed field whose value can be negative.
            let none = field.name == "numa_domain_id" && value == u64::from(u32::MAX);
            (field.name, if none { -1 } else { value.cast_signed() })
        })
        .collect()
}

/// A compute and a copy channel on a separate TSG.
#[derive(Debug)]
struct NvgpuChannels {
    // A channel is not `Sync`. The lock keeps it open; submissions never take it.
    channels: Mutex<[Channel; 2]>,
    notifiers: [ErrorNotifier; 2],
    completion: TsgEvent,
    preemption: Preemption,
    tsg: Tsg,
}

impl NvgpuChannels {
    /// The rings of the compute and the copy channel. Each call creates new rings, so it is called once per group.
    fn rings(self: &Arc<Self>) -> [SubmitRing; 2] {
        let channels = self.channels.lock();
        channels.each_ref().map(|channel| {
            let pointers = SubmitPointers {
                slots: channel.ring_pointer(),
                entries: channel.entries(),
                userd: channel.userd_pointer(),
                doorbell: channel.doorbell().register(),
                token: channel.token(),
            };
            let owner: Owner = Arc::<Self>::clone(self);
            // SAFETY: `owner` keeps the channel open, which keeps slots, USERD and doorbell mapped. The channel's own
            // `submit` is never called, so this ring is the only producer.
            unsafe { SubmitRing::new(pointers, owner) }
        })
    }
}

// SAFETY: a reset takes the whole TSG out of service, and the kernel sets the notifier after it has done so; the rings
// are the channels' own.
unsafe impl ChannelGroup for NvgpuChannels {
    fn error(&self) -> Option<ErrorCode> {
        self.notifiers.iter().find_map(ErrorNotifier::fault).map(|fault| fault.code)
    }

    fn channel_ids(&self) -> Vec<u32> {
        let channels = self.channels.lock();
        channels.iter().map(|channel| channel.token() & CHANNEL_BITS).collect()
    }

    fn preemption(&self) -> Option<Preemption> {
        Some(self.preemption)
    }

    fn abort(&self) -> Result<()> {
        if self.error().is_some() {
            // The kernel has already stopped the group.
            return Ok(());
        }
        let channels = self.channels.lock();
        // One reset takes the whole TSG out of service.
        Ok(channels[0].force_reset()?)
    }

    fn sleep(&self, timeout: Duration) -> bool {
        self.completion.wait(timeout).is_ok()
    }

    fn fence_counter(self: Arc<Self>) -> Result<Box<dyn FenceCounter>> {
        let syncpoint = self.channels.lock()[0].user_syncpoint()?;
        let node = FenceNode::open(self.tsg.gpu().door())?;
        Ok(Box::new(Syncpoint { node, syncpoint, _channels: self }))
    }

    fn evidence(&self) -> Evidence {
        let sms = 0..self.tsg.gpu().characteristics().sm_count();
        let records: Vec<_> = sms
            .filter_map(|sm| match self.tsg.sm_error_state(sm) {
                Ok(state) if (state.global_esr, state.warp_esr) == (0, 0) => None,
                // The driver does not report the address of the access.
                Ok(state) => Some(SmRecord { warp_esr: state.warp_esr, pc: state.warp_esr_pc, address: 0 }),
                Err(error) => {
                    tracing::debug!(%error, sm, "the driver does not report the SM's error");
                    None
                }
            })
            .collect();
        Evidence::of_sms(&records)
    }
}

/// The syncpoint of a compute channel.
#[derive(Debug)]
struct Syncpoint {
    node: FenceNode,
    /// With its value when it was opened.
    syncpoint: UserSyncpoint,
    /// Keep the syncpoint.
    _channels: Arc<NvgpuChannels>,
}

// SAFETY: a write to the window of a syncpoint increments it (`nvgpu_channel::fence`); the window exists as long as the
// address space, which the channels keep.
unsafe impl FenceCounter for Syncpoint {
    fn gpu_va(&self) -> u64 {
        self.syncpoint.gpu_va.0
    }

    fn file(&self, increments: u32) -> Result<OwnedFd> {
        let fence = self.node.fence(self.syncpoint.after(increments))?;
        // The process closes it without the door.
        Ok(duplicate(fence.fd().as_fd())?)
    }
}

/// A duplicate of a descriptor, closed on exec.
fn duplicate(fd: BorrowedFd<'_>) -> Result<OwnedFd, nvgpu_channel::Error> {
    rustix::io::fcntl_dupfd_cloexec(fd, 0).map_err(refused("dup"))
}

/// The error of a system call on a file that was passed in.
fn refused(call: &'static str) -> impl FnOnce(Errno) -> nvgpu_channel::Error {
    move |errno| nvgpu_channel::Error::Call { call, object: "the file".into(), errno }
}

/// Sets the finest preemption that the driver accepts. In the default mode, a long kernel blocks all other users of the
/// GPU: the driver ends it after 3 s, and closing its channel before its end can leave the engine stuck.
fn finest_preemption(compute: &Channel) -> Result<Preemption> {
    for mode in [Preemption::Instruction, Preemption::Block] {
        match compute.set_preemption(mode) {
            Ok(()) => return Ok(mode),
            Err(error) if error.errno() == Some(Errno::INVAL) => {
                tracing::warn!(%error, %mode, "the driver refuses this preemption of kernels");
            }
            Err(error) => return Err(error.into()),
        }
    }
    Ok(Preemption::Wait)
}

// SAFETY: the kernel reports the properties, which do not change, and owns memory and channels.
unsafe impl Driver for Nvgpu {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn allocate(&self, bytes: u64, purpose: MemoryUse, label: &str) -> Result<Box<dyn DeviceMemory>> {
        let cache = match purpose {
            // Write-combined for the CPU; GPU reads do not snoop the CPU's caches.
            MemoryUse::Upload => CacheMode::WriteCombined,
            // Cached by the CPU, kept coherent by the SoC.
            _ => CacheMode::InnerCacheable,
        };
        let nvmap = self.gpu.nvmap();
        let buffer = |bytes| nvmap.buffer(bytes).cache(cache).label(label);
        let options = self.options(purpose);
        if purpose == MemoryUse::Shared {
            // One object, which a file can stand for.
            return Ok(Box::new(NvgpuMemory::map(&self.space, buffer(bytes).allocate()?, options)?));
        }
        if purpose == MemoryUse::Unified {
            return Ok(Box::new(NvgpuMemory::unified(nvmap, &self.space, bytes, buffer, options)?));
        }
        Ok(Box::new(NvgpuMemory::allocate(nvmap, &self.space, bytes, buffer, options)?))
    }

    unsafe fn import(
        &self,
        pointer: NonNull<u8>,
        bytes: usize,
        label: &str,
    ) -> Result<Box<dyn DeviceMemory>> {
        // SAFETY: the contract of `Driver::import` is that of `import_host`.
        let buffer = unsafe { self.gpu.nvmap().import_host(pointer, bytes, label)? };
        Ok(Box::new(NvgpuMemory::map(&self.space, buffer, self.options(MemoryUse::Device))?))
    }

    fn import_file(
        &self,
        file: BorrowedFd<'_>,
        access: FileAccess,
        label: &str,
    ) -> Result<Box<dyn DeviceMemory>> {
        let file = DmaBufFile::new(self.gpu.door(), file, label)?;
        Ok(Box::new(NvgpuFile::map(&self.space, file, access, self.options(MemoryUse::Shared))?))
    }

    fn reserve(&self, bytes: u64, at: Option<u64>) -> Result<Box<dyn AddressRange>> {
        let reservation = match at {
            Some(va) => self.space.reserve_fixed(GpuVa(va), bytes, false)?,
            None => self.space.reserve(bytes, false)?,
        };
        let door = Arc::clone(self.gpu.door());
        Ok(Box::new(NvgpuRange::new(reservation, door, self.options(MemoryUse::Shared))))
    }

    fn file_id(&self, file: BorrowedFd<'_>, access: FileAccess) -> Result<Option<FileId>> {
        let flags = rustix::fs::fcntl_getfl(file).map_err(refused("fcntl"))?;
        if access.is_writable() && !flags.contains(rustix::fs::OFlags::RDWR) {
            return Ok(None);
        }
        memory::file_id(file).map(Some)
    }

    fn fence_points(&self, file: BorrowedFd<'_>) -> Result<Vec<FencePoint>> {
        let Fences { node, window } = self.fences()?;
        // SAFETY: a new descriptor of the process, which nothing else owns.
        let file = unsafe { DoorFd::from_raw(self.gpu.door(), duplicate(file)?.into_raw_fd()) };
        let point = |Threshold { id, value }| {
            let rule = "the kernel has no such syncpoint";
            let va = window.address(id).ok_or(nvgpu_channel::Error::Range {
                what: "syncpoint of the fence",
                value: id.into(),
                rule,
            })?;
            Ok(FencePoint { va: va.0, value, id })
        };
        node.thresholds(&file)?.into_iter().map(point).collect()
    }

    fn memory_info(&self) -> Option<MemoryInfo> {
        let usage = self.gpu.nvmap().system_memory().ok()?;
        let largest = usage.largest_allocation();
        Some(MemoryInfo { total: usage.total_bytes, available: usage.free_bytes, largest })
    }

    fn clock_pair(&self) -> Result<(u64, SystemTime)> {
        let gpu_ns = self.gpu.time_ns()?;
        let clock = self.gpu.wall_clock()?;
        Ok((gpu_ns, clock.system_time(gpu_ns).unwrap_or(SystemTime::UNIX_EPOCH)))
    }

    fn open_channels(&self) -> Result<Channels> {
        let tsg = self.gpu.tsg()?;
        let subcontext = tsg.subcontext(&self.space)?;
        let compute = subcontext.channel(self.properties.compute_class).label("compute channel").open()?;
        let copy = subcontext.channel(self.properties.copy_class).label("copy channel").open()?;
        let notifiers = [compute.notifier().clone(), copy.notifier().clone()];
        let completion = tsg.completion_event()?;
        let preemption = finest_preemption(&compute)?;
        let channels = Mutex::new([compute, copy]);
        let group = NvgpuChannels { channels, notifiers, completion, preemption, tsg };
        let group = Arc::new(group);
        let [compute, copy] = group.rings();
        Ok(Channels { group, compute, copy })
    }

    /// The door, and the descriptor of the address space behind it.
    fn watcher(&self) -> Option<gpu_hal::Token> {
        let space = self.space.fd();
        space.door().software()?;
        Some(Arc::new((Arc::clone(space.door()), space.raw())))
    }

    fn kernel_log(&self) -> Result<Vec<String>, String> {
        self.log.lock().read()
    }
}
