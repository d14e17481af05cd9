//! Rows of `/dev/host1x-fence` and its sync-files.

use core::time::Duration;

use nvgpu_sys::door::{DoorFd, Events, PollEntry};
use nvgpu_sys::host1x::{self, CreateFence, CreatePollfd, FenceExtract, TriggerPollfd};
use nvgpu_sys::{Errno, paths, sync_file};
use orin_sim::Config;

use super::{CLOSED, Outcome, UNKNOWN};
use crate::support::*;

fn poll(bench: &Bench, fd: &DoorFd) -> Events {
    let mut entries = [PollEntry { fd: fd.raw(), wanted: Events::IN, happened: Events::empty() }];
    bench.door.poll(&mut entries, Duration::from_secs(20)).unwrap();
    entries[0].happened
}

pub(crate) fn host1x_requests(ioctl: &str, condition: &str) -> Outcome {
    let bench = Bench::with(Config { fence_timeout: Duration::from_millis(20), ..Config::default() });
    let node = DoorFd::open(&bench.door, paths::HOST1X_FENCE, FLAGS).unwrap();
    let create = |threshold, reserved| {
        let mut args = CreateFence { id: 1, threshold, fence_fd: 0, reserved };
        let result = host1x::CREATE_FENCE.send(&node, &mut args);
        result.map(|_| DoorFd::from_raw(&bench.door, args.fence_fd))
    };
    let trigger = |fd, id| {
        let mut args = TriggerPollfd { fd, id, threshold: 0, reserved: 0 };
        host1x::TRIGGER_POLLFD.send(&node, &mut args)
    };
    Ok(match (ioctl, condition) {
        ("HOST1X_IOCTL_CREATE_FENCE", "reserved nonzero") => create(0, [1]).map(|_| 0),
        ("HOST1X_IOCTL_CREATE_FENCE", "threshold already reached") => {
            let fence = create(0, [0]);
            fence.map(|fence| {
                assert_eq!(poll(&bench, &fence), Events::IN);
                assert_eq!(sync_file::status(&fence), Ok(Some(Ok(()))));
                0
            })
        }
        ("HOST1X_IOCTL_FENCE_EXTRACT", "fence_fd is not a sync_file") => {
            host1x::fence_extract(&node, &bench.ctrl, &mut []).map(|_| 0)
        }
        ("HOST1X_IOCTL_FENCE_EXTRACT", "fences_ptr unwritable") => {
            let fence = create(5, [0]).unwrap();
            let mut args =
                FenceExtract { fence_fd: fence.raw(), num_fences: 1, fences_ptr: 8, reserved: [0; 2] };
            // SAFETY: the software kernel checks every address before it uses it.
            unsafe { host1x::FENCE_EXTRACT.send_pointing(&node, &mut args) }
        }
        ("HOST1X_IOCTL_TRIGGER_POLLFD", "fd not open") => trigger(i32::try_from(CLOSED).unwrap(), 1),
        ("HOST1X_IOCTL_TRIGGER_POLLFD", "id 1024") => {
            let mut args = CreatePollfd::default();
            host1x::CREATE_POLLFD.send(&node, &mut args).unwrap();
            let set = DoorFd::from_raw(&bench.door, args.fd);
            assert_eq!(trigger(set.raw(), 1023), Ok(0));
            trigger(set.raw(), 1024)
        }
        ("poll(host1x sync_file)", _) => {
            let fence = create(1, [0]).unwrap();
            assert_eq!(poll(&bench, &fence), Events::IN);
            match sync_file::status(&fence).unwrap() {
                Some(Err(errno)) => Err(errno),
                other => panic!("{other:?} is not a time-out"),
            }
        }
        _ => return Err(UNKNOWN),
    } as Result<i32, Errno>)
}
