//! Entries of a channel's ring.

use std::io::{self, Write};

use ampere_cmd::gpfifo::{Entry, Level, Operation};
use serde_json::{Value, json};

use super::words::Words;
use super::{Verdict, hex, json_line};

/// Decodes ring entries of eight bytes and writes one line for each, then a summary, as text or as one
/// JSON object per line.
///
/// # Errors
///
/// Returns the error of writing `output`.
pub fn gpfifo(input: &[u8], mut output: impl Write, json: bool) -> io::Result<Verdict> {
    let words = Words::read(input, 8);
    let mut errors = 0;
    for (position, entry) in words.words.iter().enumerate() {
        let decoded = Entry::decode(*entry);
        errors += usize::from(decoded.is_err());
        if json {
            let mut object = json!({"kind": "entry", "position": position, "entry": hex(entry)});
            match &decoded {
                Ok(Entry::Segment(segment)) => {
                    object["segment"] = json!({
                        "va": hex(segment.va),
                        "words": segment.words,
                        "subroutine": segment.level == Level::Subroutine,
                        "conditional": segment.conditional,
                        "sync": segment.sync,
                    });
                }
                Ok(Entry::Control { operation, sync }) => {
                    let (name, operand) = operation_parts(*operation);
                    object["control"] = json!({"operation": name, "operand": hex(operand), "sync": sync});
                }
                Err(error) => object["error"] = Value::String(error.to_string()),
            }
            json_line(&mut output, &object)?;
        } else {
            write!(output, "{position:4}: {entry:016x}  ")?;
            match &decoded {
                Ok(entry) => writeln!(output, "{entry}")?,
                Err(error) => writeln!(output, "error: {error}")?,
            }
        }
    }
    let format = words.format.name();
    if json {
        let faults: Vec<String> = words.faults.iter().map(ToString::to_string).collect();
        let summary = json!({
            "kind": "summary", "format": format, "entries": words.words.len(), "errors": errors,
            "faults": faults,
        });
        json_line(&mut output, &summary)?;
    } else {
        for fault in &words.faults {
            writeln!(output, "error: {fault}")?;
        }
        let errors = errors + words.faults.len();
        writeln!(output, "read as {format}; entries: {}; errors: {errors}", words.words.len())?;
    }
    output.flush()?;
    Ok(Verdict::damaged(errors > 0 || !words.faults.is_empty()))
}

/// Name of a control entry in the class header, and its operand.
fn operation_parts(operation: Operation) -> (&'static str, u32) {
    match operation {
        Operation::Nop(operand) => ("NOP", operand),
        Operation::Illegal(operand) => ("ILLEGAL", operand),
        Operation::GpCrc(operand) => ("GP_CRC", operand),
        Operation::PbCrc(operand) => ("PB_CRC", operand),
        Operation::SetExtendedBase(operand) => ("SET_PB_SEGMENT_EXTENDED_BASE", operand),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(input: &[u8], json: bool) -> (String, Verdict) {
        let mut output = Vec::new();
        let verdict = gpfifo(input, &mut output, json).unwrap();
        (String::from_utf8(output).unwrap(), verdict)
    }

    #[test]
    fn segments_control_entries_and_errors() {
        let (said, verdict) = text(b"0x0000580014000000 0x8000000100000000 0x0000000700000000", false);
        let lines: Vec<&str> = said.lines().collect();
        assert_eq!(lines[0], "   0: 0000580014000000  segment 0x14000000, 22 words");
        assert_eq!(lines[1], "   1: 8000000100000000  control Illegal(0), sync");
        assert!(lines[2].contains("error: "), "{said}");
        assert_eq!(lines[3], "read as text; entries: 3; errors: 1");
        assert_eq!(verdict, Verdict::Damaged);
        let (said, _) = text(b"0x0000580014000000 what", false);
        assert!(said.ends_with("read as text; entries: 1; errors: 1\n"), "{said}");
        let (said, verdict) = text(b"0x0000580014000000", true);
        assert!(said.contains(r#""segment":{"va":"0x14000000","words":22"#), "{said}");
        assert_eq!(verdict, Verdict::Whole);
    }
}
