//! Parameter lists as tuple types.

use core::any::type_name;

use half::{bf16, f16};

use crate::args::Arg;
use crate::memory::{Buffer, Pod, ReadOnlyBuffer, SharedBuffer, Slice, SliceMut, with_readable};
use crate::program::code::ParamSlot;
use crate::texture_object::Texture;

/// A type that a kernel parameter can have in the tuple of a [`TypedKernel`](super::TypedKernel).
///
/// Implemented for the numbers, `bool`, [`half::f16`], [`half::bf16`], [`Count`], [`ByValue`] (a struct parameter),
/// `&'static` [`Texture`], and for pointers to the elements of a buffer: `&[T]` if the kernel reads them (`const T*`),
/// `&mut [T]` if it writes them (`T*`). In a signature that is spelled out, such as a type alias, they have the
/// lifetime `'static`; a launch accepts buffers of any lifetime.
pub trait KernelArg: sealed::Sealed + 'static {
    /// The value in a launch, as its condition sees it: a [`Slice`] for `&[T]`, a [`SliceMut`] for `&mut [T]`,
    /// the number for a [`Count`], otherwise the type itself.
    type Passed<'a>;
    /// Size of the parameter in bytes.
    const BYTES: usize;
    /// Alignment of the parameter in bytes, a power of two: the alignment of the C type.
    const ALIGN: usize;

    /// The value as an argument, [`KernelArg::BYTES`] long.
    fn to_arg<'p, 'a: 'p>(passed: &'p Self::Passed<'a>) -> Arg<'p>;

    #[doc(hidden)]
    fn extent(_: &Self::Passed<'_>) -> Extent {
        Extent::None
    }
}

/// A value that a launch accepts for a parameter of type `P`.
///
/// For `&[T]` a launch accepts a reference to a [`Buffer`], a [`Slice`], or a reference to one; for `&mut [T]` an
/// exclusive reference to a [`Buffer`], a [`SliceMut`], or an exclusive reference to one; for [`Count`] its number; for
/// other parameters the type itself.
#[diagnostic::on_unimplemented(
    message = "the kernel's parameter `{P}` does not accept `{Self}`",
    note = "`&[T]` accepts `&Buffer<T>` and `Slice<T>`; `&mut [T]` accepts `&mut Buffer<T>` and `SliceMut<T>`"
)]
pub trait Pass<'a, P: KernelArg>: Sized {
    /// The value as the kernel's launch passes it.
    fn pass(self) -> P::Passed<'a>;
}

/// Arguments of a launch: a tuple of values, each accepted for the parameter at its place ([`Pass`]).
#[diagnostic::on_unimplemented(
    message = "a kernel with the parameters `{A}` cannot be launched with `{Self}`",
    note = "a launch takes a tuple with one value for each parameter"
)]
pub trait Arguments<'a, A: Signature>: Sized {
    /// The values as the kernel's launch passes them.
    fn pass(self) -> A::Passed<'a>;
}

/// What an argument says about lengths.
#[derive(Clone, Copy, Debug)]
#[doc(hidden)]
pub enum Extent {
    /// Nothing.
    None,
    /// It is a buffer of this many elements.
    Elements(usize),
    /// It counts elements of the buffers.
    Count(i128),
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl sealed::Sealed for $number {}

        impl KernelArg for $number {
            type Passed<'a> = Self;
            const BYTES: usize = size_of::<Self>();
            const ALIGN: usize = align_of::<Self>();

            fn to_arg<'p, 'a: 'p>(passed: &'p Self) -> Arg<'p> {
                Arg::from(*passed)
            }
        }

        impl Pass<'_, $number> for $number {
            fn pass(self) -> Self {
                self
            }
        }
    )*};
}

numbers!(u8, i8, bool, u16, i16, f16, bf16, u32, i32, f32, u64, i64, f64);

/// A number of elements: at least 0, and at most the length of every buffer that the launch passes. A launch with
/// another number is refused.
///
/// This is the parameter `n` of a kernel that accesses the elements `i < n` of its buffers. `T` is `u32`, `i32`, `u64`
/// or `i64`; a launch passes the plain number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Count<T>(core::marker::PhantomData<T>);

