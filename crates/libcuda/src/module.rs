//! Modules, libraries, functions and their attributes.

use core::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

use orin_cuda_core::context::current;
use orin_cuda_core::image::{bytes_at, link};
use orin_cuda_core::{
    Code, Context, Failure, Function, Library, LibraryKernel, Module, Result, driver, function,
};

use tegra_hcq::{Compiled, LinkInput};

use crate::abi::{Address, Handle, In, Ordinal, Out, Text};
use crate::call::api;
use crate::jit::Jit;

fn module_of(handle: Handle) -> Result<Arc<Module>> {
    driver()?.objects.get::<Module>(handle)
}

fn library_of(handle: Handle) -> Result<Arc<Library>> {
    driver()?.objects.get::<Library>(handle)
}

fn kernel_of(handle: Handle) -> Result<Arc<LibraryKernel>> {
    driver()?.objects.get::<LibraryKernel>(handle)
}

/// The function of a handle, in the current context.
pub(crate) fn function_of(handle: Handle) -> Result<Arc<Function>> {
    function(&*current()?, handle)
}

/// The function of a library's kernel, in the current context.
fn function_of_kernel(handle: Handle) -> Result<Arc<Function>> {
    kernel_of(handle)?.function(&*current()?)
}

/// The place for the name of a function. CUDA calls NULL as the function a wrong value here.
fn named(place: Out<*const c_char>, function: Handle) -> Result<Out<*const c_char>> {
    if function == 0 {
        Err(Failure::invalid("the function is NULL"))
    } else {
        place.need("the place for the name")
    }
}

/// The bytes of an image.
pub(crate) fn image_at<'a>(image: *const c_void) -> Result<&'a [u8]> {
    if image.is_null() {
        return Err(Failure::invalid("the image is NULL"));
    }
    // SAFETY: the program promised (as `cuda.h` documents) a whole image of one of the kinds.
    unsafe { bytes_at(image.cast()) }
}

pub(crate) fn file(path: Text) -> Result<Vec<u8>> {
    let path = path.get("the path")?;
    std::fs::read(path).map_err(|error| {
        let code = if error.kind() == std::io::ErrorKind::NotFound {
            Code::FileNotFound
        } else {
            Code::OperatingSystem
        };
        Failure::new(code, format!("{path}: {error}"))
    })
}

fn build(context: &Context, image: &[u8], jit: &Jit) -> Result<Compiled> {
    let result = link(context, &[LinkInput { name: "image", data: image }], &jit.options);
    jit.report(result.as_ref());
    result
}

fn load(place: Out<Handle>, image: &[u8], jit: &Jit) -> Result<()> {
    let context = current()?;
    let compiled = build(&context, image, jit)?;
    place.set(Module::load(&context, &compiled.cubin)?.handle());
    Ok(())
}

fn load_library(place: Out<Handle>, image: &[u8], jit: &Jit) -> Result<()> {
    let context = match orin_cuda_core::context::peek()? {
        Some(context) => context,
        // A library is compiled for the first device if no context is current.
        None => driver()?.gpu(0)?.retain_primary()?,
    };
    place.set(Library::load(build(&context, image, jit)?.cubin)?.handle());
    Ok(())
}

/// Refuses lists that are NULL. The options of libraries concern host functions and where images are kept.
fn check_library_options(count: u32, options: In<u32>, values: Out<*mut c_void>) -> Result<()> {
    if count > 0 && (options.is_null() || values.is_null()) {
        return Err(Failure::invalid("the list of library options is NULL"));
    }
    Ok(())
}

