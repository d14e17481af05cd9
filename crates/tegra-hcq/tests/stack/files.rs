//! Memory and fences that files stand for.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::Arc;
use std::time::Duration;

use kernel_door::{Door, Errno, Events};
use nvgpu_channel::{Error as ChannelError, FenceNode, Gpu};
use orin_sim::{Call, CameraFault, CameraOptions, Failure, ForeignFence};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::fs::MemfdFlags;
use tegra_hcq::{Device, Error, FaultKind, FileAccess, MemoryUse, RangeError, SharedBuffer, Work, args};
use test_support::{Bench, TIMEOUT, assert_live};

/// Elements: more than a page, and no whole number of pages.
const COUNT: u32 = 3000;
/// A wait that is meant to time out.
const SHORT: Duration = Duration::from_millis(30);

/// A driver's own error.
fn driver_error<E: std::error::Error + 'static>(error: &Error) -> Option<&E> {
    match error {
        Error::Driver(error) => error.driver_error(),
        _ => None,
    }
}

fn increment(bench: &mut Bench, buffer: &mut SharedBuffer<u32>) {
    // SAFETY: the kernel adds 1 to the buffer's elements.
    unsafe { bench.run("increment", COUNT.div_ceil(256), 256, &args![buffer, COUNT]) };
}

/// Whether a file is readable within `timeout`, for a poll through the bench's kernel and for one of the host.
fn signals(bench: &Bench, file: &OwnedFd, timeout: Duration) -> bool {
    // SAFETY: the caller owns the file.
    let seen = !unsafe { bench.orin.poll(file.as_raw_fd(), Events::IN, timeout) }.unwrap().is_empty();
    let mut polled = [PollFd::new(file, PollFlags::IN)];
    let timeout = Timespec::try_from(timeout).unwrap();
    assert_eq!(rustix::event::poll(&mut polled, Some(&timeout)).unwrap() > 0, seen);
    seen
}

#[test]
fn an_exported_buffer_is_the_same_memory_for_all_that_import_it() {
    let mut bench = Bench::new("basics");
    let own = bench.device.alloc_shared::<u32>(COUNT as usize).unwrap().named("result");
    assert_eq!((own.len(), own.file_bytes()), (COUNT as usize, 12288));
    assert_eq!(own.to_vec().unwrap(), vec![0; COUNT as usize], "it is zeroed");
    let (file, read_only) = (own.export().unwrap(), own.export_read_only().unwrap());

    // The same device maps it once.
    let mut again = bench.device.import_file::<u32>(&file, ..COUNT as usize * 4).unwrap();
    assert_eq!(again.gpu_va(), own.gpu_va());
    drop(own);
    increment(&mut bench, &mut again);
    let other = bench.device.import_file_read_only::<u32>(&read_only, ..).unwrap();
    assert_ne!(other.gpu_va(), again.gpu_va(), "another mapping, with other rights");
    assert_eq!(other.slice(..COUNT as usize).unwrap().to_vec().unwrap(), vec![1; COUNT as usize]);
    drop((file, read_only));
    again.slice_mut(7..9).unwrap().copy_from_slice(&[70, 80]).unwrap();
    assert_eq!(other.slice(6..10).unwrap().to_vec().unwrap(), [1, 70, 80, 1]);
    let access = again.cpu_access().unwrap();
    assert_eq!((access.len(), access.is_empty()), (COUNT as usize, false));
    // SAFETY: the element is inside the buffer.
    unsafe { access.pointer().add(8).write_volatile(90) };
    drop(access);
    assert_eq!(other.slice(8..9).unwrap().to_vec().unwrap(), [90]);
}

