//! Values that kernels read and write, as typed byte arrays.

use half::{bf16, f16};

use test_support::Numbers;

/// Element type of a buffer, for comparisons.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// One byte, any bits.
    U8,
    /// Two bytes, any bits.
    U16,
    /// Four bytes, any bits.
    U32,
    /// Eight bytes, any bits.
    U64,
    /// IEEE half precision.
    F16,
    /// bfloat16.
    Bf16,
    /// IEEE single precision.
    F32,
    /// IEEE double precision.
    F64,
}

impl Kind {
    /// Bytes of one element.
    pub const fn size(self) -> usize {
        match self {
            Self::U8 => 1,
            Self::U16 | Self::F16 | Self::Bf16 => 2,
            Self::U32 | Self::F32 => 4,
            Self::U64 | Self::F64 => 8,
        }
    }

    /// Fraction bits of a floating-point kind; `None` for an integer.
    pub const fn fraction_bits(self) -> Option<u32> {
        match self {
            Self::F16 => Some(10),
            Self::Bf16 => Some(7),
            Self::F32 => Some(23),
            Self::F64 => Some(52),
            _ => None,
        }
    }

    /// Name in files.
    pub const fn name(self) -> &'static str {
        match self {
            Self::U8 => "u8",
            Self::U16 => "u16",
            Self::U32 => "u32",
            Self::U64 => "u64",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::F32 => "f32",
            Self::F64 => "f64",
        }
    }
}

/// A type used by kernels.
pub trait Element: Copy + Send + Sync + 'static {
    /// How it is compared.
    const KIND: Kind;
    /// Edge values, at which arithmetic is most likely to fail.
    const EDGES: &'static [Self];
    /// A random value of the type.
    fn random(numbers: &mut Numbers) -> Self;
    /// Its bits, zero extended.
    fn to_word(self) -> u64;
    /// The value of a word's low bits.
    fn from_word(word: u64) -> Self;
}

/// Random float bits: half of them arbitrary, half of ordinary magnitude, because a sum of arbitrary floats
/// usually loses one term.
fn float_bits(numbers: &mut Numbers, kind: Kind) -> u64 {
    let bits = (u64::from(numbers.u32()) << 32) | u64::from(numbers.u32());
    let width = kind.size() * 8;
    let fraction = kind.fraction_bits().expect("a floating-point kind");
    let bits = bits >> (64 - width);
    if numbers.u32() & 1 == 0 {
        return bits;
    }
    let exponent_bits = width as u32 - 1 - fraction;
    let bias = (1u64 << (exponent_bits - 1)) - 1;
    let exponent = bias - 6 + u64::from(numbers.u32() % 13);
    let sign = bits >> (width - 1) << (width - 1);
    sign | (exponent << fraction) | (bits & ((1 << fraction) - 1))
}

macro_rules! integer {
    ($($type:ty, $unsigned:ty, $kind:ident, $edges:expr;)*) => {$(
        impl Element for $type {
            const KIND: Kind = Kind::$kind;
            const EDGES: &'static [Self] = &$edges;
            fn random(numbers: &mut Numbers) -> Self {
                let word = (u64::from(numbers.u32()) << 32) | u64::from(numbers.u32());
                // Every magnitude is equally likely.
                let shift = if numbers.u32() & 1 == 0 { 0 } else { numbers.u32() % <$type>::BITS };
                // CAST: only the low bits are used.
                (word as $type) >> shift
            }
            fn to_word(self) -> u64 {
                // CAST: through the unsigned type of the same size, to avoid sign extension.
                u64::from(self as $unsigned)
            }
            fn from_word(word: u64) -> Self {
                // CAST: only the low bits are used.
                word as $type
            }
        }
    )*};
}