/// A function attribute (`CUfunction_attribute`).
fn attribute_of(function: &Function, attribute: u32) -> Result<c_int> {
    let of = &function.attributes;
    let (major, minor) = of.binary_version;
    // CAST: sizes and counts of a kernel are below 2^31.
    Ok(match attribute {
        0 => of.max_threads as c_int,
        1 => of.static_shared_bytes as c_int,
        2 => of.constant_bytes as c_int,
        3 => of.local_bytes as c_int,
        4 => of.registers as c_int,
        5 => of.ptx_version.map_or(major * 10 + minor, |(major, minor)| major * 10 + minor) as c_int,
        6 => (major * 10 + minor) as c_int,
        7 => 0,
        8 => function.max_dynamic_shared() as c_int,
        9 => function.carveout().cast_signed(),
        10..=15 => function.clusters.attribute(attribute),
        _ => return Err(Failure::invalid(format!("there is no function attribute {attribute}"))),
    })
}

fn set_attribute_of(function: &Function, attribute: u32, value: c_int) -> Result<()> {
    match attribute {
        8 => function.set_max_dynamic_shared(value),
        9 => function.set_carveout(value),
        10..=15 => function.clusters.set_attribute(attribute, value),
        _ => Err(Failure::invalid(format!("function attribute {attribute} cannot be set"))),
    }
}

fn parameter_of(function: &Function, index: usize, offset: Out<usize>, size: Out<usize>) -> Result<()> {
    let found = function.parameters.get(index).copied();
    let (at, bytes) = found.ok_or_else(|| {
        Failure::invalid(format!(
            "parameter {index} of {} has {}",
            function.kernel.name(),
            function.parameters.len()
        ))
    })?;
    offset.set(at);
    size.set(bytes);
    Ok(())
}

/// Returns the address and the size of a variable that `find` finds by its name. One of the places may be NULL.
fn put_variable(
    address: Out<Address>,
    bytes: Out<usize>,
    name: Text,
    find: impl FnOnce(&str) -> Result<(u64, usize)>,
) -> Result<()> {
    let name = name.get("the name")?;
    if address.is_null() && bytes.is_null() {
        return Err(Failure::invalid("both places are NULL"));
    }
    let (at, size) = find(name)?;
    address.set(at);
    bytes.set(size);
    Ok(())
}

fn cache_preference(preference: u32) -> Result<()> {
    // A hint; the driver chooses by the launches.
    if preference > 3 { Err(Failure::invalid(format!("preference {preference}"))) } else { Ok(()) }
}

