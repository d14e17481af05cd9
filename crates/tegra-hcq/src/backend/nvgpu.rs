//! The back end of the Orin's own kernel driver, nvgpu with nvmap, real or modelled.

use core::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use nvgpu_channel::{
    AddressSpace, Channel, ErrorCode, ErrorNotifier, Gpu, KernelLog, LOCAL_WINDOW, MapOptions, Mapping, Ring,
    SHARED_WINDOW, Tsg, TsgEvent, VA_END, VA_START,
};
use nvgpu_sys::Door;
use nvgpu_sys::layout::Uapi;
use nvmap::{Buffer, CacheMode};
use zerocopy::IntoBytes;

use super::{
    Backend, ChannelGroup, DeviceMemory, Engine, Evidence, MemoryInfo, MemoryUse, Properties, SmRecord,
    SubmitRing,
};
use crate::device::DeviceKind;
use crate::error::Result;

/// The bits of a work-submit token that are the channel's number.
const CHANNEL_BITS: u32 = 0xfff;

/// An opened Orin GPU with one address space.
#[derive(Debug)]
pub(crate) struct NvgpuBackend {
    properties: Properties,
    // Before `gpu`: the log is read through the same door.
    log: Mutex<KernelLog>,
    space: AddressSpace,
    gpu: Gpu,
}

impl NvgpuBackend {
    /// Opens the GPU behind `door` and makes its address space.
    pub(crate) fn open(door: Arc<dyn Door>, kind: DeviceKind) -> Result<Self> {
        let log = Mutex::new(KernelLog::open(&door));
        let gpu = Gpu::open(&door)?;
        let space = gpu.address_space()?;
        let properties = properties(&gpu, kind);
        Ok(Self { properties, log, space, gpu })
    }
}

impl NvgpuBackend {
    fn map(&self, buffer: Buffer) -> Result<Box<dyn DeviceMemory>> {
        let mapping = self.space.map(&Arc::new(buffer), MapOptions::default())?;
        Ok(Box::new(NvgpuMemory { mapping }))
    }
}

/// What the driver says about the GPU, in this crate's terms.
fn properties(gpu: &Gpu, kind: DeviceKind) -> Properties {
    let characteristics = gpu.characteristics();
    let raw = characteristics.raw();
    Properties {
        kind,
        chip: characteristics.chip_name(),
        compute_class: characteristics.compute_class(),
        copy_class: characteristics.copy_class(),
        gpfifo_class: characteristics.gpfifo_class(),
        sm_version: characteristics.sm_version(),
        gpc_count: characteristics.gpc_count(),
        tpc_count: characteristics.gpc_count() * characteristics.tpcs_per_gpc(),
        sm_count: characteristics.sm_count(),
        // An SM of compute capability 8.7 holds 48 warps, the driver reports 96. The larger number
        // costs memory and was proven on a board.
        warps_per_sm: raw.sm_arch_warp_count,
        l2_bytes: characteristics.l2_bytes(),
        max_clock_hz: characteristics.max_frequency_hz(),
        va_start: VA_START.0,
        va_end: VA_END.0,
        shared_window: SHARED_WINDOW.0,
        local_window: LOCAL_WINDOW.0,
        driver: driver_fields(raw),
    }
}

/// Every number of the driver's characteristics under its name in the driver's header. Text and padding
/// are left out; signed numbers are negative where the driver says "none".
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

/// One nvmap buffer with its GPU mapping.
#[derive(Debug)]
struct NvgpuMemory {
    mapping: Mapping,
}

impl DeviceMemory for NvgpuMemory {
    fn gpu_va(&self) -> u64 {
        self.mapping.va().0
    }

    fn cpu(&self) -> NonNull<u8> {
        self.mapping.buffer().pointer()
    }
}

/// A compute and a copy channel on a TSG of their own.
#[derive(Debug)]
struct NvgpuChannels {
    // A channel is not `Sync`; here it is only kept open, behind a lock that submissions never take.
    channels: Mutex<[Channel; 2]>,
    notifiers: [ErrorNotifier; 2],
    completion: TsgEvent,
    tsg: Tsg,
}

