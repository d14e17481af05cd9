//! Owners of a descriptor, a mapping and addresses: the safe form of the calls.

use core::ffi::CStr;
use core::fmt;
use core::ptr::NonNull;
use core::time::Duration;
use std::os::fd::{AsFd, BorrowedFd, RawFd};
use std::sync::Arc;

use rustix::mm::{MapFlags, ProtFlags};

use crate::Errno;
use crate::door::{Door, Events, MapRequest, OpenFlags, Protection};

/// An open descriptor; closed through its door on drop.
pub struct DoorFd {
    door: Arc<dyn Door>,
    raw: RawFd,
}

impl DoorFd {
    /// Opens the node at `path`.
    ///
    /// # Errors
    ///
    /// The errno of the open.
    pub fn open(door: &Arc<dyn Door>, path: &CStr, flags: OpenFlags) -> Result<Self, Errno> {
        let raw = door.open(path, flags)?;
        Ok(Self { door: Arc::clone(door), raw })
    }

    /// Takes ownership of a descriptor that a request of `door` returned.
    ///
    /// # Safety
    ///
    /// `raw` is an open descriptor of `door`, and nothing else owns it.
    pub unsafe fn from_raw(door: &Arc<dyn Door>, raw: RawFd) -> Self {
        Self { door: Arc::clone(door), raw }
    }

    /// The descriptor's number.
    pub fn raw(&self) -> RawFd {
        self.raw
    }

    /// The door that the descriptor belongs to.
    pub fn door(&self) -> &Arc<dyn Door> {
        &self.door
    }

    /// Maps the descriptor; see [`Door::mmap`].
    ///
    /// # Errors
    ///
    /// The errno of the mmap.
    pub fn map(&self, offset: u64, len: usize, protection: Protection) -> Result<DoorMapping, Errno> {
        let request = MapRequest { fd: self.raw, offset, len, protection, place: None };
        // SAFETY: the descriptor is `self`'s, and no address is requested.
        let pointer = unsafe { self.door.mmap(&request) }?;
        Ok(DoorMapping { door: Arc::clone(&self.door), pointer, len })
    }

    /// As [`DoorFd::map`], at the first free address of `range`. A length that is no whole number of pages, or exceeds
    /// the range, is `EINVAL`.
    ///
    /// # Errors
    ///
    /// The errno of the mmap. The range loses its first `len` addresses all the same, because the kernel may have
    /// unmapped them.
    pub fn map_in(
        &self,
        range: &mut DoorRange,
        offset: u64,
        len: usize,
        protection: Protection,
    ) -> Result<DoorMapping, Errno> {
        let place = range.take(len).ok_or(Errno::INVAL)?;
        let request = MapRequest { fd: self.raw, offset, len, protection, place: Some(place) };
        // SAFETY: the descriptor is `self`'s, and the addresses were the range's.
        let pointer = unsafe { self.door.mmap(&request) }?;
        Ok(DoorMapping { door: Arc::clone(&self.door), pointer, len })
    }

    /// Reads up to `buffer.len()` bytes and returns their number.
    ///
    /// # Errors
    ///
    /// The errno of the read.
    pub fn read(&self, buffer: &mut [u8]) -> Result<usize, Errno> {
        // SAFETY: the descriptor is `self`'s.
        unsafe { self.door.read(self.raw, buffer) }
    }

    /// Seeks to the end and returns the position: the size of a dma-buf in bytes; 0 for `/dev/kmsg`, of which the next
    /// read returns the next new record.
    ///
    /// # Errors
    ///
    /// The errno of the lseek.
    pub fn seek_end(&self) -> Result<u64, Errno> {
        // SAFETY: the descriptor is `self`'s.
        unsafe { self.door.seek_end(self.raw) }
    }

    /// Waits until an event of `wanted`, or an error, occurs, at most for `timeout`. Returns what has occurred; nothing
    /// after a time-out.
    ///
    /// # Errors
    ///
    /// The errno of the poll: `INTR` after a signal.
    pub fn poll(&self, wanted: Events, timeout: Duration) -> Result<Events, Errno> {
        // SAFETY: the descriptor is `self`'s.
        unsafe { self.door.poll(self.raw, wanted, timeout) }
    }
}

impl AsFd for DoorFd {
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: every door returns descriptors of the process; `self` keeps this one open for the lifetime of the
        // borrow.
        unsafe { BorrowedFd::borrow_raw(self.raw) }
    }
}

