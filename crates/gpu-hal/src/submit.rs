//! Submission: ring entry, GP_PUT, doorbell.
//!
//! Ownership of the GPFIFO ring: it has `entries` slots. GP_PUT, at 0x8C of USERD, is written by the CPU: the slot
//! after the last valid entry. GP_GET, at 0x88, is written by the GPU: the next slot it will fetch (`hw_ram_ga10b.h`).
//! Slots from GP_GET up to GP_PUT belong to the GPU, the others to the CPU. Equal pointers mean empty, so one slot
//! always stays unused: the ring is full when GP_PUT + 1 equals GP_GET.
//!
//! [`Cursor`] is only that arithmetic, [`Ring`] applies it to memory, [`SubmitRing`] adds the doorbell. The order of
//! reads and writes is implemented once, generic over the words: for the memory of a ring, and for the words of a test
//! that explores every order in which the GPU can see them.

use core::any::Any;
use core::fmt;
use core::ptr::{self, NonNull};
use std::sync::Arc;

use crate::barrier;

/// The owner that keeps ring, USERD and doorbell mapped: usually the channel group.
pub type Owner = Arc<dyn Any + Send + Sync>;

/// The addresses of a channel's ring and doorbell.
#[derive(Clone, Copy, Debug)]
pub struct SubmitPointers {
    /// First slot of the GPFIFO ring.
    pub slots: NonNull<u64>,
    /// Number of slots, a power of two of at least 2.
    pub entries: u32,
    /// The channel's USERD, 512 bytes.
    pub userd: NonNull<u8>,
    /// The doorbell register.
    pub doorbell: NonNull<u32>,
    /// The value that is written to the doorbell: the channel's work-submit token.
    pub token: u32,
}

/// A GPFIFO ring with its doorbell: all memory that a submission writes. It keeps that memory alive.
pub struct SubmitRing {
    ring: Ring,
    doorbell: NonNull<u32>,
    token: u32,
    /// The entry that follows each pushed entry.
    follow: Option<u64>,
    /// Commands, ring and USERD are write-combined, on a CPU whose usual barriers do not order such stores.
    write_combined: bool,
    owner: Owner,
}

// SAFETY: the doorbell is a device register that any thread may write, `owner` keeps it mapped; the ring is `Send`
// itself.
unsafe impl Send for SubmitRing {}
// SAFETY: `&SubmitRing` only reads the number of entries and copies pointers.
unsafe impl Sync for SubmitRing {}

impl fmt::Debug for SubmitRing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { ring, token, follow, write_combined, .. } = self;
        f.debug_struct("SubmitRing")
            .field("entries", &ring.entries())
            .field("put", &ring.put())
            .field("token", token)
            .field("follow", follow)
            .field("write_combined", write_combined)
            .finish_non_exhaustive()
    }
}

impl SubmitRing {
    /// A ring over the memory of a channel, with GP_PUT and GP_GET at 0.
    ///
    /// # Panics
    ///
    /// If the number of entries is not a power of two of at least 2.
    ///
    /// # Safety
    ///
    /// As long as `owner` lives, the slots are valid for volatile writes of `entries` words, USERD for volatile
    /// accesses of 512 bytes, both 8-byte aligned, and the doorbell for volatile stores. Only the GPU and this ring
    /// write slots and USERD.
    pub unsafe fn new(pointers: SubmitPointers, owner: Owner) -> Self {
        let SubmitPointers { slots, entries, userd, doorbell, token } = pointers;
        // SAFETY: the caller's promise is passed on; `owner` lives as long as the ring.
        let ring = unsafe { Ring::new(slots, userd, entries) };
        Self { ring, doorbell, token, follow: None, write_combined: false, owner }
    }

    /// Declares commands, ring and USERD as write-combined: a submission then drains their stores.
    #[must_use]
    pub fn write_combined(self) -> Self {
        Self { write_combined: true, ..self }
    }

    /// Pushes `entry` after each entry from now on.
    pub fn follow_with(&mut self, entry: u64) {
        self.follow = Some(entry);
    }

