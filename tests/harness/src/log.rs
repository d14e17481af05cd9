//! The kernel log around a test.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use gpu_log::{Checker, Class, Event, Kind, Owner};
use kernel_door::{Door, Errno};
use nvgpu_channel::KmsgReader;

use crate::neighbour::is_child;

/// How long to wait for lines that arrive after the work that caused them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pace {
    /// The log is complete after this time without a new line.
    pub quiet: Duration,
    /// The longest wait for silence, or for the lines of an expected event.
    pub limit: Duration,
}

impl Pace {
    /// A board: the kernel sets the error notifier first, and prints while it resets the engine.
    pub const BOARD: Self = Self { quiet: Duration::from_millis(500), limit: Duration::from_secs(10) };
    /// The software Orin: it writes its lines before the corresponding work ends.
    pub const MODEL: Self = Self { quiet: Duration::ZERO, limit: Duration::from_secs(2) };
    /// Interval of looks for an expected event.
    const LOOK: Duration = Duration::from_millis(50);
}

/// The log of a test.
#[derive(Debug)]
pub struct Heard {
    /// The GPU events.
    pub events: Vec<Event>,
    /// Whether the log was silent at the end. If not, lines of this test may appear during the next one.
    pub silent: bool,
}

/// What counts as an error of a test.
#[derive(Clone, Copy, Debug, Default)]
pub struct Rules<'a> {
    /// The kind of event that the test provokes.
    pub expected: Option<Kind>,
    /// Kinds that it may provoke besides.
    pub allowed: &'a [Kind],
    /// Whether lines of the driver without a row in the table are only noted.
    pub unknown_passes: bool,
}

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
        Some(format!(
            "the kernel log is not checked: /dev/kmsg: {errno}; it needs CAP_SYSLOG unless kernel.dmesg_restrict is 0: \
             run as root, or sudo sysctl kernel.dmesg_restrict=0"
        ))
    }

    /// GPU events in the log since the last call, or since the start. Waits for silence, and for events of the kind
    /// `expected`.
    pub fn events(&mut self, pace: Pace, expected: Option<Kind>) -> Heard {
        let Ok(reader) = &mut self.reader else { return Heard { events: Vec::new(), silent: true } };
        let end = Instant::now() + pace.limit;
        let quiet = if expected.is_none() { pace.quiet } else { pace.quiet.max(Pace::LOOK) };
        let mut checker = Checker::default();
        let mut events = Vec::new();
        loop {
            // If the log becomes unreadable during a test, what was read so far counts.
            let records = reader.read_new().unwrap_or_default();
            records.into_iter().for_each(|record| checker.push(record));
            let silent = !reader.wait(quiet).unwrap_or(false);
            let late = Instant::now() > end;
            if !silent && !late {
                continue;
            }
            events.extend(checker.finish().into_iter().filter(|event| !is_foreign(event)));
            if late || expected.is_none_or(|kind| error_kinds(&events).contains(&kind)) {
                return Heard { events, silent };
            }
        }
    }
}

/// Whether all programs that an event names are others, which may share the GPU. The children of this one are not.
fn is_foreign(event: &Event) -> bool {
    let owners = event.owners();
    let other = |owner: &Owner| !is_child(&owner.name) && is_other(owner, &threads("self"), thread_elsewhere);
    !owners.is_empty() && owners.iter().all(other)
}

/// Whether a program is not this one, whose threads are `own`. A line without a process id names a thread, perhaps one
/// of this program that has ended, so another process must have such a thread.
fn is_other(owner: &Owner, own: &[String], elsewhere: impl Fn(&str) -> bool) -> bool {
    // In a container the kernel's process id is not that of `std::process::id`, so the name decides.
    let is_own = owner.pid == Some(std::process::id()) || own.contains(&owner.name);
    !is_own && (owner.pid.is_some() || elsewhere(&owner.name))
}

/// Names of the threads of a process.
fn threads(process: &str) -> Vec<String> {
    let folder = std::fs::read_dir(format!("/proc/{process}/task"));
    let names = folder.into_iter().flatten().flatten().map(|task| task.path().join("comm"));
    names.filter_map(|path| Some(std::fs::read_to_string(path).ok()?.trim_end().to_owned())).collect()
}

/// Whether a process has a thread of this name.
fn thread_elsewhere(name: &str) -> bool {
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let mut names = processes.filter_map(|entry| entry.file_name().into_string().ok());
    names.any(|process| threads(&process).iter().any(|thread| thread == name))
}

/// The kinds of the errors among `events`.
fn error_kinds(events: &[Event]) -> BTreeSet<Kind> {
    let errors = events.iter().filter(|event| event.class() == Class::Error);
    errors.flat_map(Event::kinds).filter(|kind| *kind != Kind::Notifier).collect()
}

/// The text of the first line of each error that consists only of lines without a row in the table.
pub fn unknown_lines(events: &[Event]) -> impl Iterator<Item = &str> {
    events.iter().filter(|event| is_unknown(event)).map(|event| event.lines[0].record.text.as_str())
}