integer! {
    u8, u8, U8, [0, 1, 7, 0x7f, 0x80, 0xff];
    i8, u8, U8, [0, 1, 7, 127, -128, -1];
    u16, u16, U16, [0, 1, 7, 0x7fff, 0x8000, 0xffff];
    i16, u16, U16, [0, 1, 7, 0x7fff, -0x8000, -1];
    u32, u32, U32, [0, 1, 2, 3, 31, 32, 33, 0x7fff_ffff, 0x8000_0000, 0x8000_0001, 0xffff_fffe, 0xffff_ffff];
    i32, u32, U32, [0, 1, 2, 3, 31, 32, 33, i32::MAX, i32::MIN, i32::MIN + 1, -2, -1];
    u64, u64, U64, [0, 1, 2, 63, 64, 65, 0xffff_ffff, 1 << 32, u64::MAX >> 1, 1 << 63, u64::MAX - 1, u64::MAX];
    i64, u64, U64, [0, 1, 2, 63, 64, 65, 0xffff_ffff, 1 << 32, i64::MAX, i64::MIN, -2, -1];
}

macro_rules! float {
    ($($type:ty, $bits:ty, $kind:ident, $edges:expr;)*) => {$(
        impl Element for $type {
            const KIND: Kind = Kind::$kind;
            const EDGES: &'static [Self] = &$edges;
            fn random(numbers: &mut Numbers) -> Self {
                Self::from_word(float_bits(numbers, Kind::$kind))
            }
            fn to_word(self) -> u64 {
                u64::from(self.to_bits())
            }
            fn from_word(word: u64) -> Self {
                // CAST: only the low bits are used.
                Self::from_bits(word as $bits)
            }
        }
    )*};
}

float! {
    f32, u32, F32, [
        0.0, -0.0, 1.0, -1.0, 1.5, -2.5, f32::MIN_POSITIVE, -1.0e-41, f32::MAX, f32::MIN, f32::INFINITY,
        f32::NEG_INFINITY, f32::NAN, 16_777_216.0,
    ];
    f64, u64, F64, [
        0.0, -0.0, 1.0, -1.0, 1.5, -2.5, f64::MIN_POSITIVE, -1.0e-310, f64::MAX, f64::MIN, f64::INFINITY,
        f64::NEG_INFINITY, f64::NAN, 9_007_199_254_740_992.0,
    ];
    f16, u16, F16, [
        f16::ZERO, f16::NEG_ZERO, f16::ONE, f16::NEG_ONE, f16::from_f32_const(1.5), f16::MIN_POSITIVE,
        f16::from_bits(0x8001), f16::MAX, f16::MIN, f16::INFINITY, f16::NEG_INFINITY, f16::NAN,
    ];
    bf16, u16, Bf16, [
        bf16::ZERO, bf16::NEG_ZERO, bf16::ONE, bf16::NEG_ONE, bf16::from_f32_const(1.5), bf16::MIN_POSITIVE,
        bf16::from_bits(0x8001), bf16::MAX, bf16::MIN, bf16::INFINITY, bf16::NEG_INFINITY, bf16::NAN,
    ];
}

/// Contents of a buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Data {
    /// Type of the elements.
    pub kind: Kind,
    /// The elements, little endian.
    pub bytes: Vec<u8>,
}

impl Data {
    /// The bytes of some elements.
    pub fn of<T: Element>(values: &[T]) -> Self {
        let size = T::KIND.size();
        let bytes = values.iter().flat_map(|value| value.to_word().to_le_bytes().into_iter().take(size));
        Self { kind: T::KIND, bytes: bytes.collect() }
    }

    /// `len` elements with a pattern that no kernel writes by accident, so unwritten elements are visible.
    pub fn poison<T: Element>(len: usize) -> Self {
        Self { kind: T::KIND, bytes: vec![POISON; len * T::KIND.size()] }
    }

    /// Number of elements.
    pub fn len(&self) -> usize {
        self.bytes.len() / self.kind.size()
    }

    /// Whether there is no element.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// The elements as zero-extended words.
    pub fn words(&self) -> impl Iterator<Item = u64> + '_ {
        self.bytes.chunks_exact(self.kind.size()).map(|chunk| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            u64::from_le_bytes(word)
        })
    }

    /// The elements as values of a type of the same size.
    ///
    /// # Panics
    ///
    /// If the sizes differ.
    pub fn values<T: Element>(&self) -> Vec<T> {
        assert_eq!(T::KIND.size(), self.kind.size(), "elements of another size");
        self.words().map(T::from_word).collect()
    }
}

/// Contents of outputs before a kernel runs.
pub const POISON: u8 = 0xa5;
