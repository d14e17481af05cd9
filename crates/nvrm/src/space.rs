//! The GPU's address space: the UVM module owns the page tables, this crate allocates the addresses.
//!
//! UVM maps RM objects into *external ranges* of addresses. They are not paged on demand, so an access outside of a
//! mapping is a fault. The page size of a mapping is the largest of 4 KiB, 64 KiB and 2 MiB that divides address,
//! length and the page size of the memory.
//!
//! Addresses are below 2^40, because the address of a launch descriptor, shifted right by 8, has to fit 32 bits.
//! They are also below the two 4 GiB windows for shared and local memory.
//!
//! All spaces of a process take their addresses from one allocator. A GPU that maps memory of another GPU
//! ([`PeerMemory`](crate::PeerMemory)) therefore maps it at the same address.

use core::ops::Range;
use core::ptr;
use std::sync::LazyLock;

use kernel_door::{DoorFd, DoorRange};
use parking_lot::Mutex;
use range_alloc::RangeAllocator;
use zerocopy::{FromBytes, IntoBytes};

use crate::abi::uvm;
use crate::error::{Error, Result, Status};
use crate::release::Release;
use crate::rm::{self, Object, Rm};

/// Granularity and alignment of small address ranges in bytes.
pub const SMALL_PAGE: u64 = 64 << 10;
/// Granularity and alignment of large address ranges in bytes.
pub const LARGE_PAGE: u64 = 2 << 20;
/// Addresses for contexts of channels, which UVM maps only in part.
const CONTEXTS: Range<u64> = 0x10_0000_0000..LARGE.start;
/// Addresses for ranges of memory of at least [`LARGE_PAGE`], the highest first. The first of them and those of the
/// first small ranges have a common page directory, which describes 512 MiB. A map that needs a new directory takes
/// 13 µs longer on an H200, and so does the unmap that empties the directory.
const LARGE: Range<u64> = 0x40_0000_0000..SMALL.start;
/// Addresses for shorter ranges, the lowest first. They begin in the middle of a directory.
const SMALL: Range<u64> = 0xd0_1000_0000..0xd4_1000_0000;
/// Lowest allocated address.
pub const VA_START: u64 = CONTEXTS.start;
/// End of the allocated addresses.
pub const VA_END: u64 = SMALL.end;
/// Start of the 4 GiB window for the shared memory of a block.
pub const SHARED_WINDOW: u64 = 0x7294_0000_0000;
/// Start of the 4 GiB window for the local memory of a thread.
pub const LOCAL_WINDOW: u64 = 0x7293_0000_0000;

/// Number of ranges that are tried for memory that CPU and GPU see at one address.
const ATTEMPTS: usize = 16;

/// UUID of a GPU.
pub(crate) type Uuid = [u8; 16];

/// A reserved range of GPU addresses.
#[derive(Debug)]
pub(crate) struct Reserved(Range<u64>);

impl Reserved {
    pub(crate) fn va(&self) -> u64 {
        self.0.start
    }

    pub(crate) fn bytes(&self) -> u64 {
        self.0.end - self.0.start
    }
}

/// Free addresses.
#[derive(Debug)]
struct Addresses {
    contexts: RangeAllocator<u64>,
    /// Distances from the end of [`LARGE`].
    large: RangeAllocator<u64>,
    small: RangeAllocator<u64>,
}

/// Free addresses of the process.
static ADDRESSES: LazyLock<Mutex<Addresses>> = LazyLock::new(|| Mutex::new(Addresses::new()));

impl Addresses {
    fn new() -> Self {
        Self {
            contexts: RangeAllocator::new(CONTEXTS),
            large: RangeAllocator::new(0..LARGE.end - LARGE.start),
            small: RangeAllocator::new(SMALL),
        }
    }

    /// Addresses for `bytes` bytes of memory, rounded up to pages; `None` if there are none.
    fn take(&mut self, bytes: u64) -> Option<Reserved> {
        if bytes < LARGE_PAGE {
            let bytes = bytes.max(1).next_multiple_of(SMALL_PAGE);
            return self.small.allocate_range(bytes).ok().map(Reserved);
        }
        let bytes = bytes.checked_next_multiple_of(LARGE_PAGE)?;
        self.large.allocate_range(bytes).ok().map(|range| Reserved(mirror(range)))
    }

    fn give_back(&mut self, Reserved(range): Reserved) {
        if SMALL.contains(&range.start) {
            self.small.free_range(range);
        } else if LARGE.contains(&range.start) {
            self.large.free_range(mirror(range));
        } else {
            self.contexts.free_range(range);
        }
    }
}

