//! Devices: opening, properties, memory, recovery.

use core::ffi::{c_char, c_void};
use std::time::SystemTime;

use tegra_hcq::{Device, DeviceKind, MAX_BLOCK_THREADS, OutputStream};

use crate::fork::Use;
use crate::handle::TABLE;
use crate::object::{Kind, Object};
use crate::pass;
use crate::status::{Failure, Status, guard};
use crate::types::{tegra_hcq_device, tegra_hcq_output_stream, tegra_hcq_properties};

/// The device that a handle names; cheap to clone.
pub(crate) fn device(handle: *mut tegra_hcq_device) -> Result<(u64, Device), Failure> {
    let number = handle.addr() as u64;
    match &*TABLE.lock(number, Kind::Device)? {
        Object::Device(device, _) => Ok((number, device.clone())),
        other => Err(Failure::handle(format!("a {} is not a device", other.kind().name()))),
    }
}

/// A handle as C sees it.
pub(crate) fn pointer<T>(handle: u64) -> *mut T {
    // CAST: pointers have 64 bits on the supported targets.
    core::ptr::without_provenance_mut(handle as usize)
}

/// Stores an object and gives its handle to C.
///
/// # Errors
///
/// As [`Table::insert`](crate::handle::Table::insert).
pub(crate) fn hand_out<T>(place: pass::Out<*mut T>, object: Object) -> Result<(), Failure> {
    place.put(pointer(TABLE.insert(object)?));
    Ok(())
}

/// Opens a GPU. `kind` is "auto", "nvgpu" (an Orin), "nvrm" (NVIDIA's desktop driver) or "sim" (the software Orin);
/// NULL is "auto", which takes the first of these that exists. `index` chooses among several GPUs; each software Orin,
/// of which there are 16, is a board of its own. `*out` is set only on success. Thread-safe.
///
/// Returns TEGRA_HCQ_STATUS_DEVICE if the device, the permission or a feature of its driver is missing (the text names
/// the remedy), TEGRA_HCQ_STATUS_UNSUPPORTED if this build of the library has no such driver.
///
/// # Safety
///
/// `kind` is NULL or a string that ends with a zero byte. `out` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tegra_hcq_device_open(
    kind: *const c_char,
    index: u32,
    out: *mut *mut tegra_hcq_device,
) -> Status {
    guard(|| {
        // SAFETY: the caller's promises.
        let (name, out) = unsafe {
            (if kind.is_null() { "auto" } else { pass::text(kind, "kind")? }, pass::out(out, "out")?)
        };
        let kind: DeviceKind = name.parse()?;
        // CAST: usize has 64 bits on the supported targets.
        let begun = Use::begin();
        let device = Device::open_nth(kind, index as usize)?;
        hand_out(out, Object::Device(device, begun))
    })
}

/// Closes a device with all its buffers, programs, queues and other objects, whose handles become invalid. Waits for
/// submitted work to end, at most 30 s. Thread-safe; calls of other threads on its objects end first or fail.
#[unsafe(no_mangle)]
pub extern "C" fn tegra_hcq_device_close(device: *mut tegra_hcq_device) -> Status {
    guard(|| TABLE.close(device.addr() as u64))
}

/// Fills `*properties`, whose `struct_size` the caller has set. Thread-safe.
///
/// # Safety
///
/// `properties` is NULL or valid for reads and writes of `struct_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tegra_hcq_device_properties(
    device: *mut tegra_hcq_device,
    properties: *mut tegra_hcq_properties,
) -> Status {
    guard(|| {
        let (_, device) = self::device(device)?;
        let info = device.info();
        let value = tegra_hcq_properties {
            struct_size: 0,
            sm_major: info.sm_version.0,
            sm_minor: info.sm_version.1,
            sm_count: info.sm_count,
            warps_per_sm: info.warps_per_sm,
            max_block_threads: MAX_BLOCK_THREADS,
            unified_memory: u32::from(info.unified_memory),
            gpc_count: info.gpc_count,
            l2_bytes: info.l2_bytes,
            max_clock_hz: info.max_clock_hz,
            kind: pass::fixed(info.kind.name()),
            chip: pass::fixed(&info.chip),
        };
        // SAFETY: the caller's promise.
        unsafe { pass::put_sized(properties, value, "properties") }
    })
}

