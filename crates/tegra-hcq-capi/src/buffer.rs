//! Buffers: allocation, import, addresses, copies by the CPU.

use core::ffi::{c_char, c_void};
use core::ptr::NonNull;
use std::sync::Arc;

use tegra_hcq::{Buffer, MemoryUse};

use crate::device::{device, hand_out};
use crate::handle::{TABLE, share};
use crate::object::{Kind, Object};
use crate::pass;
use crate::status::{Failure, Status, guard};
use crate::types::{tegra_hcq_buffer, tegra_hcq_device, tegra_hcq_purpose};

/// The buffer that a handle names.
pub(crate) fn buffer(handle: *mut tegra_hcq_buffer) -> Result<Arc<Buffer<u8>>, Failure> {
    share(handle.addr() as u64, Kind::Buffer, |object| match object {
        Object::Buffer(_, buffer) => Some(buffer),
        _ => None,
    })
}

fn purpose(number: u32) -> Result<MemoryUse, Failure> {
    const DEVICE: u32 = tegra_hcq_purpose::Device as u32;
    const UPLOAD: u32 = tegra_hcq_purpose::Upload as u32;
    const READ_BACK: u32 = tegra_hcq_purpose::ReadBack as u32;
    const SIGNALS: u32 = tegra_hcq_purpose::Signals as u32;
    match number {
        DEVICE => Ok(MemoryUse::Device),
        UPLOAD => Ok(MemoryUse::Upload),
        READ_BACK => Ok(MemoryUse::ReadBack),
        SIGNALS => Ok(MemoryUse::Signals),
        _ => Err(Failure::argument(format!("purpose is {number}; permitted are 0 to 3"))),
    }
}

/// Allocates `bytes` bytes, aligned to 256, for a `tegra_hcq_purpose`. The contents are unspecified. `*out` is set only
/// on success. Thread-safe.
///
/// Returns TEGRA_HCQ_STATUS_OUT_OF_MEMORY if there is not enough memory.
///
/// # Safety
///
/// `out` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tegra_hcq_buffer_alloc(
    device: *mut tegra_hcq_device,
    bytes: u64,
    purpose: u32,
    out: *mut *mut tegra_hcq_buffer,
) -> Status {
    guard(|| {
        let (owner, device) = self::device(device)?;
        // SAFETY: the caller's promise.
        let out = unsafe { pass::out(out, "out")? };
        let buffer = device.alloc_for::<u8>(pass::length(bytes, "bytes")?, self::purpose(purpose)?)?;
        hand_out(out, Object::Buffer(owner, Arc::new(buffer)))
    })
}

/// Maps `bytes` bytes of the process for the GPU in place, without a copy. `memory` must begin a page and stay mapped
/// and writable until the buffer is freed and the work that uses it has ended. The GPU can also access the rest of the
/// last page. `*out` is set only on success. Thread-safe.
///
/// # Safety
///
/// `memory` is as described. `out` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tegra_hcq_buffer_import(
    device: *mut tegra_hcq_device,
    memory: *mut c_void,
    bytes: u64,
    out: *mut *mut tegra_hcq_buffer,
) -> Status {
    guard(|| {
        let (owner, device) = self::device(device)?;
        // SAFETY: the caller's promise.
        let out = unsafe { pass::out(out, "out")? };
        let memory = NonNull::new(memory.cast::<u8>()).ok_or_else(|| pass::null("memory"))?;
        // SAFETY: the caller's promise.
        let buffer = unsafe { device.import_raw(memory, pass::length(bytes, "bytes")?)? };
        hand_out(out, Object::Buffer(owner, Arc::new(buffer)))
    })
}

/// Frees a buffer. Its memory is freed after the work that uses it has ended. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn tegra_hcq_buffer_free(buffer: *mut tegra_hcq_buffer) -> Status {
    guard(|| TABLE.remove(buffer.addr() as u64, Kind::Buffer))
}

/// Size of a buffer in bytes. Thread-safe.
///
/// # Safety
///
/// `bytes` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tegra_hcq_buffer_size(buffer: *mut tegra_hcq_buffer, bytes: *mut u64) -> Status {
    guard(|| {
        // SAFETY: the caller's promise.
        let bytes = unsafe { pass::out(bytes, "bytes")? };
        bytes.put(self::buffer(buffer)?.byte_len() as u64);
        Ok(())
    })
}

