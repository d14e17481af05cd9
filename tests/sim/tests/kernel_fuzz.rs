//! Random requests with random arguments: no panic, no success on objects that do not exist, and everything can be
//! freed afterwards.

#[path = "../../../fuzz/src/pointers.rs"]
mod pointers;
#[path = "kernel/support/mod.rs"]
mod support;

use core::ffi::c_void;
use core::ptr;
use std::collections::BTreeSet;

use kernel_door::{Door, DoorFd, MapRequest, Protection};
use nvgpu_sys::{address_space, channel, ctrl, host1x, nvmap, paths, sync_file, tsg};
use orin_sim::{Config, LiveCounts, SoftwareOrin};
use proptest::prelude::*;
use support::*;
use zerocopy::IntoBytes;

/// One call on one of the open descriptors.
#[derive(Clone, Debug)]
enum Step {
    Ioctl { fd: usize, fitting: bool, code: u32, words: Vec<Word> },
    Map { fd: usize, offset: u64, len: usize },
    Close { fd: usize },
}

/// One 32-bit word of an argument.
#[derive(Clone, Debug)]
enum Word {
    Value(u32),
    /// An open descriptor.
    Descriptor(usize),
    /// A handle number that may exist.
    Handle(u32),
}

fn codes() -> Vec<u32> {
    pointers::requests().map(|request| request.code).collect()
}

