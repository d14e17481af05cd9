//! CPU mappings.

use core::ptr::NonNull;

use bytemuck::{AnyBitPattern, NoUninit};
use kernel_door::DoorMapping;

use crate::attributes::Access;
use crate::error::Error;
use crate::view::TypedView;

/// A CPU mapping of all or part of a [`crate::DmaBuf`]; unmapped on drop.
///
/// It keeps the memory alive without the handle and the descriptor. It is `Send` and `Sync` for the same
/// reason as [`crate::Buffer`].
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use std::sync::Arc;
/// # let door: Arc<dyn kernel_door::Door> = Arc::new(orin_sim::SoftwareOrin::new(orin_sim::Config::default())?);
/// # let nvmap = nvmap::Nvmap::open(&door)?;
/// let mapping = nvmap.buffer(4096).allocate_unmapped()?.map_whole()?;
/// let words = mapping.view::<u32>(0, 4)?;
/// words.set(3, 9);
/// assert_eq!(words.to_vec(), [0, 0, 0, 9]);
/// # Ok(())
/// # }
/// ```
#[derive(Debug)]
pub struct CpuMapping {
    mapping: DoorMapping,
    access: Access,
    label: String,
}

impl CpuMapping {
    pub(crate) fn new(mapping: DoorMapping, access: Access, label: String) -> Self {
        Self { mapping, access, label }
    }

    /// Pointer to the first byte, valid for volatile and atomic accesses of [`CpuMapping::len`] bytes
    /// while the mapping is alive; for stores only if [`CpuMapping::access`] allows them.
    pub fn pointer(&self) -> NonNull<u8> {
        self.mapping.pointer()
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.mapping.len()
    }

    /// Whether the mapping is empty; always `false`.
    pub fn is_empty(&self) -> bool {
        self.mapping.is_empty()
    }

    /// Access rights.
    pub fn access(&self) -> Access {
        self.access
    }

    /// Returns a view of `count` values of type `T` that starts at byte `offset`.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfBounds`], [`Error::Misaligned`].
    pub fn view<T: NoUninit + AnyBitPattern>(
        &self,
        offset: usize,
        count: usize,
    ) -> Result<TypedView<'_, T>, Error> {
        // SAFETY: the mapping is valid for its length while `self` is alive, which the view borrows, and
        // writable if `access` allows stores.
        unsafe { TypedView::new(self.pointer(), self.len(), self.access, &self.label, offset, count) }
    }
}
