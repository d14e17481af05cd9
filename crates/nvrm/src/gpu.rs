//! An open GPU: its files, objects, doorbell page and clock.

use core::ptr::NonNull;
use core::sync::atomic::{AtomicU32, Ordering};
use std::collections::BTreeMap;
use std::sync::Arc;

use gpu_hal::chip::{self, Chip, ClassId, Usermode};
use kernel_door::{Door, DoorFd, DoorMapping, DoorRange, Errno, Protection};

use crate::abi::{alloc, control, escape};
use crate::error::{Error, Result};
use crate::memory::{Memory, PeerMemory, Place};
use crate::rm::{self, Object, Rm, escape, text};
use crate::space::{PeerLink, Space};
use crate::version::Version;

/// Length of the doorbell page in bytes.
const USERMODE_BYTES: usize = 64 << 10;
/// Offset of the doorbell: NOTIFY_CHANNEL_PENDING (`clc661.h`).
const DOORBELL: usize = 0x90;
/// Offsets of the halves of the clock: TIME_0, TIME_1 (`clc661.h`).
const TIME: [usize; 2] = [0x80, 0x84];
/// Access to a register page: reads and writes.
const REGISTERS: Protection = Protection::READ.union(Protection::WRITE);
/// First address and size of the GPU's address space: 49 bits without the first page.
const SPACE: (u64, u64) = (0x1000, 0x1_ffff_fb00_0000);
/// First handle that this crate chooses; the driver chooses large numbers.
const FIRST_HANDLE: u32 = 0x1000;

/// Identity of a GPU.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Properties {
    /// Name of the product, for example `NVIDIA H200`.
    pub name: String,
    /// Version of the driver.
    pub driver: Version,
    /// Number of the node `/dev/nvidiaN`.
    pub minor: u32,
    /// PCI address: domain, bus, slot.
    pub pci: (u32, u8, u8),
    /// Number of graphics processing clusters (GPCs) of the chip.
    pub gpcs: u32,
    /// Number of TPCs present.
    pub tpcs: u32,
    /// Number of SMs of each GPC, as the scheduler of clusters sees them; empty if the driver does not report them.
    pub gpc_sms: Vec<u32>,
    /// Maximum number of TPCs per GPC.
    pub tpcs_per_gpc: u32,
    /// Streaming multiprocessors (SMs) per TPC.
    pub sms_per_tpc: u32,
    /// Maximum number of resident warps per SM.
    pub warps_per_sm: u32,
    /// SM version, major and minor.
    pub sm_version: (u32, u32),
    /// Size of the L2 cache in bytes.
    pub l2_bytes: u64,
    /// Size of BAR1 in bytes: the amount of video memory that the CPU can map.
    pub bar1_bytes: u64,
}

/// An open GPU with an address space.
#[derive(Debug)]
pub struct Gpu {
    properties: Properties,
    chip: &'static Chip,
    /// Write-only if mapped through BAR1.
    doorbell: DoorMapping,
    registers: DoorMapping,
    space: Space,
    subdevice: Object,
    device: Object,
    va_space: Object,
    handles: AtomicU32,
    // Keeps the GPU initialised.
    file: DoorFd,
    rm: Rm,
}

/// Number of copy engines with engine types from [`alloc::ENGINE_COPY0`].
const COPY_ENGINES: u32 = 10;

/// A copy engine (`NV2080_CTRL_CE_CAPS_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CopyEngine {
    /// Number of the engine.
    pub number: u32,
    /// Whether the engine is tied to the graphics engine.
    pub graphics: bool,
    /// Whether the engine shares hardware with others.
    pub shared: bool,
    /// Whether the engine accesses system memory.
    pub system_memory: bool,
    /// Whether the engine is meant for copies over NVLink.
    pub nvlink: bool,
    /// Whether the engine copies between GPUs.
    pub peers: bool,
}

/// A GPU of the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Listed {
    /// Number of the node `/dev/nvidiaN`.
    pub minor: u32,
    /// PCI address: domain, bus, slot.
    pub pci: (u32, u8, u8),
}

impl From<&escape::CardInfo> for Listed {
    fn from(card: &escape::CardInfo) -> Self {
        Self { minor: card.minor_number, pci: pci(card) }
    }
}

/// The PCI address of a GPU: domain, bus, slot.
fn pci(card: &escape::CardInfo) -> (u32, u8, u8) {
    let [domain, location, _] = card.pci_info;
    let [bus, slot, ..] = location.to_le_bytes();
    (domain, bus, slot)
}