macro_rules! counts {
    ($($number:ty),*) => {$(
        impl sealed::Sealed for Count<$number> {}

        impl KernelArg for Count<$number> {
            type Passed<'a> = $number;
            const BYTES: usize = size_of::<$number>();
            const ALIGN: usize = align_of::<$number>();

            fn to_arg<'p, 'a: 'p>(passed: &'p $number) -> Arg<'p> {
                Arg::from(*passed)
            }

            fn extent(passed: &$number) -> Extent {
                Extent::Count(i128::from(*passed))
            }
        }

        impl Pass<'_, Count<$number>> for $number {
            fn pass(self) -> $number {
                self
            }
        }
    )*};
}

counts!(u32, i32, u64, i64);

impl sealed::Sealed for &'static Texture {}

impl KernelArg for &'static Texture {
    type Passed<'a> = &'a Texture;
    const BYTES: usize = 8;
    const ALIGN: usize = 8;

    fn to_arg<'p, 'a: 'p>(passed: &'p &'a Texture) -> Arg<'p> {
        Arg::from(*passed)
    }
}

impl<'a> Pass<'a, &'static Texture> for &'a Texture {
    fn pass(self) -> &'a Texture {
        self
    }
}

impl<T: Pod> sealed::Sealed for &'static [T] {}

impl<T: Pod> KernelArg for &'static [T] {
    type Passed<'a> = Slice<'a, T>;
    const BYTES: usize = 8;
    const ALIGN: usize = 8;

    fn to_arg<'p, 'a: 'p>(passed: &'p Slice<'a, T>) -> Arg<'p> {
        Arg::from(passed)
    }

    fn extent(passed: &Slice<'_, T>) -> Extent {
        Extent::Elements(passed.len())
    }
}

impl<T: Pod> sealed::Sealed for &'static mut [T] {}

impl<T: Pod> KernelArg for &'static mut [T] {
    type Passed<'a> = SliceMut<'a, T>;
    const BYTES: usize = 8;
    const ALIGN: usize = 8;

    fn to_arg<'p, 'a: 'p>(passed: &'p SliceMut<'a, T>) -> Arg<'p> {
        Arg::from(passed)
    }

    fn extent(passed: &SliceMut<'_, T>) -> Extent {
        Extent::Elements(passed.len())
    }
}

macro_rules! reads {
    ($($memory:ty),* $(,)?) => {$(
        impl<'a, T: Pod> Pass<'a, &'static [T]> for $memory {
            fn pass(self) -> Slice<'a, T> {
                self.into()
            }
        }
    )*};
}

with_readable!(reads);

macro_rules! writes {
    ($($memory:ty),* $(,)?) => {$(
        impl<'a, T: Pod> Pass<'a, &'static mut [T]> for $memory {
            fn pass(self) -> SliceMut<'a, T> {
                self.into()
            }
        }
    )*};
}

writes! {
    &'a mut Buffer<T>,
    &'a mut SharedBuffer<T>,
    SliceMut<'a, T>,
    &'a mut SliceMut<'_, T>,
}

/// A struct passed by value: the bytes of its C layout.
///
/// `T` is `#[repr(C)]` with the fields of the kernel's struct in order, and with an explicit field wherever C inserts
/// padding, as [`Pod`] requires. A CUDA vector type needs its explicit alignment: `float4` is `#[repr(C, align(16))]`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ByValue<T>(
    /// The struct.
    pub T,
);

impl<T: Pod> sealed::Sealed for ByValue<T> {}

impl<T: Pod> KernelArg for ByValue<T> {
    type Passed<'a> = Self;
    const BYTES: usize = size_of::<T>();
    const ALIGN: usize = align_of::<T>();

    fn to_arg<'p, 'a: 'p>(passed: &'p Self) -> Arg<'p> {
        Arg::Bytes(bytemuck::bytes_of(&passed.0))
    }
}

impl<T: Pod> Pass<'_, ByValue<T>> for ByValue<T> {
    fn pass(self) -> Self {
        self
    }
}

/// Size and alignment of one type of a signature.
#[derive(Clone, Copy)]
#[doc(hidden)]
pub struct ParameterType {
    name: fn() -> &'static str,
    bytes: usize,
    align: usize,
}

impl ParameterType {
    const fn of<A: KernelArg>() -> Self {
        Self { name: type_name::<A>, bytes: A::BYTES, align: A::ALIGN }
    }
}

