//! A door that records each system call with its words, errno and time, and resets channels before a stage is ended.

use core::any::Any;
use core::ffi::{CStr, c_void};
use core::ptr::NonNull;
use core::time::Duration;
use std::collections::BTreeSet;
use std::os::fd::RawFd;
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use kernel_door::{Door, Errno, Events, MapRequest, OpenFlags};
use nvgpu_sys::{channel, ctrl};
use parking_lot::Mutex;
use serde_json::{Value, json};

/// Number of calls kept from the start, and again from the end, of a stage.
const KEPT: usize = 2000;
/// Number of 32-bit words of an argument that are kept.
const WORDS: usize = 96;

/// One call.
#[derive(Clone, Debug)]
struct Call {
    at: Duration,
    name: String,
    fd: Option<RawFd>,
    request: Option<u32>,
    before: Vec<u32>,
    after: Vec<u32>,
    /// Duration and result; `None` while the call runs.
    end: Option<(Duration, Result<i64, Errno>)>,
}

/// The calls of a stage.
#[derive(Debug, Default)]
struct Calls {
    first: Vec<Call>,
    /// A ring of the newest calls, once `first` is full.
    last: std::collections::VecDeque<Call>,
    /// Number of all calls so far.
    count: usize,
    /// Descriptors of open channels.
    channels: BTreeSet<RawFd>,
}

/// A door in front of `behind`.
#[derive(Debug)]
pub(super) struct TraceDoor {
    behind: Arc<dyn Door>,
    start: Instant,
    calls: Mutex<Calls>,
    /// FORCE_RESET of the driver is not passed on.
    hold_resets: AtomicBool,
}

impl TraceDoor {
    pub(super) fn new(behind: Arc<dyn Door>) -> Self {
        Self { behind, start: Instant::now(), calls: Mutex::default(), hold_resets: AtomicBool::new(false) }
    }

    /// Holds back FORCE_RESET of the driver above from now on, or passes it on again: to see what the kernel does with
    /// a channel that is closed while its work runs.
    pub(super) fn hold_resets(&self, hold: bool) {
        self.hold_resets.store(hold, Ordering::Relaxed);
    }

    /// Sends FORCE_RESET to every open channel of nvgpu, and returns their number.
    pub(super) fn reset_channels(&self) -> usize {
        let channels = self.calls.lock().channels.clone();
        for fd in &channels {
            // SAFETY: the request takes no argument.
            let result = unsafe { self.behind.ioctl(*fd, channel::code::FORCE_RESET, ptr::null_mut()) };
            let number =
                self.begin(channel::FORCE_RESET.name(), Some(*fd), Some(channel::code::FORCE_RESET), &[]);
            self.end(number, &[], result.map(i64::from));
        }
        channels.len()
    }

    /// Starts the record of a call and returns its number.
    fn begin(&self, name: &str, fd: Option<RawFd>, request: Option<u32>, before: &[u32]) -> usize {
        let at = self.start.elapsed();
        let call = Call {
            at,
            name: name.to_owned(),
            fd,
            request,
            before: before.to_vec(),
            after: Vec::new(),
            end: None,
        };
        let mut calls = self.calls.lock();
        let number = calls.count;
        calls.count += 1;
        if calls.first.len() < KEPT {
            calls.first.push(call);
        } else {
            if calls.last.len() == KEPT {
                calls.last.pop_front();
            }
            calls.last.push_back(call);
        }
        number
    }

    /// Completes a record.
    fn end(&self, number: usize, after: &[u32], result: Result<i64, Errno>) {
        let now = self.start.elapsed();
        let mut calls = self.calls.lock();
        let oldest = calls.count - calls.last.len();
        let call = match number.checked_sub(oldest) {
            Some(index) if number >= KEPT => calls.last.get_mut(index),
            _ => calls.first.get_mut(number),
        };
        // A call that ends late may have left the ring.
        if let Some(call) = call {
            call.end = Some((now.saturating_sub(call.at), result));
            if call.before != after {
                call.after = after.to_vec();
            }
        }
    }

