//! The kernel log of a door.

use std::io;
use std::sync::Arc;

use gpu_hal::{KernelLog, LogSource};
use nvgpu_sys::door::OpenFlags;
use nvgpu_sys::{Door, DoorFd, paths};

/// The open kernel log of a door: the system's on Linux, the model's on the software Orin.
#[derive(Debug)]
struct DoorLog(DoorFd);

impl LogSource for DoorLog {
    fn read_record(&mut self, record: &mut [u8]) -> io::Result<usize> {
        Ok(self.0.door().read(self.0.raw(), record)?)
    }
}

/// Opens the kernel log of `door` at its end. A log that cannot be opened is not an error; see
/// [`KernelLog::unavailable`].
pub fn open_kernel_log(door: &Arc<dyn Door>) -> KernelLog {
    let flags = OpenFlags::NON_BLOCKING | OpenFlags::CLOSE_ON_EXEC;
    let source = DoorFd::open(door, paths::KMSG, flags).and_then(|fd| {
        door.seek_end(fd.raw())?;
        Ok(DoorLog(fd))
    });
    KernelLog::new(source.map_err(io::Error::from))
}
