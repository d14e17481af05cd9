//! A run as JUnit XML, which build servers read.

use anyhow::{Context, Result};
use quick_xml::Writer;
use quick_xml::events::{BytesDecl, BytesEnd, BytesStart, BytesText, Event};
use test_harness::Outcome;
use test_harness::report::{Counts, RunReport, TestReport};

/// The document.
///
/// # Errors
///
/// Returns an error if the writer fails, which cannot happen in memory.
pub(super) fn document(report: &RunReport) -> Result<String> {
    let mut writer = Writer::new_with_indent(Vec::new(), b' ', 2);
    writer.write_event(Event::Decl(BytesDecl::new("1.0", Some("UTF-8"), None)))?;
    let mut root = BytesStart::new("testsuites");
    root.push_attribute(("name", "test-device"));
    numbers(&mut root, Counts::of(&report.tests), report.elapsed.as_secs_f64());
    writer.write_event(Event::Start(root))?;
    for name in report.suites() {
        suite(&mut writer, report, name)?;
    }
    writer.write_event(Event::End(BytesEnd::new("testsuites")))?;
    let mut text = String::from_utf8(writer.into_inner()).context("XML is text")?;
    text.push('\n');
    Ok(text)
}

fn suite(writer: &mut Writer<Vec<u8>>, report: &RunReport, name: &str) -> Result<()> {
    let tests: Vec<_> = report.tests.iter().filter(|test| test.suite == name).collect();
    let time = tests.iter().map(|test| test.elapsed.as_secs_f64()).sum();
    let mut element = BytesStart::new("testsuite");
    element.push_attribute(("name", name));
    numbers(&mut element, Counts::of(tests.iter().copied()), time);
    element.push_attribute(("timestamp", super::started(report).as_str()));
    writer.write_event(Event::Start(element))?;
    writer.write_event(Event::Start(BytesStart::new("properties")))?;
    for (name, value) in [("device", report.device.clone()), ("scale", report.scale.to_string())] {
        let property =
            BytesStart::new("property").with_attributes([("name", name), ("value", &clean(&value))]);
        writer.write_event(Event::Empty(property))?;
    }
    writer.write_event(Event::End(BytesEnd::new("properties")))?;
    for test in tests {
        case(writer, test)?;
    }
    writer.write_event(Event::End(BytesEnd::new("testsuite")))?;
    Ok(())
}

fn numbers(element: &mut BytesStart<'_>, counts: Counts, seconds: f64) {
    let all = counts.passed + counts.failed + counts.skipped;
    element.push_attribute(("tests", all.to_string().as_str()));
    element.push_attribute(("failures", counts.failed.to_string().as_str()));
    element.push_attribute(("errors", "0"));
    element.push_attribute(("skipped", counts.skipped.to_string().as_str()));
    element.push_attribute(("time", format!("{seconds:.6}").as_str()));
}

fn case(writer: &mut Writer<Vec<u8>>, test: &TestReport) -> Result<()> {
    let time = format!("{:.6}", test.elapsed.as_secs_f64());
    let element = BytesStart::new("testcase").with_attributes([
        ("classname", test.suite),
        ("name", test.name),
        ("time", time.as_str()),
    ]);
    writer.write_event(Event::Start(element))?;
    match &test.outcome {
        Outcome::Passed => {}
        Outcome::Skipped(text) => {
            let skipped = BytesStart::new("skipped").with_attributes([("message", clean(text).as_str())]);
            writer.write_event(Event::Empty(skipped))?;
        }
        Outcome::Failed(text) => {
            let text = clean(text);
            let first = text.lines().next().unwrap_or_default();
            let failure = BytesStart::new("failure").with_attributes([("message", first)]);
            writer.write_event(Event::Start(failure))?;
            writer.write_event(Event::Text(BytesText::new(&text)))?;
            writer.write_event(Event::End(BytesEnd::new("failure")))?;
        }
    }
    let output: Vec<_> = test.notes.iter().cloned().chain(super::log_lines(test)).collect();
    if !output.is_empty() {
        writer.write_event(Event::Start(BytesStart::new("system-out")))?;
        writer.write_event(Event::Text(BytesText::new(&clean(&output.join("\n")))))?;
        writer.write_event(Event::End(BytesEnd::new("system-out")))?;
    }
    writer.write_event(Event::End(BytesEnd::new("testcase")))?;
    Ok(())
}

/// The text without characters that XML 1.0 cannot represent: most control characters.
fn clean(text: &str) -> String {
    let allowed =
        |c: char| matches!(c, '\t' | '\n' | '\r') || c >= ' ' && !matches!(c, '\u{fffe}' | '\u{ffff}');
    text.chars().map(|c| if allowed(c) { c } else { '\u{fffd}' }).collect()
}

#[cfg(test)]
mod tests {
    use quick_xml::Reader;

    use super::*;

    /// The parsed elements with their attributes, and the texts.
    fn read(document: &str) -> Vec<String> {
        let mut reader = Reader::from_str(document);
        reader.config_mut().trim_text(true);
        let mut seen = Vec::new();
        loop {
            match reader.read_event().unwrap() {
                Event::Eof => return seen,
                Event::Start(element) | Event::Empty(element) => {
                    let mut text = element.name().as_ref().to_owned();
                    for attribute in element.attributes() {
                        let attribute = attribute.unwrap();
                        let value = quick_xml::escape::unescape(&attribute.value).unwrap();
                        text += &format!(" {}={value}", attribute.key.as_ref());
                    }
                    seen.push(text);
                }
                _ => {}
            }
        }
    }

    #[test]
    fn a_parser_reads_everything_back() {
        let document = document(&super::super::sample::report()).unwrap();
        let seen = read(&document);
        assert_eq!(
            seen[0],
            "testsuites name=test-device tests=3 failures=1 errors=0 skipped=1 time=1.234000"
        );
        let count = |name: &str| seen.iter().filter(|text| text.split(' ').next() == Some(name)).count();
        assert_eq!((count("testsuite"), count("testcase"), count("failure"), count("skipped")), (2, 3, 1, 1));
        assert!(seen.contains(&"testcase classname=one name=fails time=0.020000".to_owned()));
        let failure = seen.iter().find(|text| text.starts_with("failure")).unwrap();
        assert_eq!(failure, "failure message=left < right && \"a\" != 'b' ]]> \u{fffd}[31m\u{fffd}");
        assert!(seen.contains(&"skipped message=no camera".to_owned()));
        assert!(!document.contains('\u{1b}') && !document.contains("]]>"), "{document}");
    }
}
