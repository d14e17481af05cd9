//! Queues: launches, copies, fills, submissions, waits.

use core::ffi::{c_char, c_void};

use tegra_hcq::{Fence, Queue, QueueOptions, WaitPolicy};

use crate::arguments;
use crate::buffer::buffer;
use crate::device::{device, hand_out, pointer};
use crate::fence::{FenceObject, fence};
use crate::handle::{Locked, TABLE};
use crate::object::{KernelObject, Kind, Object, QueueObject};
use crate::pass;
use crate::profile::ProfileObject;
use crate::signal::signal;
use crate::status::{Failure, Status, guard};
use crate::types::{
    tegra_hcq_arg, tegra_hcq_buffer, tegra_hcq_device, tegra_hcq_dim3, tegra_hcq_fence, tegra_hcq_kernel,
    tegra_hcq_profile, tegra_hcq_queue, tegra_hcq_queue_options, tegra_hcq_signal,
};

/// Locks the queue that a handle names.
#[inline]
pub(crate) fn lock(handle: *mut tegra_hcq_queue) -> Result<LockedQueue, Failure> {
    TABLE.lock(handle.addr() as u64, Kind::Queue).map(LockedQueue)
}

/// A queue that no other call uses.
pub(crate) struct LockedQueue(Locked);

impl LockedQueue {
    #[inline]
    pub(crate) fn get(&mut self) -> Result<&mut QueueObject, Failure> {
        match &mut *self.0 {
            Object::Queue(queue) => Ok(queue),
            other => Err(Failure::handle(format!("a {} is not a queue", other.kind().name()))),
        }
    }
}

/// Makes a submission on a locked queue and gives its fence to C, unless `out` is NULL. Without a free handle for the
/// fence nothing is submitted.
///
/// # Safety
///
/// `out` is NULL or valid for a write.
pub(crate) unsafe fn submit(
    mut locked: LockedQueue,
    out: *mut *mut tegra_hcq_fence,
    submit: impl FnOnce(&mut Queue) -> tegra_hcq::Result<Fence>,
) -> Result<(), Failure> {
    let place = if out.is_null() { None } else { Some(TABLE.reserve()?) };
    let object = locked.get()?;
    let (end, owner) = (submit(&mut object.queue)?, object.device);
    drop(locked);
    if let Some(place) = place {
        let handle = place.fill(Object::Fence(owner, std::sync::Arc::new(FenceObject::new(end))));
        // SAFETY: the caller's promise.
        unsafe { pass::out(out, "fence")? }.put(pointer(handle));
    }
    Ok(())
}

/// Options that C passes.
///
/// # Safety
///
/// `options` is NULL or valid for reads of `struct_size` bytes.
unsafe fn read_options(options: *const tegra_hcq_queue_options) -> Result<QueueOptions, Failure> {
    if options.is_null() {
        return Ok(QueueOptions::default());
    }
    let mut given = tegra_hcq_queue_options { struct_size: 0, sleep: 0, hold: 0 };
    // SAFETY: the struct begins with its size, which belongs to the caller.
    let size = unsafe { options.cast::<u32>().read_unaligned() } as usize;
    if !(8..=size_of::<tegra_hcq_queue_options>()).contains(&size) {
        return Err(Failure::argument(format!(
            "options: struct_size is {size}; set it to the size of the struct"
        )));
    }
    // SAFETY: `size` bytes at the pointer belong to the caller, and the struct has room for them.
    unsafe { core::ptr::copy_nonoverlapping(options.cast::<u8>(), (&raw mut given).cast::<u8>(), size) };
    if given.sleep > 1 || given.hold > 1 {
        return Err(Failure::argument("options: sleep and hold are 0 or 1"));
    }
    let wait = if given.sleep == 1 { WaitPolicy::Sleep } else { WaitPolicy::default() };
    Ok(QueueOptions::default().wait(wait).hold(given.hold == 1))
}

