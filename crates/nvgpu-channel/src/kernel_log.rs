//! What the driver says in the kernel log.
//!
//! The error notifier gives a number; the log gives the address, the access and the program counter.
//! `/dev/kmsg` yields one record per read, `priority,sequence,time,flags;text` with continuation
//! lines that start with a space (Linux `Documentation/ABI/testing/dev-kmsg`).

use std::sync::Arc;

use nvgpu_sys::door::OpenFlags;
use nvgpu_sys::{Door, DoorFd, Errno, paths};

/// Longest record: the kernel's own limit is below this.
const RECORD_BYTES: usize = 8192;
/// Records read in one go, so that a flood of messages cannot hold the caller up.
const RECORDS_PER_DRAIN: usize = 4096;
/// Words by which a record is the GPU driver's: its own prefix, its register dumps, its functions
/// in warnings, its allocator; NVIDIA's desktop driver; the last one is that of a modelled GPU, which explains
/// itself.
const MARKS: [&str; 8] = ["nvgpu", "__ga10b__", "gk20a", "nvmap", "tu104_gr", "NvMap", "NVRM", "orin-sim"];

/// A reader of new kernel-log records about the GPU.
///
/// Reading the log needs a right that many users lack (`kernel.dmesg_restrict`). That is no error:
/// the reader then yields nothing and says why in [`KernelLog::unavailable`].
#[derive(Debug)]
pub struct KernelLog {
    source: Result<DoorFd, String>,
}

impl KernelLog {
    /// Opens the log behind its last record.
    pub fn open(door: &Arc<dyn Door>) -> Self {
        let flags = OpenFlags::NON_BLOCKING | OpenFlags::CLOSE_ON_EXEC;
        let source = DoorFd::open(door, paths::KMSG, flags)
            .and_then(|fd| door.seek_end(fd.raw()).map(|()| fd))
            .map_err(reason);
        Self { source }
    }

    /// Why nothing can be read, if that is so.
    pub fn unavailable(&self) -> Option<&str> {
        self.source.as_ref().err().map(String::as_str)
    }

    /// The text of the records about the GPU since the last call, oldest first; at most 4096 records
    /// of the log are looked at per call.
    pub fn drain(&mut self) -> Vec<String> {
        let mut lines = Vec::new();
        let Ok(fd) = &self.source else {
            return lines;
        };
        let mut record = [0; RECORD_BYTES];
        for _ in 0..RECORDS_PER_DRAIN {
            match fd.door().read(fd.raw(), &mut record) {
                Ok(0) => break,
                Ok(len) => lines.extend(text(&record[..len]).filter(|text| is_about_the_gpu(text))),
                // Records were overwritten before they were read; the next read goes on after them.
                Err(Errno::PIPE) => {}
                // Nothing more for now.
                Err(Errno::AGAIN) => break,
                Err(errno) => {
                    self.source = Err(reason(errno));
                    break;
                }
            }
        }
        lines
    }
}

/// Why the log cannot be read, and what to do.
fn reason(errno: Errno) -> String {
    let cure = match errno {
        Errno::ACCESS | Errno::PERM => "; run as root or set kernel.dmesg_restrict=0",
        _ => "",
    };
    format!("cannot read /dev/kmsg: {errno}{cure}")
}

/// The message of one record, without the prefix and the continuation lines.
fn text(record: &[u8]) -> impl Iterator<Item = String> + use<> {
    let record = String::from_utf8_lossy(record);
    let message = record.split_once(';').and_then(|(_, text)| text.lines().next());
    message.map(|line| line.trim_end().to_owned()).into_iter()
}

fn is_about_the_gpu(text: &str) -> bool {
    MARKS.iter().any(|mark| text.contains(mark))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_stripped_to_its_message() {
        let record = b"3,1234,5678901,-;nvgpu: 17000000.gpu [ERR]  fault\n SUBSYSTEM=platform\n";
        assert_eq!(text(record).collect::<Vec<_>>(), ["nvgpu: 17000000.gpu [ERR]  fault"]);
        assert_eq!(text(b"not a record").count(), 0);
    }

    #[test]
    fn other_drivers_records_are_left_out() {
        assert!(is_about_the_gpu("nvgpu: 17000000.gpu  gv11b_fb_mmu_fault_info_dump:284 [ERR]  fault"));
        assert!(is_about_the_gpu("__ga10b__ Channel Status - chip ga10b"));
        assert!(!is_about_the_gpu("usb 1-2: new high-speed USB device"));
    }
}
