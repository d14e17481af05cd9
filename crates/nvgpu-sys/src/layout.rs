//! Structs that cross into the kernel, and the proof of their layout.
//!
//! Every struct is declared through the macro `uapi_struct`, which states the offset of each
//! field and the size of the whole next to the type and asserts them at compile time. The same
//! statement is kept as data ([`Uapi::FIELDS`]), so that a test can hold it against the tables read
//! off the kernel's headers.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

/// One field of a struct, as the kernel's header names and places it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Field {
    /// Name in the header; for padding that the header leaves to the compiler, the Rust name.
    pub name: &'static str,
    /// Byte offset in the struct.
    pub offset: usize,
    /// Size in bytes.
    pub size: usize,
    /// Whether the header has no such member: padding that it leaves to the compiler.
    pub implicit: bool,
}

impl Field {
    /// A field of the Rust name given; `c_name` is empty, or holds the one name in the header, which
    /// is `""` for padding without a name there.
    pub const fn new(rust_name: &'static str, c_name: &[&'static str], offset: usize, size: usize) -> Self {
        match c_name {
            [c_name] if !c_name.is_empty() => Self { name: c_name, offset, size, implicit: false },
            _ => Self { name: rust_name, offset, size, implicit: !c_name.is_empty() },
        }
    }
}

/// A struct's name and layout, for listings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StructInfo {
    /// Name of the struct in the header.
    pub name: &'static str,
    /// Size in bytes.
    pub size: usize,
    /// Byte offsets of the fields that hold a user-space address.
    pub pointers: &'static [usize],
    /// The fields in order of declaration.
    pub fields: &'static [Field],
}

impl StructInfo {
    /// Name and layout of `T`.
    pub const fn of<T: Uapi>() -> Self {
        Self { name: T::C_NAME, size: size_of::<T>(), pointers: T::POINTERS, fields: T::FIELDS }
    }
}

/// A struct whose layout is fixed by a kernel header.
pub trait Uapi: Copy + FromBytes + IntoBytes + Immutable + KnownLayout + 'static {
    /// Name of the struct in the header.
    const C_NAME: &'static str;
    /// Byte offsets of the fields that hold a user-space address.
    const POINTERS: &'static [usize];
    /// The fields in order of declaration.
    const FIELDS: &'static [Field];
}

/// What a request code can stand for the address of: a struct of a header, or a bare number.
pub trait Argument: Copy + FromBytes + IntoBytes + Immutable + KnownLayout + 'static {
    /// Name and layout of the struct; `None` for a number, which holds no user-space address.
    const STRUCT: Option<StructInfo>;
}

impl<T: Uapi> Argument for T {
    const STRUCT: Option<StructInfo> = Some(StructInfo::of::<T>());
}

impl Argument for i32 {
    const STRUCT: Option<StructInfo> = None;
}

impl Argument for u32 {
    const STRUCT: Option<StructInfo> = None;
}

/// A request argument that holds no user-space address.
///
/// # Safety
///
/// No field is an address that the kernel reads or writes through; then the only memory a request
/// with this argument touches is the argument itself.
pub unsafe trait Plain: Argument {}

// SAFETY: requests with a bare integer argument carry a descriptor or a size.
unsafe impl Plain for i32 {}
// SAFETY: as for `i32`.
unsafe impl Plain for u32 {}

/// Declares a struct with its C name, its size and the offset of every field.
///
/// `plain` marks a struct without user-space addresses ([`Plain`]); `pointing(a, b)` one whose fields
/// `a` and `b` are such addresses. A field named differently in the header carries that name after its type, and padding
/// that the header leaves to the compiler the name `""`.
#[macro_export]
macro_rules! uapi_struct {
    (
        $(#[$meta:meta])*
        $kind:ident $(($($pointer:ident),+))? $name:ident = $c_name:literal, $size:literal bytes {
            $($(#[$field_meta:meta])* $offset:literal => $field:ident: $type:ty $(, $c_field:literal)?;)*
        }
    ) => {
        $(#[$meta])*
        #[repr(C)]
        #[derive(
            Clone, Copy, Debug, PartialEq, Eq,
            zerocopy::FromBytes, zerocopy::IntoBytes, zerocopy::Immutable, zerocopy::KnownLayout,
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
            const POINTERS: &'static [usize] = &[$($(core::mem::offset_of!($name, $pointer)),+)?];
            const FIELDS: &'static [$crate::layout::Field] = &[
                $($crate::layout::Field::new(
                    stringify!($field),
                    &[$($c_field)?],
                    $offset,
                    size_of::<$type>(),
                ),)*
            ];
        }

        $crate::uapi_struct!(@$kind $name $($($pointer)+)?);
    };
    (@plain $name:ident) => {
        // SAFETY: declared `plain`: no field holds a user-space address; the layout test checks it
        // against the header tables.
        unsafe impl $crate::layout::Plain for $name {}
    };
    (@pointing $name:ident $($pointer:ident)+) => {};
}
pub use uapi_struct;
