//! In-place access to private memory of the host process that the program may unmap.
//!
//! FROM_VA pins the pages on a board: the process may unmap them, and the GPU continues to access them. Private pages
//! cannot be mapped a second time, so the model accesses the process's own mapping. That keeps loads, stores and
//! atomics of the GPU exact, also while the CPU accesses the same words; copies by system calls would tear words and
//! lose concurrent atomics. If the program has unmapped a page, the access raises SIGSEGV. The handler installed here
//! maps a zeroed page of a file of the model at that address, and the access is repeated: like the pinned pages of a
//! board, the page has no other user. If the page exists but is protected, the handler allows accesses to it.
//!
//! The handler acts only on threads that run the model ([`enter`]) and on addresses with a live [`Guard`]. It passes
//! all other signals to the handler that was installed before, so a wild access of the program itself ends the process
//! as usual. It is installed with the first guard. A handler that is installed later and does not call the earlier
//! one disables it.
//!
//! The pages are found by address. A program that unmaps imported memory and maps something else there gives the GPU
//! access to the new mapping, where a board continues to use the old pages.

use core::cell::Cell;
use core::ffi::{c_int, c_void};
use core::marker::PhantomData;
use core::ptr;
use core::sync::atomic::{AtomicPtr, AtomicUsize, Ordering};
use std::os::fd::OwnedFd;
use std::sync::OnceLock;

use parking_lot::Mutex;
use rustix::fs::{FallocateFlags, MemfdFlags};
use rustix::io::Errno;
use rustix::mm::{MapFlags, MprotectFlags, ProtFlags};
use rustix::process::Resource;

use super::maps;

/// Page size of the host in bytes; a larger one only makes the model map pages of that size one by one.
const PAGE: usize = 4096;
/// Name of the file of replacement pages.
const NAME: &str = "orin-sim-unmapped";
/// Size of that file: the offset of a page is its address, at most 56 bits on the targets of the workspace.
const FILE_BYTES: u64 = 1 << 56;
/// `si_code` of SIGSEGV: nothing is mapped at the address (`siginfo.h`).
const MAPERR: c_int = 1;
/// `si_code` of SIGSEGV: the mapping refuses the access.
const ACCERR: c_int = 2;

/// A guarded range. Nodes are never freed, so the handler can read them at any time.
#[derive(Debug)]
struct Node {
    start: AtomicUsize,
    /// One past the last address; 0 if the node is free.
    end: AtomicUsize,
    /// Number of accesses to unmapped or protected pages.
    strays: AtomicUsize,
    next: AtomicPtr<Node>,
}

/// The first node.
static NODES: AtomicPtr<Node> = AtomicPtr::new(ptr::null_mut());
/// Serialises changes of the nodes.
static CHANGES: Mutex<()> = Mutex::new(());
/// The action before the handler.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();
/// The file of replacement pages.
static FILE: OnceLock<OwnedFd> = OnceLock::new();

thread_local! {
    /// Number of live [`Inside`] of the thread. Constant initialisation makes it accessible in the handler.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Ends [`enter`].
#[derive(Debug)]
pub(crate) struct Inside {
    /// Bound to its thread.
    _thread: PhantomData<*const ()>,
}

/// Marks the thread as one that runs the model, until the result is dropped.
pub(crate) fn enter() -> Inside {
    DEPTH.set(DEPTH.get() + 1);
    Inside { _thread: PhantomData }
}

impl Drop for Inside {
    fn drop(&mut self) {
        DEPTH.set(DEPTH.get() - 1);
    }
}

/// All nodes.
fn nodes() -> impl Iterator<Item = &'static Node> {
    let mut next = &NODES;
    core::iter::from_fn(move || {
        // SAFETY: nodes are leaked boxes, published complete by `Guard::new`.
        let node = unsafe { next.load(Ordering::Acquire).as_ref() }?;
        next = &node.next;
        Some(node)
    })
}

/// A range of private memory of the process that the model accesses in place.
#[derive(Debug)]
pub(crate) struct Guard {
    node: &'static Node,
}

