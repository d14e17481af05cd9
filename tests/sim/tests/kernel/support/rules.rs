//! Tables of rules: a request that violates one rule, or two at once, and its expected result.

use core::ffi::c_void;
use core::ptr;

use kernel_door::{DoorFd, Errno};
use nvgpu_sys::nvmap;
use orin_sim::Config;

use super::{Bench, Release};

/// The result of a call.
pub(crate) type Answer = Result<i32, Errno>;

pub(crate) const INVAL: Answer = Err(Errno::INVAL);
pub(crate) const NOMEM: Answer = Err(Errno::NOMEM);
pub(crate) const FAULT: Answer = Err(Errno::FAULT);
pub(crate) const NOTTY: Answer = Err(Errno::NOTTY);
pub(crate) const BADF: Answer = Err(Errno::BADF);
pub(crate) const BUSY: Answer = Err(Errno::BUSY);
pub(crate) const PERM: Answer = Err(Errno::PERM);
pub(crate) const NODEV: Answer = Err(Errno::NODEV);
pub(crate) const NOSPC: Answer = Err(Errno::NOSPC);
pub(crate) const NOENT: Answer = Err(Errno::NOENT);
pub(crate) const TIMEDOUT: Answer = Err(Errno::TIMEDOUT);
pub(crate) const NOSYS: Answer = Err(Errno::NOSYS);
pub(crate) const AGAIN: Answer = Err(Errno::AGAIN);
pub(crate) const EXIST: Answer = Err(Errno::EXIST);

