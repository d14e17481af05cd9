//! CUDA's version of the interface that the library reports.

use std::env;
use std::sync::OnceLock;

use crate::code::{Failure, Result};

/// Environment variable with the version that the library reports, `12.0` to `12.9` or `13.0` to `13.5`.
pub const VERSION: &str = "ORIN_CUDA_VERSION";
/// Without the variable: 12.6, that of JetPack 6.
const USUAL: i32 = 12_060;

/// The version, as 1000 * major + 10 * minor: what [`VERSION`] says, else 12.6.
///
/// # Errors
///
/// [`Code::InvalidValue`](crate::Code::InvalidValue) if the variable is no version of CUDA 12 or 13; the first call
/// says so on standard error too.
pub fn version() -> Result<i32> {
    static VALUE: OnceLock<core::result::Result<i32, String>> = OnceLock::new();
    let value = VALUE.get_or_init(|| {
        let text = env::var_os(VERSION).unwrap_or_default();
        if text.is_empty() {
            return Ok(USUAL);
        }
        text.to_str().and_then(number).ok_or_else(|| {
            let reason = format!("{VERSION} is {text:?}; it may be 12.0 to 12.9 and 13.0 to 13.5");
            // Few programs print more than the number of an error.
            eprintln!("libcuda (orin): {reason}");
            reason
        })
    });
    value.clone().map_err(Failure::invalid)
}

/// The number of a version.
fn number(text: &str) -> Option<i32> {
    let (major, minor) = text.split_once('.')?;
    let minor = match minor.as_bytes() {
        [digit @ b'0'..=b'9'] => i32::from(digit - b'0'),
        _ => return None,
    };
    match (major, minor) {
        ("12", _) => Some(12_000 + 10 * minor),
        ("13", 0..=5) => Some(13_000 + 10 * minor),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_those_of_cuda_12_and_13() {
        let known = ["12.0", "12.6", "12.9", "13.0", "13.5"];
        assert_eq!(known.map(number), [12_000, 12_060, 12_090, 13_000, 13_050].map(Some));
        for wrong in ["", "12", "13.6", "11.8", "14.0", "12.10", "13.0.1", "12.-1", "12.+1", " 12.6", "12060"]
        {
            assert_eq!(number(wrong), None, "{wrong:?}");
        }
    }
}
