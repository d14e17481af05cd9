//! Every row of the table of error numbers, through the public door.
//!
//! `data/kernel-errnos.json` lists which condition of which request gives which errno on the real
//! driver. A row is either produced here or named as not modelled, with the reason.

mod buffers;
mod channel;
mod ctrl;
mod host1x;
mod nvmap;
mod space;
mod tsg;

use core::ffi::c_void;
use core::ptr;

use nvgpu_sys::Errno;
use nvgpu_sys::door::DoorFd;
use serde::Deserialize;

use channel::{channel_requests, setup_bind};
use ctrl::{alloc_as, ctrl_node, ctrl_requests};
use host1x::host1x_requests;
use nvmap::{nvmap_alloc, nvmap_node, nvmap_requests};
use space::{map_buffer, space_node, space_requests};
use tsg::{tsg_bind, tsg_requests};

#[derive(Deserialize)]
struct Row {
    ioctl: String,
    condition: String,
    errno: String,
}

/// The outcome of a row: the result of the call, or the reason why it cannot be produced.
type Outcome = Result<Result<i32, Errno>, &'static str>;

/// Rows that user space cannot trigger; each has a reason.
const ABSENT: usize = 3;

const UNKNOWN: &str = "no test produces this condition";

fn expected(name: &str) -> Option<Errno> {
    Some(match name {
        "OK" => return None,
        "EPERM" => Errno::PERM,
        "ENOENT" => Errno::NOENT,
        "EINTR" => Errno::INTR,
        "EBADF" => Errno::BADF,
        "EAGAIN" => Errno::AGAIN,
        "ENOMEM" => Errno::NOMEM,
        "EACCES" => Errno::ACCESS,
        "EFAULT" => Errno::FAULT,
        "EBUSY" => Errno::BUSY,
        "EEXIST" => Errno::EXIST,
        "ENODEV" => Errno::NODEV,
        "EINVAL" => Errno::INVAL,
        "ENOTTY" => Errno::NOTTY,
        "ENOSPC" => Errno::NOSPC,
        "ENOSYS" => Errno::NOSYS,
        "ETIMEDOUT" => Errno::TIMEDOUT,
        other => panic!("the table has a new errno: {other}"),
    })
}

#[test]
fn every_row_is_produced_or_named_as_not_modelled() {
    let rows: Vec<Row> = serde_json::from_str(include_str!("../../data/kernel-errnos.json")).unwrap();
    let (mut produced, mut absent, mut wrong) = (0, Vec::new(), Vec::new());
    for row in &rows {
        let name = format!("{}: {}", row.ioctl, row.condition);
        match produce(&row.ioctl, &row.condition) {
            Err(UNKNOWN) => wrong.push(format!("{name}: {UNKNOWN}")),
            Err(reason) => absent.push(format!("{name}: not modelled: {reason}")),
            Ok(result) => {
                produced += 1;
                if result.err() != expected(&row.errno) {
                    wrong.push(format!("{name}: expected {}, got {result:?}", row.errno));
                }
            }
        }
    }
    eprintln!("{produced} of {} rows produced; the others:\n{}", rows.len(), absent.join("\n"));
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert_eq!(absent.len(), ABSENT, "rows that cannot be produced");
    assert_eq!(produced + ABSENT, rows.len());
}

fn produce(ioctl: &str, condition: &str) -> Outcome {
    match ioctl {
        "nvmap:*" | "nvmap:mmap(/dev/nvmap)" | "mmap(nvmap dma-buf)" => nvmap_node(ioctl, condition),
        "NVMAP_IOC_ALLOC" => nvmap_alloc(condition),
        name if name.starts_with("NVMAP_") => nvmap_requests(name, condition),
        "ctrl:*" | "nvgpu:*" | "mmap(ctrl fd)" => ctrl_node(ioctl, condition),
        "NVGPU_GPU_IOCTL_ALLOC_AS" => alloc_as(condition),
        name if name.starts_with("NVGPU_GPU_") => ctrl_requests(name, condition),
        "as:*" => space_node(condition),
        "NVGPU_AS_IOCTL_MAP_BUFFER_EX" => map_buffer(condition),
        name if name.starts_with("NVGPU_AS_") => space_requests(name, condition),
        "NVGPU_TSG_IOCTL_BIND_CHANNEL_EX" => tsg_bind(condition),
        name if name.starts_with("NVGPU_TSG_") || name.starts_with("NVGPU_IOCTL_TSG_") || name == "tsg:*" => {
            tsg_requests(name, condition)
        }
        "NVGPU_IOCTL_CHANNEL_SETUP_BIND" => setup_bind(condition),
        name if name.starts_with("NVGPU_IOCTL_CHANNEL_") || name == "channel:*" => {
            channel_requests(name, condition)
        }
        name if name.starts_with("HOST1X_") || name == "poll(host1x sync_file)" => {
            host1x_requests(name, condition)
        }
        _ => Err(UNKNOWN),
    }
}

/// Sends any request with any argument.
fn send(fd: &DoorFd, code: u32, argument: &mut [u8]) -> Result<i32, Errno> {
    // SAFETY: the argument is a live slice. If it is shorter than the code says, the software kernel must detect it; it
    // checks every address before it uses it.
    unsafe { fd.door().ioctl(fd.raw(), code, argument.as_mut_ptr().cast::<c_void>()) }
}

/// Sends a request with a plain address, valid or not.
fn send_at(fd: &DoorFd, code: u32, address: usize) -> Result<i32, Errno> {
    // SAFETY: the software kernel checks every address before it uses it.
    unsafe { fd.door().ioctl(fd.raw(), code, ptr::with_exposed_provenance_mut::<c_void>(address)) }
}

/// One page of zeroes that cannot be written.
fn read_only_page() -> *mut c_void {
    use rustix::mm::{MapFlags, ProtFlags};
    // SAFETY: a new anonymous mapping that is never unmapped.
    unsafe { rustix::mm::mmap_anonymous(ptr::null_mut(), 4096, ProtFlags::READ, MapFlags::PRIVATE) }.unwrap()
}

/// An open descriptor that is not the model's.
fn foreign() -> std::fs::File {
    std::fs::File::open("/dev/null").unwrap()
}

fn foreign_number(file: &std::fs::File) -> i32 {
    use std::os::fd::AsRawFd;
    file.as_raw_fd()
}

/// A number that is not open.
const CLOSED: u32 = 0x7fff_0000;
