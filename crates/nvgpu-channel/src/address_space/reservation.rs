//! Reserved address ranges with mappings at fixed addresses.

use std::collections::BTreeMap;
use std::sync::Arc;

use nvgpu_sys::address_space::{self as sys, AllocSpaceFlags, MapBufferFlags};
use nvmap::Buffer;
use parking_lot::Mutex;

use super::{AddressSpace, BATCH, MapOptions, MapSource, Mapping, plain, whole_pages};
use crate::error::{self, Error};
use crate::va::{GPU_PAGE, GpuVa};

impl AddressSpace {
    /// Reserves `len` bytes of addresses, a multiple of the page size, at an address that the kernel
    /// chooses. Accesses to unmapped addresses fault; with `sparse`, reads return 0 and writes are
    /// discarded.
    ///
    /// # Errors
    ///
    /// [`Error::Range`], [`Error::Call`].
    pub fn reserve(&self, len: u64, sparse: bool) -> Result<Reservation, Error> {
        self.reserve_at(None, len, sparse)
    }

    /// Reserves `len` bytes of addresses at `va`; see [`AddressSpace::reserve`].
    ///
    /// # Errors
    ///
    /// [`Error::Range`], [`Error::Call`]; `ENOMEM` also if the range is in use or outside the user
    /// range.
    pub fn reserve_fixed(&self, va: GpuVa, len: u64, sparse: bool) -> Result<Reservation, Error> {
        self.reserve_at(Some(va), len, sparse)
    }

    fn reserve_at(&self, va: Option<GpuVa>, len: u64, sparse: bool) -> Result<Reservation, Error> {
        whole_pages("length of a reservation", len)?;
        let mut flags = AllocSpaceFlags::empty();
        flags.set(AllocSpaceFlags::FIXED_OFFSET, va.is_some());
        flags.set(AllocSpaceFlags::SPARSE, sparse);
        let mut argument = sys::AllocSpace {
            pages: len / GPU_PAGE,
            page_size: sys::PAGE_SIZE,
            flags: flags.bits(),
            offset: va.unwrap_or_default().0,
            ..sys::AllocSpace::default()
        };
        sys::ALLOC_SPACE
            .send(&self.shared.fd, &mut argument)
            .map_err(error::call(sys::ALLOC_SPACE.name(), format!("{len} bytes of GPU addresses")))?;
        let va_got = GpuVa(argument.offset);
        let range = Range { space: self.clone(), va: va_got, len, used: Mutex::default() };
        match va {
            Some(wanted) if wanted != range.va => Err(Error::Misplaced { wanted, got: range.va }),
            _ => Ok(Reservation { range: Arc::new(range) }),
        }
    }
}

/// A mapping for [`Reservation::map_batch`]; the fields are the arguments of [`Reservation::map`].
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use std::sync::Arc;
/// # let door: Arc<dyn kernel_door::Door> = Arc::new(orin_sim::SoftwareOrin::new(orin_sim::Config::default())?);
/// # let gpu = nvgpu_channel::Gpu::open(&door)?;
/// # let space = gpu.address_space()?;
/// # let buffer = Arc::new(gpu.nvmap().buffer(8192).allocate()?);
/// use nvgpu_channel::{MapOptions, Placement};
///
/// let range = space.reserve(1 << 20, false)?;
/// let place =
///     Placement { offset: 0, buffer: &buffer, buffer_offset: 0, len: 8192, options: MapOptions::default() };
/// assert_eq!(range.map_batch(&[place])?.len(), 1);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Placement<'a> {
    /// Offset in the reservation in bytes.
    pub offset: u64,
    /// The buffer.
    pub buffer: &'a Arc<Buffer>,
    /// Offset in the buffer in bytes.
    pub buffer_offset: u64,
    /// Length in bytes.
    pub len: u64,
    /// Mapping options.
    pub options: MapOptions,
}

/// A range of reserved addresses. Clones refer to the same range, which is freed when the last clone and
/// the last mapping inside are dropped.
#[derive(Clone, Debug)]
pub struct Reservation {
    range: Arc<Range>,
}

#[derive(Debug)]
struct Range {
    space: AddressSpace,
    va: GpuVa,
    len: u64,
    /// The mappings in the range.
    used: Mutex<Used>,
}

/// The mappings in a range: lengths by offset. The kernel does not check for overlap: at the start of a mapping of
/// the same buffer it returns that mapping, whatever offset and length the request contains.
type Used = BTreeMap<u64, u64>;

/// Whether a mapping overlaps these bytes.
fn overlaps(used: &Used, offset: u64, len: u64) -> bool {
    let before = used.range(..offset + len).next_back();
    before.is_some_and(|(start, taken)| start + taken > offset)
}

