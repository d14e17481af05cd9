//! Request codes, and functions that send them.
//!
//! A request code encodes direction, argument size, a letter for the family and a number
//! (Linux `include/uapi/asm-generic/ioctl.h`). nvgpu dispatches on the full code, so a struct of
//! the wrong size fails with `ENOTTY`.

use core::ffi::c_void;
use core::fmt;
use core::marker::PhantomData;
use core::ptr;

use crate::layout::{Argument, Plain, Releases, StructInfo};
use crate::{DoorFd, Errno};

/// Direction of the argument, seen from user space. Exhaustive: the two direction bits encode four values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// No argument, or a number instead of a pointer (`_IO`).
    None,
    /// The kernel reads the argument (`_IOW`).
    Write,
    /// The kernel writes the argument (`_IOR`).
    Read,
    /// The kernel reads and writes the argument (`_IOWR`).
    ReadWrite,
}

/// Encodes a request code: number in bits 7:0, family in 15:8, argument size in 29:16, direction
/// in 31:30 (1 write, 2 read).
///
/// # Panics
///
/// Panics if `size` needs more than 14 bits. [`requests!`](crate::requests) encodes at compile time.
pub const fn encode(direction: Direction, family: u8, number: u8, size: usize) -> u32 {
    assert!(size < 1 << 14, "an ioctl argument is smaller than 16 KiB");
    let direction: u32 = match direction {
        Direction::None => 0,
        Direction::Write => 1,
        Direction::Read => 2,
        Direction::ReadWrite => 3,
    };
    // CAST: the size is below 2^14; `u32::from` is not const.
    (direction << 30) | ((size as u32) << 16) | ((family as u32) << 8) | number as u32
}

/// Name, code and argument of a request, for listings.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct RequestInfo {
    /// Name in the kernel's header.
    pub name: &'static str,
    /// The 32-bit request code.
    pub code: u32,
    /// The struct that the argument points to; `None` for a number or no argument.
    pub argument: Option<StructInfo>,
    /// The releases that have the request.
    pub releases: Releases,
}

impl fmt::Debug for RequestInfo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({:#010x})", self.name, self.code)
    }
}

/// A request whose argument is a pointer to a `T`.
pub struct Request<T> {
    info: RequestInfo,
    argument: PhantomData<fn(&mut T)>,
}

impl<T: Argument> Request<T> {
    /// The request `number` of `family` with an argument of `T`'s size.
    ///
    /// # Safety
    ///
    /// A node that implements this code takes a pointer to a `T`. It accesses no other memory than the `T` and what the
    /// fields declared as addresses point to, and closes no descriptor.
    pub const unsafe fn new(name: &'static str, direction: Direction, family: u8, number: u8) -> Self {
        let code = encode(direction, family, number, size_of::<T>());
        let releases = match T::STRUCT {
            Some(argument) => argument.releases,
            None => Releases::ALL,
        };
        Self { info: RequestInfo { name, code, argument: T::STRUCT, releases }, argument: PhantomData }
    }

    /// The same request, as one of these releases instead of those of its argument.
    #[must_use]
    pub const fn of_releases(self, releases: Releases) -> Self {
        Self { info: RequestInfo { releases, ..self.info }, argument: PhantomData }
    }

    /// The 32-bit request code.
    pub const fn code(&self) -> u32 {
        self.info.code
    }

    /// Name in the kernel's header.
    pub const fn name(&self) -> &'static str {
        self.info.name
    }

    /// Name, code and argument, for listings.
    pub const fn info(&self) -> RequestInfo {
        self.info
    }

    /// Sends the request; see [`Request::send`] for the result.
    ///
    /// # Errors
    ///
    /// The kernel's errno.
    ///
    /// # Safety
    ///
    /// Every user-space address in `argument` is valid for the accesses of the request, for the
    /// duration of the call. Memory that stays in use afterwards (the pages of FROM_VA) remains mapped,
    /// and no reference to it is used, until nothing uses it any more: no handle, no descriptor, no
    /// mapping and no work of the GPU.
    pub unsafe fn send_pointing(&self, fd: &DoorFd, argument: &mut T) -> Result<i32, Errno> {
        // SAFETY: `argument` is an exclusive borrow of a `T`, whose size is encoded in the code;
        // any bit pattern the kernel stores is a valid `T` (`FromBytes`); the caller guarantees the
        // addresses inside.
        unsafe { fd.door().ioctl(fd.raw(), self.info.code, ptr::from_mut(argument).cast::<c_void>()) }
    }
}

impl<T: Plain> Request<T> {
    /// Sends the request and returns the result of the ioctl: 0, or a positive number for a few
    /// requests (the clock queries return a count; a copy-out that faulted returns the number of
    /// bytes not copied).
    ///
    /// # Errors
    ///
    /// The kernel's errno.
    pub fn send(&self, fd: &DoorFd, argument: &mut T) -> Result<i32, Errno> {
        // SAFETY: a `Plain` argument contains no user-space address.
        unsafe { self.send_pointing(fd, argument) }
    }
}

/// A request without an argument struct: it takes nothing or a number. `SAFE` is false for a request that may close a
/// descriptor.
pub struct ValueRequest<const SAFE: bool = true> {
    info: RequestInfo,
}