    /// Records a call without an argument struct.
    fn plain<T>(
        &self,
        name: &str,
        fd: Option<RawFd>,
        call: impl FnOnce() -> Result<T, Errno>,
        value: impl FnOnce(&T) -> i64,
    ) -> Result<T, Errno> {
        let number = self.begin(name, fd, None, &[]);
        let result = call();
        self.end(number, &[], result.as_ref().map(value).map_err(|errno| *errno));
        result
    }

    /// The calls in order, as JSON objects: microseconds since the start, name, descriptor, words before and after,
    /// microseconds taken, result or errno.
    pub(super) fn log(&self) -> Vec<Value> {
        let calls = self.calls.lock();
        let skipped = calls.count - calls.first.len() - calls.last.len();
        let gap = (skipped > 0).then(|| json!({ "skipped": skipped }));
        calls.first.iter().map(as_json).chain(gap).chain(calls.last.iter().map(as_json)).collect()
    }
}

fn as_json(call: &Call) -> Value {
    let words = |words: &[u32]| -> Vec<String> { words.iter().map(|word| format!("{word:#x}")).collect() };
    let mut object = json!({ "at_us": micros(call.at), "call": call.name });
    if let Some(fd) = call.fd {
        object["fd"] = fd.into();
    }
    if let Some(request) = call.request {
        object["request"] = format!("{request:#010x}").into();
    }
    if !call.before.is_empty() {
        object["in"] = words(&call.before).into();
    }
    if !call.after.is_empty() {
        object["out"] = words(&call.after).into();
    }
    match call.end {
        None => object["end"] = "did not return".into(),
        Some((took, result)) => {
            object["took_us"] = micros(took).into();
            match result {
                Ok(value) => object["result"] = value.into(),
                Err(errno) => object["errno"] = errno.raw_os_error().into(),
            }
        }
    }
    object
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Copies the words of a request's argument.
///
/// # Safety
///
/// `argument` is valid for reads of the size encoded in `request`.
unsafe fn words(request: u32, argument: *const c_void) -> Vec<u32> {
    // The size stands in bits 29:16; it is 0 for a request that takes a number.
    let count = ((request >> 16 & 0x3fff) as usize / 4).min(WORDS);
    // SAFETY: `count` words lie within the encoded size. The argument may be misaligned for words.
    (0..count).map(|index| unsafe { argument.cast::<u32>().add(index).read_unaligned() }).collect()
}

// SAFETY: the door behind answers.
unsafe impl Door for TraceDoor {
    fn name(&self) -> &'static str {
        self.behind.name()
    }

    fn software(&self) -> Option<&(dyn Any + Send + Sync)> {
        self.behind.software()
    }

    fn open(&self, path: &CStr, flags: OpenFlags) -> Result<RawFd, Errno> {
        let name = format!("open {}", path.to_string_lossy());
        self.plain(&name, None, || self.behind.open(path, flags), |fd| i64::from(*fd))
    }

    unsafe fn ioctl(&self, fd: RawFd, request: u32, argument: *mut c_void) -> Result<i32, Errno> {
        if request == channel::code::FORCE_RESET && self.hold_resets.load(Ordering::Relaxed) {
            return self.plain("FORCE_RESET held back", Some(fd), || Ok(0), |_| 0);
        }
        // SAFETY: by the contract of `ioctl`, the argument is valid for the encoded size.
        let before = unsafe { words(request, argument) };
        let name = nvgpu_sys::request_name(request).unwrap_or("ioctl");
        let number = self.begin(name, Some(fd), Some(request), &before);
        // SAFETY: the caller's contract is the same.
        let result = unsafe { self.behind.ioctl(fd, request, argument) };
        // SAFETY: as above.
        let after = unsafe { words(request, argument) };
        self.end(number, &after, result.map(i64::from));
        if request == ctrl::code::OPEN_CHANNEL
            && result.is_ok()
            && let Some(channel) = after.first()
        {
            self.calls.lock().channels.insert(channel.cast_signed());
        }
        result
    }

    unsafe fn mmap(&self, request: &MapRequest) -> Result<NonNull<u8>, Errno> {
        let name = format!("mmap {} bytes at {:#x}", request.len, request.offset);
        // SAFETY: the caller's contract is the same.
        self.plain(&name, Some(request.fd), || unsafe { self.behind.mmap(request) }, |_| 0)
    }

    unsafe fn munmap(&self, pointer: NonNull<u8>, len: usize) -> Result<(), Errno> {
        let name = format!("munmap {len} bytes");
        // SAFETY: the caller's contract is the same.
        self.plain(&name, None, || unsafe { self.behind.munmap(pointer, len) }, |()| 0)
    }

    unsafe fn read(&self, fd: RawFd, buffer: &mut [u8]) -> Result<usize, Errno> {
        // SAFETY: the caller's contract is the same. Not recorded: the kernel log is read in a loop.
        unsafe { self.behind.read(fd, buffer) }
    }

    unsafe fn seek_end(&self, fd: RawFd) -> Result<u64, Errno> {
        // SAFETY: the caller's contract is the same.
        unsafe { self.behind.seek_end(fd) }
    }

    unsafe fn poll(&self, fd: RawFd, wanted: Events, timeout: Duration) -> Result<Events, Errno> {
        // SAFETY: the caller's contract is the same.
        let poll = || unsafe { self.behind.poll(fd, wanted, timeout) };
        self.plain("poll", Some(fd), poll, |happened| i64::from(!happened.is_empty()))
    }

    unsafe fn close(&self, fd: RawFd) -> Result<(), Errno> {
        self.calls.lock().channels.remove(&fd);
        // SAFETY: the caller's contract is the same.
        self.plain("close", Some(fd), || unsafe { self.behind.close(fd) }, |()| 0)
    }
}

