//! Programs, kernels, variables and properties.

use core::ffi::CStr;
use core::ptr;

use tegra_hcq_capi::*;

use crate::support::{Board, cubin, fails, last_error, ok};

#[test]
fn kernels_and_their_parameters_are_listed() {
    let board = Board::open();
    let program = board.program("basics");
    let (mut count, mut name, mut kernel) = (0, ptr::null(), ptr::null_mut());
    let (mut sizes, mut parameters) = ([0; 2], 0);
    // SAFETY: results have places; zeros are valid in every field.
    unsafe {
        ok(tegra_hcq_program_kernel_count(program, &raw mut count));
        assert!(count >= 6);
        let mut names = Vec::new();
        for index in 0..count {
            ok(tegra_hcq_program_kernel_name(program, index, &raw mut name));
            names.push(CStr::from_ptr(name).to_owned());
        }
        assert!(names.contains(&c"fill_u32".to_owned()));
        fails(
            tegra_hcq_program_kernel_name(program, count, &raw mut name),
            Status::InvalidArgument,
            "there is no kernel",
        );
        fails(
            tegra_hcq_program_kernel(program, c"missing".as_ptr(), &raw mut kernel),
            Status::NotFound,
            "fill_u32",
        );
        ok(tegra_hcq_program_kernel(program, c"fill_u32".as_ptr(), &raw mut kernel));
        ok(tegra_hcq_kernel_name(kernel, &raw mut name));
        assert_eq!(CStr::from_ptr(name), c"fill_u32");
        ok(tegra_hcq_kernel_parameters(kernel, sizes.as_mut_ptr(), 2, &raw mut parameters));
        assert_eq!((sizes, parameters), ([8, 4], 3));
        let mut attributes: tegra_hcq_kernel_attributes = core::mem::zeroed();
        attributes.struct_size = size_of::<tegra_hcq_kernel_attributes>() as u32;
        ok(tegra_hcq_kernel_get_attributes(kernel, &raw mut attributes));
        assert_eq!((attributes.max_threads, attributes.local_bytes), (1024, 0));
        assert!(attributes.registers > 0);
    }
}

#[test]
fn what_is_not_a_cubin_is_refused() {
    let board = Board::open();
    let (mut program, whole) = (ptr::null_mut(), cubin("basics"));
    // SAFETY: the bytes have these lengths, the result a place.
    unsafe {
        let status = tegra_hcq_program_load(board.device, c"no cubin".as_ptr().cast(), 8, &raw mut program);
        fails(status, Status::InvalidArgument, "not a cubin");
        let half = whole.len() as u64 / 2;
        let status = tegra_hcq_program_load(board.device, whole.as_ptr().cast(), half, &raw mut program);
        assert_eq!(status, Status::InvalidArgument);
        let status = tegra_hcq_program_load(board.device, ptr::null(), 8, &raw mut program);
        fails(status, Status::InvalidArgument, "cubin is NULL");
    }
    assert!(program.is_null());
}

#[test]
fn variables_are_read_and_written() {
    let board = Board::open();
    let program = board.program("globals");
    let mut taps = [0.0_f32; 5];
    // SAFETY: the arrays have these lengths.
    unsafe {
        ok(tegra_hcq_program_read_variable(program, c"taps".as_ptr(), taps.as_mut_ptr().cast(), 20));
        assert_eq!(taps, [0.0625, 0.25, 0.375, 0.25, 0.0625]);
        taps = [0.2; 5];
        ok(tegra_hcq_program_write_variable(program, c"taps".as_ptr(), taps.as_ptr().cast(), 20));
        let short = tegra_hcq_program_read_variable(program, c"taps".as_ptr(), taps.as_mut_ptr().cast(), 16);
        fails(short, Status::InvalidArgument, "20 bytes, not 16");
        let missing = tegra_hcq_program_read_variable(program, c"tap".as_ptr(), taps.as_mut_ptr().cast(), 4);
        fails(missing, Status::NotFound, "taps");
    }
}

