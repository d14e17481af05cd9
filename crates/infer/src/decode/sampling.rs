//! How the next token is chosen.

use crate::error::{Error, Result};
use crate::parameters::SamplingParams;

/// Most tokens that the penalty for repetitions concerns.
pub const MAX_WINDOW: u32 = 1024;

/// How the GPU chooses the next token from the logits. The default takes the most probable token.
///
/// The penalty comes first, then `top_k`, `top_p` and `min_p` on the probabilities at temperature 1, then the
/// temperature. `top_k`, `top_p` and `min_p` choose among the 1,024 most probable tokens at most; without them, a
/// token is drawn from the whole vocabulary. Equal seeds give equal tokens.
///
/// ```
/// use infer::decode::Sampling;
///
/// let greedy = Sampling::default();
/// assert_eq!(greedy.temperature, 0.0);
/// let creative = Sampling { temperature: 0.8, top_k: 40, top_p: 0.95, seed: 7, ..greedy };
/// assert!(creative.check().is_ok());
/// assert!(Sampling { temperature: -1.0, ..creative }.check().is_err());
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sampling {
    /// Divides the logits; 0 takes the most probable token.
    pub temperature: f32,
    /// Keeps this many tokens; 0 keeps all.
    pub top_k: u32,
    /// Keeps the most probable tokens that reach this share together; 1 keeps all.
    pub top_p: f32,
    /// Keeps tokens with at least this share of the largest probability; 0 keeps all.
    pub min_p: f32,
    /// Divides positive and multiplies negative logits of tokens among the newest; 1 changes nothing.
    pub penalty: f32,
    /// Newest tokens that the penalty concerns, at most [`MAX_WINDOW`].
    pub window: u32,
    /// Start of the random numbers.
    pub seed: u64,
}

impl Default for Sampling {
    fn default() -> Self {
        Self { temperature: 0.0, top_k: 0, top_p: 1.0, min_p: 0.0, penalty: 1.0, window: 64, seed: 0 }
    }
}

impl Sampling {
    /// Returns an error if a number is out of range.
    ///
    /// # Errors
    ///
    /// [`Error::Sampling`] with the number's name.
    pub fn check(&self) -> Result<()> {
        let at_least = |what, value: f32, least: f32, most: f32| {
            if value.is_finite() && value >= least && value <= most {
                return Ok(());
            }
            Err(Error::Sampling {
                what,
                value: f64::from(value),
                least: f64::from(least),
                most: f64::from(most),
            })
        };
        at_least("temperature", self.temperature, 0.0, 1e6)?;
        at_least("top_p", self.top_p, 0.0, 1.0)?;
        at_least("min_p", self.min_p, 0.0, 1.0)?;
        at_least("penalty", self.penalty, f32::MIN_POSITIVE, 1e6)?;
        if self.window <= MAX_WINDOW {
            return Ok(());
        }
        let (value, most) = (f64::from(self.window), f64::from(MAX_WINDOW));
        Err(Error::Sampling { what: "window", value, least: 0.0, most })
    }

    /// The same for the kernels, without a mask.
    pub(super) fn parameters(&self) -> SamplingParams {
        let Self { temperature, top_k, top_p, min_p, penalty, window, seed } = *self;
        SamplingParams { temperature, top_p, min_p, penalty, top_k, window, seed, mask: 0 }
    }
}
