//! Memory and fences as files, for other processes and drivers: on a Jetson dma-bufs and sync-files.

use std::os::fd::{BorrowedFd, IntoRawFd, OwnedFd};
use std::sync::Arc;

use tegra_hcq::FileAccess;

use crate::buffer::buffer;
use crate::device::{device, hand_out};
use crate::object::Object;
use crate::pass;
use crate::queue;
use crate::status::{Failure, Status, guard};
use crate::types::{tegra_hcq_buffer, tegra_hcq_device, tegra_hcq_queue};

fn access(writable: bool) -> FileAccess {
    if writable { FileAccess::ReadWrite } else { FileAccess::ReadOnly }
}

/// A descriptor of the caller.
///
/// # Safety
///
/// `fd` stays open for `'a`.
unsafe fn borrow<'a>(fd: i32) -> Result<BorrowedFd<'a>, Failure> {
    if fd < 0 {
        return Err(Failure::argument(format!("fd is {fd}, which is no descriptor")));
    }
    // SAFETY: the caller's promise.
    Ok(unsafe { BorrowedFd::borrow_raw(fd) })
}

/// Gives a new descriptor to C, which closes it.
fn give(out: pass::Out<i32>, file: OwnedFd) {
    out.put(file.into_raw_fd());
}

/// Allocates `bytes` zeroed bytes that other processes and drivers can map, through `tegra_hcq_buffer_export`. `*out`
/// is set only on success. Thread-safe.
///
/// Returns TEGRA_HCQ_STATUS_OUT_OF_MEMORY if there is not enough memory.
///
/// # Safety
///
/// `out` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tegra_hcq_buffer_alloc_shared(
    device: *mut tegra_hcq_device,
    bytes: u64,
    out: *mut *mut tegra_hcq_buffer,
) -> Status {
    guard(|| {
        let (owner, device) = self::device(device)?;
        // SAFETY: the caller's promise.
        let out = unsafe { pass::out(out, "out")? };
        let shared = device.alloc_shared::<u8>(pass::length(bytes, "bytes")?)?;
        // SAFETY: this library makes no views; its copies are volatile.
        let buffer = unsafe { shared.into_buffer()? };
        hand_out(out, Object::Buffer(owner, Arc::new(buffer)))
    })
}

/// Maps all of the memory behind a file for the GPU, without a copy: one that `tegra_hcq_buffer_export` of any process
/// has returned, or on a Jetson a dma-buf of any driver (a camera, a display, a dma-heap, udmabuf, NvBufSurface). `fd`
/// stays the caller's and may be closed afterwards. The same memory is mapped once. Without `writable`, kernels that
/// write it stop with a fault, and copies to it are refused. `*out` is set only on success. Thread-safe.
///
/// Nothing orders the accesses of other owners: see `tegra_hcq_queue_wait_file`.
///
/// # Safety
///
/// `fd` is an open descriptor, or negative, which is refused. `out` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tegra_hcq_buffer_import_file(
    device: *mut tegra_hcq_device,
    fd: i32,
    writable: bool,
    out: *mut *mut tegra_hcq_buffer,
) -> Status {
    guard(|| {
        let (owner, device) = self::device(device)?;
        // SAFETY: the caller's promise.
        let (out, file) = unsafe { (pass::out(out, "out")?, borrow(fd)?) };
        // SAFETY: this library makes no views; its copies are volatile.
        let buffer = unsafe {
            if writable {
                device.import_file::<u8>(file, ..)?.into_buffer()?
            } else {
                device.import_file_read_only::<u8>(file, ..)?.into_buffer()?
            }
        };
        hand_out(out, Object::Buffer(owner, Arc::new(buffer)))
    })
}

/// A file of the memory of a buffer of `tegra_hcq_buffer_alloc_shared` or `tegra_hcq_buffer_import_file`, for other
/// owners: send it over a Unix socket. `*fd` is the caller's to close, is closed on exec, and set only on success. The
/// memory lives as long as any buffer or file of it. Thread-safe.
///
/// Returns TEGRA_HCQ_STATUS_UNSUPPORTED for every other buffer, and if the driver cannot restrict the file to reading.
///
/// # Safety
///
/// `fd` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tegra_hcq_buffer_export(
    buffer: *mut tegra_hcq_buffer,
    writable: bool,
    fd: *mut i32,
) -> Status {
    guard(|| {
        // SAFETY: the caller's promise.
        let out = unsafe { pass::out(fd, "fd")? };
        give(out, self::buffer(buffer)?.export(access(writable))?);
        Ok(())
    })
}

/// Tells the driver that made shared memory that accesses of the CPU through `tegra_hcq_buffer_cpu_address` begin, so
/// that the CPU sees what devices have written. Other memory needs no such call. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn tegra_hcq_buffer_begin_cpu(buffer: *mut tegra_hcq_buffer, writable: bool) -> Status {
    guard(|| Ok(self::buffer(buffer)?.begin_cpu(access(writable))?))
}

/// Tells the driver that the accesses of `tegra_hcq_buffer_begin_cpu` have ended, so that devices see what the CPU has
/// written. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn tegra_hcq_buffer_end_cpu(buffer: *mut tegra_hcq_buffer, writable: bool) -> Status {
    guard(|| Ok(self::buffer(buffer)?.end_cpu(access(writable))?))
}

/// Makes later work of a queue wait on the GPU until a fence as a file has signalled: a sync-file of a camera, a
/// display, a video engine, or of `tegra_hcq_queue_submit_to_file` of any process. `fd` stays the caller's and may be
/// closed afterwards. If the fence has signalled, nothing is waited for.
///
/// Returns TEGRA_HCQ_STATUS_UNSUPPORTED if the driver has no fences as files; an error if the file is no sync-file, or
/// has a fence that the GPU cannot wait for: then wait on the CPU, with poll().
///
/// # Safety
///
/// `fd` is an open descriptor, or negative, which is refused.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tegra_hcq_queue_wait_file(queue: *mut tegra_hcq_queue, fd: i32) -> Status {
    guard(|| {
        // SAFETY: the caller's promise.
        let file = unsafe { borrow(fd)? };
        Ok(queue::lock(queue)?.get()?.queue.wait_file(file)?)
    })
}

/// Submits what was added to a queue, and returns a file that signals when all of the queue's work so far has ended:
/// other drivers and processes wait for it, and poll() reports it readable. The kernel gives a wait by poll() 30 s from
/// the first on; then the file signals an error. `*fd` is the caller's to close, is closed on exec, and set only on
/// success.
///
/// Returns TEGRA_HCQ_STATUS_UNSUPPORTED if the driver has no fences as files.
///
/// # Safety
///
/// `fd` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tegra_hcq_queue_submit_to_file(queue: *mut tegra_hcq_queue, fd: *mut i32) -> Status {
    guard(|| {
        // SAFETY: the caller's promise.
        let out = unsafe { pass::out(fd, "fd")? };
        give(out, queue::lock(queue)?.get()?.queue.submit_to_file()?);
        Ok(())
    })
}