fn is_unknown(event: &Event) -> bool {
    event.class() == Class::Error && event.kinds().into_iter().eq([Kind::Unknown])
}

/// Judges the log of a test.
///
/// # Errors
///
/// A message that names the unexpected or missing event.
pub fn judge(events: &[Event], rules: Rules<'_>) -> Result<(), String> {
    let Rules { expected, allowed, unknown_passes } = rules;
    let passes = |event: &&Event| unknown_passes && is_unknown(event);
    let errors: Vec<_> =
        events.iter().filter(|event| event.class() == Class::Error).filter(|event| !passes(event)).collect();
    let unexpected = errors.iter().find(|event| {
        let fits = |kind: &Kind| match *kind {
            Kind::Notifier => true,
            Kind::Unknown if unknown_passes => true,
            kind => expected == Some(kind) || allowed.contains(&kind),
        };
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
    use kernel_door::OpenFlags;

    fn events(lines: &[&str]) -> Vec<Event> {
        let line = |text: &&str| Record::from_text(&format!("nvgpu: 17000000.gpu f:1 [ERR]  {text}"));
        check(lines.iter().map(line))
    }

    fn judge(events: &[Event], expected: Option<Kind>, allowed: &[Kind]) -> Result<(), String> {
        super::judge(events, Rules { expected, allowed, unknown_passes: false })
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
    }

    #[test]
    fn a_fault_of_another_program_is_not_this_one_s() {
        let owner = |pid, name: &str| Owner { pid, name: name.to_owned() };
        let (own, elsewhere) = (["tests".to_owned()], |name: &str| name == "Xorg");
        let other = |pid, name| is_other(&owner(pid, name), &own, elsewhere);
        assert!(other(Some(7), "cuda_plot") && other(None, "Xorg"));
        // One of this program, one of its threads, a thread that has ended, and this program in a container.
        let cases = [(Some(std::process::id()), "x"), (None, "tests"), (None, "ended"), (Some(7), "tests")];
        assert!(cases.iter().all(|(pid, name)| !other(*pid, name)));
        let faults = |name: &str| {
            let line =
                format!("NVRM: Xid (PCI:0000:0a:00): 31, pid=4294967295, name={name}, Ch 00000010, intr 0");
            is_foreign(&events(&[&line])[0])
        };
        assert!(faults("cuda_plot_k32_v") && !faults(&threads("self")[0]));
        assert!(faults("a_child_of_tests"));
        crate::neighbour::note_child("a_child_of_tests");
        assert!(!faults("a_child_of_tests"), "the test has started the process that faults");
        assert!(!is_foreign(&events(&["NVRM: Xid (PCI:0000:44:00): 79, GPU has fallen off the bus"])[0]));
    }

    #[test]
    fn lines_without_a_row_can_pass() {
        let unknown = events(&["never seen before"]);
        assert!(judge(&unknown, None, &[]).is_err());
        let rules = Rules { unknown_passes: true, ..Rules::default() };
        assert_eq!(super::judge(&unknown, rules), Ok(()));
        assert!(unknown_lines(&unknown).eq(["nvgpu: 17000000.gpu f:1 [ERR]  never seen before"]));
        let fault = events(&["never seen before", "page fault error: err_type = 2"]);
        assert!(super::judge(&fault, rules).unwrap_err().contains("MMU fault"));
        assert_eq!(super::judge(&fault, Rules { expected: Some(Kind::Mmu), ..rules }), Ok(()));
        // An unknown line is not the expected event.
        assert!(super::judge(&unknown, Rules { expected: Some(Kind::Mmu), ..rules }).is_err());
    }

    /// Writes an error line into the log of a software Orin.
    fn complain(orin: &orin_sim::SoftwareOrin) {
        let refused = orin.open(c"/dev/nvgpu/igpu0/dbg", OpenFlags::READ_WRITE);
        assert_eq!(refused, Err(Errno::NOENT), "the model says in its log that it lacks the node");
    }

    #[test]
    fn late_lines_are_waited_for_up_to_a_limit() {
        let orin = orin_sim::SoftwareOrin::new(orin_sim::Config::default()).unwrap();
        let door: Arc<dyn Door> = Arc::new(orin.clone());
        let mut watch = LogWatch::start(&door);
        let pace =
            |quiet, limit| Pace { quiet: Duration::from_millis(quiet), limit: Duration::from_millis(limit) };
        std::thread::scope(|scope| {
            scope.spawn(|| {
                std::thread::sleep(Duration::from_millis(50));
                complain(&orin);
            });
            let heard = watch.events(pace(1000, 20_000), None);
            assert!(heard.silent && heard.events.len() == 1, "{heard:?}");
        });
        let stop = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                    complain(&orin);
                }
            });
            let heard = watch.events(pace(10_000, 50), None);
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
            assert!(!heard.silent && !heard.events.is_empty(), "{heard:?}");
        });
    }
}
