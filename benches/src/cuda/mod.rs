//! The rival: the part of NVIDIA's CUDA driver API that the benchmarks need.
//!
//! A small safe wrapper. Every object keeps the context alive. Memory, graphs and streams wait for the GPU before they
//! are freed, so work in flight never uses freed memory. As with [`tegra_hcq::Queue::launch`], a kernel with wrong size
//! arguments can corrupt the GPU memory of the context.
//!
//! All objects belong to the thread that opened the context: they are not `Send`.

mod blas;
mod graph;
mod library;

use core::ffi::{CStr, c_char, c_int, c_uint, c_void};
use core::fmt;
use core::ptr;
use core::ptr::NonNull;
use std::ffi::CString;
use std::rc::Rc;

pub use blas::{Blas, Elements};
pub use graph::Graph;
use library::{Address, DeviceNumber, Driver, Handle};

use crate::error::{Error, Result};
use crate::kernels::Kernels;

/// CU_CTX_SCHED_SPIN: waiting for a stream spins, which is fastest.
const SCHEDULE_SPIN: c_uint = 1;
/// CU_STREAM_NON_BLOCKING: no synchronisation with the legacy default stream.
const NON_BLOCKING: c_uint = 1;
/// CU_EVENT_BLOCKING_SYNC | CU_EVENT_DISABLE_TIMING: waiting for the event sleeps.
const SLEEPING_EVENT: c_uint = 1 | 2;
/// CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED.
const PEER_ACCESS_ALREADY_ENABLED: c_int = 704;
/// CU_MEMHOSTALLOC_DEVICEMAP.
const DEVICE_MAP: c_uint = 2;
/// CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR and _MINOR.
const CAPABILITY: [c_int; 2] = [75, 76];

/// Maximum number of arguments of a launch.
const MAX_ARGUMENTS: usize = 8;

/// The context, with its driver and device.
struct Context {
    driver: Driver,
    device: DeviceNumber,
    handle: Handle,
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Context").field("driver", &self.driver).field("device", &self.device).finish()
    }
}

impl Context {
    fn check(&self, call: &'static str, status: c_int) -> Result<()> {
        self.driver.check(call, status)
    }

    /// Makes the context the thread's current one.
    fn enter(&self) -> Result<()> {
        // SAFETY: the context is retained as long as `self`.
        self.check("cuCtxSetCurrent", unsafe { (self.driver.functions.context_set)(self.handle) })
    }

    /// Waits for everything in flight. Ignores errors, because the caller's own waits have reported them.
    fn settle(&self) {
        let _ = self.enter();
        // SAFETY: the context is current on this thread, which opened it: no object is `Send`.
        let _ = unsafe { (self.driver.functions.context_synchronize)() };
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: `open` has retained the context once.
        let _ = unsafe { (self.driver.functions.context_release)(self.device) };
    }
}

/// A CUDA device with its primary context. Calls on streams belong to the device whose context is current: see
/// [`Cuda::enter`].
#[derive(Clone, Debug)]
pub struct Cuda {
    context: Rc<Context>,
    name: String,
    version: (u32, u32),
    sm: u32,
}

impl Cuda {
    /// Loads libcuda and opens its first device.
    ///
    /// # Errors
    ///
    /// [`Error::NoCuda`] without the library, [`Error::Cuda`] if it finds no device.
    pub fn open() -> Result<Self> {
        Self::open_nth(0)
    }

    /// Opens the second device and lets both use each other's memory. The second one's context becomes current.
    ///
    /// # Errors
    ///
    /// Errors of libcuda, for example because there is no second device or the devices are not peers.
    pub fn second(&self) -> Result<Self> {
        let second = Self::open_nth(1)?;
        for (from, to) in [(&second, self), (self, &second)] {
            from.enter()?;
            // SAFETY: both contexts are retained.
            let status = unsafe { (from.context.driver.functions.peer_enable)(to.context.handle, 0) };
            if status != PEER_ACCESS_ALREADY_ENABLED {
                from.context.check("cuCtxEnablePeerAccess", status)?;
            }
        }
        second.enter()?;
        Ok(second)
    }