/// Opens a queue. `options` is NULL for the defaults. `*out` is set only on success. Thread-safe.
///
/// # Safety
///
/// `options` is NULL or valid for reads of its `struct_size` bytes. `out` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tegra_hcq_queue_open(
    device: *mut tegra_hcq_device,
    options: *const tegra_hcq_queue_options,
    out: *mut *mut tegra_hcq_queue,
) -> Status {
    guard(|| {
        let (owner, device) = self::device(device)?;
        // SAFETY: the caller's promises.
        let (options, out) = unsafe { (read_options(options)?, pass::out(out, "out")?) };
        let queue = device.queue_with(&options)?;
        hand_out(out, Object::Queue(Box::new(QueueObject { queue, spans: Vec::new(), device: owner })))
    })
}

/// Closes a queue after its submitted work has ended; work that was not submitted is dropped. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn tegra_hcq_queue_close(queue: *mut tegra_hcq_queue) -> Status {
    guard(|| TABLE.remove(queue.addr() as u64, Kind::Queue))
}

/// Adds a launch of `grid` blocks of `block` threads, with `shared_bytes` of dynamic shared memory per block. It runs
/// after all earlier work of the queue, once submitted. Number and sizes of the arguments are checked against the
/// kernel's parameters. The work keeps its buffers. Thread-safe; calls on one queue run one after the other.
///
/// # Safety
///
/// `args` is valid for `arg_count` reads, and addresses in it for theirs. The kernel accesses only the buffers among
/// the arguments, the variables of its program, and memory that stays allocated until the work has ended; the CPU
/// accesses none of them meanwhile.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tegra_hcq_queue_launch(
    queue: *mut tegra_hcq_queue,
    kernel: *mut tegra_hcq_kernel,
    grid: tegra_hcq_dim3,
    block: tegra_hcq_dim3,
    shared_bytes: u32,
    args: *const tegra_hcq_arg,
    arg_count: usize,
) -> Status {
    guard(|| {
        let mut locked = lock(queue)?;
        // SAFETY: the queue is locked until the end. A kernel's slot has the address of a `KernelObject`.
        let kernel: &KernelObject = unsafe { TABLE.peek(kernel.addr() as u64, Kind::Kernel)? };
        let mut list = arguments::List::new();
        // SAFETY: as above; the caller's promise.
        unsafe { arguments::append(&mut list, args, arg_count)? };
        let queue = &mut locked.get()?.queue;
        // SAFETY: the caller's promise.
        unsafe { queue.launch_with_shared(&kernel.kernel, grid, block, shared_bytes, &list)? };
        Ok(())
    })
}

/// Adds a copy of `bytes` bytes between buffers of the queue's device, or between two parts of one buffer that do not
/// overlap. Thread-safe; calls on one queue run one after the other.
///
/// # Safety
///
/// Until the copy has ended, the CPU does not access the target, and does not write the source, by their addresses.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tegra_hcq_queue_copy(
    queue: *mut tegra_hcq_queue,
    target: *mut tegra_hcq_buffer,
    target_offset: u64,
    source: *mut tegra_hcq_buffer,
    source_offset: u64,
    bytes: u64,
) -> Status {
    guard(|| {
        let pair = Pair::new(target, target_offset, source, source_offset, bytes)?;
        let mut locked = lock(queue)?;
        let queue = &mut locked.get()?.queue;
        // SAFETY: the parts do not overlap; the caller's promise.
        let target = unsafe { pair.target.slice_mut_unchecked(pair.to.clone())? };
        queue.copy(pair.source.slice(pair.from.clone())?, target)?;
        Ok(())
    })
}

/// Source and target of a copy.
pub(crate) struct Pair {
    pub(crate) target: std::sync::Arc<tegra_hcq::Buffer<u8>>,
    pub(crate) to: core::ops::Range<usize>,
    pub(crate) source: std::sync::Arc<tegra_hcq::Buffer<u8>>,
    pub(crate) from: core::ops::Range<usize>,
}

impl Pair {
    pub(crate) fn new(
        target: *mut tegra_hcq_buffer,
        target_offset: u64,
        source: *mut tegra_hcq_buffer,
        source_offset: u64,
        bytes: u64,
    ) -> Result<Self, Failure> {
        let (target, source) = (buffer(target)?, buffer(source)?);
        let to = pass::range(target_offset, bytes, target.byte_len())?;
        let from = pass::range(source_offset, bytes, source.byte_len())?;
        let same = std::sync::Arc::ptr_eq(&target, &source);
        if same && to.start < from.end && from.start < to.end {
            return Err(Failure::argument("source and target of the copy overlap"));
        }
        Ok(Self { target, to, source, from })
    }
}

