//! Virtual memory: memory without addresses, reserved addresses without memory, and mappings of one at the other.

use core::sync::atomic::{AtomicU64, Ordering};
use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::sync::Arc;

use parking_lot::Mutex;
use tegra_hcq::{AddressRange, FileAccess, SharedBuffer};

use crate::code::{Code, Failure, Result};
use crate::driver::{Gpu, driver};
use crate::memory::Allocation;
use crate::objects::Kind;

/// Sizes, offsets and addresses are multiples of it, in bytes.
pub const GRANULARITY: usize = 2 << 20;

/// The number of bytes, if it is a whole number of grains.
fn grains(what: &str, bytes: usize) -> Result<usize> {
    if bytes == 0 || !bytes.is_multiple_of(GRANULARITY) {
        return Err(Failure::invalid(format!("{what} is {bytes} bytes, no multiple of {GRANULARITY}")));
    }
    Ok(bytes)
}

/// Memory without an address (`CUmemGenericAllocationHandle`).
#[derive(Debug)]
pub struct Physical {
    handle: u64,
    /// Its GPU.
    pub gpu: &'static Gpu,
    /// Size in bytes.
    pub bytes: usize,
    /// Whether a file of it may be exported.
    pub shareable: bool,
    memory: SharedBuffer<u8>,
    /// How often the program holds the handle.
    holds: AtomicU64,
}

impl Kind for Physical {
    const UNKNOWN: Code = Code::InvalidValue;
}

impl Physical {
    fn enter(gpu: &'static Gpu, memory: SharedBuffer<u8>, shareable: bool) -> Result<Arc<Self>> {
        let (bytes, holds) = (memory.len(), AtomicU64::new(1));
        driver()?.objects.insert(|handle| Ok(Self { handle, gpu, bytes, shareable, memory, holds }))
    }

    /// Allocates memory.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidValue`] if the size is no multiple of [`GRANULARITY`], [`Code::OutOfMemory`].
    pub fn create(gpu: &'static Gpu, bytes: usize, shareable: bool) -> Result<Arc<Self>> {
        let bytes = grains("the size", bytes)?;
        Self::enter(gpu, gpu.device()?.alloc_shared(bytes)?, shareable)
    }

    /// Memory of another process, or of another driver, behind a dma-buf.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidValue`] if the file is none that the GPU can map.
    pub fn import(gpu: &'static Gpu, file: OwnedFd) -> Result<Arc<Self>> {
        let memory = gpu.device()?.import_file::<u8>(&file, ..);
        Self::enter(gpu, memory.map_err(|error| Failure::invalid(error.to_string()))?, true)
    }

    /// Its handle.
    pub fn handle(&self) -> u64 {
        self.handle
    }

    /// A dma-buf of it.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidValue`] if it was not created so that it can be exported.
    pub fn export(&self) -> Result<OwnedFd> {
        if !self.shareable {
            return Err(Failure::invalid("the memory was created without handle types"));
        }
        Ok(self.memory.export()?)
    }

    /// The program holds the handle once more. Returns it.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidValue`] if the program has released it; only mappings keep the memory then.
    pub fn hold(&self) -> Result<u64> {
        let add = |holds| if holds == 0 { None } else { Some(holds + 1) };
        let held = self.holds.fetch_update(Ordering::AcqRel, Ordering::Acquire, add);
        held.map(|_| self.handle).map_err(|_| Failure::invalid("the handle was released"))
    }

    /// The program holds the handle once less. Mappings keep the memory.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidValue`] if it held it no more.
    pub fn release(&self) -> Result<()> {
        let subtract = |holds: u64| holds.checked_sub(1);
        let held = self.holds.fetch_update(Ordering::AcqRel, Ordering::Acquire, subtract);
        match held {
            Ok(1) => driver()?.objects.remove::<Self>(self.handle).map(drop),
            Ok(_) => Ok(()),
            Err(_) => Err(Failure::invalid("the handle was released")),
        }
    }
}

/// Memory at reserved addresses.
#[derive(Debug)]
struct Place {
    bytes: usize,
    memory: Arc<Physical>,
    /// Offset in the memory.
    from: u64,
    /// What work uses, and whether it may write; `None` without access.
    access: Option<(Arc<Allocation>, FileAccess)>,
}

