//! Texels to numbers.

use ampere_cmd::texture::{Components, Format, Numbers, Source};

use super::blend::Kind;
use crate::sm::numeric::f16::{self, Half};

/// Components of a texel, as they are in memory: the first one has the lowest bits.
pub(super) fn components(format: Components, bytes: &[u8]) -> [u32; 4] {
    let mut out = [0; 4];
    let size = (format.component_bits() / 8) as usize;
    for (component, bytes) in out.iter_mut().zip(bytes.chunks_exact(size)) {
        *component = bytes.iter().rev().fold(0, |word, byte| word << 8 | u32::from(*byte));
    }
    out
}

/// Sign extension of the low bits.
fn extend(value: u32, bits: u32) -> i32 {
    // CAST: two's complement.
    (value << (32 - bits)) as i32 >> (32 - bits)
}

/// An integer component as the 32 bits of a register.
pub(super) fn integer(format: Format, component: u32) -> u32 {
    match format.numbers {
        // CAST: two's complement.
        Numbers::Sint => extend(component, format.components.component_bits()) as u32,
        _ => component,
    }
}

/// How a component is filtered. `index` is its number, because the fourth one of sRGB is linear.
pub(super) fn kind(format: Format, index: usize) -> Kind {
    let bits = format.components.component_bits();
    match format.numbers {
        Numbers::Unorm if format.srgb && bits == 8 && index < 3 => Kind::Half,
        Numbers::Unorm => Kind::Unsigned(bits),
        Numbers::Snorm => Kind::Signed(bits),
        _ if bits == 16 => Kind::Half,
        _ => Kind::Single,
    }
}

/// A component in the numbers of its [`kind`]: an integer that stands for 0 or -1 to 1, or the number itself.
pub(super) fn number(format: Format, index: usize, component: u32) -> f64 {
    let bits = format.components.component_bits();
    match format.numbers {
        Numbers::Unorm if format.srgb && bits == 8 && index < 3 => linear(component),
        Numbers::Unorm => component.into(),
        Numbers::Snorm => extend(component, bits).max(1 - (1 << (bits - 1))).into(),
        // CAST: 16 bits.
        _ if bits == 16 => f32::from_bits(f16::widen(Half::F16, component as u16)).into(),
        _ => f32::from_bits(component).into(),
    }
}

/// A component of the border's colour, which has the precision of the texels.
pub(super) fn border(format: Format, index: usize, colour: u32) -> f64 {
    let value = f64::from(f32::from_bits(colour));
    match kind(format, index) {
        Kind::Unsigned(bits) => (value.clamp(0.0, 1.0) * f64::from((1_u32 << bits) - 1)).round(),
        Kind::Signed(bits) => (value.clamp(-1.0, 1.0) * f64::from((1_u32 << (bits - 1)) - 1)).round(),
        Kind::Half | Kind::Single => value,
    }
}

/// Components of sRGB whose numbers in an H100's table are one unit more or less than the nearest.
const ADJUSTED: [(u32, i8); 14] = [
    (32, -1),
    (33, 1),
    (65, -1),
    (66, 1),
    (68, -1),
    (70, -1),
    (97, -1),
    (184, 1),
    (186, 1),
    (249, -1),
    (250, -1),
    (251, -1),
    (252, 1),
    (253, 1),
];

/// The linear number of a component of sRGB: 8 significant bits, in units of 2^-14 at least.
fn linear(component: u32) -> f64 {
    let x = f64::from(component) / 255.0;
    let y = if x <= 0.04045 { x / 12.92 } else { ((x + 0.055) / 1.055).powf(2.4) };
    if component == 0 {
        return 0.0;
    }
    // CAST: a small number; the exponent of a number up to 1.
    let exponent = y.log2().floor() as i32 + 1;
    let unit = f64::from(exponent - 8).max(-14.0).exp2();
    let adjusted = ADJUSTED.iter().find(|(other, _)| *other == component).map_or(0, |(_, units)| *units);
    ((y / unit + 0.5).floor() + f64::from(adjusted)) * unit
}

/// What a kernel gets of a texel.
pub(super) fn select(format: Format, texel: [u32; 4]) -> [u32; 4] {
    format.sources.map(|source| match source {
        Source::R => texel[0],
        Source::G => texel[1],
        Source::B => texel[2],
        Source::A => texel[3],
        Source::OneInt => 1,
        Source::OneFloat => 1.0_f32.to_bits(),
        _ => 0,
    })
}
