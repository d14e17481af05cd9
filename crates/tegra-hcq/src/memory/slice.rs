//! Parts of buffers.

use core::marker::PhantomData;
use core::ops::RangeBounds;

use gpu_hal::{FileAccess, MemoryUse, volatile};

use super::plane::resolve;
use super::{Buffer, Pod};
use crate::error::{RangeError, Result};
use crate::heap::Handle;
use crate::limits::DEFAULT_TIMEOUT;

/// Elements of a buffer, for reading: all of it, or a part ([`Buffer::slice`]).
///
/// Calls that read take `impl Into<Slice>`: a `&Buffer`, a `Slice`, or a reference to one.
#[derive(Debug)]
pub struct Slice<'a, T: Pod> {
    handle: &'a Handle,
    start: usize,
    len: usize,
    _elements: PhantomData<&'a T>,
}

impl<T: Pod> Clone for Slice<'_, T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T: Pod> Copy for Slice<'_, T> {}

/// Elements of a buffer, for writing: all of it, or a part ([`Buffer::slice_mut`]).
///
/// Calls that write take `impl Into<SliceMut>`: a `&mut Buffer`, a `SliceMut`, or a `&mut SliceMut`.
///
/// ```
/// # #[cfg(feature = "sim")] fn main() -> tegra_hcq::Result<()> {
/// # let device = tegra_hcq::Device::open(tegra_hcq::DeviceKind::Sim)?;
/// let mut buffer = device.alloc_zeroed::<u32>(4)?;
/// buffer.slice_mut(2..)?.copy_from_slice(&[8, 9])?;
/// assert_eq!(buffer.to_vec()?, [0, 0, 8, 9]);
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "sim"))] fn main() {}
/// ```
#[derive(Debug)]
pub struct SliceMut<'a, T: Pod> {
    handle: &'a Handle,
    start: usize,
    len: usize,
    _elements: PhantomData<&'a mut T>,
}

/// The length of both kinds of parts.
macro_rules! lengths {
    ($($part:ident),*) => {$(
        impl<T: Pod> $part<'_, T> {
            /// Number of elements.
            pub fn len(&self) -> usize {
                self.len
            }

            /// Whether there are no elements.
            pub fn is_empty(&self) -> bool {
                self.len == 0
            }
        }
    )*};
}

lengths!(Slice, SliceMut);

/// Calls a macro with all types that lead to elements to read: those that become a `Slice<'a, T>`.
macro_rules! with_readable {
    ($implement:ident) => {
        $implement! {
            &'a Buffer<T>,
            &'a mut Buffer<T>,
            Slice<'a, T>,
            &'a Slice<'_, T>,
            &'a SharedBuffer<T>,
            &'a mut SharedBuffer<T>,
            &'a ReadOnlyBuffer<T>,
            SliceMut<'a, T>,
            &'a SliceMut<'_, T>,
            &'a mut SliceMut<'_, T>,
        }
    };
}
pub(crate) use with_readable;

/// Checks that a slice has the length of the elements to copy.
fn check_len(given: usize, len: usize) -> Result<()> {
    if given == len {
        return Ok(());
    }
    Err(RangeError::Slice { given, len }.into())
}

/// Start and length of elements of type `T` as elements of type `U`. A buffer is aligned to 256 bytes.
fn cast<T: Pod, U: Pod>(start: usize, len: usize) -> Result<(usize, usize)> {
    const { super::check_alignment::<U>() };
    let (first, bytes) = (start * size_of::<T>(), len * size_of::<T>());
    let size = size_of::<U>();
    if size > 0 && first.is_multiple_of(size) && bytes.is_multiple_of(size) {
        return Ok((first / size, bytes / size));
    }
    Err(RangeError::Cast { first, bytes, element_bytes: size }.into())
}

impl<'a, T: Pod> Slice<'a, T> {
    /// `len` elements from `start` on, which the memory contains.
    pub(crate) fn new(handle: &'a Handle, start: usize, len: usize) -> Self {
        Self { handle, start, len, _elements: PhantomData }
    }

