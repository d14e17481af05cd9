//! Typed access to memory that a device also writes.

use core::fmt;
use core::marker::PhantomData;
use core::ptr::{self, NonNull};

use bytemuck::{AnyBitPattern, NoUninit};

use crate::attributes::Access;
use crate::error::Error;
use gpu_hal::volatile;

/// Values of type `T` in shared memory, accessed by volatile copies.
///
/// A view is to a buffer what a slice is to a vector, but returns values instead of references, because
/// the GPU may change them at any time. A read of a value larger than a machine word may be torn.
///
/// Like the buffer, it is `Send` and `Sync`.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use std::sync::Arc;
/// # let door: Arc<dyn kernel_door::Door> = Arc::new(orin_sim::SoftwareOrin::new(orin_sim::Config::default())?);
/// # let nvmap = nvmap::Nvmap::open(&door)?;
/// let buffer = nvmap.buffer(4096).allocate()?;
/// let view = buffer.view::<f32>(0, 3)?;
/// view.copy_from_slice(0, &[1.0, 2.0, 3.0])?;
/// assert_eq!(view.iter().sum::<f32>(), 6.0);
/// # Ok(())
/// # }
/// ```
pub struct TypedView<'a, T> {
    first: NonNull<T>,
    len: usize,
    access: Access,
    label: &'a str,
    memory: PhantomData<&'a ()>,
}

// SAFETY: a view is an address range that is valid for `'a`. It only makes volatile copies of plain
// values, which are sound while other threads or the device access the memory.
unsafe impl<T> Send for TypedView<'_, T> {}
// SAFETY: as for `Send`.
unsafe impl<T> Sync for TypedView<'_, T> {}

impl<T> Clone for TypedView<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for TypedView<'_, T> {}

impl<T> fmt::Debug for TypedView<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TypedView")
            .field("label", &self.label)
            .field("len", &self.len)
            .finish_non_exhaustive()
    }
}

impl<'a, T: NoUninit + AnyBitPattern> TypedView<'a, T> {
    /// A view of `count` values that starts at byte `offset` of the `size` bytes at `base`.
    ///
    /// # Safety
    ///
    /// `base` is valid for volatile reads of `size` bytes for `'a`, and for volatile writes if
    /// `access` allows them.
    pub(crate) unsafe fn new(
        base: NonNull<u8>,
        size: usize,
        access: Access,
        label: &'a str,
        offset: usize,
        count: usize,
    ) -> Result<Self, Error> {
        let len = count.checked_mul(size_of::<T>());
        if len.and_then(|len| offset.checked_add(len)).is_none_or(|end| end > size) {
            let len = len.unwrap_or(usize::MAX);
            return Err(Error::OutOfBounds { label: label.into(), offset, len, size });
        }
        // SAFETY: `offset` is at most `size`.
        let first = unsafe { base.add(offset) };
        if !first.addr().get().is_multiple_of(align_of::<T>()) {
            return Err(Error::Misaligned { label: label.into(), offset, alignment: align_of::<T>() });
        }
        Ok(Self { first: first.cast(), len: count, access, label, memory: PhantomData })
    }

    /// Number of values.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether the view is empty.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Pointer to the first value, for volatile and atomic accesses of [`TypedView::len`] values.
    pub fn pointer(&self) -> NonNull<T> {
        self.first
    }

    /// Reads the value at `index`.
    ///
    /// # Panics
    ///
    /// Panics if `index` is out of bounds, like an index into a slice.
    #[inline]
    pub fn get(&self, index: usize) -> T {
        // SAFETY: `at` has checked the index; the memory is valid for `'a` and aligned, and every bit
        // pattern is a `T`.
        unsafe { ptr::read_volatile(self.at(index)) }
    }

    /// Writes the value at `index`.
    ///
    /// # Panics
    ///
    /// Panics if `index` is out of bounds, like an index into a slice, or if the memory is read-only.
    #[inline]
    pub fn set(&self, index: usize, value: T) {
        // PANIC: a bug of the caller, which can query `access` of the mapping.
        assert!(self.access.is_writable(), "\"{}\" is read-only", self.label);
        // SAFETY: as in `get`; writes are allowed.
        unsafe { ptr::write_volatile(self.at(index), value) }
    }

