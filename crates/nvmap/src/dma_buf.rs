//! dma-bufs: memory with an nvmap handle and a descriptor.
//!
//! nvmap identifies memory by its handle number; the GPU driver, other processes and CPU mappings use
//! the descriptor. The memory exists as long as any handle, descriptor, CPU mapping or GPU mapping does,
//! in any process. A [`DmaBuf`] owns one handle and one descriptor.

use std::os::fd::{AsFd, BorrowedFd, RawFd};

use kernel_door::{DoorFd, DoorRange, Errno};
use nvgpu_sys::nvmap::{self as sys, Heaps};

use crate::attributes::{Access, CacheMode, CacheOperation};
use crate::client::{Held, Nvmap, query_error};
use crate::error::Error;
use crate::handle::Handle;
use crate::mapping::CpuMapping;

/// Properties of memory, as the kernel reports them ([`DmaBuf::parameters`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Size in bytes, a multiple of the page size.
    pub size: u64,
    /// Heap of the memory.
    pub heap: Heaps,
    /// Alignment in bytes.
    pub alignment: u64,
    /// Cache mode of CPU mappings.
    pub cache: CacheMode,
    /// Whether the pages are physically contiguous.
    pub contiguous: bool,
    /// Access rights of the handle.
    pub access: Access,
    /// System-wide serial number: equal for all handles of the same memory.
    pub serial: u64,
}

impl Nvmap {
    /// Creates a new handle and descriptor for the memory of `fd`, a dma-buf descriptor of this process
    /// or received from another one (over a Unix socket, or inherited). `fd` may be closed afterwards.
    ///
    /// Memory of [`Nvmap::import_host`] is recognised, and cannot be mapped, if this process has imported it: on Linux
    /// by any client, on a software kernel by this client or its clones. The kernel maps such memory of another
    /// process, but each access raises SIGSEGV; do not pass its dma-buf on.
    ///
    /// # Errors
    ///
    /// [`Error::Buffer`]: `EBADF` or `EINVAL` if `fd` is not a dma-buf; [`Error::ForeignDmaBuf`] if it
    /// belongs to another driver.
    pub fn import(&self, fd: BorrowedFd<'_>, label: &str) -> Result<DmaBuf, Error> {
        let failed = |(call, errno)| Error::Buffer { call, label: label.into(), size: 0, errno };
        let handle = Handle::from_fd(self.fd(), fd).map_err(|errno| failed((sys::FROM_FD.name(), errno)))?;
        // For a dma-buf of another driver, the kernel returns a descriptor, for which this query fails.
        let parameters = handle.parameters().map_err(|_| Error::ForeignDmaBuf { label: label.into() })?;
        let size = usize::try_from(parameters.size).map_err(|_| Error::Size {
            label: label.into(),
            size: parameters.size,
            alignment: sys::PAGE_SIZE,
        })?;
        let host = self.host.lock().contains(&parameters.serial_id);
        let dma_buf = DmaBuf::export(handle, size, access_of(&parameters), label).map_err(failed)?;
        let dma_buf = DmaBuf { host, ..dma_buf };
        tracing::debug!(label, size, handle = dma_buf.handle(), "dma-buf imported");
        Ok(dma_buf)
    }

    /// Performs cache maintenance on parts of several buffers, each given as (buffer, first byte, length),
    /// in one call. An Orin is I/O coherent, so its kernel only checks the list.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfBounds`] before any call; [`Error::Removed`] since R39; [`Error::Query`].
    pub fn maintain_cache_list(
        &self,
        operation: CacheOperation,
        ranges: &[(&DmaBuf, usize, usize)],
    ) -> Result<(), Error> {
        if ranges.is_empty() {
            return Ok(());
        }
        for (buffer, offset, len) in ranges {
            buffer.check(*offset, *len)?;
        }
        let handles: Vec<u32> = ranges.iter().map(|(buffer, ..)| buffer.handle()).collect();
        // CAST: offsets and lengths have at most 64 bits.
        let offsets: Vec<u64> = ranges.iter().map(|(_, offset, _)| *offset as u64).collect();
        let sizes: Vec<u64> = ranges.iter().map(|(.., len)| *len as u64).collect();
        sys::cache_list(self.fd(), operation.raw(), &handles, &offsets, &sizes)
            .map_err(|errno| query_error(sys::CACHE_LIST.info(), errno))
    }
}

/// A handle and its dma-buf descriptor, without a CPU mapping.
///
/// Dropping it closes the descriptor, then frees the handle.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use std::sync::Arc;
/// # let door: Arc<dyn kernel_door::Door> = Arc::new(orin_sim::SoftwareOrin::new(orin_sim::Config::default())?);
/// # let nvmap = nvmap::Nvmap::open(&door)?;
/// let shared = nvmap.buffer(4096).allocate_unmapped()?;
/// shared.write(16, b"hello")?;
/// let mut bytes = [0; 5];
/// shared.read(16, &mut bytes)?;
/// assert_eq!(&bytes, b"hello");
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct DmaBuf {
    // Drop order: the handle keeps the nvmap descriptor open.
    fd: DoorFd,
    handle: Handle,
    size: usize,
    access: Access,
    /// Whether this is imported host memory, which cannot be mapped through the descriptor.
    host: bool,
    label: String,
    /// Counts the memory while it is allocated; `None` for imports and duplicates.
    pub(crate) held: Option<Held>,
}