    /// Makes the device's context the thread's current one.
    ///
    /// # Errors
    ///
    /// Errors of libcuda.
    pub fn enter(&self) -> Result<()> {
        self.context.enter()
    }

    fn open_nth(ordinal: c_int) -> Result<Self> {
        let driver = Driver::load()?;
        let functions = driver.functions;
        let (mut device, mut version, mut name) = (0, 0, [0 as c_char; 100]);
        // SAFETY: no pointers.
        driver.check("cuInit", unsafe { (functions.init)(0) })?;
        // SAFETY: the pointer is valid for the call.
        driver.check("cuDeviceGet", unsafe { (functions.device)(&raw mut device, ordinal) })?;
        // SAFETY: as above.
        driver.check("cuDriverGetVersion", unsafe { (functions.driver_version)(&raw mut version) })?;
        // SAFETY: the buffer has the given length, and libcuda terminates the name with a zero byte.
        let status = unsafe { (functions.device_name)(name.as_mut_ptr(), name.len() as c_int, device) };
        driver.check("cuDeviceGetName", status)?;
        // SAFETY: `name` is a C string, because its last byte stays zero.
        let name = unsafe { CStr::from_ptr(name.as_ptr()) }.to_string_lossy().into_owned();
        let mut capability = [0, 0];
        for (attribute, value) in CAPABILITY.into_iter().zip(&mut capability) {
            // SAFETY: the pointer is valid for the call.
            let status = unsafe { (functions.device_attribute)(&raw mut *value, attribute, device) };
            driver.check("cuDeviceGetAttribute", status)?;
        }
        let unsigned = |value: c_int| u32::try_from(value).unwrap_or(0);
        // SAFETY: no pointers.
        let status = unsafe { (functions.context_flags)(device, SCHEDULE_SPIN) };
        driver.check("cuDevicePrimaryCtxSetFlags", status)?;
        let mut handle = ptr::null_mut();
        // SAFETY: the pointer is valid for the call.
        let status = unsafe { (functions.context_retain)(&raw mut handle, device) };
        driver.check("cuDevicePrimaryCtxRetain", status)?;
        // From here on, `drop` releases the context.
        let context = Context { driver, device, handle };
        context.enter()?;
        let version = unsigned(version);
        Ok(Self {
            context: Rc::new(context),
            name,
            version: (version / 1000, version % 1000 / 10),
            sm: 10 * unsigned(capability[0]) + unsigned(capability[1]),
        })
    }

    /// Name of the device.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Newest CUDA version that the driver supports, major and minor.
    pub fn version(&self) -> (u32, u32) {
        self.version
    }

    /// SM version, ten times the major number plus the minor.
    pub fn sm(&self) -> u32 {
        self.sm
    }

    /// Path or name under which the library was found.
    pub fn library(&self) -> &str {
        &self.context.driver.name
    }

    /// Loads kernels and returns one of them.
    ///
    /// # Errors
    ///
    /// [`Error::NoImage`], or errors of libcuda.
    pub fn kernel(&self, kernels: &Kernels, name: &str) -> Result<Kernel> {
        let image = kernels.image(self.sm)?;
        let parsed = kernels.parse(image)?;
        let of_file = |source| Error::Cubin { file: kernels.file, source };
        let parameters: Vec<_> =
            parsed.kernel(name).map_err(of_file)?.params.iter().map(|param| param.bytes.into()).collect();
        let functions = self.context.driver.functions;
        let mut module = ptr::null_mut();
        // SAFETY: the image is a whole ELF file, as `parse` has checked; libcuda copies it.
        let status = unsafe { (functions.module_load)(&raw mut module, image.as_ptr().cast()) };
        self.context.check("cuModuleLoadData", status)?;
        let module = Module { context: Rc::clone(&self.context), handle: module };
        let symbol = CString::new(name).unwrap_or_default();
        let mut function = ptr::null_mut();
        // SAFETY: the module is loaded; the string outlives the call.
        let status =
            unsafe { (functions.module_function)(&raw mut function, module.handle, symbol.as_ptr()) };
        self.context.check("cuModuleGetFunction", status)?;
        Ok(Kernel { _module: Rc::new(module), function, name: name.to_owned(), parameters })
    }