impl Guard {
    /// Guards `len` bytes from `start` on.
    ///
    /// # Errors
    ///
    /// The errno of sigaction, memfd_create or ftruncate.
    pub(crate) fn new(start: usize, len: usize) -> Result<Self, Errno> {
        let _changes = CHANGES.lock();
        install()?;
        let end = start.checked_add(len).ok_or(Errno::INVAL)?;
        let free = nodes().find(|node| node.end.load(Ordering::Relaxed) == 0);
        if let Some(node) = free {
            node.start.store(start, Ordering::Relaxed);
            node.strays.store(0, Ordering::Relaxed);
            node.end.store(end, Ordering::Release);
            return Ok(Self { node });
        }
        let node: &'static Node = Box::leak(Box::new(Node {
            start: AtomicUsize::new(start),
            end: AtomicUsize::new(end),
            strays: AtomicUsize::new(0),
            next: AtomicPtr::new(NODES.load(Ordering::Relaxed)),
        }));
        NODES.store(ptr::from_ref(node).cast_mut(), Ordering::Release);
        Ok(Self { node })
    }

    fn range(&self) -> (usize, usize) {
        (self.node.start.load(Ordering::Relaxed), self.node.end.load(Ordering::Relaxed))
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        let _changes = CHANGES.lock();
        let (start, end) = self.range();
        self.node.end.store(0, Ordering::Release);
        let strays = self.node.strays.load(Ordering::Relaxed);
        if strays == 0 {
            return;
        }
        tracing::warn!(
            "imported memory at {start:#x} was unmapped or protected while in use: {strays} accesses of the GPU went \
             to pages of the model",
        );
        let overlaps = |node: &&Node| {
            let (other, its_end) = (node.start.load(Ordering::Relaxed), node.end.load(Ordering::Relaxed));
            other < end && start < its_end
        };
        match nodes().find(overlaps) {
            // The other guard takes the pages back.
            Some(other) => _ = other.strays.fetch_add(strays, Ordering::Relaxed),
            None => take_back(start, end),
        }
    }
}

/// Unmaps the replacement pages in the range and frees their contents.
fn take_back(start: usize, end: usize) {
    for vma in maps::of_file(NAME) {
        // CAST: addresses of this process.
        let (from, to) = (start.max(vma.start as usize), end.min(vma.end as usize));
        if from < to {
            // SAFETY: the handler mapped these pages for the model, and their last user is being dropped.
            let _ = unsafe { rustix::mm::munmap(ptr::with_exposed_provenance_mut(from), to - from) };
        }
    }
    if let Some(file) = FILE.get() {
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        // Fails only in emulators; then the pages stay until the process ends.
        let _ = rustix::fs::fallocate(file, flags, start as u64, (end - start) as u64);
    }
}

/// Installs the handler once; creates the file before the handler needs it.
fn install() -> Result<(), Errno> {
    if BEFORE.get().is_some() {
        return Ok(());
    }
    let limit = rustix::process::getrlimit(Resource::Fsize).current;
    // Beyond the limit ftruncate would raise SIGXFSZ. Without the file, replacement pages are anonymous and stay.
    if limit.is_none_or(|limit| limit >= FILE_BYTES) {
        let file = rustix::fs::memfd_create(NAME, MemfdFlags::CLOEXEC)?;
        rustix::fs::ftruncate(&file, FILE_BYTES)?;
        let _ = FILE.set(file);
    }
    // SAFETY: all-zero bytes are a valid `sigaction`.
    let (mut before, mut action): (libc::sigaction, libc::sigaction) = unsafe { core::mem::zeroed() };
    // SAFETY: only reads the current action into a local variable.
    if unsafe { libc::sigaction(libc::SIGSEGV, ptr::null(), &raw mut before) } != 0 {
        return Err(Errno::INVAL);
    }
    let _ = BEFORE.set(before);
    action.sa_sigaction = on_fault as extern "C" fn(_, _, _) as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: the handler is async-signal-safe: it reads atomics and makes raw system calls.
    if unsafe { libc::sigaction(libc::SIGSEGV, &raw const action, ptr::null_mut()) } != 0 {
        return Err(Errno::INVAL);
    }
    Ok(())
}

/// The handler of SIGSEGV.
extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel passes a valid `siginfo_t`; for these codes it contains the address.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr().addr()) };
    if matches!(code, MAPERR | ACCERR) && provide(code, address) {
        return;
    }
    pass_on(signal, info, context, code);
}

