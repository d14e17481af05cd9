//! Kernels with typed parameters: the parameter list is a tuple type, checked once against the cubin.
//!
//! [`Program::typed`] compares a tuple of up to 16 types with the parameters recorded in the cubin: their number, and
//! the size and alignment of each. After that the compiler checks every launch: an argument of another type, a missing
//! argument, or a shared borrow where the signature has a `&mut` does not compile. A launch builds its argument list on
//! the stack and allocates nothing.
//!
//! Properties that the cubin does not record cannot be checked: a signature with `i32` is accepted for a `float`
//! parameter, and a signature with any buffer type is accepted for any pointer.

use core::any::type_name;
use core::fmt;
use core::marker::PhantomData;

use half::{bf16, f16};

use crate::args::Arg;
use crate::error::{Error, Result};
use crate::grid::Dim3;
use crate::memory::{Buffer, Pod};
use crate::program::code::ParamSlot;
use crate::program::{Kernel, Program};
use crate::queue::Queue;

/// A type that a kernel parameter can have in the tuple of a [`TypedKernel`].
///
/// Implemented for the numbers, `bool`, [`half::f16`], [`half::bf16`], references to [`Buffer`] (a pointer parameter)
/// and [`ByValue`] (a struct parameter). In a signature that is spelled out, such as a type alias, buffer references
/// have the lifetime `'static`; a launch accepts references of any lifetime.
pub trait KernelArg: 'static {
    /// The type that a launch passes for it. Differs from `Self` only in the lifetime of references.
    type Passed<'a>;
    /// Size of the parameter in bytes.
    const BYTES: usize;
    /// Alignment of the parameter in bytes, a power of two: the alignment of the C type.
    const ALIGN: usize;

    /// The value as an argument, [`KernelArg::BYTES`] long.
    fn to_arg<'p, 'a: 'p>(passed: &'p Self::Passed<'a>) -> Arg<'p>;
}

macro_rules! numbers {
    ($($number:ty),*) => {$(
        impl KernelArg for $number {
            type Passed<'a> = Self;
            const BYTES: usize = size_of::<Self>();
            const ALIGN: usize = align_of::<Self>();

            fn to_arg<'p, 'a: 'p>(passed: &'p Self) -> Arg<'p> {
                Arg::from(*passed)
            }
        }
    )*};
}

numbers!(u8, i8, bool, u16, i16, f16, u32, i32, f32, u64, i64, f64);

impl KernelArg for bf16 {
    type Passed<'a> = Self;
    const BYTES: usize = size_of::<Self>();
    const ALIGN: usize = align_of::<Self>();

    fn to_arg<'p, 'a: 'p>(passed: &'p Self) -> Arg<'p> {
        Arg::U16(passed.to_bits())
    }
}

impl<T: Pod> KernelArg for &'static Buffer<T> {
    type Passed<'a> = &'a Buffer<T>;
    const BYTES: usize = 8;
    const ALIGN: usize = 8;

    fn to_arg<'p, 'a: 'p>(passed: &'p &'a Buffer<T>) -> Arg<'p> {
        Arg::from(*passed)
    }
}

impl<T: Pod> KernelArg for &'static mut Buffer<T> {
    type Passed<'a> = &'a mut Buffer<T>;
    const BYTES: usize = 8;
    const ALIGN: usize = 8;

    fn to_arg<'p, 'a: 'p>(passed: &'p &'a mut Buffer<T>) -> Arg<'p> {
        Arg::from(&**passed)
    }
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

impl<T: Pod> KernelArg for ByValue<T> {
    type Passed<'a> = Self;
    const BYTES: usize = size_of::<T>();
    const ALIGN: usize = align_of::<T>();

    fn to_arg<'p, 'a: 'p>(passed: &'p Self) -> Arg<'p> {
        Arg::Bytes(bytemuck::bytes_of(&passed.0))
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
    /// Seals [`super::Signature`]: only tuples implement it.
    pub trait Sealed {}
}

