//! Pages that come and go one by one inside a sparse reservation (REMAP; `os/linux/vm_remap.c`,
//! `common/mm/vm_remap.c`).
//!
//! Where nothing is mapped, loads of a sparse reservation give 0 and stores go nowhere. One request changes
//! any number of its pages, all or none.

use std::collections::BTreeMap;
use std::sync::Arc;

use nvgpu_sys::address_space::{self as sys, RemapFlags, RemapOp};
use nvmap::Buffer;

use crate::address_space::{GPU_PAGE, Reservation, whole_pages};
use crate::error::{self, Error};

/// A change of pages of a sparse reservation; offsets and lengths are of whole pages, in bytes.
#[derive(Clone, Copy, Debug)]
pub enum PageChange<'a> {
    /// Shows part of a buffer, in place of whatever the pages showed.
    Map {
        /// Where in the reservation.
        offset: u64,
        /// What.
        buffer: &'a Arc<Buffer>,
        /// First byte of the buffer.
        buffer_offset: u64,
        /// How much.
        len: u64,
        /// How.
        options: PageOptions,
    },
    /// Makes pages sparse again.
    Clear {
        /// Where in the reservation.
        offset: u64,
        /// How much.
        len: u64,
    },
}

/// How pages are mapped. The default is to read and write without caching in the GPU's L2; the aperture is
/// always the one that does not snoop the CPU's caches.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct PageOptions {
    /// Cache in the GPU's L2.
    pub gpu_cached: bool,
    /// Read only; a write is an MMU fault.
    pub read_only: bool,
}

/// What pages of a reservation show: lengths and buffers by offset, which do not overlap.
#[derive(Debug, Default)]
pub(crate) struct Pages {
    shown: BTreeMap<u64, (u64, Arc<Buffer>)>,
}

impl Pages {
    /// Whether any of the bytes show a buffer.
    pub(crate) fn overlap(&self, offset: u64, len: u64) -> bool {
        let before = self.shown.range(..offset + len).next_back();
        before.is_some_and(|(start, (taken, _))| start + taken > offset)
    }

    /// Keeps `buffer` for the bytes, or nothing, in place of what was kept for them.
    fn set(&mut self, offset: u64, len: u64, buffer: Option<&Arc<Buffer>>) {
        let end = offset + len;
        while let Some((&start, _)) =
            self.shown.range(..end).next_back().filter(|(start, (taken, _))| *start + taken > offset)
        {
            let Some((taken, old)) = self.shown.remove(&start) else { break };
            if start + taken > end {
                self.shown.insert(end, (start + taken - end, Arc::clone(&old)));
            }
            if start < offset {
                self.shown.insert(start, (offset - start, old));
            }
        }
        if let Some(buffer) = buffer {
            self.shown.insert(offset, (len, Arc::clone(buffer)));
        }
    }

    /// Bytes that show a buffer.
    fn bytes(&self) -> u64 {
        self.shown.values().map(|(len, _)| len).sum()
    }
}

impl PageChange<'_> {
    fn offset(&self) -> u64 {
        match self {
            Self::Map { offset, .. } | Self::Clear { offset, .. } => *offset,
        }
    }

    fn len(&self) -> u64 {
        match self {
            Self::Map { len, .. } | Self::Clear { len, .. } => *len,
        }
    }

    /// Checks the buffer; returns the operation without its place.
    fn operation(&self) -> Result<RemapOp, Error> {
        let mut flags = RemapFlags::PAGESIZE_4K;
        let unmapped =
            RemapOp { compr_kind: sys::KIND_INVALID, incompr_kind: sys::KIND_INVALID, ..RemapOp::default() };
        let Self::Map { buffer, buffer_offset, len, options, .. } = self else {
            return Ok(RemapOp { flags: flags.bits(), ..unmapped });
        };
        page_multiple("offset in a buffer", *buffer_offset)?;
        // CAST: a size has at most 64 bits.
        if buffer_offset.checked_add(*len).is_none_or(|end| end > buffer.size() as u64) {
            let rule = "the mapping must end inside the buffer";
            return Err(Error::Range { what: "offset in a buffer", value: *buffer_offset, rule });
        }
        // The kernel looks only once at a buffer that several operations in a row are about, so it would
        // let a later one write.
        if !options.read_only && !buffer.access().is_writable() {
            return Err(Error::Memory(nvmap::Error::ReadOnly { label: buffer.label().into() }));
        }
        flags.set(RemapFlags::CACHEABLE, options.gpu_cached);
        flags.set(RemapFlags::ACCESS_NO_WRITE, options.read_only);
        Ok(RemapOp {
            flags: flags.bits(),
            incompr_kind: sys::KIND_PITCH,
            // Never 0, which means none.
            mem_handle: buffer.dma_buf().cast_unsigned(),
            mem_offset_in_pages: buffer_offset / GPU_PAGE,
            ..unmapped
        })
    }
}

