//! Differences between a report and the model.

use std::collections::BTreeMap;
use std::io::{self, Write};

use serde_json::{Value, json};

use super::Run;
use crate::bring_up::archive::SUMMARY;

/// Longest text of a value in the table.
const WIDTH: usize = 48;
/// Times count as different from this factor on.
const FACTOR: f64 = 2.0;
/// Names of facts that differ from run to run, or follow from others. Of the statistics of times, the median remains.
const IRRELEVANT: [&str; 23] = [
    "address",
    "bytes",
    "characteristics",
    "count",
    "early_wakeups",
    "first_wrong",
    "free_bytes",
    "from",
    "gpu_time_ns",
    "hash",
    "log",
    "max_us",
    "min_us",
    "p99_us",
    "pc",
    "releases_without_event",
    "rounds",
    "source_va",
    "target_va",
    "text",
    "to",
    "va",
    "woken",
];

/// One row of the table.
#[derive(Debug, PartialEq)]
pub(super) struct Difference {
    /// The stage; `None` for requests, which belong to several.
    stage: Option<u64>,
    /// What differs.
    what: String,
    /// In the report.
    report: Value,
    /// In the model.
    model: Value,
}

impl Difference {
    pub(super) fn as_json(&self) -> Value {
        json!({ "stage": self.stage, "what": self.what, "report": self.report, "model": self.model })
    }
}

/// Facts by path.
fn flatten(path: &str, value: &Value, facts: &mut BTreeMap<String, Value>) {
    match value {
        Value::Object(fields) => {
            for (name, field) in fields.iter().filter(|(name, _)| !IRRELEVANT.contains(&name.as_str())) {
                let path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
                flatten(&path, field, facts);
            }
        }
        Value::Array(items) if items.iter().any(|item| item.is_object()) => {
            for (index, item) in items.iter().enumerate() {
                flatten(&format!("{path}.{index}"), item, facts);
            }
        }
        _ => {
            facts.insert(path.to_owned(), value.clone());
        }
    }
}

/// Whether two values of a fact count as equal.
fn is_equal(path: &str, report: &Value, model: &Value) -> bool {
    let is_time = path.ends_with("_us") || path.ends_with("_ms") || path.ends_with(".us");
    match (report.as_f64(), model.as_f64()) {
        (Some(report), Some(model)) if is_time => {
            let (less, more) = (report.min(model), report.max(model));
            // Below a microsecond, the clock decides.
            more <= 1.0 || more < less * FACTOR
        }
        _ => report == model,
    }
}

/// All differences: outcomes and facts stage by stage, then requests.
pub(super) fn all(report: &Run, model: &Run) -> Vec<Difference> {
    let mut differences = Vec::new();
    let stages = |run: &Run| -> BTreeMap<u64, Value> {
        let summary = run.report.json(SUMMARY).unwrap_or_default();
        let list = summary["stages"].as_array().cloned().unwrap_or_default();
        list.into_iter()
            .filter_map(|stage| Some((stage["stage"].as_u64()?, stage["outcome"].clone())))
            .collect()
    };
    let (seen, known) = (stages(report), stages(model));
    for number in 1..=report.last {
        let stage = Some(u64::from(number));
        let outcome =
            |stages: &BTreeMap<u64, Value>| stages.get(&u64::from(number)).cloned().unwrap_or_default();
        let (left, right) = (outcome(&seen), outcome(&known));
        if left != right {
            differences.push(Difference { stage, what: "outcome".to_owned(), report: left, model: right });
        }
        let (mut left, mut right) = (BTreeMap::new(), BTreeMap::new());
        flatten("", &report.facts(number), &mut left);
        flatten("", &model.facts(number), &mut right);
        for what in left.keys().chain(right.keys().filter(|name| !left.contains_key(*name))) {
            let value = |facts: &BTreeMap<String, Value>| facts.get(what).cloned().unwrap_or_default();
            let (report, model) = (value(&left), value(&right));
            if !is_equal(what, &report, &model) {
                differences.push(Difference { stage, what: what.clone(), report, model });
            }
        }
    }
    let model: BTreeMap<_, _> =
        model.calls.requests().map(|(name, errnos, us)| (name, (errnos, us))).collect();
    for (name, errnos, least_us) in report.calls.requests() {
        let (known, known_us) = model.get(name).cloned().unwrap_or_default();
        if errnos != known {
            let what = format!("{name}: errnos");
            differences.push(Difference { stage: None, what, report: json!(errnos), model: json!(known) });
        }
        let what = format!("{name}: shortest_us");
        // Requests of a few microseconds differ by the machine.
        if least_us.max(known_us) >= 1000 && !is_equal(&what, &json!(least_us), &json!(known_us)) {
            differences.push(Difference {
                stage: None,
                what,
                report: json!(least_us),
                model: json!(known_us),
            });
        }
    }
    differences
}

/// Prints the table.
pub(super) fn print(out: &mut impl Write, differences: &[Difference]) -> io::Result<()> {
    if differences.is_empty() {
        return writeln!(out, "the report and the model do not differ");
    }
    let text = |value: &Value| {
        let text = match value {
            Value::Null => "-".to_owned(),
            Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        let text = text.replace(char::is_control, "?");
        if text.chars().count() <= WIDTH {
            text
        } else {
            text.chars().take(WIDTH - 3).chain("...".chars()).collect()
        }
    };
    let names = differences.iter().map(|difference| difference.what.len()).max().unwrap_or_default();
    writeln!(out, "{:5}  {:names$}  {:WIDTH$}  model", "stage", "what", "report")?;
    for Difference { stage, what, report, model } in differences {
        let stage = stage.map_or_else(|| "-".to_owned(), |stage| stage.to_string());
        let what = what.replace(char::is_control, "?");
        writeln!(out, "{stage:5}  {what:names$}  {:WIDTH$}  {}", text(report), text(model))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_differ_by_a_factor_and_other_facts_by_value() {
        assert!(is_equal("releases.median_us", &json!(10.0), &json!(19.9)));
        assert!(!is_equal("releases.median_us", &json!(10.0), &json!(20.1)));
        assert!(is_equal("us", &json!(null), &json!(null)) && !is_equal("a_us", &json!(1.0), &json!(null)));
        assert!(is_equal("a_us", &json!(0.1), &json!(0.9)));
        assert!(!is_equal("num_vsms", &json!(8), &json!(16)));
    }

    #[test]
    fn facts_are_compared_without_what_changes_from_run_to_run() {
        let mut facts = BTreeMap::new();
        let value = json!({ "va": "0x1", "modes": { "CTA": "accepted" }, "list": [{ "us": 1, "to": 3 }], "m": [1, 2] });
        flatten("", &value, &mut facts);
        let names: Vec<_> = facts.keys().map(String::as_str).collect();
        assert_eq!(names, ["list.0.us", "m", "modes.CTA"]);
    }

    #[test]
    fn a_table_does_not_command_the_terminal() {
        let row = |report: &str| Difference {
            stage: Some(7),
            what: "x\u{1b}".to_owned(),
            report: report.into(),
            model: Value::Null,
        };
        let mut out = Vec::new();
        print(&mut out, &[row("a\u{1b}[2Jb"), row(&"y".repeat(100))]).unwrap();
        let text = String::from_utf8(out).unwrap();
        assert!(!text.contains('\u{1b}') && text.contains("a?[2Jb") && text.contains("..."), "{text}");
    }
}