/// Whether this process may open a GPU: a container often has the nodes of some of the machine's GPUs only.
fn is_accessible(rm: &Rm, card: &escape::CardInfo) -> bool {
    let opened = rm::open(rm.door(), &rm::device_node(card.minor_number));
    !matches!(opened, Err(Error::Open { errno: Errno::NOENT | Errno::ACCESS | Errno::PERM, .. }))
}

/// Returns the GPUs of the driver that this process may open, in the order of the driver's list, until `enough` holds.
fn accessible(rm: &Rm, mut enough: impl FnMut(&[escape::CardInfo]) -> bool) -> Result<Vec<escape::CardInfo>> {
    let mut found = Vec::new();
    for card in cards(rm)? {
        if is_accessible(rm, &card) {
            found.push(card);
            if enough(&found) {
                break;
            }
        }
    }
    Ok(found)
}

/// Returns the GPUs of the driver, in the order of its list.
fn cards(rm: &Rm) -> Result<Vec<escape::CardInfo>> {
    let mut cards = [escape::CardInfo::default(); escape::CARDS];
    // SAFETY: the array contains no addresses.
    unsafe { escape(rm.ctl(), "CARD_INFO", escape::CARD_INFO, &mut cards) }?;
    Ok(cards.into_iter().filter(|card| card.valid != 0).collect())
}

/// Opens a file of the GPU and registers the control file with it.
fn open_file(rm: &Rm, minor: u32) -> Result<DoorFd> {
    let file = rm::open(rm.door(), &rm::device_node(minor))?;
    let mut register = escape::RegisterFd { ctl_fd: rm.ctl().raw() };
    // SAFETY: the argument contains no addresses.
    unsafe { escape(&file, "REGISTER_FD", escape::REGISTER_FD, &mut register) }?;
    Ok(file)
}

impl Gpu {
    /// Returns the GPUs of the driver that this process may open, in the order of the driver's list.
    ///
    /// # Errors
    ///
    /// If the driver is absent or its release unsupported.
    pub fn list(door: &Arc<dyn Door>) -> Result<Vec<Listed>> {
        Ok(accessible(&Rm::open(door)?, |_| false)?.iter().map(Listed::from).collect())
    }

    /// Opens the GPU at `index` among those that this process may open, and creates an address space.
    ///
    /// # Errors
    ///
    /// If the driver is absent or its release unsupported, if the GPU does not exist or the chip table does not contain
    /// its generation, or if the driver rejects a step.
    pub fn open(door: &Arc<dyn Door>, index: usize) -> Result<Arc<Self>> {
        let rm = Rm::open(door)?;
        let cards = accessible(&rm, |found| found.len() > index)?;
        let card = *cards.get(index).ok_or(Error::NoGpu { index, count: cards.len() })?;
        Self::open_card(rm, card)
    }

    /// Opens the GPU at a PCI address (domain, bus, slot), and creates an address space.
    ///
    /// # Errors
    ///
    /// As [`Gpu::open`].
    pub fn open_at(door: &Arc<dyn Door>, address: (u32, u8, u8)) -> Result<Arc<Self>> {
        let rm = Rm::open(door)?;
        let cards = cards(&rm)?;
        let card = *cards.iter().find(|card| pci(card) == address).ok_or_else(|| {
            let list = cards.iter().map(pci).collect();
            Error::NoGpuAt { address, list }
        })?;
        Self::open_card(rm, card)
    }

