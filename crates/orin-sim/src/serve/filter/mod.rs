//! The seccomp filter: which system calls of a served program the supervisor sees.
//!
//! The filter is classic BPF over `struct seccomp_data`. It cannot read memory, so it cannot compare paths, and it does
//! not know which descriptors are the board's: it passes every open, stat, fstat and access on. Everything else is
//! decided by numbers: requests by their family letter, mappings by their flags, seeks by their origin, creations of
//! tasks by whether they create a thread. Calls that the filter allows have no further cost.

#[cfg(test)]
mod interpreter;

use core::mem::offset_of;

use libc::{seccomp_data, sock_filter};
use nvgpu_sys::{address_space, channel, ctrl, dma_buf, host1x, nvmap, sync_file, tsg, udmabuf};

/// `AUDIT_ARCH_*` of the machine that the supervisor was built for (Linux `include/uapi/linux/audit.h`).
#[cfg(target_arch = "x86_64")]
pub(crate) const ARCH: u32 = 0xc000_003e;
/// As above.
#[cfg(target_arch = "aarch64")]
pub(crate) const ARCH: u32 = 0xc000_00b7;

/// Direction bits of a request code.
const DIRECTIONS: u32 = 0xc000_0000;
/// Families whose requests are all passed on. Terminals share the letter of TSGs, which has rules of its own.
const FAMILIES: [u8; 8] = [
    nvmap::FAMILY,
    ctrl::FAMILY,
    address_space::FAMILY,
    channel::FAMILY,
    host1x::FAMILY,
    sync_file::FAMILY,
    dma_buf::FAMILY,
    udmabuf::FAMILY,
];

/// Calls that create a process. clone creates threads as well; clone3 has its flags in memory, which filters cannot
/// read.
#[cfg(target_arch = "x86_64")]
pub(crate) const CREATIONS: [libc::c_long; 3] = [libc::SYS_clone, libc::SYS_fork, libc::SYS_vfork];
/// As above.
#[cfg(target_arch = "aarch64")]
pub(crate) const CREATIONS: [libc::c_long; 1] = [libc::SYS_clone];
/// The same calls of 32-bit programs on both machines: clone, fork, vfork.
pub(crate) const FOREIGN_CREATIONS: [libc::c_long; 3] = [120, 2, 190];
/// Calls that no file of the board supports. They are rare, unlike read and write.
pub(crate) const REFUSED: [libc::c_long; 4] =
    [libc::SYS_fsync, libc::SYS_fdatasync, libc::SYS_ftruncate, libc::SYS_fallocate];
/// Number of clone3 on every architecture.
const CLONE3: u32 = libc::SYS_clone3 as u32;
/// Bit of the numbers of x32 calls, which have the architecture of x86-64.
#[cfg(target_arch = "x86_64")]
const X32: u32 = 0x4000_0000;

/// Allow the call.
const ALLOW: u32 = libc::SECCOMP_RET_ALLOW;
/// Pass the call on to the supervisor.
const NOTIFY: u32 = libc::SECCOMP_RET_USER_NOTIF;
/// Fail the call with ENOSYS; C libraries then use clone.
const ABSENT: u32 = libc::SECCOMP_RET_ERRNO | libc::ENOSYS.cast_unsigned();

/// Target of a comparison.
#[derive(Clone, Copy)]
enum To {
    /// The next instruction.
    Next,
    Allow,
    Notify,
    Absent,
}

/// One instruction; jumps to the results are resolved at the end.
#[derive(Clone, Copy)]
enum Op {
    /// Loads the word at an offset of the data.
    Load(u32),
    /// Keeps these bits.
    And(u32),
    /// Compares with a number.
    Equal(u32, To, To),
    /// Tests for any of these bits.
    AnyBit(u32, To, To),
    /// Compares with a number; skips the given number of instructions if it differs.
    SkipUnless(u32, u8),
    /// Compares with a number; skips the given number of instructions if it is equal.
    SkipIf(u32, u8),
}

/// Offset of the low half of an argument of the call. All targets are little-endian.
fn argument(at: usize) -> u32 {
    // CAST: the struct has 64 bytes.
    (offset_of!(seccomp_data, args) + 8 * at) as u32
}

/// A system call and the instructions that decide on it; without any, the call is passed on.
fn rule(number: libc::c_long, decisions: Vec<Op>) -> Vec<Op> {
    let decisions = if decisions.is_empty() { vec![Op::Equal(0, To::Notify, To::Notify)] } else { decisions };
    // CAST: numbers of system calls and lengths of rules are small.
    let mut ops = vec![Op::SkipUnless(number as u32, decisions.len() as u8)];
    ops.extend(decisions);
    ops
}

