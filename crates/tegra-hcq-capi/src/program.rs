//! Programs, kernels and variables.

use core::ffi::{c_char, c_void};
use std::sync::Arc;

use tegra_hcq::{JitOptions, Program, Source};

use crate::device::{device, hand_out};
use crate::handle::{TABLE, share};
use crate::object::{KernelObject, Kind, Object, ProgramObject};
use crate::pass;
use crate::status::{Failure, Status, c_text, guard};
use crate::types::{tegra_hcq_device, tegra_hcq_kernel, tegra_hcq_kernel_attributes, tegra_hcq_program};

fn program(handle: *mut tegra_hcq_program) -> Result<(u64, Arc<ProgramObject>), Failure> {
    let mut owner = 0;
    let program = share(handle.addr() as u64, Kind::Program, |object| match object {
        Object::Program(device, program) => {
            owner = *device;
            Some(program)
        }
        _ => None,
    })?;
    Ok((owner, program))
}

/// The kernel that a handle names.
pub(crate) fn kernel(handle: *mut tegra_hcq_kernel) -> Result<Arc<KernelObject>, Failure> {
    share(handle.addr() as u64, Kind::Kernel, |object| match object {
        Object::Kernel(_, kernel) => Some(kernel),
        _ => None,
    })
}

fn object(owner: u64, program: Program) -> Object {
    let names = program.kernel_names().map(c_text).collect();
    Object::Program(owner, Arc::new(ProgramObject { program, names }))
}

/// Loads a cubin, the machine code of kernels for the device's SM version. The bytes are not needed after the call.
/// `*out` is set only on success. Thread-safe.
///
/// # Safety
///
/// `cubin` is valid for reads of `bytes` bytes. `out` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tegra_hcq_program_load(
    device: *mut tegra_hcq_device,
    cubin: *const c_void,
    bytes: u64,
    out: *mut *mut tegra_hcq_program,
) -> Status {
    guard(|| {
        let (owner, device) = self::device(device)?;
        // SAFETY: the caller's promises.
        let (cubin, out) = unsafe { (pass::bytes(cubin, bytes, "cubin")?, pass::out(out, "out")?) };
        hand_out(out, object(owner, Program::load(&device, cubin)?))
    })
}

/// Compiles CUDA C++ with NVIDIA's NVRTC, where it is installed, and loads the result. `name` stands for the file in
/// error messages; NULL is "program.cu". `options` are those of nvcc and NVRTC, for example "-I/opt/include" and
/// "-DN=4". Results are cached on disk. `*out` is set only on success. Thread-safe.
///
/// Returns TEGRA_HCQ_STATUS_COMPILATION with the compiler's log, or TEGRA_HCQ_STATUS_LIBRARY_MISSING.
///
/// # Safety
///
/// `source`, `name` and the options are strings that end with a zero byte; `options` is valid for `option_count`
/// pointers. `out` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tegra_hcq_program_compile(
    device: *mut tegra_hcq_device,
    source: *const c_char,
    name: *const c_char,
    options: *const *const c_char,
    option_count: usize,
    out: *mut *mut tegra_hcq_program,
) -> Status {
    guard(|| {
        let (owner, device) = self::device(device)?;
        // SAFETY: the caller's promises.
        let (text, options, out) = unsafe {
            (
                pass::text(source, "source")?,
                pass::texts(options, option_count, "options")?,
                pass::out(out, "out")?,
            )
        };
        // SAFETY: the caller's promise.
        let name = if name.is_null() { "program.cu" } else { unsafe { pass::text(name, "name")? } };
        let source = options.into_iter().fold(Source::new(text).name(name), Source::option);
        hand_out(out, object(owner, Program::from_source(&device, &source)?))
    })
}

