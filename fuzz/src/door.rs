//! Raw requests to the software Orin's door.
//!
//! The bytes are a sequence of calls on a fresh board: open, ioctl, mmap, close. For any input, no call panics, and the
//! board is empty after everything has been closed.

mod pointers;

use core::ffi::{CStr, c_void};
use core::ptr;
use std::collections::{BTreeMap, BTreeSet};

use kernel_door::{Door, MapRequest, OpenFlags, Protection};
use nvgpu_sys::{channel, nvmap, paths};
use orin_sim::{Config, LiveCounts, SoftwareOrin};

/// The bytes of a program, consumed from the front; zeros after the end.
struct Program<'a> {
    rest: &'a [u8],
}

impl Program<'_> {
    fn byte(&mut self) -> u8 {
        let Some((first, rest)) = self.rest.split_first() else { return 0 };
        self.rest = rest;
        *first
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        (0..count).map(|_| self.byte()).collect()
    }
}

/// Memory of the board in bytes, small enough that programs exhaust it.
const BOARD_BYTES: u64 = 1 << 15;

/// First handle number of nvmap. FROM_FD returns a descriptor below it for a dma-buf that nvmap did not export.
const FIRST_HANDLE: u32 = u32::MAX / 2;

/// Returns whether a number is a descriptor of the program. The process has others: the model's own, and those of other
/// boards, which the program must not close.
fn is_ours(orin: &SoftwareOrin, other: &SoftwareOrin, fd: i32) -> bool {
    let name = std::fs::read_link(format!("/proc/self/fd/{fd}"));
    if !name.is_ok_and(|name| name.to_string_lossy().starts_with("/memfd:")) {
        return false;
    }
    let Ok(copy) = orin.send(fd, other) else { return false };
    // SAFETY: the copy is the other process's.
    unsafe { other.close(copy) }.is_ok()
}

/// Runs a sequence of calls. Returns the behaviour for the fuzzer: for each request and each errno, how often the
/// request returned the errno, as a power of two.
pub(crate) fn run(data: &[u8]) -> BTreeSet<u64> {
    const NODES: [&CStr; 4] = [paths::NVMAP, paths::CTRL, paths::HOST1X_FENCE, paths::KMSG];
    let flags = OpenFlags::READ_WRITE | OpenFlags::CLOSE_ON_EXEC | OpenFlags::NON_BLOCKING;
    let Ok(orin) = SoftwareOrin::new(Config { memory_bytes: BOARD_BYTES, ..Config::default() }) else {
        return BTreeSet::new();
    };
    let mut outcomes = BTreeMap::<(u32, u32), u64>::new();
    let requests: Vec<u32> = pointers::requests().map(|request| request.code).collect();
    let mut program = Program { rest: data };
    let mut fds: Vec<i32> = NODES.iter().filter_map(|node| orin.open(node, flags).ok()).collect();
    let mut maps = Vec::new();
    let other = orin.process();
    while !program.rest.is_empty() {
        let fd = |program: &mut Program<'_>, fds: &[i32]| {
            let at = usize::from(program.byte());
            fds.get(at % fds.len().max(1)).copied().unwrap_or(-1)
        };
        match program.byte() % 16 {
            0 => {
                let node = NODES[usize::from(program.byte()) % NODES.len()];
                fds.extend(orin.open(node, flags));
            }
            1 => {
                let victim = fd(&mut program, &fds);
                // SAFETY: the descriptor is the program's, or already closed: the model refuses that.
                let _ = unsafe { orin.close(victim) };
                fds.retain(|other| *other != victim);
            }
            2 => {
                let (fd, pages) = (fd(&mut program, &fds), usize::from(program.byte()));
                let offset = u64::from(program.byte()) * 4096;
                let len = pages * 4096;
                let protection = Protection::READ | Protection::WRITE;
                let request = MapRequest { fd, offset, len, protection, place: None };
                // SAFETY: as above.
                if let Ok(pointer) = unsafe { orin.mmap(&request) } {
                    maps.push((pointer, len));
                }
            }
            kind => {
                let mut code = requests[usize::from(program.byte()) % requests.len()];
                let fd = fd(&mut program, &fds);
                if kind == 3 {
                    code ^= 1 << (program.byte() % 32);
                }
                // The longest argument that a code can specify has 16 KiB.
                let mut argument = vec![0_u8; 1 << 14];
                let count = usize::from(program.byte()) % 80;
                argument[..count].copy_from_slice(&program.bytes(count));
                // Turns a word into a valid descriptor, which random bytes rarely are.
                let patch = usize::from(program.byte());
                if patch < 24 && !fds.is_empty() {
                    let number = fds[usize::from(program.byte()) % fds.len()];
                    argument[patch * 4..patch * 4 + 4].copy_from_slice(&number.to_le_bytes());
                }
                if code == channel::code::WAIT {
                    // The second word is the time limit; 0 means no limit.
                    argument[4..8].copy_from_slice(&1_u32.to_le_bytes());
                }
                pointers::tame(code, &mut argument);
                let value = usize::from(argument[0]) | 0x7fff_ff00;
                let pointer = if code >> 16 & 0x3fff == 0 {
                    ptr::without_provenance_mut::<c_void>(value)
                } else {
                    argument.as_mut_ptr().cast::<c_void>()
                };
                // SAFETY: the argument is as long as any code specifies. Addresses inside it are invalid or point to
                // reserved memory, and the software kernel checks each one before it uses it.
                let result = unsafe { orin.ioctl(fd, code, pointer) };
                let request = if requests.contains(&code) { code } else { 0 };
                let errno = result.err().map_or(0, |errno| errno.raw_os_error().unsigned_abs());
                *outcomes.entry((request, errno)).or_default() += 1;
                if result.is_ok() {
                    let words = argument[..24].chunks_exact(4);
                    let numbers = words.filter_map(|word| Some(i32::from_le_bytes(word.try_into().ok()?)));
                    fds.extend(numbers.filter(|number| *number > 2 && is_ours(&orin, &other, *number)));
                    let handle = u32::from_le_bytes([argument[4], argument[5], argument[6], argument[7]]);
                    if code == nvmap::code::FROM_FD && handle < FIRST_HANDLE {
                        fds.push(handle.cast_signed());
                    }
                    fds.sort_unstable();
                    fds.dedup();
                }
            }
        }
    }
    for (pointer, len) in maps {
        // SAFETY: mapped above and never used.
        let unmapped = unsafe { orin.munmap(pointer, len) };
        assert!(unmapped.is_ok(), "{len:#x} bytes do not unmap");
    }
    orin.exit();
    assert_eq!(orin.live(), LiveCounts::default(), "objects leaked");
    let kind = |((request, errno), times): (&(u32, u32), &u64)| {
        u64::from(*request) << 32 | u64::from(errno << 8 | times.ilog2())
    };
    outcomes.iter().map(kind).collect()
}
