//! A device with a queue and the programs of the repository, and checks of statuses.

use core::ffi::{CStr, c_void};
use core::ptr;
use std::path::PathBuf;

use tegra_hcq_capi::*;

/// Time-out of waits in nanoseconds: 60 s.
pub(crate) const LONG: u64 = 60_000_000_000;

/// The text of this thread's last failure.
pub(crate) fn last_error() -> String {
    // SAFETY: the text is valid until the next failed call.
    unsafe { CStr::from_ptr(tegra_hcq_last_error()) }.to_str().expect("errors are UTF-8").to_owned()
}

/// The call must succeed.
#[track_caller]
pub(crate) fn ok(status: Status) {
    assert_eq!(status, Status::Ok, "{}", last_error());
}

/// The call must fail like this, with this part in the text.
#[track_caller]
pub(crate) fn fails(status: Status, wanted: Status, part: &str) {
    let text = last_error();
    assert_eq!(status, wanted, "{text}");
    assert!(text.contains(part), "no '{part}' in: {text}");
}

pub(crate) fn dim(x: u32) -> tegra_hcq_dim3 {
    tegra_hcq_dim3 { x, y: 1, z: 1 }
}

/// Buffer argument.
pub(crate) fn at(buffer: *mut tegra_hcq_buffer, offset: u64) -> tegra_hcq_arg {
    tegra_hcq_arg { kind: 0, size: 8, value: buffer.addr() as u64, offset }
}

/// Number of 32 bits.
pub(crate) fn word(value: u32) -> tegra_hcq_arg {
    tegra_hcq_arg { kind: 1, size: 4, value: u64::from(value), offset: 0 }
}

/// The cubin of a kernel file.
pub(crate) fn cubin(name: &str) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../kernels").join(format!("{name}.cubin"));
    std::fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A software Orin with a queue; closed with all its objects when dropped.
pub(crate) struct Board {
    pub(crate) device: *mut tegra_hcq_device,
    pub(crate) queue: *mut tegra_hcq_queue,
}

impl Board {
    pub(crate) fn open() -> Self {
        let (mut device, mut queue) = (ptr::null_mut(), ptr::null_mut());
        // SAFETY: texts end with a zero byte, results have places.
        unsafe {
            ok(tegra_hcq_device_open(c"sim".as_ptr(), 0, &raw mut device));
            ok(tegra_hcq_queue_open(device, ptr::null(), &raw mut queue));
        }
        Self { device, queue }
    }

    pub(crate) fn alloc(&self, bytes: u64) -> *mut tegra_hcq_buffer {
        let mut buffer = ptr::null_mut();
        // SAFETY: the result has a place.
        ok(unsafe { tegra_hcq_buffer_alloc(self.device, bytes, 0, &raw mut buffer) });
        buffer
    }

    /// A buffer with these words.
    pub(crate) fn words(&self, words: &[u32]) -> *mut tegra_hcq_buffer {
        let buffer = self.alloc(size_of_val(words) as u64);
        // SAFETY: the source has this length.
        ok(unsafe { tegra_hcq_buffer_write(buffer, 0, words.as_ptr().cast(), size_of_val(words) as u64) });
        buffer
    }

    pub(crate) fn program(&self, name: &str) -> *mut tegra_hcq_program {
        let (cubin, mut program) = (cubin(name), ptr::null_mut());
        // SAFETY: the cubin has this length, the result a place.
        ok(unsafe {
            tegra_hcq_program_load(self.device, cubin.as_ptr().cast(), cubin.len() as u64, &raw mut program)
        });
        program
    }

    pub(crate) fn kernel(&self, file: &str, name: &CStr) -> *mut tegra_hcq_kernel {
        let (program, mut kernel) = (self.program(file), ptr::null_mut());
        // SAFETY: the name ends with a zero byte, the result has a place.
        ok(unsafe { tegra_hcq_program_kernel(program, name.as_ptr(), &raw mut kernel) });
        ok(tegra_hcq_program_free(program));
        kernel
    }

    /// Launches with 32 threads per block.
    pub(crate) fn launch(
        &self,
        kernel: *mut tegra_hcq_kernel,
        blocks: u32,
        args: &[tegra_hcq_arg],
    ) -> Status {
        // SAFETY: the arguments have this length; the kernels of these tests stay inside their buffers, or fault.
        unsafe {
            tegra_hcq_queue_launch(self.queue, kernel, dim(blocks), dim(32), 0, args.as_ptr(), args.len())
        }
    }

    pub(crate) fn wait(&self) -> Status {
        tegra_hcq_queue_wait(self.queue, LONG)
    }
}

impl Drop for Board {
    fn drop(&mut self) {
        let _ = tegra_hcq_device_close(self.device);
    }
}

/// The words of a buffer.
pub(crate) fn read(buffer: *mut tegra_hcq_buffer, count: usize) -> Vec<u32> {
    let mut words = vec![0_u32; count];
    // SAFETY: the target has this length.
    ok(unsafe { tegra_hcq_buffer_read(buffer, 0, words.as_mut_ptr().cast::<c_void>(), count as u64 * 4) });
    words
}
