//! Launch encodings that a board may treat differently from the model.

use serde::{Deserialize, Serialize};

/// Encodings of launches that do not work, as on a board that ignores them or hangs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Quirks {
    /// PCAS actions, by number (SEND_SIGNALING_PCAS2_B), that have no effect.
    pub inert_pcas_actions: Vec<u8>,
    /// PCAS actions, by number, whose launch never ends.
    pub hanging_pcas_actions: Vec<u8>,
    /// Encodings of dependent launches that do not work.
    pub broken_chains: Vec<BrokenChain>,
}

impl Quirks {
    /// The effect of a dependent descriptor's action (DEPENDENT_QMD0_ACTION) and prefetch; `None` if it works.
    pub(crate) fn chain(&self, action: u64, prefetch: bool) -> Option<ChainEffect> {
        let matches = |chain: &&BrokenChain| u64::from(chain.action) == action && chain.prefetch == prefetch;
        self.broken_chains.iter().find(matches).map(|chain| chain.effect)
    }
}

/// An encoding of dependent launches that does not work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BrokenChain {
    /// DEPENDENT_QMD0_ACTION, 3 bits.
    pub action: u8,
    /// DEPENDENT_QMD0_PREFETCH.
    pub prefetch: bool,
    /// What happens at the end of the first grid.
    pub effect: ChainEffect,
}

/// The effect of a broken encoding.
///
/// ```
/// use orin_sim::ChainEffect;
///
/// assert_ne!(ChainEffect::Lost, ChainEffect::Hang);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ChainEffect {
    /// The dependent launch never starts, and the work before it ends.
    Lost,
    /// The compute engine never becomes idle.
    Hang,
}
