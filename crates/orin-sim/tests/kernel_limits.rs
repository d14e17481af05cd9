//! The descriptor limit of the process. The test has its own process, because the limit applies to the whole process.

#[path = "kernel/support/mod.rs"]
mod support;

use nvgpu_sys::nvmap::{self, CreateHandle};
use nvgpu_sys::{Errno, channel, ctrl};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use support::*;

#[test]
fn a_full_descriptor_table_is_reported_as_the_kernel_does() {
    let bench = Bench::new();
    let chain = bench.chain();
    let handle = bench.create(4096);
    bench.alloc(handle);
    let before = (bench.orin.live(), open_descriptors());
    let limits = getrlimit(Resource::Nofile);
    // Forbids numbers above the lowest free one; numbers in use keep working.
    let lowest = std::fs::File::open("/dev/null").map(|file| std::os::fd::AsRawFd::as_raw_fd(&file)).unwrap();
    let full = Rlimit { current: Some(u64::try_from(lowest).unwrap()), ..limits };
    setrlimit(Resource::Nofile, full).unwrap();

    let get_fd = nvmap::GET_FD.send(&bench.nvmap, &mut CreateHandle { size_or_fd: 0, handle });
    let results = [
        bench.try_alloc_as(LOGGED_START, LOGGED_END).map(|_| ()),
        ctrl::OPEN_TSG.send(&bench.ctrl, &mut ctrl::OpenTsg::default()).map(|_| ()),
        bench.try_channel(-1).map(|_| ()),
        bench.door.open(nvgpu_sys::paths::CTRL, FLAGS).map(|_| ()),
    ];
    let live = channel::GET_TIMEDOUT.send(&chain.channel, &mut channel::GetParam::default());
    setrlimit(Resource::Nofile, limits).unwrap();

    assert_eq!(get_fd, Err(Errno::FAULT), "nvmap turns EMFILE into EFAULT");
    assert!(bench.orin.kernel_log().iter().any(|line| line.contains("NvMap: FD limit is crossed for uid")));
    assert_eq!(results, [Err(Errno::MFILE); 4]);
    assert_eq!(live, Ok(0));
    assert_eq!((bench.orin.live(), open_descriptors()), before, "nothing leaked");
}
