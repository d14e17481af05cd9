//! Devices, their properties, and the context of a thread.

use core::cell::Cell;
use core::ffi::{c_char, c_void};
use core::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use crate::call::{api, read, write};
use crate::driver::cu;
use crate::error::{Error, Result, is_13};

thread_local! {
    /// The device of the thread, if no context is current.
    static DEVICE: Cell<i32> = const { Cell::new(0) };
}

/// Most devices of a process.
const DEVICES: usize = 64;

/// The retained primary contexts, by device; 0 if there is none.
static PRIMARIES: [AtomicUsize; DEVICES] = [const { AtomicUsize::new(0) }; DEVICES];

/// Contexts that a reset has ended. They are current in threads that have not called since.
static ENDED: Mutex<Vec<usize>> = Mutex::new(Vec::new());

/// The number of devices.
fn count() -> Result<i32> {
    let mut count = 0;
    cu!(no_context cuDeviceGetCount, &raw mut count)?;
    Ok(count)
}

/// The place of a device's primary context.
fn place(device: i32) -> Result<&'static AtomicUsize> {
    let known = count()?;
    let index = usize::try_from(device).ok().filter(|_| device < known);
    index.and_then(|index| PRIMARIES.get(index)).ok_or(Error::INVALID_DEVICE)
}

/// The primary context of a device.
pub(crate) fn primary(device: i32) -> Result<usize> {
    let place = place(device)?;
    let known = place.load(Ordering::Acquire);
    if known != 0 {
        return Ok(known);
    }
    let mut context = 0_usize;
    cu!(no_context cuDevicePrimaryCtxRetain, &raw mut context, device)?;
    ENDED.lock().unwrap_or_else(PoisonError::into_inner).retain(|ended| *ended != context);
    place.store(context, Ordering::Release);
    Ok(context)
}

/// Makes the primary context of the thread's device current. False if the program has set another that is valid.
pub(crate) fn establish() -> Result<bool> {
    let mut current = 0_usize;
    cu!(no_context cuCtxGetCurrent, &raw mut current)?;
    let ended = ENDED.lock().unwrap_or_else(PoisonError::into_inner).contains(&current);
    if current != 0 && !ended {
        return Ok(false);
    }
    cu!(no_context cuCtxSetCurrent, primary(DEVICE.get())?)?;
    Ok(true)
}

/// The current context.
pub(crate) fn current() -> Result<usize> {
    let mut context = 0_usize;
    cu!(cuCtxGetCurrent, &raw mut context)?;
    if context == 0 {
        establish()?;
        cu!(cuCtxGetCurrent, &raw mut context)?;
    }
    Ok(context)
}

/// The device of the thread.
fn device() -> Result<i32> {
    let mut device = 0;
    match cu!(no_context cuCtxGetDevice, &raw mut device) {
        Ok(()) => Ok(device),
        Err(Error::INVALID_CONTEXT | Error::CONTEXT_IS_DESTROYED) => Ok(DEVICE.get()),
        Err(error) => Err(error),
    }
}

fn choose(device: i32) -> Result {
    let context = primary(device)?;
    DEVICE.set(device);
    cu!(no_context cuCtxSetCurrent, context)
}

/// The fields of `cudaDeviceProp` from the shared memory of a block on, by the numbers of their attributes: an `int`,
/// or with `s` a `size_t`; with `-` CUDA 13 has dropped the field, with `+` added it.
const FIELDS: &str = "\
    8s 12 10 11s 1 2 3 4 5 6 7 13- 9s 75 76 14s 51s 15- 16 17- 18 19 20- \
    21 77 69- 22 23 73 74 70 71 72 45 46 24 25 26 47 48 49 52 42 43 27 28 29 53 54 \
    55 56 57 58 59 60 61 62 63 64 65 66 67 68 30s \
    31 32 33 34 50 35 40 41 36- 37 38 108 39 78 79 80 81s 82 \
    83 84 85 86 87- 88 89 90 91 95 96- 97s 100 101 106 109 111s \
    99 112 113 114 115 116 117 118 119 121 125 120 129 130+ 131+ 133+ 134+ 139+ 140+ 143+";