impl ChannelGroup for NvgpuChannels {
    fn ring(&self, engine: Engine) -> SubmitRing {
        let channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        let channel = match engine {
            Engine::Compute => &channels[0],
            Engine::Copy => &channels[1],
        };
        // SAFETY: slots and USERD are valid for the channel's life, and whoever asks for the ring
        // gives it up before the group is dropped; the channel's own `submit` is never called, so
        // this ring is the only producer.
        let ring = unsafe { Ring::new(channel.ring_pointer(), channel.userd_pointer(), channel.entries()) };
        // SAFETY: the doorbell lives at least as long as the channel.
        unsafe { SubmitRing::new(ring, channel.doorbell().register(), channel.token()) }
    }

    fn error(&self) -> Option<ErrorCode> {
        self.notifiers.iter().find_map(ErrorNotifier::fault).map(|fault| fault.code)
    }

    fn channel_ids(&self) -> Vec<u32> {
        let channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        channels.iter().map(|channel| channel.token() & CHANNEL_BITS).collect()
    }

    fn abort(&self) -> Result<()> {
        if self.error().is_some() {
            // The kernel has done it already.
            return Ok(());
        }
        let channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        // One reset takes the whole TSG out of service.
        Ok(channels[0].force_reset()?)
    }

    fn sleep(&self, timeout: Duration) -> bool {
        self.completion.wait(timeout).is_ok()
    }

    fn evidence(&self) -> Evidence {
        let sms = 0..self.tsg.gpu().characteristics().sm_count();
        let records: Vec<_> = sms
            .filter_map(|sm| match self.tsg.sm_error_state(sm) {
                Ok(state) if (state.global_esr, state.warp_esr) == (0, 0) => None,
                // Nothing tells the address of the access.
                Ok(state) => Some(SmRecord { warp_esr: state.warp_esr, pc: state.warp_esr_pc, address: 0 }),
                Err(error) => {
                    tracing::debug!(%error, sm, "the driver does not tell the SM's error");
                    None
                }
            })
            .collect();
        Evidence::of_sms(&records)
    }
}

impl Backend for NvgpuBackend {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn allocate(&self, bytes: u64, purpose: MemoryUse, label: &str) -> Result<Box<dyn DeviceMemory>> {
        let cache = match purpose {
            // Stores are gathered and the GPU's reads need not look into the CPU's caches.
            MemoryUse::Upload => CacheMode::WriteCombined,
            // Cached by the CPU and kept coherent by the SoC.
            MemoryUse::Device | MemoryUse::ReadBack | MemoryUse::Signals | MemoryUse::Commands => {
                CacheMode::InnerCacheable
            }
        };
        let buffer: Buffer = self.gpu.nvmap().buffer(bytes).cache(cache).label(label).allocate()?;
        self.map(buffer)
    }

    unsafe fn import(
        &self,
        pointer: NonNull<u8>,
        bytes: usize,
        label: &str,
    ) -> Result<Box<dyn DeviceMemory>> {
        // SAFETY: the caller's promise is passed on.
        let buffer = unsafe { self.gpu.nvmap().import_host(pointer, bytes, label)? };
        self.map(buffer)
    }

    fn memory_info(&self) -> Option<MemoryInfo> {
        let usage = self.gpu.nvmap().system_memory().ok()?;
        Some(MemoryInfo { total: usage.total_bytes, free: usage.free_bytes })
    }

    fn clock_pair(&self) -> Result<(u64, SystemTime)> {
        let gpu_ns = self.gpu.time_ns()?;
        let clock = self.gpu.wall_clock()?;
        Ok((gpu_ns, clock.system_time(gpu_ns).unwrap_or(SystemTime::UNIX_EPOCH)))
    }

    fn open_channels(&self) -> Result<Box<dyn ChannelGroup>> {
        let tsg = self.gpu.tsg()?;
        let subcontext = tsg.subcontext(&self.space)?;
        let compute = subcontext.channel(self.properties.compute_class).label("compute channel").open()?;
        let copy = subcontext.channel(self.properties.copy_class).label("copy channel").open()?;
        let notifiers = [compute.notifier().clone(), copy.notifier().clone()];
        let completion = tsg.completion_event()?;
        Ok(Box::new(NvgpuChannels { channels: Mutex::new([compute, copy]), notifiers, completion, tsg }))
    }

    fn kernel_log(&self) -> Result<Vec<String>, String> {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        match log.unavailable() {
            Some(reason) => Err(reason.to_owned()),
            None => Ok(log.drain()),
        }
    }
}
