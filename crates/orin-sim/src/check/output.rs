//! Findings as text, JSON and SARIF.

use serde_json::{Value, json};

use super::{Finding, Kind, Tools, Work};

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

/// The findings as a JSON object: the field `findings`, and in `launches`, `own_launches`, `tools` and `faults` what
/// was looked at.
///
/// ```
/// use orin_sim::check::{Tools, Work, json};
///
/// let object = json(&[], Tools::MEMCHECK, &Work::default());
/// assert_eq!((object["findings"].as_array().map(Vec::len), object["launches"].as_u64()), (Some(0), Some(0)));
/// ```
pub fn json(findings: &[Finding], tools: Tools, work: &Work) -> Value {
    let tools: Vec<&str> = tools.iter().map(Tools::name).collect();
    let Work { launches, own_launches, faults } = work;
    json!({
        "version": 1,
        "tools": tools,
        "launches": launches,
        "own_launches": own_launches,
        "faults": faults,
        "findings": findings,
    })
}

/// The findings in SARIF 2.1.0, which code hosts display next to the source. `artifact` is the file that findings
/// belong to if neither their own source line nor that of the launch is known: the cubin, or the program. Code hosts
/// refuse a log with a finding that is in no file.
///
/// ```
/// assert_eq!(orin_sim::check::sarif(&[], "saxpy.cubin")["version"], "2.1.0");
/// ```
pub fn sarif(findings: &[Finding], artifact: &str) -> Value {
    let rules: Vec<Value> = Kind::ALL
        .iter()
        .map(|kind| json!({ "id": kind.id(), "shortDescription": { "text": kind.description() } }))
        .collect();
    let results: Vec<Value> = findings.iter().map(|finding| result(finding, artifact)).collect();
    json!({
        "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
        "version": "2.1.0",
        "runs": [{
            "tool": { "driver": { "name": "orin-check", "version": env!("CARGO_PKG_VERSION"), "rules": rules } },
            "results": results,
        }],
    })
}

fn result(finding: &Finding, artifact: &str) -> Value {
    let source = finding.at.as_ref().and_then(|at| Some((at.file.as_deref()?, at.line?)));
    let (file, line) =
        source.or_else(|| finding.launched.first().and_then(|call| place(call))).unwrap_or((artifact, 1));
    let mut location = json!({
        "physicalLocation": {
            "artifactLocation": { "uri": uri(file) },
            "region": { "startLine": line.max(1) },
        },
    });
    if let Some(at) = finding.at.as_ref().filter(|at| !at.kernel.is_empty()) {
        location["logicalLocations"] = json!([{ "name": at.kernel, "kind": "function" }]);
    }
    json!({
        "ruleId": finding.kind.id(),
        "level": "error",
        "message": { "text": finding.to_string() },
        "occurrenceCount": finding.count,
        "locations": [location],
    })
}

/// The file and the line of a call such as "main at program.py:12".
fn place(call: &str) -> Option<(&str, u32)> {
    let (file, line) = call.split_once(" at ")?.1.rsplit_once(':')?;
    // Code without a file has a name such as `<string>`.
    line.parse().ok().map(|line| (file, line)).filter(|_| !file.starts_with('<'))
}

/// A path as a relative reference of RFC 3986.
fn uri(path: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte);
    path.bytes()
        .map(|byte| if is_plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::Located;
    use super::*;

    #[test]
    fn findings_have_a_place_in_every_form() {
        let at = |file: Option<&str>, line| Located {
            kernel: "saxpy".to_owned(),
            file: file.map(str::to_owned),
            line,
            ..Located::default()
        };
        let finding = |at| Finding { at, count: 3, ..Finding::new(Kind::Unmapped, "lost".to_owned()) };
        let all = [finding(Some(at(Some("a b.cu"), Some(0)))), finding(Some(at(None, None))), finding(None)];
        assert!(text(&all[..1]).ends_with("\n1 finding\n"));
        assert!(text(&all).ends_with("\n3 findings\n"));
        let read: Vec<Finding> =
            serde_json::from_value(json(&all, Tools::MEMCHECK, &Work::default())["findings"].take()).unwrap();
        assert_eq!(read, all);
        let run = &sarif(&all, "build/µ:saxpy.cubin")["runs"][0];
        assert_eq!(run["tool"]["driver"]["rules"].as_array().map(Vec::len), Some(Kind::ALL.len()));
        let results = run["results"].as_array().unwrap();
        assert_eq!((&results[0]["ruleId"], &results[0]["occurrenceCount"]), (&json!("unmapped"), &json!(3)));
        // Code hosts refuse a log with a result that has no file; SARIF counts lines from 1.
        let files = ["a%20b.cu", "build/%C2%B5%3Asaxpy.cubin", "build/%C2%B5%3Asaxpy.cubin"];
        for (result, file) in results.iter().zip(files) {
            let place = &result["locations"][0]["physicalLocation"];
            let expected = json!({ "artifactLocation": { "uri": file }, "region": { "startLine": 1 } });
            assert_eq!(*place, expected);
        }
        assert_eq!(results[1]["locations"][0]["logicalLocations"][0]["name"], "saxpy");
        assert!(results[2]["locations"][0].get("logicalLocations").is_none());
        let launched = Finding { launched: vec!["step at look at.py:7".to_owned()], ..finding(None) };
        let place =
            &sarif(&[launched], "saxpy.cubin")["runs"][0]["results"][0]["locations"][0]["physicalLocation"];
        assert_eq!(
            (&place["artifactLocation"]["uri"], &place["region"]["startLine"]),
            (&json!("look%20at.py"), &json!(7))
        );
    }
}
