//! Kernel arguments on the command line: `TYPE:VALUE`.

use std::fs;
use std::path::PathBuf;
use std::str::FromStr;

use anyhow::{Context, Result, anyhow, bail};
use half::f16;
use orin_cli::number;
use tegra_hcq::Arg;

/// The forms of an argument, for help and error texts.
pub(super) const FORMS: &str = "i8: u8: i16: u16: i32: u32: i64: u64: f16: f32: f64: followed by a number \
(integers also as 0x...), hex:BYTES for a struct by value, in:FILE for a buffer filled from a file, \
out:FILE:BYTES for a zeroed buffer written to a file afterwards, inout:FILE:OUTFILE for both";

/// A parsed kernel argument.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Argument {
    /// A number with a fixed size.
    Scalar(Scalar),
    /// A struct passed by value.
    Struct(Vec<u8>),
    /// A buffer in device memory.
    Buffer {
        /// File that fills the buffer; `None` zero-fills it.
        source: Option<PathBuf>,
        /// File that receives the contents after the launch.
        target: Option<PathBuf>,
        /// Length in bytes; unused if a source file determines it.
        bytes: usize,
    },
}

/// Initial contents of a buffer.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Contents {
    /// The bytes of a file.
    Bytes(Vec<u8>),
    /// Number of zero bytes.
    Zeros(usize),
}

/// A number with its size.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Scalar {
    /// One byte.
    Bits8(u8),
    /// Two bytes.
    Bits16(u16),
    /// Four bytes.
    Bits32(u32),
    /// Eight bytes.
    Bits64(u64),
}

impl From<Scalar> for Arg<'_> {
    fn from(scalar: Scalar) -> Self {
        match scalar {
            Scalar::Bits8(bits) => bits.into(),
            Scalar::Bits16(bits) => bits.into(),
            Scalar::Bits32(bits) => bits.into(),
            Scalar::Bits64(bits) => bits.into(),
        }
    }
}

impl FromStr for Argument {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> Result<Self> {
        let (kind, value) =
            text.split_once(':').ok_or_else(|| anyhow!("'{text}' is not TYPE:VALUE; forms: {FORMS}"))?;
        let scalar = match kind {
            "i8" => Scalar::Bits8(integer(value, i8::MIN.into(), i8::MAX.into())? as u8),
            "u8" => Scalar::Bits8(integer(value, 0, u8::MAX.into())? as u8),
            "i16" => Scalar::Bits16(integer(value, i16::MIN.into(), i16::MAX.into())? as u16),
            "u16" => Scalar::Bits16(integer(value, 0, u16::MAX.into())? as u16),
            "i32" => Scalar::Bits32(integer(value, i32::MIN.into(), i32::MAX.into())? as u32),
            "u32" => Scalar::Bits32(integer(value, 0, u32::MAX.into())? as u32),
            "i64" => Scalar::Bits64(integer(value, i64::MIN.into(), i64::MAX.into())? as u64),
            "u64" => Scalar::Bits64(integer(value, 0, u64::MAX.into())? as u64),
            "f16" => Scalar::Bits16(f16::from_f64(float(value)?).to_bits()),
            "f32" => Scalar::Bits32(float::<f32>(value)?.to_bits()),
            "f64" => Scalar::Bits64(float::<f64>(value)?.to_bits()),
            "hex" => return Ok(Self::Struct(hex(value)?)),
            "in" => return buffer(Some(value), None, 0),
            "out" => {
                let (file, bytes) =
                    value.rsplit_once(':').ok_or_else(|| anyhow!("'{text}': expected out:FILE:BYTES"))?;
                let bytes = integer(bytes, 1, i64::MAX.into())
                    .map_err(|cause| anyhow!("'{text}', which is out:FILE:BYTES: {cause}"))?;
                return buffer(None, Some(file), usize::try_from(bytes)?);
            }
            "inout" => {
                let (file, target) =
                    value.rsplit_once(':').ok_or_else(|| anyhow!("'{text}': expected inout:FILE:OUTFILE"))?;
                return buffer(Some(file), Some(target), 0);
            }
            _ => bail!("'{text}': unknown type '{kind}'; forms: {FORMS}"),
        };
        Ok(Self::Scalar(scalar))
    }
}

