//! Launches as before CUDA 4: the program sets block, shared memory and parameters of a function, then launches it.

use core::ffi::{c_int, c_uint};

use orin_cuda_core::{Failure, Function, LaunchSize, OldLaunch, Result};

use crate::abi::{Handle, In};
use crate::call::{Order, api};
use crate::launch::{Parameters, start};
use crate::module::function_of;

/// A number that is not negative.
fn natural(number: c_int) -> Result<u32> {
    u32::try_from(number).map_err(|_| Failure::invalid(format!("{number} is negative")))
}

/// Writes a parameter.
fn set(function: &Function, offset: c_int, bytes: &[u8]) -> Result<()> {
    let (offset, most) = (natural(offset)? as usize, function.parameter_bytes);
    let end = offset.saturating_add(bytes.len());
    if end > most {
        let name = function.kernel.name();
        return Err(Failure::invalid(format!("bytes {offset} to {end} of parameters; {name} has {most}")));
    }
    let parameters = &mut function.old_launch.lock().parameters;
    if parameters.len() < end {
        parameters.resize(end, 0);
    }
    parameters[offset..end].copy_from_slice(bytes);
    Ok(())
}

fn launch(handle: Handle, width: c_int, height: c_int, stream: Handle) -> Result<()> {
    let OldLaunch { block, shared_bytes, parameters } = function_of(handle)?.old_launch.lock().clone();
    let grid = [natural(width)?, natural(height)?, 1];
    let size = LaunchSize { grid, block, shared_bytes, cluster: [0; 3], priority: None };
    // CU_LAUNCH_PARAM_BUFFER_POINTER, CU_LAUNCH_PARAM_BUFFER_SIZE, CU_LAUNCH_PARAM_END.
    let bytes = parameters.len();
    let address = |pointer: *const u8| pointer.expose_provenance();
    let list = [1, address(parameters.as_ptr()), 2, address((&raw const bytes).cast()), 0];
    let extra = In::at_address(list.as_ptr().expose_provenance());
    start(Order::Legacy, handle, size, stream, Parameters { pointers: In::none(), extra }, false)
}

api! {
    set_block(handle: Handle, x: c_int, y: c_int, z: c_int) [cuFuncSetBlockShape Legacy] {
        let function = function_of(handle)?;
        function.old_launch.lock().block = [natural(x)?, natural(y)?, natural(z)?];
        Ok(())
    }

    set_shared(handle: Handle, bytes: c_uint) [cuFuncSetSharedSize Legacy] {
        function_of(handle)?.old_launch.lock().shared_bytes = bytes;
        Ok(())
    }

    set_size(handle: Handle, bytes: c_uint) [cuParamSetSize Legacy] {
        let function = function_of(handle)?;
        let most = function.parameter_bytes;
        if bytes as usize > most {
            return Err(Failure::invalid(format!("{bytes} bytes of parameters; the kernel has {most}")));
        }
        function.old_launch.lock().parameters.resize(bytes as usize, 0);
        Ok(())
    }

    set_integer(handle: Handle, offset: c_int, value: c_uint) [cuParamSeti Legacy] {
        set(&*function_of(handle)?, offset, &value.to_ne_bytes())
    }

    set_float(handle: Handle, offset: c_int, value: f32) [cuParamSetf Legacy] {
        set(&*function_of(handle)?, offset, &value.to_ne_bytes())
    }

    set_bytes(handle: Handle, offset: c_int, value: In<u8>, count: c_uint) [cuParamSetv Legacy] {
        let function = function_of(handle)?;
        if count as usize > function.parameter_bytes {
            return Err(Failure::invalid(format!("a parameter of {count} bytes")));
        }
        set(&function, offset, &value.list(count as usize, "the parameter")?)
    }

    launch_one(handle: Handle) [cuLaunch Legacy] {
        launch(handle, 1, 1, 0)
    }

    launch_grid(handle: Handle, width: c_int, height: c_int) [cuLaunchGrid Legacy] {
        launch(handle, width, height, 0)
    }

    launch_grid_on(handle: Handle, width: c_int, height: c_int, stream: Handle) [cuLaunchGridAsync Legacy] {
        launch(handle, width, height, stream)
    }
}