#[cfg(test)]
mod tests {
    use nvgpu_channel::Gpu;
    use orin_sim::{Config, SoftwareOrin};

    use super::*;

    #[test]
    fn requests_have_words_and_channels_are_reset() {
        let orin = SoftwareOrin::new(Config::default()).unwrap();
        let traced = Arc::new(TraceDoor::new(Arc::new(orin)));
        let door: Arc<dyn Door> = Arc::clone(&traced) as _;
        let gpu = Gpu::open(&door).unwrap();
        let subcontext = gpu.tsg().unwrap().subcontext(&gpu.address_space().unwrap()).unwrap();
        let channel = subcontext.channel(gpu.characteristics().compute_class()).open().unwrap();
        assert_eq!(traced.reset_channels(), 1);
        assert!(!channel.in_service().unwrap(), "FORCE_RESET took the channel out of service");
        drop(channel);
        assert_eq!(traced.reset_channels(), 0, "a closed channel is not reset");
        // Otherwise checks and profiles would not know the objects of the driver.
        assert!(door.software().is_some_and(|kernel| kernel.is::<SoftwareOrin>()));

        let log = traced.log();
        let of =
            |name: &str| log.iter().find(|call| call["call"] == name).unwrap_or_else(|| panic!("no {name}"));
        let setup = of("NVGPU_IOCTL_CHANNEL_SETUP_BIND");
        assert_eq!(setup["in"][0], "0x400", "the number of entries");
        assert!(setup["took_us"].is_u64() && setup["result"] == 0, "{setup}");
        assert_eq!(setup["out"].as_array().unwrap().len(), setup["in"].as_array().unwrap().len());
        let absent = door.open(c"/dev/no-such-node", OpenFlags::READ_WRITE);
        assert_eq!(absent, Err(Errno::NOENT));
        assert_eq!(traced.log().last().unwrap()["errno"], Errno::NOENT.raw_os_error());
    }

    #[test]
    fn a_long_log_keeps_its_start_and_its_end() {
        let orin = SoftwareOrin::new(Config::default()).unwrap();
        let traced = TraceDoor::new(Arc::new(orin));
        for _ in 0..2 * KEPT + 10 {
            // SAFETY: no descriptor has this number.
            let _ = unsafe { traced.close(-1) };
        }
        let log = traced.log();
        assert_eq!((log.len(), &log[KEPT]["skipped"]), (2 * KEPT + 1, &json!(10)));
        assert!(log.iter().filter(|call| call["call"] == "close").all(|call| call["errno"] == 9));
    }
}