    /// Returns a view of the values `start..start + count`.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfBounds`], in bytes.
    pub fn sub(&self, start: usize, count: usize) -> Result<Self, Error> {
        self.check(start, count)?;
        // SAFETY: `start` is at most `len`.
        let first = unsafe { self.first.add(start) };
        Ok(Self { first, len: count, ..*self })
    }

    /// Copies `values` into the view, starting at index `start`.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfBounds`] in bytes, [`Error::ReadOnly`]; nothing is copied in that case.
    pub fn copy_from_slice(&self, start: usize, values: &[T]) -> Result<(), Error> {
        self.check(start, values.len())?;
        self.check_writable()?;
        // SAFETY: the range has been checked; no slice overlaps it, since no reference into shared
        // memory exists.
        unsafe { volatile::store(self.first.add(start).cast().as_ptr(), bytemuck::cast_slice(values)) };
        Ok(())
    }

    /// Copies values, starting at index `start`, into `values`.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfBounds`] in bytes; nothing is copied in that case.
    pub fn copy_to_slice(&self, start: usize, values: &mut [T]) -> Result<(), Error> {
        self.check(start, values.len())?;
        // SAFETY: as in `copy_from_slice`.
        unsafe { volatile::load(self.first.add(start).cast().as_ptr(), bytemuck::cast_slice_mut(values)) };
        Ok(())
    }

    /// Copies all values of `source`, which must be the same range or not overlap.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfBounds`] if the lengths differ, [`Error::ReadOnly`].
    pub fn copy_from(&self, source: &TypedView<'_, T>) -> Result<(), Error> {
        if source.len != self.len {
            return Err(self.out_of_bounds(0, source.len));
        }
        self.check_writable()?;
        for index in 0..self.len {
            self.set(index, source.get(index));
        }
        Ok(())
    }

    /// Sets every value to `value`.
    ///
    /// # Errors
    ///
    /// [`Error::ReadOnly`].
    pub fn fill(&self, value: T) -> Result<(), Error> {
        self.check_writable()?;
        for index in 0..self.len {
            // SAFETY: as in `set`.
            unsafe { ptr::write_volatile(self.at(index), value) };
        }
        Ok(())
    }

    /// Returns an iterator that reads each value when it is requested.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = T> + use<'a, T> {
        let view = *self;
        (0..view.len).map(move |index| view.get(index))
    }

    /// All values, copied.
    pub fn to_vec(&self) -> Vec<T> {
        let mut values = vec![T::zeroed(); self.len];
        // SAFETY: as in `copy_to_slice`, over the whole view.
        unsafe { volatile::load(self.first.cast().as_ptr(), bytemuck::cast_slice_mut(&mut values)) };
        values
    }

    #[inline]
    fn at(&self, index: usize) -> *mut T {
        // PANIC: a bug of the caller, like a slice index out of range.
        assert!(index < self.len, "value {index} of \"{}\", which has {}", self.label, self.len);
        // SAFETY: the index is below the length.
        unsafe { self.first.as_ptr().add(index) }
    }

    fn check(&self, start: usize, count: usize) -> Result<(), Error> {
        match start.checked_add(count) {
            Some(end) if end <= self.len => Ok(()),
            _ => Err(self.out_of_bounds(start, count)),
        }
    }

    fn check_writable(&self) -> Result<(), Error> {
        if self.access.is_writable() { Ok(()) } else { Err(Error::ReadOnly { label: self.label.into() }) }
    }

    fn out_of_bounds(&self, start: usize, count: usize) -> Error {
        let bytes = |values: usize| values.saturating_mul(size_of::<T>());
        Error::OutOfBounds {
            label: self.label.into(),
            offset: bytes(start),
            len: bytes(count),
            size: bytes(self.len),
        }
    }
}