impl DmaBuf {
    /// Exports a handle that has memory. The error includes the name of the request.
    pub(crate) fn export(
        handle: Handle,
        size: usize,
        access: Access,
        label: &str,
    ) -> Result<Self, (&'static str, Errno)> {
        let fd = handle.export().map_err(|errno| (sys::GET_FD.name(), errno))?;
        Ok(Self { fd, handle, size, access, host: false, label: label.into(), held: None })
    }

    /// Exports a handle for host memory.
    pub(crate) fn export_host(
        handle: Handle,
        size: usize,
        access: Access,
        label: &str,
    ) -> Result<Self, (&'static str, Errno)> {
        Ok(Self { host: true, ..Self::export(handle, size, access, label)? })
    }

    /// Size in bytes.
    pub fn size(&self) -> usize {
        self.size
    }

    /// The nvmap handle number.
    pub fn handle(&self) -> u32 {
        self.handle.id()
    }

    /// The descriptor, for requests that take one; never 0.
    pub fn raw_fd(&self) -> RawFd {
        self.fd.raw()
    }

    /// Access rights of the handle.
    pub fn access(&self) -> Access {
        self.access
    }

    /// Label for messages.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// Returns the properties of the memory.
    ///
    /// # Errors
    ///
    /// [`Error::Buffer`].
    pub fn parameters(&self) -> Result<Parameters, Error> {
        let raw = self.handle.parameters().map_err(|errno| self.failed(sys::PARAMETERS.name(), errno))?;
        Ok(Parameters {
            size: raw.size,
            // CAST: heap bits are defined up to bit 30.
            heap: Heaps::from_bits_retain((raw.heap & u64::from(u32::MAX)) as u32),
            alignment: raw.align,
            cache: CacheMode::from_coherency(raw.coherency),
            contiguous: raw.contig != 0,
            access: access_of(&raw),
            serial: raw.serial_id,
        })
    }

    /// Creates a second handle and descriptor for the same memory. Pass a read-only duplicate to a
    /// process that must not write.
    ///
    /// # Errors
    ///
    /// [`Error::Buffer`]; `EPERM` for more access rights than `self` has.
    pub fn duplicate(&self, access: Access) -> Result<Self, Error> {
        let handle = self
            .handle
            .duplicate(!access.is_writable())
            .map_err(|errno| self.failed(sys::DUP_HANDLE.name(), errno))?;
        let copy = Self::export(handle, self.size, access, &self.label)
            .map_err(|(call, errno)| self.failed(call, errno))?;
        Ok(Self { host: self.host, ..copy })
    }

    /// Maps the `len` bytes at `offset` for the CPU; both are multiples of the page size. Any number of
    /// mappings may exist and overlap. A mapping can outlive the `DmaBuf`.
    ///
    /// # Errors
    ///
    /// [`Error::MappingRange`] if the range is empty, not whole pages or outside the memory;
    /// [`Error::ReadOnly`]; [`Error::HostMapping`]; [`Error::Buffer`], `EPERM` for protected memory.
    pub fn map(&self, offset: usize, len: usize, access: Access) -> Result<CpuMapping, Error> {
        // CAST: a page fits a usize.
        let whole_pages = |bytes: usize| bytes.is_multiple_of(sys::PAGE_SIZE as usize);
        let inside = offset.checked_add(len).is_some_and(|end| end <= self.size);
        if len == 0 || !inside || !whole_pages(offset) || !whole_pages(len) {
            let label = self.label.clone();
            return Err(Error::MappingRange { label, offset, len, size: self.size });
        }
        if access.is_writable() && !self.access.is_writable() {
            return Err(Error::ReadOnly { label: self.label.clone() });
        }
        if self.host {
            return Err(Error::HostMapping { label: self.label.clone() });
        }
        // CAST: an offset has at most 64 bits.
        let mapping = self
            .fd
            .map(offset as u64, len, access.protection())
            .map_err(|errno| self.failed("mmap", errno))?;
        Ok(CpuMapping::new(mapping, access, self.label.clone()))
    }

    /// Maps all of the memory with the access rights of the handle.
    ///
    /// # Errors
    ///
    /// As [`DmaBuf::map`].
    pub fn map_whole(&self) -> Result<CpuMapping, Error> {
        self.map(0, self.size, self.access)
    }