/// Compiles PTX with NVIDIA's nvJitLink or ptxas, where one is installed, and loads the result. `options` are
/// nvJitLink's, for example "-O3". `*out` is set only on success. Thread-safe.
///
/// Returns as `tegra_hcq_program_compile`.
///
/// # Safety
///
/// As for `tegra_hcq_program_compile`.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tegra_hcq_program_compile_ptx(
    device: *mut tegra_hcq_device,
    ptx: *const c_char,
    options: *const *const c_char,
    option_count: usize,
    out: *mut *mut tegra_hcq_program,
) -> Status {
    guard(|| {
        let (owner, device) = self::device(device)?;
        // SAFETY: the caller's promises.
        let (ptx, options, out) = unsafe {
            (pass::text(ptx, "ptx")?, pass::texts(options, option_count, "options")?, pass::out(out, "out")?)
        };
        let options: Vec<String> = options.into_iter().map(str::to_owned).collect();
        let options = JitOptions { other: options, ..JitOptions::default() };
        hand_out(out, object(owner, Program::from_image(&device, "program.ptx", ptx.as_bytes(), &options)?))
    })
}

/// Frees a program. Its kernels stay usable, and its memory stays, until they are freed and their work has ended.
/// Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn tegra_hcq_program_free(program: *mut tegra_hcq_program) -> Status {
    guard(|| TABLE.remove(program.addr() as u64, Kind::Program))
}

/// Number of kernels of a program. Thread-safe.
///
/// # Safety
///
/// `count` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tegra_hcq_program_kernel_count(
    program: *mut tegra_hcq_program,
    count: *mut usize,
) -> Status {
    guard(|| {
        // SAFETY: the caller's promise.
        let count = unsafe { pass::out(count, "count")? };
        count.put(self::program(program)?.1.names.len());
        Ok(())
    })
}

/// Name of kernel `index` of a program, in the order of the file. `*name` is valid until the program is freed.
/// Thread-safe.
///
/// # Safety
///
/// `name` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tegra_hcq_program_kernel_name(
    program: *mut tegra_hcq_program,
    index: usize,
    name: *mut *const c_char,
) -> Status {
    guard(|| {
        // SAFETY: the caller's promise.
        let name = unsafe { pass::out(name, "name")? };
        let (_, program) = self::program(program)?;
        let found = program.names.get(index).ok_or_else(|| {
            Failure::argument(format!("there is no kernel {index}, the program has {}", program.names.len()))
        })?;
        name.put(found.as_ptr());
        Ok(())
    })
}

/// Finds a kernel by its name in the cubin: mangled for C++ unless it is `extern "C"`. `*out` is set only on success.
/// Thread-safe.
///
/// Returns TEGRA_HCQ_STATUS_NOT_FOUND if there is none; the text lists the existing ones.
///
/// # Safety
///
/// `name` is NULL or a string that ends with a zero byte. `out` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tegra_hcq_program_kernel(
    program: *mut tegra_hcq_program,
    name: *const c_char,
    out: *mut *mut tegra_hcq_kernel,
) -> Status {
    guard(|| {
        // SAFETY: the caller's promises.
        let (name, out) = unsafe { (pass::text(name, "name")?, pass::out(out, "out")?) };
        let (owner, program) = self::program(program)?;
        let kernel = program.program.kernel(name)?;
        hand_out(out, Object::Kernel(owner, Arc::new(KernelObject { kernel, name: c_text(name) })))
    })
}

/// Frees a kernel. Launches that use it are not affected. Thread-safe.
#[unsafe(no_mangle)]
pub extern "C" fn tegra_hcq_kernel_free(kernel: *mut tegra_hcq_kernel) -> Status {
    guard(|| TABLE.remove(kernel.addr() as u64, Kind::Kernel))
}

/// Name of a kernel. `*name` is valid until the kernel is freed. Thread-safe.
///
/// # Safety
///
/// `name` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tegra_hcq_kernel_name(
    kernel: *mut tegra_hcq_kernel,
    name: *mut *const c_char,
) -> Status {
    guard(|| {
        // SAFETY: the caller's promise.
        let name = unsafe { pass::out(name, "name")? };
        name.put(self::kernel(kernel)?.name.as_ptr());
        Ok(())
    })
}

