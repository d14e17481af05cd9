//! A lock that is cheap for the thread that uses it.
//!
//! A locked instruction waits until the processor has written its store buffers, on a desktop GPU also the
//! write-combining buffers of the GPU's memory, which takes longer than the rest of a launch. The lock of a queue
//! therefore belongs to the thread that launches on it. Its owner takes it with one store and one load. Any other
//! thread first withdraws the ownership: it makes all threads of the process execute a memory barrier, by the system
//! call membarrier(2), and waits until the owner has left.
//!
//! A lock without an owner is a mutex. A thread that has taken it [`STREAK`] times in a row becomes the owner. Where
//! the kernel does not offer the system call (before Linux 4.14), no thread does.

use core::cell::{Cell, UnsafeCell};
use core::fmt;
use core::ops::{Deref, DerefMut};
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering, compiler_fence};
use std::sync::OnceLock;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};
use rustix::thread::{MembarrierCommand, membarrier};

use crate::fork;

/// Number of locks in a row that make a thread the owner.
const STREAK: u32 = 8;
/// No lock is taken.
const NONE: usize = 0;
/// Polls of an owner in a call before the first nap.
const POLLS: u32 = 100;
/// Nap between two polls.
const NAP: Duration = Duration::from_micros(50);

/// Reason why a lock cannot be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Refused {
    /// The thread has it already: the log callback of a call that has it makes a call that needs it.
    Nested,
    /// Another thread owns it, and the system call that withdraws the ownership has failed.
    Barrier(rustix::io::Errno),
}

/// State of a thread that other threads read. Never freed: a record of an ended thread is reused by a later thread.
#[derive(Debug)]
struct Thread {
    /// Address of the lock that the thread has taken, or [`NONE`]. Only the thread writes it.
    taken: AtomicUsize,
}

/// Records of threads that have ended.
static ENDED: Mutex<Vec<&'static Thread>> = Mutex::new(Vec::new());

/// A record that returns to [`ENDED`] when the thread ends.
struct Lease(&'static Thread);

impl Drop for Lease {
    fn drop(&mut self) {
        THREAD.set(None);
        if !fork::is_broken() {
            ENDED.lock().push(self.0);
        }
    }
}

thread_local! {
    /// The record of the thread, if it has one. Without a destructor, which would cost a test per access.
    static THREAD: Cell<Option<&'static Thread>> = const { Cell::new(None) };
    static LEASE: Lease = {
        let ended = ENDED.lock().pop();
        Lease(ended.unwrap_or_else(|| Box::leak(Box::new(Thread { taken: AtomicUsize::new(NONE) }))))
    };
}

/// The record of the thread; makes one. A thread that is ending has none.
fn this_thread() -> Option<&'static Thread> {
    let made = || LEASE.try_with(|lease| lease.0).ok().inspect(|thread| THREAD.set(Some(thread)));
    THREAD.get().or_else(made)
}

/// Whether the process may call [`barrier`].
fn has_barrier() -> bool {
    static REGISTERED: OnceLock<bool> = OnceLock::new();
    *REGISTERED.get_or_init(|| membarrier(MembarrierCommand::RegisterPrivateExpedited).is_ok())
}

/// Makes all running threads of the process execute a memory barrier.
///
/// # Errors
///
/// If a filter of the process forbids the system call.
fn barrier() -> Result<(), Refused> {
    membarrier(MembarrierCommand::PrivateExpedited).map_err(Refused::Barrier)
}

/// The threads that took the mutex last.
#[derive(Debug)]
struct Streak {
    thread: *const Thread,
    len: u32,
}

// SAFETY: the pointer is compared, never followed.
unsafe impl Send for Streak {}

/// A lock with an owner, and what it protects.
pub(crate) struct Biased<T> {
    /// The thread that takes the lock without the mutex, or null. Written under the mutex.
    owner: AtomicPtr<Thread>,
    /// The thread that has taken the mutex, or null. Written under the mutex.
    holder: AtomicPtr<Thread>,
    mutex: Mutex<Streak>,
    value: UnsafeCell<T>,
}