#[test]
fn properties_respect_the_size_that_the_caller_knows() {
    let board = Board::open();
    // SAFETY: zeros are valid in every field.
    let mut info: tegra_hcq_properties = unsafe { core::mem::zeroed() };
    let mut clocks = (0, 0);
    // SAFETY: the struct has at least these sizes.
    unsafe {
        fails(
            tegra_hcq_device_properties(board.device, &raw mut info),
            Status::InvalidArgument,
            "struct_size is 0",
        );
        // A program that was compiled with a shorter struct.
        info.struct_size = 12;
        ok(tegra_hcq_device_properties(board.device, &raw mut info));
        assert_eq!((info.sm_major, info.sm_minor, info.sm_count), (8, 7, 0));
        info.struct_size = size_of::<tegra_hcq_properties>() as u32;
        ok(tegra_hcq_device_properties(board.device, &raw mut info));
        ok(tegra_hcq_device_clocks(board.device, &raw mut clocks.0, &raw mut clocks.1));
    }
    assert_eq!((info.unified_memory, info.max_block_threads), (1, 1024));
    assert_eq!(CStr::from_bytes_until_nul(&info.chip), Ok(c"ga10b"));
    assert_eq!(CStr::from_bytes_until_nul(&info.kind), Ok(c"sim"));
    assert!(clocks.1 > 1_500_000_000_000_000_000);
}

#[test]
fn a_source_without_a_compiler_says_how_to_get_one_and_errors_have_their_line() {
    let board = Board::open();
    let mut program = ptr::null_mut();
    let options = [c"-DN=4".as_ptr(), ptr::null()];
    // SAFETY: texts end with zero bytes, results have places.
    unsafe {
        let missing_option = tegra_hcq_program_compile(
            board.device,
            c"".as_ptr(),
            ptr::null(),
            options.as_ptr(),
            2,
            &raw mut program,
        );
        fails(missing_option, Status::InvalidArgument, "options is NULL");
        let source = c"extern \"C\" __global__ void f(int* a) { a[0] = nothing; }";
        let status = tegra_hcq_program_compile(
            board.device,
            source.as_ptr(),
            c"mine.cu".as_ptr(),
            options.as_ptr(),
            1,
            &raw mut program,
        );
        // Depends on the machine: with NVRTC it is the compiler's error.
        match status {
            Status::Compilation => assert!(last_error().contains("mine.cu"), "{}", last_error()),
            _ => fails(status, Status::LibraryMissing, "nvidia-cuda-nvrtc"),
        }
    }
    assert!(program.is_null());
}

#[test]
fn names_of_statuses_and_versions_are_texts() {
    // SAFETY: the texts are never freed.
    unsafe {
        assert_eq!(CStr::from_ptr(tegra_hcq_status_name(5)), c"invalid handle");
        assert_eq!(CStr::from_ptr(tegra_hcq_status_name(-1)), c"unknown status");
        assert_eq!(CStr::from_ptr(tegra_hcq_version()).to_str(), Ok(env!("CARGO_PKG_VERSION")));
    }
    assert_eq!(tegra_hcq_abi(), TEGRA_HCQ_ABI);
}

#[test]
fn memory_is_reported_and_returned() {
    let board = Board::open();
    ok(tegra_hcq_buffer_free(board.alloc(1 << 20)));
    let (mut released, mut total, mut free) = (0, 0, 0);
    // SAFETY: results have places.
    unsafe {
        ok(tegra_hcq_device_trim(board.device, &raw mut released));
        assert!(released >= 1 << 20, "{released}");
        match tegra_hcq_device_memory(board.device, &raw mut total, &raw mut free) {
            Status::Ok => assert!(free <= total && total > 0),
            status => fails(status, Status::Unsupported, "does not report"),
        }
    }
    let mut buffer = ptr::null_mut();
    // SAFETY: the result has a place.
    let status = unsafe { tegra_hcq_buffer_alloc(board.device, 1 << 50, 0, &raw mut buffer) };
    fails(status, Status::OutOfMemory, "cannot allocate");
    // SAFETY: as above.
    let status = unsafe { tegra_hcq_buffer_alloc(board.device, 16, 7, &raw mut buffer) };
    fails(status, Status::InvalidArgument, "purpose is 7");
}
