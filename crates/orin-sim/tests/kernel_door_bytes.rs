//! The fuzz target of the door without a fuzzer: the committed seeds, then mutations of them for as long
//! as `NVGPU_FUZZ_SECONDS` says, by default one second.

#[path = "../../../fuzz/src/door.rs"]
mod door;

use std::path::Path;
use std::time::{Duration, Instant};

/// A small generator of random numbers (xorshift), so that a failure repeats with its seed.
struct Random(u64);

impl Random {
    fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % below.max(1) as u64) as usize
    }

    /// Changes, cuts, doubles and crosses inputs.
    fn mutate(&mut self, seeds: &[Vec<u8>]) -> Vec<u8> {
        let mut bytes = seeds[self.next(seeds.len())].clone();
        for _ in 0..=self.next(8) {
            match self.next(5) {
                0 | 1 if !bytes.is_empty() => {
                    let at = self.next(bytes.len());
                    bytes[at] = self.next(256) as u8;
                }
                2 => {
                    let at = self.next(bytes.len() + 1);
                    bytes.insert(at, self.next(256) as u8);
                }
                3 => bytes.truncate(self.next(bytes.len() + 1)),
                _ => {
                    let other = &seeds[self.next(seeds.len())];
                    bytes.extend_from_slice(&other[self.next(other.len() + 1)..]);
                }
            }
        }
        bytes.truncate(4096);
        bytes
    }
}

#[test]
fn arbitrary_bytes_break_nothing() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/door");
    let mut files: Vec<_> = std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    files.sort();
    let mut seeds: Vec<Vec<u8>> = files.iter().map(|file| std::fs::read(file).unwrap()).collect();
    assert!(seeds.len() >= 4, "the seeds are there");
    seeds.iter().for_each(|seed| door::run(seed));
    let seconds = std::env::var("NVGPU_FUZZ_SECONDS").map_or(1, |text| text.parse().unwrap());
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut random = Random(0x9e37_79b9_7f4a_7c15);
    let mut count = 0;
    while Instant::now() < end {
        let bytes = random.mutate(&seeds);
        if let Err(panic) = std::panic::catch_unwind(|| door::run(&bytes)) {
            eprintln!("input {count}: {bytes:?}");
            std::panic::resume_unwind(panic);
        }
        if random.next(64) == 0 && seeds.len() < 256 {
            seeds.push(bytes);
        }
        count += 1;
    }
    assert!(count > 0);
}
