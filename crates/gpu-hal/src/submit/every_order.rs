//! Model check of the ring between a CPU thread and a thread that acts as the GPU, over every order of their accesses
//! that the memory model allows.
//!
//! Run with `RUSTFLAGS="--cfg loom" cargo test -p gpu-queue-hal --lib --release every_order`.

use loom::sync::Arc;
use loom::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use loom::thread;

use super::{Cursor, Words, publish, push};

/// A ring and its USERD. The CPU's accesses are relaxed, like volatile ones; only the barrier orders them.
struct Shared<const ENTRIES: usize> {
    slots: [AtomicU64; ENTRIES],
    put: AtomicU32,
    get: AtomicU32,
}

impl<const ENTRIES: usize> Shared<ENTRIES> {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            slots: std::array::from_fn(|_| AtomicU64::new(0)),
            put: AtomicU32::new(0),
            get: AtomicU32::new(0),
        })
    }
}

impl<const ENTRIES: usize> Words for Shared<ENTRIES> {
    fn gp_get(&self) -> u32 {
        self.get.load(Ordering::Relaxed)
    }

    fn set_gp_put(&self, put: u32) {
        self.put.store(put, Ordering::Relaxed);
    }

    fn set_slot(&self, slot: u32, entry: u64) {
        self.slots[slot as usize].store(entry, Ordering::Relaxed);
    }
}

/// Three entries through a ring with room for one. Each is fetched as written, in order and once, and no slot is
/// overwritten before its last entry was fetched.
#[test]
fn entries_arrive_once_and_in_order() {
    loom::model(|| {
        let shared = Shared::<2>::new();
        let gpu = thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                let mut fetched = Vec::new();
                for entry in 0..3 {
                    let get = entry % 2;
                    while shared.put.load(Ordering::Acquire) == get {
                        thread::yield_now();
                    }
                    // The GPU fetches an entry before it frees the slot.
                    fetched.push(shared.slots[get as usize].load(Ordering::Relaxed));
                    shared.get.store((get + 1) % 2, Ordering::Release);
                }
                fetched
            }
        });
        let mut cursor = Cursor::new(2);
        for entry in 1..=3 {
            while push(&mut cursor, &*shared, entry).is_err() {
                thread::yield_now();
            }
            publish(&cursor, &*shared);
        }
        assert_eq!(gpu.join().unwrap(), [1, 2, 3]);
    });
}

/// Several entries published at once: for any GP_PUT that the GPU reads, it also reads the entries before it.
#[test]
fn a_published_batch_is_whole() {
    loom::model(|| {
        let shared = Shared::<4>::new();
        let gpu = thread::spawn({
            let shared = Arc::clone(&shared);
            move || {
                let put = shared.put.load(Ordering::Acquire);
                (0..put as usize).map(|slot| shared.slots[slot].load(Ordering::Relaxed)).collect::<Vec<_>>()
            }
        });
        let mut cursor = Cursor::new(4);
        for batch in [&[1_u64, 2][..], &[3]] {
            for entry in batch {
                push(&mut cursor, &*shared, *entry).unwrap();
            }
            publish(&cursor, &*shared);
        }
        let seen = gpu.join().unwrap();
        assert!([0, 2, 3].contains(&seen.len()), "{seen:?}");
        assert_eq!(seen, [1, 2, 3][..seen.len()]);
    });
}
