//! Memory as the drivers pass it around: a handle number for nvmap, a descriptor for everybody else.
//!
//! The descriptor is what the GPU driver maps, what another process receives, and what the CPU maps.
//! The memory behind it lives as long as any handle, descriptor or mapping of CPU or GPU does, in
//! any process; a [`DmaBuf`] is one handle and one descriptor.

use std::os::fd::{AsFd, BorrowedFd, RawFd};

use nvgpu_sys::nvmap::{self as sys, Heaps};
use nvgpu_sys::{DoorFd, Errno};

use crate::attributes::{Access, CacheMode, CacheOperation};
use crate::client::{Nvmap, query_error};
use crate::error::Error;
use crate::handle::Handle;
use crate::mapping::CpuMapping;

/// What the kernel knows of a piece of memory ([`DmaBuf::parameters`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parameters {
    /// Size in bytes, whole pages.
    pub size: u64,
    /// Where the memory comes from.
    pub heap: Heaps,
    /// Alignment in bytes.
    pub alignment: u64,
    /// How CPU mappings access it.
    pub cache: CacheMode,
    /// Whether the pages are physically contiguous.
    pub contiguous: bool,
    /// What the handle allows.
    pub access: Access,
    /// Serial number, machine-wide: equal for all handles of the same memory.
    pub serial: u64,
}

impl Nvmap {
    /// Makes a new handle and descriptor for the memory behind `fd`, a dma-buf descriptor of this
    /// process or one received from another (over a Unix socket, or inherited). `fd` may be closed
    /// afterwards.
    ///
    /// # Errors
    ///
    /// [`Error::Buffer`]: `EBADF` or `EINVAL` if `fd` is no dma-buf; [`Error::ForeignDmaBuf`] if it is
    /// another driver's.
    pub fn import(&self, fd: BorrowedFd<'_>, label: &str) -> Result<DmaBuf, Error> {
        let failed = |(call, errno)| Error::Buffer { call, label: label.into(), size: 0, errno };
        let handle = Handle::from_fd(self.fd(), fd).map_err(|errno| failed((sys::FROM_FD.name(), errno)))?;
        // A dma-buf of another driver comes back as a descriptor, of which nvmap knows nothing.
        let parameters = handle.parameters().map_err(|_| Error::ForeignDmaBuf { label: label.into() })?;
        let size = usize::try_from(parameters.size).map_err(|_| Error::Size {
            label: label.into(),
            size: parameters.size,
            alignment: sys::PAGE_SIZE,
        })?;
        let dma_buf = DmaBuf::export(handle, size, access_of(&parameters), label).map_err(failed)?;
        tracing::debug!(label, size, handle = dma_buf.handle(), "dma-buf imported");
        Ok(dma_buf)
    }

    /// Does cache maintenance on parts of several buffers, (buffer, first byte, length) each, in one
    /// call. An Orin is I/O coherent, so its kernel checks the list and does nothing.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfBounds`] before any call; [`Error::Query`].
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
            .map_err(|errno| query_error(sys::CACHE_LIST.name(), errno))
    }
}

/// A handle and its dma-buf descriptor, without a CPU mapping of its own.
///
/// Dropping it closes the descriptor, then frees the handle.
#[derive(Debug)]
pub struct DmaBuf {
    // Dropped in this order; the handle keeps the nvmap descriptor open.
    fd: DoorFd,
    handle: Handle,
    size: usize,
    access: Access,
    /// Over memory of the process itself, which the descriptor does not map.
    host: bool,
    label: String,
}

impl DmaBuf {
    /// Exports a handle that has memory. The error names the request.
    pub(crate) fn export(
        handle: Handle,
        size: usize,
        access: Access,
        label: &str,
    ) -> Result<Self, (&'static str, Errno)> {
        let fd = handle.export().map_err(|errno| (sys::GET_FD.name(), errno))?;
        Ok(Self { fd, handle, size, access, host: false, label: label.into() })
    }

    /// Exports a handle over host memory.
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

    /// nvmap's number for the memory.
    pub fn handle(&self) -> u32 {
        self.handle.id()
    }

    /// The descriptor's number, for requests that take one; never 0.
    pub fn raw_fd(&self) -> RawFd {
        self.fd.raw()
    }

    /// What the handle allows.
    pub fn access(&self) -> Access {
        self.access
    }

    /// What the memory is for.
    pub fn label(&self) -> &str {
        &self.label
    }

