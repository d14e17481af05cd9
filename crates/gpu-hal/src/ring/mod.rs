//! The GPFIFO ring.
//!
//! Ownership: the ring has `entries` slots. GP_PUT, at 0x8C of USERD, is written by the CPU:
//! the slot after the last valid entry. GP_GET, at 0x88, is written by the GPU: the next slot it
//! will fetch (`hw_ram_ga10b.h`). Slots from GP_GET up to GP_PUT belong to the GPU, the others to
//! the CPU. Equal pointers mean empty, so one slot always stays unused: the ring is full when
//! GP_PUT + 1 equals GP_GET.
//!
//! [`Cursor`] is only that arithmetic; [`Ring`] applies it to memory. The order of reads and writes is implemented
//! once, generic over the words: for the memory of a ring, and for the words of a test that explores every order in
//! which the GPU can see them.

use core::ptr::{self, NonNull};

use crate::barrier;

/// Offset of GP_GET in USERD, in bytes.
pub const USERD_GP_GET: usize = 0x88;
/// Offset of GP_PUT in USERD, in bytes.
pub const USERD_GP_PUT: usize = 0x8c;
/// Smallest number of entries of a ring for submissions from user space.
pub const MIN_ENTRIES: u32 = 2;

/// The ring has no free slot: the GPU has not fetched what was submitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the GPFIFO ring of {entries} entries is full (GP_PUT {put}, GP_GET {get}): the GPU is behind, or stuck"
)]
pub struct RingFull {
    /// Entries of the ring.
    pub entries: u32,
    /// GP_PUT.
    pub put: u32,
    /// GP_GET as last read.
    pub get: u32,
}

/// The write position of a ring.
///
/// ```
/// use gpu_hal::ring::Cursor;
///
/// let mut cursor = Cursor::new(4);
/// // One entry stays free.
/// for _ in 0..3 {
///     cursor.advance().unwrap();
/// }
/// assert!(cursor.advance().is_err());
/// cursor.see_get(1);
/// assert!(cursor.advance().is_ok());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cursor {
    entries: u32,
    put: u32,
    get: u32,
}

impl Cursor {
    /// A position at slot 0 of an empty ring.
    ///
    /// # Panics
    ///
    /// If `entries` is not a power of two of at least 2.
    pub fn new(entries: u32) -> Self {
        // PANIC: rings are checked before their memory is allocated.
        assert!(entries.is_power_of_two() && entries >= MIN_ENTRIES, "ring of {entries} entries");
        Self { entries, put: 0, get: 0 }
    }

    /// Slots of the ring.
    pub fn entries(&self) -> u32 {
        self.entries
    }

    /// The slot that the next entry goes to; the value for GP_PUT.
    pub fn put(&self) -> u32 {
        self.put
    }

    /// Number of free slots, by the GP_GET seen last.
    pub fn free(&self) -> u32 {
        self.get.wrapping_sub(self.put).wrapping_sub(1) & (self.entries - 1)
    }

    /// Updates GP_GET. A value outside the ring is ignored; no entry then counts as fetched.
    pub fn see_get(&mut self, get: u32) {
        if get < self.entries {
            self.get = get;
        }
    }

    /// Takes the next slot.
    ///
    /// # Errors
    ///
    /// [`RingFull`] if the ring is full by the GP_GET seen last.
    pub fn advance(&mut self) -> Result<u32, RingFull> {
        if self.free() == 0 {
            return Err(self.full());
        }
        let slot = self.put;
        self.put = (slot + 1) & (self.entries - 1);
        Ok(slot)
    }

    fn full(&self) -> RingFull {
        RingFull { entries: self.entries, put: self.put, get: self.get }
    }
}

/// The words shared by CPU and GPU.
trait Words {
    /// Reads GP_GET.
    fn gp_get(&self) -> u32;

    /// Writes GP_PUT.
    fn set_gp_put(&self, put: u32);

    /// Writes the entry of a slot, an index below the number of entries.
    fn set_slot(&self, slot: u32, entry: u64);
}

/// Takes the next slot and writes an entry into it. Reads GP_GET only if the ring looks full.
#[inline]
fn push(cursor: &mut Cursor, words: &impl Words, entry: u64) -> Result<u32, RingFull> {
    if cursor.free() == 0 {
        cursor.see_get(words.gp_get());
    }
    let slot = cursor.advance()?;
    words.set_slot(slot, entry);
    Ok(slot)
}

/// Publishes every pushed entry to the GPU: orders the entries, then stores GP_PUT.
#[inline]
fn publish(cursor: &Cursor, words: &impl Words) {
    barrier::before_put();
    words.set_gp_put(cursor.put());
}

/// A ring in memory, with its USERD.
///
/// Not `Sync`: one producer at a time.
#[derive(Debug)]
pub struct Ring {
    memory: RingMemory,
    cursor: Cursor,
}

