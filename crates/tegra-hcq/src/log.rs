//! The kernel log's lines about the GPU, for several readers.
//!
//! The log belongs to the machine: it covers all queues of a device, and other programs. The lines about one fault end
//! with a line `error notifier set to N for ch C` for each channel that the kernel has stopped. Lines are therefore
//! grouped into reports that end there, and the explanation of a fault takes the report that names one of its channels.
//! A crash bundle shows the last lines without taking them.

use std::collections::VecDeque;

use gpu_hal::Driver;
use gpu_log::{Facts, FaultLine, Message, StoppedChannel};

/// Number of lines kept, taken or not.
const KEPT: usize = 2000;
/// Number of pending reports. Reports about other programs are never taken and age out.
const REPORTS: usize = 64;
/// Lines about one fault.
#[derive(Debug, Default)]
struct Report {
    lines: Vec<String>,
    /// The channels that were stopped.
    channels: Vec<u32>,
}

/// Lines read so far.
#[derive(Debug, Default)]
pub(crate) struct LogBook {
    history: VecDeque<String>,
    /// Complete reports that have not been taken, newest last.
    reports: VecDeque<Report>,
    /// Lines after the last report.
    rest: VecDeque<String>,
    /// Number of those lines already returned.
    shown: usize,
    /// The last line closed a report; the next line may also belong to it.
    closing: bool,
}

impl LogBook {
    fn read(&mut self, driver: &dyn Driver) -> Result<(), String> {
        self.add(driver.kernel_log()?);
        Ok(())
    }

    fn add(&mut self, lines: Vec<String>) {
        for line in &lines {
            self.sort(line);
        }
        self.history.extend(lines);
        let surplus = self.history.len().saturating_sub(KEPT);
        self.history.drain(..surplus);
    }

    fn sort(&mut self, line: &str) {
        let stopped = Facts::of(line).stopped;
        match (stopped, self.reports.back_mut()) {
            // A program's own request, logged by another thread of the kernel. It may appear between the lines about a
            // fault, and no other line explains it.
            (Some(StoppedChannel { notifier: StoppedChannel::RESET, channel }), _) => {
                self.reports.push_back(Report { lines: vec![line.to_owned()], channels: vec![channel] });
            }
            (Some(StoppedChannel { channel, .. }), Some(report)) if self.closing => {
                report.channels.push(channel);
                report.lines.push(line.to_owned());
            }
            (Some(StoppedChannel { channel, .. }), _) => {
                let mut lines: Vec<_> = self.rest.drain(..).collect();
                self.shown = 0;
                lines.push(line.to_owned());
                self.reports.push_back(Report { lines, channels: vec![channel] });
            }
            (None, _) => self.rest.push_back(line.to_owned()),
        }
        self.closing = stopped.is_some_and(|stopped| stopped.notifier != StoppedChannel::RESET);
        let surplus = self.reports.len().saturating_sub(REPORTS);
        self.reports.drain(..surplus);
        let surplus = self.rest.len().saturating_sub(KEPT);
        self.rest.drain(..surplus);
        self.shown = self.shown.saturating_sub(surplus);
    }

    /// Takes the newest report about one of the channels. Older reports were about earlier channels with the same ids.
    pub(crate) fn take(
        &mut self,
        driver: &dyn Driver,
        channels: &[u32],
    ) -> Result<Option<Vec<String>>, String> {
        self.read(driver)?;
        Ok(self.take_read(channels))
    }

    fn take_read(&mut self, channels: &[u32]) -> Option<Vec<String>> {
        let (mut newest, before) = (None, self.reports.len());
        self.reports.retain_mut(|report| {
            let concerns = report.channels.iter().any(|channel| channels.contains(channel));
            if concerns {
                newest = Some(std::mem::take(&mut report.lines));
            }
            !concerns
        });
        // The next line is not part of a report that was taken.
        self.closing &= self.reports.len() == before;
        newest
    }