    /// What the kernel knows of the memory.
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

    /// A second handle and descriptor for the same memory, possibly read-only: that is what to hand
    /// to a process that must not write.
    ///
    /// # Errors
    ///
    /// [`Error::Buffer`]; `EPERM` for more access than this one allows.
    pub fn duplicate(&self, access: Access) -> Result<Self, Error> {
        let handle = self
            .handle
            .duplicate(!access.is_writable())
            .map_err(|errno| self.failed(sys::DUP_HANDLE.name(), errno))?;
        let copy = Self::export(handle, self.size, access, &self.label)
            .map_err(|(call, errno)| self.failed(call, errno))?;
        Ok(Self { host: self.host, ..copy })
    }

    /// Maps `len` bytes from `offset` on for the CPU, whole pages both. Any number of mappings may
    /// exist, overlapping or not; each outlives the `DmaBuf` if it must.
    ///
    /// # Errors
    ///
    /// [`Error::MappingRange`] if the range is empty, not whole pages or leaves the memory;
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

    /// Maps all of it as the handle allows.
    ///
    /// # Errors
    ///
    /// As [`DmaBuf::map`].
    pub fn map_whole(&self) -> Result<CpuMapping, Error> {
        self.map(0, self.size, self.access)
    }

    /// Copies out of the memory through the kernel, without a CPU mapping. A system call per copy:
    /// for memory that is rarely looked at.
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

    /// Copies into the memory through the kernel; see [`DmaBuf::read`].
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

    /// Copies rows, e.g. a piece of a pitched image, out of the memory in one system call.
    ///
    /// # Errors
    ///
    /// [`Error::Buffer`]: `EOVERFLOW` if the rows leave `bytes`, `EINVAL` if they leave the memory, if
    /// a stride is smaller than the row, or if the user stride exceeds what is left of the memory
    /// behind the offset, divided by the rows.
    pub fn read_rows(&self, rows: sys::Rows, bytes: &mut [u8]) -> Result<(), Error> {
        let copied = sys::read_rows(self.client(), self.handle(), rows, bytes);
        self.copied_rows(sys::READ.name(), copied, rows)
    }

    /// Copies rows into the memory in one system call.
    ///
    /// # Errors
    ///
    /// [`Error::ReadOnly`]; else as [`DmaBuf::read_rows`].
    pub fn write_rows(&self, rows: sys::Rows, bytes: &[u8]) -> Result<(), Error> {
        self.check_writable()?;
        let copied = sys::write_rows(self.client(), self.handle(), rows, bytes);
        self.copied_rows(sys::WRITE.name(), copied, rows)
    }

    /// Whether it is over memory of the process itself.
    pub(crate) fn is_host(&self) -> bool {
        self.host
    }

    pub(crate) fn client(&self) -> &DoorFd {
        self.handle.client()
    }

    /// Fails unless the handle allows stores.
    pub(crate) fn check_writable(&self) -> Result<(), Error> {
        if self.access.is_writable() { Ok(()) } else { Err(Error::ReadOnly { label: self.label.clone() }) }
    }

    pub(crate) fn failed(&self, call: &'static str, errno: Errno) -> Error {
        // CAST: a size has at most 64 bits.
        Error::Buffer { call, label: self.label.clone(), size: self.size as u64, errno }
    }

    /// Fails unless the bytes lie in the memory; whether there are none, which the kernel refuses.
    pub(crate) fn check(&self, offset: usize, len: usize) -> Result<bool, Error> {
        match offset.checked_add(len) {
            Some(end) if end <= self.size => Ok(len == 0),
            _ => Err(Error::OutOfBounds { label: self.label.clone(), offset, len, size: self.size }),
        }
    }

    /// The kernel reports success for a copy that stopped half-way.
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
    /// The descriptor, e.g. to send it to another process over a Unix socket.
    fn as_fd(&self) -> BorrowedFd<'_> {
        // SAFETY: every door hands out descriptors of the process; `fd` keeps this one open for the
        // lifetime of the borrow.
        unsafe { BorrowedFd::borrow_raw(self.fd.raw()) }
    }
}

fn access_of(raw: &sys::HandleParameters) -> Access {
    if raw.access_flags & sys::HandleFlags::READ_ONLY.bits() != 0 {
        Access::ReadOnly
    } else {
        Access::ReadWrite
    }
}