api! {
    load_file(place: Out<Handle>, path: Text) [cuModuleLoad Legacy] {
        let place = place.need("the place for the module")?;
        load(place, &file(path)?, &Jit::default())
    }

    load_data(place: Out<Handle>, image: *const c_void) [cuModuleLoadData Legacy] [cuModuleLoadFatBinary Legacy] {
        let place = place.need("the place for the module")?;
        load(place, image_at(image)?, &Jit::default())
    }

    load_data_ex(
        place: Out<Handle>,
        image: *const c_void,
        count: u32,
        options: In<u32>,
        values: Out<*mut c_void>,
    ) [cuModuleLoadDataEx Legacy] {
        let place = place.need("the place for the module")?;
        load(place, image_at(image)?, &Jit::read(count, options, values)?)
    }

    unload(handle: Handle) [cuModuleUnload Legacy] {
        let context = current()?;
        let module = module_of(handle)?;
        // The code may be running.
        context.settle()?;
        module.unload(&context)
    }

    loading_mode(mode: Out<u32>) [cuModuleGetLoadingMode Legacy] {
        // CU_MODULE_EAGER_LOADING.
        mode.need("the place for the mode")?.set(1);
        Ok(())
    }

    get_function(place: Out<Handle>, module: Handle, name: Text) [cuModuleGetFunction Legacy] {
        let (place, name) = (place.need("the place for the function")?, name.get("the name")?);
        current()?;
        place.set(module_of(module)?.function(name)?.handle());
        Ok(())
    }

    function_count(count: Out<u32>, module: Handle) [cuModuleGetFunctionCount Legacy] {
        let count = count.need("the place for the count")?;
        // CAST: a module has few kernels.
        count.set(module_of(module)?.program.kernel_names().count() as u32);
        Ok(())
    }

    functions(places: Out<Handle>, room: u32, module: Handle) [cuModuleEnumerateFunctions Legacy] {
        let places = places.need("the places for the functions")?;
        let module = module_of(module)?;
        let names: Vec<_> = module.program.kernel_names().take(room as usize).map(str::to_owned).collect();
        let handles = names.iter().map(|name| Ok(module.function(name)?.handle())).collect::<Result<Vec<_>>>()?;
        places.fill(&handles);
        Ok(())
    }

    global(address: Out<Address>, bytes: Out<usize>, module: Handle, name: Text) [cuModuleGetGlobal_v2 Legacy] {
        put_variable(address, bytes, name, |name| {
            current()?;
            module_of(module)?.variable(name)
        })
    }

    attribute(value: Out<c_int>, attribute: u32, handle: Handle) [cuFuncGetAttribute Legacy] {
        let value = value.need("the place for the attribute")?;
        value.set(attribute_of(&*function_of(handle)?, attribute)?);
        Ok(())
    }

    set_attribute(handle: Handle, attribute: u32, value: c_int) [cuFuncSetAttribute Legacy] {
        set_attribute_of(&*function_of(handle)?, attribute, value)
    }

    set_cache(handle: Handle, preference: u32) [cuFuncSetCacheConfig Legacy] [cuFuncSetSharedMemConfig Legacy] {
        cache_preference(preference)?;
        function_of(handle).map(drop)
    }

    module(place: Out<Handle>, handle: Handle) [cuFuncGetModule Legacy] {
        let place = place.need("the place for the module")?;
        place.set(function_of(handle)?.module);
        Ok(())
    }

    name(place: Out<*const c_char>, handle: Handle) [cuFuncGetName Legacy] {
        let place = named(place, handle)?;
        place.set(function_of(handle)?.c_name.as_ptr());
        Ok(())
    }

    parameter(handle: Handle, index: usize, offset: Out<usize>, size: Out<usize>) [cuFuncGetParamInfo Legacy] {
        let offset = offset.need("the place for the offset")?;
        parameter_of(&*function_of(handle)?, index, offset, size)
    }

    kernel_parameter(kernel: Handle, index: usize, offset: Out<usize>, size: Out<usize>)
    [cuKernelGetParamInfo Legacy] {
        let offset = offset.need("the place for the offset")?;
        parameter_of(&*function_of_kernel(kernel)?, index, offset, size)
    }

    parameters(handle: Handle, count: Out<usize>) [cuFuncGetParamCount Legacy] {
        let count = count.need("the place for the count")?;
        count.set(function_of(handle)?.parameters.len());
        Ok(())
    }

    kernel_parameters(kernel: Handle, count: Out<usize>) [cuKernelGetParamCount Legacy] {
        let count = count.need("the place for the count")?;
        count.set(function_of_kernel(kernel)?.parameters.len());
        Ok(())
    }

    is_loaded(state: Out<u32>, handle: Handle) [cuFuncIsLoaded Legacy] {
        let state = state.need("the place for the state")?;
        function_of(handle)?;
        // CU_FUNCTION_LOADING_STATE_LOADED.
        state.set(1);
        Ok(())
    }

    load_function(handle: Handle) [cuFuncLoad Legacy] {
        function_of(handle).map(drop)
    }

    library_data(
        place: Out<Handle>,
        image: *const c_void,
        options: In<u32>,
        values: Out<*mut c_void>,
        count: u32,
        library_options: In<u32>,
        library_values: Out<*mut c_void>,
        library_count: u32,
    ) [cuLibraryLoadData Legacy] {
        let place = place.need("the place for the library")?;
        let jit = Jit::read(count, options, values)?;
        check_library_options(library_count, library_options, library_values)?;
        load_library(place, image_at(image)?, &jit)
    }

    library_file(
        place: Out<Handle>,
        path: Text,
        options: In<u32>,
        values: Out<*mut c_void>,
        count: u32,
        library_options: In<u32>,
        library_values: Out<*mut c_void>,
        library_count: u32,
    ) [cuLibraryLoadFromFile Legacy] {
        let place = place.need("the place for the library")?;
        let jit = Jit::read(count, options, values)?;
        check_library_options(library_count, library_options, library_values)?;
        load_library(place, &file(path)?, &jit)
    }

    unload_library(handle: Handle) [cuLibraryUnload Legacy] {
        library_of(handle)?.unload()
    }

    library_kernel(place: Out<Handle>, library: Handle, name: Text) [cuLibraryGetKernel Legacy] {
        let (place, name) = (place.need("the place for the kernel")?, name.get("the name")?);
        place.set(library_of(library)?.kernel(name)?.handle());
        Ok(())
    }

    library_kernel_count(count: Out<u32>, library: Handle) [cuLibraryGetKernelCount Legacy] {
        let count = count.need("the place for the count")?;
        // CAST: a library has few kernels.
        count.set(library_of(library)?.names().len() as u32);
        Ok(())
    }

    library_kernels(places: Out<Handle>, room: u32, library: Handle) [cuLibraryEnumerateKernels Legacy] {
        let places = places.need("the places for the kernels")?;
        let library = library_of(library)?;
        let names = library.names().iter().take(room as usize);
        let handles = names.map(|name| Ok(library.kernel(name)?.handle())).collect::<Result<Vec<_>>>()?;
        places.fill(&handles);
        Ok(())
    }

    library_module(place: Out<Handle>, library: Handle) [cuLibraryGetModule Legacy] {
        let place = place.need("the place for the module")?;
        let context = current()?;
        place.set(library_of(library)?.module(&context)?.handle());
        Ok(())
    }

    library_global(address: Out<Address>, bytes: Out<usize>, library: Handle, name: Text)
    [cuLibraryGetGlobal Legacy] {
        put_variable(address, bytes, name, |name| {
            let context = current()?;
            library_of(library)?.module(&context)?.variable(name)
        })
    }

    library_managed(address: Out<Address>, bytes: Out<usize>, library: Handle, name: Text)
    [cuLibraryGetManaged Legacy] {
        put_variable(address, bytes, name, |name| {
            let context = current()?;
            library_of(library)?.module(&context)?.managed(name)
        })
    }

    kernel_function(place: Out<Handle>, kernel: Handle) [cuKernelGetFunction Legacy] {
        let place = place.need("the place for the function")?;
        place.set(function_of_kernel(kernel)?.handle());
        Ok(())
    }

    kernel_library(place: Out<Handle>, kernel: Handle) [cuKernelGetLibrary Legacy] {
        let place = place.need("the place for the library")?;
        place.set(kernel_of(kernel)?.library()?.handle());
        Ok(())
    }

    kernel_name(place: Out<*const c_char>, kernel: Handle) [cuKernelGetName Legacy] {
        let place = named(place, kernel)?;
        place.set(function_of_kernel(kernel)?.c_name.as_ptr());
        Ok(())
    }

    kernel_attribute(value: Out<c_int>, attribute: u32, kernel: Handle, device: Ordinal)
    [cuKernelGetAttribute Legacy] {
        let value = value.need("the place for the attribute")?;
        driver()?.gpu(device)?;
        value.set(attribute_of(&*function_of_kernel(kernel)?, attribute)?);
        Ok(())
    }

    set_kernel_attribute(attribute: u32, value: c_int, kernel: Handle, device: Ordinal)
    [cuKernelSetAttribute Legacy] {
        driver()?.gpu(device)?;
        set_attribute_of(&*function_of_kernel(kernel)?, attribute, value)
    }

    set_kernel_cache(kernel: Handle, preference: u32, device: Ordinal) [cuKernelSetCacheConfig Legacy] {
        cache_preference(preference)?;
        driver()?.gpu(device)?;
        kernel_of(kernel).map(drop)
    }
}