// SAFETY: the lock gives the value to one thread at a time, so `T: Send` suffices, as for a mutex.
unsafe impl<T: Send> Sync for Biased<T> {}

impl<T> fmt::Debug for Biased<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Biased").field("owner", &self.owner).finish_non_exhaustive()
    }
}

impl<T> Biased<T> {
    pub(crate) const fn new(value: T) -> Self {
        Self {
            owner: AtomicPtr::new(ptr::null_mut()),
            holder: AtomicPtr::new(ptr::null_mut()),
            mutex: Mutex::new(Streak { thread: ptr::null(), len: 0 }),
            value: UnsafeCell::new(value),
        }
    }

    /// What a [`Thread`] holds while it has taken this lock. Locks lie in the table's slots, which never move.
    #[inline]
    fn address(&self) -> usize {
        ptr::from_ref(self).addr()
    }

    /// Takes the lock. A thread that calls this again and again becomes the owner.
    ///
    /// # Errors
    ///
    /// See [`Refused`].
    #[inline]
    pub(crate) fn lock_often(&self) -> Result<Guard<'_, T>, Refused> {
        self.take(true)
    }

    /// Takes the lock.
    ///
    /// # Errors
    ///
    /// See [`Refused`].
    pub(crate) fn lock(&self) -> Result<Guard<'_, T>, Refused> {
        self.take(false)
    }

    #[inline]
    fn take(&self, may_own: bool) -> Result<Guard<'_, T>, Refused> {
        match THREAD.get().and_then(|thread| self.lock_as_owner(thread)) {
            Some(guard) => Ok(guard),
            None => self.lock_mutex(may_own),
        }
    }

    /// Takes the lock if this thread owns it and has taken no other.
    #[inline]
    fn lock_as_owner(&self, thread: &'static Thread) -> Option<Guard<'_, T>> {
        if !self.is_owned_by(thread) || thread.taken.load(Ordering::Relaxed) != NONE {
            return None;
        }
        thread.taken.store(self.address(), Ordering::Relaxed);
        // A thread that withdraws the ownership stores `owner`, executes the barrier on this processor, and loads
        // `taken`. If the barrier comes before the store above, the load below sees that the ownership is gone. If it
        // comes after, the other thread sees `taken`. This fence binds the compiler, the barrier the processor.
        compiler_fence(Ordering::SeqCst);
        if self.is_owned_by(thread) {
            return Some(Guard { lock: self, published: Some(thread), _mutex: None });
        }
        thread.taken.store(NONE, Ordering::Release);
        None
    }

    #[inline]
    fn is_owned_by(&self, thread: &'static Thread) -> bool {
        ptr::eq(self.owner.load(Ordering::Relaxed), thread)
    }

    #[cold]
    fn lock_mutex(&self, may_own: bool) -> Result<Guard<'_, T>, Refused> {
        let thread = this_thread();
        // A thread sees its own stores, so another value than its own means that it has not taken the mutex.
        let has_it = |thread: &'static Thread| {
            thread.taken.load(Ordering::Relaxed) == self.address()
                || ptr::eq(self.holder.load(Ordering::Relaxed), thread)
        };
        if thread.is_some_and(has_it) {
            return Err(Refused::Nested);
        }
        let mut streak = self.mutex.lock();
        self.withdraw(thread)?;
        let Some(thread) = thread else {
            return Ok(Guard { lock: self, published: None, _mutex: Some(streak) });
        };
        if !ptr::eq(streak.thread, thread) {
            *streak = Streak { thread, len: 0 };
        }
        self.holder.store(ptr::from_ref(thread).cast_mut(), Ordering::Relaxed);
        streak.len = streak.len.saturating_add(u32::from(may_own));
        // As the owner, a thread that has taken another lock could take this one a second time after it has left that
        // lock: `taken` names one.
        let is_first = thread.taken.load(Ordering::Relaxed) == NONE;
        if is_first && streak.len >= STREAK && has_barrier() {
            streak.len = 0;
            self.owner.store(ptr::from_ref(thread).cast_mut(), Ordering::Relaxed);
        }
        let published =
            is_first.then(|| thread.taken.store(self.address(), Ordering::Relaxed)).map(|()| thread);
        Ok(Guard { lock: self, published, _mutex: Some(streak) })
    }

    /// Takes the ownership from its thread, after the call of that thread. The caller holds the mutex and has not taken
    /// the lock.
    fn withdraw(&self, own: Option<&'static Thread>) -> Result<(), Refused> {
        let owner = self.owner.swap(ptr::null_mut(), Ordering::Relaxed);
        // SAFETY: records are never freed.
        let Some(thread) = (unsafe { owner.as_ref() }) else { return Ok(()) };
        if own.is_some_and(|own| ptr::eq(own, thread)) {
            return Ok(());
        }
        if let Err(error) = barrier() {
            self.owner.store(owner, Ordering::Relaxed);
            return Err(error);
        }
        let mut polls = 0_u32;
        while thread.taken.load(Ordering::Acquire) == self.address() {
            polls = polls.saturating_add(1);
            if polls < POLLS {
                core::hint::spin_loop();
            } else {
                std::thread::sleep(NAP);
            }
        }
        Ok(())
    }

    /// Whether a thread holds the lock, or may hold it, that took it before the caller's last store.
    pub(crate) fn is_taken(&self) -> bool {
        let Some(_streak) = self.mutex.try_lock() else { return true };
        // SAFETY: records are never freed. `owner` is written only with the mutex held.
        let Some(owner) = (unsafe { self.owner.load(Ordering::Relaxed).as_ref() }) else { return false };
        let is_own = THREAD.get().is_some_and(|own| ptr::eq(own, owner));
        // Without the barrier the owner's store may not be visible yet.
        (!is_own && barrier().is_err()) || owner.taken.load(Ordering::Acquire) == self.address()
    }
}