fn page_multiple(what: &'static str, value: u64) -> Result<(), Error> {
    if value.is_multiple_of(GPU_PAGE) {
        Ok(())
    } else {
        Err(Error::Range { what, value, rule: "it must be a multiple of 4096" })
    }
}

impl Reservation {
    /// Changes pages of a sparse reservation, in order, with one request: all of them, or none. A page keeps
    /// its buffer alive for as long as it shows it. Mappings made with [`Reservation::map`] are not touched:
    /// pages under them are refused, as these are by it.
    ///
    /// The kernel does not wait for the GPU. Work in flight sees either what a page showed before or what it
    /// shows then; it does not fault, but for writes to pages that are read-only.
    ///
    /// # Errors
    ///
    /// [`Error::NotSparse`]; [`Error::Range`] if a number is not a whole number of pages or leaves the
    /// reservation or the buffer; [`Error::Overlap`] with a mapping; [`Error::Memory`] for writing a buffer
    /// that is read-only; [`Error::Call`]. Only if the kernel runs out of memory for page tables on the way
    /// (`ENOMEM`) have the first changes been made.
    pub fn change_pages(&self, changes: &[PageChange<'_>]) -> Result<(), Error> {
        let (va, len) = (self.va(), self.len());
        if !self.is_sparse() {
            return Err(Error::NotSparse { va });
        }
        let mut operations = Vec::with_capacity(changes.len());
        let mut used = self.used();
        for change in changes {
            whole_pages("length of a change", change.len())?;
            page_multiple("offset in a reservation", change.offset())?;
            if change.offset().checked_add(change.len()).is_none_or(|end| end > len) {
                let rule = "the change must end inside the reservation";
                return Err(Error::Range { what: "offset in a reservation", value: change.offset(), rule });
            }
            // The sum is below the end of the reservation, which the kernel placed below 2^40.
            let first = va.get() + change.offset();
            if used.mapped(change.offset(), change.len()) {
                return Err(Error::Overlap { va: crate::GpuVa(first), len: change.len() });
            }
            let (virt_offset_in_pages, num_pages) = (first / GPU_PAGE, change.len() / GPU_PAGE);
            operations.push(RemapOp { virt_offset_in_pages, num_pages, ..change.operation()? });
        }
        let result = sys::remap(self.space().fd(), &mut operations);
        let done = result.map_or_else(|(_, done)| done, |()| changes.len());
        for change in changes.iter().take(done) {
            let buffer = match change {
                PageChange::Map { buffer, .. } => Some(*buffer),
                PageChange::Clear { .. } => None,
            };
            used.pages.set(change.offset(), change.len(), buffer);
        }
        result.map_err(|(errno, _)| {
            error::call(sys::REMAP.name(), format!("{} changes of pages", changes.len()))(errno)
        })
    }

    /// Bytes of the reservation that [`Reservation::change_pages`] has put buffers under.
    pub fn shown_bytes(&self) -> u64 {
        self.used().pages.bytes()
    }
}
