//! Launches.

use core::cell::RefCell;
use core::ffi::c_void;

use crate::call::{api, read, write};
use crate::driver::cu;
use crate::error::{Error, Result};
use crate::register::function;

/// `dim3`.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Dim3 {
    x: u32,
    y: u32,
    z: u32,
}

/// What `<<<...>>>` says.
#[derive(Clone, Copy, Debug)]
struct Configuration {
    grid: Dim3,
    block: Dim3,
    shared: usize,
    stream: usize,
}

thread_local! {
    /// The configurations of launches whose arguments are being computed.
    static CONFIGURATIONS: RefCell<Vec<Configuration>> = const { RefCell::new(Vec::new()) };
}

/// The error of a launch that the driver has refused: its shape, if the function exists.
fn launched(result: Result) -> Result {
    result.map_err(|error| if error == Error::INVALID_VALUE { Error::INVALID_CONFIGURATION } else { error })
}

/// Shared memory of a block, in bytes.
fn shared_bytes(bytes: usize) -> Result<u32> {
    u32::try_from(bytes).map_err(|_| Error::INVALID_VALUE)
}

/// `cudaLaunchConfig_t`. The driver's has 32 bits of shared memory, in the low half.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Config {
    grid: Dim3,
    block: Dim3,
    shared: usize,
    stream: usize,
    attributes: *const c_void,
    count: u32,
}

/// `__cudaPushCallConfiguration` of `crt/host_runtime.h`. Returns 0: the launch is to be done.
#[unsafe(no_mangle)]
pub extern "C" fn __cudaPushCallConfiguration(grid: Dim3, block: Dim3, shared: usize, stream: usize) -> u32 {
    let configuration = Configuration { grid, block, shared, stream };
    // A destructor of a thread's variable that launches gets an error when it takes the configuration.
    let _ = CONFIGURATIONS.try_with(|list| list.borrow_mut().push(configuration));
    0
}

api! {
    pop_configuration(grid: *mut Dim3, block: *mut Dim3, shared: *mut usize, stream: *mut usize)
    [__cudaPopCallConfiguration Legacy] {
        let found = CONFIGURATIONS.try_with(|list| list.borrow_mut().pop()).ok().flatten();
        let found = found.ok_or(Error::MISSING_CONFIGURATION)?;
        write(grid, found.grid)?;
        write(block, found.block)?;
        write(shared, found.shared)?;
        write(stream, found.stream)
    }

    kernel(
        order @ kernel: usize, grid: Dim3, block: Dim3, parameters: *mut *mut c_void, shared: usize, stream: usize,
    ) [cudaLaunchKernel Legacy] [cudaLaunchKernel_ptsz PerThread]
      [__cudaLaunchKernel Legacy] [__cudaLaunchKernel_ptsz PerThread] {
        let (function, shared) = (function(kernel)?, shared_bytes(shared)?);
        launched(cu!(
            cuLaunchKernel, function, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared, order.stream(stream),
            parameters, 0_usize
        ))
    }

    cooperative(
        order @ kernel: usize, grid: Dim3, block: Dim3, parameters: *mut *mut c_void, shared: usize, stream: usize,
    ) [cudaLaunchCooperativeKernel Legacy] [cudaLaunchCooperativeKernel_ptsz PerThread] {
        let (function, shared) = (function(kernel)?, shared_bytes(shared)?);
        launched(cu!(
            cuLaunchCooperativeKernel, function, grid.x, grid.y, grid.z, block.x, block.y, block.z, shared,
            order.stream(stream), parameters
        ))
    }

    kernel_ex(order @ config: *const Config, kernel: usize, parameters: *mut *mut c_void)
    [cudaLaunchKernelExC Legacy] [cudaLaunchKernelExC_ptsz PerThread] {
        let mut config = read(config)?;
        shared_bytes(config.shared)?;
        config.stream = order.stream(config.stream);
        launched(cu!(cuLaunchKernelEx, &raw const config, function(kernel)?, parameters, 0_usize))
    }
}
