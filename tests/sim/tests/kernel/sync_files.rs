//! Sync-files of host1x, of other drivers and of both, and the fences of dma-bufs.

use core::time::Duration;

use crate::served;
use crate::support::*;
use kernel_door::{DoorFd, Errno, Events};
use nvgpu_sys::channel::{self, GET_USER_SYNCPOINT, GetUserSyncpoint, Gpfifo, SubmitFlags, SubmitGpfifo};
use nvgpu_sys::dma_buf::{self, SyncFlags};
use nvgpu_sys::dma_heap;
use nvgpu_sys::host1x::{self, CreateFence, FenceExtractFence};
use nvgpu_sys::{paths, sync_file};
use orin_sim::{Config, ForeignFence};

fn host1x_file(bench: &Bench, node: &DoorFd, id: u32, threshold: u32) -> DoorFd {
    let mut args = CreateFence { id, threshold, ..CreateFence::default() };
    host1x::CREATE_FENCE.send(node, &mut args).unwrap();
    adopt(&bench.door, args.fence_fd)
}

/// A fence of another driver and its file.
fn other(bench: &Bench) -> (ForeignFence, DoorFd) {
    let fence = bench.orin.foreign_fence("display");
    let file = fence.file(&bench.orin).unwrap();
    (fence, adopt(&bench.door, file))
}

/// The thresholds in a sync-file, of which the array has room for one.
fn extract(node: &DoorFd, file: &DoorFd) -> Result<(usize, (u32, u32)), Errno> {
    let mut first = [FenceExtractFence::default()];
    let count = host1x::fence_extract(node, file, &mut first)?;
    Ok((count, (first[0].id, first[0].threshold)))
}

fn is_readable(file: &DoorFd) -> bool {
    file.poll(Events::IN, Duration::ZERO).unwrap().contains(Events::IN)
}

#[test]
fn thresholds_come_from_fences_of_host1x_only() {
    let bench = Bench::new();
    let node = DoorFd::open(&bench.door, paths::HOST1X_FENCE, FLAGS).unwrap();
    let (fence, file) = other(&bench);
    assert_eq!(extract(&node, &file), Err(Errno::INVAL), "active");
    assert_eq!(sync_file::status(&file), Ok(None));
    let both = sync_file::merge(&host1x_file(&bench, &node, 7, 3), &file).unwrap();
    assert_eq!(extract(&node, &both), Err(Errno::INVAL), "one of both is active");
    fence.signal(Ok(()));
    assert!(is_readable(&file) && !is_readable(&both));
    assert_eq!(extract(&node, &file), Ok((0, (0, 0))), "ended, so left out");
    assert_eq!(extract(&node, &both), Ok((1, (7, 3))));
    let pair = sync_file::merge(&both, &host1x_file(&bench, &node, 8, 5)).unwrap();
    assert_eq!(extract(&node, &pair), Ok((2, (7, 3))), "the count may exceed the array");
}

#[test]
fn a_merged_file_ends_with_its_last_fence_and_with_its_first_error() {
    let bench = Bench::new();
    let ((first, one), (second, two)) = (other(&bench), other(&bench));
    let both = sync_file::merge(&one, &two).unwrap();
    second.signal(Err(Errno::IO));
    assert_eq!((is_readable(&two), is_readable(&both)), (true, false));
    first.signal(Ok(()));
    first.signal(Err(Errno::TIMEDOUT));
    assert_eq!(sync_file::status(&one), Ok(Some(Ok(()))), "a fence signals once");
    assert_eq!((is_readable(&both), sync_file::status(&both)), (true, Ok(Some(Err(Errno::IO)))));
    // Only active fences are taken over.
    let (third, three) = other(&bench);
    let rest = sync_file::merge(&both, &three).unwrap();
    third.signal(Ok(()));
    assert_eq!(sync_file::status(&rest), Ok(Some(Ok(()))));
    let ended = sync_file::merge(&one, &three).unwrap();
    assert_eq!(sync_file::status(&ended), Ok(Some(Ok(()))));

    assert_eq!(sync_file::merge(&one, &bench.nvmap).unwrap_err(), Errno::NOENT);
    assert_eq!(sync_file::merge(&bench.nvmap, &one).unwrap_err(), Errno::NOTTY);
    let refused = sync_file::Merge { fd2: two.raw(), flags: 1, ..sync_file::Merge::default() };
    assert_eq!(sync_file::MERGE.send(&one, &mut { refused }), Err(Errno::INVAL));
    let mut infos = [0_u64; 2 * 10];
    let mut info = sync_file::FileInfo {
        num_fences: 1,
        sync_fence_info: infos.as_mut_ptr().expose_provenance() as u64,
        ..sync_file::FileInfo::default()
    };
    // SAFETY: the array has room for two records of 80 bytes.
    let mut ask =
        |file| unsafe { sync_file::FILE_INFO.send_pointing(file, &mut info) }.map(|_| info.num_fences);
    assert_eq!(ask(&both), Err(Errno::INVAL), "room for one of two");
    assert_eq!(ask(&one), Ok(1));
}

