//! Tables of rules: one request that breaks one rule, or two at once, and what must come of it.

use core::ffi::c_void;
use core::ptr;

use nvgpu_sys::Errno;
use nvgpu_sys::door::DoorFd;
use nvgpu_sys::nvmap;

use super::Bench;

/// What a call answers.
pub(crate) type Answer = Result<i32, Errno>;

/// The rule in words, where it says so by its section of the specification; a call on a fresh board; its
/// answer; and the texts of all messages that the kernel and the model print, see [`lines`].
pub(crate) type Rule = (&'static str, fn(&Bench) -> Answer, Answer, &'static [&'static str]);

/// A descriptor number that is not open.
pub(crate) const CLOSED: u32 = 999_999;
/// What a quiesce prints.
pub(crate) const QUIESCE: [&str; 2] =
    ["nvgpu_sw_quiesce_bug_cb:0 SW quiesce requested", "SW quiesce thread running"];
/// An address that cannot be accessed, but is one of user space.
pub(crate) const NOWHERE: u64 = 8;

/// What a message of the model on its own account begins with.
const MODEL: &str = "orin-sim:";
/// What a backtrace begins with in [`lines`].
const BACKTRACE: &str = "WARNING in ";

/// Holds every rule against a board of its own and names all that do not hold.
///
/// An expected line that begins with `…` is the end of the real one. Backtraces count where the rule expects one.
pub(crate) fn check(rules: &[Rule]) {
    let mut wrong = Vec::new();
    for (rule, call, want, log) in rules {
        let bench = Bench::new();
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

/// The texts of all messages without the drivers' heads, in order. A backtrace is one line, its innermost
/// function and what the kernel says to it; the debug dump is left out.
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

/// Those of the kernel alone.
pub(crate) fn messages(bench: &Bench) -> Vec<String> {
    let mut lines = lines(bench);
    lines.retain(|line| !line.starts_with(MODEL) && !line.starts_with(BACKTRACE));
    lines
}

/// Sends any request with any bytes.
pub(crate) fn send(fd: &DoorFd, code: u32, argument: &mut [u8]) -> Answer {
    // SAFETY: the argument is a live slice; where it is shorter than the code says, the software kernel
    // finds that out, which checks every address before it uses it.
    unsafe { fd.door().ioctl(fd.raw(), code, argument.as_mut_ptr().cast::<c_void>()) }
}

/// Sends a request with a plain address, valid or not.
pub(crate) fn send_at(fd: &DoorFd, code: u32, address: u64) -> Answer {
    let address = ptr::with_exposed_provenance_mut::<c_void>(usize::try_from(address).expect("64 bits"));
    // SAFETY: the software kernel checks every address before it uses it.
    unsafe { fd.door().ioctl(fd.raw(), code, address) }
}

/// Stores the argument where it can be read but not written, and sends the request with it.
pub(crate) fn send_constant(fd: &DoorFd, code: u32, argument: &[u8]) -> Answer {
    send_at(fd, code, constant(argument))
}

/// A copy of the bytes that can be read but not written; for the rest of the test's life.
pub(crate) fn constant(bytes: &[u8]) -> u64 {
    use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};
    let len = bytes.len().max(1).next_multiple_of(4096);
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new anonymous mapping; it is never unmapped, which a test can afford.
    let page = unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), len, protection, MapFlags::PRIVATE) };
    let page = page.expect("memory").cast::<u8>();
    // SAFETY: the mapping has room for the bytes, and nobody else knows it.
    unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), page, bytes.len()) };
    // SAFETY: the whole mapping, which nobody uses.
    unsafe { rustix::mm::mprotect(page.cast(), len, MprotectFlags::READ) }.expect("mprotect");
    page.expose_provenance() as u64
}

/// An open descriptor that is none of the board's; never closed.
pub(crate) fn foreign() -> u32 {
    use std::os::fd::IntoRawFd;
    let file = std::fs::File::open("/dev/null").expect("/dev/null");
    u32::try_from(file.into_raw_fd()).expect("a descriptor")
}

/// A read-only number for a buffer of one page with memory.
pub(crate) fn read_only(bench: &Bench) -> u32 {
    let handle = bench.create(4096);
    bench.alloc(handle);
    twin(bench, handle).expect("DUP_HANDLE")
}

/// A read-only number for the buffer of another.
pub(crate) fn twin(bench: &Bench, handle: u32) -> Result<u32, Errno> {
    let access_flags = nvmap::HandleFlags::READ_ONLY.bits();
    let mut args = nvmap::DuplicateHandle { handle, access_flags, dup_handle: 0 };
    nvmap::DUP_HANDLE.send(&bench.nvmap, &mut args)?;
    Ok(args.dup_handle)
}
