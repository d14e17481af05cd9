//! Decoders of what a driver writes for the GPU: pushbuffers, launch descriptors and ring entries
//! from a file, word by word, with the tables of `ampere-cmd`.
//!
//! Any bytes are decoded to the end. Unknown values are printed as numbers and counted.

mod gpfifo;
mod pushbuf;
mod qmd;
mod words;

use std::io::{self, Write};

use serde_json::Value;

pub use gpfifo::gpfifo;
pub use pushbuf::pushbuf;
pub use qmd::{QmdVersion, qmd};

/// The generation of GPUs whose tables give the names.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use orin_tool::commands::{Generation, pushbuf};
///
/// let mut text = Vec::new();
/// let verdict = pushbuf(&[0; 8], &mut text, Generation::default(), None, false)?;
/// assert_eq!(verdict, orin_tool::commands::Verdict::Whole);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Generation {
    /// The first host class of Ampere: classes c56f, c7c0, c7b5
    AmpereA,
    /// Orin and other GPUs of its generation: classes c76f, c7c0, c7b5
    #[default]
    Ampere,
    /// Classes c86f, cbc0, c8b5
    Hopper,
}

/// Result of decoding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Verdict {
    /// Everything was decoded.
    Whole,
    /// The input is malformed, truncated or inconsistent; the output says where.
    Damaged,
}

impl Verdict {
    /// [`Verdict::Damaged`] if `damaged`.
    fn damaged(damaged: bool) -> Self {
        if damaged { Self::Damaged } else { Self::Whole }
    }
}

/// Whether most of a text is words in hexadecimal; a comment alone is none.
pub(crate) fn has_words(text: &[u8]) -> bool {
    let read = words::Words::read(text, 8);
    read.words.len() >= read.faults.len().max(1)
}

/// Writes one JSON object as a line.
fn json_line(output: &mut impl Write, object: &Value) -> io::Result<()> {
    writeln!(output, "{object}")
}

/// A number in hexadecimal, as a string.
fn hex(value: impl core::fmt::LowerHex) -> Value {
    Value::String(format!("{value:#x}"))
}