/// Passes a call on unless its argument has one of the bits.
fn unless(at: usize, bits: i32) -> Vec<Op> {
    vec![Op::Load(argument(at)), Op::AnyBit(bits.cast_unsigned(), To::Allow, To::Notify)]
}

fn requests() -> Vec<Op> {
    let mut ops = vec![Op::Load(argument(1)), Op::And(0xff00)];
    for family in FAMILIES {
        ops.push(Op::Equal(u32::from(family) << 8, To::Notify, To::Next));
    }
    ops.push(Op::Equal(u32::from(tsg::FAMILY) << 8, To::Next, To::Allow));
    ops.push(Op::Load(argument(1)));
    ops.push(Op::AnyBit(DIRECTIONS, To::Notify, To::Next));
    for request in tsg::ALL.iter().filter(|request| request.code & DIRECTIONS == 0) {
        ops.push(Op::Equal(request.code, To::Notify, To::Next));
    }
    ops.push(Op::Equal(0, To::Allow, To::Allow));
    ops
}

fn mappings() -> Vec<Op> {
    vec![
        // Shared, also with validated flags.
        Op::Load(argument(3)),
        Op::AnyBit(libc::MAP_SHARED.cast_unsigned(), To::Next, To::Allow),
        Op::Load(argument(4)),
        Op::Equal(u32::MAX, To::Allow, To::Notify),
    ]
}

/// Seeks to the end of the kernel log or its data.
fn seeks() -> Vec<Op> {
    vec![
        Op::Load(argument(1)),
        Op::Equal(0, To::Next, To::Allow),
        Op::Load(argument(2)),
        Op::Equal(libc::SEEK_END.cast_unsigned(), To::Notify, To::Next),
        Op::Equal(libc::SEEK_DATA.cast_unsigned(), To::Notify, To::Allow),
    ]
}

/// Passes creations of processes on and allows those of threads.
fn creations(calls: &[libc::c_long]) -> Vec<Op> {
    let mut ops = Vec::new();
    for (at, call) in calls.iter().enumerate() {
        // The first is clone.
        ops.extend(rule(*call, if at == 0 { unless(0, libc::CLONE_THREAD) } else { vec![] }));
    }
    ops.push(Op::Equal(CLONE3, To::Absent, To::Next));
    ops
}

/// 32-bit programs have other numbers and structs. Only their creations of processes are passed on.
fn foreign(number: u32) -> Vec<Op> {
    let mut ops = vec![Op::Load(number)];
    ops.extend(creations(&FOREIGN_CREATIONS));
    ops.push(Op::Equal(0, To::Allow, To::Allow));
    ops
}

/// The program of the filter.
pub(crate) fn program() -> Vec<sock_filter> {
    // CAST: offsets in a struct of 64 bytes.
    let (arch, number) = (offset_of!(seccomp_data, arch) as u32, offset_of!(seccomp_data, nr) as u32);
    let foreign = foreign(number);
    // CAST: a short rule.
    let mut ops = vec![Op::Load(arch), Op::SkipIf(ARCH, foreign.len() as u8)];
    ops.extend(foreign);
    ops.push(Op::Load(number));
    #[cfg(target_arch = "x86_64")]
    ops.extend([
        // A debugger has cancelled the call: its number is negative.
        Op::AnyBit(1 << 31, To::Allow, To::Next),
        Op::AnyBit(X32, To::Absent, To::Next),
    ]);
    ops.extend(rule(libc::SYS_ioctl, requests()));
    ops.extend(rule(libc::SYS_mmap, mappings()));
    ops.extend(rule(libc::SYS_lseek, seeks()));
    ops.extend(rule(libc::SYS_openat, vec![]));
    ops.extend(rule(libc::SYS_openat2, vec![]));
    ops.extend(rule(libc::SYS_fstat, vec![]));
    ops.extend(rule(libc::SYS_newfstatat, vec![]));
    ops.extend(rule(libc::SYS_statx, vec![]));
    for call in REFUSED {
        ops.extend(rule(call, vec![]));
    }
    ops.extend(rule(libc::SYS_faccessat, vec![]));
    ops.extend(rule(libc::SYS_faccessat2, unless(3, libc::AT_EMPTY_PATH)));
    #[cfg(target_arch = "x86_64")]
    {
        ops.extend(rule(libc::SYS_open, vec![]));
        ops.extend(rule(libc::SYS_stat, vec![]));
        ops.extend(rule(libc::SYS_lstat, vec![]));
        ops.extend(rule(libc::SYS_access, vec![]));
    }
    ops.extend(creations(&CREATIONS));
    assemble(&ops)
}