/// Memory of a ring and its USERD; valid as long as the contract of [`Ring::new`] requires.
#[derive(Debug)]
struct RingMemory {
    slots: NonNull<u64>,
    userd: NonNull<u8>,
}

impl RingMemory {
    fn userd_word(&self, offset: usize) -> *mut u32 {
        // SAFETY: both offsets lie in the 512 bytes of USERD.
        unsafe { self.userd.as_ptr().add(offset) }.cast()
    }
}

impl Words for RingMemory {
    #[inline]
    fn gp_get(&self) -> u32 {
        // SAFETY: the word lies in USERD, valid as long as the ring by the contract of `Ring::new`.
        unsafe { ptr::read_volatile(self.userd_word(USERD_GP_GET)) }
    }

    #[inline]
    fn set_gp_put(&self, put: u32) {
        // SAFETY: as in `gp_get`.
        unsafe { ptr::write_volatile(self.userd_word(USERD_GP_PUT), put) };
    }

    #[inline]
    fn set_slot(&self, slot: u32, entry: u64) {
        // CAST: a slot index fits a usize on every supported target.
        let offset = slot as usize;
        // SAFETY: `slot` comes from the cursor, so it is below `entries`, for which the memory is valid
        // by the contract of `Ring::new`; it belongs to the CPU, since it is outside GP_GET..GP_PUT.
        unsafe { ptr::write_volatile(self.slots.as_ptr().add(offset), entry) };
    }
}

// SAFETY: the pointers are address ranges of the whole process; the owner of the ring is its only producer, in any
// thread.
unsafe impl Send for Ring {}

impl Ring {
    /// A ring over memory, with GP_PUT and GP_GET at 0.
    ///
    /// # Panics
    ///
    /// If `entries` is not a power of two of at least 2.
    ///
    /// # Safety
    ///
    /// `slots` is valid for volatile writes of `entries` 8-byte words and `userd` for volatile
    /// accesses of 512 bytes, both 8-byte aligned, as long as the ring lives. Only the GPU and this
    /// ring write them.
    pub unsafe fn new(slots: NonNull<u64>, userd: NonNull<u8>, entries: u32) -> Self {
        let memory = RingMemory { slots, userd };
        // SAFETY: the word lies in USERD, which the caller guarantees to be valid.
        unsafe { ptr::write_volatile(memory.userd_word(USERD_GP_GET), 0) };
        memory.set_gp_put(0);
        Self { memory, cursor: Cursor::new(entries) }
    }

    /// Slots of the ring.
    pub fn entries(&self) -> u32 {
        self.cursor.entries()
    }

    /// The slot that the next entry goes to.
    pub fn put(&self) -> u32 {
        self.cursor.put()
    }

    /// Reads GP_GET: the slot that the GPU fetches next.
    #[inline]
    pub fn gp_get(&self) -> u32 {
        self.memory.gp_get()
    }

    /// Whether the GPU has fetched every published entry. It may still be executing them.
    pub fn is_drained(&self) -> bool {
        self.gp_get() == self.cursor.put()
    }

    /// Writes an entry into the next slot; [`Ring::publish`] hands it to the GPU. GP_GET is read
    /// only when the ring looks full, since reading write-combined memory is slow.
    ///
    /// # Errors
    ///
    /// [`RingFull`] if the ring is full; nothing is written in that case.
    #[inline]
    pub fn push(&mut self, entry: u64) -> Result<u32, RingFull> {
        push(&mut self.cursor, &self.memory, entry)
    }

    /// Writes two entries into the next slots, or none. As [`Ring::push`] otherwise; returns the first slot.
    ///
    /// # Errors
    ///
    /// [`RingFull`] if there is no room for both; nothing is written in that case.
    #[inline]
    pub fn push_pair(&mut self, entries: [u64; 2]) -> Result<u32, RingFull> {
        if self.cursor.free() < 2 {
            self.cursor.see_get(self.memory.gp_get());
            if self.cursor.free() < 2 {
                return Err(self.cursor.full());
            }
        }
        let slot = self.push(entries[0])?;
        self.push(entries[1])?;
        Ok(slot)
    }

    /// Publishes every pushed entry to the GPU: orders the entries, then stores GP_PUT. The GPU reads GP_PUT after the
    /// doorbell.
    #[inline]
    pub fn publish(&mut self) {
        publish(&self.cursor, &self.memory);
    }

    /// First slot, for hot paths outside this crate.
    pub fn slots(&self) -> NonNull<u64> {
        self.memory.slots
    }

    /// USERD, for hot paths outside this crate.
    pub fn userd(&self) -> NonNull<u8> {
        self.memory.userd
    }
}

#[cfg(all(test, loom))]
mod every_order;

#[cfg(test)]
mod tests {
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
}
