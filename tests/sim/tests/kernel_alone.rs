//! Tests that need a process for themselves, one after the other: they change a limit of the process, or unmap memory
//! that the GPU still uses.

#[path = "kernel/support/mod.rs"]
mod support;

use kernel_door::Errno;
use nvgpu_sys::nvmap::{self, CreateHandle};
use nvgpu_sys::{channel, ctrl};
use parking_lot::{Mutex, MutexGuard};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use support::work::{Running, release};
use support::*;

/// Waits until no other test runs.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock()
}

#[test]
fn a_full_descriptor_table_is_reported_as_the_kernel_does() {
    let _alone = alone();
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

/// Frames with their fences, mapped and waited for by the GPU's side, cost no descriptor and no memory.
#[test]
fn a_thousand_frames_leave_no_descriptor() {
    use orin_sim::{CameraOptions, FrameFences};
    use std::os::fd::AsFd;
    use std::time::Duration;

    let _alone = alone();
    let bench = Bench::new();
    let space = bench.space();
    for fences in [FrameFences::Host1x, FrameFences::Other] {
        let options = CameraOptions {
            width: 32,
            height: 2,
            interval: Duration::from_micros(200),
            readout: Duration::from_micros(50),
            fences,
            ..CameraOptions::default()
        };
        let camera = bench.orin.camera(options).unwrap();
        let mut before = None;
        for frame in 0..500 {
            let taken = camera.next_frame(Duration::from_secs(30)).unwrap();
            let buffer = rustix::io::dup(camera.buffer(taken.index).unwrap()).unwrap();
            let buffer = adopt(&bench.door, std::os::fd::IntoRawFd::into_raw_fd(buffer));
            map(&space, &buffer).unwrap();
            // The buffer is free when its own frame is complete.
            camera.queue(taken.index, taken.fence.as_ref().map(AsFd::as_fd)).unwrap();
            drop((taken, buffer));
            if frame >= 20 {
                // The descriptors that the model and the camera hold for themselves.
                let now = (bench.orin.live().gpu_mappings, open_descriptors());
                assert!(now.1 <= before.get_or_insert(now).1 + 2, "{frame}: {now:?} after {before:?}");
            }
        }
    }
}

/// As on a board, where the pages are pinned. Other tests could map the addresses anew, and a model without a
/// guard dies.
#[test]
fn a_semaphore_in_private_memory_may_be_unmapped_before_its_release() {
    use rustix::mm::{MapFlags, ProtFlags};
    let _alone = alone();
    let bench = Bench::new();
    let running = Running::new(&bench);
    let protection = ProtFlags::READ | ProtFlags::WRITE;
    // SAFETY: a new anonymous mapping.
    let own = unsafe {
        rustix::mm::mmap_anonymous(core::ptr::null_mut(), 2 * 4096, protection, MapFlags::PRIVATE).unwrap()
    };
    // SAFETY: the process uses the addresses for nothing else.
    let (handle, _buffer, va) = unsafe { running.import(&bench, own.expose_provenance() as u64, 2 * 4096) };
    // The first page is unmapped, the second one only protected.
    // SAFETY: the process does not use the memory any more.
    unsafe {
        rustix::mm::munmap(own, 4096).unwrap();
        rustix::mm::mprotect(own.byte_add(4096), 4096, rustix::mm::MprotectFlags::empty()).unwrap();
    }
    running.submit(&[release(va + 0x10, 5), release(va + 0x1010, 6)].concat());
    let read = |offset| {
        let mut bytes = [0; 4];
        assert_eq!(nvmap::read(&bench.nvmap, handle, offset, &mut bytes), Ok(4));
        u32::from_le_bytes(bytes)
    };
    wait_until("the second release", || read(0x1010) == 6);
    assert_eq!(read(0x10), 5);
    assert!(
        !bench.orin.kernel_log().iter().any(|line| line.contains("fault")),
        "{:?}",
        bench.orin.kernel_log()
    );
}
