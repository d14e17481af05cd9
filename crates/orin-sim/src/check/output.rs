//! Findings as text, JSON and SARIF.

use serde_json::{Value, json};

use super::{Finding, Kind};

/// The findings as text, with a line that counts them at the end. Empty without findings.
///
/// ```
/// assert_eq!(orin_sim::check::text(&[]), "");
/// ```
pub fn text(findings: &[Finding]) -> String {
    let mut out = String::new();
    for finding in findings {
        out.push_str(&format!("{finding}\n"));
    }
    match findings.len() {
        0 => {}
        1 => out.push_str("1 finding\n"),
        count => out.push_str(&format!("{count} findings\n")),
    }
    out
}

/// The findings as a JSON object with the field `findings`.
///
/// ```
/// assert_eq!(orin_sim::check::json(&[])["findings"].as_array().map(Vec::len), Some(0));
/// ```
pub fn json(findings: &[Finding]) -> Value {
    json!({ "version": 1, "findings": findings })
}

/// The findings in SARIF 2.1.0, which code hosts display next to the source.
///
/// ```
/// assert_eq!(orin_sim::check::sarif(&[])["version"], "2.1.0");
/// ```
pub fn sarif(findings: &[Finding]) -> Value {
    let rules: Vec<Value> = Kind::ALL
        .iter()
        .map(|kind| json!({ "id": kind.id(), "shortDescription": { "text": kind.description() } }))
        .collect();
    let results: Vec<Value> = findings.iter().map(result).collect();
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": { "name": "orin-check", "version": env!("CARGO_PKG_VERSION"), "rules": rules } },
            "results": results,
        }],
    })
}

fn result(finding: &Finding) -> Value {
    let mut result = json!({
        "ruleId": finding.kind.id(),
        "level": "error",
        "message": { "text": finding.to_string() },
        "occurrenceCount": finding.count,
    });
    if let Some(at) = &finding.at {
        let mut location = json!({
            "logicalLocations": [{ "name": at.kernel, "kind": "function" }],
        });
        if let (Some(file), Some(line)) = (&at.file, at.line) {
            location["physicalLocation"] = json!({
                "artifactLocation": { "uri": file },
                "region": { "startLine": line.max(1) },
            });
        }
        result["locations"] = json!([location]);
    }
    result
}