impl Drop for DoorFd {
    fn drop(&mut self) {
        // SAFETY: the descriptor is `self`'s, and `self` ends here. Linux releases the descriptor even if close fails,
        // so the error is ignored.
        let _ = unsafe { self.door.close(self.raw) };
    }
}

impl fmt::Debug for DoorFd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DoorFd").field(&self.raw).finish()
    }
}

/// A CPU mapping; unmapped through its door on drop.
///
/// The memory is shared with a device: access it through raw pointers with volatile or atomic
/// operations, never through references.
pub struct DoorMapping {
    door: Arc<dyn Door>,
    pointer: NonNull<u8>,
    len: usize,
}

// SAFETY: the mapping is an address range of the whole process. `DoorMapping` only returns a raw
// pointer to it; code that dereferences the pointer has to synchronise its accesses.
unsafe impl Send for DoorMapping {}
// SAFETY: as for `Send`: `&DoorMapping` only yields the pointer and the length.
unsafe impl Sync for DoorMapping {}

impl DoorMapping {
    /// Pointer to the first byte; `len` bytes are mapped while `self` is alive. See [`Door::mmap`] for a descriptor
    /// whose object is shorter.
    pub fn pointer(&self) -> NonNull<u8> {
        self.pointer
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the mapping is empty; always `false`, because the kernel rejects an empty mapping.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }
}

impl Drop for DoorMapping {
    fn drop(&mut self) {
        // SAFETY: pointer and length describe the mapping that `self` owns, which is unmapped only
        // here; by the contract of `pointer`, no pointer to it outlives `self`.
        let _ = unsafe { self.door.munmap(self.pointer, self.len) };
    }
}

impl fmt::Debug for DoorMapping {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DoorMapping").field("pointer", &self.pointer).field("len", &self.len).finish()
    }
}

/// Addresses of the process that are reserved for mappings side by side; what is left of them is freed on drop. An
/// access to them raises `SIGSEGV`.
///
/// ```
/// use kernel_door::DoorRange;
///
/// assert!(DoorRange::reserve(8192).is_ok() && DoorRange::reserve(0).is_err());
/// ```
#[derive(Debug)]
pub struct DoorRange {
    next: NonNull<u8>,
    left: usize,
}

// SAFETY: the addresses belong to the value, and nothing is mapped there.
unsafe impl Send for DoorRange {}
// SAFETY: `&DoorRange` gives no access.
unsafe impl Sync for DoorRange {}

impl DoorRange {
    /// Reserves `len` bytes, a whole number of pages. They use no memory.
    ///
    /// # Errors
    ///
    /// The errno of the mmap: `EINVAL` for a length of 0, `ENOMEM`.
    pub fn reserve(len: usize) -> Result<Self, Errno> {
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address that the kernel chooses touches no other memory.
        let base =
            unsafe { rustix::mm::mmap_anonymous(core::ptr::null_mut(), len, ProtFlags::empty(), flags) }?;
        Ok(Self { next: NonNull::new(base.cast()).ok_or(Errno::NOMEM)?, left: len })
    }

    /// As [`DoorRange::reserve`], at `address`, the start of a page.
    ///
    /// ```
    /// use kernel_door::{DoorRange, Errno};
    ///
    /// // Addresses of the process are in use.
    /// let page = std::ptr::from_ref(&0).addr() & !0xfff;
    /// assert_eq!(DoorRange::reserve_at(page, 4096).unwrap_err(), Errno::EXIST);
    /// ```
    ///
    /// # Errors
    ///
    /// The errno of the mmap: `EEXIST` if the process uses some of the addresses, `EINVAL`, `ENOMEM` beyond the end of
    /// the address space.
    pub fn reserve_at(address: usize, len: usize) -> Result<Self, Errno> {
        // Some emulators of Linux choose another address instead.
        if !address.is_multiple_of(rustix::param::page_size()) {
            return Err(Errno::INVAL);
        }
        let place = core::ptr::with_exposed_provenance_mut(address);
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE | MapFlags::FIXED_NOREPLACE;
        // SAFETY: the flag keeps all other mappings: a new mapping touches no other memory.
        let base = unsafe { rustix::mm::mmap_anonymous(place, len, ProtFlags::empty(), flags) }?;
        let range = Self { next: NonNull::new(base.cast()).ok_or(Errno::NOMEM)?, left: len };
        // A kernel before 4.17 does not know the flag, and chooses another address.
        if base == place { Ok(range) } else { Err(Errno::EXIST) }
    }

