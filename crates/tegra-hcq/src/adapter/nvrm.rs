//! NVIDIA's desktop and data-centre driver.
//!
//! Commands, launch records, rings and data are in video memory, which the CPU sees through BAR1. Memory that the CPU
//! polls or reads is system memory. Notifier, debugger object and the `Xid` lines of the kernel log explain faults.

use core::ptr::NonNull;
use std::os::fd::BorrowedFd;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use gpu_hal::chip::PeerCopies;
use gpu_hal::{
    AddressRange, ChannelGroup, Channels, CopyChannel, DeviceMemory, Driver, ErrorCode, Evidence, FileAccess,
    MemoryInfo, MemoryUse, Owner, PeerLink, Properties, Refusal, Result, SmLayout, SmRecord, SubmitPointers,
    SubmitRing, Token,
};
use kernel_door::{Door, KernelLog};
use nvrm::{
    ChannelGroup as Group, Engine, Gpu, HostImport, Memory, PeerMemory, Place, Reservation, SharedMemory,
};
use parking_lot::Mutex;

use crate::kind::Which;

/// The bits of a work-submit token that hold the channel id.
const CHANNEL_BITS: u32 = 0xfff;

/// The refusal of objects of other drivers.
const STRANGER: gpu_hal::Error = gpu_hal::Error::Unsupported("memory of another driver's devices");

/// An opened GPU with one address space.
#[derive(Debug)]
pub(crate) struct Nvrm {
    properties: Properties,
    log: Mutex<KernelLog>,
    gpu: Arc<Gpu>,
}

impl Nvrm {
    /// Opens a GPU of the driver.
    pub(crate) fn open(door: &Arc<dyn Door>, which: Which) -> Result<Self> {
        let log = Mutex::new(KernelLog::open(door, gpu_log::is_about_the_gpu));
        let gpu = match which {
            Which::Index(index) => Gpu::open(door, index)?,
            Which::Pci { domain, bus, slot } => Gpu::open_at(door, (domain, bus, slot))?,
        };
        Ok(Self { properties: properties(&gpu), log, gpu })
    }
}