/// Total and free memory of the machine or GPU, in bytes. Free is what allocations can get now. Thread-safe.
///
/// Returns TEGRA_HCQ_STATUS_UNSUPPORTED if the driver does not report it.
///
/// # Safety
///
/// `total` and `free` are NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tegra_hcq_device_memory(
    device: *mut tegra_hcq_device,
    total: *mut u64,
    free: *mut u64,
) -> Status {
    guard(|| {
        let (_, device) = self::device(device)?;
        // SAFETY: the caller's promises.
        let (total, free) = unsafe { (pass::out(total, "total")?, pass::out(free, "free")?) };
        let memory = device
            .memory()
            .ok_or_else(|| Failure::new(Status::Unsupported, "the driver does not report its memory"))?;
        total.put(memory.total);
        free.put(memory.available);
        Ok(())
    })
}

/// The current time by the GPU's clock, and by the system's as nanoseconds since the UNIX epoch. Thread-safe.
///
/// # Safety
///
/// `gpu_ns` and `unix_ns` are NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tegra_hcq_device_clocks(
    device: *mut tegra_hcq_device,
    gpu_ns: *mut u64,
    unix_ns: *mut u64,
) -> Status {
    guard(|| {
        let (_, device) = self::device(device)?;
        // SAFETY: the caller's promises.
        let (gpu_ns, unix_ns) = unsafe { (pass::out(gpu_ns, "gpu_ns")?, pass::out(unix_ns, "unix_ns")?) };
        let (gpu, system) = device.clock_pair()?;
        let since = system.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        gpu_ns.put(gpu);
        unix_ns.put(u64::try_from(since.as_nanos()).unwrap_or(u64::MAX));
        Ok(())
    })
}

/// Stops all queues that have faulted, or on which a wait has timed out. Their unfinished work is lost; its fences
/// keep reporting the cause. Buffers, programs and the queues themselves remain valid. `*faults` and `*hanging`, if not
/// NULL, are set to the number of queues stopped for either reason. Thread-safe.
///
/// # Safety
///
/// `faults` and `hanging` are NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tegra_hcq_device_recover(
    device: *mut tegra_hcq_device,
    faults: *mut u32,
    hanging: *mut u32,
) -> Status {
    guard(|| {
        let (_, device) = self::device(device)?;
        let recovery = device.recover()?;
        let count = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        for (place, number) in [(faults, recovery.faults.len()), (hanging, recovery.hanging)] {
            if !place.is_null() {
                // SAFETY: the caller's promise.
                unsafe { pass::out(place, "count")? }.put(count(number));
            }
        }
        Ok(())
    })
}

/// Returns idle memory of the device's allocator to the system. If `released` is not NULL, `*released` receives its
/// size in bytes. Thread-safe.
///
/// # Safety
///
/// `released` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tegra_hcq_device_trim(device: *mut tegra_hcq_device, released: *mut u64) -> Status {
    guard(|| {
        let (_, device) = self::device(device)?;
        TABLE.sweep();
        let bytes = device.trim();
        if !released.is_null() {
            // SAFETY: the caller's promise.
            unsafe { pass::out(released, "released")? }.put(bytes);
        }
        Ok(())
    })
}

/// A function that receives what kernels print, from the thread whose wait has ended or that closes the device: a
/// `tegra_hcq_output_stream`, the text, which does not end with a zero byte, its size in bytes, and the pointer given
/// with the function. The text is valid during the call. The function must not call functions of this library and must
/// not unwind.
#[allow(non_camel_case_types, reason = "this is the name of the C header")]
pub type tegra_hcq_output_callback =
    Option<unsafe extern "C" fn(stream: u32, text: *const c_char, bytes: u64, user: *mut c_void)>;

/// The function that receives output, and its pointer.
struct Sink {
    callback: unsafe extern "C" fn(u32, *const c_char, u64, *mut c_void),
    user: *mut c_void,
}

