//! Concurrent allocation, mapping, unmapping and freeing, in a separate process so that its descriptors can be
//! counted.

mod common;

use std::sync::Arc;
use std::time::{Duration, Instant};

use common::open;
use nvgpu_channel::MapOptions;

const PAGE: u64 = 4096;
/// Time for descriptors of other origin to close; leaked ones stay open.
const SETTLE: Duration = Duration::from_secs(5);

/// Two threads allocate, map and free in 5,000 cycles each. Nothing may be left on the board or in the process.
#[test]
fn ten_thousand_cycles_of_two_threads_leave_nothing() {
    const CYCLES: usize = 5_000;
    let (orin, gpu) = open();
    let space = gpu.address_space().unwrap();
    let range = space.reserve(1 << 24, false).unwrap();
    let shared = Arc::new(gpu.nvmap().buffer(4 * PAGE).label("shared").allocate().unwrap());
    let before = orin.live();
    let descriptors = open_descriptors();
    let work = |seed: usize| {
        for cycle in 0..CYCLES {
            let size = 1 + (cycle * 7 + seed) as u64 % 5;
            let buffer = Arc::new(gpu.nvmap().buffer(size * PAGE).allocate().unwrap());
            buffer.write_u32(0, 1);
            let automatic = space.map(&buffer, MapOptions::default()).unwrap();
            // One half of the range for each thread.
            let offset = if seed == 0 { 0 } else { range.len() / 2 };
            let placed = range.map(offset, &buffer, 0, size * PAGE, MapOptions::default()).unwrap();
            assert_ne!(automatic.va(), placed.va());
            // The same buffer in both threads: the kernel counts how often it was mapped.
            let common = space.map(&shared, MapOptions::default()).unwrap();
            if cycle % 2 == 0 {
                drop(buffer);
                drop((automatic, placed, common));
            } else {
                space.unmap_batch(vec![common, placed, automatic]).unwrap();
            }
        }
    };
    std::thread::scope(|threads| {
        threads.spawn(|| work(0));
        threads.spawn(|| work(3));
    });
    assert_eq!(orin.live(), before);
    // An emulator of system calls opens and closes its own descriptors with its threads.
    let end = Instant::now() + SETTLE;
    while open_descriptors() > descriptors && Instant::now() < end {
        std::thread::sleep(Duration::from_millis(10));
    }
    assert!(open_descriptors() <= descriptors, "{} descriptors, {descriptors} before", open_descriptors());
}

/// Number of open descriptors of the process, including the directory being read.
fn open_descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}
