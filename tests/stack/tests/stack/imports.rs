//! Memory of the process, used by the GPU in place.

use std::ptr::NonNull;

use memmap2::MmapOptions;
use tegra_hcq::args;
use test_support::Bench;

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