/// The kernel makes the GPU wait for syncpoints, so it refuses a file with an active fence of another driver.
#[test]
fn kernel_submission_waits_for_every_threshold_of_a_file() {
    let bench = Bench::new();
    let node = DoorFd::open(&bench.door, paths::HOST1X_FENCE, FLAGS).unwrap();
    // The view of all syncpoints must lie below 2^40.
    let space = bench.try_alloc_as(0x20_0000, 0x40_0000_0000).unwrap();
    let (tsg, channel) = (bench.tsg(), bench.channel());
    bind_space(&space, &channel).unwrap();
    bind_tsg(&tsg, &channel, 0).unwrap();
    let mut args = channel::SetupBind { num_gpfifo_entries: 16, ..channel::SetupBind::default() };
    channel::SETUP_BIND.send(&channel, &mut args).unwrap();
    object(&channel, 0xc7c0).unwrap();
    let submit = |file: &DoorFd| {
        let entries: [Gpfifo; 0] = [];
        let flags = SubmitFlags::FENCE_WAIT | SubmitFlags::SYNC_FENCE | SubmitFlags::FENCE_GET;
        let mut args = SubmitGpfifo {
            gpfifo: entries.as_ptr().expose_provenance() as u64,
            flags: flags.bits(),
            fence: channel::Fence { id: raw(file), value: 0 },
            ..SubmitGpfifo::default()
        };
        // SAFETY: there are no entries.
        unsafe { channel::SUBMIT_GPFIFO.send_pointing(&channel, &mut args) }?;
        Ok::<_, Errno>(adopt(&bench.door, args.fence.id.cast_signed()))
    };
    let (fence, foreign) = other(&bench);
    assert_eq!(submit(&foreign).unwrap_err(), Errno::INVAL);
    // Two syncpoints of other channels.
    let points: Vec<_> = [(); 2]
        .map(|()| {
            let chain = bench.chain();
            let mut args = GetUserSyncpoint::default();
            GET_USER_SYNCPOINT.send(&chain.channel, &mut args).unwrap();
            (chain, args.syncpoint_id)
        })
        .into();
    let files: Vec<_> = points.iter().map(|(_, id)| host1x_file(&bench, &node, *id, 1)).collect();
    let both = sync_file::merge(&files[0], &files[1]).unwrap();
    let done = submit(&both).unwrap();
    fence.signal(Ok(()));
    let free = submit(&foreign).unwrap();
    assert!(!is_readable(&done) && !is_readable(&free), "the second is behind the first");
    // The end of a channel signals its syncpoint.
    let mut points = points.into_iter();
    drop(points.next());
    std::thread::sleep(Duration::from_millis(20));
    assert!(!is_readable(&done), "one of two");
    drop(points.next());
    wait_until("the work", || is_readable(&done) && is_readable(&free));
}

#[test]
fn dma_bufs_have_fences_since_kernel_6() {
    for bench in [Bench::new(), served::bench()] {
        let heap = DoorFd::open(&bench.door, paths::DMA_HEAP_SYSTEM, FLAGS).unwrap();
        for buffer in [bench.buffer(4096), dma_heap::allocate(&heap, 4096, true).unwrap()] {
            let refused = dma_buf::export_sync_file(&buffer, SyncFlags::READ).unwrap_err();
            assert_eq!(refused, Errno::NOTTY, "kernel 5.15");
        }
    }
    let bench = Bench::with(Config::default().with_release(Release::R39_2));
    let heap = DoorFd::open(&bench.door, paths::DMA_HEAP_SYSTEM, FLAGS).unwrap();
    let node = DoorFd::open(&bench.door, paths::HOST1X_FENCE, FLAGS).unwrap();
    let (read, write) = (SyncFlags::READ, SyncFlags::WRITE);
    for buffer in [bench.buffer(4096), dma_heap::allocate(&heap, 4096, true).unwrap()] {
        let export = |access| dma_buf::export_sync_file(&buffer, access);
        assert!(is_readable(&export(write).unwrap()), "no access is pending");
        assert_eq!(extract(&node, &export(read).unwrap()), Ok((0, (0, 0))));
        for access in [SyncFlags::empty(), SyncFlags::END, read | SyncFlags::END] {
            assert_eq!(export(access).unwrap_err(), Errno::INVAL);
        }
        let (reader, file) = other(&bench);
        let borrowed = |file: &DoorFd| {
            // SAFETY: the descriptor is open until the end of the test.
            unsafe { std::os::fd::BorrowedFd::borrow_raw(file.raw()) }
        };
        assert_eq!(dma_buf::import_sync_file(&buffer, write, borrowed(&node)), Err(Errno::INVAL));
        dma_buf::import_sync_file(&buffer, read, borrowed(&file)).unwrap();
        assert!(is_readable(&export(read).unwrap()), "a read does not wait for a read");
        assert!(!is_readable(&export(write).unwrap()));
        let (writer, file) = other(&bench);
        dma_buf::import_sync_file(&buffer, write, borrowed(&file)).unwrap();
        let (after_write, after_all) = (export(read).unwrap(), export(read | write).unwrap());
        writer.signal(Ok(()));
        assert!(is_readable(&after_write) && !is_readable(&after_all));
        reader.signal(Ok(()));
        assert!(is_readable(&after_all));
    }
}
