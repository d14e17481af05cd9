//! The table of functions, from `functions.txt`: what is exported, what `cuGetProcAddress` finds, what is missing.

use core::ffi::{c_int, c_void};

use crate::call::{Order, absent};

/// A function of the driver API.
#[derive(Debug)]
pub struct Entry {
    /// The exported symbol.
    pub symbol: &'static str,
    /// The name by which programs look it up.
    pub base: &'static str,
    /// First CUDA version of this form, as 1000 * major + 10 * minor.
    pub since: c_int,
    /// Why it is missing; `None` if it works.
    pub missing: Option<&'static str>,
    order: Order,
    address: Pointer,
}

/// Address of a function.
#[derive(Debug)]
struct Pointer(*const c_void);

// SAFETY: the address of a function of this library is valid on every thread.
unsafe impl Sync for Pointer {}

impl Entry {
    /// The address of the function.
    pub fn address(&self) -> *const c_void {
        self.address.0
    }
}

include!(concat!(env!("OUT_DIR"), "/table.rs"));

/// The function that `cuGetProcAddress` returns: the newest form up to a version. A look-up for per-thread streams
/// gets the form for them if there is one.
pub(crate) fn find(base: &str, version: c_int, order: Order) -> Option<&'static Entry> {
    let newest = |order: Order| {
        let forms =
            TABLE.iter().filter(|entry| entry.base == base && entry.order == order && entry.since <= version);
        forms.max_by_key(|entry| entry.since)
    };
    let per_thread = if order == Order::PerThread { newest(Order::PerThread) } else { None };
    per_thread.or_else(|| newest(Order::Legacy))
}