    /// Takes the lines about an access that one of the channels made, if they follow the newest line about its end. An
    /// SM can report a refused access, and the kernel recover, before it handles the MMU's interrupt.
    pub(crate) fn take_late(&mut self, driver: &dyn Driver, channels: &[u32]) -> Result<Vec<String>, String> {
        self.read(driver)?;
        Ok(self.take_late_read(channels))
    }

    fn take_late_read(&mut self, channels: &[u32]) -> Vec<String> {
        let end = self.history.iter().rposition(|line| {
            Facts::of(line).stopped.is_some_and(|stopped| channels.contains(&stopped.channel))
        });
        let after: Vec<&String> = self.history.iter().skip(end.map_or(usize::MAX, |end| end + 1)).collect();
        let own = |line: &&String| {
            let access = Facts::of(line).access;
            access.is_some_and(|access| access.channel.is_some_and(|channel| channels.contains(&channel)))
        };
        let Some(at) = after.iter().position(own) else { return Vec::new() };
        let is = |line: &str, wanted: fn(&FaultLine) -> bool| match Message::parse(line) {
            Some(Message::Fault(line)) => wanted(&line),
            _ => false,
        };
        let begins = at > 0 && is(after[at - 1], |line| matches!(line, FaultLine::PageFault { .. }));
        let details = after[at + 1..].iter().take_while(|line| {
            is(line, |line| matches!(line, FaultLine::MmuClient { .. } | FaultLine::MmuRecovery { .. }))
        });
        let range = at - usize::from(begins)..at + 1 + details.count();
        let lines: Vec<String> = after[range].iter().map(|line| (*line).clone()).collect();
        for line in &lines {
            if let Some(at) = self.rest.iter().rposition(|other| other == line) {
                self.rest.remove(at);
                self.shown -= usize::from(at < self.shown);
            }
        }
        lines
    }

    /// Lines after the last report that have not been returned before. They are kept, because they may begin a report.
    pub(crate) fn show_rest(&mut self, driver: &dyn Driver) -> Result<Vec<String>, String> {
        self.read(driver)?;
        Ok(self.show_read())
    }

    fn show_read(&mut self) -> Vec<String> {
        let lines = self.rest.iter().skip(self.shown).cloned().collect();
        self.shown = self.rest.len();
        lines
    }

