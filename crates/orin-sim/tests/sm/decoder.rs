//! The decoder against encodings whose text the vendor's disassembler gives.
//!
//! `sass/golden.jsonl` holds words from compiled kernels and the same words with one field changed.

use std::collections::BTreeMap;
use std::path::Path;

use orin_sim::sm::decode::{Refusal, decode};

/// One line of the list.
#[derive(serde::Deserialize)]
struct Line {
    /// Low, then high half.
    hex: String,
    /// Text at address 0.
    text: String,
    /// `"corpus"` for words as compiled, `"flip"` for changed ones.
    src: String,
}

impl Line {
    fn word(&self) -> u128 {
        let half = |text| u128::from_str_radix(text, 16).unwrap();
        half(&self.hex[..16]) | half(&self.hex[16..]) << 64
    }

    /// Guard with its blank, mnemonic with modifiers, operands.
    fn parts(&self) -> (String, &str, &str) {
        let (guard, rest) = match self.text.strip_prefix('@') {
            Some(text) => text.split_once(' ').map(|(guard, rest)| (format!("@{guard} "), rest)).unwrap(),
            None => (String::new(), self.text.as_str()),
        };
        let (mnemonic, operands) = rest.split_once(' ').unwrap_or((rest, ""));
        (guard, mnemonic, operands)
    }
}

fn golden() -> Vec<Line> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/sass/golden.jsonl");
    let text = std::fs::read_to_string(&path).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Instructions whose operands are not compared: their text is not printed, or names things (special
/// registers, shapes, texture units) that the printer does not.
const UNCOMPARED: [&str; 47] = [
    "NOP",
    "S2R",
    "S2UR",
    "CS2R",
    "BAR",
    "B2R",
    "BSSY",
    "BREAK",
    "EXIT",
    "RET",
    "BRX",
    "BPT",
    "YIELD",
    "DEPBAR",
    "LDGDEPBAR",
    "MEMBAR",
    "ERRBAR",
    "CCTL",
    "PMTRIG",
    "LDGSTS",
    "LDSM",
    "MOVM",
    "MATCH",
    "R2UR",
    "REDUX",
    "VOTEU",
    "QSPC",
    "ARRIVES",
    "ULDC",
    "LDC",
    "ST",
    "UPLOP3",
    "HFMA2",
    "HADD2",
    "HMUL2",
    "HSET2",
    "HSETP2",
    "HMNMX2",
    "LEPC",
    "JMP",
    "JMX",
    "CALL",
    "IMMA",
    "UP2UR",
    "UR2UP",
    "BMOV",
    "I2IP",
];

/// An operand as the printer writes it, or `None` for one that cannot be told from the text alone.
fn operand(mnemonic: &str, text: &str) -> Option<String> {
    let mut text = text.trim().replace(".reuse", "").replace("] [", "][");
    // The descriptor is no part of the address.
    if let Some((_, address)) = text.strip_prefix("desc").and_then(|text| text.split_once(']')) {
        text = address.to_owned();
    }
    for suffix in [".ROW", ".COL", ".H1", ".H0", ".B1", ".B2", ".B3"] {
        text = text.trim_end_matches(suffix).to_owned();
    }
    let number = text.trim_start_matches('-').starts_with(|c: char| c.is_ascii_digit());
    if text.ends_with("INF") || text.ends_with("NAN") || number && mnemonic == "MUFU" {
        return None;
    }
    if !number {
        return Some(text);
    }
    let float = mnemonic.starts_with('F') && mnemonic != "FLO";
    if float || mnemonic.starts_with('D') {
        let value: f64 = text.parse().ok()?;
        // CAST: the pattern of the value, or the upper half of it.
        let bits = if float { (value as f32).to_bits() } else { (value.to_bits() >> 32) as u32 };
        return Some(format!("{bits:#x}"));
    }
    // Signed numbers of 32 bits; branch targets are longer and keep their sign.
    let negative = text.starts_with('-');
    let digits = text.trim_start_matches('-');
    let magnitude = i64::from_str_radix(digits.strip_prefix("0x")?, 16).ok()?;
    let value = if negative { -magnitude } else { magnitude };
    Some(match mnemonic {
        "BRA" => format!("{value:#x}"),
        _ => format!("{:#x}", value as u32),
    })
}

#[test]
fn mnemonics_and_operands_are_those_of_the_disassembler() {
    let (mut compared, mut kinds, mut wrong) = (0, BTreeMap::new(), Vec::new());
    for line in golden() {
        let (guard, full, operands) = line.parts();
        let mnemonic = full.split('.').next().unwrap();
        let instruction = match decode(line.word()) {
            Ok(instruction) => instruction,
            Err(Refusal::Unmodelled(name)) => {
                assert_eq!(name.split('.').next().unwrap(), mnemonic, "{}", line.text);
                continue;
            }
            Err(Refusal::Illegal | Refusal::MisalignedRegister) => {
                // The disassembler prints misaligned register groups; the hardware refuses them.
                assert_eq!(line.src, "flip", "{}", line.text);
                continue;
            }
        };
        assert_eq!(instruction.mnemonic().split('.').next().unwrap(), mnemonic, "{}", line.text);
        let text = instruction.to_string();
        assert!(text.starts_with(&format!("{guard}{mnemonic}")), "{text}, not {}", line.text);
        if UNCOMPARED.contains(&mnemonic) {
            continue;
        }
        let own = text.strip_prefix(&guard).unwrap().split_once(' ').map_or("", |(_, operands)| operands);
        let expected: Vec<_> = operands
            .split(',')
            .filter(|text| !text.trim().is_empty())
            .map(|text| operand(mnemonic, text))
            .collect();
        let actual: Vec<_> = own.split(", ").filter(|text| !text.is_empty()).collect();
        let same = |(actual, expected): (&&str, &Option<String>)| {
            expected.as_ref().is_none_or(|text| text == actual)
        };
        if actual.len() != expected.len() || !actual.iter().zip(&expected).all(same) {
            wrong.push(format!("{text}, not {}", line.text));
        }
        compared += 1;
        *kinds.entry(mnemonic.to_owned()).or_insert(0) += 1;
    }
    assert!(wrong.is_empty(), "{} of {compared}:\n{}", wrong.len(), wrong.join("\n"));
    assert!(compared > 1000, "{compared}");
    assert!(kinds.len() > 55, "{kinds:?}");
}

#[test]
fn everything_that_the_compiler_emits_is_modelled_but_textures() {
    let mut refused: Vec<String> = golden()
        .iter()
        .filter(|line| line.src == "corpus")
        .filter(|line| decode(line.word()).is_err())
        .map(|line| line.parts().1.split('.').take(2).collect::<Vec<_>>().join("."))
        .collect();
    refused.sort_unstable();
    refused.dedup();
    // Textures and surfaces, and products with sparse matrices.
    let allowed =
        |name: &String| name.starts_with('T') || name.starts_with("SU") || name.starts_with("HMMA.SP");
    assert!(refused.iter().all(allowed), "{refused:?}");
}