/// Resolves the jumps: the program ends with the results.
fn assemble(ops: &[Op]) -> Vec<sock_filter> {
    let (allow, notify, absent) = (ops.len(), ops.len() + 1, ops.len() + 2);
    let instruction = |code: u32, jt, jf, k| sock_filter {
        // CAST: BPF codes have 16 bits.
        code: code as u16,
        jt,
        jf,
        k,
    };
    let mut program: Vec<sock_filter> = Vec::with_capacity(ops.len() + 3);
    for (at, op) in ops.iter().enumerate() {
        let to = |to| {
            let target = match to {
                To::Next => at + 1,
                To::Allow => allow,
                To::Notify => notify,
                To::Absent => absent,
            };
            // PANIC: the program has fewer than 256 instructions, as the tests show.
            u8::try_from(target - at - 1).expect("a jump reaches the end of the filter")
        };
        let jump = |test, k, yes, no| instruction(libc::BPF_JMP | test | libc::BPF_K, to(yes), to(no), k);
        program.push(match *op {
            Op::Load(offset) => instruction(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0, offset),
            Op::And(bits) => instruction(libc::BPF_ALU | libc::BPF_AND | libc::BPF_K, 0, 0, bits),
            Op::Equal(k, yes, no) => jump(libc::BPF_JEQ, k, yes, no),
            Op::AnyBit(k, yes, no) => jump(libc::BPF_JSET, k, yes, no),
            Op::SkipUnless(k, skip) => instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, 0, skip, k),
            Op::SkipIf(k, skip) => instruction(libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K, skip, 0, k),
        });
    }
    for result in [ALLOW, NOTIFY, ABSENT] {
        program.push(instruction(libc::BPF_RET | libc::BPF_K, 0, 0, result));
    }
    program
}

#[cfg(test)]
mod tests {
    use super::*;
    use interpreter::run;

    fn data(nr: libc::c_long, args: [u64; 6]) -> seccomp_data {
        // CAST: numbers of system calls are small.
        seccomp_data { nr: nr as i32, arch: ARCH, instruction_pointer: 0, args }
    }

    /// Whether the filter passes a call on.
    fn notifies(nr: libc::c_long, args: [u64; 6]) -> bool {
        match run(&program(), &data(nr, args)) {
            Some(NOTIFY) => true,
            Some(ALLOW) => false,
            other => panic!("the filter returns {other:?}"),
        }
    }

    fn ioctl(request: u64) -> bool {
        notifies(libc::SYS_ioctl, [3, request, 0x7fff_0000, 0, 0, 0])
    }

    #[test]
    fn every_request_of_the_board_is_passed_on() {
        for request in nvgpu_sys::requests() {
            assert!(ioctl(request.code.into()), "{request:?}");
            // The kernel uses the low half only.
            assert!(ioctl(u64::from(request.code) | 0xffff_ffff << 32), "{request:?}");
        }
        assert!(ioctl(0x4008_6200), "DMA_BUF_IOCTL_SYNC");
    }

    #[test]
    fn terminals_and_other_devices_are_left_alone() {
        for request in
            [libc::TCGETS, libc::TIOCGWINSZ, libc::FIONREAD, libc::FIONBIO, libc::FIOCLEX, libc::TCSETS]
        {
            assert!(!ioctl(request), "{request:#x}");
        }
        // DRM and V4L2.
        assert!(!ioctl(0xc010_6400) && !ioctl(0x8068_5600));
    }

    #[test]
    fn only_shared_mappings_of_files_are_passed_on() {
        let map = |flags: i32, fd: i32| {
            // CAST: as the program passes them.
            notifies(libc::SYS_mmap, [0, 4096, 3, flags as u64, fd as u64, 0])
        };
        assert!(map(libc::MAP_SHARED, 3) && map(libc::MAP_SHARED_VALIDATE, 3));
        assert!(map(libc::MAP_SHARED | libc::MAP_FIXED, 0));
        assert!(!map(libc::MAP_PRIVATE, 3));
        assert!(!map(libc::MAP_SHARED | libc::MAP_ANONYMOUS, -1));
        assert!(!map(libc::MAP_PRIVATE | libc::MAP_ANONYMOUS, -1));
    }

