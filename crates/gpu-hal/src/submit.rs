//! Submission: ring entry, GP_PUT, doorbell.

use core::any::Any;
use core::fmt;
use core::ptr::NonNull;
use std::sync::Arc;

use crate::barrier;
use crate::ring::{Ring, RingFull, USERD_GP_PUT};

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
    /// The 128 words of USERD. GP_GET is at byte [`USERD_GP_GET`](crate::ring::USERD_GP_GET), GP_PUT at byte
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Memory of a ring.
    struct Memory {
        slots: Vec<u64>,
        userd: Vec<u64>,
        doorbell: Vec<u32>,
    }

    fn ring() -> (SubmitRing, std::sync::Weak<dyn Any + Send + Sync>) {
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
        let (mut ring, _) = ring();
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
        let (mut ring, memory) = ring();
        let view = ring.view();
        // SAFETY: no GPU reads the ring.
        unsafe { ring.submit(5) }.unwrap();
        drop(ring);
        assert_eq!(view.last_entries(1), [5]);
        assert!(memory.upgrade().is_some());
        drop(view);
        assert!(memory.upgrade().is_none());
    }
}
