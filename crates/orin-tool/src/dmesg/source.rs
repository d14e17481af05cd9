//! Sources of the log: `/dev/kmsg`, the program `dmesg`, or a file.

use std::io::Read;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use cubin::FileKind;
use gpu_log::{Record, Stamp};
use kernel_door::{Door, Errno, LinuxDoor};
use nvgpu_channel::KmsgReader;
use orin_cli::UsageError;

use crate::files;

/// A log to read.
pub(super) enum Source {
    /// `/dev/kmsg`.
    Kmsg(KmsgReader),
    /// Output of `dmesg`, with the reason for using it and the last message read.
    Command { note: String, last: Option<Record> },
    /// A saved log, with a note if it does not look like one. It has not been read yet.
    Saved { name: String, records: Vec<Record>, note: Option<String> },
}

impl Source {
    /// Opens `file`, or the machine's log from the first accessible source.
    ///
    /// # Errors
    ///
    /// Returns a [`UsageError`] if the file cannot be read or no source is accessible.
    pub(super) fn open(file: Option<&Path>) -> Result<Self> {
        if let Some(path) = file {
            return saved(path);
        }
        let door: Arc<dyn Door> = Arc::new(LinuxDoor);
        match KmsgReader::open(&door) {
            Ok(reader) => Ok(Self::Kmsg(reader)),
            Err(errno) => {
                command_output().map_err(|reason| neither(errno, &reason))?;
                let note = format!("/dev/kmsg cannot be read ({errno}); this is what `dmesg` prints");
                Ok(Self::Command { note, last: None })
            }
        }
    }

    /// A note for the user about the choice of the source.
    pub(super) fn note(&self) -> Option<&str> {
        match self {
            Self::Command { note, .. } => Some(note),
            Self::Saved { note, .. } => note.as_deref(),
            Self::Kmsg(_) => None,
        }
    }

    /// The source's name.
    pub(super) fn name(&self) -> &str {
        match self {
            Self::Kmsg(_) => "/dev/kmsg",
            Self::Command { .. } => "dmesg",
            Self::Saved { name, .. } => name,
        }
    }

    /// Whether this is the log of the running kernel.
    pub(super) fn is_live(&self) -> bool {
        !matches!(self, Self::Saved { .. })
    }

    /// Returns the messages since the last call.
    pub(super) fn read_new(&mut self) -> Result<Vec<Record>> {
        match self {
            Self::Kmsg(reader) => Ok(reader.read_new().context("reading /dev/kmsg")?.into()),
            Self::Command { last, .. } => {
                let all = command_output().map_err(|reason| anyhow::anyhow!("running dmesg: {reason}"))?;
                let new = after(last.as_ref(), all);
                if let Some(record) = new.last() {
                    *last = Some(record.clone());
                }
                Ok(new)
            }
            Self::Saved { records, .. } => Ok(std::mem::take(records)),
        }
    }

    /// Waits up to `timeout` for messages and returns whether there may be some.
    pub(super) fn wait(&self, timeout: Duration) -> Result<bool> {
        match self {
            Self::Kmsg(reader) => reader.wait(timeout).context("waiting for /dev/kmsg"),
            _ => {
                std::thread::sleep(timeout);
                Ok(false)
            }
        }
    }
}

fn saved(path: &Path) -> Result<Source> {
    let mut bytes = Vec::new();
    let (name, result) = if path == Path::new("-") {
        ("standard input".to_owned(), std::io::stdin().lock().read_to_end(&mut bytes).map(drop))
    } else {
        let name = path.display().to_string();
        (name, std::fs::read(path).map(|content| bytes = content))
    };
    result.map_err(|error| UsageError(format!("reading {name}: {error}")))?;
    let kind = FileKind::of(&bytes);
    let records = Record::parse_log(&String::from_utf8_lossy(&bytes));
    // The log of a machine that has crashed may contain any bytes.
    let is_log = matches!(kind, FileKind::Empty | FileKind::Text | FileKind::Binary)
        && (kind != FileKind::Binary || records.iter().any(|record| record.stamp != Stamp::default()));
    if !is_log {
        return Err(files::not(path, kind, "a kernel log").into());
    }
    let is_line = |record: &Record| record.stamp != Stamp::None || gpu_log::is_about_the_gpu(&record.text);
    let note = (!records.iter().any(is_line))
        .then(|| format!("{name} has no line with a time stamp and none about the GPU; is it a kernel log?"));
    Ok(Source::Saved { records, name, note })
}

/// Output of `dmesg`, with priorities.
fn command_output() -> Result<Vec<Record>, String> {
    let output = Command::new("dmesg").arg("-r").output().map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(String::from_utf8_lossy(&output.stderr).trim().to_owned());
    }
    Ok(Record::parse_log(&String::from_utf8_lossy(&output.stdout)))
}

/// Returns the records after the last one equal to `last`, or all records if none is equal.
fn after(last: Option<&Record>, mut all: Vec<Record>) -> Vec<Record> {
    let seen = last.and_then(|last| all.iter().rposition(|record| record == last));
    all.drain(..seen.map_or(0, |at| at + 1));
    all
}

fn neither(errno: Errno, reason: &str) -> UsageError {
    UsageError(format!(
        "the kernel log cannot be read: /dev/kmsg: {errno}; dmesg: {reason}. Reading it needs CAP_SYSLOG \
         unless kernel.dmesg_restrict is 0: run as root, or let root set `sysctl kernel.dmesg_restrict=0`; or save a \
         log elsewhere and pass it with --file"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_new_lines_of_dmesg_are_taken() {
        let record = |text: &str| Record::from_line(text);
        let all = || vec![record("[    1.0] a"), record("[    2.0] a"), record("[    3.0] b")];
        assert_eq!(after(None, all()).len(), 3);
        assert_eq!(after(Some(&record("[    2.0] a")), all()), [record("[    3.0] b")]);
        assert!(after(Some(&record("[    3.0] b")), all()).is_empty());
        assert_eq!(after(Some(&record("overwritten since")), all()).len(), 3);
    }

    #[test]
    fn a_file_that_is_no_log_is_named() {
        let folder = tempfile::tempdir().unwrap();
        let open = |content: &[u8]| {
            let path = folder.path().join("x.bin");
            std::fs::write(&path, content).unwrap();
            Source::open(Some(&path))
        };
        let error = open(b"\x7fELF\0\0").err().unwrap();
        assert!(error.is::<UsageError>() && error.to_string().contains("not a kernel log"), "{error}");
        assert!(
            open(b"int main;\n").unwrap().note().is_some_and(|note| note.contains("is it a kernel log?"))
        );
        for log in ["[    1.000000] usb 1-2: new device\n", "nvmap: a line\n"] {
            assert_eq!(open(log.as_bytes()).unwrap().note(), None);
        }
    }

    #[test]
    fn no_permission_names_the_cure() {
        let text = neither(Errno::PERM, "Operation not permitted").to_string();
        assert!(text.contains("dmesg_restrict") && text.contains("CAP_SYSLOG"), "{text}");
    }

    #[test]
    fn a_file_that_is_not_there_is_a_wrong_request() {
        let error = Source::open(Some(Path::new("/nonexistent/log"))).err().unwrap();
        assert!(error.is::<UsageError>() && error.to_string().contains("/nonexistent/log"), "{error}");
    }
}
