//! The kernel log.
//!
//! Contains the lines that nvgpu and nvmap print, in their formats (`os/linux/log.c`; nvmap's `pr_fmt`). They are
//! readable in the format of `/dev/kmsg`: one record per read, `priority,sequence,microseconds,-;text\n`. Lines of the
//! model itself begin with `orin-sim: `. Source line numbers differ between releases, so every line of nvgpu carries 0.

use std::collections::VecDeque;
use std::sync::Arc;

use gpu_log::{HangLine, Level, Message, NoteLine};
use parking_lot::Mutex;
use rustix::io::Errno;

use super::process::task::Task;
use super::pulse::Pulse;

/// Number of records kept. Older ones are lost, as in the kernel's ring.
const CAPACITY: usize = 16_384;

/// Name of the GPU's platform device on Orin.
pub(super) const DEVICE: &str = "17000000.gpu";

#[derive(Debug)]
struct Record {
    level: Level,
    /// Time since the boot of the host, used as the board's.
    microseconds: u64,
    text: String,
}

#[derive(Debug, Default)]
struct Ring {
    /// Sequence number of the oldest record kept.
    first: u64,
    records: VecDeque<Record>,
}

impl Ring {
    fn next(&self) -> u64 {
        self.first + self.records.len() as u64
    }
}

/// The log of one software kernel.
#[derive(Debug)]
pub(super) struct Log {
    ring: Mutex<Ring>,
    /// Signalled on each record.
    pub(super) pulse: Arc<Pulse>,
}

impl Log {
    pub(super) fn new() -> Self {
        Self { ring: Mutex::default(), pulse: Arc::default() }
    }

    /// Adds a line of nvgpu, as its function `function` prints it.
    pub(super) fn nvgpu(&self, level: Level, function: &str, line: impl Into<Message>) {
        self.push(level, gpu_log::nvgpu_line(level, DEVICE, function, &line.into()));
    }

    /// Adds an error line of nvgpu.
    pub(super) fn error(&self, function: &str, line: impl Into<Message>) {
        self.nvgpu(Level::Error, function, line);
    }

    /// Adds a warning line of nvgpu.
    pub(super) fn warning(&self, function: &str, line: impl Into<Message>) {
        self.nvgpu(Level::Warning, function, line);
    }

    /// Adds a line of nvmap, which starts with the function's name.
    pub(super) fn nvmap(&self, level: Level, function: &str, line: impl Into<Message>) {
        self.push(level, gpu_log::nvmap_line(function, &line.into()));
    }

    /// Adds the lines of a kernel WARN with a backtrace.
    pub(super) fn kernel_warning(
        &self,
        task: &Task<'_>,
        file: &str,
        function: &str,
        message: Option<Message>,
    ) {
        self.push(Level::Warning, "------------[ cut here ]------------".to_owned());
        if let Some(message) = message {
            self.push(Level::Warning, message.to_string());
        }
        let pid = task.host_id();
        let module = if function.starts_with("nvmap") { "nvmap" } else { "nvgpu" };
        let place = format!("{function}+0x0/0x0 [{module}]");
        self.push(Level::Warning, format!("WARNING: CPU: 0 PID: {pid} at {file} {place}"));
        self.push(Level::Warning, "Call trace:".to_owned());
        self.push(Level::Warning, format!(" {place}"));
        self.push(Level::Warning, "---[ end trace 0000000000000000 ]---".to_owned());
    }

    /// Adds an error line that the driver prints for its device.
    pub(super) fn device(&self, function: &str, line: impl Into<Message>) {
        self.push(Level::Error, format!("gk20a {DEVICE}: {function}: {}", line.into()));
    }

    /// Adds a line of the debug dump.
    pub(super) fn dump(&self, line: NoteLine) {
        self.push(Level::Error, line.to_string());
    }

    /// Adds the lines with which the driver takes the GPU out of service.
    pub(super) fn quiesce(&self) {
        self.error("nvgpu_sw_quiesce_with_trace", HangLine::QuiesceRequested {});
        self.error("nvgpu_sw_quiesce_thread", HangLine::QuiesceRunning);
    }

    /// Adds a line of the model itself.
    pub(super) fn model(&self, line: impl Into<Message>) {
        self.push(Level::Warning, line.into().to_string());
    }

    /// Adds a line of the model about an error that a board does not report.
    pub(super) fn model_error(&self, line: impl Into<Message>) {
        self.push(Level::Error, line.into().to_string());
    }