#[test]
fn ranges_are_bytes_of_the_file_and_any_offset_that_the_elements_have() {
    let bench = Bench::new("basics");
    let mut all = bench.device.alloc_shared::<u8>(8192).unwrap();
    all.copy_from_slice(&(0..8192).map(|at| at as u8).collect::<Vec<_>>()).unwrap();
    let file = all.export().unwrap();
    let part = bench.device.import_file::<[u8; 3]>(&file, 303..312).unwrap();
    assert_eq!(part.to_vec().unwrap(), [[47, 48, 49], [50, 51, 52], [53, 54, 55]]);
    assert_eq!((part.gpu_va(), part.byte_len()), (all.gpu_va() + 303, 9));
    for (refused, text) in [
        (bench.device.import_file::<u32>(&file, 2..10).unwrap_err(), "2"),
        (bench.device.import_file::<u32>(&file, 4..10).unwrap_err(), "6"),
        (bench.device.import_file::<u32>(&file, 8188..8196).unwrap_err(), "8196"),
    ] {
        assert!(matches!(refused, Error::Range(_)) && refused.to_string().contains(text), "{refused}");
    }
    // SAFETY: nothing else writes the memory.
    let whole = unsafe { all.into_buffer().unwrap() };
    whole.export(FileAccess::ReadOnly).unwrap();
    // SAFETY: as above.
    let error = unsafe { part.into_buffer() }.unwrap_err();
    assert!(matches!(error, Error::Range(_)), "{error}");
    let plain = bench.device.alloc::<u32>(4).unwrap().export(FileAccess::ReadWrite).unwrap_err();
    assert!(plain.to_string().contains("not shared"), "{plain}");
    let slab = bench.device.alloc_for::<u32>(4, MemoryUse::Shared).unwrap_err();
    assert!(slab.to_string().contains("alloc_shared"), "{slab}");
}

#[test]
fn what_is_no_memory_is_refused_with_the_reason() {
    let bench = Bench::new("basics");
    let import = |file: &dyn AsFd| bench.device.import_file::<u8>(file.as_fd(), ..).unwrap_err();
    let (reader, _writer) = rustix::pipe::pipe().unwrap();
    let null = std::fs::File::open("/dev/null").unwrap();
    let odd = rustix::fs::memfd_create("odd", MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&odd, 100).unwrap();
    let plain = rustix::fs::memfd_create("plain", MemfdFlags::CLOEXEC).unwrap();
    rustix::fs::ftruncate(&plain, 4096).unwrap();
    for file in [&reader as &dyn AsFd, &null, &odd, &plain] {
        let error = import(file);
        let is_no_dma_buf = matches!(driver_error(&error), Some(nvmap::Error::NotDmaBuf { .. }));
        assert!(is_no_dma_buf, "{error}");
    }
    let shared = bench.device.alloc_shared::<u8>(1).unwrap();
    let read_only = shared.export_read_only().unwrap();
    let error = import(&read_only);
    assert!(
        matches!(driver_error(&error), Some(nvmap::Error::ReadOnly { .. })),
        "{error}: a read-only file is not imported for writing"
    );
}

#[test]
fn memory_for_reading_is_not_written() {
    let mut bench = Bench::new("basics");
    let shared = bench.device.alloc_shared::<u32>(COUNT as usize).unwrap();
    let theirs = bench.device.import_file_read_only::<u32>(shared.export().unwrap(), ..).unwrap();
    // SAFETY: nothing else writes the memory, and there is no view.
    let mut copy = unsafe {
        bench
            .device
            .import_file_read_only::<u32>(shared.export().unwrap(), ..)
            .unwrap()
            .into_buffer()
            .unwrap()
    };
    let refused = copy.slice_mut(..2).unwrap().copy_from_slice(&[1, 2]).unwrap_err();
    assert!(matches!(refused, Error::Range(RangeError::ReadOnly { .. })), "{refused}");
    // SAFETY: no work uses the memory.
    let refused = unsafe { bench.device.write_raw(&[0; 4], theirs.gpu_va()) }.unwrap_err();
    assert!(refused.to_string().contains("reading only"), "{refused}");
    let kernel = bench.program.kernel("increment").unwrap();
    // SAFETY: the store is refused by the MMU.
    unsafe { bench.queue.launch(&kernel, 1, 32, &args![&theirs, COUNT]).unwrap() };
    let error = bench.queue.wait(TIMEOUT).unwrap_err();
    let Error::Fault(fault) = &error else { panic!("{error}") };
    assert!(fault.kind == FaultKind::Mmu, "{fault}");
    assert_eq!(shared.to_vec().unwrap(), vec![0; COUNT as usize]);
}