    fn open_card(rm: Rm, card: escape::CardInfo) -> Result<Arc<Self>> {
        let file = open_file(&rm, card.minor_number)?;

        let mut id = control::IdInfo { gpu_id: card.gpu_id, ..Default::default() };
        rm.control(rm.client(), &control::GPU_GET_ID_INFO_V2, &mut id)?;
        let device = rm.alloc(
            rm.client(),
            &alloc::DEVICE,
            &mut alloc::Device {
                device_id: id.device_instance,
                client_share: rm.client().0,
                ..Default::default()
            },
        )?;
        let subdevice = rm.alloc(device, &alloc::SUBDEVICE, &mut alloc::Subdevice::default())?;
        let properties = properties(&rm, subdevice, &card)?;
        let (chip, doorbell) = known_chip(&rm, device, &properties)?;
        if !chip.was_tried() {
            tracing::warn!("{}", chip.tried());
        }
        // Without it the clocks may stay low, and every time is wrong by a factor. They are given back with
        // the client.
        let mut boost =
            control::PerfBoost { flags: control::PERF_BOOST_COMPUTE, duration: control::PERF_BOOST_FOREVER };
        if let Err(error) = rm.control(subdevice, &control::PERF_BOOST, &mut boost) {
            tracing::warn!(%error, "the clocks may stay low");
        }

        let usermode = |bar1| map_usermode(&rm, device, subdevice, card.minor_number, doorbell, bar1);
        let registers = usermode(false)?;
        let doorbell = match usermode(true) {
            Ok(doorbell) => doorbell,
            Err(error) => {
                tracing::debug!(%error, "the doorbell is rung through BAR0");
                usermode(false)?
            }
        };
        let flags = alloc::VA_SPACE_EXTERNALLY_OWNED | alloc::VA_SPACE_PAGE_FAULTING;
        let (va_base, va_size) = SPACE;
        let mut parameters = alloc::VaSpace { flags, va_base, va_size, ..Default::default() };
        let va_space = rm.alloc(device, &alloc::VA_SPACE, &mut parameters)?;
        let space = Space::open(&rm, uuid(&rm, subdevice)?, va_space)?;
        tracing::debug!(name = properties.name, driver = %properties.driver, "GPU opened");
        Ok(Arc::new(Self {
            properties,
            chip,
            doorbell,
            registers,
            space,
            subdevice,
            device,
            va_space,
            handles: AtomicU32::new(FIRST_HANDLE),
            file,
            rm,
        }))
    }

    /// Identity of the GPU.
    pub fn properties(&self) -> &Properties {
        &self.properties
    }

    /// The GPU's row of the chip table.
    pub fn chip(&self) -> &'static Chip {
        self.chip
    }

    /// Returns the GPU time in nanoseconds: the clock of semaphore timestamps.
    pub fn time_ns(&self) -> u64 {
        let read = |half: usize| {
            // SAFETY: the register is inside the page, which is mapped while `self` is alive.
            let register = unsafe { self.registers.pointer().add(TIME[half]) }.cast::<u32>();
            // SAFETY: as above, with a volatile load.
            u64::from(unsafe { register.as_ptr().read_volatile() })
        };
        loop {
            let (high, low) = (read(1), read(0));
            if read(1) == high {
                return high << 32 | low;
            }
        }
    }

    /// Pointer to the doorbell, for volatile stores of tokens while `self` is alive. Do not read it.
    pub fn doorbell(&self) -> NonNull<u32> {
        // SAFETY: the register is inside the page.
        unsafe { self.doorbell.pointer().add(DOORBELL) }.cast()
    }

    /// Returns the size of video memory for allocations, and the free part of it, in bytes.
    ///
    /// # Errors
    ///
    /// If the driver rejects the request.
    pub fn video_memory(&self) -> Result<(u64, u64)> {
        let [total, free] =
            fb_info(&self.rm, self.subdevice, [control::FB_HEAP_SIZE, control::FB_HEAP_FREE])?;
        Ok((u64::from(total) << 10, u64::from(free) << 10))
    }

    /// Returns the copy engines of the GPU.
    ///
    /// # Errors
    ///
    /// If the driver rejects the request.
    pub fn copy_engines(&self) -> Result<Vec<CopyEngine>> {
        let mut caps = control::CeAllCaps::default();
        self.rm.control(self.subdevice, &control::CE_GET_ALL_CAPS, &mut caps)?;
        let has = |number: u32, bit| caps.capabilities[number as usize * 2] & bit != 0;
        let present = (0..COPY_ENGINES).filter(|number| caps.present >> number & 1 != 0);
        Ok(present
            .map(|number| CopyEngine {
                number,
                graphics: has(number, control::CE_GRAPHICS),
                shared: has(number, control::CE_SHARED),
                system_memory: has(number, control::CE_SYSTEM_MEMORY),
                nvlink: has(number, control::CE_NVLINK),
                peers: has(number, control::CE_PEERS),
            })
            .collect())
    }

    /// Lets this GPU map memory of another ([`PeerMemory::new`](crate::PeerMemory::new)). Returns how it reaches the
    /// other's video memory; `None` if it cannot, and only the other's system memory can be mapped.
    ///
    /// # Errors
    ///
    /// If the driver rejects a step.
    pub fn connect(self: &Arc<Self>, other: &Arc<Self>) -> Result<Option<PeerLink>> {
        let link = self.space.join(other.space.uuid())?;
        // The driver does not say whether GPUs are peers, but refuses the mapping.
        let probe = Memory::new(other, Place::Video, 1)?;
        match PeerMemory::new(self, &probe.share()) {
            Ok(_) => Ok(Some(link)),
            Err(error) => {
                tracing::info!(%error, "a GPU cannot map the other's video memory");
                Ok(None)
            }
        }
    }

    pub(crate) fn rm(&self) -> &Rm {
        &self.rm
    }

    pub(crate) fn device(&self) -> Object {
        self.device
    }

    pub(crate) fn subdevice(&self) -> Object {
        self.subdevice
    }

    pub(crate) fn va_space(&self) -> Object {
        self.va_space
    }

    pub(crate) fn space(&self) -> &Space {
        &self.space
    }

    pub(crate) fn file(&self) -> &DoorFd {
        &self.file
    }

    /// Returns an unused handle.
    pub(crate) fn next_handle(&self) -> Object {
        Object(self.handles.fetch_add(1, Ordering::Relaxed))
    }

    /// Maps a memory object into the process, at the first addresses of a range if there is one; returns the mapping
    /// and its RM address.
    pub(crate) fn map_object(
        &self,
        object: Object,
        bytes: u64,
        is_video: bool,
        what: &'static str,
        range: Option<&mut DoorRange>,
    ) -> Result<(DoorMapping, u64)> {
        let file = if is_video {
            open_file(&self.rm, self.properties.minor)?
        } else {
            rm::open(self.rm.door(), rm::CONTROL_NODE)?
        };
        map(&self.rm, self.device, object, bytes, &file, what, range)
    }

    /// Undoes [`Gpu::map_object`], after the mapping itself was removed.
    pub(crate) fn unmap_object(&self, object: Object, linear: u64) {
        let mut argument = escape::RmUnmapMemory {
            client: self.rm.client().0,
            device: self.device.0,
            memory: object.0,
            linear_address: linear,
            ..Default::default()
        };
        // SAFETY: the address identifies a mapping of RM; it is not dereferenced.
        let result =
            unsafe { escape(self.rm.ctl(), "RM_UNMAP_MEMORY", escape::RM_UNMAP_MEMORY, &mut argument) };
        if let Err(error) = result.and_then(|()| rm::check("RM_UNMAP_MEMORY", "memory", argument.status)) {
            tracing::warn!(%error, "a mapping could not be removed; closing the GPU removes it");
        }
    }
}

