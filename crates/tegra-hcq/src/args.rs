//! Kernel arguments: typed values checked against the parameters that the kernel declares.
//!
//! A cubin records the number, offset and size of each parameter (EIATTR_KPARAM_INFO), but no types. [`Arg`] carries a
//! value of a known size; a launch refuses a list if its length or a size differs.

use half::{bf16, f16};

use crate::memory::{Buffer, BufferUse, Pod, Slice, SliceMut, with_readable};

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

    /// Whether the value equals the bytes of a parameter block.
    pub(crate) fn is_stored_in(&self, bytes: &[u8]) -> bool {
        match self {
            Self::Bytes(given) => *given == bytes,
            _ => {
                let mut given = [0; 8];
                self.write_to(&mut given[..self.size()]);
                given[..self.size()] == *bytes
            }
        }
    }

    /// Writes the value, little endian, to `target`, which is [`Arg::size`] bytes long.
    pub(crate) fn write_to(&self, target: &mut [u8]) {
        match self {
            Self::U8(value) => target.copy_from_slice(&[*value]),
            Self::U16(value) => target.copy_from_slice(&value.to_le_bytes()),
            Self::U32(value) => target.copy_from_slice(&value.to_le_bytes()),
            Self::U64(value) => target.copy_from_slice(&value.to_le_bytes()),
            Self::Buffer(buffer) => target.copy_from_slice(&buffer.gpu_va().to_le_bytes()),
            Self::Bytes(bytes) => target.copy_from_slice(bytes),
        }
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
                Self::Buffer(Slice::from(memory).as_use())
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
