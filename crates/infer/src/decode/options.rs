//! Options of an engine.

use crate::model::KvFormat;

/// Options of an engine.
///
/// ```
/// use infer::decode::EngineOptions;
/// use infer::model::KvFormat;
///
/// assert_eq!(EngineOptions::default().kv(KvFormat::Q8_0).kv, KvFormat::Q8_0);
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct EngineOptions {
    /// How the contexts of all sessions store keys and values, halves by default.
    pub kv: KvFormat,
}

impl EngineOptions {
    /// Sets how contexts store keys and values.
    #[must_use]
    pub fn kv(mut self, format: KvFormat) -> Self {
        self.kv = format;
        self
    }
}