impl Drop for Gpu {
    fn drop(&mut self) {
        // Channels and memory keep the GPU alive, so all are dropped. Closing the files frees the rest.
        self.space.close();
    }
}

/// Prepares `file` for one mapping of an object and maps it.
fn map(
    rm: &Rm,
    device: Object,
    object: Object,
    bytes: u64,
    file: &DoorFd,
    what: &'static str,
    range: Option<&mut DoorRange>,
) -> Result<(DoorMapping, u64)> {
    let mut argument = escape::RmMapMemory {
        client: rm.client().0,
        device: device.0,
        memory: object.0,
        length: bytes,
        fd: file.raw(),
        ..Default::default()
    };
    // SAFETY: the argument contains no address of the process.
    unsafe { escape(rm.ctl(), "RM_MAP_MEMORY", escape::RM_MAP_MEMORY, &mut argument) }?;
    rm::check("RM_MAP_MEMORY", what, argument.status)?;
    let fail = |errno| Error::Map { what, bytes, errno };
    let len = usize::try_from(bytes).map_err(|_| fail(kernel_door::Errno::NOMEM))?;
    let mapping = match range {
        Some(range) => file.map_in(range, 0, len, REGISTERS),
        None => file.map(0, len, REGISTERS),
    };
    Ok((mapping.map_err(fail)?, argument.linear_address))
}

/// Maps the page with doorbell and clock, through BAR1 or BAR0. Before Hopper there is no mapping through BAR1.
fn map_usermode(
    rm: &Rm,
    device: Object,
    subdevice: Object,
    minor: u32,
    usermode: Usermode,
    bar1: bool,
) -> Result<DoorMapping> {
    let usermode = if usermode.bar1 {
        let mut parameters = alloc::Usermode { bar1_mapping: u8::from(bar1), privileged: 0 };
        rm.alloc(subdevice, &alloc::usermode(usermode.class), &mut parameters)?
    } else {
        rm.alloc(subdevice, &alloc::usermode_bar0(usermode.class), &mut ())?
    };
    let file = open_file(rm, minor)?;
    map(rm, device, usermode, USERMODE_BYTES as u64, &file, "the doorbell page", None)
        .map(|(mapping, _)| mapping)
}