/// Addresses of [`LARGE`] as distances from its end, and the other way round.
fn mirror(range: Range<u64>) -> Range<u64> {
    LARGE.end - range.end..LARGE.end - range.start
}

/// How a GPU reaches the video memory of another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum PeerLink {
    /// Both are the same GPU, opened twice.
    Same,
    /// Over NVLink.
    NvLink,
    /// Over PCIe.
    Pcie,
}

/// The address space of one GPU.
#[derive(Debug)]
pub(crate) struct Space {
    uuid: Uuid,
    client: Object,
    release: Release,
    /// The other GPUs whose memory the space may map.
    peers: Mutex<Vec<(Uuid, PeerLink)>>,
    // Closing `file` destroys the space. `mm` is closed last, which stops all channels.
    file: DoorFd,
    _mm: DoorFd,
}

/// Access to the status field of UVM's arguments.
trait Answer: FromBytes + IntoBytes {
    fn status(&self) -> u32;
}

macro_rules! answers {
    ($($name:ident)*) => {
        $(impl Answer for uvm::$name {
            fn status(&self) -> u32 {
                self.rm_status
            }
        })*
    };
}
answers!(Initialize MmInitialize RegisterGpu UnregisterGpu RegisterGpuVaSpace UnregisterGpuVaSpace);
answers!(EnablePeerAccess);
answers!(CreateExternalRange MapExternalAllocation Free RegisterChannel UnregisterChannel);

/// Sends a request to UVM and checks both results.
fn request<T: Answer>(file: &DoorFd, call: &'static str, number: u32, argument: &mut T) -> Result<()> {
    // SAFETY: the argument matches the request; UVM's arguments contain no addresses of the process.
    unsafe { rm::send(file, call, number, ptr::from_mut(argument).cast()) }?;
    rm::check(call, "the address space", argument.status())
}

impl Space {
    /// Creates an address space for a GPU from an RM VA space.
    pub(crate) fn open(rm: &Rm, uuid: Uuid, va_space: Object) -> Result<Self> {
        let node = c"/dev/nvidia-uvm";
        let (file, mm) = (rm::open(rm.door(), node)?, rm::open(rm.door(), node)?);
        let mut initialize = uvm::Initialize { flags: uvm::INITIALIZE_DISABLE_HMM, ..Default::default() };
        request(&file, "UVM_INITIALIZE", uvm::INITIALIZE, &mut initialize)?;
        let mut initialize = uvm::MmInitialize { uvm_fd: file.raw(), ..Default::default() };
        match request(&mm, "UVM_MM_INITIALIZE", uvm::MM_INITIALIZE, &mut initialize) {
            Err(Error::Status { status: Status::NOTHING_TO_DO, .. }) | Ok(()) => {}
            Err(error) => return Err(error),
        }
        let mut register = uvm::RegisterGpu { gpu_uuid: uuid, rm_ctrl_fd: -1, ..Default::default() };
        request(&file, "UVM_REGISTER_GPU", uvm::REGISTER_GPU, &mut register)?;
        let mut register = uvm::RegisterGpuVaSpace {
            gpu_uuid: uuid,
            rm_ctrl_fd: rm.ctl().raw(),
            client: rm.client().0,
            va_space: va_space.0,
            ..Default::default()
        };
        request(&file, "UVM_REGISTER_GPU_VASPACE", uvm::REGISTER_GPU_VASPACE, &mut register)?;
        let peers = Mutex::default();
        Ok(Self { uuid, client: rm.client(), release: rm.release(), peers, file, _mm: mm })
    }

    pub(crate) fn uuid(&self) -> Uuid {
        self.uuid
    }

    /// Lets the space map memory of another GPU. The link is that of its video memory, if the GPUs are peers.
    pub(crate) fn join(&self, uuid: Uuid) -> Result<PeerLink> {
        if uuid == self.uuid {
            return Ok(PeerLink::Same);
        }
        let mut peers = self.peers.lock();
        if let Some((_, link)) = peers.iter().find(|(known, _)| *known == uuid) {
            return Ok(*link);
        }
        let mut register = uvm::RegisterGpu { gpu_uuid: uuid, rm_ctrl_fd: -1, ..Default::default() };
        request(&self.file, "UVM_REGISTER_GPU", uvm::REGISTER_GPU, &mut register)?;
        let mut enable =
            uvm::EnablePeerAccess { gpu_uuid_a: self.uuid, gpu_uuid_b: uuid, ..Default::default() };
        let link = match request(&self.file, "UVM_ENABLE_PEER_ACCESS", uvm::ENABLE_PEER_ACCESS, &mut enable) {
            Ok(()) => PeerLink::Pcie,
            // Peers over NVLink already, or no peers at all: see `EnablePeerAccess`.
            Err(Error::Status { status: Status::INVALID_DEVICE, .. }) => PeerLink::NvLink,
            Err(error) => {
                tracing::debug!(%error, "access over PCIe was not enabled");
                PeerLink::NvLink
            }
        };
        peers.push((uuid, link));
        Ok(link)
    }