#[test]
fn a_thousand_imports_leave_nothing() {
    let bench = Bench::new("basics");
    let shared = bench.device.alloc_shared::<u8>(1 << 20).unwrap();
    let file = shared.export().unwrap();
    let import = |device: &Device| drop(device.import_file::<u8>(&file, ..).unwrap());
    import(&bench.device);
    let (before, reserved) = (bench.orin.live(), bench.device.memory_usage());
    for _ in 0..1000 {
        import(&bench.device);
        drop(bench.device.import_file_read_only::<u8>(shared.export_read_only().unwrap(), ..).unwrap());
        drop(bench.device.alloc_shared::<u8>(4096).unwrap());
    }
    assert_live(&bench.orin, before);
    assert_eq!(bench.device.memory_usage(), reserved);
}

/// A camera's frames reach a kernel without a copy, and its buffers go back with a fence.
#[test]
fn frames_of_a_camera_are_read_where_they_are() {
    let mut bench = Bench::new("basics");
    let interval = Duration::from_millis(20);
    let options =
        CameraOptions { width: 64, height: 32, interval, readout: interval / 2, ..CameraOptions::default() };
    let camera = bench.orin.camera(options.clone()).unwrap();
    let bytes = camera.layout().bytes as usize;
    let import = |at| bench.device.import_file_read_only::<u8>(camera.buffer(at).unwrap(), ..bytes).unwrap();
    let frames: Vec<_> = (0..camera.buffers()).map(import).collect();
    let mut copy = bench.device.alloc::<u8>(bytes).unwrap();
    bench.queue.profile(true).unwrap();
    for _ in 0..8 {
        let frame = camera.next_frame(TIMEOUT).unwrap();
        // The frame may not be complete yet: the GPU waits, then copies once, for the comparison.
        bench.queue.wait_file(frame.fence.as_ref().unwrap()).unwrap();
        bench.queue.copy(&frames[frame.index], &mut copy).unwrap();
        let read = bench.queue.submit_to_file().unwrap();
        camera.queue(frame.index, Some(read.as_fd())).unwrap();
        bench.queue.wait(TIMEOUT).unwrap();
        assert!(
            copy.to_vec().unwrap() == options.content(frame.sequence).unwrap(),
            "frame {}",
            frame.sequence
        );
    }
    let copied = |span: &tegra_hcq::Span| if let Work::Copy { bytes } = span.work { bytes } else { 0 };
    let moved: u64 = bench.queue.take_profile().unwrap().spans.iter().map(copied).sum();
    assert_eq!(moved, 8 * bytes as u64, "nothing but the comparison copies");
}

#[test]
fn faults_of_a_camera_are_errors_of_the_frame() {
    let mut bench = Bench::new("basics");
    let faults = vec![CameraFault::ShortBuffer(1), CameraFault::NeverComplete(2)];
    let camera = bench.orin.camera(CameraOptions { faults, ..CameraOptions::default() }).unwrap();
    let bytes = camera.layout().bytes as usize;
    let short = bench.device.import_file_read_only::<u8>(camera.buffer(1).unwrap(), ..bytes).unwrap_err();
    assert!(matches!(short, Error::Range(_)), "{short}");
    let stuck = loop {
        let frame = camera.next_frame(TIMEOUT).unwrap();
        if frame.sequence == 2 {
            break frame;
        }
    };
    bench.queue.wait_file(stuck.fence.unwrap()).unwrap();
    let late = bench.queue.wait(SHORT).unwrap_err().to_string();
    assert!(late.contains("whose producer may not have signalled"), "{late}");
    drop(camera);
    bench.queue.wait(TIMEOUT).unwrap();
}