impl Range {
    /// Checks a placement, marks its addresses as used and returns the argument of the request.
    fn place(
        &self,
        offset: u64,
        buffer: &impl MapSource,
        buffer_offset: u64,
        len: u64,
        options: MapOptions,
    ) -> Result<sys::MapBufferEx, Error> {
        whole_pages("length of a mapping", len)?;
        for (what, value) in [("offset in a reservation", offset), ("offset in a buffer", buffer_offset)] {
            if !value.is_multiple_of(GPU_PAGE) {
                return Err(Error::Range { what, value, rule: "it must be a multiple of 4096" });
            }
        }
        if offset.checked_add(len).is_none_or(|end| end > self.len) {
            let rule = "the mapping must end inside the reservation";
            return Err(Error::Range { what: "offset in a reservation", value: offset, rule });
        }
        // CAST: a size has at most 64 bits.
        if buffer_offset.checked_add(len).is_none_or(|end| end > buffer.size() as u64) {
            let rule = "the mapping must end inside the buffer";
            return Err(Error::Range { what: "offset in a buffer", value: buffer_offset, rule });
        }
        // The sum is below the end of the reservation, which the kernel placed below 2^40.
        let va = GpuVa(self.va.0 + offset);
        let mut used = self.used.lock();
        if overlaps(&used, offset, len) {
            return Err(Error::Overlap { va, len });
        }
        used.insert(offset, len);
        Ok(sys::MapBufferEx {
            flags: options.flags() | MapBufferFlags::FIXED_OFFSET.bits(),
            buffer_offset,
            mapping_size: len,
            offset: va.0,
            ..plain(buffer)
        })
    }
}

impl Reservation {
    /// First address.
    pub fn va(&self) -> GpuVa {
        self.range.va
    }

    /// Length in bytes.
    pub fn len(&self) -> u64 {
        self.range.len
    }

    /// Whether the range is empty; always `false`.
    pub fn is_empty(&self) -> bool {
        self.range.len == 0
    }

    /// Marks the mapping at `offset` as removed.
    pub(super) fn forget(&self, offset: u64) {
        self.range.used.lock().remove(&offset);
    }

    /// Maps the `len` bytes at `buffer_offset` of `buffer` at `offset` in the range.
    ///
    /// # Errors
    ///
    /// [`Error::Range`] if a number is not a multiple of the page size or outside its range;
    /// [`Error::Overlap`] if the addresses overlap a mapping; [`Error::Call`].
    pub fn map<B: MapSource>(
        &self,
        offset: u64,
        buffer: &Arc<B>,
        buffer_offset: u64,
        len: u64,
        options: MapOptions,
    ) -> Result<Mapping<B>, Error> {
        let argument = self.range.place(offset, &**buffer, buffer_offset, len, options)?;
        let wanted = GpuVa(argument.offset);
        let va = self.range.space.send_map(&**buffer, argument).inspect_err(|_| self.forget(offset))?;
        let mapping = Mapping::new(va, len, buffer, &self.range.space, Some((self.clone(), offset)));
        if va == wanted { Ok(mapping) } else { Err(Error::Misplaced { wanted, got: va }) }
    }

    /// Makes many mappings, with one system call per 256: all, or none.
    ///
    /// # Errors
    ///
    /// As [`Reservation::map`], for the first mapping that fails; the kernel does not report which one it
    /// rejected.
    pub fn map_batch(&self, places: &[Placement<'_>]) -> Result<Vec<Mapping>, Error> {
        let mut arguments = Vec::with_capacity(places.len());
        let mut mappings = Vec::with_capacity(places.len());
        for place in places {
            // On an error, the mappings so far free their addresses without unmapping anything.
            let Placement { offset, buffer, buffer_offset, len, options } = *place;
            let argument = self.range.place(offset, &**buffer, buffer_offset, len, options)?;
            let owner = Some((self.clone(), place.offset));
            let va = GpuVa(argument.offset);
            let mut mapping = Mapping::new(va, place.len, place.buffer, &self.range.space, owner);
            mapping.mapped = false;
            mappings.push(mapping);
            arguments.push(argument);
        }
        for (batch, mappings) in arguments.chunks(BATCH).zip(mappings.chunks_mut(BATCH)) {
            // Some may be mapped even if the request fails; unmapping the others has no effect, because
            // their addresses are free.
            mappings.iter_mut().for_each(|mapping| mapping.mapped = true);
            sys::map_buffer_batch(&self.range.space.shared.fd, &[], batch)
                .map_err(error::call(sys::MAP_BUFFER_BATCH.name(), format!("{} mappings", batch.len())))?;
        }
        Ok(mappings)
    }
}

impl Drop for Range {
    fn drop(&mut self) {
        let mut argument = sys::FreeSpace {
            offset: self.va.0,
            pages: self.len / GPU_PAGE,
            page_size: sys::PAGE_SIZE,
            ..sys::FreeSpace::default()
        };
        if let Err(errno) = sys::FREE_SPACE.send(&self.space.shared.fd, &mut argument) {
            tracing::warn!(va = %self.va, %errno, "NVGPU_AS_IOCTL_FREE_SPACE failed");
        }
    }
}
