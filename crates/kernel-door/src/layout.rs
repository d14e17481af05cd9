//! Structs that are passed to the kernel, with checked layouts.
//!
//! The macro `uapi_struct` declares each struct with the offset of every field and the size of the
//! whole, and asserts them at compile time. The derives of `zerocopy` reject implicit padding. The
//! same layout is available as data ([`Uapi::FIELDS`]), which a test compares with tables extracted
//! from the kernel's headers.

use zerocopy::{FromBytes, Immutable, IntoBytes};

/// One field of a struct, as the kernel's header names and places it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Name in the header; the Rust name for padding that the C compiler inserts.
    pub name: &'static str,
    /// Byte offset in the struct.
    pub offset: usize,
    /// Size in bytes.
    pub size: usize,
    /// Whether the field is padding that the C compiler inserts, without a member in the header.
    pub implicit: bool,
}

impl Field {
    /// A field with this Rust name. `c_name` is empty if the header uses the same name; otherwise it
    /// contains the name in the header, or `""` for padding that the C compiler inserts.
    pub const fn new(rust_name: &'static str, c_name: &[&'static str], offset: usize, size: usize) -> Self {
        match c_name {
            [c_name] if !c_name.is_empty() => Self { name: c_name, offset, size, implicit: false },
            _ => Self { name: rust_name, offset, size, implicit: !c_name.is_empty() },
        }
    }
}

/// Consecutive releases of a kernel, by ordinal number. The crate that declares requests and structs assigns the
/// numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Releases {
    /// The first release.
    pub first: u8,
    /// The last release; [`u8::MAX`] if no known release ends the range.
    pub last: u8,
}

impl Releases {
    /// Every release.
    pub const ALL: Self = Self { first: 0, last: u8::MAX };

    /// Whether the release with this number is one of them.
    pub const fn contains(self, number: u8) -> bool {
        self.first <= number && number <= self.last
    }
}

/// A struct's name and layout, for listings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StructInfo {
    /// Name of the struct in the header.
    pub name: &'static str,
    /// Size in bytes.
    pub size: usize,
    /// Byte offsets of the fields that contain a user-space address.
    pub pointers: &'static [usize],
    /// The fields in order of declaration.
    pub fields: &'static [Field],
    /// The releases whose headers declare the struct with this layout.
    pub releases: Releases,
}

impl StructInfo {
    /// Name and layout of `T`.
    pub const fn of<T: Uapi>() -> Self {
        let size = size_of::<T>();
        Self { name: T::C_NAME, size, pointers: T::POINTERS, fields: T::FIELDS, releases: T::RELEASES }
    }
}

/// A list of the structs of a module, as [`StructInfo`](crate::layout::StructInfo).
#[macro_export]
macro_rules! structs {
    ($module:ident: $($name:ident)*) => {
        &[$($crate::layout::StructInfo::of::<$module::$name>()),*]
    };
}

/// A struct whose layout is fixed by a kernel header.
pub trait Uapi: Copy + FromBytes + IntoBytes + Immutable + 'static {
    /// Name of the struct in the header.
    const C_NAME: &'static str;
    /// Byte offsets of the fields that contain a user-space address.
    const POINTERS: &'static [usize];
    /// The fields in order of declaration.
    const FIELDS: &'static [Field];
    /// The releases whose headers declare the struct with this layout.
    const RELEASES: Releases = Releases::ALL;
}

/// A type that the argument of a request can point to: a struct of a header, a number, or bare words.
pub trait Argument: Copy + FromBytes + IntoBytes + Immutable + 'static {
    /// Name and layout of the struct; `None` for a number or words.
    const STRUCT: Option<StructInfo>;
}

impl<T: Uapi> Argument for T {
    const STRUCT: Option<StructInfo> = Some(StructInfo::of::<T>());
}

/// An argument whose fields have no names here, because no supported kernel reads it. It is not [`Plain`]: another
/// kernel may find addresses in it.
impl<const WORDS: usize> Argument for [u32; WORDS] {
    const STRUCT: Option<StructInfo> = None;
}

impl Argument for i32 {
    const STRUCT: Option<StructInfo> = None;
}

impl Argument for u32 {
    const STRUCT: Option<StructInfo> = None;
}

/// A request argument without user-space addresses.
///
/// # Safety
///
/// No field is an address that the kernel dereferences: a request with this argument accesses no
/// memory but the argument itself.
pub unsafe trait Plain: Argument {}

// SAFETY: requests with a bare integer argument carry a descriptor or a size.
unsafe impl Plain for i32 {}
// SAFETY: as for `i32`.
unsafe impl Plain for u32 {}

/// Declares structs, each with its C name, its size and the offset of every field.
///
/// `unsafe plain` marks a struct without user-space addresses: it implements [`Plain`](crate::layout::Plain), and the
/// word promises what that trait demands. In `pointing(a, b)`, the fields `a` and `b` are such addresses. A field whose
/// name differs in the header states that name after its type. Padding that the C compiler inserts has the name `""`.
/// A layout that only some releases have states them after the size, as `[releases]`: a constant [`Releases`].
/// The crate that declares structs depends on `zerocopy`. The lint `unsafe_code` does not see the word.
#[macro_export]
macro_rules! uapi_struct {
    () => {};
    (
        $(#[$meta:meta])* pointing($($pointer:ident),+) $name:ident = $c_name:literal, $size:literal bytes
        $([$releases:expr])? { $($fields:tt)* } $($more:tt)*
    ) => {
        $crate::uapi_struct! {
            @struct [$($pointer)+] $(#[$meta])* $name = $c_name, $size bytes $([$releases])? { $($fields)* }
        }
        $crate::uapi_struct! { $($more)* }
    };
    (
        @struct [$($pointer:ident)*] $(#[$meta:meta])* $name:ident = $c_name:literal, $size:literal bytes
        $([$releases:expr])? {
            $($(#[$field_meta:meta])* $offset:literal => $field:ident: $type:ty $(, $c_field:literal)?;)*
        }
    ) => {
        $(#[$meta])*
        #[repr(C)]
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq,
            zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable,
        )]
        pub struct $name {
            $($(#[$field_meta])* pub $field: $type,)*
        }

        impl Default for $name {
            fn default() -> Self {
                zerocopy::FromZeros::new_zeroed()
            }
        }

        const _: () = assert!(size_of::<$name>() == $size);
        $(const _: () = assert!(core::mem::offset_of!($name, $field) == $offset);)*

        impl $crate::layout::Uapi for $name {
            const C_NAME: &'static str = $c_name;
            const POINTERS: &'static [usize] = &[$(core::mem::offset_of!($name, $pointer)),*];
            const FIELDS: &'static [$crate::layout::Field] = &[
                $($crate::layout::Field::new(
                    stringify!($field),
                    &[$($c_field)?],
                    $offset,
                    size_of::<$type>(),
                ),)*
            ];
            $(const RELEASES: $crate::layout::Releases = $releases;)?
        }
    };
    (
        $(#[$meta:meta])* unsafe plain $name:ident = $c_name:literal, $size:literal bytes
        $([$releases:expr])? { $($fields:tt)* } $($more:tt)*
    ) => {
        $crate::uapi_struct! {
            @struct [] $(#[$meta])* $name = $c_name, $size bytes $([$releases])? { $($fields)* }
        }

        // SAFETY: the declaration says so with the word `unsafe`.
        unsafe impl $crate::layout::Plain for $name {}
        $crate::uapi_struct! { $($more)* }
    };
}
