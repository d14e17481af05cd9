//! Words from a file: raw little-endian bytes, or hexadecimal text.

use std::fmt;

/// Format of the words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Format {
    /// Little-endian bytes.
    Binary,
    /// Hexadecimal numbers.
    Text,
}

impl Format {
    /// The format's name, for messages.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Binary => "binary",
            Self::Text => "text",
        }
    }
}

/// A part of the file that is not a word.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    /// Trailing bytes, fewer than a word.
    Rest {
        /// Number of bytes.
        bytes: usize,
        /// Bytes of a word.
        word: usize,
    },
    /// Text that is not a hexadecimal number of a word's size.
    NoNumber {
        /// Line, from 1.
        line: usize,
        /// The start of the text.
        text: String,
        /// Most digits of a word.
        digits: usize,
    },
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Rest { bytes, word } => {
                let plural = if *bytes == 1 { "" } else { "s" };
                write!(f, "{bytes} byte{plural} left over: the length is no multiple of {word}")
            }
            Self::NoNumber { line, text, digits } => {
                write!(f, "line {line}: {text:?} is no hexadecimal number of at most {digits} digits")
            }
        }
    }
}

/// The words of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Words {
    pub(super) format: Format,
    pub(super) words: Vec<u64>,
    pub(super) faults: Vec<Fault>,
}

/// Longest invalid text in a message, in characters.
const SHOWN: usize = 24;

impl Words {
    /// Reads words of `bytes_each` bytes (4 or 8).
    ///
    /// A file of printable ASCII characters and white space is text: numbers with or without `0x`, separated by
    /// white space, commas or semicolons; `#` starts a comment, and a number with a colon is
    /// an offset, as other tools print before each line.
    pub(super) fn read(input: &[u8], bytes_each: usize) -> Self {
        let text = std::str::from_utf8(input)
            .ok()
            .filter(|text| text.bytes().all(|byte| byte.is_ascii_graphic() || byte.is_ascii_whitespace()));
        match text {
            Some(text) if !text.trim().is_empty() => Self::from_text(text, bytes_each * 2),
            _ => Self::from_bytes(input, bytes_each),
        }
    }

    fn from_bytes(input: &[u8], bytes_each: usize) -> Self {
        let chunks = input.chunks_exact(bytes_each);
        let rest = chunks.remainder().len();
        let faults = if rest == 0 { vec![] } else { vec![Fault::Rest { bytes: rest, word: bytes_each }] };
        let word = |bytes: &[u8]| bytes.iter().rev().fold(0, |word, byte| word << 8 | u64::from(*byte));
        Self { format: Format::Binary, words: chunks.map(word).collect(), faults }
    }

    fn from_text(text: &str, digits: usize) -> Self {
        let (mut words, mut faults) = (Vec::new(), Vec::new());
        for (line, text) in (1..).zip(text.lines()) {
            let text = text.split('#').next().unwrap_or_default();
            let pieces = text.split(|c: char| c.is_ascii_whitespace() || c == ',' || c == ';');
            for piece in pieces.filter(|piece| !piece.is_empty() && !piece.ends_with(':')) {
                let number = piece.strip_prefix("0x").or_else(|| piece.strip_prefix("0X")).unwrap_or(piece);
                let plain = number.len() <= digits && number.bytes().all(|byte| byte.is_ascii_hexdigit());
                match u64::from_str_radix(number, 16) {
                    Ok(word) if plain => words.push(word),
                    _ => {
                        let text = piece.chars().take(SHOWN).collect();
                        faults.push(Fault::NoNumber { line, text, digits });
                    }
                }
            }
        }
        Self { format: Format::Text, words, faults }
    }

    /// The words as 32-bit words, if read with four bytes each.
    pub(super) fn narrow(&self) -> Vec<u32> {
        // CAST: at most eight digits or four bytes.
        self.words.iter().map(|word| *word as u32).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_formats_say_the_same() {
        let binary = Words::read(&[0xb0, 0x20, 0x01, 0x20, 9, 0, 0, 0], 4);
        let text = Words::read(b"0x200120b0, 9 # the launch\n", 4);
        assert_eq!((binary.format, text.format), (Format::Binary, Format::Text));
        assert_eq!(binary.words, [0x2001_20b0, 9]);
        assert_eq!(text.words, binary.words);
        assert!(text.faults.is_empty() && binary.faults.is_empty());
        assert_eq!(Words::read(b"0000: 20012090 1\n0008: 2\n", 4).words, [0x2001_2090, 1, 2]);
        assert_eq!(Words::read(b"0000580014000000", 8).words, [0x5800_1400_0000]);
    }

    #[test]
    fn what_is_no_word_is_told() {
        let rest = Words::read(&[1, 0, 0, 0, 7], 4);
        assert_eq!(rest.words, [1]);
        assert_eq!(rest.faults, [Fault::Rest { bytes: 1, word: 4 }]);
        let text = Words::read(b"1 zz\n123456789 +1 2", 4);
        assert_eq!(text.words, [1, 2]);
        assert_eq!(text.faults.len(), 3);
        assert!(text.faults[1].to_string().contains("line 2: \"123456789\""));
    }

    #[test]
    fn nothing_is_no_words() {
        assert!(Words::read(b"", 4).words.is_empty());
        assert!(Words::read(b" \n", 4).words.is_empty() || !Words::read(b" \n", 4).faults.is_empty());
    }
}