/// Size of `cudaDeviceProp` in CUDA 12 and 13, in bytes.
const PROPERTIES: [usize; 2] = [1032, 1008];

/// `cudaDeviceProp` of a device.
fn properties(device: i32, is_13: bool) -> Result<Vec<u8>> {
    let mut bytes = vec![0; PROPERTIES[usize::from(is_13)]];
    let mut total = 0_usize;
    // Name, id, locally unique id and its mask, which only Windows has, memory.
    cu!(no_context cuDeviceGetName, bytes.as_mut_ptr(), 256_usize, device)?;
    cu!(no_context cuDeviceGetUuid_v2, bytes[256..].as_mut_ptr(), device)?;
    cu!(no_context cuDeviceTotalMem_v2, &raw mut total, device)?;
    bytes[288..296].copy_from_slice(&total.to_ne_bytes());
    let mut at = 296;
    for field in FIELDS.split(' ') {
        let number = field.trim_end_matches(['s', '-', '+']);
        if field.ends_with('-') && is_13 || field.ends_with('+') && !is_13 {
            continue;
        }
        let mut value = 0_i32;
        match cu!(no_context cuDeviceGetAttribute, &raw mut value, number.parse().unwrap_or(0_u32), device) {
            // An older driver does not know the newest attributes.
            Ok(()) | Err(Error::INVALID_VALUE) => {}
            Err(error) => return Err(error),
        }
        let bytes_of = u64::from(value.cast_unsigned()).to_le_bytes();
        let size = if field.ends_with('s') { 8 } else { 4 };
        at = usize::next_multiple_of(at, size);
        bytes[at..at + size].copy_from_slice(&bytes_of[..size]);
        at += size;
    }
    Ok(bytes)
}

fn write_properties(place: *mut u8, device: i32, is_13: bool) -> Result {
    if place.is_null() {
        return Err(Error::INVALID_VALUE);
    }
    self::place(device)?;
    let bytes = properties(device, is_13)?;
    // SAFETY: the program promised, as `cuda_runtime_api.h` documents, the room of a `cudaDeviceProp`.
    unsafe { core::ptr::copy_nonoverlapping(bytes.as_ptr(), place, bytes.len()) };
    Ok(())
}

/// The version of this library.
fn runtime() -> u32 {
    if is_13() { 13_000 } else { 12_060 }
}

/// cudaDeviceMapHost, which is always set.
const MAP_HOST: u32 = 8;

fn set_flags(device: i32, flags: u32) -> Result {
    place(device)?;
    cu!(no_context cuDevicePrimaryCtxSetFlags_v2, device, flags & !MAP_HOST)
}

fn entry_point(
    symbol: *const c_char,
    function: *mut *mut c_void,
    version: u32,
    flags: usize,
    status: *mut u32,
) -> Result {
    if symbol.is_null() || function.is_null() {
        return Err(Error::INVALID_VALUE);
    }
    cu!(no_context cuGetProcAddress_v2, symbol, function, version, flags, status)
}

