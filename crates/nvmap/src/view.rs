//! Typed access to memory that a device also writes.

use core::fmt;
use core::marker::PhantomData;
use core::ptr::{self, NonNull};

use bytemuck::{AnyBitPattern, NoUninit};

use crate::attributes::Access;
use crate::error::Error;
use gpu_hal::volatile;

/// Values of type `T` in shared memory, reached by volatile copies.
///
/// It is to a buffer what a slice is to a vector, but hands out values, never references: the GPU may
/// change them at any time. A value that is larger than a machine word may be seen half-written.
///
/// Copying a view is cheap. Like the buffer it is `Send` and `Sync`.
pub struct TypedView<'a, T> {
    first: NonNull<T>,
    len: usize,
    access: Access,
    label: &'a str,
    memory: PhantomData<&'a ()>,
}

// SAFETY: a view is an address range that stays valid for `'a`, and offers volatile copies of plain
// values alone, which are sound whatever another thread or the device does.
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
    /// `count` values from byte `offset` on in `size` bytes at `base`.
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

    /// Whether there are no values.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// First value, for volatile and atomic accesses of [`TypedView::len`] values.
    pub fn pointer(&self) -> NonNull<T> {
        self.first
    }

    /// Reads the value at `index`.
    ///
    /// # Panics
    ///
    /// If `index` is out of bounds, as indexing a slice does.
    #[inline]
    pub fn get(&self, index: usize) -> T {
        // SAFETY: `at` has checked the index; the memory is valid for `'a`, every bit pattern of it
        // is a `T`, and it is aligned.
        unsafe { ptr::read_volatile(self.at(index)) }
    }

    /// Writes the value at `index`.
    ///
    /// # Panics
    ///
    /// If `index` is out of bounds, as indexing a slice does, or the memory is read-only.
    #[inline]
    pub fn set(&self, index: usize, value: T) {
        // PANIC: a bug of the caller; `access` of the mapping said so.
        assert!(self.access.is_writable(), "\"{}\" is read-only", self.label);
        // SAFETY: as in `get`; writes are allowed.
        unsafe { ptr::write_volatile(self.at(index), value) }
    }

    /// The values `start..start + count` by themselves.
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

    /// Copies `values` to `start` and what follows.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfBounds`] in bytes, [`Error::ReadOnly`]; nothing is copied then.
    pub fn copy_from_slice(&self, start: usize, values: &[T]) -> Result<(), Error> {
        self.check(start, values.len())?;
        self.check_writable()?;
        // SAFETY: the range has been checked; no slice overlaps it, since no reference into shared
        // memory exists.
        unsafe { volatile::store(self.first.add(start).cast().as_ptr(), bytemuck::cast_slice(values)) };
        Ok(())
    }

    /// Copies the values from `start` on into `values`.
    ///
    /// # Errors
    ///
    /// [`Error::OutOfBounds`] in bytes; nothing is copied then.
    pub fn copy_to_slice(&self, start: usize, values: &mut [T]) -> Result<(), Error> {
        self.check(start, values.len())?;
        // SAFETY: as in `copy_from_slice`.
        unsafe { volatile::load(self.first.add(start).cast().as_ptr(), bytemuck::cast_slice_mut(values)) };
        Ok(())
    }

    /// Copies all values of `source`, which may overlap only if it is the same range.
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

    /// The values one after another, each read when its turn comes.
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