impl<const SAFE: bool> ValueRequest<SAFE> {
    /// The request `number` of `family`, encoded without an argument.
    ///
    /// # Safety
    ///
    /// A node that implements this code takes a number: it uses the argument neither as an address nor, if `SAFE`, as a
    /// descriptor to close. The codes without direction of the kernel's own families are no such requests: 0x5413
    /// (`TIOCGWINSZ`) writes to its argument.
    pub const unsafe fn new(name: &'static str, family: u8, number: u8) -> Self {
        let code = encode(Direction::None, family, number, 0);
        Self { info: RequestInfo { name, code, argument: None, releases: Releases::ALL } }
    }

    /// The 32-bit request code.
    pub const fn code(&self) -> u32 {
        self.info.code
    }

    /// Name in the kernel's header.
    pub const fn name(&self) -> &'static str {
        self.info.name
    }

    /// Name, code and argument, for listings.
    pub const fn info(&self) -> RequestInfo {
        self.info
    }

    /// Sends the request with `value` as its argument.
    ///
    /// # Errors
    ///
    /// The kernel's errno.
    ///
    /// # Safety
    ///
    /// If the request closes a descriptor with the number `value`, the caller owns that descriptor.
    pub unsafe fn send_closing(&self, fd: &DoorFd, value: u32) -> Result<i32, Errno> {
        // CAST: widens; the kernel takes the register's low 32 bits as a number.
        let argument = ptr::without_provenance_mut::<c_void>(value as usize);
        // SAFETY: by the contract of `new`, the argument is a number, not an address; the caller owns what is closed.
        unsafe { fd.door().ioctl(fd.raw(), self.info.code, argument) }
    }
}

impl ValueRequest {
    /// Sends the request with `value` as its argument; pass 0 if the request takes none.
    ///
    /// # Errors
    ///
    /// The kernel's errno.
    pub fn send(&self, fd: &DoorFd, value: u32) -> Result<i32, Errno> {
        // SAFETY: by the contract of `new`, the request closes no descriptor.
        unsafe { self.send_closing(fd, value) }
    }
}

/// Declares the requests of one family: a [`Request`] or [`ValueRequest`] per line, the bare codes
/// in a module `code` (for `match`), and `ALL`, the listing of names and codes.
///
/// A line is direction, number, constant, name in the header and, unless the direction is `None` (the argument is a
/// number) or `Closing` (the number of a descriptor that the request may close), the type of the argument. A request
/// that only some releases have states them at the end, as `[releases]`: a constant [`Releases`]. Without it, the
/// request has the releases of its argument. The word `unsafe` promises for each line what [`Request::new`] or
/// [`ValueRequest::new`] demands.
#[macro_export]
macro_rules! requests {
    (
        unsafe family $family:expr;
        $(
            $(#[$meta:meta])* $direction:ident $number:literal $name:ident ($c_name:literal)
            $(: $type:ty $([$releases:expr])?)?;
        )*
    ) => {
        $($crate::requests!(
            @one $family, $(#[$meta])* $direction $number $name ($c_name) $(: $type $([$releases])?)?
        );)*

        /// The bare request codes, usable as patterns.
        pub mod code {
            $(
                #[doc = concat!("Code of `", $c_name, "`.")]
                pub const $name: u32 = super::$name.code();
            )*
        }

        /// Every request of this family.
        pub const ALL: &[$crate::RequestInfo] = &[$($name.info()),*];
    };
    (
        @one $family:expr, $(#[$meta:meta])* $direction:ident $number:literal $name:ident ($c_name:literal):
        $type:ty $([$releases:expr])?
    ) => {
        $(#[$meta])*
        // SAFETY: the declaration says so with the word `unsafe`.
        pub const $name: $crate::Request<$type> =
            unsafe { $crate::Request::new($c_name, $crate::Direction::$direction, $family, $number) }
                $(.of_releases($releases))?;
    };
    (@one $family:expr, $(#[$meta:meta])* None $number:literal $name:ident ($c_name:literal)) => {
        $(#[$meta])*
        // SAFETY: as above.
        pub const $name: $crate::ValueRequest = unsafe { $crate::ValueRequest::new($c_name, $family, $number) };
    };
    (@one $family:expr, $(#[$meta:meta])* Closing $number:literal $name:ident ($c_name:literal)) => {
        $(#[$meta])*
        // SAFETY: as above.
        pub const $name: $crate::ValueRequest<false> =
            unsafe { $crate::ValueRequest::new($c_name, $family, $number) };
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_encoder_agrees_with_the_kernels_own_codes() {
        assert_eq!(encode(Direction::None, b'T', 0x0b, 0), 0x540b);
        assert_eq!(encode(Direction::ReadWrite, b'G', 8, 64), 0xc040_4708);
        assert_eq!(encode(Direction::Write, b'N', 3, 20), 0x4014_4e03);
        assert_eq!(encode(Direction::Read, b'H', 126, 16), 0x8010_487e);
    }

    #[test]
    fn listings_show_name_and_code() {
        // SAFETY: never sent.
        let request: Request<u32> = unsafe { Request::new("EXAMPLE", Direction::Read, b'T', 1) };
        assert_eq!(format!("{:?}", request.info()), "EXAMPLE (0x80045401)");
    }
}