    /// Address of the first element on the GPU.
    pub fn gpu_va(&self) -> u64 {
        self.handle.gpu_va() + (self.start * size_of::<T>()) as u64
    }

    /// Waits for the work that uses the buffer, then copies the elements to `target`.
    ///
    /// # Errors
    ///
    /// [`Error::Range`](crate::Error::Range) if the lengths differ; the errors of [`Buffer::wait`].
    pub fn copy_to_slice(&self, target: &mut [T]) -> Result<()> {
        check_len(target.len(), self.len)?;
        self.wait()?;
        let _access = self.handle.memory().access_cpu(FileAccess::ReadOnly)?;
        if self.handle.heap().read_out(self.purpose(), self.gpu_va(), bytemuck::cast_slice_mut(target)) {
            return Ok(());
        }
        // SAFETY: `start + len` elements are inside the memory, which the handle keeps. `target` has the same length
        // and is ordinary memory, which the driver never maps. Any bit pattern is a valid `Pod` value.
        unsafe {
            let source = self.handle.map()?.add(self.start * size_of::<T>());
            volatile::load(source, bytemuck::cast_slice_mut(target));
        }
        Ok(())
    }

    /// Waits for the work that uses the buffer, then returns the elements.
    ///
    /// # Errors
    ///
    /// The errors of [`Buffer::wait`].
    pub fn to_vec(&self) -> Result<Vec<T>> {
        let mut elements = vec![T::zeroed(); self.len];
        self.copy_to_slice(&mut elements)?;
        Ok(elements)
    }

    /// The same bytes as elements of another type.
    ///
    /// # Errors
    ///
    /// [`Error::Range`](crate::Error::Range) if they are not a whole number of aligned elements.
    pub fn cast<U: Pod>(self) -> Result<Slice<'a, U>> {
        let (start, len) = cast::<T, U>(self.start, self.len)?;
        Ok(Slice::new(self.handle, start, len))
    }

    /// Waits for the work that uses the memory.
    pub(crate) fn wait(&self) -> Result<()> {
        self.handle.heap().wait_for(self.handle.uses(), DEFAULT_TIMEOUT)
    }

    fn purpose(&self) -> MemoryUse {
        self.handle.memory().purpose()
    }

    /// The elements as bytes.
    pub(crate) fn bytes(self) -> Slice<'a, u8> {
        Slice::new(self.handle, self.start * size_of::<T>(), self.len * size_of::<T>())
    }

    /// The elements of a range.
    ///
    /// # Errors
    ///
    /// [`Error::Range`](crate::Error::Range) if the range ends outside of the slice.
    pub fn part(self, range: impl RangeBounds<usize>) -> Result<Self> {
        let range = resolve(&range, self.len)?;
        Ok(Self::new(self.handle, self.start + range.start, range.len()))
    }

    pub(crate) fn handle(&self) -> &'a Handle {
        self.handle
    }
}

impl<'a, T: Pod> SliceMut<'a, T> {
    /// `len` elements from `start` on, which the memory contains. The caller has borrowed them exclusively.
    pub(super) fn new(handle: &'a Handle, start: usize, len: usize) -> Self {
        Self { handle, start, len, _elements: PhantomData }
    }

    /// The elements of memory whose users may all write it.
    pub(crate) fn over(elements: Slice<'a, T>) -> Self {
        Self::new(elements.handle, elements.start, elements.len)
    }