    /// Allocates device memory.
    ///
    /// # Errors
    ///
    /// Errors of libcuda.
    pub fn memory(&self, bytes: usize) -> Result<Memory> {
        self.enter()?;
        let mut address = 0;
        // SAFETY: the pointer is valid for the call.
        let status = unsafe { (self.context.driver.functions.allocate)(&raw mut address, bytes) };
        self.context.check("cuMemAlloc", status)?;
        Ok(Memory { context: Rc::clone(&self.context), address, bytes })
    }

    /// Allocates a word of host memory that kernels can access.
    ///
    /// # Errors
    ///
    /// Errors of libcuda.
    pub fn shared_word(&self) -> Result<SharedWord> {
        self.enter()?;
        let functions = self.context.driver.functions;
        let mut pointer = ptr::null_mut();
        // SAFETY: the pointer is valid for the call.
        let status = unsafe { (functions.host_allocate)(&raw mut pointer, size_of::<u64>(), DEVICE_MAP) };
        self.context.check("cuMemHostAlloc", status)?;
        let pointer = NonNull::new(pointer.cast::<u64>())
            .ok_or_else(|| Error::Cuda { call: "cuMemHostAlloc", reason: "returned no memory".into() })?;
        let mut word = SharedWord { context: Rc::clone(&self.context), pointer, address: 0 };
        // SAFETY: the memory was allocated with DEVICEMAP.
        let status = unsafe { (functions.host_address)(&raw mut word.address, pointer.as_ptr().cast(), 0) };
        self.context.check("cuMemHostGetDevicePointer", status)?;
        word.set(0);
        Ok(word)
    }

    /// Allocates zeroed pinned host memory.
    ///
    /// # Errors
    ///
    /// Errors of libcuda.
    pub fn pinned(&self, bytes: usize) -> Result<Pinned> {
        let functions = self.context.driver.functions;
        let mut pointer = ptr::null_mut();
        // SAFETY: the pointer is valid for the call.
        let status = unsafe { (functions.host_allocate)(&raw mut pointer, bytes, 0) };
        self.context.check("cuMemHostAlloc", status)?;
        let pointer = NonNull::new(pointer.cast::<u8>())
            .ok_or_else(|| Error::Cuda { call: "cuMemHostAlloc", reason: "returned no memory".into() })?;
        // SAFETY: the memory is fresh and has that length.
        unsafe { pointer.write_bytes(0, bytes) };
        Ok(Pinned { context: Rc::clone(&self.context), pointer, bytes })
    }

    /// Opens a stream.
    ///
    /// # Errors
    ///
    /// Errors of libcuda.
    pub fn stream(&self) -> Result<Stream> {
        self.enter()?;
        let functions = self.context.driver.functions;
        let mut handle = ptr::null_mut();
        // SAFETY: the pointer is valid for the call.
        let status = unsafe { (functions.stream)(&raw mut handle, NON_BLOCKING) };
        self.context.check("cuStreamCreate", status)?;
        let mut stream = Stream { context: Rc::clone(&self.context), handle, event: ptr::null_mut() };
        // SAFETY: the pointer is valid for the call.
        let status = unsafe { (functions.event)(&raw mut stream.event, SLEEPING_EVENT) };
        self.context.check("cuEventCreate", status)?;
        Ok(stream)
    }
}