/// Reserved addresses, and what is mapped there by offset.
#[derive(Debug)]
struct Reserved {
    bytes: usize,
    range: AddressRange,
    places: BTreeMap<u64, Place>,
}

/// The reserved addresses of a GPU, by first address.
#[derive(Debug, Default)]
pub struct Ranges(Mutex<BTreeMap<u64, Reserved>>);

/// The reservation that contains bytes, and their offset in it.
fn containing(
    ranges: &mut BTreeMap<u64, Reserved>,
    address: u64,
    bytes: usize,
) -> Result<(&mut Reserved, u64)> {
    let wrong = || Failure::invalid(format!("{bytes} bytes at {address:#x} are not reserved"));
    let (&base, range) = ranges.range_mut(..=address).next_back().ok_or_else(wrong)?;
    let (offset, bytes) = (address - base, bytes as u64);
    if offset.checked_add(bytes).is_none_or(|end| end > range.bytes as u64) {
        Err(wrong())
    } else {
        Ok((range, offset))
    }
}

/// The offsets of the mappings that are exactly these bytes.
fn exactly(range: &Reserved, offset: u64, bytes: usize) -> Result<Vec<u64>> {
    let mut end = offset;
    let found: Vec<_> =
        range.places.range(offset..offset + bytes as u64).map(|(&at, place)| (at, place.bytes)).collect();
    for (at, bytes) in &found {
        if *at != end {
            break;
        }
        end += *bytes as u64;
    }
    if found.is_empty() || end != offset + bytes as u64 {
        return Err(Failure::invalid(format!("{bytes} bytes are no whole mappings")));
    }
    Ok(found.into_iter().map(|(at, _)| at).collect())
}

impl Ranges {
    /// Reserves addresses, at `wanted` if they are free there. The first is a multiple of `alignment`, a power of two.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidValue`] if the size is no multiple of [`GRANULARITY`], [`Code::OutOfMemory`] without addresses.
    pub fn reserve(&self, gpu: &Gpu, bytes: usize, alignment: usize, wanted: u64) -> Result<u64> {
        let bytes = grains("the size", bytes)?;
        let alignment = alignment.max(GRANULARITY) as u64;
        let device = gpu.device()?;
        // An address that is wanted is a hint.
        let at = Some(wanted).filter(|at| *at != 0 && at.is_multiple_of(alignment));
        let at = at.and_then(|at| device.reserve(bytes as u64, Some(at)).ok());
        let (range, first) = match at {
            Some(range) => (range, 0),
            // More, so that there is an address that is aligned.
            None => {
                let more = (bytes as u64).checked_add(alignment).ok_or(Code::OutOfMemory)?;
                let range = device.reserve(more, None).map_err(|error| match error {
                    tegra_hcq::Error::Driver(gpu_hal::Error::Unsupported(_)) => error.into(),
                    _ => Failure::new(Code::OutOfMemory, error.to_string()),
                })?;
                let first = range.gpu_va().next_multiple_of(alignment) - range.gpu_va();
                (range, first)
            }
        };
        let address = range.gpu_va() + first;
        self.0.lock().insert(address, Reserved { bytes, range, places: BTreeMap::new() });
        Ok(address)
    }

    /// Ends a reservation.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidValue`] if it is none, or something is mapped.
    pub fn free(&self, address: u64, bytes: usize) -> Result<()> {
        let mut ranges = self.0.lock();
        match ranges.get(&address) {
            Some(range) if range.bytes == bytes && range.places.is_empty() => drop(ranges.remove(&address)),
            _ => {
                return Err(Failure::invalid(format!(
                    "{bytes} bytes at {address:#x} are no reservation without mappings"
                )));
            }
        }
        Ok(())
    }

