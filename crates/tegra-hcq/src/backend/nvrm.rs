//! The back end of NVIDIA's desktop and data-centre driver, for GPUs of the Hopper generation.
//!
//! Commands, launch records, rings and data lie in video memory, which the CPU sees through BAR1; what the CPU
//! polls or reads lies in system memory. Errors are explained by the notifier, the debugger object and the
//! kernel log's `Xid` lines.

use core::ptr::NonNull;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use nvgpu_channel::{ErrorCode, KernelLog, Ring};
use nvgpu_sys::Door;
use nvrm::{ChannelGroup as NvrmGroup, Gpu, HostImport, Memory, Place};

use super::{
    Backend, ChannelGroup, DeviceMemory, Engine, Evidence, MemoryInfo, MemoryUse, Properties, Refusal,
    SmRecord, SubmitRing,
};
use crate::device::DeviceKind;
use crate::error::Result;

/// The bits of a work-submit token that are the channel's number.
const CHANNEL_BITS: u32 = 0xfff;
/// Bytes from which the SMs copy faster than the copy engine tied to graphics, which moves some 94 GB/s on an H200.
const COPIES_BY_KERNEL: u64 = 128 << 10;
/// Bytes from which the copy engine brings data to the CPU faster than loads through BAR1, which take 6 us for 4 KiB on an
/// H200.
const READS_BY_ENGINE: usize = 4 << 10;
/// Classes of the Hopper generation: compute, copy, channel.
const CLASSES: [u32; 3] = [0xcbc0, 0xc8b5, 0xc86f];

/// An opened GPU with one address space.
#[derive(Debug)]
pub(crate) struct NvrmBackend {
    properties: Properties,
    log: Mutex<KernelLog>,
    gpu: Arc<Gpu>,
}

impl NvrmBackend {
    /// Opens the first GPU of the driver.
    pub(crate) fn open(door: &Arc<dyn Door>) -> Result<Self> {
        let log = Mutex::new(KernelLog::open(door));
        let gpu = Gpu::open(door, 0)?;
        Ok(Self { properties: properties(&gpu), log, gpu })
    }
}

fn properties(gpu: &Gpu) -> Properties {
    let seen = gpu.properties();
    let [compute_class, copy_class, gpfifo_class] = CLASSES;
    let (domain, bus, slot) = seen.pci;
    Properties {
        kind: DeviceKind::Nvrm,
        chip: seen.name.clone(),
        compute_class,
        copy_class,
        gpfifo_class,
        sm_version: seen.sm_version,
        gpc_count: seen.gpcs,
        // As many as the generation can have: local memory is laid out by their numbers.
        tpc_count: seen.gpcs * seen.tpcs_per_gpc,
        sm_count: seen.tpcs * seen.sms_per_tpc,
        warps_per_sm: seen.warps_per_sm,
        l2_bytes: seen.l2_bytes,
        max_clock_hz: 0,
        va_start: nvrm::VA_START,
        va_end: nvrm::VA_END,
        shared_window: nvrm::SHARED_WINDOW,
        local_window: nvrm::LOCAL_WINDOW,
        driver: vec![
            ("driver_major", i64::from(seen.driver.major)),
            ("driver_minor", i64::from(seen.driver.minor)),
            ("driver_patch", i64::from(seen.driver.patch)),
            ("device_minor", i64::from(seen.minor)),
            ("pci_domain", i64::from(domain)),
            ("pci_bus", i64::from(bus)),
            ("pci_slot", i64::from(slot)),
            ("bar1_bytes", seen.bar1_bytes.cast_signed()),
        ],
    }
}

impl DeviceMemory for Memory {
    fn gpu_va(&self) -> u64 {
        Self::gpu_va(self)
    }

    fn cpu(&self) -> NonNull<u8> {
        Self::cpu(self)
    }
}

impl DeviceMemory for HostImport {
    fn gpu_va(&self) -> u64 {
        Self::gpu_va(self)
    }

    fn cpu(&self) -> NonNull<u8> {
        Self::cpu(self)
    }
}

/// A compute and a copy channel, or the latter alone.
#[derive(Debug)]
struct NvrmChannels {
    group: NvrmGroup,
    // Keeps the doorbell.
    gpu: Arc<Gpu>,
}

fn engine(engine: Engine) -> nvrm::Engine {
    match engine {
        Engine::Compute => nvrm::Engine::Compute,
        Engine::Copy => nvrm::Engine::Copy,
    }
}