/// A loaded image.
#[derive(Debug)]
struct Module {
    context: Rc<Context>,
    handle: Handle,
}

impl Drop for Module {
    fn drop(&mut self) {
        self.context.settle();
        // SAFETY: the module is loaded, and none of its kernels runs any more.
        let _ = unsafe { (self.context.driver.functions.module_unload)(self.handle) };
    }
}

/// A kernel.
#[derive(Clone, Debug)]
pub struct Kernel {
    /// Keeps the function loaded.
    _module: Rc<Module>,
    function: Handle,
    name: String,
    /// Sizes of the parameters in bytes.
    parameters: Vec<usize>,
}

/// One argument of a launch.
#[derive(Clone, Copy, Debug)]
pub enum Argument {
    /// A pointer.
    Address(u64),
    /// Four bytes.
    U32(u32),
}

impl Argument {
    fn bytes(self) -> usize {
        match self {
            Self::Address(_) => 8,
            Self::U32(_) => 4,
        }
    }

    /// The value in the low bytes. CUDA supports only little-endian hosts.
    fn bits(self) -> u64 {
        match self {
            Self::Address(value) => value,
            Self::U32(value) => value.into(),
        }
    }
}

impl Kernel {
    /// Prepares a launch of `grid` blocks of `block` threads, checked against the kernel's parameters.
    ///
    /// # Errors
    ///
    /// [`Error::Arguments`].
    pub fn launch(&self, grid: [u32; 3], block: [u32; 3], arguments: &[Argument]) -> Result<Launch> {
        let given: Vec<_> = arguments.iter().map(|argument| argument.bytes()).collect();
        check_sizes(&self.name, &self.parameters, &given)?;
        let mut values = [0; MAX_ARGUMENTS];
        for (value, argument) in values.iter_mut().zip(arguments) {
            *value = argument.bits();
        }
        Ok(Launch { kernel: self.clone(), grid, block, values })
    }
}

fn check_sizes(kernel: &str, wanted: &[usize], given: &[usize]) -> Result<()> {
    if wanted == given && given.len() <= MAX_ARGUMENTS {
        return Ok(());
    }
    Err(Error::Arguments { kernel: kernel.to_owned(), wanted: wanted.to_vec(), given: given.to_vec() })
}

/// A prepared launch. The caller keeps the memory that its arguments point to until it has waited for the stream;
/// dropping [`Memory`] also waits.
#[derive(Clone, Debug)]
pub struct Launch {
    kernel: Kernel,
    grid: [u32; 3],
    block: [u32; 3],
    values: [u64; MAX_ARGUMENTS],
}

impl Launch {
    /// Replaces an argument.
    ///
    /// # Errors
    ///
    /// [`Error::Arguments`] if there is no such argument or its size differs.
    pub fn set(&mut self, index: usize, argument: Argument) -> Result<()> {
        let mut given = self.kernel.parameters.clone();
        if index >= given.len() {
            given.resize(index + 1, 0);
        }
        given[index] = argument.bytes();
        check_sizes(&self.kernel.name, &self.kernel.parameters, &given)?;
        self.values[index] = argument.bits();
        Ok(())
    }

    /// Pointers to the values, in the form that libcuda expects. libcuda reads and copies the values.
    #[inline]
    fn pointers(&mut self) -> [*mut c_void; MAX_ARGUMENTS] {
        self.values.each_mut().map(|value| ptr::from_mut(value).cast())
    }
}

/// Device memory.
#[derive(Debug)]
pub struct Memory {
    context: Rc<Context>,
    address: Address,
    bytes: usize,
}

impl Memory {
    /// The address as an argument of a launch.
    pub fn argument(&self) -> Argument {
        Argument::Address(self.address)
    }

    fn check_length(&self, call: &'static str, bytes: usize) -> Result<()> {
        if bytes <= self.bytes {
            return Ok(());
        }
        Err(Error::Cuda { call, reason: format!("{bytes} bytes do not fit into {}", self.bytes) })
    }