    /// First address that is left.
    pub fn address(&self) -> usize {
        self.next.as_ptr().expose_provenance()
    }

    /// Removes the first `len` addresses from the range.
    fn take(&mut self, len: usize) -> Option<NonNull<u8>> {
        let is_possible = len > 0 && len.is_multiple_of(rustix::param::page_size()) && len <= self.left;
        let place = is_possible.then_some(self.next)?;
        // SAFETY: the range has `len` more bytes.
        self.next = unsafe { place.add(len) };
        self.left -= len;
        Some(place)
    }
}

impl Drop for DoorRange {
    fn drop(&mut self) {
        if self.left > 0 {
            // SAFETY: the addresses are the range's, and nothing is mapped there.
            let _ = unsafe { rustix::mm::munmap(self.next.as_ptr().cast(), self.left) };
        }
    }
}

#[cfg(test)]
mod tests {
    use rustix::fs::MemfdFlags;
    use rustix::param::page_size;

    use super::*;
    use crate::LinuxDoor;

    /// A file of one page.
    fn page() -> DoorFd {
        let file = rustix::fs::memfd_create("page", MemfdFlags::CLOEXEC).unwrap();
        rustix::fs::ftruncate(&file, page_size() as u64).unwrap();
        let door: Arc<dyn Door> = Arc::new(LinuxDoor);
        // SAFETY: a new descriptor.
        unsafe { DoorFd::from_raw(&door, std::os::fd::IntoRawFd::into_raw_fd(file)) }
    }

    #[test]
    fn mappings_in_a_range_lie_side_by_side() {
        let (page, both) = (page_size(), Protection::READ | Protection::WRITE);
        let mut range = DoorRange::reserve(3 * page).unwrap();
        let base = range.next;
        let files = [self::page(), self::page()];
        for wrong in [0, page + 1, 4 * page] {
            assert_eq!(files[0].map_in(&mut range, 0, wrong, both).unwrap_err(), Errno::INVAL);
        }
        let parts = files.each_ref().map(|file| file.map_in(&mut range, 0, page, both).unwrap());
        assert_eq!(parts[0].pointer(), base);
        // SAFETY: both mappings are live, one behind the other.
        unsafe {
            base.cast::<u16>().byte_add(page - 2).write_volatile(7);
            base.cast::<u16>().byte_add(page).write_volatile(8);
            assert_eq!(parts[1].pointer().cast::<u16>().read_volatile(), 8);
        }
        let again = files[0].map(0, page, Protection::READ).unwrap();
        // SAFETY: the mapping is live.
        assert_eq!(unsafe { again.pointer().cast::<u16>().byte_add(page - 2).read_volatile() }, 7);
        // What a failed call may have unmapped is not the range's any more.
        let closed = self::page();
        assert_eq!(closed.map_in(&mut range, 1, page, both).unwrap_err(), Errno::INVAL);
        assert_eq!(range.left, 0);
        let [first, second] = parts;
        drop((range, first));
        // SAFETY: the mapping is live.
        assert_eq!(unsafe { second.pointer().cast::<u16>().read_volatile() }, 8);
    }

    #[test]
    fn a_range_at_an_address_replaces_nothing() {
        // Where no process has mappings of its own.
        let (page, address) = (page_size(), 0x10_0000_0000);
        let mut range = DoorRange::reserve_at(address, 2 * page).unwrap();
        assert_eq!(range.address(), address);
        assert_eq!(DoorRange::reserve_at(address + page, page).unwrap_err(), Errno::EXIST);
        assert_eq!(DoorRange::reserve_at(address + 1, page).unwrap_err(), Errno::INVAL);
        let mapping = self::page().map_in(&mut range, 0, page, Protection::READ).unwrap();
        assert_eq!((mapping.pointer().as_ptr().addr(), range.address()), (address, address + page));
        drop(range);
        assert_eq!(DoorRange::reserve_at(address, page).unwrap_err(), Errno::EXIST, "the mapping is live");
        drop(mapping);
        assert!(DoorRange::reserve_at(address, 2 * page).is_ok());
    }
}