    /// The same elements, for reading.
    pub fn as_slice(&self) -> Slice<'_, T> {
        Slice::new(self.handle, self.start, self.len)
    }

    /// As [`Slice::cast`].
    ///
    /// # Errors
    ///
    /// As [`Slice::cast`].
    pub fn cast<U: Pod>(self) -> Result<SliceMut<'a, U>> {
        let (start, len) = cast::<T, U>(self.start, self.len)?;
        Ok(SliceMut::new(self.handle, start, len))
    }

    /// As [`Slice::part`].
    ///
    /// # Errors
    ///
    /// As [`Slice::part`].
    pub fn part(self, range: impl RangeBounds<usize>) -> Result<Self> {
        let range = resolve(&range, self.len)?;
        Ok(Self::new(self.handle, self.start + range.start, range.len()))
    }

    /// The elements before `at` and those from it on, as two parts that one launch or copy can use together.
    ///
    /// # Errors
    ///
    /// [`Error::Range`](crate::Error::Range) if there are fewer than `at` elements.
    pub fn split_at(self, at: usize) -> Result<(Self, Self)> {
        let Some(rest) = self.len.checked_sub(at) else {
            return Err(RangeError::outside(&(..at), self.len).into());
        };
        Ok((Self::new(self.handle, self.start, at), Self::new(self.handle, self.start + at, rest)))
    }

    /// Waits for the work that uses the buffer, then copies `source` to the elements.
    ///
    /// # Errors
    ///
    /// [`Error::Range`](crate::Error::Range) if the lengths differ; the errors of [`Buffer::wait`].
    pub fn copy_from_slice(&mut self, source: &[T]) -> Result<()> {
        check_len(source.len(), self.len)?;
        if !self.handle.memory().access().is_writable() {
            return Err(RangeError::ReadOnly { address: self.as_slice().gpu_va() }.into());
        }
        let all = self.as_slice();
        all.wait()?;
        let _access = self.handle.memory().access_cpu(FileAccess::ReadWrite)?;
        if let Some(observer) = self.handle.heap().observer() {
            observer.written(all.gpu_va(), size_of_val(source));
        }
        if self.handle.heap().write_in(all.purpose(), all.gpu_va(), bytemuck::cast_slice(source)) {
            return Ok(());
        }
        // SAFETY: as in `Slice::copy_to_slice`, with the roles exchanged.
        unsafe {
            let target = self.handle.map()?.add(self.start * size_of::<T>());
            volatile::store(target, bytemuck::cast_slice(source));
        }
        Ok(())
    }
}

impl<'a, T: Pod> From<&'a Buffer<T>> for Slice<'a, T> {
    fn from(buffer: &'a Buffer<T>) -> Self {
        Self::new(&buffer.handle, 0, buffer.len)
    }
}

impl<'a, T: Pod> From<&'a mut Buffer<T>> for Slice<'a, T> {
    fn from(buffer: &'a mut Buffer<T>) -> Self {
        Self::from(&*buffer)
    }
}

impl<'a, T: Pod> From<&'a Slice<'_, T>> for Slice<'a, T> {
    fn from(slice: &'a Slice<'_, T>) -> Self {
        *slice
    }
}

impl<'a, T: Pod> From<SliceMut<'a, T>> for Slice<'a, T> {
    fn from(slice: SliceMut<'a, T>) -> Self {
        Self::new(slice.handle, slice.start, slice.len)
    }
}

impl<'a, T: Pod> From<&'a SliceMut<'_, T>> for Slice<'a, T> {
    fn from(slice: &'a SliceMut<'_, T>) -> Self {
        slice.as_slice()
    }
}

impl<'a, T: Pod> From<&'a mut SliceMut<'_, T>> for Slice<'a, T> {
    fn from(slice: &'a mut SliceMut<'_, T>) -> Self {
        slice.as_slice()
    }
}

impl<'a, T: Pod> From<&'a mut Buffer<T>> for SliceMut<'a, T> {
    fn from(buffer: &'a mut Buffer<T>) -> Self {
        Self::new(&buffer.handle, 0, buffer.len)
    }
}

impl<'a, T: Pod> From<&'a mut SliceMut<'_, T>> for SliceMut<'a, T> {
    fn from(slice: &'a mut SliceMut<'_, T>) -> Self {
        Self::new(slice.handle, slice.start, slice.len)
    }
}
