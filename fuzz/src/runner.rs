//! Runs a fuzz target without a fuzzer: the committed seeds, then mutations of them for `NVGPU_FUZZ_SECONDS`, by
//! default one second.
//!
//! Inputs with new behaviour are kept and mutated further. `NVGPU_FUZZ_SEED` seeds the random numbers, so that a second
//! long run does not repeat the first.

use std::collections::BTreeSet;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// The behaviour of a target for an input: numbers chosen by the target, one per kind of behaviour.
pub(crate) type Behaviour = BTreeSet<u64>;

/// Maximum input length in bytes, unless a seed is longer.
const INPUT_LIMIT: usize = 4096;

/// A small random number generator (xorshift), so that a failure can be repeated with its seed.
struct Random(u64);

impl Random {
    fn next(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % below.max(1) as u64) as usize
    }

    /// A piece of an input, at most 64 bytes.
    fn piece<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let start = self.next(bytes.len() + 1);
        let len = self.next((bytes.len() - start).min(64) + 1);
        &bytes[start..start + len]
    }

    /// Changes, cuts, duplicates and crosses inputs.
    fn mutate(&mut self, inputs: &[Vec<u8>]) -> Vec<u8> {
        const EDGES: [u8; 6] = [0, 1, 0x10, 0x7f, 0x80, 0xff];
        let mut bytes = inputs[self.next(inputs.len())].clone();
        for _ in 0..=self.next(8) {
            let at = self.next(bytes.len() + 1);
            match self.next(8) {
                0 | 1 if at < bytes.len() => bytes[at] = self.next(256) as u8,
                2 if at < bytes.len() => bytes[at] = EDGES[self.next(EDGES.len())],
                3 => bytes.insert(at, self.next(256) as u8),
                4 => {
                    let end = at + self.next((bytes.len() - at).min(64) + 1);
                    bytes.drain(at..end);
                }
                5 if self.next(4) == 0 => bytes.truncate(at),
                6 => {
                    let other = self.next(inputs.len());
                    bytes.extend_from_slice(&inputs[other][self.next(inputs[other].len() + 1)..]);
                }
                _ => {
                    let other = self.next(inputs.len());
                    let piece = self.piece(&inputs[other]).to_vec();
                    bytes.splice(at..at, piece);
                }
            }
        }
        bytes
    }
}

/// Reads the seeds at a path: a file, or all files of a folder in the order of their names.
fn read(path: &Path) -> Vec<Vec<u8>> {
    let mut files = match path.is_dir() {
        true => std::fs::read_dir(path).unwrap().map(|file| file.unwrap().path()).collect(),
        false => vec![path.to_owned()],
    };
    files.sort();
    files.iter().map(|file| std::fs::read(file).unwrap()).collect()
}

/// Runs the target on the seeds in files and folders, and on mutations of them.
///
/// # Panics
///
/// Panics if the target panics, after printing the input and the shortest failing input that was found.
pub(crate) fn run(seeds: &[PathBuf], target: fn(&[u8]) -> Behaviour) {
    let number = |name| std::env::var(name).ok().map(|text| text.parse::<u64>().unwrap());
    let mut inputs: Vec<Vec<u8>> = seeds.iter().flat_map(|path| read(path)).collect();
    assert!(inputs.len() >= 4, "the seeds are in {seeds:?}");
    let longest = inputs.iter().map(Vec::len).max().unwrap_or(0).max(INPUT_LIMIT);
    let at_start = inputs.len();
    let mut seen: Behaviour = inputs.iter().flat_map(|seed| target(seed)).collect();
    let seen_at_start = seen.len();
    let seed = number("NVGPU_FUZZ_SEED").unwrap_or(0x9e37_79b9_7f4a_7c15).max(1);
    let mut random = Random(seed);
    let (mut count, mut slowest) = (0_u64, Duration::ZERO);
    let start = Instant::now();
    let limit = Duration::from_secs(number("NVGPU_FUZZ_SECONDS").unwrap_or(1));
    while count == 0 || start.elapsed() < limit {
        let mut bytes = random.mutate(&inputs);
        bytes.truncate(longest);
        let began = Instant::now();
        match catch_unwind(|| target(&bytes)) {
            Ok(behaviour) => {
                let before = seen.len();
                seen.extend(behaviour);
                if seen.len() > before {
                    inputs.push(bytes);
                }
            }
            Err(panic) => {
                eprintln!("input {count} of seed {seed:#x}: {}", bytes.escape_ascii());
                eprintln!("shortest that fails: {}", shorten(bytes, target).escape_ascii());
                std::panic::resume_unwind(panic);
            }
        }
        slowest = slowest.max(began.elapsed());
        count += 1;
    }
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{count} inputs in {seconds:.0} s, {:.0} a second, the slowest {} ms; seed {seed:#x}",
        count as f64 / seconds,
        slowest.as_millis(),
    );
    println!(
        "{at_start} seeds with {seen_at_start} behaviours at start; kept {} inputs for {} more",
        inputs.len() - at_start,
        seen.len() - seen_at_start,
    );
}

/// Shortens an input that makes the target panic, while it still panics.
fn shorten(mut bytes: Vec<u8>, target: fn(&[u8]) -> Behaviour) -> Vec<u8> {
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let mut length = bytes.len() / 2;
    while length > 0 {
        let mut at = 0;
        while at + length <= bytes.len() {
            let mut shorter = bytes.clone();
            shorter.drain(at..at + length);
            if catch_unwind(|| target(&shorter)).is_err() {
                bytes = shorter;
            } else {
                at += length;
            }
        }
        length /= 2;
    }
    std::panic::set_hook(hook);
    bytes
}