    /// Maps all of the memory at the first free addresses of `range`.
    pub(crate) fn map_in(&self, range: &mut DoorRange) -> Result<CpuMapping, Error> {
        if self.host {
            return Err(Error::HostMapping { label: self.label.clone() });
        }
        let mapping = self
            .fd
            .map_in(range, 0, self.size, self.access.protection())
            .map_err(|errno| self.failed("mmap", errno))?;
        Ok(CpuMapping::new(mapping, self.access, self.label.clone()))
    }

    /// Copies out of the memory with a system call, without a CPU mapping. Useful for memory that is
    /// rarely read.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfBounds`]; [`Error::Buffer`], `EPERM` for protected memory.
    pub fn read(&self, offset: usize, bytes: &mut [u8]) -> Result<(), Error> {
        if self.check(offset, bytes.len())? {
            return Ok(());
        }
        // CAST: an offset has at most 64 bits.
        let copied = sys::read(self.client(), self.handle(), offset as u64, bytes);
        self.copied(sys::READ.name(), copied, bytes.len())
    }

    /// Copies into the memory with a system call; see [`DmaBuf::read`].
    ///
    /// # Errors
    ///
    /// [`Error::OutOfBounds`], [`Error::ReadOnly`], [`Error::Buffer`].
    pub fn write(&self, offset: usize, bytes: &[u8]) -> Result<(), Error> {
        self.check_writable()?;
        if self.check(offset, bytes.len())? {
            return Ok(());
        }
        // CAST: an offset has at most 64 bits.
        let copied = sys::write(self.client(), self.handle(), offset as u64, bytes);
        self.copied(sys::WRITE.name(), copied, bytes.len())
    }

    /// Copies rows, for example part of a pitched image, out of the memory with one system call.
    ///
    /// # Errors
    ///
    /// [`Error::Buffer`]: `EOVERFLOW` if the rows exceed `bytes`; `EINVAL` if they exceed the memory, if a
    /// stride is smaller than the row, or if the user stride exceeds (size - offset) / rows.
    pub fn read_rows(&self, rows: sys::Rows, bytes: &mut [u8]) -> Result<(), Error> {
        let copied = sys::read_rows(self.client(), self.handle(), rows, bytes);
        self.copied_rows(sys::READ.name(), copied, rows)
    }

    /// Copies rows into the memory with one system call.
    ///
    /// # Errors
    ///
    /// [`Error::ReadOnly`]; otherwise as [`DmaBuf::read_rows`].
    pub fn write_rows(&self, rows: sys::Rows, bytes: &[u8]) -> Result<(), Error> {
        self.check_writable()?;
        let copied = sys::write_rows(self.client(), self.handle(), rows, bytes);
        self.copied_rows(sys::WRITE.name(), copied, rows)
    }

    /// Whether this is imported host memory.
    pub(crate) fn is_host(&self) -> bool {
        self.host
    }

    pub(crate) fn client(&self) -> &DoorFd {
        self.handle.client()
    }

    /// Returns an error unless the handle allows stores.
    pub(crate) fn check_writable(&self) -> Result<(), Error> {
        if self.access.is_writable() { Ok(()) } else { Err(Error::ReadOnly { label: self.label.clone() }) }
    }

    pub(crate) fn failed(&self, call: &'static str, errno: Errno) -> Error {
        // CAST: a size has at most 64 bits.
        Error::Buffer { call, label: self.label.clone(), size: self.size as u64, errno }
    }

    /// Checks that the bytes are inside the memory. Returns whether there are none, which the kernel rejects.
    pub(crate) fn check(&self, offset: usize, len: usize) -> Result<bool, Error> {
        match offset.checked_add(len) {
            Some(end) if end <= self.size => Ok(len == 0),
            _ => Err(Error::OutOfBounds { label: self.label.clone(), offset, len, size: self.size }),
        }
    }

    /// Checks the length of a copy: the kernel reports success for a partial copy.
    fn copied(&self, call: &'static str, result: Result<u64, Errno>, wanted: usize) -> Result<(), Error> {
        match result {
            // CAST: a length has at most 64 bits.
            Ok(copied) if copied == wanted as u64 => Ok(()),
            Ok(_) => Err(self.failed(call, Errno::FAULT)),
            Err(errno) => Err(self.failed(call, errno)),
        }
    }

    fn copied_rows(
        &self,
        call: &'static str,
        result: Result<u64, Errno>,
        rows: sys::Rows,
    ) -> Result<(), Error> {
        match result {
            Ok(copied) if Some(copied) == rows.row_bytes.checked_mul(rows.count) => Ok(()),
            Ok(_) => Err(self.failed(call, Errno::FAULT)),
            Err(errno) => Err(self.failed(call, errno)),
        }
    }
}

impl AsFd for DmaBuf {
    /// The descriptor, for example to send to another process over a Unix socket.
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

fn access_of(raw: &sys::HandleParameters) -> Access {
    if raw.access_flags & sys::HandleFlags::READ_ONLY.bits() != 0 {
        Access::ReadOnly
    } else {
        Access::ReadWrite
    }
}
