//! Ordering between the CPU's stores and the GPU.
//!
//! A submission is three stores to three kinds of memory: ring entries and GP_PUT in write-combined
//! memory, then the doorbell, a device register. The GPU reads the first two after it has seen the
//! third, so each store must have reached memory before the next is made. On arm64 that takes
//! barriers of the full-system domain: a fence of the inner-shareable domain, which is what Rust's
//! sequentially consistent fence compiles to, orders the CPUs among themselves, but says nothing of
//! when a store in a write-combining buffer reaches a device outside that domain.
//!
//! On other machines, where only a software GPU runs, a sequentially consistent fence does the same
//! between threads.

#[cfg(not(target_arch = "aarch64"))]
use core::sync::atomic::{Ordering, compiler_fence, fence};

/// Orders the stores to pushbuffers and ring entries before the store to GP_PUT: `dmb oshst`.
#[inline]
pub fn before_put() {
    #[cfg(target_arch = "aarch64")]
    // SAFETY: a barrier touches no registers and no memory operands. Without `nomem` the compiler
    // keeps memory accesses on their side of it.
    unsafe {
        core::arch::asm!("dmb oshst", options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "aarch64"))]
    full_fence();
}

/// Completes the store to GP_PUT before the store to the doorbell: `dsb st`.
#[inline]
pub fn before_doorbell() {
    #[cfg(target_arch = "aarch64")]
    // SAFETY: as in `before_put`.
    unsafe {
        core::arch::asm!("dsb st", options(nostack, preserves_flags));
    }
    #[cfg(not(target_arch = "aarch64"))]
    full_fence();
}

/// The volatile accesses on both sides are no atomics, so the compiler is told separately.
#[cfg(not(target_arch = "aarch64"))]
#[inline]
fn full_fence() {
    fence(Ordering::SeqCst);
    compiler_fence(Ordering::SeqCst);
}