/// The rule in words, with its section of the specification if it has one; the result of the call; the texts of all
/// messages of the kernel and the model, see [`lines`]; and the call, on a fresh board.
pub(crate) type Rule = (&'static str, Answer, &'static [&'static str], fn(&Bench) -> Answer);

/// A descriptor number that is not open.
pub(crate) const CLOSED: u32 = 999_999;
/// The lines of a quiesce.
pub(crate) const QUIESCE: [&str; 2] =
    ["nvgpu_sw_quiesce_bug_cb:0 SW quiesce requested", "SW quiesce thread running"];
/// An inaccessible user-space address.
pub(crate) const NOWHERE: u64 = 8;

/// Prefix of the model's own messages.
const MODEL: &str = "orin-sim:";
/// Prefix of a backtrace in [`lines`].
const BACKTRACE: &str = "WARNING in ";

/// Checks every rule on its own board with each of the releases and lists all failures.
///
/// An expected line that begins with `…` matches the end of the real one. Backtraces are compared if the rule expects
/// one.
pub(crate) fn check(rules: &[Rule], releases: &[Release]) {
    let mut wrong = Vec::new();
    let all = releases.iter().flat_map(|release| rules.iter().map(move |rule| (release, rule)));
    for (release, (rule, want, log, call)) in all {
        let bench = Bench::with(Config::default().with_release(*release));
        let rule = format!("{release}: {rule}");
        let got = call(&bench);
        if got != *want {
            wrong.push(format!("{rule}: expected {want:?}, got {got:?}"));
        }
        let mut found = lines(&bench);
        if !log.iter().any(|line| line.starts_with(BACKTRACE)) {
            found.retain(|line| !line.starts_with(BACKTRACE));
        }
        let alike = |(line, wanted): (&String, &&str)| match wanted.strip_prefix('…') {
            Some(end) => line.ends_with(end),
            None => line == wanted,
        };
        if found.len() != log.len() || !found.iter().zip(*log).all(alike) {
            wrong.push(format!("{rule}: expected the lines {log:#?}, got {found:#?}"));
        }
    }
    assert!(wrong.is_empty(), "{} faults in {} rules:\n{}", wrong.len(), rules.len(), wrong.join("\n"));
}

/// The texts of all messages without the drivers' prefixes, in order. A backtrace is one line: its innermost function
/// and the kernel's message. The debug dump is omitted.
pub(crate) fn lines(bench: &Bench) -> Vec<String> {
    let mut lines = Vec::new();
    let mut log = bench.orin.kernel_log().into_iter();
    while let Some(line) = log.next() {
        if line.starts_with("------------[ cut here") {
            let backtrace: Vec<String> =
                log.by_ref().take_while(|line| !line.starts_with("---[ end trace")).collect();
            let calls = backtrace.iter().position(|line| line == "Call trace:").expect("a call trace");
            let text = backtrace.first().filter(|line| !line.starts_with("WARNING:"));
            let text = text.map(|text| format!(": {text}")).unwrap_or_default();
            lines.push(format!("{BACKTRACE}{}{text}", backtrace[calls + 1].trim()));
        } else if !line.starts_with("__ga10b__") {
            lines.push(line.split_once("]  ").map_or(line.as_str(), |(_, text)| text).to_owned());
        }
    }
    lines
}

/// Only the kernel's messages.
pub(crate) fn messages(bench: &Bench) -> Vec<String> {
    let mut lines = lines(bench);
    lines.retain(|line| !line.starts_with(MODEL) && !line.starts_with(BACKTRACE));
    lines
}

/// Sends any request with any bytes.
pub(crate) fn send(fd: &DoorFd, code: u32, argument: &mut [u8]) -> Answer {
    // SAFETY: the argument is a live slice. If it is shorter than the code says, the software kernel must detect it; it
    // checks every address before it uses it.
    unsafe { fd.door().ioctl(fd.raw(), code, argument.as_mut_ptr().cast::<c_void>()) }
}

/// Sends a request with a plain address, valid or not.
pub(crate) fn send_at(fd: &DoorFd, code: u32, address: u64) -> Answer {
    let address = ptr::with_exposed_provenance_mut::<c_void>(usize::try_from(address).expect("64 bits"));
    // SAFETY: the software kernel checks every address before it uses it.
    unsafe { fd.door().ioctl(fd.raw(), code, address) }
}

/// Stores the argument in read-only memory, and sends the request with it.
pub(crate) fn send_constant(fd: &DoorFd, code: u32, argument: &[u8]) -> Answer {
    send_at(fd, code, constant(argument))
}

/// A read-only copy of the bytes that is never unmapped.
pub(crate) fn constant(bytes: &[u8]) -> u64 {
    use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};
    let len = bytes.len().max(1).next_multiple_of(4096);
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new anonymous mapping that is never unmapped.
    let page = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), len, protection, MapFlags::PRIVATE) };
    let page = page.expect("memory").cast::<u8>();
    // SAFETY: the mapping has room for the bytes, and no other code uses it.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), page, bytes.len()) };
    // SAFETY: the whole, unused mapping.
    unsafe { rustix::mm::mprotect(page.cast(), len, MprotectFlags::READ) }.expect("mprotect");
    page.expose_provenance() as u64
}

/// An open descriptor that is not the board's; never closed.
pub(crate) fn foreign() -> u32 {
    use std::os::fd::IntoRawFd;
    let file = std::fs::File::open("/dev/null").expect("/dev/null");
    u32::try_from(file.into_raw_fd()).expect("a descriptor")
}

/// A read-only handle number for a buffer of one page with memory.
pub(crate) fn read_only(bench: &Bench) -> u32 {
    let handle = bench.create(4096);
    bench.alloc(handle);
    twin(bench, handle).expect("DUP_HANDLE")
}

/// A read-only handle number for the buffer of another number.
pub(crate) fn twin(bench: &Bench, handle: u32) -> Result<u32, Errno> {
    let access_flags = nvmap::HandleFlags::READ_ONLY.bits();
    let mut args = nvmap::DuplicateHandle { handle, access_flags, dup_handle: 0 };
    nvmap::DUP_HANDLE.send(&bench.nvmap, &mut args)?;
    Ok(args.dup_handle)
}
