//! Random requests with random arguments: no panic, no success for what does not exist, and
//! everything can be given back afterwards.

mod kernel_support;

use core::ffi::c_void;
use core::ptr;
use std::collections::BTreeSet;

use kernel_support::*;
use nvgpu_sys::door::{DoorFd, MapRequest, Protection};
use nvgpu_sys::{address_space, channel, ctrl, nvmap, tsg};
use orin_sim::{Config, LiveCounts};
use proptest::prelude::*;

/// One step on one of the open descriptors.
#[derive(Clone, Debug)]
enum Step {
    Ioctl { fd: usize, code: u32, words: Vec<Word> },
    Map { fd: usize, offset: u64, len: usize },
    Close { fd: usize },
}

/// One 32-bit word of an argument.
#[derive(Clone, Debug)]
enum Word {
    Value(u32),
    /// A descriptor that is open.
    Descriptor(usize),
    /// A handle number that may exist.
    Handle(u32),
}

fn codes() -> Vec<u32> {
    let lists = [nvmap::ALL, ctrl::ALL, address_space::ALL, tsg::ALL, channel::ALL];
    lists.iter().flat_map(|list| list.iter().map(|request| request.code)).collect()
}

fn word() -> impl Strategy<Value = Word> {
    let interesting =
        prop::sample::select(vec![0, 1, 2, 4, 8, 10, 64, 1024, 4096, 8192, 0x20_0000, u32::MAX]);
    prop_oneof![
        4 => interesting.prop_map(Word::Value),
        2 => any::<u32>().prop_map(Word::Value),
        3 => any::<usize>().prop_map(Word::Descriptor),
        2 => (0_u32..12).prop_map(Word::Handle),
    ]
}

fn step() -> impl Strategy<Value = Step> {
    let code = prop_oneof![
        8 => prop::sample::select(codes()),
        1 => any::<u32>(),
        // A real request with one bit wrong.
        1 => (prop::sample::select(codes()), 0_u32..32).prop_map(|(code, bit)| code ^ 1 << bit),
    ];
    let words = prop::collection::vec(word(), 66);
    prop_oneof![
        20 => (any::<usize>(), code, words).prop_map(|(fd, code, words)| Step::Ioctl { fd, code, words }),
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

/// Whether a number is a descriptor that a model has made, by its name.
fn is_ours(fd: i32) -> bool {
    let link = std::fs::read_link(format!("/proc/self/fd/{fd}"));
    let name = link.map(|link| link.to_string_lossy().into_owned()).unwrap_or_default();
    name.contains("memfd:nv") || name.contains("memfd:dmabuf")
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn nothing_panics_and_nothing_leaks(steps in prop::collection::vec(step(), 1..120)) {
        let bench = Bench::with(Config { memory_bytes: 1 << 30, ..Config::default() });
        let real: BTreeSet<u32> = codes().into_iter().collect();
        let mut fds: Vec<i32> = vec![bench.nvmap.raw(), bench.ctrl.raw()];
        fds.push(into_raw(bench.space()));
        fds.push(into_raw(bench.tsg()));
        fds.push(into_raw(bench.channel()));
        fds.push(into_raw(bench.buffer(8192)));
        let mut maps = Vec::new();
        for step in steps {
            match step {
                Step::Ioctl { fd, code, words } => {
                    let fd = fds[fd % fds.len()];
                    let mut argument: Vec<u32> = words
                        .iter()
                        .map(|word| match word {
                            Word::Value(value) => *value,
                            Word::Descriptor(at) => fds[at % fds.len()] as u32,
                            Word::Handle(at) => 0x7fff_ffff + at,
                        })
                        .collect();
                    let pointer = if code >> 16 & 0x3fff == 0 {
                        ptr::without_provenance_mut::<c_void>(argument[0] as usize)
                    } else {
                        // The longest encodable argument is 16 KiB.
                        argument.resize(4096, 0);
                        argument.as_mut_ptr().cast::<c_void>()
                    };
                    // SAFETY: the argument is 16 KiB; the software kernel checks every address
                    // inside it, and no random number hits memory of this process.
                    let result = unsafe { bench.door.ioctl(fd, code, pointer) };
                    if !real.contains(&code) {
                        prop_assert!(result.is_err(), "{code:#x} succeeded");
                    } else if result.is_ok() {
                        fds.extend(descriptors(&argument[..6]));
                        fds.sort_unstable();
                        fds.dedup();
                    }
                }
                Step::Map { fd, offset, len } => {
                    let request = MapRequest {
                        fd: fds[fd % fds.len()],
                        offset,
                        len,
                        protection: Protection::READ | Protection::WRITE,
                    };
                    if let Ok(pointer) = bench.door.mmap(&request) {
                        maps.push((pointer, len));
                    }
                }
                Step::Close { fd } => {
                    let fd = fds[fd % fds.len()];
                    if fd != bench.nvmap.raw() && fd != bench.ctrl.raw() {
                        let _ = bench.door.close(fd);
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
            if fd != bench.nvmap.raw() && fd != bench.ctrl.raw() {
                // The model answers EBADF for numbers that are not its own.
                let _ = bench.door.close(fd);
            }
        }
        let Bench { orin, door, nvmap, ctrl } = bench;
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
