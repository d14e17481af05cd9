//! `cuInit`, versions, errors, and how programs find functions.

use core::ffi::{c_char, c_int, c_void};
#[cfg(feature = "sim")]
use std::ffi::CString;
use std::sync::Once;

use orin_cuda_core::{Code, Failure, driver, init};

use crate::abi::{In, Out, Text};
use crate::call::{Order, api, early_api, report};
use crate::table::{TABLE, find};

early_api! {
    initialise(flags: u32) [cuInit] {
        static FIRST: Once = Once::new();
        FIRST.call_once(|| report("cuInit"));
        init(flags)
    }

    version(version: Out<c_int>) [cuDriverGetVersion] {
        version.need("the place for the version")?.set(orin_cuda_core::version()?);
        Ok(())
    }

    error_name(code: u32, text: Out<*const c_char>) [cuGetErrorName] {
        describe(code, text, |code| code.name().as_ptr())
    }

    error_text(code: u32, text: Out<*const c_char>) [cuGetErrorString] {
        describe(code, text, |code| code.text().as_ptr())
    }

    proc_address(symbol: Text, function: Out<*const c_void>, version: c_int, flags: u64) [cuGetProcAddress] {
        look_up(symbol, function, version, flags, None)
    }

    proc_address_2(
        symbol: Text,
        function: Out<*const c_void>,
        version: c_int,
        flags: u64,
        status: Out<u32>,
    ) [cuGetProcAddress_v2] {
        look_up(symbol, function, version, flags, Some(status))
    }

    export_table(table: Out<*const c_void>, id: In<[u8; 16]>) [cuGetExportTable] {
        let table = table.need("the place for the table")?;
        let id = id.read("the table's id")?;
        table.set(core::ptr::null());
        if RUNTIME_TABLES.contains(&id) {
            static ONCE: Once = Once::new();
            ONCE.call_once(|| eprintln!(concat!(
                "libcuda (orin): this program contains NVIDIA's CUDA runtime, which works with NVIDIA's driver only: \
                 link it with nvcc -cudart shared, see ",
                env!("CARGO_PKG_REPOSITORY"),
                "/blob/main/docs/cuda.md"
            )));
        }
        Err(Failure::new(Code::NotFound, format!("a table of NVIDIA's own libraries: {id:02x?}")))
    }
}

/// Tables that NVIDIA's runtime asks for, of which one shows that the driver is NVIDIA's. None is answered. The second
/// is the first that `libcudart.so.12` of 12.6 asks for, the third that of `libcudart.so.13`.
const RUNTIME_TABLES: [[u8; 16]; 3] = [
    [0x55, 0x20, 0x08, 0xd4, 0xde, 0xbd, 0x4b, 0x70, 0x8d, 0x34, 0xba, 0x12, 0x3c, 0x66, 0xe1, 0xf2],
    [0x6b, 0xd5, 0xfb, 0x6c, 0x5b, 0xf4, 0xe7, 0x4a, 0x89, 0x87, 0xd9, 0x39, 0x12, 0xfd, 0x9d, 0xf9],
    [0xf8, 0xcf, 0xf9, 0x51, 0x21, 0x46, 0x8b, 0x4e, 0xb9, 0xe2, 0xfb, 0x46, 0x9e, 0x7c, 0x0d, 0xd9],
];

/// Waits for all work of the process and calls `found` with a text for each finding of the checks so far, and for each
/// fault that has stopped a channel of the software Orin. A finding that occurs again has another text. The text is
/// valid during the call. Returns a `CUresult`: CUDA_ERROR_NOT_INITIALIZED before `cuInit`.
///
/// This function is not part of `cuda.h`. It lets a test harness assign findings to tests.
///
/// # Safety
///
/// `found` may be called with `user`; it does not unwind.
#[cfg(feature = "sim")]
#[unsafe(no_mangle)]
pub unsafe extern "C" fn orin_cuda_findings(
    found: Option<unsafe extern "C" fn(text: *const c_char, user: *mut c_void)>,
    user: *mut c_void,
) -> u32 {
    crate::call::run("orin_cuda_findings", || {
        let found = found.ok_or_else(|| Failure::invalid("found is NULL"))?;
        for text in orin_cuda_core::findings()? {
            let text = CString::new(text.replace('\0', " ")).unwrap_or_default();
            // SAFETY: the caller's promise; the text lives during the call.
            unsafe { found(text.as_ptr(), user) };
        }
        Ok(())
    })
}

fn describe(
    code: u32,
    text: Out<*const c_char>,
    of: impl FnOnce(Code) -> *const c_char,
) -> orin_cuda_core::Result<()> {
    let text = text.need("the place for the text")?;
    let known = Code::from_number(code);
    text.set(known.map_or(core::ptr::null(), of));
    known.map(drop).ok_or_else(|| Failure::invalid(format!("there is no result {code}")))
}

/// CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM.
const PER_THREAD: u64 = 2;

fn look_up(
    symbol: Text,
    function: Out<*const c_void>,
    version: c_int,
    flags: u64,
    status: Option<Out<u32>>,
) -> orin_cuda_core::Result<()> {
    let symbol = symbol.get("the name of the function")?;
    let function = function.need("the place for the function")?;
    function.set(core::ptr::null());
    if flags > PER_THREAD {
        return Err(Failure::invalid(format!("flags {flags:#x} of a look-up")));
    }
    let order = if flags == PER_THREAD { Order::PerThread } else { Order::Legacy };
    let found = find(symbol, version, order);
    // CU_GET_PROC_ADDRESS_SUCCESS, _SYMBOL_NOT_FOUND, _VERSION_NOT_SUFFICIENT.
    let answer = match &found {
        Some(_) => 0,
        None if TABLE.iter().any(|entry| entry.base == symbol) => 2,
        None => 1,
    };
    if let Some(status) = status {
        status.set(answer);
    }
    match found {
        Some(entry) => {
            function.set(entry.address());
            Ok(())
        }
        None if status.is_some_and(|status| !status.is_null()) => Ok(()),
        None => Err(Failure::new(Code::NotFound, format!("{symbol} of version {version}"))),
    }
}

api! {
    profile() [cuProfilerStart Legacy] [cuProfilerStop Legacy] {
        // Marks for profilers of NVIDIA's driver.
        orin_cuda_core::context::current().map(drop)
    }

    device_of(device: Out<i32>, ordinal: c_int) [cuDeviceGet Legacy] {
        let device = device.need("the place for the device")?;
        driver()?.gpu(ordinal)?;
        device.set(ordinal);
        Ok(())
    }
}
