//! Compares the text of instructions with nvdisasm's.
//!
//! Words of `golden.jsonl` whose text differs are listed in `unequal.txt`, each with a reason. A word whose text
//! becomes equal must leave that list.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use sass::disassemble;

/// One line of `golden.jsonl`.
#[derive(serde::Deserialize)]
struct Line {
    /// The word: low, then high half.
    hex: String,
    /// Text at address 0.
    text: String,
}

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests")
}

fn golden() -> Vec<Line> {
    let text = fs::read_to_string(folder().join("golden.jsonl")).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn word(hex: &str) -> u128 {
    let half = |text| u128::from_str_radix(text, 16).unwrap();
    half(&hex[..16]) | half(&hex[16..]) << 64
}

/// The words whose text differs, with the reason.
fn unequal() -> BTreeMap<String, String> {
    let text = fs::read_to_string(folder().join("unequal.txt")).unwrap();
    let lines = text.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    lines
        .map(|line| line.split_once(' ').map(|(hex, why)| (hex.to_owned(), why.to_owned())).unwrap())
        .collect()
}

fn normal(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn every_line_is_equal_or_listed_with_a_reason() {
    let listed = unequal();
    let (mut equal, mut wrong, mut seen) = (0, Vec::new(), 0);
    for line in golden() {
        let text = disassemble(word(&line.hex), 0).unwrap_or_else(|| "not known".to_owned());
        let same = normal(&text) == normal(&line.text);
        let reason = listed.get(&line.hex);
        seen += usize::from(reason.is_some());
        match (same, reason) {
            (true, None) => equal += 1,
            (true, Some(_)) => wrong.push(format!("{} is equal now: take it off the list", line.hex)),
            (false, Some(reason)) => assert!(!reason.trim().is_empty(), "{}", line.hex),
            (false, None) => wrong.push(format!("{} is {text}, not {}", line.hex, line.text)),
        }
    }
    assert!(wrong.is_empty(), "{}:\n{}", wrong.len(), wrong.join("\n"));
    assert_eq!(seen, listed.len(), "every listed word is in golden.jsonl");
    assert!(equal >= 3223, "{equal}");
}

/// Every word has a text or is refused, and the text has no control characters.
#[test]
fn any_word_has_a_text_or_none() {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        u128::from(state)
    };
    let (lines, mut known) = (golden(), 0);
    for round in 0..200_000 {
        let word = match round % 2 {
            0 => next() | next() << 64,
            _ => word(&lines[round % lines.len()].hex) ^ 1 << (next() % 128) ^ 1 << (next() % 128),
        };
        if let Some(text) = disassemble(word, 0x100) {
            assert!(text.chars().all(|c| !c.is_control()), "{word:#x}: {text:?}");
            known += 1;
        }
    }
    assert!(known > 50_000, "{known}");
}

/// Branch targets are absolute.
#[test]
fn targets_depend_on_the_address() {
    let word = word("0000012000000947000fea0003800000");
    assert_eq!(disassemble(word, 0).as_deref(), Some("@P0 BRA 0x130"));
    assert_eq!(disassemble(word, 0x1000).as_deref(), Some("@P0 BRA 0x1130"));
}
