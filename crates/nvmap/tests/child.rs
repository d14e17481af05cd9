//! Memory that is shared with a child process.
//!
//! A program of its own: from fork to exec, a child holds the descriptors of its parent, whose tests count them.

use std::os::fd::{AsFd, AsRawFd};
use std::process::Command;
use std::sync::Arc;

use kernel_door::{Door, DoorFd, LinuxDoor, Protection};
use nvmap::Nvmap;
use orin_sim::{Config, SoftwareOrin};

/// Names the test below to the process that it starts.
const CHILD: &str = "NVMAP_TEST_DESCRIPTOR";

/// This test starts itself once more; the child inherits the descriptor and maps it.
#[test]
fn a_child_process_writes_into_a_shared_buffer() {
    if let Ok(number) = std::env::var(CHILD) {
        let door: Arc<dyn Door> = Arc::new(LinuxDoor);
        // SAFETY: inherited from the parent, which does not use it in this process.
        let fd = unsafe { DoorFd::from_raw(&door, number.parse().unwrap()) };
        let mapping = fd.map(4096, 4096, Protection::READ | Protection::WRITE).unwrap();
        // SAFETY: the first word of the mapping, aligned.
        unsafe { mapping.pointer().cast::<u32>().write_volatile(0x600d_cafe) };
        return;
    }
    let door: Arc<dyn Door> = Arc::new(SoftwareOrin::new(Config::default()).unwrap());
    let nvmap = Nvmap::open(&door).unwrap();
    let buffer = nvmap.buffer(8192).allocate().unwrap();
    // Without close-on-exec, so that the child has it under the same number.
    let inherited = rustix::io::dup(buffer.as_fd()).unwrap();
    let status = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "a_child_process_writes_into_a_shared_buffer"])
        .env(CHILD, inherited.as_raw_fd().to_string())
        .status()
        .unwrap();
    assert!(status.success());
    assert_eq!((buffer.read_u32(0), buffer.read_u32(4096)), (0, 0x600d_cafe));
}
