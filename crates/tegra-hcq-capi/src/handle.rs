//! Handles: numbers that C programs hold as opaque pointers.
//!
//! A handle is never dereferenced. It names a slot of one table, the kind of the object and the generation of the slot,
//! so a handle that was freed, belongs to a closed device or names another kind is an error, not undefined behaviour.
//! Slots are never deallocated; each carries a lock. Most calls take a share of the object under that lock and work
//! without it.
//!
//! A launch must be cheap: it locks the slot of its queue alone, which belongs to the launching thread ([`Biased`]),
//! and reads the slots of its kernel and buffers without their locks ([`Table::peek`]). Freeing such an object
//! therefore clears its slot first and then looks at the lock of each queue. A launch that begins later sees the empty
//! slot. The object waits in limbo for a queue that is busy, because its call may still use the object.

use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;

use crate::biased::{Biased, Guard, Refused};
use crate::object::{Kind, Object};
use crate::status::{Failure, Status};

/// Bits of a slot's index, the low bits of a handle.
const INDEX_BITS: u32 = 28;
/// Bits of the kind, above the index.
const KIND_BITS: u32 = 4;
/// Lowest bit of the generation.
const GENERATION: u32 = INDEX_BITS + KIND_BITS;
/// Slots of the first chunk; each further chunk is as long as all before it.
const FIRST: usize = 64;
/// Number of chunks that hold all slots.
const CHUNKS: usize = 23;

/// A reserved slot; free again if it is dropped empty.
pub(crate) struct Place {
    table: &'static Table,
    index: usize,
    slot: &'static Slot,
    /// `None` once the place is filled.
    locked: Option<Guard<'static, Option<Object>>>,
}

impl Place {
    /// Stores an object; returns its handle.
    pub(crate) fn fill(mut self, object: Object) -> u64 {
        let (slot, kind) = (self.slot, object.kind());
        // PANIC: only this function takes the lock, and it consumes the place.
        let mut locked = self.locked.take().expect("the place is empty");
        let generation = slot.generation.fetch_add(1, Ordering::Relaxed) + 1;
        let handle = (generation << GENERATION) | ((kind as u64) << INDEX_BITS) | self.index as u64;
        if kind == Kind::Queue {
            self.table.state.lock().queues.push(self.index);
        }
        slot.peeked.store(object.peeked(), Ordering::Release);
        *locked = Some(object);
        slot.handle.store(handle, Ordering::Release);
        handle
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if self.locked.take().is_some() {
            self.table.state.lock().free.push(self.index);
        }
    }
}

/// Why a slot is empty.
const FREED: u64 = 0;
/// The device of the slot's last object was closed.
const CLOSED: u64 = 1;

/// Place of one object.
#[derive(Debug)]
pub(crate) struct Slot {
    /// The handle; [`FREED`] or [`CLOSED`] without an object.
    handle: AtomicU64,
    /// The object's address for [`Table::peek`]; null for kinds that are not peeked at.
    peeked: AtomicPtr<()>,
    object: Biased<Option<Object>>,
    /// Generation of the last object.
    generation: AtomicU64,
}

/// Objects that a call on a busy queue may still read, with the slots of those queues.
type Limbo = Vec<(Object, Vec<usize>)>;

/// All objects of the process.
#[derive(Debug)]
pub(crate) struct Table {
    chunks: [OnceLock<Box<[Slot]>>; CHUNKS],
    state: Mutex<State>,
    limbo: Mutex<Limbo>,
    /// Length of `limbo`, read without its lock.
    waiting: AtomicUsize,
}

#[derive(Debug)]
struct State {
    /// Number of slots used so far.
    len: usize,
    free: Vec<usize>,
    /// Slots of open queues.
    queues: Vec<usize>,
}

/// The table of the process.
pub(crate) static TABLE: Table = Table::new();

/// Chunk of a slot, and its place in the chunk.
#[inline]
fn place(index: usize) -> (usize, usize) {
    let chunk = (index / FIRST + 1).ilog2() as usize;
    (chunk, index - FIRST * ((1 << chunk) - 1))
}

/// Index of the slot that a handle names.
#[inline]
fn index_of(handle: u64) -> usize {
    // CAST: 28 bits.
    (handle & ((1 << INDEX_BITS) - 1)) as usize
}

/// Kind that a handle names.
fn kind_of(handle: u64) -> Option<Kind> {
    Kind::from_number((handle >> INDEX_BITS) & ((1 << KIND_BITS) - 1))
}

