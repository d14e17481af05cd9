//! The key that requests need.

use std::fs;
use std::path::Path;

use anyhow::Result;
use orin_cli::UsageError;

/// Variable with the key, if no option gives one.
const VARIABLE: &str = "ORIN_LLM_API_KEY";

/// A key; none admits all requests.
pub(super) struct Key(Option<String>);

impl Key {
    /// The key of the options, or of the environment.
    pub(super) fn of(key: Option<&str>, file: Option<&Path>) -> Result<Self> {
        let key = match (key, file) {
            (Some(key), _) => Some(key.to_owned()),
            (None, Some(file)) => {
                let text = fs::read_to_string(file);
                let text = text.map_err(|error| UsageError(format!("{}: {error}", file.display())))?;
                Some(text.lines().next().unwrap_or_default().trim().to_owned())
            }
            (None, None) => std::env::var(VARIABLE).ok().filter(|key| !key.is_empty()),
        };
        let is_visible = |key: &String| !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_graphic());
        match key {
            // Others cannot be sent in a header.
            Some(key) if !is_visible(&key) => {
                Err(UsageError("the key must have at least one character, all visible ASCII".to_owned())
                    .into())
            }
            key => Ok(Self(key)),
        }
    }

    /// Whether the value of `Authorization` admits a request. The time does not tell how much of a key is right.
    pub(super) fn admits(&self, header: Option<&[u8]>) -> bool {
        let Some(key) = &self.0 else { return true };
        let given = header.and_then(|header| header.split_at_checked(7));
        let Some((scheme, given)) = given else { return false };
        let differences = given.iter().zip(key.as_bytes()).fold(0, |all, (a, b)| all | (a ^ b));
        scheme.eq_ignore_ascii_case(b"bearer ") && given.len() == key.len() && differences == 0
    }
}