/// Adds a fill of `bytes` bytes of a buffer with a value of `width` 1 or 4 bytes. A width of 4 demands an offset and a
/// size that are multiples of 4. Thread-safe; calls on one queue run one after the other.
///
/// # Safety
///
/// As for `tegra_hcq_queue_copy`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tegra_hcq_queue_fill(
    queue: *mut tegra_hcq_queue,
    target: *mut tegra_hcq_buffer,
    offset: u64,
    bytes: u64,
    value: u32,
    width: u32,
) -> Status {
    guard(|| {
        let pattern = Pattern::new(value, width)?;
        let target = buffer(target)?;
        let range = pass::range(offset, bytes, target.byte_len())?;
        // SAFETY: the caller's promise.
        let part = unsafe { target.slice_mut_unchecked(range)? };
        let mut locked = lock(queue)?;
        let queue = &mut locked.get()?.queue;
        match pattern {
            Pattern::Byte(byte) => queue.fill(part, byte)?,
            Pattern::Word(word) => queue.fill(part.cast::<u32>()?, word)?,
        }
        Ok(())
    })
}

/// The value of a fill.
pub(crate) enum Pattern {
    Byte(u8),
    Word(u32),
}

impl Pattern {
    /// Checks value and width.
    pub(crate) fn new(value: u32, width: u32) -> Result<Self, Failure> {
        match width {
            1 => u8::try_from(value)
                .map(Self::Byte)
                .map_err(|_| Failure::argument(format!("the value {value:#x} does not fit one byte"))),
            4 => Ok(Self::Word(value)),
            _ => Err(Failure::argument(format!("the width of a fill is {width}; permitted are 1 and 4"))),
        }
    }
}

/// Copies `bytes` bytes of the process to a buffer in the order of the queue, and submits. The bytes are not needed
/// after the call. If `fence` is not NULL, `*fence` receives a fence for the copy. Thread-safe; calls on one queue run
/// one after the other.
///
/// # Safety
///
/// `source` is valid for reads of `bytes` bytes. As for `tegra_hcq_queue_copy`. `fence` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tegra_hcq_queue_upload(
    queue: *mut tegra_hcq_queue,
    target: *mut tegra_hcq_buffer,
    offset: u64,
    source: *const c_void,
    bytes: u64,
    fence: *mut *mut tegra_hcq_fence,
) -> Status {
    guard(|| {
        let target = buffer(target)?;
        let range = pass::range(offset, bytes, target.byte_len())?;
        // SAFETY: the caller's promises.
        let (source, part) =
            unsafe { (pass::bytes(source, bytes, "source")?, target.slice_mut_unchecked(range)?) };
        // SAFETY: the caller's promise.
        unsafe { submit(lock(queue)?, fence, |queue| queue.upload(source, part)) }
    })
}

/// Submits all work added so far. If `fence` is not NULL, `*fence` receives a fence for it. Thread-safe; calls on one
/// queue run one after the other.
///
/// # Safety
///
/// `fence` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tegra_hcq_queue_submit(
    queue: *mut tegra_hcq_queue,
    fence: *mut *mut tegra_hcq_fence,
) -> Status {
    guard(|| {
        TABLE.sweep();
        // SAFETY: the caller's promise.
        unsafe { submit(lock(queue)?, fence, Queue::submit) }
    })
}

/// Submits all work added so far and waits until the queue's work has ended, at most `timeout_ns` nanoseconds.
/// Thread-safe; other threads may use the queue during the wait.
#[unsafe(no_mangle)]
pub extern "C" fn tegra_hcq_queue_wait(queue: *mut tegra_hcq_queue, timeout_ns: u64) -> Status {
    guard(|| {
        TABLE.sweep();
        let mut locked = lock(queue)?;
        let end = locked.get()?.queue.submit()?;
        drop(locked);
        Ok(end.wait(pass::timeout(timeout_ns))?)
    })
}