api! {
    runtime_version(version: *mut i32) [cudaRuntimeGetVersion Legacy] {
        write(version, runtime().cast_signed())
    }

    driver_version(version: *mut i32) [cudaDriverGetVersion Legacy] {
        cu!(no_context cuDriverGetVersion, version)
    }

    get_count(place: *mut i32) [cudaGetDeviceCount Legacy] {
        match count() {
            Ok(count) => write(place, count),
            Err(error) => write(place, 0).and(Err(error)),
        }
    }

    get(place: *mut i32) [cudaGetDevice Legacy] {
        write(place, device()?)
    }

    set(device: i32) [cudaSetDevice Legacy] {
        choose(device)
    }

    set_valid(devices: *const i32, length: i32) [cudaSetValidDevices Legacy] {
        if length < 0 || length > 0 && devices.is_null() {
            return Err(Error::INVALID_VALUE);
        }
        // CAST: not negative.
        let devices: Vec<_> =
            (0..length as usize).map(|at| read(devices.wrapping_add(at))).collect::<Result<_>>()?;
        devices.iter().try_for_each(|device| place(*device).map(drop))?;
        if let Some(first) = devices.first() {
            DEVICE.set(*first);
        }
        Ok(())
    }

    choose_by(place: *mut i32, wanted: *const u8) [cudaChooseDevice Legacy] {
        if wanted.is_null() {
            return Err(Error::INVALID_VALUE);
        }
        self::place(0)?;
        // The driver lists the best device first.
        write(place, 0)
    }

    initialise(device: i32, device_flags: u32, flags: u32) [cudaInitDevice Legacy] {
        // cudaInitDeviceFlagsAreValid.
        if flags > 1 {
            return Err(Error::INVALID_VALUE);
        }
        if flags == 1 {
            set_flags(device, device_flags)?;
        }
        primary(device).map(drop)
    }

    flags(place: *mut u32) [cudaGetDeviceFlags Legacy] {
        let (mut flags, mut active) = (0_u32, 0_i32);
        cu!(no_context cuDevicePrimaryCtxGetState, device()?, &raw mut flags, &raw mut active)?;
        write(place, flags | MAP_HOST)
    }

    set_device_flags(flags: u32) [cudaSetDeviceFlags Legacy] {
        set_flags(device()?, flags)
    }

    reset() [cudaDeviceReset Legacy] [cudaThreadExit Legacy] {
        let device = device()?;
        let context = place(device)?.swap(0, Ordering::AcqRel);
        if context != 0 {
            ENDED.lock().unwrap_or_else(PoisonError::into_inner).push(context);
        }
        cu!(no_context cuDevicePrimaryCtxReset_v2, device)?;
        DEVICE.set(device);
        cu!(no_context cuCtxSetCurrent, 0_usize)
    }

    properties_2(place: *mut u8, device: i32) [cudaGetDeviceProperties_v2 Legacy] {
        write_properties(place, device, false)
    }

    properties_of_version(place: *mut u8, device: i32) [cudaGetDeviceProperties Legacy] {
        // Without `_v2` CUDA 12 has the structure of CUDA 11, which no program of CUDA 12 uses.
        if is_13() { write_properties(place, device, true) } else { Err(Error::NOT_SUPPORTED) }
    }

    enable_peer(peer: i32, flags: u32) [cudaDeviceEnablePeerAccess Legacy] {
        let context = primary(peer)?;
        cu!(cuCtxEnablePeerAccess, context, flags)
    }

    disable_peer(peer: i32) [cudaDeviceDisablePeerAccess Legacy] {
        let context = primary(peer)?;
        cu!(cuCtxDisablePeerAccess, context)
    }

    entry(symbol: *const c_char, function: *mut *mut c_void, flags: usize, status: *mut u32)
    [cudaGetDriverEntryPoint Legacy] {
        entry_point(symbol, function, runtime(), flags, status)
    }

    entry_of_thread(symbol: *const c_char, function: *mut *mut c_void, flags: usize, status: *mut u32)
    [cudaGetDriverEntryPoint_ptsz Legacy] {
        // cudaEnablePerThreadDefaultStream.
        let flags = if flags == 0 { 2 } else { flags };
        entry_point(symbol, function, runtime(), flags, status)
    }

    entry_by_version(symbol: *const c_char, function: *mut *mut c_void, version: u32, flags: usize, status: *mut u32)
    [cudaGetDriverEntryPointByVersion Legacy] {
        entry_point(symbol, function, version, flags, status)
    }

    entry_by_version_of_thread(
        symbol: *const c_char, function: *mut *mut c_void, version: u32, flags: usize, status: *mut u32,
    ) [cudaGetDriverEntryPointByVersion_ptsz Legacy] {
        entry_point(symbol, function, version, if flags == 0 { 2 } else { flags }, status)
    }
}
