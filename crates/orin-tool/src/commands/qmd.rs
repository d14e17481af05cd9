//! Launch descriptors.

use std::io::{self, Write};

use ampere_cmd::dump;
use ampere_cmd::qmd::{Qmd, Version, v2_4, v3_0, v3_0_hopper, v4_0};
use serde_json::{Value, json};

use super::words::Words;
use super::{Verdict, hex, json_line};

/// A layout of the launch descriptor.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use orin_tool::commands::{QmdVersion, Verdict, qmd};
///
/// let mut text = Vec::new();
/// let mut descriptor = [0; 256];
/// // QMD_MAJOR_VERSION
/// descriptor[18 * 4] = 3 << 4;
/// let verdict = qmd(&descriptor, &mut text, Some(QmdVersion::V3_0), false)?;
/// assert_eq!(verdict, Verdict::Whole);
/// let verdict = qmd(&descriptor, &mut text, Some(QmdVersion::V4_0), false)?;
/// assert_eq!(verdict, Verdict::Damaged);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum QmdVersion {
    /// Version 2.4: 64 words
    #[value(name = "2.4")]
    V2_4,
    /// Version 3.0, which Orin uses: 64 words
    #[value(name = "3.0")]
    V3_0,
    /// Version 3.0 with the names of Hopper's header, which omits the reserved fields: 64 words
    #[value(name = "3.0-hopper")]
    V3_0Hopper,
    /// Version 4.0, of Hopper: 96 words
    #[value(name = "4.0")]
    V4_0,
}

impl QmdVersion {
    /// The layout named by the version fields; the major version is at the same place in all layouts.
    fn of(words: &[u32]) -> Option<Self> {
        match words.get(18)? >> 4 & 0xf {
            2 => Some(Self::V2_4),
            3 => Some(Self::V3_0),
            4 => Some(Self::V4_0),
            _ => None,
        }
    }
}

/// Decodes a launch descriptor in the layout of its version fields, or in `version`, and
/// writes every nonzero word with its fields, then a summary. With `json`, writes one JSON object with
/// every field.
///
/// # Errors
///
/// Returns the error of writing `output`.
pub fn qmd(
    input: &[u8],
    mut output: impl Write,
    version: Option<QmdVersion>,
    json: bool,
) -> io::Result<Verdict> {
    let words = Words::read(input, 4);
    let narrow = words.narrow();
    let mut faults: Vec<String> = words.faults.iter().map(ToString::to_string).collect();
    let format = words.format.name();
    let verdict = match version.or_else(|| QmdVersion::of(&narrow)) {
        Some(QmdVersion::V2_4) => show::<v2_4::Layout>(&narrow, &mut faults, format, &mut output, json)?,
        Some(QmdVersion::V3_0) => show::<v3_0::Layout>(&narrow, &mut faults, format, &mut output, json)?,
        Some(QmdVersion::V3_0Hopper) => {
            show::<v3_0_hopper::Layout>(&narrow, &mut faults, format, &mut output, json)?
        }
        Some(QmdVersion::V4_0) => show::<v4_0::Layout>(&narrow, &mut faults, format, &mut output, json)?,
        None => {
            let major = narrow.get(18).map(|word| word >> 4 & 0xf);
            faults.push(match major {
                Some(major) => {
                    format!("unknown layout for version {major}; select one with --version")
                }
                None => format!("cut off after {} words, before the version fields", narrow.len()),
            });
            if json {
                let object = json!({"kind": "qmd", "format": format, "version": null, "faults": faults});
                json_line(&mut output, &object)?;
            } else {
                write_faults(&mut output, &faults)?;
            }
            Verdict::Damaged
        }
    };
    output.flush()?;
    Ok(verdict)
}

fn write_faults(output: &mut impl Write, faults: &[String]) -> io::Result<()> {
    faults.iter().try_for_each(|fault| writeln!(output, "error: {fault}"))
}