fn properties(gpu: &Gpu) -> Properties {
    let seen = gpu.properties();
    let classes = gpu.chip().classes.value;
    let (domain, bus, slot) = seen.pci;
    Properties {
        chip: seen.name.clone(),
        compute_class: classes.compute.number,
        copy_class: classes.copy.number,
        gpfifo_class: classes.channel.number,
        sm_version: seen.sm_version,
        gpc_count: seen.gpcs,
        gpc_sms: seen.gpc_sms.clone(),
        tpc_count: seen.tpcs,
        sm_count: seen.tpcs * seen.sms_per_tpc,
        warps_per_sm: seen.warps_per_sm,
        local_layout: SmLayout {
            warps_per_sm: seen.warps_per_sm,
            sm_per_tpc: seen.sms_per_tpc,
            // The maximum of the generation.
            tpc_count: seen.gpcs * seen.tpcs_per_gpc,
        },
        unified_memory: false,
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

/// A compute and a copy channel, or a copy channel alone.
#[derive(Debug)]
struct NvrmChannels {
    group: Group,
    /// The channel for copies to and from other GPUs.
    link: OnceLock<Group>,
    // Keeps the doorbell mapped.
    gpu: Arc<Gpu>,
}

impl NvrmChannels {
    fn new(group: Group, gpu: &Arc<Gpu>) -> Arc<Self> {
        Arc::new(Self { group, link: OnceLock::new(), gpu: Arc::clone(gpu) })
    }

    fn pair(group: Group, gpu: &Arc<Gpu>) -> Channels {
        let group = Self::new(group, gpu);
        let (compute, copy) = (group.ring(Engine::Compute), group.ring(Engine::Copy));
        Channels { group, compute, copy }
    }

    fn groups(&self) -> impl Iterator<Item = &Group> {
        core::iter::once(&self.group).chain(self.link.get())
    }

    /// The ring of an engine's channel. Each call creates a new ring, so it is called once per engine.
    fn ring(self: &Arc<Self>, engine: Engine) -> SubmitRing {
        self.ring_of(&self.group, engine)
    }

    /// As [`NvrmChannels::ring`], for one of the groups.
    fn ring_of(self: &Arc<Self>, group: &Group, engine: Engine) -> SubmitRing {
        let pointers = SubmitPointers {
            slots: group.ring(engine),
            entries: nvrm::RING_ENTRIES,
            userd: group.userd(engine),
            doorbell: self.gpu.doorbell(),
            token: group.token(engine),
        };
        let owner: Owner = Arc::<Self>::clone(self);
        // SAFETY: `owner` keeps its groups, whose memory contains slots and USERD, and the GPU, which contains the
        // doorbell. The ring is their only writer on the CPU.
        unsafe { SubmitRing::new(pointers, owner) }.write_combined()
    }
}

// SAFETY: RM takes the groups off the runlist and waits for the engines to leave them, also before it reports an error
// of one; the rings are the channels' own.
unsafe impl ChannelGroup for NvrmChannels {
    fn error(&self) -> Option<ErrorCode> {
        self.groups().find_map(Group::error).map(|error| code(error.xid))
    }

    fn channel_ids(&self) -> Vec<u32> {
        let ids =
            |group: &'_ Group| group.engines().map(|engine| group.token(engine) & CHANNEL_BITS).collect();
        self.groups().flat_map(|group| -> Vec<u32> { ids(group) }).collect()
    }

    fn abort(&self) -> Result<()> {
        // Both, even if one cannot be stopped.
        let results: Vec<_> = self.groups().map(Group::stop).collect();
        Ok(results.into_iter().collect::<nvrm::Result<()>>()?)
    }

    fn sleep(&self, timeout: Duration) -> bool {
        self.group.sleep(timeout)
    }

    fn open_link(self: Arc<Self>) -> Result<Option<SubmitRing>> {
        let Some(group) = Group::open_link(&self.gpu)? else { return Ok(None) };
        let group = self.link.get_or_init(|| group);
        Ok(Some(self.ring_of(group, Engine::Copy)))
    }

    fn open_beside(&self) -> Result<Option<Channels>> {
        Ok(Some(Self::pair(self.group.open_beside()?, &self.gpu)))
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

/// The default value for an answer that the driver did not give.
fn silent<T: Default>(what: &str, error: &nvrm::Error) -> T {
    tracing::debug!(%error, "the driver does not report {what}");
    T::default()
}

/// The error code of an Xid. Copy engines and a context-switch time-out have numbers of their own.
fn code(xid: u32) -> ErrorCode {
    match xid {
        109 => ErrorCode::IdleTimeout,
        39..=41 | 70..=72 | 75..=77 | 85 => ErrorCode::CopyEngineFault,
        number => ErrorCode::from_raw(number),
    }
}

// SAFETY: RM reports the properties, which do not change, and owns memory and channels.
unsafe impl Driver for Nvrm {
    fn properties(&self) -> &Properties {
        &self.properties
    }

    fn allocate(&self, bytes: u64, purpose: MemoryUse, _label: &str) -> Result<Box<dyn DeviceMemory>> {
        let place = match purpose {
            MemoryUse::Unified => return Ok(Box::new(Memory::unified(&self.gpu, bytes)?)),
            MemoryUse::Upload | MemoryUse::ReadBack | MemoryUse::Signals => Place::System,
            _ => Place::Video,
        };
        Ok(Box::new(Memory::new(&self.gpu, place, bytes)?))
    }

    unsafe fn import(
        &self,
        pointer: NonNull<u8>,
        bytes: usize,
        _label: &str,
    ) -> Result<Box<dyn DeviceMemory>> {
        // SAFETY: the contract of `Driver::import` is that of `HostImport::new`.
        Ok(Box::new(unsafe { HostImport::new(&self.gpu, pointer, bytes)? }))
    }

    fn import_file(
        &self,
        file: BorrowedFd<'_>,
        access: FileAccess,
        _label: &str,
    ) -> Result<Box<dyn DeviceMemory>> {
        if !access.is_writable() {
            return Err(gpu_hal::Error::Unsupported("imports for reading only"));
        }
        Ok(Box::new(Memory::import(&self.gpu, file)?))
    }

    fn reserve(&self, bytes: u64, at: Option<u64>) -> Result<Box<dyn AddressRange>> {
        if at.is_some() {
            return Err(gpu_hal::Error::Unsupported("reserving given addresses"));
        }
        Ok(Box::new(Reservation::new(&self.gpu, bytes)?))
    }

    fn memory_info(&self) -> Option<MemoryInfo> {
        let (total, free) = self.gpu.video_memory().ok()?;
        Some(MemoryInfo { total, available: free, largest: free })
    }

    fn clock_pair(&self) -> Result<(u64, SystemTime)> {
        let before = SystemTime::now();
        let gpu_ns = self.gpu.time_ns();
        // The read takes about a microsecond; the GPU's clock is sampled about halfway through.
        let span = before.elapsed().unwrap_or_default();
        Ok((gpu_ns, before + span / 2))
    }

    fn copies_by_kernel_from(&self) -> Option<u64> {
        self.gpu.chip().tuning.copies_by_kernel_from
    }

    fn peer_copies(&self) -> PeerCopies {
        self.gpu.chip().tuning.peers
    }

    fn reads_by_engine_from(&self) -> Option<usize> {
        self.gpu.chip().tuning.reads_by_engine_from
    }

    fn writes_by_engine_from(&self) -> Option<usize> {
        self.gpu.chip().tuning.writes_by_engine_from
    }

    fn open_channels(&self) -> Result<Channels> {
        Ok(NvrmChannels::pair(Group::open(&self.gpu)?, &self.gpu))
    }

    fn open_copy_channel(&self) -> Result<CopyChannel> {
        let group = NvrmChannels::new(Group::open_copy(&self.gpu)?, &self.gpu);
        let copy = group.ring(Engine::Copy);
        Ok(CopyChannel { group, copy })
    }

    fn token(&self) -> Option<Token> {
        Some(Arc::<Gpu>::clone(&self.gpu))
    }

    fn connect(&self, other: &Token) -> Result<Option<PeerLink>> {
        let other = Arc::clone(other).downcast::<Gpu>().map_err(|_| STRANGER)?;
        Ok(self.gpu.connect(&other)?.and_then(|link| match link {
            nvrm::PeerLink::Same => Some(PeerLink::Same),
            nvrm::PeerLink::NvLink => Some(PeerLink::NvLink),
            nvrm::PeerLink::Pcie => Some(PeerLink::Pcie),
            _ => None,
        }))
    }

    fn map_peer(&self, memory: &Token) -> Result<Box<dyn DeviceMemory>> {
        let memory = memory.downcast_ref::<SharedMemory>().ok_or(STRANGER)?;
        Ok(Box::new(PeerMemory::new(&self.gpu, memory)?))
    }

    fn kernel_log(&self) -> Result<Vec<String>, String> {
        self.log.lock().read()
    }
}