/// Sizes of a kernel's parameters in bytes, in order. `*count` is set to their number; at most `capacity` sizes are
/// written to `sizes`, which may be NULL if `capacity` is 0. Thread-safe.
///
/// # Safety
///
/// `sizes` is valid for `capacity` writes. `count` is NULL or valid for a write.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tegra_hcq_kernel_parameters(
    kernel: *mut tegra_hcq_kernel,
    sizes: *mut u32,
    capacity: usize,
    count: *mut usize,
) -> Status {
    guard(|| {
        // SAFETY: the caller's promise.
        let count = unsafe { pass::out(count, "count")? };
        let kernel = self::kernel(kernel)?;
        if capacity > 0 && sizes.is_null() {
            return Err(pass::null("sizes"));
        }
        for (at, size) in kernel.kernel.parameter_sizes().enumerate().take(capacity) {
            // SAFETY: `at` is below the capacity. CAST: a parameter block has at most 4 KiB.
            unsafe { sizes.add(at).write(size as u32) };
        }
        count.put(kernel.kernel.parameter_sizes().count());
        Ok(())
    })
}

/// Fills `*attributes`, whose `struct_size` the caller has set. Thread-safe.
///
/// # Safety
///
/// `attributes` is NULL or valid for reads and writes of `struct_size` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tegra_hcq_kernel_get_attributes(
    kernel: *mut tegra_hcq_kernel,
    attributes: *mut tegra_hcq_kernel_attributes,
) -> Status {
    guard(|| {
        let found = self::kernel(kernel)?.kernel.attributes();
        let value = tegra_hcq_kernel_attributes {
            struct_size: 0,
            registers: found.registers,
            static_shared_bytes: found.static_shared_bytes,
            max_dynamic_shared_bytes: found.max_dynamic_shared_bytes,
            local_bytes: found.local_bytes,
            max_threads: found.max_threads,
        };
        // SAFETY: the caller's promise.
        unsafe { pass::put_sized(attributes, value, "attributes") }
    })
}

/// Waits for the launches of a program, then reads its `__device__` or `__constant__` variable `name` of exactly
/// `bytes` bytes. Thread-safe.
///
/// # Safety
///
/// `name` is a string that ends with a zero byte; `target` is valid for writes of `bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tegra_hcq_program_read_variable(
    program: *mut tegra_hcq_program,
    name: *const c_char,
    target: *mut c_void,
    bytes: u64,
) -> Status {
    guard(|| {
        // SAFETY: the caller's promises.
        let (name, target) =
            unsafe { (pass::text(name, "name")?, pass::bytes_mut(target, bytes, "target")?) };
        let variable = self::program(program)?.1.program.variable::<u8>(name)?;
        if variable.len() != target.len() {
            return Err(Failure::argument(format!(
                "variable {name} has {} bytes, not {bytes}",
                variable.len()
            )));
        }
        target.copy_from_slice(&variable.get()?);
        Ok(())
    })
}

/// Waits for the launches of a program, then writes its `__device__` or `__constant__` variable `name` of exactly
/// `bytes` bytes. Thread-safe.
///
/// # Safety
///
/// `name` is a string that ends with a zero byte; `source` is valid for reads of `bytes` bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn tegra_hcq_program_write_variable(
    program: *mut tegra_hcq_program,
    name: *const c_char,
    source: *const c_void,
    bytes: u64,
) -> Status {
    guard(|| {
        // SAFETY: the caller's promises.
        let (name, source) = unsafe { (pass::text(name, "name")?, pass::bytes(source, bytes, "source")?) };
        self::program(program)?.1.program.variable::<u8>(name)?.set(source)?;
        Ok(())
    })
}
