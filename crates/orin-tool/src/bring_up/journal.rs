//! The journal of a run: one line per stage and step, on the disk before the step begins, so that a machine that
//! freezes names its stage on the next run.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

use parking_lot::Mutex;

/// Name of the file in the folder of a run.
pub(super) const NAME: &str = "journal.txt";

/// An open journal.
#[derive(Debug)]
pub(super) struct Journal {
    file: Mutex<File>,
}

impl Journal {
    /// Opens the journal in `folder`, at its end; creates it if there is none.
    pub(super) fn open(folder: &Path) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(folder.join(NAME))?;
        // The folder's entry has to reach the disk, too.
        File::open(folder)?.sync_all()?;
        Ok(Self { file: Mutex::new(file) })
    }

    /// Locks the journal against another run in the same folder; returns whether that worked.
    pub(super) fn lock(&self) -> bool {
        let file = self.file.lock();
        rustix::fs::flock(&*file, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_ok()
    }

    /// Writes one line and waits until it is on the disk.
    pub(super) fn line(&self, text: &str) -> io::Result<()> {
        let mut file = self.file.lock();
        // One write, so that a line of another process cannot come between its parts.
        file.write_all(format!("{}\n", text.replace('\n', " ")).as_bytes())?;
        file.sync_data()
    }
}

/// How a journal ends.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// With its last line.
    Complete,
    /// Within a stage: the stage, and its last step.
    Within(u8, Option<String>),
    /// Between two stages.
    Between,
}

/// Reads how the run of a journal ended.
pub(super) fn ending(text: &str) -> Ending {
    let mut open = None;
    for line in text.lines() {
        if line == "end" {
            return Ending::Complete;
        }
        let Some((number, rest)) = line.strip_prefix("stage ").and_then(|rest| rest.split_once(' ')) else {
            continue;
        };
        let Ok(number) = number.parse() else { continue };
        match (rest, rest.strip_prefix("step: ")) {
            ("starting", _) => open = Some((number, None)),
            (_, Some(step)) => open = Some((number, Some(step.to_owned()))),
            _ => open = None,
        }
    }
    open.map_or(Ending::Between, |(stage, step)| Ending::Within(stage, step))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interrupted_journal_names_stage_and_step() {
        let whole = "device sim\nstage 0 starting\nstage 0 passed\nstage 1 starting\nstage 1 failed\nend\n";
        assert_eq!(ending(whole), Ending::Complete);
        assert_eq!(ending("stage 0 starting\nstage 0 passed\n"), Ending::Between);
        assert_eq!(ending("stage 0 starting\nstage 0 passed\nstage 7 starting\n"), Ending::Within(7, None));
        let step = "stage 7 starting\nstage 7 step: launching with PCAS action 3\n";
        assert_eq!(ending(step), Ending::Within(7, Some("launching with PCAS action 3".to_owned())));
        // The last line may be cut off, or the file full of zeros after a loss of power.
        assert_eq!(ending("stage 7 starting\nstage 7 st"), Ending::Between);
        assert_eq!(ending("\0\0\0"), Ending::Between);
    }

    #[test]
    fn lines_are_appended_and_a_second_run_is_locked_out() {
        let folder = tempfile::tempdir().unwrap();
        let journal = Journal::open(folder.path()).unwrap();
        assert!(journal.lock());
        journal.line("stage 0 starting").unwrap();
        let other = Journal::open(folder.path()).unwrap();
        assert!(!other.lock(), "another run holds the folder");
        other.line("stage 0 step: a\nb").unwrap();
        let text = std::fs::read_to_string(folder.path().join(NAME)).unwrap();
        assert_eq!(text, "stage 0 starting\nstage 0 step: a b\n");
    }
}
