//! Rings against memory that acts as the GPU's side.

use proptest::prelude::*;

use super::*;

/// Memory that acts as ring and USERD, and the GPU's side of it.
struct Fake {
    slots: Vec<u64>,
    userd: Vec<u64>,
}

impl Fake {
    fn new(entries: usize) -> Self {
        Self { slots: vec![u64::MAX; entries], userd: vec![u64::MAX; 64] }
    }

    fn ring(&mut self) -> Ring {
        let entries = u32::try_from(self.slots.len()).unwrap();
        let slots = NonNull::new(self.slots.as_mut_ptr()).unwrap();
        let userd = NonNull::new(self.userd.as_mut_ptr()).unwrap().cast();
        // SAFETY: the vectors outlive the ring in every test and are 8-byte aligned.
        unsafe { Ring::new(slots, userd, entries) }
    }
}

fn word(ring: &Ring, offset: usize) -> u32 {
    // SAFETY: the words lie in the fake's USERD.
    unsafe { ptr::read_volatile(ring.memory.userd_word(offset)) }
}

fn set_get(ring: &Ring, get: u32) {
    // SAFETY: as in `word`.
    unsafe { ptr::write_volatile(ring.memory.userd_word(USERD_GP_GET), get) };
}

fn slot(ring: &Ring, index: usize) -> u64 {
    // SAFETY: the tests index inside the fake's ring.
    unsafe { ptr::read_volatile(ring.slots().as_ptr().add(index)) }
}

#[test]
fn entries_are_published_by_gp_put_alone() {
    let mut fake = Fake::new(4);
    let mut ring = fake.ring();
    assert_eq!((word(&ring, USERD_GP_GET), word(&ring, USERD_GP_PUT)), (0, 0));
    assert_eq!(ring.push(0x11), Ok(0));
    assert_eq!(ring.push(0x22), Ok(1));
    assert_eq!(word(&ring, USERD_GP_PUT), 0);
    ring.publish();
    assert_eq!(word(&ring, USERD_GP_PUT), 2);
    assert_eq!((slot(&ring, 0), slot(&ring, 1)), (0x11, 0x22));
    assert!(!ring.is_drained());
    set_get(&ring, 2);
    assert!(ring.is_drained());
}

#[test]
fn one_slot_stays_unused() {
    for entries in [2_usize, 4, 1024] {
        let mut fake = Fake::new(entries);
        let mut ring = fake.ring();
        for _ in 1..entries {
            ring.push(7).unwrap();
        }
        let full = ring.push(7).unwrap_err();
        assert_eq!((full.put, full.get), (u32::try_from(entries).unwrap() - 1, 0));
        set_get(&ring, 1);
        assert_eq!(ring.push(8), Ok(full.put));
        assert!(ring.push(9).is_err());
    }
}

#[test]
fn a_pair_is_written_whole_or_not_at_all() {
    let mut fake = Fake::new(4);
    let mut ring = fake.ring();
    assert_eq!(ring.push_pair([1, 2]), Ok(0));
    assert!(ring.push_pair([3, 4]).is_err(), "one slot is left");
    assert_eq!((ring.put(), slot(&ring, 2)), (2, u64::MAX));
    set_get(&ring, 1);
    assert_eq!(ring.push_pair([3, 4]), Ok(2));
    assert_eq!((ring.put(), slot(&ring, 2), slot(&ring, 3)), (0, 3, 4));
}

#[test]
fn a_get_outside_the_ring_frees_nothing() {
    let mut fake = Fake::new(2);
    let mut ring = fake.ring();
    ring.push(1).unwrap();
    set_get(&ring, 0xffff_ffff);
    assert_eq!(ring.push(2), Err(RingFull { entries: 2, put: 1, get: 0 }));
}

proptest! {
    /// Compares the ring with a queue that counts without wrapping: every pushed entry is fetched once, in order,
    /// and never more than entries - 1 are in flight.
    #[test]
    fn the_cursor_is_a_bounded_queue(log2 in 1_u32..8, steps in prop::collection::vec(any::<bool>(), 0..600)) {
        let entries = 1_u32 << log2;
        let mut cursor = Cursor::new(entries);
        let (mut pushed, mut fetched) = (0_u32, 0_u32);
        for push in steps {
            if push {
                let room = pushed - fetched < entries - 1;
                cursor.see_get(fetched % entries);
                match cursor.advance() {
                    Ok(slot) => {
                        prop_assert!(room);
                        prop_assert_eq!(slot, pushed % entries);
                        pushed += 1;
                    }
                    Err(full) => {
                        prop_assert!(!room);
                        prop_assert_eq!(full.get, fetched % entries);
                    }
                }
            } else if fetched < pushed {
                fetched += 1;
            }
            prop_assert_eq!(cursor.put(), pushed % entries);
            prop_assert!(cursor.free() < entries);
        }
    }
}

/// Memory of a ring.
struct Memory {
    slots: Vec<u64>,
    userd: Vec<u64>,
    doorbell: Vec<u32>,
}

fn submit_ring() -> (SubmitRing, std::sync::Weak<dyn Any + Send + Sync>) {
    let mut memory = Memory { slots: vec![0; 8], userd: vec![0; 64], doorbell: vec![0] };
    let pointers = SubmitPointers {
        slots: NonNull::new(memory.slots.as_mut_ptr()).unwrap(),
        entries: 8,
        userd: NonNull::new(memory.userd.as_mut_ptr()).unwrap().cast(),
        doorbell: NonNull::new(memory.doorbell.as_mut_ptr()).unwrap(),
        token: 7,
    };
    let owner: Owner = Arc::new(memory);
    let weak = Arc::downgrade(&owner);
    // SAFETY: the owner keeps the vectors.
    (unsafe { SubmitRing::new(pointers, owner) }, weak)
}

#[test]
fn an_entry_that_follows_goes_with_each_submission() {
    let (mut ring, _) = submit_ring();
    assert_eq!(ring.capacity(), 7);
    // SAFETY: no GPU reads the ring.
    unsafe { ring.submit(1) }.unwrap();
    ring.follow_with(9);
    assert_eq!(ring.capacity(), 3);
    // SAFETY: as above.
    unsafe { ring.submit(2) }.unwrap();
    assert_eq!(ring.view().last_entries(7), [1, 2, 9]);
    let userd = ring.view().userd_words();
    assert_eq!((userd.len(), userd[USERD_GP_PUT / 4]), (128, 3));
}

#[test]
fn ring_and_view_keep_the_memory() {
    let (mut ring, memory) = submit_ring();
    let view = ring.view();
    // SAFETY: no GPU reads the ring.
    unsafe { ring.submit(5) }.unwrap();
    drop(ring);
    assert_eq!(view.last_entries(1), [5]);
    assert!(memory.upgrade().is_some());
    drop(view);
    assert!(memory.upgrade().is_none());
}