/// A tuple of up to 16 [`KernelArg`] types: the parameters of a kernel. Implemented for tuples only.
pub trait Signature: sealed::Sealed + 'static {
    /// The tuple that a launch passes.
    type Passed<'a>;

    #[doc(hidden)]
    const PARAMETERS: &'static [ParameterType];

    #[doc(hidden)]
    fn with_args<R>(passed: &Self::Passed<'_>, run: impl FnOnce(&[Arg<'_>]) -> R) -> R;
}

macro_rules! signature {
    ($($arg:ident $index:tt),*) => {
        impl<$($arg: KernelArg),*> sealed::Sealed for ($($arg,)*) {}

        impl<$($arg: KernelArg),*> Signature for ($($arg,)*) {
            type Passed<'a> = ($($arg::Passed<'a>,)*);
            const PARAMETERS: &'static [ParameterType] = &[$(ParameterType::of::<$arg>()),*];

            fn with_args<R>(passed: &Self::Passed<'_>, run: impl FnOnce(&[Arg<'_>]) -> R) -> R {
                run(&[$($arg::to_arg(&passed.$index)),*])
            }
        }
    };
}

impl sealed::Sealed for () {}

impl Signature for () {
    type Passed<'a> = ();
    const PARAMETERS: &'static [ParameterType] = &[];

    fn with_args<R>((): &(), run: impl FnOnce(&[Arg<'_>]) -> R) -> R {
        run(&[])
    }
}

signature!(A 0);
signature!(A 0, B 1);
signature!(A 0, B 1, C 2);
signature!(A 0, B 1, C 2, D 3);
signature!(A 0, B 1, C 2, D 3, E 4);
signature!(A 0, B 1, C 2, D 3, E 4, F 5);
signature!(A 0, B 1, C 2, D 3, E 4, F 5, G 6);
signature!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7);
signature!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8);
signature!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9);
signature!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10);
signature!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11);
signature!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11, M 12);
signature!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11, M 12, N 13);
signature!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11, M 12, N 13, O 14);
signature!(A 0, B 1, C 2, D 3, E 4, F 5, G 6, H 7, I 8, J 9, K 10, L 11, M 12, N 13, O 14, P 15);

/// A kernel whose parameters are the tuple `A`. Created by [`Program::typed`].
///
/// ```
/// # #[cfg(feature = "sim")] fn main() -> tegra_hcq::Result<()> {
/// use std::time::Duration;
/// use tegra_hcq::{Buffer, Device, DeviceKind, Program};
///
/// let device = Device::open(DeviceKind::Sim)?;
/// let cubin = include_bytes!(concat!(env!("CARGO_MANIFEST_DIR"), "/kernels/vector_add.cubin"));
/// let program = Program::load(&device, cubin)?;
/// // __global__ void vector_add(const float* a, const float* b, float* c, unsigned n)
/// let add = program.typed::<(&Buffer<f32>, &Buffer<f32>, &mut Buffer<f32>, u32)>("vector_add")?;
///
/// let a = device.alloc_from(&[1.0_f32; 1000])?;
/// let b = device.alloc_from(&[2.0_f32; 1000])?;
/// let mut c = device.alloc::<f32>(1000)?;
/// let mut queue = device.queue()?;
/// add.launch(&mut queue, 4, 256, (&a, &b, &mut c, 1000))?;
/// queue.wait(Duration::from_secs(10))?;
/// assert_eq!(c.to_vec()?, vec![3.0; 1000]);
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "sim"))] fn main() {}
/// ```
///
/// The compiler refuses a buffer of another element type:
///
/// ```compile_fail,E0308
/// use tegra_hcq::{Buffer, Queue, Result, TypedKernel};
///
/// type Scale = (&'static mut Buffer<f32>, f32);
///
/// fn scale(kernel: &TypedKernel<Scale>, queue: &mut Queue, data: &mut Buffer<f64>) -> Result<()> {
///     kernel.launch(queue, 1, 256, (data, 2.0))
/// }
/// ```
///
/// The compiler also refuses a shared borrow of a buffer that the kernel writes:
///
/// ```compile_fail,E0308
/// use tegra_hcq::{Buffer, Queue, Result, TypedKernel};
///
/// type Scale = (&'static mut Buffer<f32>, f32);
///
/// fn scale(kernel: &TypedKernel<Scale>, queue: &mut Queue, data: &Buffer<f32>) -> Result<()> {
///     kernel.launch(queue, 1, 256, (data, 2.0))
/// }
/// ```
pub struct TypedKernel<A> {
    kernel: Kernel,
    signature: PhantomData<fn(A)>,
}

