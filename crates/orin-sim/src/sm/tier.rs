//! Selection of the tier that executes instructions.

use crate::settings::SettingsError;

/// Name of the environment variable that selects the tier: `interpreter`, `compiled` or `both`.
const TIER_VARIABLE: &str = "ORIN_SIM_TIER";

/// How an SM executes instructions. Results do not depend on it.
///
/// ```
/// use orin_sim::sm::{SmOptions, Tier};
///
/// let options = SmOptions { tier: Tier::Interpreter, ..SmOptions::default() };
/// assert_ne!(options.tier, Tier::Both);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Tier {
    /// One instruction at a time.
    Interpreter,
    /// Runs of instructions are prepared once a page of code has been used for a while.
    Compiled,
    /// As [`Tier::Compiled`], and the interpreter executes each prepared instruction again. The model panics if
    /// registers or predicates differ. Much slower than either.
    Both,
}

impl Default for Tier {
    /// The tier that `ORIN_SIM_TIER` names, else [`Tier::Compiled`].
    fn default() -> Self {
        Self::from_environment().unwrap_or(Self::Compiled)
    }
}

impl Tier {
    /// Returns the tier that `ORIN_SIM_TIER` names; [`Tier::Compiled`] if it is not set or empty.
    ///
    /// # Errors
    ///
    /// [`SettingsError::Variable`] if it names no tier.
    pub fn from_environment() -> Result<Self, SettingsError> {
        let value = std::env::var_os(TIER_VARIABLE).unwrap_or_default();
        match value.to_str() {
            Some("interpreter") => Ok(Self::Interpreter),
            Some("compiled" | "") => Ok(Self::Compiled),
            Some("both") => Ok(Self::Both),
            _ => Err(SettingsError::variable(
                TIER_VARIABLE,
                &value.to_string_lossy(),
                "it must be interpreter, compiled or both",
            )),
        }
    }
}
