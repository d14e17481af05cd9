//! Pushbuffers.

use std::io::{self, Write};

use ampere_cmd::dump::{Classes, Content, Decoder, Item};
use ampere_cmd::method::MethodInfo;
use ampere_cmd::pushbuffer::{Header, Mode};
use serde_json::{Map, Value, json};

use super::words::Words;
use super::{Generation, Verdict, hex, json_line};

/// Counts of the words by meaning.
#[derive(Default)]
struct Counts {
    methods: usize,
    unknown: usize,
    skipped: usize,
    errors: usize,
}

/// Decodes the words of one segment and writes one line for each, then a summary, as text or as one
/// JSON object per line. `base` is the GPU address of the first word, `None` to print no addresses.
///
/// # Errors
///
/// Returns the error of writing `output`.
pub fn pushbuf(
    input: &[u8],
    mut output: impl Write,
    generation: Generation,
    base: Option<u64>,
    json: bool,
) -> io::Result<Verdict> {
    let words = Words::read(input, 4);
    let classes = match generation {
        Generation::AmpereA => Classes::AMPERE_A,
        Generation::Ampere => Classes::AMPERE,
        Generation::Hopper => Classes::HOPPER,
    };
    let mut decoder = Decoder::new(classes);
    let mut counts = Counts::default();
    for word in words.narrow() {
        let item = decoder.push(word);
        match &item.content {
            Content::Write { method, .. } => {
                counts.methods += 1;
                counts.unknown += usize::from(method.is_none());
            }
            Content::Skipped => counts.skipped += 1,
            Content::Bad(_) => counts.errors += 1,
            Content::Header(_) => {}
        }
        // An address above 2^64 is omitted; the position is printed.
        let va = base.and_then(|base| base.checked_add(4 * item.position as u64));
        if json {
            json_line(&mut output, &item_json(&item, va))?;
        } else {
            if let Some(va) = va {
                write!(output, "{va:#014x} ")?;
            }
            writeln!(output, "{item}")?;
        }
    }
    let owed = decoder.owed();
    let format = words.format.name();
    let Counts { methods, unknown, skipped, errors } = counts;
    if json {
        let faults: Vec<String> = words.faults.iter().map(ToString::to_string).collect();
        let summary = json!({
            "kind": "summary", "format": format, "words": words.words.len(), "methods": methods,
            "unknown_methods": unknown, "skipped": skipped, "errors": errors, "missing_words": owed,
            "faults": faults,
        });
        json_line(&mut output, &summary)?;
    } else {
        for fault in &words.faults {
            writeln!(output, "error: {fault}")?;
        }
        if owed > 0 {
            writeln!(output, "error: cut off: the last header asks for {owed} words more")?;
        }
        let all = words.words.len();
        let errors = errors + words.faults.len() + usize::from(owed > 0);
        writeln!(
            output,
            "read as {format}; words: {all}; methods: {methods}; unknown: {unknown}; skipped: {skipped}; \
             errors: {errors}"
        )?;
    }
    output.flush()?;
    Ok(Verdict::damaged(errors > 0 || owed > 0 || !words.faults.is_empty()))
}

fn item_json(item: &Item, va: Option<u64>) -> Value {
    let mut object = json!({"kind": "word", "position": item.position, "word": hex(item.word)});
    if let Some(va) = va {
        object["va"] = hex(va);
    }
    match &item.content {
        Content::Header(header) => object["header"] = header_json(header),
        Content::Write { write, method, immediate } => {
            let mut entry = json!({
                "subchannel": write.subchannel.index(),
                "address": hex(write.address),
                "immediate": immediate,
                "data": hex(write.data),
                "method": method.map(|(info, _)| info.name),
            });
            if let Some((info, index)) = method {
                if info.count > 1 {
                    entry["element"] = json!(index);
                }
                entry["fields"] = fields_json(info, write.data);
                entry["unnamed_bits"] = hex(write.data & !info.named_bits());
            }
            object["write"] = entry;
        }
        Content::Skipped => object["skipped"] = Value::Bool(true),
        Content::Bad(error) => object["error"] = Value::String(error.to_string()),
    }
    object
}

fn header_json(header: &Header) -> Value {
    match header {
        Header::Nop => json!({"type": "nop"}),
        Header::Methods { mode, subchannel, address, count } => {
            let mode = match mode {
                Mode::Incrementing => "incrementing",
                Mode::NonIncrementing => "non_incrementing",
                Mode::IncrementOnce => "increment_once",
            };
            let address = hex(*address);
            json!({
                "type": "methods", "mode": mode, "subchannel": subchannel.index(), "address": address,
                "count": count,
            })
        }
        Header::Immediate { subchannel, address, data } => {
            let (address, data) = (hex(*address), hex(*data));
            json!({"type": "immediate", "subchannel": subchannel.index(), "address": address, "data": data})
        }
        Header::SetSubdeviceMask(mask) => json!({"type": "set_subdevice_mask", "mask": hex(*mask)}),
        Header::StoreSubdeviceMask(mask) => json!({"type": "store_subdevice_mask", "mask": hex(*mask)}),
        Header::UseSubdeviceMask => json!({"type": "use_subdevice_mask"}),
        Header::EndSegment => json!({"type": "end_segment"}),
    }
}

/// All fields, including those of value zero.
fn fields_json(info: &MethodInfo, word: u32) -> Value {
    let mut fields = Map::new();
    for field in info.fields {
        let value = field.get(word);
        let mut entry = json!({"value": hex(value)});
        if let Some(name) = field.value_name(value) {
            entry["name"] = json!(name);
        }
        if let Some(when) = field.when {
            entry["when"] = json!(when);
        }
        fields.insert(field.name.to_owned(), entry);
    }
    Value::Object(fields)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(input: &[u8], base: Option<u64>, json: bool) -> (String, Verdict) {
        let mut output = Vec::new();
        let verdict = pushbuf(input, &mut output, Generation::Ampere, base, json).unwrap();
        (String::from_utf8(output).unwrap(), verdict)
    }

    #[test]
    fn a_launch_reads_as_names() {
        let (text, verdict) = said(b"200120b0 9", Some(0x14_0000_0000), false);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines[0], "0x001400000000    0: 200120b0  subchannel 1, 1 method from 0x02c0");
        assert!(lines[1].contains("SEND_SIGNALING_PCAS2_B PCAS_ACTION PREFETCH_SCHEDULE"), "{text}");
        assert_eq!(lines[2], "read as text; words: 2; methods: 1; unknown: 0; skipped: 0; errors: 0");
        assert_eq!(verdict, Verdict::Whole);
        let (json, _) = said(b"200120b0 9", None, true);
        assert!(json.contains(r#""PCAS_ACTION":{"value":"0x9","name":"PREFETCH_SCHEDULE"}"#), "{json}");
    }

    #[test]
    fn unknown_words_are_shown_and_missing_words_are_reported() {
        // Subchannel 2 has no class: three methods from 0x3ff4, of which one is there.
        let (text, verdict) = said(b"20034ffd 5", None, false);
        assert!(text.contains("unknown method 0x3ff4 data 0x5"), "{text}");
        assert!(text.contains("cut off: the last header asks for 2 words more"), "{text}");
        assert_eq!(verdict, Verdict::Damaged);
        let (text, verdict) = said(b"c0000003", None, false);
        assert!(text.contains("errors: 1"), "{text}");
        assert_eq!(verdict, Verdict::Damaged);
    }
}