    #[test]
    fn paths_are_passed_on_unless_they_cannot_be_nodes() {
        // CAST: small flags.
        let empty = libc::AT_EMPTY_PATH as u64;
        assert!(notifies(libc::SYS_openat, [0, 1, 2, 0, 0, 0]));
        assert!(notifies(libc::SYS_openat2, [0; 6]));
        assert!(notifies(libc::SYS_newfstatat, [0; 6]));
        assert!(notifies(libc::SYS_newfstatat, [0, 1, 2, empty, 0, 0]) && notifies(libc::SYS_fstat, [0; 6]));
        assert!(notifies(libc::SYS_statx, [0; 6]) && notifies(libc::SYS_statx, [0, 1, empty, 0, 0, 0]));
        assert!(!notifies(libc::SYS_faccessat2, [0, 1, 2, empty, 0, 0]));
        assert!(REFUSED.iter().all(|nr| notifies(*nr, [3, 0, 0, 0, 0, 0])));
        assert!(notifies(libc::SYS_faccessat, [0; 6]) && notifies(libc::SYS_faccessat2, [0; 6]));
        #[cfg(target_arch = "x86_64")]
        {
            assert!(notifies(libc::SYS_open, [1, 2, 0, 0, 0, 0]));
            assert!(
                [libc::SYS_stat, libc::SYS_lstat, libc::SYS_access].iter().all(|nr| notifies(*nr, [0; 6]))
            );
        }
    }

    #[test]
    fn seeks_to_the_end_are_passed_on() {
        let seek = |offset: u64, origin: i32| notifies(libc::SYS_lseek, [3, offset, origin as u64, 0, 0, 0]);
        assert!(seek(0, libc::SEEK_END) && seek(0, libc::SEEK_DATA));
        assert!(!seek(0, libc::SEEK_SET) && !seek(0, libc::SEEK_CUR) && !seek(8, libc::SEEK_END));
    }

    #[test]
    fn other_calls_and_other_architectures_are_allowed() {
        for nr in [libc::SYS_read, libc::SYS_write, libc::SYS_pread64, libc::SYS_close, libc::SYS_ppoll] {
            assert!(!notifies(nr, [3, 0x4e00, 3, 3, 3, 3]), "{nr}");
        }
        assert_eq!(foreign(libc::SYS_openat, 0), ALLOW);
    }

    /// The result for a call of a 32-bit program.
    fn foreign(nr: libc::c_long, argument: u64) -> u32 {
        let mut call = data(nr, [argument, 0, 0, 0, 0, 0]);
        call.arch = 0x4000_0003;
        run(&program(), &call).unwrap()
    }

    #[test]
    fn creations_of_processes_are_passed_on() {
        // CAST: small flags.
        let thread = (libc::CLONE_VM | libc::CLONE_SIGHAND | libc::CLONE_THREAD) as u64;
        let vfork = (libc::CLONE_VM | libc::CLONE_VFORK | libc::SIGCHLD) as u64;
        for (flags, notified) in [(thread, false), (vfork, true), (libc::SIGCHLD as u64, true), (0, true)] {
            assert_eq!(notifies(libc::SYS_clone, [flags, 0, 0, 0, 0, 0]), notified, "{flags:#x}");
            assert_eq!(foreign(120, flags) == NOTIFY, notified, "{flags:#x}");
        }
        for call in &CREATIONS[1..] {
            assert!(notifies(*call, [u64::MAX; 6]), "{call}");
        }
        assert_eq!([2, 190].map(|call| foreign(call, u64::MAX)), [NOTIFY; 2]);
        // Its flags cannot be seen.
        let clone3 = run(&program(), &data(libc::SYS_clone3, [0x1000, 88, 0, 0, 0, 0]));
        assert_eq!((clone3, foreign(435, 0x1000)), (Some(ABSENT), ABSENT));
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn calls_of_x32_do_not_exist() {
        for call in [libc::SYS_fork, libc::SYS_openat, libc::SYS_read] {
            assert_eq!(run(&program(), &data(call | 0x4000_0000, [0; 6])), Some(ABSENT));
        }
        assert_eq!(run(&program(), &data(-1, [0; 6])), Some(ALLOW));
    }

    #[test]
    fn the_program_is_short() {
        assert!(program().len() < 100, "{}", program().len());
    }
}
