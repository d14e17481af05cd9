//! Instructions as text.

use std::io::{self, Write};

use ::sass::disassemble;
use cubin::Contents;
use serde_json::{Value, json};

use crate::commands::Verdict;

/// Bytes of an instruction.
const INSTRUCTION_BYTES: usize = 16;

/// Prints every instruction of a cubin, of raw little-endian code, or of JSON lines that have the 32
/// digits of an instruction in a field `hex` (low half, then high half), and how many are not known. A
/// field `text` beside `hex` is compared with the text, white space apart. As text, or as one JSON
/// object per line.
///
/// # Errors
///
/// Returns the error of writing `output`.
pub fn sass(input: &[u8], output: impl Write, json: bool) -> io::Result<Verdict> {
    let mut printer = Printer { output, json, instructions: 0, unknown: 0, different: 0, faults: Vec::new() };
    if input.starts_with(b"\x7fELF") {
        printer.cubin(input)?;
    } else if input.trim_ascii_start().starts_with(b"{") {
        printer.lines(input)?;
    } else {
        printer.code(None, input)?;
    }
    printer.summary()
}

struct Printer<W> {
    output: W,
    json: bool,
    instructions: usize,
    unknown: usize,
    different: usize,
    faults: Vec<String>,
}

impl<W: Write> Printer<W> {
    fn cubin(&mut self, input: &[u8]) -> io::Result<()> {
        let contents = match Contents::read(input) {
            Ok(contents) => contents,
            Err(error) => {
                self.faults.push(error.to_string());
                return Ok(());
            }
        };
        // SHT_PROGBITS, and SHF_ALLOC with SHF_EXECINSTR.
        let code = contents.sections.iter().filter(|section| section.kind == 1 && section.flags & 6 == 6);
        for section in code {
            if !self.json {
                let name: String =
                    section.name.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
                writeln!(self.output, "{name}:")?;
            }
            let bytes = section.range.clone().and_then(|range| input.get(range)).unwrap_or_default();
            self.code(Some(&section.name), bytes)?;
        }
        Ok(())
    }

    /// Raw code at address 0.
    fn code(&mut self, section: Option<&str>, bytes: &[u8]) -> io::Result<()> {
        let chunks = bytes.chunks_exact(INSTRUCTION_BYTES);
        let rest = chunks.remainder().len();
        for (index, chunk) in chunks.enumerate() {
            let word = chunk.iter().rev().fold(0_u128, |word, byte| word << 8 | u128::from(*byte));
            self.instruction(section, Some((index * INSTRUCTION_BYTES) as u64), word, None)?;
        }
        if rest > 0 {
            self.faults.push(format!("{rest} bytes left over: an instruction has {INSTRUCTION_BYTES}"));
        }
        Ok(())
    }

    fn lines(&mut self, input: &[u8]) -> io::Result<()> {
        for (number, line) in (1..).zip(input.split(|byte| *byte == b'\n')) {
            if line.trim_ascii().is_empty() {
                continue;
            }
            let object: Option<Value> = serde_json::from_slice(line).ok();
            let word = object.as_ref().and_then(|object| object["hex"].as_str()).and_then(parse);
            match word {
                Some(word) => {
                    let expected = object.as_ref().and_then(|object| object["text"].as_str());
                    self.instruction(None, None, word, expected)?;
                }
                None => self.faults.push(format!("line {number}: no object with 32 digits in a field `hex`")),
            }
        }
        Ok(())
    }

