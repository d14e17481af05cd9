//! The C library's share of a launch.

use core::ffi::{CStr, c_void};
use core::ptr;
use std::ffi::CString;

use tegra_hcq_capi::{
    Status, tegra_hcq_arg, tegra_hcq_buffer, tegra_hcq_buffer_alloc, tegra_hcq_device,
    tegra_hcq_device_close, tegra_hcq_device_open, tegra_hcq_dim3, tegra_hcq_kernel, tegra_hcq_last_error,
    tegra_hcq_program_kernel, tegra_hcq_program_load, tegra_hcq_queue, tegra_hcq_queue_launch,
    tegra_hcq_queue_open, tegra_hcq_queue_wait,
};

use super::launch::BATCH;
use crate::TIMEOUT;
use crate::bench::{Bench, timed};
use crate::case::Case;
use crate::error::{Error, Result};
use crate::kernels::BASICS;

/// The cases of this file.
pub(super) fn cases() -> Vec<Case> {
    vec![Case::new("launch/encode_c", "as encode, through the C library: per launch", encode)]
}

/// The error of a call that has not succeeded.
fn check(status: Status) -> Result<()> {
    if status == Status::Ok {
        return Ok(());
    }
    // SAFETY: the text is valid until the thread's next failed call.
    let text = unsafe { CStr::from_ptr(tegra_hcq_last_error()) };
    Err(Error::CLibrary(text.to_string_lossy().into_owned()))
}

/// A device of the C library, closed with its objects when dropped.
struct Board(*mut tegra_hcq_device);

impl Drop for Board {
    fn drop(&mut self) {
        let _ = tegra_hcq_device_close(self.0);
    }
}

fn encode(bench: &mut Bench<'_>) -> Result<()> {
    let info = bench.device().info();
    let name = CString::new(info.kind.name()).unwrap_or_default();
    let image = BASICS.image(10 * info.sm_version.0 + info.sm_version.1)?;
    let mut device: *mut tegra_hcq_device = ptr::null_mut();
    // SAFETY: the name ends with a zero byte, the result has a place.
    check(unsafe { tegra_hcq_device_open(name.as_ptr(), 0, &raw mut device) })?;
    let device = Board(device);
    let mut buffer: *mut tegra_hcq_buffer = ptr::null_mut();
    let mut kernel: *mut tegra_hcq_kernel = ptr::null_mut();
    let mut queue: *mut tegra_hcq_queue = ptr::null_mut();
    // SAFETY: the image has this length, texts end with zero bytes, results have places.
    unsafe {
        let mut program = ptr::null_mut();
        let (bytes, len) = (image.as_ptr().cast::<c_void>(), image.len() as u64);
        check(tegra_hcq_program_load(device.0, bytes, len, &raw mut program))?;
        check(tegra_hcq_program_kernel(program, c"increment".as_ptr(), &raw mut kernel))?;
        check(tegra_hcq_queue_open(device.0, ptr::null(), &raw mut queue))?;
        check(tegra_hcq_buffer_alloc(device.0, 128, 0, &raw mut buffer))?;
    }
    let (grid, block) = (tegra_hcq_dim3 { x: 1, y: 1, z: 1 }, tegra_hcq_dim3 { x: 32, y: 1, z: 1 });
    let timeout = u64::try_from(TIMEOUT.as_nanos()).unwrap_or(u64::MAX);
    bench.measure_alone(BATCH, &mut || {
        let elapsed = timed(|| {
            (0..BATCH).try_for_each(|_| {
                let args = [
                    tegra_hcq_arg { kind: 0, size: 8, value: buffer.addr() as u64, offset: 0 },
                    tegra_hcq_arg { kind: 1, size: 4, value: 32, offset: 0 },
                ];
                // SAFETY: the arguments have this length; the kernel adds 1 to the 32 elements of the buffer.
                check(unsafe {
                    tegra_hcq_queue_launch(queue, kernel, grid, block, 0, args.as_ptr(), args.len())
                })
            })
        })?;
        check(tegra_hcq_queue_wait(queue, timeout))?;
        Ok(elapsed)
    })
}