impl Argument {
    /// Returns the initial contents of a buffer argument; `None` for other arguments.
    ///
    /// # Errors
    ///
    /// Returns an error if the source file cannot be read.
    pub(super) fn contents(&self) -> Result<Option<Contents>> {
        match self {
            Self::Buffer { source: Some(file), .. } => {
                let bytes = fs::read(file).with_context(|| format!("reading {}", file.display()))?;
                Ok(Some(Contents::Bytes(bytes)))
            }
            Self::Buffer { source: None, bytes, .. } => Ok(Some(Contents::Zeros(*bytes))),
            Self::Scalar(_) | Self::Struct(_) => Ok(None),
        }
    }

    /// Names of the files of a buffer, without their folders, as on the command line: `x.bin`, `x.bin:y.bin`.
    fn file_names(&self) -> Option<String> {
        let Self::Buffer { source, target, .. } = self else { return None };
        let files = source.iter().chain(target).filter_map(|file| file.file_name());
        let names: Vec<_> = files.map(|name| name.to_string_lossy()).collect();
        Some(if names.is_empty() { "buffer".to_owned() } else { names.join(":") })
    }

    /// Returns the file that fills the buffer.
    pub(super) fn source(&self) -> Option<&PathBuf> {
        match self {
            Self::Buffer { source, .. } => source.as_ref(),
            Self::Scalar(_) | Self::Struct(_) => None,
        }
    }

    /// Returns the file that receives the buffer after the launch.
    pub(super) fn target(&self) -> Option<&PathBuf> {
        match self {
            Self::Buffer { target, .. } => target.as_ref(),
            Self::Scalar(_) | Self::Struct(_) => None,
        }
    }
}

/// Names for the buffers among arguments: those of their files, with the argument's number where several have one
/// name; `None` for other arguments.
pub(super) fn names(arguments: &[Argument]) -> Vec<Option<String>> {
    let files: Vec<_> = arguments.iter().map(Argument::file_names).collect();
    let name = |(index, file): (usize, &Option<String>)| {
        let is_alone = files.iter().filter(|other| *other == file).count() == 1;
        file.as_ref().map(|name| if is_alone { name.clone() } else { format!("{name} of argument {index}") })
    };
    files.iter().enumerate().map(name).collect()
}

fn buffer(source: Option<&str>, target: Option<&str>, bytes: usize) -> Result<Argument> {
    if [source, target].into_iter().flatten().any(str::is_empty) {
        bail!("a buffer argument needs a file name");
    }
    Ok(Argument::Buffer { source: source.map(PathBuf::from), target: target.map(PathBuf::from), bytes })
}

/// Parses an integer of a type, decimal or hexadecimal (`0x`).
fn integer(text: &str, min: i128, max: i128) -> Result<i128> {
    number(text, min..=max).map_err(|text| anyhow!(text))
}

fn float<T: FromStr>(text: &str) -> Result<T> {
    text.parse().map_err(|_| anyhow!("'{text}' is not a number"))
}

fn hex(text: &str) -> Result<Vec<u8>> {
    if text.is_empty() || !text.is_ascii() || !text.len().is_multiple_of(2) {
        bail!("hex: needs two digits per byte");
    }
    let byte =
        |at| u8::from_str_radix(&text[at..at + 2], 16).map_err(|_| anyhow!("'{text}' is not hexadecimal"));
    (0..text.len()).step_by(2).map(byte).collect()
}