/// The taken lock.
pub(crate) struct Guard<'l, T> {
    lock: &'l Biased<T>,
    /// The record of this thread, if it names this lock.
    published: Option<&'static Thread>,
    /// Held until the guard is dropped.
    _mutex: Option<MutexGuard<'l, Streak>>,
}

impl<T> Deref for Guard<'_, T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard's thread alone has taken the lock, as its owner or with the mutex and without an owner in a
        // call.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T> DerefMut for Guard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as above.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T> Drop for Guard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        if let Some(thread) = self.published {
            thread.taken.store(NONE, Ordering::Release);
        }
        if self._mutex.is_some() {
            self.lock.holder.store(ptr::null_mut(), Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;
    use std::sync::mpsc::channel;
    use std::thread;

    use super::*;

    /// Takes the lock until the thread owns it.
    fn own<T>(lock: &Biased<T>) {
        for _ in 0..STREAK {
            drop(lock.lock_often().unwrap());
        }
        assert!(lock.is_owned_by(THREAD.get().unwrap()));
    }

    #[test]
    fn a_thread_that_locks_often_owns_the_lock_until_another_comes() {
        let lock = Biased::new(0);
        for _ in 1..STREAK {
            *lock.lock_often().unwrap() += 1;
            assert!(!lock.is_owned_by(THREAD.get().unwrap()));
        }
        own(&lock);
        let guard = lock.lock_often().unwrap();
        assert!(guard._mutex.is_none(), "the owner needs no mutex");
        drop(guard);
        thread::scope(|scope| {
            scope.spawn(|| *lock.lock().unwrap() += 1);
        });
        assert!(!lock.is_owned_by(THREAD.get().unwrap()));
        assert_eq!(*lock.lock_often().unwrap(), STREAK);
    }

    #[test]
    fn another_thread_waits_until_the_owner_has_left() {
        let lock = Biased::new(0);
        own(&lock);
        let mut guard = lock.lock_often().unwrap();
        thread::scope(|scope| {
            let (send, receive) = channel();
            let lock = &lock;
            scope.spawn(move || send.send(*lock.lock().unwrap()));
            assert!(receive.recv_timeout(Duration::from_millis(30)).is_err(), "the lock is taken");
            *guard = 7;
            drop(guard);
            assert_eq!(receive.recv().unwrap(), 7);
        });
    }

    #[test]
    fn no_increment_of_many_threads_is_lost() {
        const ROUNDS: usize = 20_000;
        let (lock, start) = (Biased::new(0), Barrier::new(3));
        thread::scope(|scope| {
            for other in 0..3 {
                let (lock, start) = (&lock, &start);
                scope.spawn(move || {
                    start.wait();
                    for round in 0..ROUNDS {
                        // Long runs of one thread alternate with those of others.
                        if other > 0 && round % 100 == 0 {
                            thread::sleep(Duration::from_micros(10));
                        }
                        let mut count = lock.lock_often().unwrap();
                        let seen = *count;
                        core::hint::black_box(&mut count);
                        *count = seen + 1;
                    }
                });
            }
        });
        assert_eq!(*lock.lock().unwrap(), 3 * ROUNDS);
    }

    #[test]
    fn a_taken_lock_is_seen_by_each_thread() {
        let lock = Biased::new(());
        assert!(!lock.is_taken());
        let guard = lock.lock_often().unwrap();
        assert!(lock.is_taken(), "by the mutex");
        drop(guard);
        own(&lock);
        assert!(!lock.is_taken());
        let guard = lock.lock_often().unwrap();
        let seen = || thread::scope(|scope| scope.spawn(|| lock.is_taken()).join().unwrap());
        assert!(seen() && lock.is_taken(), "by its owner");
        drop(guard);
        assert!(!seen());
        assert!(lock.is_owned_by(THREAD.get().unwrap()), "a look does not withdraw the ownership");
    }

    #[test]
    fn a_second_guard_of_one_thread_is_refused() {
        let lock = Biased::new(());
        let guard = lock.lock_often().unwrap();
        assert_eq!(lock.lock_often().err(), Some(Refused::Nested), "with the mutex");
        drop(guard);
        own(&lock);
        let guard = lock.lock_often().unwrap();
        assert_eq!(lock.lock_often().err(), Some(Refused::Nested), "as the owner");
        assert_eq!(lock.lock().err(), Some(Refused::Nested));
        drop(guard);
        assert!(lock.lock().is_ok());
    }

    #[test]
    fn an_owner_of_two_locks_can_take_one_within_the_other() {
        let (outer, inner) = (Biased::new(()), Biased::new(0));
        own(&outer);
        own(&inner);
        let guard = outer.lock_often().unwrap();
        *inner.lock_often().unwrap() = 1;
        assert!(outer.is_taken() && !inner.is_taken());
        drop(guard);
        assert_eq!(*inner.lock_often().unwrap(), 1);
    }

    /// A call on one object, from its log callback a call on a second, and from that one's callback a call on both.
    #[test]
    fn a_guard_within_that_of_another_lock_is_not_taken_twice() {
        for owned in [false, true] {
            let (outer, inner) = (Biased::new(()), Biased::new(()));
            if owned {
                own(&outer);
                own(&inner);
            }
            let first = outer.lock_often().unwrap();
            for _ in 0..2 * STREAK {
                let second = inner.lock_often().unwrap();
                assert_eq!(inner.lock_often().err(), Some(Refused::Nested));
                assert_eq!(outer.lock().err(), Some(Refused::Nested));
                drop(second);
            }
            // The guards need not end in the reverse order.
            let second = inner.lock_often().unwrap();
            drop(first);
            assert_eq!(inner.lock_often().err(), Some(Refused::Nested));
            drop(second);
            assert!(inner.lock_often().is_ok() && outer.lock_often().is_ok());
        }
    }

    #[test]
    fn a_lock_outlives_its_owner() {
        let lock = Biased::new(());
        thread::scope(|scope| {
            scope.spawn(|| own(&lock));
        });
        assert!(lock.lock().is_ok() && !lock.is_taken());
    }
}
