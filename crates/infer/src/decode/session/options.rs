//! Options of a session.

use tegra_hcq::WaitPolicy;

use crate::decode::engine::Ahead;
use crate::decode::prompt;

/// Options of a session.
///
/// ```
/// use infer::decode::SessionOptions;
/// use tegra_hcq::WaitPolicy;
///
/// let options = SessionOptions::default().wait(WaitPolicy::Sleep);
/// assert_eq!(options.wait, WaitPolicy::Sleep);
/// ```
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct SessionOptions {
    /// How the CPU waits for tokens; by default it spins, which costs a core and no system call.
    pub wait: WaitPolicy,
    /// How far launches read ahead; `None` for what suits the device.
    pub ahead: Option<Ahead>,
    /// Most tokens of a prompt that are computed together; with fewer than 16, each is computed as produced tokens are.
    pub prompt_batch: usize,
    /// Whether one launch computes all layers of a token. Not measured on a GPU yet.
    pub persistent: bool,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self { wait: WaitPolicy::Spin, ahead: None, prompt_batch: prompt::TOKENS, persistent: false }
    }
}

impl SessionOptions {
    /// Sets how the CPU waits.
    #[must_use]
    pub fn wait(mut self, policy: WaitPolicy) -> Self {
        self.wait = policy;
        self
    }

    /// Sets how far launches read ahead.
    #[must_use]
    pub fn ahead(mut self, ahead: Ahead) -> Self {
        self.ahead = Some(ahead);
        self
    }

    /// Sets whether one launch computes all layers of a token and the logits of the next, for models whose matrices
    /// have one format: F16, Q4_K, Q6_K or Q8_0. No other work may run on the GPU at the same time: it would take the
    /// place of blocks for which others wait, and after some seconds the launch ends with a trap.
    #[must_use]
    pub fn persistent(mut self, persistent: bool) -> Self {
        self.persistent = persistent;
        self
    }

    /// Sets how many tokens of a prompt are computed together.
    #[must_use]
    pub fn prompt_batch(mut self, tokens: usize) -> Self {
        self.prompt_batch = tokens;
        self
    }
}
