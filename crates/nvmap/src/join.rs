//! Buffers that consist of parts of other buffers (GET_FD_FOR_RANGE_FROM_LIST).
//!
//! The request takes a range of concatenated buffers. In r36.4.3, it only works for ranges that start with the first
//! buffer, or are inside it; for other ranges, the kernel reads beyond the buffer's page list. Therefore a part of a
//! buffer is first cut out as a range of that buffer alone.

use std::collections::BTreeSet;
use std::os::fd::AsFd;

use kernel_door::Errno;
use nvgpu_sys::nvmap as sys;

use crate::attributes::Access;
use crate::client::Nvmap;
use crate::dma_buf::DmaBuf;
use crate::error::Error;
use crate::handle::Handle;

/// A part of a buffer: first byte and length.
type Part<'a> = (&'a DmaBuf, usize, usize);

impl Nvmap {
    /// Concatenates parts of other buffers, each given as (buffer, first byte, length). The result shares their pages
    /// and is contiguous for CPU and GPU. The memory exists as long as any of the buffers does.
    ///
    /// All parts must be writable system memory with the same cache mode. Memory can be part of only one joined
    /// buffer: r36.4.3 has a single record for that, and corrupts it the second time. Therefore, memory that was
    /// joined through this client or its clones is always rejected later. Do not join the same memory in two processes
    /// or through clients that were opened separately.
    ///
    /// # Errors
    ///
    /// [`Error::Part`], [`Error::ReadOnly`] and [`Error::NotJoinable`] before any system call; [`Error::Buffer`],
    /// `EINVAL` for protected memory or parts of different cache modes.
    pub fn join(&self, parts: &[(&DmaBuf, usize, usize)], label: &str) -> Result<DmaBuf, Error> {
        let mut joined = self.joined.lock();
        let serials = DmaBuf::joinable(parts, &joined, label)?;
        let buffer = DmaBuf::join(self, parts, label)?;
        joined.extend(serials);
        Ok(buffer)
    }
}

impl DmaBuf {
    /// Checks parts; returns the serial numbers of their memory.
    fn joinable(parts: &[Part<'_>], joined: &BTreeSet<u64>, label: &str) -> Result<BTreeSet<u64>, Error> {
        if parts.is_empty() {
            return Err(Error::NotJoinable { label: label.into(), reason: "it has no parts" });
        }
        let mut serials = BTreeSet::new();
        for (buffer, offset, len) in parts {
            let label = || buffer.label().to_owned();
            // CAST: a page fits a usize.
            let whole_pages = |bytes: &usize| bytes.is_multiple_of(sys::PAGE_SIZE as usize);
            let inside = offset.checked_add(*len).is_some_and(|end| end <= buffer.size());
            if *len == 0 || !inside || !whole_pages(offset) || !whole_pages(len) {
                return Err(Error::Part { label: label(), offset: *offset, len: *len, size: buffer.size() });
            }
            // The kernel would create a writable buffer from a read-only handle.
            buffer.check_writable()?;
            if buffer.is_host() {
                let reason = "it is imported host memory";
                return Err(Error::NotJoinable { label: label(), reason });
            }
            let serial = buffer.parameters()?.serial;
            if joined.contains(&serial) || !serials.insert(serial) {
                let reason = "its memory is or was part of a joined buffer, and the kernel supports only one";
                return Err(Error::NotJoinable { label: label(), reason });
            }
        }
        Ok(serials)
    }

    /// Joins checked parts.
    fn join(nvmap: &Nvmap, parts: &[Part<'_>], label: &str) -> Result<Self, Error> {
        let size: usize = parts.iter().map(|(.., len)| len).sum();
        let failed = |(call, errno)| {
            // CAST: a size has at most 64 bits.
            Error::Buffer { call, label: label.into(), size: size as u64, errno }
        };
        // Cut-out parts are kept until the joined buffer exists, which then references their pages.
        let mut cuts = Vec::new();
        let mut handles = Vec::new();
        for (buffer, offset, len) in parts {
            if *len == buffer.size() {
                handles.push(buffer.handle());
            } else {
                let cut = range(nvmap, &[buffer.handle()], *offset, *len).map_err(failed)?;
                handles.push(cut.id());
                cuts.push(cut);
            }
        }
        let handle = match (handles.len(), cuts.pop()) {
            // A single cut-out part is the result.
            (1, Some(cut)) => cut,
            (_, cut) => {
                cuts.extend(cut);
                range(nvmap, &handles, 0, size).map_err(failed)?
            }
        };
        tracing::debug!(label, size, parts = parts.len(), "buffers joined");
        Self::export(handle, size, Access::ReadWrite, label).map_err(failed)
    }
}

/// Creates a handle for a range of buffers. The error includes the name of the request.
fn range(nvmap: &Nvmap, handles: &[u32], offset: usize, len: usize) -> Result<Handle, (&'static str, Errno)> {
    // CAST: sizes have at most 64 bits.
    let fd = sys::fd_for_range_from_list(nvmap.fd(), handles, offset as u64, len as u64)
        .map_err(|errno| (sys::GET_FD_FOR_RANGE_FROM_LIST.name(), errno))?;
    Handle::from_fd(nvmap.fd(), fd.as_fd()).map_err(|errno| (sys::FROM_FD.name(), errno))
}