    fn instruction(
        &mut self,
        section: Option<&str>,
        offset: Option<u64>,
        word: u128,
        expected: Option<&str>,
    ) -> io::Result<()> {
        let text = disassemble(word, offset.unwrap_or(0));
        self.instructions += 1;
        self.unknown += usize::from(text.is_none());
        let same =
            expected.map(|expected| text.as_deref().is_some_and(|text| normal(text) == normal(expected)));
        self.different += usize::from(same == Some(false));
        // CAST: the two halves.
        let (low, high) = (word as u64, (word >> 64) as u64);
        if self.json {
            let mut object =
                json!({"kind": "instruction", "hex": format!("{low:016x}{high:016x}"), "text": text});
            if let Some(section) = section {
                object["section"] = json!(section);
            }
            if let Some(offset) = offset {
                object["offset"] = json!(offset);
            }
            if let Some(same) = same {
                object["same"] = json!(same);
            }
            return writeln!(self.output, "{object}");
        }
        let unknown = || format!("unknown {low:016x}{high:016x}");
        let text = text.unwrap_or_else(unknown);
        match offset {
            Some(offset) => writeln!(self.output, "{offset:#06x}  {text}"),
            None => writeln!(self.output, "{text}"),
        }
    }

    fn summary(mut self) -> io::Result<Verdict> {
        let Self { instructions, unknown, different, .. } = self;
        if self.json {
            let summary = json!({
                "kind": "summary", "instructions": instructions, "unknown": unknown, "different": different,
                "faults": self.faults,
            });
            writeln!(self.output, "{summary}")?;
        } else {
            // Standard output has exactly one line per instruction, so a difference goes to standard error.
            for fault in &self.faults {
                writeln!(self.output, "error: {}", fault.escape_debug())?;
            }
            if unknown > 0 || different > 0 {
                writeln!(
                    self.output,
                    "instructions: {instructions}; unknown: {unknown}; different from the text: {different}"
                )?;
            }
        }
        self.output.flush()?;
        let damaged = unknown > 0 || different > 0 || !self.faults.is_empty();
        Ok(if damaged { Verdict::Damaged } else { Verdict::Whole })
    }
}

/// 32 hexadecimal digits: low half, then high half.
fn parse(digits: &str) -> Option<u128> {
    if digits.len() != 32 || !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    let (low, high) = digits.split_at(16);
    Some(u128::from_str_radix(low, 16).ok()? | u128::from_str_radix(high, 16).ok()? << 64)
}

/// Text with white space normalised and without the closing semicolon.
fn normal(text: &str) -> String {
    text.trim_end_matches([' ', ';']).split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(input: &[u8], json: bool) -> (String, Verdict) {
        let mut output = Vec::new();
        let verdict = sass(input, &mut output, json).unwrap();
        (String::from_utf8(output).unwrap(), verdict)
    }

    #[test]
    fn lines_raw_code_and_cubins() {
        let line = br#"{"hex": "0000000300007224000fc200078e02ff", "text": "IMAD R0,  R0, R3, RZ"}"#;
        assert_eq!(said(line, false), ("IMAD R0, R0, R3, RZ\n".to_owned(), Verdict::Whole));
        let code = 0x000f_c200_078e_02ff_0000_0003_0000_7224_u128.to_le_bytes();
        assert_eq!(said(&code, false).0, "0x0000  IMAD R0, R0, R3, RZ\n");
        let (text, verdict) = said(include_bytes!("../../kernels/saxpy.cubin"), false);
        assert!(text.starts_with(".text.saxpy:\n0x0000  "), "{text}");
        assert!(text.contains("  EXIT\n") && text.contains("FFMA R"), "{text}");
        assert_eq!(verdict, Verdict::Whole, "{text}");
    }

    #[test]
    fn what_is_wrong_is_told() {
        let other = br#"{"hex": "0000000300007224000fc200078e02ff", "text": "IMAD R0, R0, R4, RZ"}"#;
        let (text, verdict) = said(other, true);
        assert!(text.contains(r#""same":false"#) && text.contains(r#""different":1"#), "{text}");
        assert_eq!(verdict, Verdict::Damaged);
        let (text, verdict) = said(b"{\"hex\": \"12\"}\n", false);
        assert!(text.contains("error: line 1: "), "{text}");
        assert_eq!(verdict, Verdict::Damaged);
        let (text, verdict) = said(&[0xff; 20], false);
        assert!(text.contains("unknown ffff") && text.contains("4 bytes left over"), "{text}");
        assert_eq!(verdict, Verdict::Damaged);
    }
}