/// A sync-file of a fence, which the process owns alone.
fn file_of(bench: &Bench, fence: &ForeignFence) -> OwnedFd {
    let number = fence.file(&bench.orin).unwrap();
    // SAFETY: the number is new, and closed after it was duplicated.
    unsafe {
        let copy = std::os::fd::BorrowedFd::borrow_raw(number).try_clone_to_owned().unwrap();
        bench.orin.close(number).unwrap();
        copy
    }
}

/// What other drivers refuse, and fences that are not the GPU's to wait for.
#[test]
fn refusals_of_other_drivers_say_what_to_do() {
    let mut bench = Bench::new("basics");
    let camera = bench.orin.camera(CameraOptions::default()).unwrap();
    for (call, errno, line) in [
        (Call::Attach, Errno::BUSY, "Failed to attach dma_buf (err = -16)!"),
        (Call::MapAttachment, Errno::NOMEM, "Failed to map attachment (err = -12)!"),
    ] {
        bench.orin.fail(Failure { call, nth: 1, errno });
        let error = bench.device.import_file_read_only::<u8>(camera.buffer(0).unwrap(), ..).unwrap_err();
        assert!(error.to_string().contains("NVGPU_AS_IOCTL_MAP_BUFFER_EX"), "{error}");
        assert!(bench.orin.kernel_log().iter().any(|logged| logged.contains(line)), "{line}");
    }
    bench.device.import_file_read_only::<u8>(camera.buffer(0).unwrap(), ..).unwrap();

    let foreign = bench.orin.foreign_fence("other");
    let file = file_of(&bench, &foreign);
    let error = bench.queue.wait_file(&file).unwrap_err();
    assert!(matches!(driver_error(&error), Some(ChannelError::ForeignFence)), "{error}");
    assert!(!signals(&bench, &file, SHORT));
    foreign.signal(Ok(()));
    assert!(signals(&bench, &file, TIMEOUT));
    bench.queue.wait_file(&file).unwrap();
    let failed = bench.orin.foreign_fence("other");
    let file = file_of(&bench, &failed);
    failed.signal(Err(Errno::IO));
    let error = bench.queue.wait_file(&file).unwrap_err();
    assert!(matches!(driver_error(&error), Some(ChannelError::FailedFence(Errno::IO))), "{error}");
}

#[test]
fn memory_that_is_still_in_use_is_imported_again_without_a_call() {
    let mut bench = Bench::new("basics");
    let camera = bench.orin.camera(CameraOptions::default()).unwrap();
    let import =
        |bench: &Bench| bench.device.import_file_read_only::<u8>(camera.buffer(0).unwrap(), ..64).unwrap();
    let (gate, mut copy) = (bench.device.signal(0).unwrap(), bench.device.alloc::<u8>(64).unwrap());
    let frame = import(&bench);
    bench.queue.wait_signal(&gate, 1).unwrap();
    bench.queue.copy(&frame, &mut copy).unwrap();
    let fence = bench.queue.submit().unwrap();
    let va = frame.gpu_va();
    drop(frame);
    let calls = bench.probe.calls();
    let again = import(&bench);
    assert_eq!((again.gpu_va(), bench.probe.calls()), (va, calls));
    gate.set(1);
    fence.wait(TIMEOUT).unwrap();
    bench.device.trim();
    bench.queue.copy(&again, &mut copy).unwrap();
    bench.queue.wait(TIMEOUT).unwrap();
}