    /// Copies `source` to the start of the memory.
    ///
    /// # Errors
    ///
    /// Returns an error if `source` does not fit. Errors of libcuda.
    pub fn copy_from(&mut self, source: &[u8]) -> Result<()> {
        self.check_length("cuMemcpyHtoD", source.len())?;
        let copy = self.context.driver.functions.copy_to_device;
        // SAFETY: both sides have that many bytes; the call returns after the source has been read.
        let status = unsafe { copy(self.address, source.as_ptr().cast(), source.len()) };
        self.context.check("cuMemcpyHtoD", status)
    }

    /// Copies the start of the memory to `target`.
    ///
    /// # Errors
    ///
    /// Returns an error if `target` is longer than the memory. Errors of libcuda.
    pub fn copy_to(&self, target: &mut [u8]) -> Result<()> {
        self.check_length("cuMemcpyDtoH", target.len())?;
        let copy = self.context.driver.functions.copy_to_host;
        // SAFETY: both sides have that many bytes; the call returns after the target has been written.
        let status = unsafe { copy(target.as_mut_ptr().cast(), self.address, target.len()) };
        self.context.check("cuMemcpyDtoH", status)
    }

    /// Frees the memory immediately, without the wait of `drop`. No work in flight may use it.
    ///
    /// # Errors
    ///
    /// Errors of libcuda.
    pub fn free(self) -> Result<()> {
        let memory = core::mem::ManuallyDrop::new(self);
        // SAFETY: `self` is never dropped, so its context is still alive and is moved out exactly once.
        let context = unsafe { ptr::read(&raw const memory.context) };
        // SAFETY: allocated by `cuMemAlloc`, freed once; cuMemFree waits for work that uses the memory.
        let status = unsafe { (context.driver.functions.free)(memory.address) };
        context.check("cuMemFree", status)
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        self.context.settle();
        // SAFETY: allocated by `cuMemAlloc`, freed once, and nothing uses it any more.
        let _ = unsafe { (self.context.driver.functions.free)(self.address) };
    }
}

/// A 64-bit word of host memory that kernels and streams can access.
#[derive(Debug)]
pub struct SharedWord {
    context: Rc<Context>,
    pointer: NonNull<u64>,
    address: Address,
}

impl SharedWord {
    /// The address as an argument of a launch.
    pub fn argument(&self) -> Argument {
        Argument::Address(self.address)
    }

    /// The value.
    #[inline]
    pub fn value(&self) -> u64 {
        // SAFETY: aligned memory owned by `self`; volatile because the GPU may write it.
        unsafe { self.pointer.read_volatile() }
    }

    /// Sets the value.
    #[inline]
    pub fn set(&self, value: u64) {
        // SAFETY: as in `value`.
        unsafe { self.pointer.write_volatile(value) };
    }
}

impl Drop for SharedWord {
    fn drop(&mut self) {
        self.context.settle();
        // SAFETY: allocated by `cuMemHostAlloc`, freed once, and nothing uses it any more.
        let _ = unsafe { (self.context.driver.functions.host_free)(self.pointer.as_ptr().cast()) };
    }
}

/// Pinned host memory.
#[derive(Debug)]
pub struct Pinned {
    context: Rc<Context>,
    pointer: NonNull<u8>,
    bytes: usize,
}

impl Pinned {
    /// The bytes, while no copy is in flight.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: the memory has that length, is owned by `self` and was initialised on allocation. Streams access it
        // only between a call that borrows it and the wait for that call.
        unsafe { std::slice::from_raw_parts_mut(self.pointer.as_ptr(), self.bytes) }
    }
}

impl Drop for Pinned {
    fn drop(&mut self) {
        self.context.settle();
        // SAFETY: allocated by `cuMemHostAlloc`, freed once, and nothing uses it any more.
        let _ = unsafe { (self.context.driver.functions.host_free)(self.pointer.as_ptr().cast()) };
    }
}