    /// Reserves addresses for `bytes` bytes of memory, rounded up to pages.
    pub(crate) fn reserve(&self, bytes: u64) -> Result<Reserved> {
        ADDRESSES.lock().take(bytes).ok_or(Error::AddressSpace { bytes })
    }

    /// As [`Space::reserve`], addresses that the process has free as well; both stay reserved.
    pub(crate) fn reserve_common(&self, bytes: u64) -> Result<(Reserved, DoorRange)> {
        let mut occupied = Vec::new();
        let found = loop {
            let reserved = match self.reserve(bytes) {
                Ok(reserved) => reserved,
                Err(error) => break Err(error),
            };
            // CAST: a process has 64-bit addresses.
            match DoorRange::reserve_at(reserved.va() as usize, reserved.bytes() as usize) {
                Ok(range) => break Ok((reserved, range)),
                Err(error) => {
                    tracing::debug!(%error, va = reserved.va(), "the process has no such addresses free")
                }
            }
            occupied.push(reserved);
            if occupied.len() == ATTEMPTS {
                break Err(Error::Occupied { bytes });
            }
        };
        occupied.into_iter().for_each(|reserved| self.release(reserved));
        found
    }

    /// Reserves addresses for the context of a channel.
    pub(crate) fn reserve_context(&self, bytes: u64) -> Result<Reserved> {
        let range = ADDRESSES.lock().contexts.allocate_range(bytes);
        range.map(Reserved).map_err(|_| Error::AddressSpace { bytes })
    }

    /// Gives addresses back.
    pub(crate) fn release(&self, reserved: Reserved) {
        ADDRESSES.lock().give_back(reserved);
    }

    /// Maps bytes of a memory object of the client `rm`, which may be that of another GPU, from an offset on, at
    /// `base`.
    pub(crate) fn map(&self, base: u64, bytes: u64, rm: &Rm, (memory, from): (Object, u64)) -> Result<()> {
        let mut range = uvm::CreateExternalRange { base, length: bytes, ..Default::default() };
        request(&self.file, "UVM_CREATE_EXTERNAL_RANGE", uvm::CREATE_EXTERNAL_RANGE, &mut range)?;
        let mut map: Box<uvm::MapExternalAllocation> = Box::default();
        map.base = base;
        map.length = bytes;
        map.offset = from;
        map.per_gpu_attributes[0].gpu_uuid = self.uuid;
        map.per_gpu_attributes[0].gpu_mapping_type = uvm::MAPPING_READ_WRITE_ATOMIC;
        map.gpu_attributes_count = 1;
        map.rm_ctrl_fd = rm.ctl().raw();
        map.client = rm.client().0;
        map.memory = memory.0;
        let result =
            request(&self.file, "UVM_MAP_EXTERNAL_ALLOCATION", uvm::MAP_EXTERNAL_ALLOCATION, &mut *map);
        if result.is_err() {
            self.unmap(base, bytes);
        }
        result
    }

    /// Undoes [`Space::map`].
    pub(crate) fn unmap(&self, base: u64, length: u64) {
        let result = if self.release == Release::R595 {
            // Base, then the status at the offset where 580 has the length.
            let mut words = uvm::Free { base, ..Default::default() };
            // SAFETY: the argument of the request, longer than required, without addresses.
            unsafe { rm::send(&self.file, "UVM_FREE", uvm::FREE, ptr::from_mut(&mut words).cast()) }
                // CAST: the status is the low word.
                .and_then(|()| rm::check("UVM_FREE", "the address space", words.length as u32))
        } else {
            let mut free = uvm::Free { base, length, ..Default::default() };
            request(&self.file, "UVM_FREE", uvm::FREE, &mut free)
        };
        if let Err(error) = result {
            tracing::warn!(%error, "addresses could not be freed; closing the GPU frees them");
        }
    }

    /// Registers a channel; UVM maps its context into `reserved`.
    pub(crate) fn register_channel(&self, rm: &Rm, channel: Object, reserved: &Reserved) -> Result<()> {
        let mut register = uvm::RegisterChannel {
            gpu_uuid: self.uuid,
            rm_ctrl_fd: rm.ctl().raw(),
            client: self.client.0,
            channel: channel.0,
            base: reserved.va(),
            length: reserved.bytes(),
            ..Default::default()
        };
        request(&self.file, "UVM_REGISTER_CHANNEL", uvm::REGISTER_CHANNEL, &mut register)
    }

