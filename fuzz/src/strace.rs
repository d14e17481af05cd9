//! Traces for the decoder of `orin decode strace`.
//!
//! For any input, the decoder reads to the end, its text has no control characters, which could control a terminal, its
//! JSON is valid, text and JSON agree, and neither is longer than a small multiple of the input.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use serde_json::Value;

/// Maximum bytes of output per byte of input: the shortest line with a request has 12 bytes, and creates an object and
/// a row of the summary.
const OUTPUT_FACTOR: usize = 64;

/// Maximum bytes of output for an empty input.
const OUTPUT_BASE: usize = 512;

/// The decoder's output.
fn decoded(data: &[u8], json: bool) -> String {
    let mut output = Vec::new();
    let _ = orin_tool::strace::decode(data, &mut output, json).expect("memory takes everything");
    assert!(
        output.len() <= OUTPUT_BASE + OUTPUT_FACTOR * data.len(),
        "{} bytes of input made {} of output",
        data.len(),
        output.len()
    );
    String::from_utf8(output).expect("text")
}

/// The number of calls in a table of the summary.
fn calls(table: &Value) -> u64 {
    table.as_array().expect("a table").iter().map(|row| row["calls"].as_u64().expect("a number")).sum()
}

/// Decodes a trace in both formats. Returns the behaviour for the fuzzer: the kinds of calls found, and the power of
/// two of their numbers in the summary.
pub(crate) fn run(data: &[u8]) -> BTreeSet<u64> {
    let text = decoded(data, false);
    assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "control characters in {text:?}");
    let json = decoded(data, true);
    let objects: Vec<Value> =
        json.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    let (summary, found) = objects.split_last().expect("a summary");
    assert_eq!(summary["kind"], "summary");
    assert!(found.iter().all(|call| call["kind"] == "ioctl"));
    let lines = data.split_inclusive(|byte| *byte == b'\n').count();
    assert_eq!(summary["lines"], lines, "every line is read");
    let (known, unknown) = (calls(&summary["requests"]), calls(&summary["unknown"]));
    assert_eq!(known, found.iter().filter(|call| call["known"] == true).count() as u64);
    assert_eq!(known + unknown, found.len() as u64);
    let rows = text.lines().take_while(|line| !line.starts_with("lines: ")).count();
    assert_eq!(rows, if found.is_empty() { 0 } else { found.len() + 2 }, "one row for each request");

    let magnitude = |value: &Value| value.as_u64().map_or(0, |number| u64::BITS - number.leading_zeros());
    let mut behaviours = BTreeSet::new();
    for call in found {
        let errno = call["errno"].is_string();
        let request = if call["known"] == true { call["request"].as_str() } else { None };
        behaviours.insert(number(&(
            call["role"].as_str(),
            call["role_inferred"] == true,
            request,
            errno,
            call["result"].is_null(),
            call["pid"].is_null(),
        )));
    }
    let counts = ["other_drivers", "not_understood", "lines"].map(|name| magnitude(&summary[name]));
    behaviours.insert(number(&(counts, found.len().checked_ilog2())));
    for (role, times) in summary["mmap"].as_object().expect("a table") {
        behaviours.insert(number(&(role, magnitude(times))));
    }
    behaviours
}

/// A number for a kind of behaviour.
fn number(behaviour: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    behaviour.hash(&mut hasher);
    hasher.finish()
}