/// Prints the words in layout `V`, padded with zeros.
fn show<V: Version>(
    words: &[u32],
    faults: &mut Vec<String>,
    format: &str,
    output: &mut impl Write,
    json: bool,
) -> io::Result<Verdict> {
    let length = Qmd::<V>::WORDS;
    if words.len() != length {
        faults.push(format!("{} words, but the layout {} has {length}", words.len(), V::NAME));
    }
    let mut exact = words.to_vec();
    exact.resize(length, 0);
    let qmd = Qmd::<V>::from_slice(&exact).unwrap_or_default();
    let version =
        |names: [&str; 2]| names.iter().find_map(|name| Qmd::<V>::field(name, 0)).map(|field| qmd.get(field));
    let major = version(["QMD_MAJOR_VERSION", "QMD_MAJOR_VERSION"]);
    let minor = version(["QMD_VERSION", "QMD_MINOR_VERSION"]);
    if (major, minor) != (Some(u64::from(V::MAJOR)), Some(u64::from(V::MINOR))) {
        let number = |field: Option<u64>| field.map_or("?".to_owned(), |value| value.to_string());
        faults.push(format!(
            "the version fields say {}.{}, not {}.{}",
            number(major),
            number(minor),
            V::MAJOR,
            V::MINOR
        ));
    }
    let stray: Vec<u32> = qmd.unassigned_bits_set().collect();
    if json {
        let fields: Vec<Value> = Qmd::<V>::fields()
            .map(|field| {
                let (info, (hi, lo), value) = (field.info(), field.bits(), qmd.get(field));
                let mut entry = json!({"name": info.name, "hi": hi, "lo": lo, "value": hex(value)});
                if info.is_array() {
                    entry["element"] = json!(field.index());
                }
                if let Some(name) = u32::try_from(value).ok().and_then(|value| info.value_name(value)) {
                    entry["meaning"] = json!(name);
                }
                entry
            })
            .collect();
        let object = json!({
            "kind": "qmd", "format": format, "version": format!("{}.{}", V::MAJOR, V::MINOR), "layout": V::NAME,
            "words": words.len(), "fields": fields, "unnamed_bits": stray, "faults": faults,
        });
        json_line(output, &object)?;
    } else {
        output.write_all(dump::qmd_text(&qmd).as_bytes())?;
        write_faults(output, faults)?;
        let (set, layout) = (qmd.set_fields().count(), V::NAME);
        writeln!(
            output,
            "read as {format}; layout {layout}; fields set: {set}; unnamed bits: {}",
            stray.len()
        )?;
    }
    Ok(Verdict::damaged(!faults.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use ampere_cmd::QmdV3_0;

    fn said(input: &[u8], version: Option<QmdVersion>, json: bool) -> (String, Verdict) {
        let mut output = Vec::new();
        let verdict = qmd(input, &mut output, version, json).unwrap();
        (String::from_utf8(output).unwrap(), verdict)
    }

    fn descriptor() -> Vec<u8> {
        let mut qmd = QmdV3_0::new();
        qmd.set(v3_0::QMD_MAJOR_VERSION, 3_u32).unwrap();
        qmd.set(v3_0::CTA_RASTER_WIDTH, 7_u32).unwrap();
        qmd.as_words().iter().flat_map(|word| word.to_le_bytes()).collect()
    }

    #[test]
    fn fields_have_their_names() {
        let (text, verdict) = said(&descriptor(), None, false);
        assert!(text.contains("CTA_RASTER_WIDTH 0x7"), "{text}");
        assert_eq!(verdict, Verdict::Whole, "{text}");
        let (json, _) = said(&descriptor(), None, true);
        let object: Value = serde_json::from_str(&json).unwrap();
        assert_eq!(object["fields"].as_array().unwrap().len(), QmdV3_0::fields().count());
        assert_eq!(object["version"], "3.0");
    }

    #[test]
    fn damage_is_reported() {
        let whole = descriptor();
        let (text, verdict) = said(&whole[..200], None, false);
        assert!(text.contains("error: 50 words"), "{text}");
        assert_eq!(verdict, Verdict::Damaged);
        let (text, verdict) = said(&whole[..20], None, false);
        assert!(text.contains("before the version fields"), "{text}");
        assert_eq!(verdict, Verdict::Damaged);
        let (text, verdict) = said(&whole, Some(QmdVersion::V4_0), false);
        assert!(text.contains("error: 64 words") && text.contains("the version fields say 3."), "{text}");
        assert_eq!(verdict, Verdict::Damaged);
        let mut stray = whole;
        stray[13 * 4 + 2] = 1;
        let (text, _) = said(&stray, Some(QmdVersion::V3_0Hopper), false);
        assert!(text.contains("unnamed bits 0x10000") && text.contains("unnamed bits: 1"), "{text}");
        let (text, _) = said(&stray, None, false);
        assert!(text.contains("unnamed bits 0x10000") && text.contains("unnamed bits: 1"), "{text}");
    }
}