/// Parses up to three extents: `X`, `X,Y` or `X,Y,Z`. Missing extents are 1.
///
/// # Errors
///
/// Returns an error for more than three extents, and for text that is not a number from 1 to 4294967295.
pub(super) fn parse_dim(text: &str) -> Result<[u32; 3]> {
    let mut dim = [1; 3];
    let parts: Vec<&str> = text.split(',').collect();
    if parts.len() > 3 {
        bail!("'{text}' has more than three extents");
    }
    for (extent, part) in dim.iter_mut().zip(parts) {
        *extent = number(part.trim(), 1..=u32::MAX).map_err(|text| anyhow!(text))?;
    }
    Ok(dim)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Argument {
        text.parse().unwrap()
    }

    fn refuse(text: &str) -> String {
        format!("{:#}", text.parse::<Argument>().unwrap_err())
    }

    #[test]
    fn scalars_have_their_size_and_bits() {
        assert_eq!(parse("i32:-1"), Argument::Scalar(Scalar::Bits32(u32::MAX)));
        assert_eq!(parse("u64:0xffffffffffffffff"), Argument::Scalar(Scalar::Bits64(u64::MAX)));
        assert_eq!(parse("i64:-9223372036854775808"), Argument::Scalar(Scalar::Bits64(1 << 63)));
        assert_eq!(parse("f32:1.5"), Argument::Scalar(Scalar::Bits32(0x3fc0_0000)));
        assert_eq!(parse("f64:-inf"), Argument::Scalar(Scalar::Bits64(f64::NEG_INFINITY.to_bits())));
        assert_eq!(parse("f16:1"), Argument::Scalar(Scalar::Bits16(0x3c00)));
        assert_eq!(parse("hex:00ff10"), Argument::Struct(vec![0, 0xff, 0x10]));
    }

    #[test]
    fn buffers_name_their_files() {
        let file = |name: &str| Some(PathBuf::from(name));
        assert_eq!(parse("in:a.bin"), Argument::Buffer { source: file("a.bin"), target: None, bytes: 0 });
        let both = Argument::Buffer { source: file("a:b"), target: file("c"), bytes: 0 };
        assert_eq!(parse("inout:a:b:c"), both);
        assert_eq!(parse("out:c:64"), Argument::Buffer { source: None, target: file("c"), bytes: 64 });
        let arguments = ["in:x", "u32:1", "inout:d/x:y", "in:d/x", "out:d/y:4", "in:/"].map(parse);
        let named = names(&arguments).into_iter().map(Option::unwrap_or_default).collect::<Vec<_>>();
        assert_eq!(named, ["x of argument 0", "", "x:y", "x of argument 3", "y", "buffer"]);
    }

    #[test]
    fn wrong_input_is_refused_with_the_reason() {
        assert!(refuse("7").contains("TYPE:VALUE"));
        assert!(refuse("int:7").contains("unknown type 'int'"));
        assert!(refuse("u32:-1").contains("out of range"));
        assert!(refuse("i32:2147483648").contains("out of range"));
        assert!(refuse("i32:--1").contains("not a whole number"));
        assert!(refuse("f32:x").contains("not a number"));
        assert!(refuse("out:file").contains("out:FILE:BYTES"));
        assert!(refuse("out:file:0").contains("out:FILE:BYTES: 0 is out of range"));
        assert!(refuse("in:").contains("file name"));
        assert!(refuse("hex:0").contains("two digits"));
    }

    #[test]
    fn dims_fill_up_with_ones() {
        assert_eq!(parse_dim("4").unwrap(), [4, 1, 1]);
        assert_eq!(parse_dim("4,5,6").unwrap(), [4, 5, 6]);
        assert!(parse_dim("1,2,3,4").is_err());
        assert!(parse_dim("a").is_err());
        for text in ["99999999999", "1,0", "1,-5"] {
            let error = parse_dim(text).unwrap_err().to_string();
            assert!(error.ends_with("is out of range: give 1 to 4294967295"), "{error}");
        }
    }
}