    fn push(&self, level: Level, text: String) {
        tracing::debug!(target: "orin_sim::kmsg", "{text}");
        let mut ring = self.ring.lock();
        // Under the lock, so that the records are in time order.
        let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
        // CAST: the monotonic clock is never negative, and below 2^64 microseconds.
        let microseconds = now.tv_sec as u64 * 1_000_000 + now.tv_nsec as u64 / 1000;
        if ring.records.len() == CAPACITY {
            ring.records.pop_front();
            ring.first += 1;
        }
        ring.records.push_back(Record { level, microseconds, text });
        drop(ring);
        self.pulse.beat();
    }

    /// The texts of the records kept.
    pub(super) fn texts(&self) -> Vec<String> {
        let ring = self.ring.lock();
        ring.records.iter().map(|record| record.text.clone()).collect()
    }

    /// Sequence number of the oldest record kept.
    pub(super) fn first(&self) -> u64 {
        self.ring.lock().first
    }

    /// Sequence number of the next record.
    pub(super) fn next(&self) -> u64 {
        self.ring.lock().next()
    }

    /// Reads the record at `cursor` in the format of `/dev/kmsg` and advances the cursor.
    ///
    /// # Errors
    ///
    /// EAGAIN at the end, EPIPE once if the record is lost (the cursor then points to the oldest record kept), EINVAL
    /// if `buffer` is too small.
    pub(super) fn read(&self, cursor: &mut u64, buffer: &mut [u8]) -> Result<usize, Errno> {
        let ring = self.ring.lock();
        if *cursor < ring.first {
            *cursor = ring.first;
            return Err(Errno::PIPE);
        }
        let at = usize::try_from(*cursor - ring.first).map_err(|_| Errno::INVAL)?;
        let record = ring.records.get(at).ok_or(Errno::AGAIN)?;
        // CAST: the enum's values are the priorities; the facility is the kernel's, 0.
        let line = format!(
            "{},{},{},-;{}\n",
            record.level as u8,
            *cursor,
            record.microseconds,
            escaped(&record.text)
        );
        let target = buffer.get_mut(..line.len()).ok_or(Errno::INVAL)?;
        target.copy_from_slice(line.as_bytes());
        *cursor += 1;
        Ok(line.len())
    }
}

/// Escapes unprintable bytes as `\xNN`, like `/dev/kmsg`.
fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if (b' '..0x7f).contains(&byte) && byte != b'\\' {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("\\x{byte:02x}"));
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use gpu_log::{FaultLine, MemoryLine};

    use super::*;

    #[test]
    fn lines_have_the_shape_of_nvgpu() {
        let log = Log::new();
        log.error("nvgpu_rc_mmu_fault", FaultLine::MmuTsg { tsg: 7 });
        let text =
            "nvgpu: 17000000.gpu                nvgpu_rc_mmu_fault:0    [ERR]  TSG 7 generated a mmu fault";
        assert_eq!(log.texts(), [text]);
        log.warning("f", MemoryLine::DeprecatedFlag { flag: "x".repeat(500) });
        let (_, message) = log.texts()[1].split_once("[WRN]  ").map(|(a, b)| (a.len(), b.len())).unwrap();
        assert_eq!(message, gpu_log::MESSAGE_BYTES);
    }

    #[test]
    fn records_are_read_one_by_one() {
        let log = Log::new();
        log.model(FaultLine::Deadlock { text: "first\nline".to_owned() });
        log.nvmap(Level::Information, "nvmap_ioctl", MemoryLine::ListMissing);
        let (mut cursor, mut buffer) = (0, [0; 256]);
        let mut read = || {
            let len = log.read(&mut cursor, &mut buffer)?;
            Ok::<_, Errno>(String::from_utf8(buffer[..len].to_vec()).unwrap())
        };
        let first = read().unwrap();
        assert!(
            first.starts_with("4,0,")
                && first.ends_with(",-;orin-sim: deadlock unless the CPU helps: first\\x0aline\n"),
            "{first}"
        );
        let second = read().unwrap();
        assert!(
            second.starts_with("6,1,") && second.ends_with(",-;nvmap_ioctl: pointers are invalid\n"),
            "{second}"
        );
        assert_eq!(read(), Err(Errno::AGAIN));
        let mut cursor = 0;
        assert_eq!(log.read(&mut cursor, &mut [0; 4]), Err(Errno::INVAL));
        assert_eq!(cursor, 0);
    }

    #[test]
    fn a_lost_record_is_reported_once() {
        let log = Log::new();
        for i in 0..CAPACITY + 5 {
            log.model(FaultLine::Deadlock { text: i.to_string() });
        }
        let (mut cursor, mut buffer) = (2, [0; 256]);
        assert_eq!(log.read(&mut cursor, &mut buffer), Err(Errno::PIPE));
        assert_eq!(cursor, 5);
        assert!(log.read(&mut cursor, &mut buffer).is_ok());
    }
}
