//! Values for filling a buffer.

use ampere_cmd::command::Pattern;

use crate::args::Arg;
use crate::memory::Pod;

/// Elements that can be filled. Their size is one or four bytes, the sizes that both the copy engine's pattern
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
    u32 => Bits32, U32, |value| value;
    i32 => Bits32, U32, i32::cast_unsigned;
    f32 => Bits32, U32, f32::to_bits;
}
