//! Arguments as C passes them, with checks.
//!
//! The functions of this library are called by C programs, which promise (as `cuda.h` documents) that a pointer is
//! null, or valid for what the call reads or writes through it, during the call. The types here hold such pointers and
//! are made by these calls alone, so their methods are safe.

use core::ffi::{CStr, c_char};

use orin_cuda_core::{Failure, Result};

/// A null pointer where the call needs one.
fn null(what: &str) -> Failure {
    Failure::invalid(format!("{what} is NULL"))
}

/// Where the call writes a value.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Out<T>(*mut T);

impl<T: Copy> Out<T> {
    /// No place.
    pub(crate) const fn none() -> Self {
        Self(core::ptr::null_mut())
    }

    /// A place whose address the program has passed in another way.
    pub(crate) fn of(address: *mut T) -> Self {
        Self(address)
    }

    /// The place of the element `index` of an array that begins here.
    pub(crate) fn at(self, index: usize) -> Self {
        Self(self.0.wrapping_add(index))
    }

    /// Refuses NULL.
    pub(crate) fn need(self, what: &str) -> Result<Self> {
        if self.0.is_null() { Err(null(what)) } else { Ok(self) }
    }

    /// Writes the value, unless the pointer is NULL.
    pub(crate) fn set(self, value: T) {
        if !self.0.is_null() {
            // SAFETY: the caller of the exported function promised that the pointer is valid for a write during the
            // call.
            unsafe { self.0.write_unaligned(value) };
        }
    }

    /// Reads the value that the caller has left there.
    pub(crate) fn read(self, what: &str) -> Result<T> {
        // SAFETY: as in `set`; `need` has refused NULL.
        self.need(what).map(|out| unsafe { out.0.read_unaligned() })
    }

    /// Writes the elements one after another.
    pub(crate) fn fill(self, values: &[T]) {
        if !self.0.is_null() {
            // SAFETY: as in `set`; the caller promised room for as many elements as it asked for, or as the
            // documentation of the call names.
            values
                .iter()
                .enumerate()
                .for_each(|(at, value)| unsafe { self.0.add(at).write_unaligned(*value) });
        }
    }

    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }

    /// The same place as another type.
    pub(crate) fn cast<U>(self) -> Out<U> {
        Out(self.0.cast())
    }
}

/// What the call reads: one value or an array.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct In<T>(*const T);

impl<T: Copy> In<T> {
    /// No value.
    pub(crate) const fn none() -> Self {
        Self(core::ptr::null())
    }

    /// A place whose address the program has passed as a number.
    pub(crate) fn at_address(address: usize) -> Self {
        Self(core::ptr::with_exposed_provenance(address))
    }

    /// The same place, for a call that also writes there.
    pub(crate) fn writable(self) -> Out<T> {
        Out(self.0.cast_mut())
    }

    /// The place of the element `index` of an array that begins here.
    pub(crate) fn at(self, index: usize) -> Self {
        Self(self.0.wrapping_add(index))
    }

    /// What lies `bytes` bytes after the beginning of this value.
    pub(crate) fn within<U>(self, bytes: usize) -> In<U> {
        In(if self.is_null() { core::ptr::null() } else { self.0.wrapping_byte_add(bytes).cast() })
    }

    /// The value.
    pub(crate) fn read(self, what: &str) -> Result<T> {
        if self.0.is_null() {
            return Err(null(what));
        }
        // SAFETY: the caller of the exported function promised that the pointer is valid for a read during the call.
        Ok(unsafe { self.0.read_unaligned() })
    }

    /// `count` values, read one by one, so that a check of each stops the read where the list ends.
    pub(crate) fn each(self, count: usize, what: &str) -> impl Iterator<Item = Result<T>> {
        (0..count).map(move |at| {
            if self.0.is_null() {
                return Err(null(what));
            }
            self.at(at).read(what)
        })
    }

    /// `count` values.
    pub(crate) fn list(self, count: usize, what: &str) -> Result<Vec<T>> {
        if self.0.is_null() && count > 0 {
            return Err(null(what));
        }
        let mut values = Vec::new();
        // A count that is no count must not end the process.
        values
            .try_reserve_exact(count)
            .map_err(|_| Failure::invalid(format!("{what} has {count} elements")))?;
        // SAFETY: as in `read`, for as many elements as the caller named.
        values.extend((0..count).map(|at| unsafe { self.0.add(at).read_unaligned() }));
        Ok(values)
    }

    pub(crate) fn is_null(self) -> bool {
        self.0.is_null()
    }
}

impl In<u8> {
    /// Copies as many bytes as `target` has.
    #[inline]
    pub(crate) fn copy_to(self, target: &mut [u8]) -> Result<()> {
        if self.0.is_null() && !target.is_empty() {
            return Err(null("a parameter"));
        }
        // SAFETY: as in `read`, for as many bytes as the call documents; `target` is memory of this library.
        unsafe { core::ptr::copy_nonoverlapping(self.0, target.as_mut_ptr(), target.len()) };
        Ok(())
    }
}

/// A text that ends with a zero byte.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct Text(*const c_char);

impl Text {
    /// The text at an address; `None` for NULL, or if it is not UTF-8.
    pub(crate) fn of<'a>(text: *const c_char) -> Option<&'a str> {
        Self(text).get("").ok()
    }

    /// The text.
    pub(crate) fn get<'a>(self, what: &str) -> Result<&'a str> {
        if self.0.is_null() {
            return Err(null(what));
        }
        // SAFETY: the caller of the exported function promised a text with a zero byte at its end, valid during the
        // call; no result of a call keeps it.
        let text = unsafe { CStr::from_ptr(self.0) };
        text.to_str().map_err(|_| Failure::invalid(format!("{what} is not UTF-8")))
    }
}

/// A room for a text.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub struct TextOut(*mut c_char);

impl TextOut {
    /// Writes what fits of the text, and a zero byte.
    pub(crate) fn set(self, text: &str, room: usize) -> Result<()> {
        if self.0.is_null() {
            return Err(null("the room for a text"));
        }
        let Some(most) = room.checked_sub(1) else { return Err(Failure::invalid("no room for a text")) };
        let bytes = &text.as_bytes()[..text.len().min(most)];
        Out(self.0.cast::<u8>()).fill(bytes);
        // SAFETY: the caller promised `room` bytes, of which the text has used at most all but one.
        unsafe { self.0.cast::<u8>().add(bytes.len()).write(0) };
        Ok(())
    }
}

/// A context, stream, event or other object. Null, or what a call of this library returned.
pub(crate) type Handle = u64;
/// Address of the GPU's memory.
pub(crate) type Address = u64;
/// Number of a GPU.
pub(crate) type Ordinal = i32;
