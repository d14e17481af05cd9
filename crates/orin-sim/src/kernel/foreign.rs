//! dma-bufs of other exporters than nvmap, by their files.
//!
//! A descriptor that is not of the board is a dma-buf of another driver in two cases. Either it is one of the host, or
//! it is a memfd that can become one: sealed against shrinking, and not against writing (`udmabuf.c`,
//! `check_memfd_seals`). A memfd stands for udmabuf where the host has none; it is also what the memory of a software
//! Orin in another process is. Its size is that at its first use, as the size of a dma-buf does not change. A file that
//! may shrink is refused, as udmabuf refuses it, so no access of the model can miss its page.
//!
//! The file identifies the dma-buf, by its inode. So all udmabufs of one whole memfd are the same dma-buf here, and
//! different ones on a board. Metadata of REGISTER_BUFFER is forgotten when nothing but descriptors is left of it.

use std::collections::BTreeMap;
use std::os::fd::OwnedFd;
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use rustix::fs::{OFlags, SealFlags, SeekFrom};
use rustix::io::Errno;

use super::nvmap::{Exporter, Handle};
use crate::memory::{Inode, inode_of};

/// Type of the file system of the host's dma-bufs (`DMA_BUF_MAGIC`).
const DMA_BUF_MAGIC: u64 = 0x444d_4142;
/// Seals with which a memfd cannot become a dma-buf.
const WRITE_SEALS: SealFlags = SealFlags::WRITE.union(SealFlags::FUTURE_WRITE);

/// The dma-bufs of other exporters that are in use, by file.
#[derive(Debug, Default)]
pub(super) struct Foreign {
    known: Mutex<BTreeMap<Inode, Weak<Handle>>>,
    /// Those with fences that were active when one was added.
    kept: Mutex<Vec<Arc<Handle>>>,
}

impl Foreign {
    /// The dma-buf with this file, if it is in use.
    pub(super) fn get(&self, inode: Inode) -> Option<Arc<Handle>> {
        self.known.lock().get(&inode)?.upgrade()
    }

    /// The dma-buf with this file; `None` if it is none.
    pub(super) fn of_file(&self, file: OwnedFd) -> Option<Arc<Handle>> {
        let inode = inode_of(&file)?;
        if let Some(known) = self.get(inode) {
            return Some(known);
        }
        let (exporter, size, file) = inspect(file)?;
        Some(self.add(inode, Handle::foreign(exporter, size, file)))
    }

    /// Keeps a dma-buf while one of its fences is active, also without a descriptor that the model knows.
    pub(super) fn keep_until_signalled(&self, handle: &Arc<Handle>) {
        let mut kept = self.kept.lock();
        let active = |handle: &Arc<Handle>| handle.fences().iter().any(|(_, fence)| fence.result().is_none());
        kept.retain(|other| !Arc::ptr_eq(other, handle) && active(other));
        kept.push(Arc::clone(handle));
    }

    fn add(&self, inode: Inode, handle: Handle) -> Arc<Handle> {
        let mut known = self.known.lock();
        known.retain(|_, handle| handle.strong_count() > 0);
        let handle = Arc::new(handle);
        known.insert(inode, Arc::downgrade(&handle));
        handle
    }
}

/// Exporter and size of a file that is a dma-buf, or can stand for one, and the file for mappings of the model.
fn inspect(file: OwnedFd) -> Option<(Exporter, u64, OwnedFd)> {
    let (exporter, size, file) = if rustix::fs::fstatfs(&file).ok()?.f_type as u64 == DMA_BUF_MAGIC {
        // Does not move the position of a dma-buf.
        (Exporter::Host, rustix::fs::seek(&file, SeekFrom::End(0)).ok()?, file)
    } else {
        if !is_sealed(&file).ok()? {
            return None;
        }
        let size = u64::try_from(rustix::fs::fstat(&file).ok()?.st_size).ok()?;
        // A descriptor that is not open for writing stands for a dma-buf that the GPU may only read. The model's own
        // mapping is the same for both.
        (Exporter::Other, size, crate::procfs::reopen(&file, OFlags::RDWR).ok()?)
    };
    (size > 0).then_some((exporter, size, file))
}

/// Whether a memfd has the seals of one that can become a dma-buf.
///
/// # Errors
///
/// EINVAL if it is no memfd.
pub(super) fn is_sealed(file: &OwnedFd) -> Result<bool, Errno> {
    let seals = rustix::fs::fcntl_get_seals(file)?;
    Ok(seals.contains(SealFlags::SHRINK) && !seals.intersects(WRITE_SEALS))
}