/// Whether a handle names this kind.
#[inline]
fn names(handle: u64, kind: Kind) -> bool {
    (handle >> INDEX_BITS) & ((1 << KIND_BITS) - 1) == kind as u64
}

/// A locked slot that contains an object of the wanted kind.
pub(crate) struct Locked(Guard<'static, Option<Object>>);

impl core::ops::Deref for Locked {
    type Target = Object;

    #[inline]
    fn deref(&self) -> &Object {
        // PANIC: `Table::lock` returns slots with an object only, and its removal needs the lock.
        self.0.as_ref().expect("a locked slot has an object")
    }
}

impl core::ops::DerefMut for Locked {
    #[inline]
    fn deref_mut(&mut self) -> &mut Object {
        // PANIC: as in `deref`.
        self.0.as_mut().expect("a locked slot has an object")
    }
}

impl Table {
    const fn new() -> Self {
        Self {
            chunks: [const { OnceLock::new() }; CHUNKS],
            state: Mutex::new(State { len: 0, free: Vec::new(), queues: Vec::new() }),
            limbo: Mutex::new(Vec::new()),
            waiting: AtomicUsize::new(0),
        }
    }

    #[inline]
    fn slot(&self, index: usize) -> Option<&Slot> {
        let (chunk, at) = place(index);
        self.chunks.get(chunk)?.get()?.get(at)
    }

    fn chunk(&self, chunk: usize) -> &[Slot] {
        self.chunks[chunk].get_or_init(|| {
            let slot = |_| Slot {
                handle: AtomicU64::new(FREED),
                peeked: AtomicPtr::new(ptr::null_mut()),
                object: Biased::new(None),
                generation: AtomicU64::new(0),
            };
            (0..FIRST << chunk).map(slot).collect()
        })
    }

    /// Stores an object; returns its handle.
    ///
    /// # Errors
    ///
    /// If 2^28 objects exist.
    pub(crate) fn insert(&'static self, object: Object) -> Result<u64, Failure> {
        Ok(self.reserve()?.fill(object))
    }

    /// Reserves the place of an object, so that storing it cannot fail.
    ///
    /// # Errors
    ///
    /// As [`Table::insert`].
    pub(crate) fn reserve(&'static self) -> Result<Place, Failure> {
        self.sweep();
        let mut state = self.state.lock();
        let index = match state.free.pop() {
            Some(index) => index,
            None if state.len < 1 << INDEX_BITS => {
                state.len += 1;
                state.len - 1
            }
            None => return Err(Failure::argument("all handles are in use: free some objects")),
        };
        let (chunk, at) = place(index);
        let slot = &self.chunk(chunk)[at];
        match slot.object.lock() {
            Ok(locked) => Ok(Place { table: self, index, slot, locked: Some(locked) }),
            Err(refused) => {
                state.free.push(index);
                Err(refused.into())
            }
        }
    }

    /// Locks the slot of a handle, if its object has the kind.
    ///
    /// # Errors
    ///
    /// If the handle is null, names another kind, or names no object any more.
    #[inline]
    pub(crate) fn lock(&'static self, handle: u64, kind: Kind) -> Result<Locked, Failure> {
        if let Some(slot) = self.slot(index_of(handle)) {
            let object = if kind == Kind::Queue { slot.object.lock_often()? } else { slot.object.lock()? };
            if slot.handle.load(Ordering::Acquire) == handle && names(handle, kind) && object.is_some() {
                return Ok(Locked(object));
            }
        }
        Err(self.explain(handle, kind))
    }

    /// The object that a kernel's or buffer's handle names.
    ///
    /// # Errors
    ///
    /// As [`Table::lock`].
    ///
    /// # Safety
    ///
    /// The caller holds the lock of an open queue's slot for as long as it uses the object, and `T` is the type that
    /// [`Object::peeked`] gives for the kind.
    #[inline]
    pub(crate) unsafe fn peek<'a, T>(&self, handle: u64, kind: Kind) -> Result<&'a T, Failure> {
        if let Some(slot) = self.slot(index_of(handle)) {
            // The address first: an address that is newer than the handle would belong to another object.
            let object = slot.peeked.load(Ordering::Acquire);
            if slot.handle.load(Ordering::Acquire) == handle && names(handle, kind) {
                // SAFETY: the slot named the object after the caller had locked a queue. `retire` drops it only after
                // it has held the lock of that queue, or has seen it unlocked, with the slot already empty.
                return Ok(unsafe { &*object.cast::<T>() });
            }
        }
        Err(self.explain(handle, kind))
    }

    /// Removes an object. The handle is invalid from then on.
    ///
    /// # Errors
    ///
    /// As [`Table::lock`].
    pub(crate) fn remove(&'static self, handle: u64, kind: Kind) -> Result<(), Failure> {
        let locked = self.lock(handle, kind)?;
        let object = self.take(locked, handle, FREED);
        self.retire(object);
        Ok(())
    }

    /// Takes the object out of a locked slot and gives the object to the caller, who is the only one to use it.
    pub(crate) fn withdraw(&self, locked: Locked, handle: u64) -> Object {
        self.take(locked, handle, FREED)
    }

    fn take(&self, mut locked: Locked, handle: u64, reason: u64) -> Object {
        let index = index_of(handle);
        // PANIC: `Table::lock` has found the slot.
        let slot = self.slot(index).expect("a locked slot exists");
        slot.handle.store(reason, Ordering::Release);
        // PANIC: as in `Locked::deref`.
        let object = locked.0.take().expect("a locked slot has an object");
        drop(locked);
        let mut state = self.state.lock();
        if object.kind() == Kind::Queue {
            state.queues.retain(|queue| *queue != index);
        }
        // A slot whose generations are used up is never used again.
        if slot.generation.load(Ordering::Relaxed) < u64::from(u32::MAX) {
            state.free.push(index);
        }
        object
    }

    /// Removes all objects of a device, queues first, and then the device. Holds one lock of a slot at a time, because
    /// another thread may close another device.
    ///
    /// # Errors
    ///
    /// As [`Table::lock`]; if a queue is in use by this thread or cannot be locked. Nothing is removed then.
    pub(crate) fn close(&'static self, handle: u64) -> Result<(), Failure> {
        let (len, queues) = {
            let state = self.state.lock();
            (state.len, state.queues.clone())
        };
        for queue in queues.into_iter().filter_map(|index| self.slot(index)) {
            drop(queue.object.lock()?);
        }
        let closed = self.take(self.lock(handle, Kind::Device)?, handle, FREED);
        let is_child = |object: &Option<Object>| object.as_ref().and_then(Object::device) == Some(handle);
        let children = (0..len).filter(|index| {
            self.slot(*index).is_some_and(|slot| slot.object.lock().is_ok_and(|object| is_child(&object)))
        });
        let mut children: Vec<usize> = children.collect();
        let is_no_queue = |index: &usize| {
            let slot = self.slot(*index);
            !slot.is_some_and(|slot| names(slot.handle.load(Ordering::Relaxed), Kind::Queue))
        };
        children.sort_by_key(is_no_queue);
        for slot in children.into_iter().filter_map(|index| self.slot(index)) {
            let Ok(object) = slot.object.lock() else { continue };
            // Another thread may have replaced the object since.
            if is_child(&object) {
                let child = slot.handle.load(Ordering::Relaxed);
                let object = self.take(Locked(object), child, CLOSED);
                self.retire(object);
            }
        }
        drop(closed);
        Ok(())
    }

    /// Drops an object whose slot is empty, after the calls that may use it.
    fn retire(&self, object: Object) {
        self.sweep();
        if object.peeked().is_null() {
            return;
        }
        let queues = self.state.lock().queues.clone();
        let busy: Vec<usize> = queues.into_iter().filter(|queue| self.is_busy(*queue)).collect();
        if !busy.is_empty() {
            let mut limbo = self.limbo.lock();
            limbo.push((object, busy));
            self.waiting.store(limbo.len(), Ordering::Relaxed);
        }
    }

    /// Whether a call holds the lock of a queue.
    fn is_busy(&self, queue: usize) -> bool {
        self.slot(queue).is_some_and(|slot| slot.object.is_taken())
    }

    /// Drops the objects in limbo that no call can use any more.
    #[inline]
    pub(crate) fn sweep(&self) {
        if self.waiting.load(Ordering::Relaxed) != 0 {
            self.sweep_limbo();
        }
    }

    #[cold]
    fn sweep_limbo(&self) {
        let mut limbo = self.limbo.lock();
        for (_, queues) in limbo.iter_mut() {
            queues.retain(|queue| self.is_busy(*queue));
        }
        let (done, rest) = limbo.drain(..).partition(|(_, queues)| queues.is_empty());
        *limbo = rest;
        self.waiting.store(limbo.len(), Ordering::Relaxed);
        drop(limbo);
        let done: Limbo = done;
        drop(done);
    }

    /// Why a handle cannot be used as an object of `kind`.
    #[cold]
    fn explain(&self, handle: u64, kind: Kind) -> Failure {
        let wanted = kind.name();
        if handle == 0 {
            return Failure::handle(format!("the {wanted} is NULL"));
        }
        let (Some(named), Some(slot)) = (kind_of(handle), self.slot(index_of(handle))) else {
            return Failure::handle(format!("{handle:#x} is not a handle of this library"));
        };
        let given = handle >> GENERATION;
        let last = slot.generation.load(Ordering::Relaxed);
        if given == 0 || given > last {
            return Failure::handle(format!("{handle:#x} is not a handle of this library"));
        }
        if named != kind {
            let named = named.name();
            return Failure::handle(format!("{handle:#x} is the handle of a {named}, not of a {wanted}"));
        }
        if given == last && slot.handle.load(Ordering::Relaxed) == CLOSED {
            return Failure::handle(format!("the device of the {wanted} {handle:#x} was closed"));
        }
        Failure::handle(format!("the {wanted} {handle:#x} was freed, or its device was closed"))
    }
}

impl From<Refused> for Failure {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Nested => {
                Self::new(Status::Busy, "the call comes from a callback of a call on the same object")
            }
            Refused::Barrier(errno) => Self::new(
                Status::Unsupported,
                format!(
                    "membarrier(2) answers {errno}, so the queue can be used by the last thread alone: permit the \
                     system call in the filter of the process"
                ),
            ),
        }
    }
}