/// A stream, with an event for sleeping waits.
#[derive(Debug)]
pub struct Stream {
    context: Rc<Context>,
    handle: Handle,
    event: Handle,
}

impl Stream {
    /// Submits a launch.
    ///
    /// # Errors
    ///
    /// Errors of libcuda.
    #[inline]
    pub fn launch(&self, launch: &mut Launch) -> Result<()> {
        let mut pointers = launch.pointers();
        let ([x, y, z], [u, v, w]) = (launch.grid, launch.block);
        let function = launch.kernel.function;
        let send = self.context.driver.functions.launch;
        // SAFETY: the kernel's module stays loaded while `launch` lives, and is unloaded only when nothing runs. There
        // is a pointer to a value of the right size for each parameter.
        let status = unsafe {
            send(function, x, y, z, u, v, w, 0, self.handle, pointers.as_mut_ptr(), ptr::null_mut())
        };
        self.context.check("cuLaunchKernel", status)
    }

    /// Submits a copy of `bytes` bytes from the start of `source` to the start of `target`.
    ///
    /// # Errors
    ///
    /// Returns an error if one of them is too short. Errors of libcuda.
    pub fn copy(&self, source: &Memory, target: &mut Memory, bytes: usize) -> Result<()> {
        source.check_length("cuMemcpyDtoDAsync", bytes)?;
        target.check_length("cuMemcpyDtoDAsync", bytes)?;
        let copy = self.context.driver.functions.copy_on_device;
        // SAFETY: both have that many bytes and wait for the GPU before they are freed.
        let status = unsafe { copy(target.address, source.address, bytes, self.handle) };
        self.context.check("cuMemcpyDtoDAsync", status)
    }

    /// As [`Stream::copy`], between the memory of two devices.
    ///
    /// # Errors
    ///
    /// As [`Stream::copy`].
    pub fn copy_peer(&self, source: &Memory, target: &mut Memory, bytes: usize) -> Result<()> {
        source.check_length("cuMemcpyPeerAsync", bytes)?;
        target.check_length("cuMemcpyPeerAsync", bytes)?;
        let copy = self.context.driver.functions.copy_peer;
        let (to, from) = (target.context.handle, source.context.handle);
        // SAFETY: as in `copy`; both contexts are retained.
        let status = unsafe { copy(target.address, to, source.address, from, bytes, self.handle) };
        self.context.check("cuMemcpyPeerAsync", status)
    }

    /// Copies all of `source` to the start of `target` and waits for completion.
    ///
    /// # Errors
    ///
    /// Returns an error if the target is too short. Errors of libcuda.
    pub fn copy_up(&self, source: &Pinned, target: &mut Memory) -> Result<()> {
        target.check_length("cuMemcpyHtoDAsync", source.bytes)?;
        let copy = self.context.driver.functions.copy_to_device_async;
        // SAFETY: both have that many bytes and are borrowed until the copy has completed.
        let status =
            unsafe { copy(target.address, source.pointer.as_ptr().cast(), source.bytes, self.handle) };
        self.context.check("cuMemcpyHtoDAsync", status)?;
        self.wait()
    }

    /// Copies the start of `source` to all of `target` and waits for completion.
    ///
    /// # Errors
    ///
    /// Returns an error if the source is too short. Errors of libcuda.
    pub fn copy_down(&self, source: &Memory, target: &mut Pinned) -> Result<()> {
        source.check_length("cuMemcpyDtoHAsync", target.bytes)?;
        let copy = self.context.driver.functions.copy_to_host_async;
        // SAFETY: as in `copy_up`.
        let status =
            unsafe { copy(target.pointer.as_ptr().cast(), source.address, target.bytes, self.handle) };
        self.context.check("cuMemcpyDtoHAsync", status)?;
        self.wait()
    }