impl<A: Signature> TypedKernel<A> {
    /// Checks the parameters of `kernel` against the tuple.
    ///
    /// # Errors
    ///
    /// [`Error::Arguments`] if the number of parameters differs, or the size or alignment of a parameter. The message
    /// gives the position and type of the parameter.
    pub fn new(kernel: Kernel) -> Result<Self> {
        let checked = check(&kernel.code().params, A::PARAMETERS);
        match checked {
            Ok(()) => Ok(Self { kernel, signature: PhantomData }),
            Err(reason) => Err(Error::Arguments { kernel: kernel.name().to_owned(), reason }),
        }
    }

    /// Adds a launch of `grid` blocks of `block` threads to the queue's batch, as [`Queue::launch`].
    ///
    /// # Errors
    ///
    /// As [`Queue::launch`].
    pub fn launch(
        &self,
        queue: &mut Queue,
        grid: impl Into<Dim3>,
        block: impl Into<Dim3>,
        arguments: A::Passed<'_>,
    ) -> Result<()> {
        A::with_args(&arguments, |arguments| queue.launch(&self.kernel, grid, block, arguments))
    }

    /// As [`TypedKernel::launch`], with `shared_bytes` of dynamic shared memory per block.
    ///
    /// # Errors
    ///
    /// As [`Queue::launch`].
    pub fn launch_with_shared(
        &self,
        queue: &mut Queue,
        grid: impl Into<Dim3>,
        block: impl Into<Dim3>,
        shared_bytes: u32,
        arguments: A::Passed<'_>,
    ) -> Result<()> {
        A::with_args(&arguments, |arguments| {
            queue.launch_with_shared(&self.kernel, grid, block, shared_bytes, arguments)
        })
    }

    /// The kernel without its types.
    pub fn kernel(&self) -> &Kernel {
        &self.kernel
    }
}

// Derived implementations would require the same traits of `A`, of which no value exists here.
impl<A> Clone for TypedKernel<A> {
    fn clone(&self) -> Self {
        Self { kernel: self.kernel.clone(), signature: PhantomData }
    }
}

impl<A> fmt::Debug for TypedKernel<A> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TypedKernel")
            .field("name", &self.kernel.name())
            .field("signature", &type_name::<A>())
            .finish()
    }
}

impl Program {
    /// The kernel named `name`, with the tuple `A` as its parameters; see [`TypedKernel`].
    ///
    /// # Errors
    ///
    /// Those of [`Program::kernel`] and [`TypedKernel::new`].
    pub fn typed<A: Signature>(&self, name: &str) -> Result<TypedKernel<A>> {
        TypedKernel::new(self.kernel(name)?)
    }
}

/// Compares the parameters recorded in the cubin with the types. A cubin does not record the alignment of a parameter,
/// but its offset is a multiple of it. A type whose alignment does not divide the offset is therefore wrong.
fn check(params: &[ParamSlot], types: &[ParameterType]) -> Result<(), String> {
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Parameters after the driver's words, at the given offsets and with the given sizes.
    fn params(layout: &[(usize, usize)]) -> Vec<ParamSlot> {
        layout.iter().map(|&(offset, size)| ParamSlot { offset: 0x160 + offset, size }).collect()
    }

    type Mixed = (u8, f64, &'static Buffer<f32>, bf16, ByValue<[f32; 3]>);

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
