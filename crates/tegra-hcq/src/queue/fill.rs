//! Fills: one value in every element of a buffer.

use ampere_cmd::command::{Fill, Pattern};

use super::Queue;
use crate::args::Arg;
use crate::error::{Error, Result};
use crate::memory::{Pod, SliceMut};
use crate::profile::Work;
use gpu_hal::Engine;

/// Elements that can be filled: of one or four bytes, the sizes that both the copy engine's pattern
/// (`SET_REMAP_COMPONENTS`, `clc7b5.h`) and the kernels of graphs serve.
pub trait FillValue: Pod + private::Bits {}

pub(crate) mod private {
    use super::{Arg, Pattern};

    /// The bits of a value.
    pub trait Bits {
        /// As a pattern of the copy engine.
        fn pattern(self) -> Pattern;
        /// As an argument of a kernel.
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

impl Queue {
    /// Adds a fill of all of `target` with a value by the copy engine.
    ///
    /// # Errors
    ///
    /// When `target` belongs to another device or is longer than 4 Gi elements; when the queue has
    /// faulted.
    pub fn fill<'t, T: FillValue>(&mut self, target: impl Into<SliceMut<'t, T>>, value: T) -> Result<()> {
        let target = target.into();
        let target = target.as_slice();
        self.check_device(target.handle())?;
        if target.is_empty() {
            return Ok(());
        }
        let count = u32::try_from(target.len())
            .map_err(|_| Error::Range(format!("{} elements are too many for one fill", target.len())))?;
        if self.profiling {
            // CAST: a usize has at most 64 bits.
            let bytes = (target.len() * size_of::<T>()) as u64;
            self.begin_span(Engine::Copy, Work::Fill { bytes })?;
        }
        self.begin(Engine::Copy)?;
        let fill = Fill { destination: target.gpu_va(), pattern: value.pattern(), count };
        self.encode(|encoder| encoder.fill(&fill))?;
        self.set_busy(true);
        self.note(target.handle());
        if self.profiling { self.end_span(Engine::Copy) } else { Ok(()) }
    }
}