    /// The most recent lines, taken or not, oldest first.
    #[cfg(feature = "reports")]
    pub(crate) fn last(&mut self, driver: &dyn Driver) -> Result<Vec<String>, String> {
        self.read(driver)?;
        Ok(self.history.iter().cloned().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn book(lines: &[&str]) -> LogBook {
        let mut book = LogBook::default();
        book.add(lines.iter().map(|line| (*line).to_owned()).collect());
        book
    }

    #[test]
    fn only_the_last_lines_are_kept() {
        let mut book = LogBook::default();
        for start in [0, 1500] {
            book.add((start..start + 1500).map(|line| line.to_string()).collect());
        }
        assert_eq!((book.history.len(), book.rest.len()), (KEPT, KEPT));
        assert_eq!((book.history[0].as_str(), book.rest[0].as_str()), ("1000", "1000"));
    }

    #[test]
    fn each_queue_takes_the_report_about_its_own_channels() {
        let mut book = book(&[
            "first",
            "x [ERR]  error notifier set to 31 for ch 511 owned by a",
            "x [ERR]  error notifier set to 31 for ch 510 owned by a",
            "second",
            "x [ERR]  error notifier set to 13 for ch 7 owned by b",
            "third",
        ]);
        assert_eq!(book.take_read(&[3, 4]), None);
        let report = book.take_read(&[6, 7]).unwrap();
        assert_eq!((report.len(), report[0].as_str()), (2, "second"));
        let report = book.take_read(&[511, 510]).unwrap();
        assert_eq!((report.len(), report[0].as_str()), (3, "first"));
        assert_eq!(book.take_read(&[511, 510]), None, "it is taken");
        assert_eq!(book.rest, ["third"]);
    }

    #[test]
    fn a_reset_in_between_takes_nothing() {
        let mut book = book(&[
            "sm err state",
            "x [INFO]  error notifier set to 43 for ch 9 owned by a",
            "set gr exception notifier",
            "x [ERR]  error notifier set to 13 for ch 5 owned by a",
            "x [INFO]  error notifier set to 43 for ch 8 owned by a",
            "x [ERR]  error notifier set to 13 for ch 4 owned by a",
        ]);
        let report = book.take_read(&[5]).unwrap();
        assert_eq!(report[..2], ["sm err state", "set gr exception notifier"]);
        for channel in [9, 8, 4] {
            assert_eq!(book.take_read(&[channel]).unwrap().len(), 1);
        }
    }

    #[test]
    fn lines_that_were_shown_still_begin_a_report() {
        let mut book = book(&["a"]);
        assert_eq!((book.show_read(), book.show_read()), (vec!["a".to_owned()], vec![]));
        book.add(vec!["b".to_owned()]);
        assert_eq!(book.show_read(), ["b"]);
        book.add(vec!["error notifier set to 13 for ch 5 owned by a".to_owned(), "c".to_owned()]);
        assert_eq!(book.show_read(), ["c"]);
        assert_eq!(book.take_read(&[5]).unwrap()[..2], ["a", "b"]);
    }

    #[test]
    fn the_newest_report_counts() {
        let mut book = book(&[
            "old",
            "error notifier set to 31 for ch 5 owned by a",
            "new",
            "error notifier set to 13 for ch 5 owned by a",
        ]);
        assert_eq!(book.take_read(&[5]).unwrap()[0], "new");
        // The line about a report's second channel may be read later.
        book.add(vec!["error notifier set to 13 for ch 4 owned by a".to_owned()]);
        assert_eq!((book.take_read(&[5]), book.take_read(&[4]).unwrap().len()), (None, 1));
    }

    #[test]
    fn late_lines_about_an_access_belong_to_its_channel() {
        let access = |channel| {
            format!(
                "nvgpu: 17000000.gpu x:1 [ERR]  [MMU FAULT] mmu engine id:  64, ch id:  {channel}, fault addr: \
                 0xfb12345000, fault addr aperture: 0, fault type: invalid pte, access type: virt write, "
            )
        };
        let page = "nvgpu: 17000000.gpu x:1 [ERR]  page fault error: err_type = 0x2, fault_status = 0x200";
        let client = "nvgpu: 17000000.gpu x:1 [ERR]  [MMU FAULT] protected mode: 0, client type: gpc, client id:  t1 \
                      0, gpc id if client type is gpc: 0, ";
        let (early, late) = (access(5), access(5));
        let mut book = book(&[
            early.as_str(),
            "x [ERR]  error notifier set to 13 for ch 5 owned by a",
            "x [ERR]  error notifier set to 13 for ch 7 owned by b",
        ]);
        assert_eq!(book.take_late_read(&[5]), Vec::<String>::new(), "it precedes the end");
        book.add(["dump", page, &access(7), client, page, &late, client, "reset"].map(str::to_owned).into());
        assert_eq!(book.take_late_read(&[4, 5]), [page, &late, client]);
        assert_eq!(book.rest, ["dump", page, &access(7), client, "reset"].map(str::to_owned));
        assert_eq!(book.take_late_read(&[7]).len(), 3);
        assert_eq!(book.take_late_read(&[9]), Vec::<String>::new());
    }

    #[test]
    fn reports_of_other_programs_do_not_pile_up() {
        let line = |channel| format!("error notifier set to 31 for ch {channel} owned by other");
        let mut book = LogBook::default();
        for channel in 0..1000 {
            book.add(vec!["a fault".to_owned(), line(channel)]);
        }
        assert_eq!((book.reports.len(), book.rest.len()), (REPORTS, 0));
    }
}
