//! Calls of served programs as text.

use std::fmt::Write;

use ampere_cmd::dump::{Classes, Decoder};
use kernel_door::{Errno, MapRequest, Protection};
use nvgpu_sys::request_name;
use orin_sim::serve::{Detail, ServedCall};

/// Names of the flags of open(2) besides the access mode.
const OPEN_FLAGS: [(i32, &str); 4] = [
    (rustix_flag(rustix::fs::OFlags::CLOEXEC), "O_CLOEXEC"),
    (rustix_flag(rustix::fs::OFlags::NONBLOCK), "O_NONBLOCK"),
    (rustix_flag(rustix::fs::OFlags::SYNC), "O_SYNC"),
    (rustix_flag(rustix::fs::OFlags::CREATE), "O_CREAT"),
];

/// Names of the errnos that the board and its supervisor return.
const ERRNOS: [(Errno, &str); 32] = [
    (Errno::PERM, "EPERM"),
    (Errno::NOENT, "ENOENT"),
    (Errno::SRCH, "ESRCH"),
    (Errno::INTR, "EINTR"),
    (Errno::IO, "EIO"),
    (Errno::NXIO, "ENXIO"),
    (Errno::BADF, "EBADF"),
    (Errno::AGAIN, "EAGAIN"),
    (Errno::NOMEM, "ENOMEM"),
    (Errno::ACCESS, "EACCES"),
    (Errno::FAULT, "EFAULT"),
    (Errno::BUSY, "EBUSY"),
    (Errno::EXIST, "EEXIST"),
    (Errno::XDEV, "EXDEV"),
    (Errno::NODEV, "ENODEV"),
    (Errno::NOTDIR, "ENOTDIR"),
    (Errno::ISDIR, "EISDIR"),
    (Errno::INVAL, "EINVAL"),
    (Errno::NFILE, "ENFILE"),
    (Errno::MFILE, "EMFILE"),
    (Errno::NOTTY, "ENOTTY"),
    (Errno::NOSPC, "ENOSPC"),
    (Errno::SPIPE, "ESPIPE"),
    (Errno::ROFS, "EROFS"),
    (Errno::PIPE, "EPIPE"),
    (Errno::RANGE, "ERANGE"),
    (Errno::NOSYS, "ENOSYS"),
    (Errno::OVERFLOW, "EOVERFLOW"),
    (Errno::ADDRNOTAVAIL, "EADDRNOTAVAIL"),
    (Errno::OPNOTSUPP, "EOPNOTSUPP"),
    (Errno::TIMEDOUT, "ETIMEDOUT"),
    (Errno::CANCELED, "ECANCELED"),
];

const fn rustix_flag(flag: rustix::fs::OFlags) -> i32 {
    // CAST: the kernel's flags are signed.
    flag.bits() as i32
}

/// A line of `strace -f`, which `orin decode strace` reads, with the words of the argument before and after.
pub(super) fn trace(call: &ServedCall<'_>) -> String {
    let mut line = format!("[pid {}] ", call.thread);
    // Writing to a string cannot fail.
    let _ = match &call.detail {
        Detail::Open { path, flags } => {
            let mode = ["O_RDONLY", "O_WRONLY", "O_RDWR", "3"][(*flags & 3) as usize];
            let named = OPEN_FLAGS.iter().filter(|(bits, _)| flags & bits == *bits);
            let flags: String = named.map(|(_, name)| format!("|{name}")).collect();
            write!(line, "openat(AT_FDCWD, \"{}\", {mode}{flags})", path.to_string_lossy())
        }
        Detail::Request { descriptor, code, address, before, after } => {
            let name = request_name(*code).map_or_else(|| format!("{code:#x}"), str::to_owned);
            let argument = match (words(before), words(after)) {
                (before, _) if before.is_empty() => format!("{address:#x}"),
                (before, after) if before == after => format!("[{before}]"),
                (before, after) => format!("[{before}] => [{after}]"),
            };
            write!(line, "ioctl({descriptor}, {name}, {argument})")
        }
        Detail::Map(MapRequest { fd, offset, len, protection, .. }) => {
            write!(line, "mmap(NULL, {len}, {}, MAP_SHARED, {fd}, {offset:#x})", protection_name(*protection))
        }
        _ => Ok(()),
    };
    let _ = writeln!(line, " = {}", result(call.result));
    line
}

/// The words of a pushbuffer segment that a channel has begun to fetch, as comments for the decoder of strace.
pub(super) fn segment(channel: u32, va: u64, words: &[u32]) -> String {
    let mut text = format!("# channel {channel} fetches {} words at {va:#x}\n", words.len());
    let mut decoder = Decoder::new(Classes::AMPERE);
    for word in words {
        // Writing to a string cannot fail.
        let _ = writeln!(text, "# {}", decoder.push(*word));
    }
    text
}