    /// Number of submissions that fit the ring.
    pub fn capacity(&self) -> u32 {
        // One slot stays unused.
        (self.ring.entries() - 1) / if self.follow.is_some() { 2 } else { 1 }
    }

    /// A view of the ring for fault reports.
    pub fn view(&self) -> RingView {
        RingView {
            slots: self.ring.slots(),
            userd: self.ring.userd(),
            entries: self.ring.entries(),
            _owner: Arc::clone(&self.owner),
        }
    }

    /// Gives one entry to the GPU: entry, barrier, GP_PUT, barrier, doorbell.
    ///
    /// # Errors
    ///
    /// [`RingFull`]; nothing is written then.
    ///
    /// # Safety
    ///
    /// As [`SubmitRing::push`].
    #[inline]
    pub unsafe fn submit(&mut self, entry: u64) -> Result<(), RingFull> {
        // SAFETY: the caller's promise.
        unsafe { self.push(entry)? };
        self.publish();
        Ok(())
    }

    /// Writes one entry, and the one that follows it; [`SubmitRing::publish`] gives them to the GPU.
    ///
    /// # Errors
    ///
    /// [`RingFull`]; nothing is written then.
    ///
    /// # Safety
    ///
    /// The commands at the entry, and at the one that follows it, write no memory that a reference covers and read none
    /// that an exclusive reference covers, from [`SubmitRing::publish`] until the GPU has executed them.
    #[inline]
    pub unsafe fn push(&mut self, entry: u64) -> Result<(), RingFull> {
        match self.follow {
            None => self.ring.push(entry),
            Some(follow) => self.ring.push_pair([entry, follow]),
        }
        .map(drop)
    }

    /// Gives the pushed entries to the GPU: barrier, GP_PUT, barrier, doorbell.
    #[inline]
    pub fn publish(&mut self) {
        if self.write_combined {
            barrier::drain_write_combining();
            self.ring.publish();
            barrier::drain_write_combining();
        } else {
            self.ring.publish();
            barrier::before_doorbell();
        }
        // SAFETY: valid for stores by the contract of `new`, as `self.owner` lives.
        unsafe { self.doorbell.as_ptr().write_volatile(self.token) };
    }
}

/// A read-only view of a ring; keeps the ring mapped.
#[derive(Clone)]
pub struct RingView {
    slots: NonNull<u64>,
    userd: NonNull<u8>,
    entries: u32,
    _owner: Owner,
}

// SAFETY: the addresses are of memory that any thread may read and that `_owner` keeps mapped.
unsafe impl Send for RingView {}
// SAFETY: as for `Send`.
unsafe impl Sync for RingView {}

impl fmt::Debug for RingView {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RingView").field("entries", &self.entries).finish_non_exhaustive()
    }
}

impl RingView {
    /// The 128 words of USERD. GP_GET is at byte [`USERD_GP_GET`], GP_PUT at byte
    /// [`USERD_GP_PUT`].
    pub fn userd_words(&self) -> Vec<u32> {
        // SAFETY: USERD has 512 bytes, mapped as `_owner` lives.
        (0..128).map(|word| unsafe { self.userd.as_ptr().cast::<u32>().add(word).read_volatile() }).collect()
    }

    /// The `count` entries written last, oldest first.
    pub fn last_entries(&self, count: u32) -> Vec<u64> {
        // SAFETY: USERD has 512 bytes, mapped as `_owner` lives.
        let put = unsafe { self.userd.as_ptr().add(USERD_GP_PUT).cast::<u32>().read_volatile() };
        let count = count.min(self.entries - 1);
        (1..=count)
            .rev()
            // The ring's size is a power of two.
            .map(|back| put.wrapping_sub(back) & (self.entries - 1))
            // SAFETY: the index is below `entries`; the slots are mapped as `_owner` lives.
            .map(|slot| unsafe { self.slots.as_ptr().add(slot as usize).read_volatile() })
            .filter(|entry| *entry != 0)
            .collect()
    }
}

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
mod tests;
