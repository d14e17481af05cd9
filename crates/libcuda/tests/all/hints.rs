//! Hints about managed memory, and questions about them.

use crate::support::*;
use crate::sweep::{call, make};

fn at<T>(list: &[T]) -> u64 {
    list.as_ptr().expose_provenance() as u64
}

#[test]
fn managed_memory_answers_with_the_hints_that_all_of_it_has() {
    let _setup = Setup::new();
    let memory = make("cuMemAllocManaged", [8192, 1]);
    let attribute = |attribute: u64, from: u64, bytes: u64| {
        let mut value = [9_i32];
        ok(call("cuMemRangeGetAttribute", [place(&mut value), 4, attribute, memory + from, bytes]));
        value[0]
    };
    let all = || [1, 2, 3, 4, 5, 7].map(|number| attribute(number, 0, 8192));
    assert_eq!(all(), [0, -2, -2, -2, 0, 0]);
    // Read mostly; preferred on the device; accessed by the CPU; prefetched to the CPU. CUmemLocation: type, number.
    ok(call("cuMemAdvise", [memory, 8192, 1, u64::MAX]));
    ok(call("cuMemAdvise", [memory, 4096, 3, 0]));
    ok(call("cuMemAdvise_v2", [memory, 8192, 5, 2]));
    ok(call("cuMemPrefetchAsync", [memory, 8192, u64::from(u32::MAX), 0]));
    assert_eq!(all(), [1, -2, -1, -1, 0, 2]);
    assert_eq!([2, 5, 6].map(|number| attribute(number, 0, 4096)), [0, 1, 0]);
    ok(call("cuMemAdvise_v2", [memory + 4096, 4096, 3, 1]));
    ok(call("cuMemAdvise", [memory, 8192, 2, 0]));
    ok(call("cuMemPrefetchAsync_v2", [memory + 8, 8, 1, 0, 0]));
    assert_eq!(all(), [0, 0, -1, -2, 1, 0]);
    assert_eq!(attribute(4, 8, 8), 0);
    // Several at once; of the devices, as many as there is room for.
    ok(call("cuMemAdvise", [memory, 8192, 5, 0]));
    let (mut devices, mut preferred) = ([9_i32; 3], [9_i32]);
    let places = [place(&mut devices), place(&mut preferred)];
    let list = |rooms: &[u64]| [at(&places), at(rooms), at(&[3_u32, 2]), 2, memory, 8192];
    ok(call("cuMemRangeGetAttributes", list(&[12, 4])));
    assert_eq!((devices, preferred), ([0, -1, -2], [0]));
    gives(call("cuMemRangeGetAttributes", list(&[12, 8])), 1);

    for (attribute, bytes, room) in
        [(0, 8192, 4), (9, 8192, 4), (1, 8193, 4), (1, 0, 4), (1, 8, 8), (3, 8, 0)]
    {
        gives(call("cuMemRangeGetAttribute", [place(&mut preferred), room, attribute, memory, bytes]), 1);
    }
    gives(call("cuMemAdvise", [memory, 8193, 1, 0]), 1);
    gives(call("cuMemAdvise", [memory, 8192, 3, 7]), 101);
    gives(call("cuMemAdvise_v2", [memory, 8192, 3, 9]), 1);
    gives(call("cuMemAdvise", [upload(&[0.0; 8]), 8, 1, 0]), 1);
}

#[test]
fn batches_prefetch_each_range_to_its_place() {
    let _setup = Setup::new();
    let memory = make("cuMemAllocManaged", [8192, 1]);
    let target = |from: u64| {
        let mut value = [9_i32];
        ok(call("cuMemRangeGetAttribute", [place(&mut value), 4, 4, memory + from, 1024]));
        value[0]
    };
    let ranges = [memory, memory + 1024, memory + 2048];
    let sizes = [1024_u64; 3];
    // The device and the host, as CUmemLocation.
    let places = [1_u64, 2];
    let batch = |symbol, starts: &[u64], count: u64, flags: u64| {
        call(symbol, [at(&ranges), at(&sizes), count, at(&places), at(starts), starts.len() as u64, flags, 0])
    };
    for symbol in ["cuMemPrefetchBatchAsync", "cuMemDiscardAndPrefetchBatchAsync"] {
        ok(batch(symbol, &[0, 2], 3, 0));
        assert_eq!([0, 1024, 2048].map(target), [0, 0, -1]);
        ok(batch(symbol, &[0], 3, 0));
        assert_eq!([0, 1024, 2048].map(target), [0; 3]);
        // No range, no place, a range without a place, places for no range, flags.
        let none: &[u64] = &[];
        let wrong =
            [(none, 0, 0), (none, 3, 0), (&[1], 3, 0), (&[0, 3], 3, 0), (&[0, 0], 3, 0), (&[0], 3, 1)];
        for (starts, count, flags) in wrong {
            gives(batch(symbol, starts, count, flags), 1);
        }
    }
    ok(call("cuMemDiscardBatchAsync", [at(&ranges), at(&sizes), 3, 0, 0]));
    // Across the end: right behind it, another test may have memory.
    gives(call("cuMemDiscardBatchAsync", [at(&[memory + 8191]), at(&sizes), 1, 0, 0]), 1);
    gives(call("cuMemDiscardBatchAsync", [at(&ranges), at(&sizes), 0, 0, 0]), 1);
}