    /// Stops a channel; UVM unmaps its context.
    pub(crate) fn unregister_channel(&self, channel: Object) {
        let call = "UVM_UNREGISTER_CHANNEL";
        let result = if self.release == Release::R595 {
            // Client, channel and status, without a preceding UUID.
            let mut words = [self.client.0, channel.0, 0, 0, 0, 0, 0];
            // SAFETY: the argument of the request, longer than required, without addresses.
            unsafe { rm::send(&self.file, call, uvm::UNREGISTER_CHANNEL, words.as_mut_ptr().cast()) }
                .and_then(|()| rm::check(call, "the address space", words[2]))
        } else {
            let mut unregister = uvm::UnregisterChannel {
                gpu_uuid: self.uuid,
                client: self.client.0,
                channel: channel.0,
                ..Default::default()
            };
            request(&self.file, call, uvm::UNREGISTER_CHANNEL, &mut unregister)
        };
        if let Err(error) = result {
            tracing::warn!(%error, "a channel could not be unregistered; closing the GPU unregisters it");
        }
    }

    /// Removes the GPU from the space, after all channels and mappings.
    pub(crate) fn close(&self) {
        for (uuid, _) in self.peers.lock().drain(..) {
            let mut peer = uvm::UnregisterGpu { gpu_uuid: uuid, ..Default::default() };
            if let Err(error) = request(&self.file, "UVM_UNREGISTER_GPU", uvm::UNREGISTER_GPU, &mut peer) {
                tracing::warn!(%error, "a peer could not be unregistered; closing the files does so");
            }
        }
        let mut va_space = uvm::UnregisterGpuVaSpace { gpu_uuid: self.uuid, ..Default::default() };
        let mut gpu = uvm::UnregisterGpu { gpu_uuid: self.uuid, ..Default::default() };
        let result =
            request(&self.file, "UVM_UNREGISTER_GPU_VASPACE", uvm::UNREGISTER_GPU_VASPACE, &mut va_space)
                .and_then(|()| request(&self.file, "UVM_UNREGISTER_GPU", uvm::UNREGISTER_GPU, &mut gpu));
        if let Err(error) = result {
            tracing::warn!(%error, "the GPU could not be unregistered; closing the files does so");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What one page directory of pages of 2 MiB describes.
    const DIRECTORY: u64 = 512 << 20;

    #[test]
    fn the_first_large_and_small_ranges_share_a_page_directory() {
        let mut addresses = Addresses::new();
        let small = addresses.take(1).unwrap();
        let large: Vec<_> = (0..4).map(|_| addresses.take(64 << 20).unwrap()).collect();
        for reserved in &large {
            assert_eq!(reserved.va() / DIRECTORY, small.va() / DIRECTORY);
            assert!(reserved.va().is_multiple_of(LARGE_PAGE) && reserved.bytes() == 64 << 20);
        }
        let context = addresses.contexts.allocate_range(LARGE_PAGE).unwrap();
        assert_ne!(
            context.start / DIRECTORY,
            small.va() / DIRECTORY,
            "contexts leave the directory to memory"
        );
    }

    #[test]
    fn reserved_ranges_are_apart_and_return() {
        let mut addresses = Addresses::new();
        let sizes = [0, 1, SMALL_PAGE, SMALL_PAGE + 1, LARGE_PAGE - 1, LARGE_PAGE, LARGE_PAGE + 1, 1 << 33];
        let mut taken: Vec<_> = sizes.iter().map(|bytes| addresses.take(*bytes).unwrap()).collect();
        taken.push(Reserved(addresses.contexts.allocate_range(LARGE_PAGE).unwrap()));
        for (at, Reserved(range)) in taken.iter().enumerate() {
            assert!(VA_START <= range.start && range.end <= VA_END);
            assert!(sizes.get(at).is_none_or(|bytes| range.end - range.start >= *bytes));
            for Reserved(other) in &taken[..at] {
                assert!(range.end <= other.start || other.end <= range.start, "{range:x?} and {other:x?}");
            }
        }
        let first = taken[5].0.clone();
        taken.into_iter().for_each(|reserved| addresses.give_back(reserved));
        assert_eq!(addresses.take(LARGE_PAGE).unwrap().0, first);
        assert_eq!(addresses.contexts.total_available(), CONTEXTS.end - CONTEXTS.start);
        assert!(addresses.take(LARGE.end - LARGE.start).is_none() && addresses.take(u64::MAX).is_none());
    }
}