/// A line of the supervisor's log: opens, mappings and refusals.
pub(super) fn log(call: &ServedCall<'_>) -> Option<String> {
    let answer = match call.result {
        Ok(_) => "ok".to_owned(),
        Err(_) => result(call.result),
    };
    let what = match &call.detail {
        Detail::Open { path, .. } => format!("open {}", path.to_string_lossy()),
        Detail::Map(MapRequest { fd, len, offset, .. }) => format!("map {len} bytes at {offset:#x} of {fd}"),
        Detail::Request { descriptor, code, .. } if call.result.is_err() => {
            let name = request_name(*code).map_or_else(|| format!("request {code:#x}"), str::to_owned);
            format!("{name} on {descriptor}")
        }
        _ => return None,
    };
    Some(format!("{} {}: {what}: {answer}\n", call.process, call.name))
}

/// A record of `/dev/kmsg` as dmesg prints it.
pub(super) fn kernel_line(record: &str) -> String {
    let Some((head, text)) = record.trim_end().split_once(';') else { return record.to_owned() };
    let time = head.split(',').nth(2).and_then(|time| time.parse::<u64>().ok()).unwrap_or(0);
    format!("[{:5}.{:06}] {text}\n", time / 1_000_000, time % 1_000_000)
}

fn result(result: Result<i64, Errno>) -> String {
    match result {
        Ok(value) => value.to_string(),
        Err(errno) => format!("-1 {} ({errno})", errno_name(errno)),
    }
}

/// The name of an errno as strace prints it.
fn errno_name(errno: Errno) -> String {
    let named = ERRNOS.iter().find(|(known, _)| *known == errno);
    named.map_or_else(|| format!("ERRNO_{}", errno.raw_os_error()), |(_, name)| (*name).to_owned())
}

/// The 32-bit words of an argument.
fn words(bytes: &[u8]) -> String {
    let words = bytes.chunks(4).map(|word| {
        let mut padded = [0; 4];
        padded[..word.len()].copy_from_slice(word);
        format!("{:08x}", u32::from_le_bytes(padded))
    });
    words.collect::<Vec<_>>().join(" ")
}

fn protection_name(protection: Protection) -> &'static str {
    let (read, write) = (protection.contains(Protection::READ), protection.contains(Protection::WRITE));
    match (read, write) {
        (true, true) => "PROT_READ|PROT_WRITE",
        (true, false) => "PROT_READ",
        (false, true) => "PROT_WRITE",
        (false, false) => "PROT_NONE",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::strace;

    fn call<'a>(detail: Detail<'a>, result: Result<i64, Errno>) -> ServedCall<'a> {
        ServedCall::new((7, 8), "program".to_owned(), detail, result)
    }

    #[test]
    fn the_decoder_of_strace_reads_the_trace() {
        let flags = libc_flags();
        let open = call(Detail::Open { path: c"/dev/nvmap", flags }, Ok(3));
        let code = nvgpu_sys::nvmap::code::CREATE;
        let (before, after) = ([0, 16, 0, 0, 0, 0, 0, 0], [0, 16, 0, 0, 1, 0, 0, 128]);
        let detail = Detail::Request { descriptor: 3, code, address: 64, before: &before, after: &after };
        let good = call(detail, Ok(0));
        let bad = call(detail, Err(Errno::INVAL));
        let words = [0x2005_0017, 0x1000, 1, 42, 0, 1];
        let text = [&open, &good, &bad].map(trace).concat() + &segment(511, 0x2000, &words);
        assert!(
            text.contains("# channel 511 fetches 6 words at 0x2000\n") && text.contains("SEM_ADDR_LO"),
            "{text}"
        );
        assert!(text.contains("[pid 8] openat(AT_FDCWD, \"/dev/nvmap\", O_RDWR|O_CLOEXEC) = 3\n"), "{text}");
        assert!(
            text.contains("NVMAP_IOC_CREATE, [00001000 00000000] => [00001000 80000001]) = 0\n"),
            "{text}"
        );
        let mut decoded = Vec::new();
        let verdict = strace::decode(text.as_bytes(), &mut decoded, false).unwrap();
        let decoded = String::from_utf8(decoded).unwrap();
        assert_eq!(verdict, crate::commands::Verdict::Whole, "{decoded}");
        assert!(decoded.contains("EINVAL"), "{decoded}");
        assert_eq!(result(Err(Errno::XFULL)), format!("-1 ERRNO_54 ({})", Errno::XFULL));
    }

    fn libc_flags() -> i32 {
        rustix_flag(rustix::fs::OFlags::RDWR.union(rustix::fs::OFlags::CLOEXEC))
    }

    #[test]
    fn the_log_has_what_changes_and_what_fails() {
        let map = Detail::Map(MapRequest {
            fd: 4,
            offset: 0,
            len: 4096,
            protection: Protection::READ,
            place: None,
        });
        assert_eq!(log(&call(map, Ok(0))).unwrap(), "7 program: map 4096 bytes at 0x0 of 4: ok\n");
        let request = Detail::Request { descriptor: 3, code: 0x4e63, address: 0, before: &[], after: &[] };
        assert_eq!(log(&call(request, Ok(0))), None);
        let refused = log(&call(request, Err(Errno::NOTTY))).unwrap();
        assert!(refused.starts_with("7 program: request 0x4e63 on 3: -1 "), "{refused}");
    }

    #[test]
    fn records_look_like_those_of_dmesg() {
        assert_eq!(kernel_line("4,17,1500042,-;nvgpu: text\n"), "[    1.500042] nvgpu: text\n");
    }
}
