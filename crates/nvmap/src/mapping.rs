//! One mapping of memory into the process.

use core::ptr::NonNull;

use bytemuck::{AnyBitPattern, NoUninit};
use nvgpu_sys::DoorMapping;

use crate::attributes::Access;
use crate::error::Error;
use crate::view::TypedView;

/// A CPU mapping of all or part of a [`crate::DmaBuf`]; unmapped on drop.
///
/// It keeps the memory alive by itself: handle and descriptor may be gone. `Send` and `Sync` for the
/// reason that [`crate::Buffer`] is.
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

    /// First byte. Valid for volatile and atomic accesses of [`CpuMapping::len`] bytes as long as the
    /// mapping lives; stores only if [`CpuMapping::access`] allows them.
    pub fn pointer(&self) -> NonNull<u8> {
        self.mapping.pointer()
    }

    /// Length in bytes.
    pub fn len(&self) -> usize {
        self.mapping.len()
    }

    /// Whether the mapping has no bytes; never the case.
    pub fn is_empty(&self) -> bool {
        self.mapping.is_empty()
    }

    /// What the mapping allows.
    pub fn access(&self) -> Access {
        self.access
    }

    /// `count` values of type `T` from byte `offset` on.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfBounds`], [`Error::Misaligned`].
    pub fn view<T: NoUninit + AnyBitPattern>(
        &self,
        offset: usize,
        count: usize,
    ) -> Result<TypedView<'_, T>, Error> {
        // SAFETY: the mapping is valid for its length as long as `self`, which the view borrows, and
        // takes stores if `access` says so.
        unsafe { TypedView::new(self.pointer(), self.len(), self.access, &self.label, offset, count) }
    }
}
