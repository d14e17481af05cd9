//! Coordinates to numbers of texels, with the precision of hardware.
//!
//! An H100 cuts normalised coordinates to 21 fractional bits before it multiplies them by the size, and rounds places
//! between texels to 8 (`docs/cuda.md` says how this was compared).

use ampere_cmd::texture::Addressing;

/// Fractional bits of a place between texels.
const FRACTION: u32 = 8;
/// Weight of a texel that is hit exactly.
pub(super) const ONE: u32 = 1 << FRACTION;
/// Parts of 1 that normalised coordinates are cut to.
const GRID: f64 = (1_u32 << 21) as f64;
/// Beyond all texels; their numbers have far fewer bits.
const FAR: f64 = 1e9;

/// Where a coordinate is: the number of the first texel, and the weight of the next one in units of 1/[`ONE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) first: i64,
    pub(super) weight: u32,
}

/// How the coordinates of an axis are read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Axis {
    /// Texels.
    pub(super) size: u64,
    /// Whether coordinates go from 0 to 1.
    pub(super) normalized: bool,
    /// What is outside.
    pub(super) mode: Addressing,
}

impl Axis {
    /// A coordinate in texels. One that is not a number, or too small to be a normal one, is 0.
    fn texels(self, coordinate: f32) -> f64 {
        let x = if coordinate.is_subnormal() { 0.0 } else { f64::from(coordinate) };
        let place = if self.normalized {
            let x = match self.mode {
                Addressing::Wrap => x.rem_euclid(1.0),
                Addressing::Mirror => x.rem_euclid(2.0),
                _ => x,
            };
            // CAST: sizes are exact.
            (x * GRID).floor() / GRID * self.size as f64
        } else {
            x
        };
        if place.is_nan() { 0.0 } else { place.clamp(-FAR, FAR) }
    }

    /// The texel at a coordinate; `None` for the border.
    pub(super) fn nearest(self, coordinate: f32) -> Option<u64> {
        // CAST: limited above.
        self.within(self.texels(coordinate).floor() as i64)
    }

    /// The texels on both sides of a coordinate.
    pub(super) fn between(self, coordinate: f32) -> Place {
        let scaled = self.texels(coordinate) * f64::from(ONE);
        // CAST: limited above.
        let fixed = (scaled + 0.5).floor() as i64 - i64::from(ONE / 2);
        // CAST: 8 bits.
        Place { first: fixed >> FRACTION, weight: (fixed & i64::from(ONE - 1)) as u32 }
    }

    /// The texel that stands for texel `number`; `None` for the border.
    pub(super) fn within(self, number: i64) -> Option<u64> {
        // CAST: at most 2^32.
        let size = self.size as i64;
        let inside = match self.mode {
            Addressing::Wrap => number.rem_euclid(size),
            Addressing::Mirror => {
                let at = number.rem_euclid(2 * size);
                if at < size { at } else { 2 * size - 1 - at }
            }
            Addressing::Border if !(0..size).contains(&number) => return None,
            _ => number.clamp(0, size - 1),
        };
        // CAST: not negative.
        Some(inside as u64)
    }
}
