//! Ordering between the CPU's stores and the GPU.
//!
//! A submission is three stores to three kinds of memory: ring entries and GP_PUT in write-combined memory, then the
//! doorbell, a device register. The GPU reads the first two after it has seen the third, so each store must reach
//! memory before the next is made. On arm64 this requires barriers of the full-system domain. Rust's sequentially
//! consistent fence compiles to a fence of the inner-shareable domain. It orders the CPUs among themselves, but does
//! not determine when a store in a write-combining buffer reaches a device outside that domain.
//!
//! On other machines only a software GPU runs, in ordinary memory. x86-64 makes stores to it visible in program order,
//! so a compiler fence is enough; other architectures use a fence between threads.

#[cfg(any(not(any(target_arch = "aarch64", target_arch = "x86_64")), all(test, loom)))]
use core::sync::atomic::Ordering;
#[cfg(all(not(any(target_arch = "aarch64", target_arch = "x86_64")), not(all(test, loom))))]
use core::sync::atomic::{compiler_fence, fence};
#[cfg(all(test, loom))]
use loom::sync::atomic::fence;

/// Orders the stores to pushbuffers and ring entries before the store to GP_PUT: `dmb oshst`.
#[inline]
pub fn before_put() {
    #[cfg(all(target_arch = "aarch64", not(all(test, loom))))]
    // SAFETY: a barrier touches no registers and no memory operands. Without `nomem` the compiler
    // keeps memory accesses on their side of it.
    unsafe {
        core::arch::asm!("dmb oshst", options(nostack, preserves_flags));
    }
    #[cfg(any(not(target_arch = "aarch64"), all(test, loom)))]
    store_fence();
}

/// Completes the store to GP_PUT before the store to the doorbell: `dsb st`.
#[inline]
pub fn before_doorbell() {
    #[cfg(all(target_arch = "aarch64", not(all(test, loom))))]
    // SAFETY: as in `before_put`.
    unsafe {
        core::arch::asm!("dsb st", options(nostack, preserves_flags));
    }
    #[cfg(any(not(target_arch = "aarch64"), all(test, loom)))]
    store_fence();
}

/// Completes stores to write-combined memory, which no other barrier of x86-64 orders: `sfence`. On other architectures
/// [`before_doorbell`] does this.
#[inline]
pub fn drain_write_combining() {
    #[cfg(all(target_arch = "x86_64", not(all(test, loom))))]
    // SAFETY: a barrier touches no registers and no memory operands, and every x86-64 has it. Without `nomem` the
    // compiler keeps memory accesses on their side of it.
    unsafe {
        core::arch::asm!("sfence", options(nostack, preserves_flags));
    }
    #[cfg(not(all(target_arch = "x86_64", not(all(test, loom)))))]
    before_doorbell();
}

#[cfg(all(target_arch = "x86_64", not(all(test, loom))))]
#[inline]
fn store_fence() {
    // SAFETY: no instruction at all. Without `nomem` the compiler keeps memory accesses, volatile ones
    // among them, on their side of it.
    unsafe {
        core::arch::asm!("", options(nostack, preserves_flags));
    }
}

/// Volatile accesses are not atomic, so they do not order other memory; a separate compiler fence is needed.
#[cfg(all(not(any(target_arch = "aarch64", target_arch = "x86_64")), not(all(test, loom))))]
#[inline]
fn store_fence() {
    fence(Ordering::SeqCst);
    compiler_fence(Ordering::SeqCst);
}

/// State of the exploration of all orders.
#[cfg(all(test, loom))]
fn store_fence() {
    fence(Ordering::SeqCst);
}
