//! Words for the decoders of `orin decode pushbuf`, `qmd` and `gpfifo`.
//!
//! For any input, each decoder reads to the end, its text has no control characters, its JSON is valid, text and JSON
//! agree, and encoding the decoded items gives the same words.

use std::collections::BTreeSet;
use std::hash::{DefaultHasher, Hash, Hasher};

use ampere_cmd::gpfifo::Entry;
use ampere_cmd::pushbuffer::{Header, MethodStream, Packer, Subchannel};
use ampere_cmd::qmd::{Qmd, Version, v2_4, v3_0, v3_0_hopper, v4_0};
use orin_tool::commands::{self, Generation, QmdVersion, Verdict};
use serde_json::Value;

/// The output and the verdict of a decoder, as text and as JSON.
fn both(decode: impl Fn(&mut Vec<u8>, bool) -> std::io::Result<Verdict>) -> (String, Vec<Value>, Verdict) {
    let (mut text, mut json) = (Vec::new(), Vec::new());
    let verdict = decode(&mut text, false).expect("memory takes everything");
    let same = decode(&mut json, true).expect("memory takes everything");
    assert_eq!(verdict, same, "text and JSON find the same");
    let text = String::from_utf8(text).expect("text");
    assert!(!text.contains(|c: char| c.is_control() && c != '\n'), "control characters in {text:?}");
    let json = String::from_utf8(json).expect("text");
    let objects = json.lines().map(|line| serde_json::from_str(line).expect("an object")).collect();
    (text, objects, verdict)
}

/// Parses a number that JSON contains as hexadecimal text.
fn number(value: &Value) -> u64 {
    let digits = value.as_str().and_then(|text| text.strip_prefix("0x")).expect("a hexadecimal number");
    u64::from_str_radix(digits, 16).expect("a hexadecimal number")
}

/// A descriptor is the sum of its fields and its undefined bits.
fn adds_up<V: Version>(object: &Value) {
    let mut qmd = Qmd::<V>::new();
    for entry in object["fields"].as_array().expect("fields") {
        let element = entry["element"].as_u64().unwrap_or(0) as u32;
        let field = Qmd::<V>::field(entry["name"].as_str().expect("a name"), element).expect("a field");
        qmd.set(field, number(&entry["value"])).expect("it came from there");
    }
    let set = qmd.set_fields().count();
    let fields = object["fields"].as_array().expect("fields").iter();
    assert_eq!(fields.filter(|field| number(&field["value"]) != 0).count(), set);
    for bit in object["unnamed_bits"].as_array().expect("bits") {
        let bit = bit.as_u64().expect("a bit") as usize;
        assert_eq!(V::NAMED[bit / 32] >> (bit % 32) & 1, 0, "bit {bit} has a name");
    }
}

/// Packing the methods of a listing into the fewest words keeps the methods.
fn packs_again(words: &[Value]) {
    let write = |word: &Value| {
        let write = word.get("write")?;
        let subchannel = write["subchannel"].as_u64().expect("a subchannel") as u8;
        Some((subchannel, number(&write["address"]) as u32, number(&write["data"]) as u32))
    };
    let writes: Vec<(u8, u32, u32)> = words.iter().filter_map(write).collect();
    let mut packed = vec![0; 2 * writes.len()];
    let mut packer = Packer::new(&mut packed);
    for (subchannel, address, data) in &writes {
        let subchannel = Subchannel::new(*subchannel).expect("it was decoded");
        packer.raw(subchannel, *address, *data).expect("two words are enough");
    }
    let mut stream = MethodStream::new();
    let again = packer.written().iter().filter_map(|word| stream.push(*word).expect("it was packed"));
    let again = again.map(|write| (write.subchannel.index(), write.address, write.data));
    assert!(again.eq(writes), "packed to {:x?}", packer.written());
}

/// Decodes in every way. Returns the behaviour for the fuzzer.
pub(crate) fn run(data: &[u8]) -> BTreeSet<u64> {
    let mut behaviours = BTreeSet::new();
    let mut new = |behaviour: &dyn Fn(&mut DefaultHasher)| {
        let mut hasher = DefaultHasher::new();
        behaviour(&mut hasher);
        behaviours.insert(hasher.finish());
    };

    let generations = [
        (Generation::AmpereA, Some(0)),
        (Generation::Ampere, None),
        (Generation::Hopper, Some(u64::MAX - 64)),
    ];
    for (generation, base) in generations {
        let (text, objects, verdict) =
            both(|output, json| commands::pushbuf(data, output, generation, base, json));
        let (summary, words) = objects.split_last().expect("a summary");
        assert_eq!(summary["words"], words.len());
        assert!(text.lines().count() > words.len(), "one row for each word");
        let errors = words.iter().filter(|word| word["error"].is_string()).count();
        assert_eq!(summary["errors"], errors);
        assert!(errors == 0 || verdict == Verdict::Damaged);
        packs_again(words);
        for word in words {
            let bits = number(&word["word"]) as u32;
            if word["header"].is_object() {
                let header = Header::decode(bits).expect("a header");
                // A run beyond the last method decodes up to there, and cannot be encoded.
                if let Ok(again) = header.encode() {
                    assert_eq!(Header::decode(again), Ok(header));
                }
            }
            let write = &word["write"];
            new(&|hasher| {
                write["method"].as_str().hash(hasher);
                word["header"]["type"].as_str().hash(hasher);
                word["error"].is_string().hash(hasher);
                (write["unnamed_bits"].as_str() == Some("0x0")).hash(hasher);
            });
        }
    }

    let (text, objects, _) = both(|output, json| commands::gpfifo(data, output, json));
    let (summary, entries) = objects.split_last().expect("a summary");
    assert_eq!(summary["entries"], entries.len());
    assert!(text.lines().count() > entries.len(), "one row for each entry");
    for entry in entries {
        let word = number(&entry["entry"]);
        match Entry::decode(word) {
            Ok(entry) => assert_eq!(Entry::decode(entry.encode().expect("it was decoded")), Ok(entry)),
            Err(_) => assert!(entry["error"].is_string()),
        }
        new(&|hasher| {
            (entry["segment"].is_object(), entry["segment"]["sync"].as_bool()).hash(hasher);
            entry["control"]["operation"].as_str().hash(hasher);
        });
    }

    let versions = [QmdVersion::V2_4, QmdVersion::V3_0, QmdVersion::V3_0Hopper, QmdVersion::V4_0];
    for version in versions.into_iter().map(Some).chain([None]) {
        let (_, objects, verdict) = both(|output, json| commands::qmd(data, output, version, json));
        let [object] = &objects[..] else { panic!("one object, not {}", objects.len()) };
        let faults = object["faults"].as_array().expect("faults");
        assert_eq!(faults.is_empty(), verdict == Verdict::Whole);
        match object["version"].as_str() {
            Some("2.4") => adds_up::<v2_4::Layout>(object),
            Some("3.0") if version == Some(QmdVersion::V3_0Hopper) => adds_up::<v3_0_hopper::Layout>(object),
            Some("3.0") => adds_up::<v3_0::Layout>(object),
            Some("4.0") => adds_up::<v4_0::Layout>(object),
            other => assert_eq!(other, None, "a version"),
        }
        new(&|hasher| {
            object["version"].as_str().hash(hasher);
            (faults.len(), object["format"].as_str()).hash(hasher);
        });
        for field in object["fields"].as_array().into_iter().flatten().filter(|f| f["value"] != "0x0") {
            new(&|hasher| (field["name"].as_str(), field["meaning"].as_str()).hash(hasher));
        }
    }
    behaviours
}
