//! An allocator that counts each thread's allocations, for tests of code that must not allocate. A test program names
//! it as its `#[global_allocator]`.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

thread_local! {
    static COUNT: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator, counting per thread. A reallocation counts as an allocation.
#[derive(Clone, Copy, Debug)]
pub struct Counting;

// SAFETY: every call is forwarded to the system's allocator unchanged; counting touches only a
// const-initialised thread-local without a destructor, which never allocates.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        COUNT.with(|count| count.set(count.get() + 1));
        // SAFETY: the caller's contract is the system allocator's.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        // SAFETY: the caller's contract is the system allocator's.
        unsafe { System.dealloc(pointer, layout) }
    }
}

/// Allocations of this thread so far; always 0 unless [`Counting`] is the program's allocator.
#[must_use]
pub fn count() -> u64 {
    COUNT.with(Cell::get)
}

/// The result of `work`, and the number of this thread's allocations during the call.
pub fn during<T>(work: impl FnOnce() -> T) -> (T, u64) {
    let before = count();
    let result = work();
    (result, count() - before)
}
