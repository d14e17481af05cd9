//! The kernel log around a test.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gpu_log::{Checker, Class, Event, Kind};
use nvgpu_channel::KmsgReader;
use nvgpu_sys::{Door, Errno};

use super::Machine;

/// How long the log must be quiet on a board before it is judged: lines arrive slightly after a fault.
const QUIET: Duration = Duration::from_millis(50);
/// How long to wait for the lines of an expected event.
const PATIENCE: Duration = Duration::from_secs(2);

/// Watches the log from its creation.
#[derive(Debug)]
pub struct LogWatch {
    reader: Result<KmsgReader, Errno>,
}

impl LogWatch {
    /// Starts after the newest record.
    pub fn start(door: &Arc<dyn Door>) -> Self {
        Self { reader: KmsgReader::open_at_end(door) }
    }

    /// The reason why the log is not checked, if it cannot be read.
    pub fn unavailable(&self) -> Option<String> {
        let errno = self.reader.as_ref().err()?;
        Some(format!("the kernel log is not checked: /dev/kmsg: {errno}; be in group adm or run as root"))
    }

    /// GPU events in the log since the start. Waits for events of the kind `expected`.
    pub fn events(&mut self, machine: &Machine, expected: Option<Kind>) -> Vec<Event> {
        let Ok(reader) = &mut self.reader else { return Vec::new() };
        let end = Instant::now() + PATIENCE;
        // A model writes its lines before the corresponding work ends.
        let quiet = if machine.is_model() && expected.is_none() { Duration::ZERO } else { QUIET };
        let mut checker = Checker::default();
        let mut events = Vec::new();
        loop {
            // If the log becomes unreadable during a test, what was read so far counts.
            let records = reader.read_new().unwrap_or_default();
            records.into_iter().for_each(|record| checker.push(record));
            let late = Instant::now() > end;
            if !late && reader.wait(quiet).unwrap_or(false) {
                continue;
            }
            events.extend(checker.finish());
            if late || expected.is_none_or(|kind| error_kinds(&events).contains(&kind)) {
                return events;
            }
        }
    }
}

/// The kinds of the errors among `events`.
fn error_kinds(events: &[Event]) -> BTreeSet<Kind> {
    let errors = events.iter().filter(|event| event.class() == Class::Error);
    errors.flat_map(Event::kinds).filter(|kind| *kind != Kind::Notifier).collect()
}

/// Judges the log of a test that provokes `expected` and may provoke the kinds in `allowed`.
///
/// # Errors
///
/// A message that names the unexpected or missing event.
pub fn judge(events: &[Event], expected: Option<Kind>, allowed: &[Kind]) -> Result<(), String> {
    let errors: Vec<_> = events.iter().filter(|event| event.class() == Class::Error).collect();
    let unexpected = errors.iter().find(|event| {
        let fits = |kind: &Kind| *kind == Kind::Notifier || expected == Some(*kind) || allowed.contains(kind);
        expected.is_none() && allowed.is_empty() || !event.kinds().iter().all(fits)
    });
    if let Some(event) = unexpected {
        let kinds: Vec<_> = event.kinds().into_iter().map(Kind::name).collect();
        let line = event.lines.iter().find(|line| line.row.class == Class::Error).unwrap_or(&event.lines[0]);
        let wanted = expected.map(|kind| format!(" beside the expected {kind}")).unwrap_or_default();
        return Err(format!(
            "the kernel log has an error{wanted}: {}: {} ({})",
            kinds.join(", "),
            line.record.text,
            line.row.meaning
        ));
    }
    match expected {
        Some(kind) if !error_kinds(events).contains(&kind) => {
            Err(format!("the kernel log has no {kind}, which the test was to provoke"))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use gpu_log::{Record, check};

    fn events(lines: &[&str]) -> Vec<Event> {
        let line = |text: &&str| Record::from_text(&format!("nvgpu: 17000000.gpu f:1 [ERR]  {text}"));
        check(lines.iter().map(line))
    }

    #[test]
    fn a_quiet_log_is_good_unless_an_event_is_expected() {
        assert_eq!(judge(&[], None, &[]), Ok(()));
        assert!(judge(&[], Some(Kind::Mmu), &[]).unwrap_err().contains("no MMU fault"));
    }

    #[test]
    fn an_error_fails_unless_it_was_expected() {
        let fault =
            events(&["page fault error: err_type = 2", "error notifier set to 31 for ch 1 owned by a"]);
        let text = judge(&fault, None, &[]).unwrap_err();
        assert!(text.contains("MMU fault") && text.contains("page fault error"), "{text}");
        assert_eq!(judge(&fault, Some(Kind::Mmu), &[]), Ok(()));
        let text = judge(&fault, Some(Kind::Sm), &[]).unwrap_err();
        assert!(text.contains("beside the expected SM exception"), "{text}");
        assert_eq!(judge(&fault, Some(Kind::Mmu), &[Kind::Sm]), Ok(()));
        assert!(judge(&fault, Some(Kind::Sm), &[Kind::Mmu]).unwrap_err().contains("no SM exception"));
    }

    #[test]
    fn only_the_expected_kind_is_accepted() {
        let both =
            events(&["sked exception: esr 1", "error notifier set to 13 for ch 1", "SW quiesce requested"]);
        assert!(judge(&both, Some(Kind::LaunchDescriptor), &[]).unwrap_err().contains("GPU out of service"));
        let unknown = events(&["never seen before"]);
        assert!(judge(&unknown, None, &[]).is_err());
    }
}
