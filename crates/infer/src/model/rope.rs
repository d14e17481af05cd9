//! Rotations of queries and keys.

use core::f64::consts::TAU;

/// Which two components of a head are rotated together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RopePairs {
    /// 2 i and 2 i + 1.
    Neighbours,
    /// i and i + half of the rotated components.
    Halves,
}

impl RopePairs {
    /// The components of pair `pair` if `components` of a head are rotated.
    pub const fn of(self, pair: usize, components: usize) -> (usize, usize) {
        match self {
            Self::Neighbours => (2 * pair, 2 * pair + 1),
            Self::Halves => (pair, pair + components / 2),
        }
    }
}

/// A rotation of queries and keys: pairs of components are rotated by position x frequency; see
/// [`Model::rope_frequencies`](super::Model::rope_frequencies).
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Rope {
    /// Which components form a pair.
    pub pairs: RopePairs,
    /// Components of a head that are rotated, the first ones; even.
    pub components: usize,
    /// Frequency i is this number to the power of -2 i / components, before scaling.
    pub base: f64,
    /// Positions are divided by this number; 1 without scaling.
    pub scale: f64,
    /// Factor of cosine and sine; 1 without scaling.
    pub magnitude: f64,
    /// Positions that the model had before its context was extended.
    pub original: usize,
    /// Which frequencies are divided by `scale`; `None` if all are.
    pub yarn: Option<Yarn>,
}

/// The limits of YaRN (Peng et al., 2023, section 3.2): frequencies are divided by the scale if they make few turns
/// within the original context, not if they make many, and in part between.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Yarn {
    /// Turns from which on a frequency is kept.
    pub fast: f64,
    /// Turns up to which it is divided.
    pub slow: f64,
}

impl Yarn {
    /// The pair whose frequency makes this number of turns within the original context.
    fn pair(rope: &Rope, turns: f64) -> f64 {
        rope.components as f64 * (rope.original as f64 / (turns * TAU)).ln() / (2.0 * rope.base.ln())
    }

    /// The share of a pair's frequency that is kept.
    fn kept(self, rope: &Rope, pair: usize) -> f64 {
        let low = Self::pair(rope, self.fast).floor().max(0.0);
        let high = Self::pair(rope, self.slow).ceil().min(rope.components as f64 - 1.0);
        1.0 - ((pair as f64 - low) / (high - low).max(0.001)).clamp(0.0, 1.0)
    }
}

impl Rope {
    /// Angle per position of each pair, in radians. `factors` divide them further.
    pub(super) fn frequencies(&self, factors: Option<&[f32]>) -> Vec<f64> {
        let frequency = |pair: usize| {
            let exponent = -2.0 * pair as f64 / self.components as f64;
            let factor = factors.map_or(1.0, |factors| f64::from(factors[pair]));
            let plain = self.base.powf(exponent) / factor;
            let kept = self.yarn.map_or(0.0, |yarn| yarn.kept(self, pair));
            plain * kept + plain / self.scale * (1.0 - kept)
        };
        (0..self.components / 2).map(frequency).collect()
    }
}