    /// Allocates from the device's pool and frees to it, in stream order.
    ///
    /// # Errors
    ///
    /// Errors of libcuda. Some devices have no pools.
    pub fn allocate_and_free(&self, bytes: usize) -> Result<()> {
        let functions = self.context.driver.functions;
        let mut address = 0;
        // SAFETY: the pointer is valid for the call.
        let status = unsafe { (functions.allocate_async)(&raw mut address, bytes, self.handle) };
        self.context.check("cuMemAllocAsync", status)?;
        // SAFETY: the memory was just allocated and is not in use.
        let status = unsafe { (functions.free_async)(address, self.handle) };
        self.context.check("cuMemFreeAsync", status)
    }

    /// Makes the stream wait until the word is at least `value`.
    ///
    /// # Errors
    ///
    /// Errors of libcuda. Some devices do not support it.
    pub fn wait_value(&self, word: &SharedWord, value: u64) -> Result<()> {
        // SAFETY: the word waits for the GPU before it is freed. Flag 0 is CU_STREAM_WAIT_VALUE_GEQ.
        let status =
            unsafe { (self.context.driver.functions.stream_wait_value)(self.handle, word.address, value, 0) };
        self.context.check("cuStreamWaitValue64", status)
    }

    /// Sets the word after all earlier work of the stream has completed.
    ///
    /// # Errors
    ///
    /// Errors of libcuda. Some devices do not support it.
    pub fn write_value(&self, word: &SharedWord, value: u64) -> Result<()> {
        // SAFETY: as in `wait_value`. Flag 0 is CU_STREAM_WRITE_VALUE_DEFAULT.
        let status = unsafe {
            (self.context.driver.functions.stream_write_value)(self.handle, word.address, value, 0)
        };
        self.context.check("cuStreamWriteValue64", status)
    }

    /// Spins until all submitted work has completed.
    ///
    /// # Errors
    ///
    /// Errors of libcuda, including those of the work.
    #[inline]
    pub fn wait(&self) -> Result<()> {
        // SAFETY: the stream is open.
        let status = unsafe { (self.context.driver.functions.stream_synchronize)(self.handle) };
        self.context.check("cuStreamSynchronize", status)
    }

    /// Sleeps until all submitted work has completed.
    ///
    /// # Errors
    ///
    /// Errors of libcuda, including those of the work.
    pub fn wait_asleep(&self) -> Result<()> {
        let functions = self.context.driver.functions;
        // SAFETY: event and stream are open.
        let status = unsafe { (functions.event_record)(self.event, self.handle) };
        self.context.check("cuEventRecord", status)?;
        // SAFETY: the event is open.
        let status = unsafe { (functions.event_synchronize)(self.event) };
        self.context.check("cuEventSynchronize", status)
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.context.settle();
        let functions = self.context.driver.functions;
        if !self.event.is_null() {
            // SAFETY: the event is open and no thread waits for it.
            let _ = unsafe { (functions.event_destroy)(self.event) };
        }
        // SAFETY: the stream is open and idle.
        let _ = unsafe { (functions.stream_destroy)(self.handle) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arguments_have_the_size_of_their_type() {
        let (pointer, number) = (Argument::Address(0x1_0000_0002), Argument::U32(7));
        assert_eq!((pointer.bytes(), number.bytes()), (8, 4));
        assert_eq!((pointer.bits(), number.bits().to_le_bytes()[0]), (0x1_0000_0002, 7));
    }

    #[test]
    fn arguments_that_do_not_fit_are_refused() {
        check_sizes("k", &[8, 4], &[8, 4]).unwrap();
        let error = check_sizes("fill", &[8, 4], &[8, 8]).unwrap_err().to_string();
        assert_eq!(error, "kernel fill takes parameters of [8, 4] bytes, got [8, 8]");
        assert!(check_sizes("k", &[4; 9], &[4; 9]).is_err(), "more than the wrapper passes on");
    }
}