mod sealed {
    /// Seals the traits of this module. Their implementations are part of what a kernel's assertion relies on.
    pub trait Sealed {}
}

/// A tuple of up to 16 [`KernelArg`] types: the parameters of a kernel. Implemented for tuples only.
pub trait Signature: sealed::Sealed + 'static {
    /// The tuple that a launch passes.
    type Passed<'a>;

    #[doc(hidden)]
    const PARAMETERS: &'static [ParameterType];

    #[doc(hidden)]
    fn check_counts(passed: &Self::Passed<'_>) -> Result<(), String>;

    #[doc(hidden)]
    fn with_args<R>(passed: &Self::Passed<'_>, run: impl FnOnce(&[Arg<'_>]) -> R) -> R;
}

macro_rules! signature {
    ($($arg:ident $value:ident $index:tt),*) => {
        impl<$($arg: KernelArg),*> sealed::Sealed for ($($arg,)*) {}

        impl<$($arg: KernelArg),*> Signature for ($($arg,)*) {
            type Passed<'a> = ($($arg::Passed<'a>,)*);
            const PARAMETERS: &'static [ParameterType] = &[$(ParameterType::of::<$arg>()),*];

            #[inline]
            fn check_counts(passed: &Self::Passed<'_>) -> Result<(), String> {
                check_counts(&[$($arg::extent(&passed.$index)),*])
            }

            #[inline]
            fn with_args<R>(passed: &Self::Passed<'_>, run: impl FnOnce(&[Arg<'_>]) -> R) -> R {
                run(&[$($arg::to_arg(&passed.$index)),*])
            }
        }

        impl<'a, $($arg: KernelArg, $value: Pass<'a, $arg>),*> Arguments<'a, ($($arg,)*)> for ($($value,)*) {
            #[inline]
            fn pass(self) -> ($($arg::Passed<'a>,)*) {
                ($($value::pass(self.$index),)*)
            }
        }
    };
}

impl sealed::Sealed for () {}

impl Signature for () {
    type Passed<'a> = ();
    const PARAMETERS: &'static [ParameterType] = &[];

    fn check_counts((): &()) -> Result<(), String> {
        Ok(())
    }