// SAFETY: the caller of `tegra_hcq_device_set_output` promises a function and a pointer that any thread may use.
unsafe impl Send for Sink {}

impl Sink {
    fn pass(&self, stream: OutputStream, text: &[u8]) {
        let stream = match stream {
            OutputStream::Out => tegra_hcq_output_stream::Out,
            OutputStream::Err => tegra_hcq_output_stream::Err,
        };
        // CAST: usize has 64 bits on the supported targets; the enum is a u32.
        let bytes = text.len() as u64;
        // SAFETY: the promise of the caller of `tegra_hcq_device_set_output`; the text outlives the call.
        unsafe { (self.callback)(stream as u32, text.as_ptr().cast(), bytes, self.user) };
    }
}

/// Passes what kernels print to a function instead of the process's standard streams; NULL passes it to those again.
/// Output arrives before a wait for the device returns, and before the device is closed. When this call returns, the
/// earlier function is not called any more. Thread-safe, but not to be called by the function.
///
/// # Safety
///
/// Any thread may call `callback` with `user` until it is replaced or the device is closed.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tegra_hcq_device_set_output(
    device: *mut tegra_hcq_device,
    callback: tegra_hcq_output_callback,
    user: *mut c_void,
) -> Status {
    guard(|| {
        let (_, device) = self::device(device)?;
        match callback {
            Some(callback) => {
                let sink = Sink { callback, user };
                device.on_output(move |stream, text| sink.pass(stream, text));
            }
            None => device.reset_output(),
        }
        Ok(())
    })
}

/// Size in bytes of the buffer for what kernels print between two waits. Initially 1 MiB. Thread-safe.
///
/// # Safety
///
/// `bytes` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tegra_hcq_device_printf_bytes(
    device: *mut tegra_hcq_device,
    bytes: *mut u64,
) -> Status {
    guard(|| {
        let (_, device) = self::device(device)?;
        // SAFETY: the caller's promise.
        unsafe { pass::out(bytes, "bytes")? }.put(device.printf_bytes());
        Ok(())
    })
}

/// Sets the size of the buffer for what kernels print, in bytes; it is rounded up to a power of two, at least 4 KiB.
/// While the buffer is full, `printf` returns -1. Each change keeps the old buffer until the device is closed.
/// Thread-safe.
///
/// Returns TEGRA_HCQ_STATUS_INVALID_ARGUMENT for more than 4 GiB, TEGRA_HCQ_STATUS_OUT_OF_MEMORY.
#[unsafe(no_mangle)]
pub extern "C" fn tegra_hcq_device_set_printf_bytes(device: *mut tegra_hcq_device, bytes: u64) -> Status {
    guard(|| Ok(self::device(device)?.1.set_printf_bytes(bytes)?))
}

/// Size in bytes of the heap for `malloc` in kernels. Initially 8 MiB. Thread-safe.
///
/// # Safety
///
/// `bytes` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tegra_hcq_device_kernel_heap_bytes(
    device: *mut tegra_hcq_device,
    bytes: *mut u64,
) -> Status {
    guard(|| {
        let (_, device) = self::device(device)?;
        // SAFETY: the caller's promise.
        unsafe { pass::out(bytes, "bytes")? }.put(device.kernel_heap_bytes());
        Ok(())
    })
}

/// Sets the size of the heap for `malloc` in kernels, in bytes; it is rounded down to pages of 4 KiB. No kernel may run
/// that calls `malloc`: memory that it gets meanwhile cannot be freed. Thread-safe.
///
/// Returns TEGRA_HCQ_STATUS_INVALID_ARGUMENT for more than 4 GiB, and if kernels have not freed all memory of the
/// present heap; TEGRA_HCQ_STATUS_OUT_OF_MEMORY.
#[unsafe(no_mangle)]
pub extern "C" fn tegra_hcq_device_set_kernel_heap_bytes(
    device: *mut tegra_hcq_device,
    bytes: u64,
) -> Status {
    guard(|| Ok(self::device(device)?.1.set_kernel_heap_bytes(bytes)?))
}
