//! Kernel arguments and values for fills.
//!
//! A cubin records the number, offset and size of each parameter (EIATTR_KPARAM_INFO), but no types. [`Arg`] carries a
//! value of a known size; a launch refuses a list if its length or a size differs.

use ampere_cmd::command::Pattern;
use half::{bf16, f16};

use crate::heap::{DeviceId, Handle};
use crate::memory::{Buffer, Pod, ReadOnlyBuffer, SharedBuffer, Slice, SliceMut, with_readable};

/// One kernel argument.
///
/// Created with `From` from numbers, [`half::f16`], [`half::bf16`], references to [`Buffer`], and [`Slice`]; structs
/// passed by value use [`Arg::Bytes`]. The [`args!`](crate::args) macro builds a list.
///
/// ```
/// # #[cfg(feature = "sim")] fn main() -> tegra_hcq::Result<()> {
/// # let device = tegra_hcq::Device::open(tegra_hcq::DeviceKind::Sim)?;
/// use tegra_hcq::{Arg, args};
///
/// let buffer = device.alloc::<f32>(16)?;
/// let arguments: [Arg<'_>; 3] = args![&buffer, 16_u32, 2.5_f32];
/// assert_eq!(arguments.map(|argument| argument.size()), [8, 4, 4]);
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "sim"))] fn main() {}
/// ```
#[derive(Clone, Copy, Debug)]
pub enum Arg<'a> {
    /// One byte.
    U8(u8),
    /// Two bytes.
    U16(u16),
    /// Four bytes.
    U32(u32),
    /// Eight bytes.
    U64(u64),
    /// A device pointer to a buffer; the launch records the use.
    Buffer(BufferUse<'a>),
    /// A struct by value, as the bytes of its C layout.
    Bytes(&'a [u8]),
}

impl Arg<'_> {
    /// Size in the parameter block, in bytes.
    pub fn size(&self) -> usize {
        match self {
            Self::U8(_) => 1,
            Self::U16(_) => 2,
            Self::U32(_) => 4,
            Self::U64(_) | Self::Buffer(_) => 8,
            Self::Bytes(bytes) => bytes.len(),
        }
    }
}

/// A buffer argument: its address and its record of uses.
///
/// ```
/// # #[cfg(feature = "sim")] fn main() -> tegra_hcq::Result<()> {
/// # let device = tegra_hcq::Device::open(tegra_hcq::DeviceKind::Sim)?;
/// use tegra_hcq::{Arg, args};
///
/// let buffer = device.alloc::<u8>(1)?;
/// assert!(matches!(args![&buffer], [Arg::Buffer(_)]));
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "sim"))] fn main() {}
/// ```
#[derive(Clone, Copy, Debug)]
pub struct BufferUse<'a> {
    va: u64,
    /// Length in bytes, for the checks of the software Orin.
    bytes: usize,
    handle: &'a Handle,
}

impl<'a> BufferUse<'a> {
    fn new<T: Pod>(slice: Slice<'a, T>) -> Self {
        Self { va: slice.gpu_va(), bytes: slice.len() * size_of::<T>(), handle: slice.handle() }
    }

    /// A number that names memory.
    pub(crate) fn of_number(number: u64, handle: &'a Handle) -> Self {
        Self { va: number, bytes: 0, handle }
    }

    pub(crate) fn gpu_va(&self) -> u64 {
        self.va
    }

    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(crate) fn handle(&self) -> &'a Handle {
        self.handle
    }

    pub(crate) fn device(&self) -> DeviceId {
        self.handle.heap().id()
    }
}

macro_rules! from_number {
    ($($number:ty => $variant:ident via $bits:expr;)*) => {$(
        impl From<$number> for Arg<'_> {
            fn from(value: $number) -> Self {
                let to_bits: fn($number) -> _ = $bits;
                Self::$variant(to_bits(value))
            }
        }
    )*};
}

from_number! {
    u8 => U8 via |value| value;
    i8 => U8 via i8::cast_unsigned;
    bool => U8 via u8::from;
    u16 => U16 via |value| value;
    i16 => U16 via i16::cast_unsigned;
    f16 => U16 via f16::to_bits;
    bf16 => U16 via bf16::to_bits;
    u32 => U32 via |value| value;
    i32 => U32 via i32::cast_unsigned;
    f32 => U32 via f32::to_bits;
    u64 => U64 via |value| value;
    i64 => U64 via i64::cast_unsigned;
    f64 => U64 via f64::to_bits;
}

macro_rules! from_memory {
    ($($memory:ty),* $(,)?) => {$(
        impl<'a, T: Pod> From<$memory> for Arg<'a> {
            fn from(memory: $memory) -> Self {
                Self::Buffer(BufferUse::new(Slice::from(memory)))
            }
        }
    )*};
}

with_readable!(from_memory);

/// A list of kernel arguments: `args![&input, &output, count]`.
#[macro_export]
macro_rules! args {
    ($($value:expr),* $(,)?) => { [$($crate::Arg::from($value)),*] };
}

/// Elements that can be filled. Their size is one, two or four bytes, the sizes that both the copy engine's pattern
/// (`SET_REMAP_COMPONENTS`, `clc7b5.h`) and the fill kernels of graphs support.
///
/// ```
/// # #[cfg(feature = "sim")] fn main() -> tegra_hcq::Result<()> {
/// # let device = tegra_hcq::Device::open(tegra_hcq::DeviceKind::Sim)?;
/// # let mut queue = device.queue()?;
/// # let timeout = std::time::Duration::from_secs(10);
/// let mut buffer = device.alloc::<u32>(100)?;
/// queue.fill(&mut buffer, 7_u32)?;
/// queue.wait(timeout)?;
/// assert_eq!(buffer.to_vec()?, vec![7; 100]);
/// # Ok(())
/// # }
/// # #[cfg(not(feature = "sim"))] fn main() {}
/// ```
pub trait FillValue: Pod + private::Bits {}

pub(crate) mod private {
    use super::{Arg, Pattern};

    /// The bits of a value.
    pub trait Bits {
        /// The value as a pattern of the copy engine.
        fn pattern(self) -> Pattern;
        /// The value as a kernel argument.
        fn argument(self) -> Arg<'static>;
    }
}

macro_rules! fill_values {
    ($($number:ty => $pattern:ident, $argument:ident, $bits:expr;)*) => {$(
        impl FillValue for $number {}
        impl private::Bits for $number {
            fn pattern(self) -> Pattern {
                let bits: fn($number) -> _ = $bits;
                Pattern::$pattern(bits(self))
            }

            fn argument(self) -> Arg<'static> {
                let bits: fn($number) -> _ = $bits;
                Arg::$argument(bits(self))
            }
        }
    )*};
}

fill_values! {
    u8 => Bits8, U8, |value| value;
    i8 => Bits8, U8, i8::cast_unsigned;
    u16 => Bits16, U16, |value| value;
    i16 => Bits16, U16, i16::cast_unsigned;
    u32 => Bits32, U32, |value| value;
    i32 => Bits32, U32, i32::cast_unsigned;
    f32 => Bits32, U32, f32::to_bits;
}
