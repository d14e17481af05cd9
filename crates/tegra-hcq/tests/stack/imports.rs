//! Memory of the process, used by the GPU in place.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, ExitStatus};
use std::ptr::NonNull;

use memmap2::MmapOptions;
use rustix::mm::{MapFlags, ProtFlags};
use tegra_hcq::{Buffer, args};
use test_support::{Bench, TIMEOUT};

/// Elements of the file: two pages and a part of a third.
const COUNT: u32 = 2100;

#[test]
fn a_mapped_file_is_changed_in_place() {
    let mut bench = Bench::new("basics");
    let file = tempfile::tempfile().unwrap();
    file.set_len(u64::from(COUNT) * 4).unwrap();
    // SAFETY: no other process knows the file, and this test does not shorten it.
    let mut mapping = unsafe { MmapOptions::new().map_mut(&file).unwrap() };
    for (at, word) in mapping.chunks_exact_mut(4).enumerate() {
        word.copy_from_slice(&(7 * at as u32).to_ne_bytes());
    }
    let pointer = NonNull::new(mapping.as_mut_ptr()).unwrap().cast::<u32>();
    {
        // SAFETY: the mapping outlives the buffer and its work, and nothing accesses it meanwhile.
        let mut weights = unsafe { bench.device.import_raw(pointer, COUNT as usize).unwrap() };
        unsafe { bench.run("increment", COUNT.div_ceil(256), 256, &args![&mut weights, COUNT]) };
        assert_eq!(weights.slice(1..3).unwrap().to_vec().unwrap(), [8, 15]);
    }
    let read: Vec<u32> =
        mapping.chunks_exact(4).map(|word| u32::from_ne_bytes(word.try_into().unwrap())).collect();
    assert!(read.iter().zip(0..).all(|(value, at)| *value == 7 * at + 1), "{:?}", &read[..8]);

    let inside = NonNull::new(mapping.as_mut_ptr().wrapping_add(4)).unwrap().cast::<u32>();
    // SAFETY: as above.
    let error = unsafe { bench.device.import_raw(inside, 1) }.unwrap_err().to_string();
    assert!(error.contains("page"), "{error}");
}

/// Names the test to the process that [`alone`] starts.
const CHILD: &str = "STACK_TEST_CHILD";

/// Runs the test `name` of this module once more, in a process of its own. `None` in that process.
fn alone(name: &str) -> Option<ExitStatus> {
    if std::env::var_os(CHILD).is_some() {
        return None;
    }
    let program = std::env::current_exe().unwrap();
    let test = format!("imports::{name}");
    Some(Command::new(program).args(["--exact", &test]).env(CHILD, "1").status().unwrap())
}

/// Private pages, and a buffer over them.
fn private(bench: &Bench) -> (NonNull<u32>, Buffer<u32>) {
    let (len, protection) = (COUNT as usize * 4, ProtFlags::READ | ProtFlags::WRITE);
    // SAFETY: a new anonymous mapping.
    let own =
        unsafe { rustix::mm::mmap_anonymous(core::ptr::null_mut(), len, protection, MapFlags::PRIVATE) };
    let pointer = NonNull::new(own.unwrap().cast()).unwrap();
    // SAFETY: the process uses the addresses for nothing else until the buffer is gone.
    let buffer = unsafe { bench.device.import_raw(pointer, COUNT as usize) }.unwrap();
    (pointer, buffer)
}

fn unmap(pointer: NonNull<u32>) {
    // SAFETY: the program does not use the memory any more.
    unsafe { rustix::mm::munmap(pointer.as_ptr().cast(), COUNT as usize * 4) }.unwrap();
}

/// As on a board, where the pages are pinned: the GPU goes on with pages that the process has unmapped.
#[test]
fn private_memory_may_be_unmapped_before_the_gpu_is_done() {
    if let Some(status) = alone("private_memory_may_be_unmapped_before_the_gpu_is_done") {
        assert!(status.success(), "{status}");
        return;
    }
    let mut bench = Bench::new("basics");
    let (pointer, mut launched) = private(&bench);
    let increment = bench.program.kernel("increment").unwrap();
    unsafe { bench.queue.launch(&increment, COUNT.div_ceil(256), 256, &args![&mut launched, COUNT]) }
        .unwrap();
    unmap(pointer);
    bench.queue.submit().unwrap().wait(TIMEOUT).unwrap();

    let (pointer, mut copied) = private(&bench);
    let source = bench.device.alloc_from(&vec![7_u32; COUNT as usize]).unwrap();
    let mut back = bench.device.alloc_zeroed::<u32>(COUNT as usize).unwrap();
    unmap(pointer);
    bench.queue.copy(&source, &mut copied).unwrap();
    bench.queue.copy(&copied, &mut back).unwrap();
    bench.queue.submit().unwrap().wait(TIMEOUT).unwrap();
    assert_eq!(back.to_vec().unwrap(), vec![7; COUNT as usize], "the GPU reads what it wrote");

    drop((launched, copied));
    let (len, flags) = (COUNT as usize * 4, MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE);
    // SAFETY: the flag leaves existing mappings alone.
    let again = unsafe { rustix::mm::mmap_anonymous(pointer.as_ptr().cast(), len, ProtFlags::READ, flags) };
    assert_eq!(again.unwrap(), pointer.as_ptr().cast(), "the model has returned the addresses");
}

#[test]
fn an_access_of_the_program_to_unmapped_imported_memory_ends_it() {
    if let Some(status) = alone("an_access_of_the_program_to_unmapped_imported_memory_ends_it") {
        assert_eq!(status.signal(), Some(11), "{status}");
        return;
    }
    let bench = Bench::new("basics");
    let (pointer, _buffer) = private(&bench);
    unmap(pointer);
    // SAFETY: none; the access is expected to end the process.
    unsafe { pointer.as_ptr().write_volatile(1) };
}