fn word() -> impl Strategy<Value = Word> {
    let interesting =
        prop::sample::select(vec![0, 1, 2, 4, 8, 10, 64, 1024, 4096, 8192, 0x20_0000, u32::MAX]);
    prop_oneof![
        10 => Just(Word::Value(0)),
        4 => interesting.prop_map(Word::Value),
        1 => any::<u32>().prop_map(Word::Value),
        4 => any::<usize>().prop_map(Word::Descriptor),
        2 => (0_u32..12).prop_map(Word::Handle),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let code = prop_oneof![
        8 => prop::sample::select(codes()),
        1 => any::<u32>(),
        // A real request with one flipped bit.
        1 => (prop::sample::select(codes()), 0_u32..32).prop_map(|(code, bit)| code ^ 1 << bit),
    ];
    // Most requests require zeros after their first fields.
    let words = prop_oneof![
        1 => prop::collection::vec(word(), 66),
        5 => prop::collection::vec(word(), 4),
    ];
    prop_oneof![
        20 => (any::<usize>(), prop::bool::weighted(0.9), code, words)
            .prop_map(|(fd, fitting, code, words)| Step::Ioctl { fd, fitting, code, words }),
        1 => (any::<usize>(), 0_u64..4, 1_usize..0x2_0000)
            .prop_map(|(fd, page, len)| Step::Map { fd, offset: page * 4096, len }),
        1 => any::<usize>().prop_map(|fd| Step::Close { fd }),
    ]
}

/// Numbers of the model's descriptors among the first words of a result.
fn descriptors(argument: &[u32]) -> Vec<i32> {
    let numbers = argument.iter().filter_map(|word| i32::try_from(*word).ok());
    numbers.filter(|fd| is_ours(*fd)).collect()
}

/// The name of a descriptor.
fn name(fd: i32) -> String {
    let link = std::fs::read_link(format!("/proc/self/fd/{fd}"));
    link.map(|link| link.to_string_lossy().into_owned()).unwrap_or_default()
}

/// Returns whether a number is a descriptor of the model, by its name.
fn is_ours(fd: i32) -> bool {
    ["memfd:dev/", "memfd:nv", "memfd:dmabuf", "memfd:sync_file", "memfd:host1x"]
        .iter()
        .any(|prefix| name(fd).contains(prefix))
}

/// Whether a number is a descriptor of the program. The process has others: the model's own, which the program must not
/// close.
fn is_owned(orin: &SoftwareOrin, other: &SoftwareOrin, fd: i32) -> bool {
    let Ok(copy) = orin.send(fd, other) else { return false };
    // SAFETY: the copy is the other process's.
    unsafe { other.close(copy) }.is_ok()
}

/// Part of the name of the descriptors that accept the family of a request.
fn family(code: u32) -> &'static str {
    match (code >> 8) as u8 {
        nvmap::FAMILY => "dev/nvmap",
        ctrl::FAMILY => "dev/nvgpu",
        address_space::FAMILY => "nvhost-ga10b",
        tsg::FAMILY => "nvgpu-ga10b",
        channel::FAMILY => "nvhost-17000000",
        host1x::FAMILY => "host1x-fence",
        sync_file::FAMILY => "sync_file",
        _ => "",
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn nothing_panics_and_nothing_leaks(steps in prop::collection::vec(step(), 1..300)) {
        let bench = Bench::with(Config { memory_bytes: 1 << 30, ..Config::default() });
        let real: BTreeSet<u32> = codes().into_iter().collect();
        let (space, tsg, channel) = bench.bound();
        let buffers = [bench.buffer(8192), bench.buffer(4096)];
        let mut fds: Vec<(i32, String)> = Vec::new();
        let known = |fd: i32| (fd, name(fd));
        fds.extend([bench.nvmap.raw(), bench.ctrl.raw()].map(known));
        fds.extend([space, tsg, channel, bench.space()].map(into_raw).map(known));
        fds.extend(buffers.map(into_raw).map(known));
        fds.push(known(into_raw(DoorFd::open(&bench.door, paths::HOST1X_FENCE, FLAGS).unwrap())));
        let mut maps = Vec::new();
        let other = bench.orin.process();
        for step in steps {
            match step {
                Step::Ioctl { fd, fitting, code, words } => {
                    let wanted = family(code);
                    let fits = |(_, name): &&(i32, String)| !fitting || name.contains(wanted);
                    let candidates: Vec<i32> = fds.iter().filter(fits).map(|(fd, _)| *fd).collect();
                    let fd = candidates.get(fd % candidates.len().max(1)).copied().unwrap_or(fds[0].0);
                    let mut argument: Vec<u32> = words
                        .iter()
                        .map(|word| match word {
                            Word::Value(value) => *value,
                            Word::Descriptor(at) => fds[at % fds.len()].0 as u32,
                            Word::Handle(at) => 0x7fff_ffff + at,
                        })
                        .collect();
                    // The longest encodable argument is 16 KiB.
                    argument.resize(4096, 0);
                    if code == channel::code::WAIT {
                        // The second word is the time limit; 0 means no limit.
                        argument[1] = 1;
                    }
                    pointers::tame(code, argument.as_mut_bytes());
                    // FREE closes the descriptor with the number.
                    if code == nvmap::code::FREE && !is_owned(&bench.orin, &other, argument[0].cast_signed()) {
                        argument[0] = 0x7fff_ffff;
                    }
                    let pointer = if code >> 16 & 0x3fff == 0 {
                        ptr::without_provenance_mut::<c_void>(argument[0] as usize)
                    } else {
                        argument.as_mut_ptr().cast::<c_void>()
                    };
                    // SAFETY: the argument has 16 KiB. Addresses inside it are invalid or point to reserved memory, and
                    // the software kernel checks each one before it uses it.
                    let result = unsafe { bench.door.ioctl(fd, code, pointer) };
                    if !real.contains(&code) {
                        prop_assert!(result.is_err(), "{code:#x} succeeded");
                    } else if result.is_ok() {
                        for fd in descriptors(&argument[..6]) {
                            fds.retain(|(old, _)| *old != fd);
                            fds.push(known(fd));
                        }
                    }
                }
                Step::Map { fd, offset, len } => {
                    let request = MapRequest {
                        fd: fds[fd % fds.len()].0,
                        offset,
                        len,
                        protection: Protection::READ | Protection::WRITE,
                        place: None,
                    };
                    if let Ok(pointer) = mmap(&bench.door, &request) {
                        maps.push((pointer, len));
                    }
                }
                Step::Close { fd } => {
                    let fd = fds[fd % fds.len()].0;
                    if fd != bench.nvmap.raw()
                        && fd != bench.ctrl.raw()
                        && is_owned(&bench.orin, &other, fd)
                    {
                        let _ = close(&bench.door, fd);
                    }
                }
            }
        }
        for (pointer, len) in maps {
            // SAFETY: mapped above and never used.
            let result = unsafe { bench.door.munmap(pointer, len) };
            prop_assert!(result.is_ok());
        }
        for fd in 0..4096 {
            let kept = [bench.nvmap.raw(), bench.ctrl.raw()];
            if !kept.contains(&fd) && is_owned(&bench.orin, &other, fd) {
                let name = name(fd);
                prop_assert_eq!(close(&bench.door, fd), Ok(()), "{} {}", fd, name);
            }
        }
        let Bench { orin, door, nvmap, ctrl, .. } = bench;
        drop((nvmap, ctrl));
        prop_assert_eq!(orin.live(), LiveCounts::default());
        drop(door);
    }
}

fn into_raw(fd: DoorFd) -> i32 {
    let raw = fd.raw();
    std::mem::forget(fd);
    raw
}