/// A share of an object that can be used without its lock.
pub(crate) fn share<T>(
    handle: u64,
    kind: Kind,
    get: impl FnOnce(&Object) -> Option<&Arc<T>>,
) -> Result<Arc<T>, Failure> {
    let locked = TABLE.lock(handle, kind)?;
    get(&locked).cloned().ok_or_else(|| TABLE.explain(handle, kind))
}

/// Held by tests that change the state of the process' table, or need it unchanged.
#[cfg(all(test, feature = "sim"))]
pub(crate) static ALONE: Mutex<()> = Mutex::new(());

#[cfg(all(test, feature = "sim"))]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{
        Status, tegra_hcq_device_close, tegra_hcq_device_open, tegra_hcq_fence_free, tegra_hcq_queue_open,
        tegra_hcq_queue_signal, tegra_hcq_queue_submit, tegra_hcq_signal_create, tegra_hcq_signal_value,
        tegra_hcq_signal_wait,
    };

    /// Sets the number of used slots, so that no handle is free, and returns the number before.
    fn set_len(len: usize) -> usize {
        core::mem::replace(&mut TABLE.state.lock().len, len)
    }

    #[test]
    fn a_submission_whose_fence_has_no_handle_does_not_run() {
        let _alone = ALONE.lock();
        let (mut device, mut queue, mut signal) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        let (mut fence, mut value) = (ptr::null_mut(), 7);
        // SAFETY: texts end with a zero byte, results have places.
        unsafe {
            assert_eq!(tegra_hcq_device_open(c"sim".as_ptr(), 0, &raw mut device), Status::Ok);
            assert_eq!(tegra_hcq_queue_open(device, ptr::null(), &raw mut queue), Status::Ok);
            assert_eq!(tegra_hcq_signal_create(device, 0, &raw mut signal), Status::Ok);
            assert_eq!(tegra_hcq_queue_signal(queue, signal, 1), Status::Ok);
            let free = core::mem::take(&mut TABLE.state.lock().free);
            let len = set_len(1 << INDEX_BITS);
            assert_ne!(tegra_hcq_queue_submit(queue, &raw mut fence), Status::Ok);
            std::thread::sleep(Duration::from_millis(50));
            assert_eq!(tegra_hcq_signal_value(signal, &raw mut value), Status::Ok);
            assert_eq!((value, fence.is_null()), (0, true), "nothing was submitted");
            set_len(len);
            TABLE.state.lock().free = free;
            assert_eq!(tegra_hcq_queue_submit(queue, &raw mut fence), Status::Ok);
            assert_eq!(tegra_hcq_signal_wait(signal, 1, 60_000_000_000), Status::Ok);
            assert_eq!(tegra_hcq_fence_free(fence), Status::Ok);
        }
        assert_eq!(tegra_hcq_device_close(device), Status::Ok);
    }

    #[test]
    fn a_place_that_is_not_filled_is_free_again() {
        let _alone = ALONE.lock();
        let place = TABLE.reserve().ok().unwrap();
        let index = place.index;
        drop(place);
        assert!(TABLE.state.lock().free.contains(&index));
    }
}
