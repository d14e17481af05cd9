//! Paths of device nodes and sysfs controls.
//!
//! These are the paths of L4T r36 on Orin; earlier releases and other boards use other names.

use core::ffi::CStr;

/// The memory allocator nvmap.
pub const NVMAP: &CStr = c"/dev/nvmap";
/// The GPU's control node: answers queries, and creates address spaces, TSGs and channels.
pub const CTRL: &CStr = c"/dev/nvgpu/igpu0/ctrl";
/// The control node before L4T r34.
pub const CTRL_LEGACY: &CStr = c"/dev/nvhost-ctrl-gpu";
/// The node for CPU waits on syncpoints.
pub const HOST1X_FENCE: &CStr = c"/dev/host1x-fence";
/// Creates dma-bufs of a process's memory.
pub const UDMABUF: &CStr = c"/dev/udmabuf";
/// The heap of system memory for devices.
pub const DMA_HEAP_SYSTEM: &CStr = c"/dev/dma_heap/system";
/// The kernel log, one record per read.
pub const KMSG: &CStr = kernel_door::KMSG;
/// Minimum GPU frequency in Hz, a decimal number; writable by root.
pub const DEVFREQ_MIN_FREQ: &CStr = c"/sys/class/devfreq/17000000.gpu/min_freq";
/// Maximum GPU frequency in Hz, a decimal number; writable by root.
pub const DEVFREQ_MAX_FREQ: &CStr = c"/sys/class/devfreq/17000000.gpu/max_freq";
/// Current GPU frequency in Hz, a decimal number.
pub const DEVFREQ_CUR_FREQ: &CStr = c"/sys/class/devfreq/17000000.gpu/cur_freq";

/// Returns a path of this module as text, for messages.
pub const fn text(path: &'static CStr) -> &'static str {
    match path.to_str() {
        Ok(text) => text,
        // PANIC: the paths above are ASCII; a constant with a non-UTF-8 path does not compile.
        Err(_) => panic!("the path is not UTF-8"),
    }
}