/// Makes the queue wait on the GPU until a submission of another queue of its device has ended. Thread-safe; calls on
/// one queue run one after the other.
#[unsafe(no_mangle)]
pub extern "C" fn tegra_hcq_queue_wait_fence(
    queue: *mut tegra_hcq_queue,
    fence: *mut tegra_hcq_fence,
) -> Status {
    guard(|| {
        let fence = self::fence(fence)?;
        Ok(lock(queue)?.get()?.queue.wait_fence(&fence.fence)?)
    })
}

/// Makes the queue wait on the GPU until a signal is at least `value`. Thread-safe; calls on one queue run one after
/// the other.
#[unsafe(no_mangle)]
pub extern "C" fn tegra_hcq_queue_wait_signal(
    queue: *mut tegra_hcq_queue,
    signal: *mut tegra_hcq_signal,
    value: u64,
) -> Status {
    guard(|| {
        let signal = self::signal(signal)?;
        Ok(lock(queue)?.get()?.queue.wait_signal(&signal, value)?)
    })
}

/// Sets a signal's value and time on the GPU after all earlier work of the queue. Thread-safe; calls on one queue run
/// one after the other.
#[unsafe(no_mangle)]
pub extern "C" fn tegra_hcq_queue_signal(
    queue: *mut tegra_hcq_queue,
    signal: *mut tegra_hcq_signal,
    value: u64,
) -> Status {
    guard(|| {
        let signal = self::signal(signal)?;
        Ok(lock(queue)?.get()?.queue.signal(&signal, value)?)
    })
}

/// Makes writes by the CPU and other queues visible to later work of the queue, and the other way round. Needed only
/// if work is connected by other means than submissions, fences and signals. Thread-safe; calls on one queue run one
/// after the other.
#[unsafe(no_mangle)]
pub extern "C" fn tegra_hcq_queue_memory_barrier(queue: *mut tegra_hcq_queue) -> Status {
    guard(|| Ok(lock(queue)?.get()?.queue.memory_barrier()?))
}

/// Starts or stops recording the times of the queue's operations. Thread-safe; calls on one queue run one after the
/// other.
#[unsafe(no_mangle)]
pub extern "C" fn tegra_hcq_queue_profile(queue: *mut tegra_hcq_queue, enabled: bool) -> Status {
    guard(|| Ok(lock(queue)?.get()?.queue.profile(enabled)?))
}

/// Submits, waits until the queue's work has ended, at most 30 s, and takes what was recorded. `*out` is set only on
/// success. Thread-safe; calls on one queue run one after the other.
///
/// # Safety
///
/// `out` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tegra_hcq_queue_take_profile(
    queue: *mut tegra_hcq_queue,
    out: *mut *mut tegra_hcq_profile,
) -> Status {
    guard(|| {
        // SAFETY: the caller's promise.
        let out = unsafe { pass::out(out, "out")? };
        let mut locked = lock(queue)?;
        let object = locked.get()?;
        let (profile, owner) = (object.queue.take_profile()?, object.device);
        drop(locked);
        hand_out(out, Object::Profile(owner, std::sync::Arc::new(ProfileObject::new(profile))))
    })
}

/// Names the calls on the queue until `tegra_hcq_queue_end_span`, for its profile. Spans may be nested. Thread-safe;
/// calls on one queue run one after the other.
///
/// # Safety
///
/// `name` is NULL or a string that ends with a zero byte.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tegra_hcq_queue_begin_span(
    queue: *mut tegra_hcq_queue,
    name: *const c_char,
) -> Status {
    guard(|| {
        // SAFETY: the caller's promise.
        let name = unsafe { pass::text(name, "name")? };
        let mut locked = lock(queue)?;
        let object = locked.get()?;
        let span = object.queue.span(name);
        object.spans.push(span);
        Ok(())
    })
}

/// Ends the innermost span of the queue. Thread-safe; calls on one queue run one after the other.
#[unsafe(no_mangle)]
pub extern "C" fn tegra_hcq_queue_end_span(queue: *mut tegra_hcq_queue) -> Status {
    guard(|| {
        let ended = lock(queue)?.get()?.spans.pop();
        ended.map(drop).ok_or_else(|| Failure::argument("the queue has no open span"))
    })
}