#[test]
fn queues_wait_for_each_other_through_files() {
    let mut bench = Bench::new("basics");
    let mut second = bench.device.queue().unwrap();
    let gate = bench.device.signal(0).unwrap();
    let mut frame = bench.device.alloc_shared::<u32>(COUNT as usize).unwrap();

    bench.queue.wait_signal(&gate, 1).unwrap();
    bench.queue.fill(&mut frame, 5).unwrap();
    let ready = bench.queue.submit_to_file().unwrap();
    second.wait_file(&ready).unwrap();
    let mut copy = bench.device.alloc::<u32>(COUNT as usize).unwrap();
    second.copy(&frame, &mut copy).unwrap();
    let done = second.submit_to_file().unwrap();
    assert!(!signals(&bench, &ready, SHORT) && !signals(&bench, &done, SHORT));
    gate.set(1);
    assert!(signals(&bench, &done, TIMEOUT) && signals(&bench, &ready, TIMEOUT));
    assert_eq!(copy.to_vec().unwrap(), vec![5; COUNT as usize]);
    // Each file is of one point; those of the past wait for nothing.
    for _ in 0..100 {
        let file = bench.queue.submit_to_file().unwrap();
        second.wait_file(&file).unwrap();
        second.wait_file(&ready).unwrap();
        assert!(signals(&bench, &file, TIMEOUT));
    }
    second.wait(TIMEOUT).unwrap();
}

#[test]
fn files_that_are_no_fence_and_fences_that_never_signal_say_so() {
    let mut bench = Bench::new("basics");
    let shared = bench.device.alloc_shared::<u8>(1).unwrap();
    let error = bench.queue.wait_file(shared.export().unwrap()).unwrap_err();
    assert!(matches!(driver_error(&error), Some(ChannelError::NotASyncFile)), "{error}");

    let door: Arc<dyn Door> = Arc::new(bench.orin.clone());
    let gpu = Gpu::open(&door).unwrap();
    let subcontext = gpu.tsg().unwrap().subcontext(&gpu.address_space().unwrap()).unwrap();
    let channel = subcontext.channel(gpu.characteristics().compute_class()).open().unwrap();
    let threshold = channel.user_syncpoint().unwrap().after(1);
    let fence = FenceNode::open(&door).unwrap().fence(threshold).unwrap();
    // SAFETY: the fence keeps the descriptor open.
    let file = unsafe { std::os::fd::BorrowedFd::borrow_raw(fence.fd().raw()) };
    bench.queue.wait_file(file).unwrap();
    let text = bench.queue.wait(SHORT).unwrap_err().to_string();
    let awaited = format!("value {} of syncpoint {}", threshold.value, threshold.id);
    assert!(text.contains(&awaited), "{text}");
    // A producer that ends, ends the wait: the kernel advances its syncpoints.
    drop(channel);
    bench.queue.wait(TIMEOUT).unwrap();
}

/// A file of lost work signals; that of the new channels counts anew.
#[test]
fn after_a_fault_files_are_of_the_new_channels() {
    let mut bench = Bench::new("basics");
    let before = bench.queue.submit_to_file().unwrap();
    assert!(signals(&bench, &before, TIMEOUT));
    let kernel = bench.program.kernel("increment").unwrap();
    // SAFETY: faults at an address without memory.
    unsafe { bench.queue.launch(&kernel, 1, 32, &args![0x10_0000_u64, 4_u32]).unwrap() };
    let lost = bench.queue.submit_to_file().unwrap();
    assert!(bench.queue.wait(TIMEOUT).is_err());
    assert!(signals(&bench, &lost, TIMEOUT), "waiters wake up");
    bench.device.recover().unwrap();
    let mut word = bench.device.alloc_shared::<u32>(1).unwrap();
    bench.queue.fill(&mut word, 3).unwrap();
    let file = bench.queue.submit_to_file().unwrap();
    assert!(signals(&bench, &file, TIMEOUT));
    assert_eq!(word.to_vec().unwrap(), [3]);
}