    /// Maps memory. Work may use it when it has access.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidValue`] if a number is no multiple of [`GRANULARITY`] or outside of its range, or something is
    /// mapped there.
    pub fn map(&self, address: u64, bytes: usize, memory: Arc<Physical>, from: usize) -> Result<()> {
        grains("the size", bytes)?;
        if !address.is_multiple_of(GRANULARITY as u64) || !from.is_multiple_of(GRANULARITY) {
            return Err(Failure::invalid(format!(
                "{address:#x} or the offset {from} is no multiple of {GRANULARITY}"
            )));
        }
        if from.checked_add(bytes).is_none_or(|end| end > memory.bytes) {
            return Err(Failure::invalid(format!("{bytes} bytes at {from} of {}", memory.bytes)));
        }
        let mut ranges = self.0.lock();
        let (range, offset) = containing(&mut ranges, address, bytes)?;
        let before = range.places.range(..offset + bytes as u64).next_back();
        if before.is_some_and(|(at, place)| at + place.bytes as u64 > offset) {
            return Err(Failure::invalid(format!("something is mapped at {address:#x}")));
        }
        range.places.insert(offset, Place { bytes, memory, from: from as u64, access: None });
        Ok(())
    }

    /// Unmaps whole mappings.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidValue`] if the bytes are none.
    pub fn unmap(&self, gpu: &Gpu, address: u64, bytes: usize) -> Result<()> {
        let mut ranges = self.0.lock();
        let (range, offset) = containing(&mut ranges, address, bytes)?;
        for at in exactly(range, offset, bytes)? {
            if let Some(Place { access: Some((allocation, _)), .. }) = range.places.remove(&at) {
                gpu.memory.leave(&allocation);
            }
        }
        Ok(())
    }

    /// Sets the access of whole mappings; `None` for none.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidValue`] if the bytes are none; the error of the driver that maps them.
    pub fn set_access(
        &self,
        gpu: &Gpu,
        address: u64,
        bytes: usize,
        access: Option<FileAccess>,
    ) -> Result<()> {
        let mut ranges = self.0.lock();
        let (range, offset) = containing(&mut ranges, address, bytes)?;
        let base = address - offset;
        let first = base - range.range.gpu_va();
        for at in exactly(range, offset, bytes)? {
            let Some(place) = range.places.get_mut(&at) else { continue };
            if place.access.as_ref().map(|(_, access)| *access) == access {
                continue;
            }
            if let Some((allocation, _)) = place.access.take() {
                gpu.memory.leave(&allocation);
            }
            if let Some(access) = access {
                let memory = &place.memory.memory;
                let buffer = range.range.map(first + at, memory, place.from, place.bytes, access)?;
                place.access = Some((gpu.memory.enter_mapped(buffer)?, access));
            }
        }
        Ok(())
    }

    /// The access at an address; `None` for none.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidValue`] if nothing is mapped there.
    pub fn access(&self, address: u64) -> Result<Option<FileAccess>> {
        self.at(address, |place| place.access.as_ref().map(|(_, access)| *access))
    }

    /// The memory at an address.
    ///
    /// # Errors
    ///
    /// [`Code::InvalidValue`] if nothing is mapped there.
    pub fn memory(&self, address: u64) -> Result<Arc<Physical>> {
        self.at(address, |place| Arc::clone(&place.memory))
    }

    fn at<T>(&self, address: u64, of: impl FnOnce(&Place) -> T) -> Result<T> {
        let mut ranges = self.0.lock();
        let (range, offset) = containing(&mut ranges, address, 1)?;
        let found = range.places.range(..=offset).next_back();
        let found = found.filter(|(at, place)| **at + place.bytes as u64 > offset);
        found
            .map(|(_, place)| of(place))
            .ok_or_else(|| Failure::invalid(format!("nothing is mapped at {address:#x}")))
    }
}

/// A file of the program, by its descriptor.
///
/// # Errors
///
/// [`Code::InvalidValue`] if it is not open.
pub fn file_of(descriptor: i32) -> Result<OwnedFd> {
    if descriptor < 0 {
        return Err(Failure::invalid(format!("{descriptor} is no file")));
    }
    // SAFETY: the descriptor is used for this call, which fails if it is not open.
    let file = unsafe { BorrowedFd::borrow_raw(descriptor) };
    file.as_fd()
        .try_clone_to_owned()
        .map_err(|error| Failure::invalid(format!("descriptor {descriptor}: {error}")))
}
