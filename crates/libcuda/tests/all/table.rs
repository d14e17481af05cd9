//! The table of functions: exports, look-ups, and the list in the documents.

use core::ffi::c_void;
use core::fmt::Write as _;
use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use cuda::TABLE;

use crate::support::*;
use crate::sweep::call;

#[test]
fn every_function_is_exported_once() {
    let test = std::env::current_exe().expect("a test knows its path");
    // SAFETY: the library of this build; its constructors only prepare Rust's run time.
    let library =
        unsafe { libloading::Library::new(test.with_file_name("libcuda.so")) }.expect("the library loads");
    let mut seen = BTreeSet::new();
    for entry in TABLE {
        assert!(seen.insert(entry.symbol), "{} is in the table twice", entry.symbol);
        // SAFETY: only the address is asked for.
        let found = unsafe { library.get::<*const c_void>(entry.symbol) };
        assert!(found.is_ok(), "{} is not exported", entry.symbol);
    }
    assert!(seen.len() > 700);
}

/// What a look-up finds: the symbol, or the status.
fn look_up(name: &std::ffi::CStr, version: i32, flags: u64) -> Result<&'static str, u32> {
    let (mut function, mut status) = (core::ptr::null_mut(), 9);
    // SAFETY: name and places are valid.
    ok(unsafe { cuGetProcAddress_v2(name.as_ptr(), &raw mut function, version, flags, &raw mut status) });
    if function.is_null() {
        return Err(status);
    }
    assert_eq!(status, 0);
    let symbol = |entry: &&cuda::Entry| core::ptr::eq(entry.address(), function);
    Ok(TABLE.iter().find(symbol).expect("the table has the function").symbol)
}

#[test]
fn look_ups_get_the_form_of_the_version() {
    assert_eq!(look_up(c"cuInit", 12060, 0), Ok("cuInit"));
    assert_eq!(look_up(c"cuCtxCreate", 12060, 0), Ok("cuCtxCreate_v4"));
    assert_eq!(look_up(c"cuCtxCreate", 11000, 0), Ok("cuCtxCreate_v2"));
    assert_eq!(look_up(c"cuMemcpyHtoD", 12060, 2), Ok("cuMemcpyHtoD_v2_ptds"));
    assert_eq!(look_up(c"cuMemcpyHtoD", 12060, 0), Ok("cuMemcpyHtoD_v2"));
    assert_eq!(look_up(c"cuGraphAddNode", 13050, 0), Ok("cuGraphAddNode_v3"));
    assert_eq!(look_up(c"cuLibraryLoadData", 11000, 0), Err(2), "the version is too old");
    assert_eq!(look_up(c"cuNobody", 12060, 0), Err(1));
}

/// The first tables that NVIDIA's run-time library of CUDA 12.6 and of CUDA 13 asks for: a program that contains it is
/// told so, once.
#[test]
fn the_run_time_library_is_told_that_it_does_not_work_here() {
    let tables =
        [0x6bd5_fb6c_5bf4_e74a_8987_d939_12fd_9df9, 0xf8cf_f951_2146_8b4e_b9e2_fb46_9e7c_0dd9, 1_u128];
    let test = "table::the_run_time_library_is_told_that_it_does_not_work_here";
    let printed = in_child(test, &[("ORIN_CUDA_DEVICE", "sim")], || {
        for id in tables.map(u128::to_be_bytes) {
            let mut table = core::ptr::dangling::<c_void>();
            // SAFETY: the place and the id are valid.
            let code = unsafe { cuGetExportTable(&raw mut table, id.as_ptr().cast()) };
            assert_eq!((code, table.is_null()), (500, true));
        }
    });
    let told = |text: String| text.matches("this program contains NVIDIA's CUDA runtime").count();
    assert_eq!(printed.map_or(1, told), 1);
}

#[test]
fn the_version_is_that_of_a_variable() {
    let test = "table::the_version_is_that_of_a_variable";
    let variable = "ORIN_CUDA_VERSION";
    let cases = [("", 12_060, 0), ("13.0", 13_000, 0), ("11.8", 0, 1)];
    for (text, _, wanted) in cases {
        let printed = in_child(test, &[("ORIN_CUDA_DEVICE", "sim"), (variable, text)], || {
            let case = cases.iter().find(|case| std::env::var(variable).is_ok_and(|text| text == case.0));
            let &(_, number, code) = case.expect("the parent has set the variable");
            gives(call("cuInit", [0]), code);
            let mut version = 0_i32;
            gives(call("cuDriverGetVersion", [place(&mut version)]), code);
            assert_eq!(version, number);
        });
        let Some(printed) = printed else { return };
        let told = printed.matches("ORIN_CUDA_VERSION is \"11.8\"; it may be 12.0 to 12.9").count();
        // CAST: 0 or 1.
        assert_eq!(told, wanted as usize);
    }
}

/// The list of what is missing, by reason.
fn missing() -> String {
    let mut reasons: BTreeMap<_, BTreeSet<_>> = BTreeMap::new();
    for entry in TABLE {
        if let Some(reason) = entry.missing {
            reasons.entry(reason).or_default().insert(entry.base);
        }
    }
    let mut text = String::from("| missing | functions |\n|---|---|\n");
    for (reason, bases) in reasons {
        let first = bases.iter().next().expect("a reason has a function");
        writeln!(text, "| {reason} | {}, for example `{first}` |", bases.len()).expect("a string grows");
    }
    text
}

#[test]
fn the_document_lists_what_is_missing() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cuda.md");
    let document = std::fs::read_to_string(&path).expect("the document is there");
    let wanted = missing();
    assert!(document.contains(&wanted), "docs/cuda.md needs this table:\n{wanted}");
}
