//! What safe code could break memory safety with, and is refused at run time.
#![forbid(unsafe_code)]

use std::fs::File;
use std::os::fd::OwnedFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use orin_sim::memory::Memory;
use orin_sim::mmu::{Access, AddressSpace, MappedRange};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::Errno;

/// Two pages, the second of which is mapped at `va`.
fn second_page(va: u64) -> MappedRange {
    let memory = Arc::new(Memory::new("data", 0x2000).unwrap());
    MappedRange { va, len: 0x1000, memory, offset: 0x1000, writable: true, cached: false }
}

#[test]
fn a_mapping_outside_its_memory_is_refused() {
    let space = AddressSpace::new();
    let good = second_page(0x20_0000);
    let offsets = [0x2000, u64::MAX - 0xfff, u64::MAX - 0x1fff, 0x800, 0xfff];
    let bad = offsets.map(|offset| MappedRange { offset, ..good.clone() });
    let lens = [0, 0x2000, 0x800, u64::MAX - 0xfff].map(|len| MappedRange { len, ..good.clone() });
    let addresses = [0x20_0800, u64::MAX - 0xfff].map(|va| MappedRange { va, ..good.clone() });
    for range in bad.into_iter().chain(lens).chain(addresses) {
        let text = format!("{range:x?}");
        assert!(catch_unwind(AssertUnwindSafe(|| space.map(range))).is_err(), "{text}");
    }
    // A refusal leaves the space usable.
    space.map(good);
    space.view().write(0x20_0000, &[7; 0x1000]).unwrap();
    let fault = space.view().read(0x20_0fff, &mut [0; 2]).unwrap_err();
    assert_eq!(fault.va, 0x20_1000);
}

#[test]
fn ranges_that_wrap_do_not_tear_a_mapping() {
    let space = AddressSpace::new();
    space.map(second_page(0x20_0000));
    space.add_sparse(0x40_0000, u64::MAX);
    space.unmap_range(0x10_0000, u64::MAX);
    assert!(space.unmap(0x20_0000).is_none(), "it was in the range");
    assert_eq!(space.view().read(0x40_0000, &mut [1; 8]), Ok(()));
}

#[test]
fn a_span_has_no_address_outside_of_it() {
    let space = AddressSpace::new();
    space.map(second_page(0x20_0000));
    let view = space.view();
    let span = view.span(0x20_0010, Access::Write).unwrap();
    assert!(span.at(0x20_0ffc, 4).is_some());
    for (va, len) in [(0x20_0ffd, 4), (0x1f_ffff, 1), (1 << 46, 1), (0x20_0000, u64::MAX), (u64::MAX, 2)] {
        assert!(span.at(va, len).is_none(), "{len} bytes at {va:#x}");
    }
}

/// Accesses beyond the end of a file raise SIGBUS.
#[test]
fn a_file_that_may_be_too_short_is_refused() {
    let file = |bytes, seals| {
        let file = memfd_create("data", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING).unwrap();
        ftruncate(&file, bytes).unwrap();
        fcntl_add_seals(&file, seals).unwrap();
        Arc::new(file)
    };
    let sealed = SealFlags::SHRINK | SealFlags::SEAL;
    for (file, why) in [
        (file(0x2000, SealFlags::empty()), "it may be truncated"),
        (file(0x2000, SealFlags::GROW), "it may be truncated"),
        (file(0x1000, sealed), "it is too short"),
        (file(0, sealed), "it is empty"),
    ] {
        assert_eq!(Memory::map(file, 0x2000).err(), Some(Errno::INVAL), "{why}");
    }
    let other = Arc::new(OwnedFd::from(File::open("/dev/zero").unwrap()));
    assert!(Memory::map(other, 0x2000).is_err(), "not a file of memory");
    let memory = Memory::map(file(0x2000, sealed), 0x2000).unwrap();
    memory.store(0x1ffc, 9);
    assert_eq!(memory.load(0x1ffc), 9);
}

/// Copies through a view and atomic words are accesses to the same memory from two threads.
#[test]
fn copies_race_with_words_without_tearing_them() {
    const ROUNDS: u32 = 20_000;
    let range = second_page(0x20_0000);
    let memory = Arc::clone(&range.memory);
    let space = AddressSpace::new();
    space.map(range);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let view = space.view();
            for round in 0..ROUNDS {
                // Seven whole words between two halves, whose other halves are left alone.
                view.write(0x20_0002, &[round as u8; 32]).unwrap();
            }
        });
        scope.spawn(|| {
            for round in 0..ROUNDS {
                memory.word(0x1000 + 36).store(round, Ordering::Relaxed);
            }
        });
        let view = space.view();
        for _ in 0..ROUNDS {
            let mut bytes = [0; 40];
            view.read(0x20_0000, &mut bytes).unwrap();
            let words = bytes.chunks_exact(4).map(|word| <[u8; 4]>::try_from(word).unwrap());
            for (at, word) in words.enumerate().filter(|(at, _)| (1..8).contains(at)) {
                assert!(word.iter().all(|byte| *byte == word[0]), "word {at} is torn: {word:x?}");
            }
            assert_eq!((&bytes[..2], &bytes[34..36]), (&[0, 0][..], &[0, 0][..]), "nobody writes them");
        }
    });
    assert_eq!(memory.load(0x1000 + 36), ROUNDS - 1);
}