/// Makes the page of `address` accessible if the model may need it. Async-signal-safe.
fn provide(code: c_int, address: usize) -> bool {
    let covers = |node: &&Node| {
        let end = node.end.load(Ordering::Acquire);
        node.start.load(Ordering::Relaxed) <= address && address < end
    };
    let Some(node) = nodes().find(covers) else { return false };
    if DEPTH.get() == 0 {
        return false;
    }
    node.strays.fetch_add(1, Ordering::Relaxed);
    let page: *mut c_void = ptr::with_exposed_provenance_mut(address & !(PAGE - 1));
    if code == ACCERR {
        let both = MprotectFlags::READ | MprotectFlags::WRITE;
        // SAFETY: the protection of one page that the program has lent to the GPU becomes weaker.
        return unsafe { rustix::mm::mprotect(page, PAGE, both) }.is_ok();
    }
    let (both, fixed) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::FIXED_NOREPLACE);
    let mapped = match FILE.get() {
        Some(file) => {
            let flags = MapFlags::SHARED | fixed;
            // SAFETY: the flag leaves existing mappings alone.
            unsafe { rustix::mm::mmap(page, PAGE, both, flags, file, page.addr() as u64) }
        }
        // SAFETY: as above.
        None => unsafe { rustix::mm::mmap_anonymous(page, PAGE, both, MapFlags::PRIVATE | fixed) },
    };
    // EEXIST: another thread has mapped the page meanwhile.
    mapped.map_or_else(|errno| errno == Errno::EXIST, |at| at == page)
}

/// Calls the handler that was installed before, or restores the default action, which ends the process when the access
/// is repeated.
fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void, code: c_int) {
    let before = BEFORE.get();
    match before.map_or(libc::SIG_DFL, |before| before.sa_sigaction) {
        libc::SIG_DFL | libc::SIG_IGN => {
            // SAFETY: all-zero bytes are the default action, and resetting the action affects no memory.
            unsafe {
                let default: libc::sigaction = core::mem::zeroed();
                libc::sigaction(signal, &raw const default, ptr::null_mut());
                if code <= 0 {
                    // Sent by a process: no access will be repeated.
                    libc::raise(signal);
                }
            }
        }
        handler if before.is_some_and(|before| before.sa_flags & libc::SA_SIGINFO != 0) => {
            // SAFETY: the flag says that the handler has this signature.
            let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                unsafe { core::mem::transmute(handler) };
            handler(signal, info, context);
        }
        handler => {
            // SAFETY: without the flag the handler has this signature.
            let handler: extern "C" fn(c_int) = unsafe { core::mem::transmute(handler) };
            handler(signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two private pages at `address`. The kernel chooses addresses from the top of the address space, so no other
    /// thread gets these after the test has unmapped them.
    fn pages(address: usize) -> *mut u32 {
        let both = ProtFlags::READ | ProtFlags::WRITE;
        let (flags, wanted) =
            (MapFlags::PRIVATE | MapFlags::FIXED_NOREPLACE, ptr::without_provenance_mut(address));
        // SAFETY: a new anonymous mapping; the flag leaves existing ones alone.
        let own = unsafe { rustix::mm::mmap_anonymous(wanted, 2 * PAGE, both, flags) }.unwrap();
        assert_eq!(own, wanted, "older kernels ignore the flag");
        own.cast()
    }

    /// Whether the model has a page in the two pages.
    fn replaced(own: *mut u32) -> bool {
        let start = own.expose_provenance() as u64;
        maps::of_file(NAME).iter().any(|vma| vma.start < start + 2 * PAGE as u64 && start < vma.end)
    }

    #[test]
    fn an_unmapped_page_is_replaced_until_the_last_guard_is_gone() {
        let own = pages(0x10_0000_0000);
        let start = own.expose_provenance();
        let (guard, second) = (Guard::new(start, PAGE).unwrap(), Guard::new(start, 2 * PAGE).unwrap());
        // SAFETY: the pages are this test's own; afterwards the guard provides them.
        unsafe {
            own.write_volatile(1);
            rustix::mm::munmap(own.cast(), 2 * PAGE).unwrap();
            let _inside = enter();
            assert_eq!(own.read_volatile(), 0, "the old contents are gone");
            // Across the border of the pages, and then on the same page.
            own.byte_add(PAGE - 2).cast::<u32>().write_unaligned(0x1234_5678);
            assert_eq!(own.byte_add(PAGE).cast::<u16>().read_volatile(), 0x1234);
        }
        assert!(replaced(own));
        drop(guard);
        assert!(replaced(own), "another import has the page as well");
        drop(second);
        assert!(!replaced(own));
    }

    #[test]
    fn a_protected_page_becomes_accessible() {
        let own = pages(0x11_0000_0000);
        let _guard = Guard::new(own.expose_provenance(), 2 * PAGE).unwrap();
        let _inside = enter();
        // SAFETY: the pages are this test's own.
        unsafe {
            own.write_volatile(1);
            rustix::mm::mprotect(own.cast(), 2 * PAGE, MprotectFlags::empty()).unwrap();
            assert_eq!(own.read_volatile(), 1);
            own.write_volatile(2);
            assert_eq!(own.read_volatile(), 2);
            rustix::mm::munmap(own.cast(), 2 * PAGE).unwrap();
        }
    }
}
