//! The rival: the part of NVIDIA's CUDA driver API that the benchmarks need.
//!
//! A small safe wrapper. Every object keeps the context alive. Memory, graphs and streams wait for the GPU before they
//! are freed, so work in flight never uses freed memory. As with [`tegra_hcq::Queue::launch`], a kernel with wrong size
//! arguments can corrupt the GPU memory of the context.
//!
//! All objects belong to the thread that opened the context: they are not `Send`.

mod blas;
mod graph;
mod kernel;
mod library;
mod memory;
mod stream;

use core::ffi::{CStr, c_char, c_int, c_uint};
use core::fmt;
use core::ptr;
use core::ptr::NonNull;
use std::ffi::CString;
use std::path::PathBuf;
use std::rc::Rc;

pub use blas::{Blas, Elements};
pub use graph::Graph;
use kernel::Module;
pub use kernel::{Argument, Kernel, Launch};
use library::{DeviceNumber, Driver, Handle};
pub use memory::{Memory, Pinned, SharedWord};
pub use stream::{Event, Stream};

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
        Self::open_nth(Driver::load()?, 0)
    }

    /// Opens the first device of the CUDA library of this project, which is of the kind that `ORIN_CUDA_DEVICE` names.
    ///
    /// # Errors
    ///
    /// As [`Cuda::own_library`]; [`Error::Cuda`] if the device cannot be opened.
    pub fn own() -> Result<Self> {
        Self::open_nth(Driver::load_file(Self::own_library()?)?, 0)
    }

    /// The file of the CUDA library of this project: what `ORIN_LIBCUDA` names, else `libcuda.so` beside this program.
    ///
    /// # Errors
    ///
    /// [`Error::NoOwnCuda`] if there is no such file.
    pub fn own_library() -> Result<PathBuf> {
        library::own_library()
    }

    /// Opens the second device and lets both use each other's memory. The second one's context becomes current.
    ///
    /// # Errors
    ///
    /// Errors of libcuda, for example because there is no second device or the devices are not peers.
    pub fn second(&self) -> Result<Self> {
        let second = Self::open_nth(Driver::load()?, 1)?;
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

    fn open_nth(driver: Driver, ordinal: c_int) -> Result<Self> {
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

    /// Creates an event with times.
    ///
    /// # Errors
    ///
    /// Errors of libcuda.
    pub fn event(&self) -> Result<Event> {
        self.enter()?;
        let mut event = Event { context: Rc::clone(&self.context), handle: ptr::null_mut() };
        // SAFETY: the pointer is valid for the call.
        let status = unsafe { (self.context.driver.functions.event)(&raw mut event.handle, 0) };
        self.context.check("cuEventCreate", status)?;
        Ok(event)
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
