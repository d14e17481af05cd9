//! Options of a session.

use tegra_hcq::WaitPolicy;

use crate::decode::engine::Ahead;
use crate::decode::prompt;

/// How a session computes the layers of a token. Each way has the same bits on every run; sums of both ways have other
/// orders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Layers {
    /// A graph of launches, about five per layer.
    #[default]
    Graph,
    /// One launch, for models whose matrices are in F16; in Q4_K, Q6_K, Q5_0 and Q8_0, as `Q4_K_M` mixes them; or in
    /// Q5_K, Q6_K, Q5_1 and Q8_0, as `Q5_K_M` does. Its blocks wait for each other. No other work may run on the GPU
    /// at the same time: it would take the place of blocks for which others wait, and after some seconds the launch
    /// ends with a trap.
    Persistent,
    /// One launch where that was measured to be faster: on Hopper GPUs. Otherwise, and for models that have no such
    /// launch, a graph. Not for several sessions at the same time.
    Fastest,
}

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
    /// How the layers of a token are computed.
    pub layers: Layers,
}

impl Default for SessionOptions {
    fn default() -> Self {
        Self { wait: WaitPolicy::Spin, ahead: None, prompt_batch: prompt::TOKENS, layers: Layers::Graph }
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

    /// Sets how the layers of a token are computed.
    #[must_use]
    pub fn layers(mut self, layers: Layers) -> Self {
        self.layers = layers;
        self
    }

    /// Sets how many tokens of a prompt are computed together.
    #[must_use]
    pub fn prompt_batch(mut self, tokens: usize) -> Self {
        self.prompt_batch = tokens;
        self
    }
}