/// Address of a buffer on the GPU, for structs and arrays of pointers. The library does not know work that reaches the
/// buffer by its address: keep the buffer until such work has ended. Thread-safe.
///
/// # Safety
///
/// `address` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tegra_hcq_buffer_gpu_address(
    buffer: *mut tegra_hcq_buffer,
    address: *mut u64,
) -> Status {
    guard(|| {
        // SAFETY: the caller's promise.
        let address = unsafe { pass::out(address, "address")? };
        address.put(self::buffer(buffer)?.gpu_va());
        Ok(())
    })
}

/// Address of a buffer on the CPU, valid until the buffer is freed. Accesses through it are not synchronised with the
/// GPU: call `tegra_hcq_buffer_wait` before, and let them end before the next launch that uses the buffer. Thread-safe.
///
/// Returns TEGRA_HCQ_STATUS_UNSUPPORTED for memory of a GPU that the CPU does not see: use `tegra_hcq_buffer_read` and
/// `tegra_hcq_buffer_write`.
///
/// # Safety
///
/// `address` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tegra_hcq_buffer_cpu_address(
    buffer: *mut tegra_hcq_buffer,
    address: *mut *mut c_void,
) -> Status {
    guard(|| {
        // SAFETY: the caller's promise.
        let address = unsafe { pass::out(address, "address")? };
        let pointer = self::buffer(buffer)?.cpu_address()?.ok_or_else(|| {
            Failure::new(
                Status::Unsupported,
                "the buffer is in the GPU's own memory, which the CPU does not see",
            )
        })?;
        address.put(pointer.as_ptr().cast());
        Ok(())
    })
}

/// Gives a buffer a name for fault reports. Thread-safe.
///
/// # Safety
///
/// `name` is NULL or a string that ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tegra_hcq_buffer_set_name(
    buffer: *mut tegra_hcq_buffer,
    name: *const c_char,
) -> Status {
    guard(|| {
        // SAFETY: the caller's promise.
        let name = unsafe { pass::text(name, "name")? };
        self::buffer(buffer)?.set_name(name);
        Ok(())
    })
}

/// Waits for the work that uses a buffer, at most `timeout_ns` nanoseconds. Thread-safe.
///
/// Returns TEGRA_HCQ_STATUS_BUSY if such work has been launched but not submitted.
#[unsafe(no_mangle)]
pub extern "C" fn tegra_hcq_buffer_wait(buffer: *mut tegra_hcq_buffer, timeout_ns: u64) -> Status {
    guard(|| Ok(self::buffer(buffer)?.wait(pass::timeout(timeout_ns))?))
}

/// Waits for the work that uses a buffer, at most 30 s, then copies `bytes` bytes of the process to it, from `offset`
/// on. Thread-safe, but two threads that write the same bytes race.
///
/// # Safety
///
/// `source` is valid for reads of `bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tegra_hcq_buffer_write(
    buffer: *mut tegra_hcq_buffer,
    offset: u64,
    source: *const c_void,
    bytes: u64,
) -> Status {
    guard(|| {
        let buffer = self::buffer(buffer)?;
        let range = pass::range(offset, bytes, buffer.byte_len())?;
        // SAFETY: the caller's promise. The handle's users do not write the same bytes at once.
        unsafe { buffer.slice_mut_unchecked(range)?.copy_from_slice(pass::bytes(source, bytes, "source")?)? };
        Ok(())
    })
}

/// Waits for the work that uses a buffer, at most 30 s, then copies `bytes` bytes of it, from `offset` on, to the
/// process. Thread-safe.
///
/// # Safety
///
/// `target` is valid for writes of `bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tegra_hcq_buffer_read(
    buffer: *mut tegra_hcq_buffer,
    offset: u64,
    target: *mut c_void,
    bytes: u64,
) -> Status {
    guard(|| {
        let buffer = self::buffer(buffer)?;
        let range = pass::range(offset, bytes, buffer.byte_len())?;
        // SAFETY: the caller's promise.
        let target = unsafe { pass::bytes_mut(target, bytes, "target")? };
        buffer.slice(range)?.copy_to_slice(target)?;
        Ok(())
    })
}