fn uuid(rm: &Rm, subdevice: Object) -> Result<[u8; 16]> {
    let mut gid = control::GidInfo { flags: 2, length: 16, ..Default::default() };
    rm.control(subdevice, &control::GPU_GET_GID_INFO, &mut gid)?;
    // PANIC: the array is longer than the index.
    Ok(gid.data[..16].try_into().expect("16 bytes"))
}

fn fb_info<const N: usize>(rm: &Rm, subdevice: Object, indices: [u32; N]) -> Result<[u32; N]> {
    // CAST: a handful.
    let mut info = control::FbInfo { count: N as u32, ..Default::default() };
    for (slot, index) in info.list.iter_mut().zip(indices) {
        slot[0] = index;
    }
    rm.control(subdevice, &control::FB_GET_INFO_V2, &mut info)?;
    Ok(core::array::from_fn(|at| info.list[at][1]))
}

fn gr_info<const N: usize>(rm: &Rm, subdevice: Object, indices: [u32; N]) -> Result<[u32; N]> {
    let mut list = indices.map(|index| [index, 0_u32]);
    let mut info = control::GrInfo {
        // CAST: a handful.
        count: N as u32,
        list: list.as_mut_ptr().expose_provenance() as u64,
        ..Default::default()
    };
    // SAFETY: the list has the stated number of elements and outlives the call.
    unsafe { rm.control_pointing(subdevice, &control::GR_GET_INFO, &mut info) }?;
    Ok(list.map(|[_, value]| value))
}

/// Number of SMs of each GPC; empty if the driver does not report them.
fn gpc_sms(rm: &Rm, subdevice: Object) -> Vec<u32> {
    let mut order = control::SmOrder::default();
    if rm.control(subdevice, &control::GR_GET_GLOBAL_SM_ORDER, &mut order).is_err() {
        return Vec::new();
    }
    let mut gpcs = BTreeMap::new();
    for sm in order.sms.iter().take(order.sm_count.into()) {
        *gpcs.entry(sm[control::SM_ORDER_VIRTUAL_GPC]).or_default() += 1;
    }
    gpcs.into_values().collect()
}

fn properties(rm: &Rm, subdevice: Object, card: &escape::CardInfo) -> Result<Properties> {
    let mut name = control::NameString::default();
    rm.control(subdevice, &control::GPU_GET_NAME_STRING, &mut name)?;
    let [sm_version, warps_per_sm, gpcs, tpcs, tpcs_per_gpc, sms_per_tpc] = gr_info(
        rm,
        subdevice,
        [
            control::GR_SM_VERSION,
            control::GR_MAX_WARPS_PER_SM,
            control::GR_NUM_GPCS,
            control::GR_TPC_COUNT,
            control::GR_NUM_TPC_PER_GPC,
            control::GR_NUM_SM_PER_TPC,
        ],
    )?;
    let [l2_bytes] = fb_info(rm, subdevice, [control::FB_L2_SIZE])?;
    Ok(Properties {
        gpc_sms: gpc_sms(rm, subdevice),
        name: text(&name.name),
        driver: rm.version(),
        minor: card.minor_number,
        pci: pci(card),
        gpcs,
        tpcs,
        tpcs_per_gpc,
        sms_per_tpc,
        warps_per_sm,
        sm_version: (sm_version >> 8 & 0xff, sm_version & 0xff),
        l2_bytes: u64::from(l2_bytes),
        bar1_bytes: card.fb_size,
    })
}

/// The row of the chip table, and the class of the doorbell page. Refuses a GPU that the table does not contain, or
/// that lacks a class of its row.
fn known_chip(rm: &Rm, device: Object, properties: &Properties) -> Result<(&'static Chip, Usermode)> {
    let Properties { name, sm_version, .. } = properties;
    let (major, minor) = *sm_version;
    let chip = chip::of(*sm_version).and_then(|chip| Some((chip, chip.classes.value.usermode?)));
    let (chip, usermode) = chip.ok_or_else(|| Error::UnknownChip { name: name.clone(), major, minor })?;
    let classes = chip.classes.value;
    let mut list = control::ClassList::default();
    rm.control(device, &control::GPU_GET_CLASSLIST_V2, &mut list)?;
    let count = (list.count as usize).min(list.classes.len());
    let wanted = [classes.channel, classes.compute, classes.copy, usermode.class];
    match wanted.into_iter().find(|class| !list.classes[..count].contains(&class.number)) {
        Some(ClassId { number, name: class_name }) => {
            Err(Error::MissingClass { name: name.clone(), major, minor, class: number, class_name })
        }
        None => Ok((chip, usermode)),
    }
}