    fn with_args<R>((): &(), run: impl FnOnce(&[Arg<'_>]) -> R) -> R {
        run(&[])
    }
}

impl Arguments<'_, ()> for () {
    fn pass(self) {}
}

/// Implements [`Signature`] for the tuples of the first one, two, three, ... parameters of a list.
macro_rules! signatures {
    ([$($done:tt)*]) => {};
    ([$($done:tt)*] $arg:ident $value:ident $index:tt $($rest:tt)*) => {
        signature!($($done)* $arg $value $index);
        signatures!([$($done)* $arg $value $index,] $($rest)*);
    };
}

signatures! {
    [] A V0 0 B V1 1 C V2 2 D V3 3 E V4 4 F V5 5 G V6 6 H V7 7
    I V8 8 J V9 9 K V10 10 L V11 11 M V12 12 N V13 13 O V14 14 P V15 15
}

/// Compares the parameters recorded in the cubin with the types. A cubin does not record the alignment of a parameter,
/// but its offset is a multiple of it. A type whose alignment does not divide the offset is therefore wrong.
pub(super) fn check(params: &[ParamSlot], types: &[ParameterType]) -> Result<(), String> {
    if params.len() != types.len() {
        return Err(format!("has {} parameters, the signature has {}", params.len(), types.len()));
    }
    // Alignments are relative to the start of the parameter block, where the first parameter is.
    let start = params.first().map_or(0, |param| param.offset);
    for (position, (param, of)) in params.iter().zip(types).enumerate() {
        let name = (of.name)();
        if param.size != of.bytes {
            return Err(format!(
                "parameter {position} has {} bytes, but {name} of the signature has {}",
                param.size, of.bytes
            ));
        }
        let offset = param.offset - start;
        if !offset.is_multiple_of(of.align) {
            return Err(format!(
                "parameter {position} lies at offset {offset}, but {name} of the signature is aligned to \
                 {} bytes",
                of.align
            ));
        }
    }
    Ok(())
}

/// Refuses a count that exceeds the length of a buffer.
#[inline]
fn check_counts(extents: &[Extent]) -> Result<(), String> {
    let counts = extents.iter().enumerate().filter_map(|(at, extent)| match extent {
        Extent::Count(count) => Some((at, *count)),
        _ => None,
    });
    for (position, count) in counts {
        for (buffer, extent) in extents.iter().enumerate() {
            // CAST: usize is at most 64 bits.
            if let Extent::Elements(len) = extent
                && !(0..=*len as i128).contains(&count)
            {
                return Err(format!(
                    "argument {position} counts {count} elements, but argument {buffer} has {len}"
                ));
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parameters after the driver's words, at the given offsets and with the given sizes.
    fn params(layout: &[(usize, usize)]) -> Vec<ParamSlot> {
        layout.iter().map(|&(offset, size)| ParamSlot { offset: 0x160 + offset, size }).collect()
    }

    type Mixed = (u8, f64, &'static [f32], bf16, ByValue<[f32; 3]>);

    #[test]
    fn a_fitting_signature_is_accepted() {
        let layout = params(&[(0, 1), (8, 8), (16, 8), (24, 2), (28, 12)]);
        assert_eq!(check(&layout, Mixed::PARAMETERS), Ok(()));
        assert_eq!(check(&[], <()>::PARAMETERS), Ok(()));
    }

    #[test]
    fn a_wrong_number_of_parameters_is_named() {
        let error = check(&params(&[(0, 1)]), <(u8, u8)>::PARAMETERS).unwrap_err();
        assert_eq!(error, "has 1 parameters, the signature has 2");
    }

    #[test]
    fn a_wrong_size_is_named_with_position_and_type() {
        let layout = params(&[(0, 1), (8, 8), (16, 8), (24, 4), (28, 12)]);
        let error = check(&layout, Mixed::PARAMETERS).unwrap_err();
        assert!(error.starts_with("parameter 3 has 4 bytes, but half::"), "{error}");
        assert!(error.ends_with("bf16 of the signature has 2"), "{error}");
    }

    #[test]
    fn a_struct_of_two_ints_is_no_double() {
        // struct { int x, y; } after an int: 8 bytes at offset 4.
        let layout = params(&[(0, 4), (4, 8)]);
        assert_eq!(check(&layout, <(i32, ByValue<[i32; 2]>)>::PARAMETERS), Ok(()));
        let error = check(&layout, <(i32, f64)>::PARAMETERS).unwrap_err();
        assert_eq!(error, "parameter 1 lies at offset 4, but f64 of the signature is aligned to 8 bytes");
    }

    #[test]
    fn a_count_is_within_every_buffer() {
        let check = |extents: &[Extent]| check_counts(extents);
        let (four, six) = (Extent::Elements(4), Extent::Elements(6));
        assert_eq!(check(&[four, six, Extent::Count(4), Extent::None]), Ok(()));
        assert_eq!(check(&[Extent::Count(1 << 40)]), Ok(()), "no buffer to leave");
        let error = check(&[six, Extent::Count(4), four, Extent::Count(5)]).unwrap_err();
        assert_eq!(error, "argument 3 counts 5 elements, but argument 2 has 4");
        let error = check(&[four, Extent::Count(-1)]).unwrap_err();
        assert_eq!(error, "argument 1 counts -1 elements, but argument 0 has 4");
    }

    #[test]
    fn arguments_carry_the_bits_of_their_values() {
        let passed = (7_i8, true, bf16::from_f32(1.0), f16::from_f32(1.0), -1.5_f64, ByValue([1_u16, 2, 3]));
        type All = (i8, bool, bf16, f16, f64, ByValue<[u16; 3]>);
        let bytes = All::with_args(&passed, |args| {
            let mut all = Vec::new();
            for arg in args {
                let mut bytes = vec![0; arg.size()];
                arg.write_to(&mut bytes);
                all.extend(bytes);
            }
            all
        });
        let mut expected = vec![7, 1, 0x80, 0x3f, 0x00, 0x3c];
        expected.extend((-1.5_f64).to_le_bytes());
        expected.extend([1, 0, 2, 0, 3, 0]);
        assert_eq!(bytes, expected);
        assert!(All::PARAMETERS.iter().map(|of| of.bytes).eq([1, 1, 2, 2, 8, 6]));
    }
}