impl ChannelGroup for NvrmChannels {
    fn ring(&self, which: Engine) -> SubmitRing {
        let which = engine(which);
        let (slots, userd) = (self.group.ring(which), self.group.userd(which));
        // SAFETY: slots and USERD are valid for the group's life, and whoever asks for the ring gives it up
        // before the group is dropped; nothing else writes them.
        let ring = unsafe { Ring::new(slots, userd, nvrm::RING_ENTRIES) };
        // SAFETY: the doorbell lives as long as the GPU, which `self` keeps.
        unsafe { SubmitRing::new(ring, self.gpu.doorbell(), self.group.token(which)) }.write_combined()
    }

    fn error(&self) -> Option<ErrorCode> {
        self.group.error().map(|error| code(error.xid))
    }

    fn channel_ids(&self) -> Vec<u32> {
        self.group.engines().map(|engine| self.group.token(engine) & CHANNEL_BITS).collect()
    }

    fn abort(&self) -> Result<()> {
        Ok(self.group.stop()?)
    }

    fn sleep(&self, timeout: Duration) -> bool {
        self.group.sleep(timeout)
    }

    fn evidence(&self) -> Evidence {
        let errors = self.group.sm_errors().unwrap_or_else(|error| silent("the SMs' errors", &error));
        let records: Vec<_> = errors
            .iter()
            .map(|error| SmRecord { warp_esr: error.warp_esr, pc: error.pc, address: error.address })
            .collect();
        let mmu = self.group.mmu_fault().unwrap_or_else(|error| silent("the MMU's faults", &error));
        let mmu = mmu.map(|fault| Refusal {
            address: fault.address,
            kind: fault.fault_type,
            access: fault.access_type,
        });
        Evidence { mmu, ..Evidence::of_sms(&records) }
    }
}

/// What stands for an answer that the driver did not give.
fn silent<T: Default>(what: &str, error: &nvrm::Error) -> T {
    tracing::debug!(%error, "the driver does not tell {what}");
    T::default()
}

/// The error code of an Xid: the numbers are the same in both drivers, but for those of copy engines and of a context
/// switch that takes too long.
fn code(xid: u32) -> ErrorCode {
    match xid {
        109 => ErrorCode::IdleTimeout,
        39..=41 | 70..=72 | 75..=77 | 85 => ErrorCode::CopyEngineFault,
        number => ErrorCode::from_raw(number),
    }
}

impl Backend for NvrmBackend {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn allocate(&self, bytes: u64, purpose: MemoryUse, _label: &str) -> Result<Box<dyn DeviceMemory>> {
        let place = match purpose {
            MemoryUse::Device | MemoryUse::Commands => Place::Video,
            MemoryUse::Upload | MemoryUse::ReadBack | MemoryUse::Signals => Place::System,
        };
        Ok(Box::new(Memory::new(&self.gpu, place, bytes)?))
    }

    unsafe fn import(
        &self,
        pointer: NonNull<u8>,
        bytes: usize,
        _label: &str,
    ) -> Result<Box<dyn DeviceMemory>> {
        // SAFETY: the caller's promise is passed on.
        Ok(Box::new(unsafe { HostImport::new(&self.gpu, pointer, bytes)? }))
    }

    fn memory_info(&self) -> Option<MemoryInfo> {
        let (total, free) = self.gpu.video_memory().ok()?;
        Some(MemoryInfo { total, free })
    }

    fn clock_pair(&self) -> Result<(u64, SystemTime)> {
        let before = SystemTime::now();
        let gpu_ns = self.gpu.time_ns();
        // The read takes about a microsecond: the clock was read in its middle.
        let span = before.elapsed().unwrap_or_default();
        Ok((gpu_ns, before + span / 2))
    }

    fn copies_by_kernel_from(&self) -> Option<u64> {
        Some(COPIES_BY_KERNEL)
    }

    fn reads_by_engine_from(&self) -> Option<usize> {
        Some(READS_BY_ENGINE)
    }

    fn open_channels(&self) -> Result<Box<dyn ChannelGroup>> {
        let group = NvrmGroup::open(&self.gpu)?;
        Ok(Box::new(NvrmChannels { group, gpu: Arc::clone(&self.gpu) }))
    }

    fn open_copy_channel(&self) -> Result<Box<dyn ChannelGroup>> {
        let group = NvrmGroup::open_copy(&self.gpu)?;
        Ok(Box::new(NvrmChannels { group, gpu: Arc::clone(&self.gpu) }))
    }

    fn kernel_log(&self) -> Result<Vec<String>, String> {
        let mut log = self.log.lock().unwrap_or_else(PoisonError::into_inner);
        match log.unavailable() {
            Some(reason) => Err(reason.to_owned()),
            None => Ok(log.drain()),
        }
    }
}
