//! Processes with descriptors of their own: the model answers opens and requests, the host everything else.
//!
//! The process of these tests plays both sides: its thread is the caller, and its descriptors are the caller's.

use core::ffi::{CStr, c_void};
use core::ptr::NonNull;
use core::sync::atomic::Ordering;
use core::time::Duration;
use std::collections::BTreeSet;
use std::os::fd::{AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::sync::{Arc, Mutex};

use crate::support::*;
use kernel_door::{Door, DoorFd, Errno, Events, LinuxDoor, MapRequest, OpenFlags, Protection};
use nvgpu_sys::channel::{self, GET_USER_SYNCPOINT, GetUserSyncpoint, Wait};
use nvgpu_sys::host1x::{self, CreateFence, CreatePollfd, TriggerPollfd};
use nvgpu_sys::nvmap::{self, CacheOp, CreateHandleFromVa, DuplicateHandle, HandleFlags};
use nvgpu_sys::{ctrl, paths, tsg};
use orin_sim::caller::{CallerFile, CallerMapping, parse_mapping};
use orin_sim::{Caller, CallerMemory, Config, LiveCounts, NodeKind, SoftwareOrin};
use rustix::fs::{Mode, OFlags};

/// This thread as a caller: the addresses that it has mapped. The model's mappings of the same files do not count.
#[derive(Debug, Default)]
struct Myself(Mutex<BTreeSet<u64>>);

/// The memory of this process as a file.
fn memory() -> std::fs::File {
    std::fs::File::options().read(true).write(true).open("/proc/self/mem").unwrap()
}

impl CallerMemory for Myself {
    fn read(&self, address: u64, buffer: &mut [u8]) -> Result<(), Errno> {
        use std::os::unix::fs::FileExt;
        memory().read_exact_at(buffer, address).map_err(|_| Errno::FAULT)
    }

    fn write(&self, address: u64, bytes: &[u8]) -> usize {
        use std::os::unix::fs::FileExt;
        bytes.len() - memory().write_at(bytes, address).unwrap_or(0)
    }
}

impl Caller for Myself {
    fn install(&self, file: BorrowedFd<'_>, _close_on_exec: bool) -> Result<RawFd, Errno> {
        rustix::io::fcntl_dupfd_cloexec(file, 0).map(IntoRawFd::into_raw_fd)
    }

    fn file(&self, number: RawFd) -> Result<CallerFile, Errno> {
        let stat = rustix::fs::stat(format!("/proc/self/fd/{number}")).map_err(|_| Errno::BADF)?;
        Ok(CallerFile { device: stat.st_dev, inode: stat.st_ino })
    }

    fn open(&self, number: RawFd) -> Result<OwnedFd, Errno> {
        self.file(number)?;
        // SAFETY: the number is open.
        rustix::io::fcntl_dupfd_cloexec(unsafe { BorrowedFd::borrow_raw(number) }, 0)
    }

    fn is_writable(&self, number: RawFd) -> bool {
        // SAFETY: the borrow ends with the call.
        let flags = rustix::fs::fcntl_getfl(unsafe { BorrowedFd::borrow_raw(number) });
        flags.is_ok_and(|flags| flags.intersects(OFlags::RDWR))
    }

    fn mappings(&self) -> Vec<CallerMapping> {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let own = self.0.lock().unwrap();
        maps.lines().filter_map(parse_mapping).filter(|mapping| own.contains(&mapping.start)).collect()
    }

    fn process_id(&self) -> u32 {
        4321
    }

    fn name(&self) -> String {
        "a caller".to_owned()
    }
}

/// The calls that a supervisor passes on, and those that it leaves to the host.
#[derive(Debug)]
struct Supervised(SoftwareOrin, Myself);

// SAFETY: mappings and everything else that is not the model's come from the host.
unsafe impl Door for Supervised {
    fn name(&self) -> &'static str {
        "supervised"
    }

    fn open(&self, path: &CStr, flags: OpenFlags) -> Result<RawFd, Errno> {
        self.0.served(&self.1).open(path, flags)
    }

    unsafe fn ioctl(&self, fd: RawFd, request: u32, argument: *mut c_void) -> Result<i32, Errno> {
        self.0.served(&self.1).ioctl(fd, request, argument.expose_provenance() as u64)
    }

    unsafe fn mmap(&self, request: &MapRequest) -> Result<NonNull<u8>, Errno> {
        self.0.served(&self.1).approve_mmap(request)?;
        // SAFETY: passed on.
        let pointer = unsafe { LinuxDoor.mmap(request) }?;
        self.1.0.lock().unwrap().insert(pointer.as_ptr().expose_provenance() as u64);
        Ok(pointer)
    }

    unsafe fn munmap(&self, pointer: NonNull<u8>, len: usize) -> Result<(), Errno> {
        self.1.0.lock().unwrap().remove(&(pointer.as_ptr().expose_provenance() as u64));
        // SAFETY: passed on.
        unsafe { LinuxDoor.munmap(pointer, len) }
    }

    unsafe fn read(&self, fd: RawFd, buffer: &mut [u8]) -> Result<usize, Errno> {
        // SAFETY: passed on.
        unsafe { LinuxDoor.read(fd, buffer) }
    }

    unsafe fn seek_end(&self, fd: RawFd) -> Result<u64, Errno> {
        // SAFETY: passed on.
        let host = || unsafe { LinuxDoor.seek_end(fd) };
        self.0.served(&self.1).seek_end(fd).unwrap_or_else(host)
    }

    unsafe fn poll(&self, fd: RawFd, wanted: Events, timeout: Duration) -> Result<Events, Errno> {
        // SAFETY: passed on.
        unsafe { LinuxDoor.poll(fd, wanted, timeout) }
    }

    unsafe fn close(&self, fd: RawFd) -> Result<(), Errno> {
        // SAFETY: passed on.
        unsafe { LinuxDoor.close(fd) }
    }
}

/// A board whose only program is supervised.
pub(crate) fn bench() -> Bench {
    bench_of(&SoftwareOrin::new(Config::default()).unwrap())
}

fn bench_of(board: &SoftwareOrin) -> Bench {
    let orin = board.process();
    let door: Arc<dyn Door> = Arc::new(Supervised(orin.clone(), Myself::default()));
    let nvmap = DoorFd::open(&door, paths::NVMAP, FLAGS).unwrap();
    let ctrl = DoorFd::open(&door, paths::CTRL, FLAGS).unwrap();
    Bench { release: Release::R36_4_3, orin, door, nvmap, ctrl }
}

fn is_readable(fd: &DoorFd, timeout: Duration) -> bool {
    fd.poll(Events::IN, timeout).unwrap().contains(Events::IN)
}

/// Long enough for every report.
const LONG: Duration = Duration::from_secs(20);

#[test]
fn work_runs_and_native_closes_release_everything() {
    let bench = bench();
    let chain = bench.chain();
    let doorbell = bench.doorbell();
    let (ring, userd) = (cpu(&chain.ring, 8192), cpu(&chain.userd, 4096));
    let buffer = bench.buffer(4096);
    let (memory, va) = (cpu(&buffer, 4096), map(&chain.space, &buffer).unwrap());
    let mut event = tsg::EventIdCtrl {
        cmd: tsg::EVENT_CMD_ENABLE,
        event_id: tsg::EVENT_BLOCKING_SYNC,
        ..tsg::EventIdCtrl::default()
    };
    tsg::EVENT_ID_CTRL.send(&chain.tsg, &mut event).unwrap();
    let event = adopt(&bench.door, event.event_fd);
    assert!(!is_readable(&event, Duration::ZERO));
    // A release of 42 and an interrupt.
    let words = [0x2005_0017, (va + 0x800) as u32, (va >> 32) as u32, 42, 0, 1, 0x2001_0008, 0];
    for (at, value) in words.into_iter().enumerate() {
        word(&memory, 4 * at).store(value, Ordering::Relaxed);
    }
    submit(&ring, &userd, &doorbell, chain.token, va, 8);
    wait_until("the semaphore", || word(&memory, 0x800).load(Ordering::Acquire) == 42);
    assert!(is_readable(&event, LONG), "the host reports the event");

    let counts = bench.orin.live();
    assert_eq!((counts.channels, counts.tsgs, counts.address_spaces), (1, 1, 1));
    drop((chain, buffer, memory, ring, userd, event));
    assert_eq!(bench.orin.live(), LiveCounts { descriptors: 2, ..LiveCounts::default() });
    // The mapping of the doorbell keeps the open of its node, as on a board.
    let Bench { orin, nvmap, ctrl, .. } = bench;
    drop((nvmap, ctrl));
    assert_eq!(orin.live().descriptors, 1);
    drop(doorbell);
    assert_eq!(orin.live(), LiveCounts::default());
}

#[test]
fn a_close_is_noticed_before_the_next_request() {
    let bench = bench();
    let first = bench.chain().token;
    let second = bench.chain().token;
    assert_eq!(first, second, "the number of a closed channel is reused at once");
    // A duplicate keeps the channel.
    let chain = bench.chain();
    // SAFETY: the descriptor is open.
    let copy = rustix::io::dup(unsafe { BorrowedFd::borrow_raw(chain.channel.raw()) }).unwrap();
    drop(chain);
    assert_ne!(bench.chain().token, first);
    let copy = adopt(&bench.door, copy.into_raw_fd());
    assert!(!timed_out(&copy), "requests work through the duplicate");
    drop(copy);
    assert_eq!(bench.orin.live().channels, 0);
}

#[test]
fn handles_belong_to_the_process_and_end_with_its_last_node() {
    let board = SoftwareOrin::new(Config::default()).unwrap();
    let (first, second) = (bench_of(&board), bench_of(&board));
    let handle = first.create(4096);
    first.alloc(handle);
    let mut export = nvmap::CreateHandle { size_or_fd: 0, handle };
    assert_eq!(
        nvmap::GET_FD.send(&second.nvmap, &mut export),
        Err(Errno::BADF),
        "a number of another process"
    );
    let buffer = first.export(handle);
    let mut import = nvmap::CreateHandle { size_or_fd: raw(&buffer), handle: 0 };
    nvmap::FROM_FD.send(&second.nvmap, &mut import).unwrap();
    drop(first);
    assert_eq!(board.live().handles, 1);
    drop((second, buffer));
    assert_eq!(board.live(), LiveCounts::default());
}

#[test]
fn mappings_follow_the_rules_of_the_board() {
    let bench = bench();
    let both = Protection::READ | Protection::WRITE;
    let handle = bench.create(8192);
    let empty = bench.export(handle);
    assert_eq!(empty.map(0, 4096, both).err(), Some(Errno::PERM), "no memory yet");
    bench.alloc(handle);
    assert!(empty.map(4096, 4096, both).is_ok());
    assert_eq!(empty.map(4096, 8192, both).err(), Some(Errno::INVAL), "behind the end");
    // The read-only twin has the same inode.
    let mut twin =
        DuplicateHandle { handle, access_flags: HandleFlags::READ_ONLY.bits(), ..DuplicateHandle::default() };
    nvmap::DUP_HANDLE.send(&bench.nvmap, &mut twin).unwrap();
    let read_only = bench.export(twin.dup_handle);
    assert_eq!(read_only.map(0, 4096, both).err(), Some(Errno::ACCESS));
    assert!(read_only.map(0, 4096, Protection::READ).is_ok() && empty.map(0, 4096, both).is_ok());
    assert_eq!(bench.nvmap.map(0, 4096, both).err(), Some(Errno::PERM));
    // One mapping of the doorbell per open; munmap makes room.
    let doorbell = bench.doorbell();
    assert_eq!(bench.ctrl.map(0, 4096, both).err(), Some(Errno::BUSY));
    drop(doorbell);
    assert_eq!(bench.ctrl.map(0, ctrl::USERMODE_PAGE_SIZE + 4096, both).err(), Some(Errno::INVAL));
    drop(bench.doorbell());
    // Any other file is the host's.
    let file = MapRequest { fd: memory().as_raw_fd(), offset: 0, len: 4096, protection: both, place: None };
    assert_eq!(bench.orin.served(&Myself::default()).approve_mmap(&file), Ok(false));
    // Cache maintenance looks for the address in the mappings of the caller.
    let view = cpu(&empty, 8192);
    let start = view.pointer().as_ptr().expose_provenance() as u64;
    let mut flush = CacheOp { addr: start, handle, len: 8192, op: nvmap::CACHE_OP_WB, ..CacheOp::default() };
    // SAFETY: the request only checks the address.
    let send = |flush: &mut CacheOp| unsafe { nvmap::CACHE.send_pointing(&bench.nvmap, flush) };
    assert_eq!(send(&mut flush), Ok(0));
    flush.addr = core::ptr::from_ref(&flush).expose_provenance() as u64;
    assert_eq!(send(&mut flush), Err(Errno::ADDRNOTAVAIL));
}

#[test]
fn fences_are_readable_for_the_host() {
    let bench = bench();
    let chain = bench.chain();
    let mut own = GetUserSyncpoint::default();
    GET_USER_SYNCPOINT.send(&chain.channel, &mut own).unwrap();
    let node = DoorFd::open(&bench.door, paths::HOST1X_FENCE, FLAGS).unwrap();
    let mut fence =
        CreateFence { id: own.syncpoint_id, threshold: own.syncpoint_max + 1, ..CreateFence::default() };
    host1x::CREATE_FENCE.send(&node, &mut fence).unwrap();
    let fence = adopt(&bench.door, fence.fence_fd);
    let mut set = CreatePollfd::default();
    host1x::CREATE_POLLFD.send(&node, &mut set).unwrap();
    let set = adopt(&bench.door, set.fd);
    let arm = |threshold| {
        let mut args = TriggerPollfd { fd: set.raw(), id: own.syncpoint_id, threshold, reserved: 0 };
        host1x::TRIGGER_POLLFD.send(&node, &mut args).unwrap();
    };
    arm(own.syncpoint_max + 1);
    assert!(!is_readable(&fence, Duration::ZERO) && !is_readable(&set, Duration::ZERO));
    // The end of the channel advances its syncpoint.
    drop(chain);
    assert_eq!(bench.orin.live().channels, 0);
    assert!(is_readable(&fence, LONG) && is_readable(&set, LONG));
    assert_eq!(nvgpu_sys::sync_file::status(&fence), Ok(Some(Ok(()))));
    // Armed again, it reports the next fence only.
    arm(own.syncpoint_max + 100_000);
    assert!(!is_readable(&set, Duration::from_millis(50)));
}

#[test]
fn the_kernel_log_is_read_record_by_record_and_names_the_caller() {
    let bench = bench();
    let open = |flags| DoorFd::open(&bench.door, paths::KMSG, flags).unwrap();
    let log = open(OpenFlags::NON_BLOCKING);
    // An allocation without a tag is a warning about the process.
    let handle = bench.create(4096);
    bench.try_alloc(handle, nvmap::Heaps::IOVMM.bits(), nvmap::CACHE_WRITE_COMBINED).unwrap();
    assert!(is_readable(&log, LONG));
    let mut record = [0; 512];
    let len = log.read(&mut record).unwrap();
    let text = String::from_utf8_lossy(&record[..len]).into_owned();
    assert!(text.ends_with('\n') && text.contains("4321") && text.contains("a caller"), "{text}");
    assert_eq!(log.read(&mut record), Err(Errno::AGAIN));
    // A second reader begins with the oldest record, unless it seeks.
    let (all, new) = (open(OpenFlags::empty()), open(OpenFlags::NON_BLOCKING));
    assert!(is_readable(&new, LONG));
    new.seek_end().unwrap();
    assert_eq!(new.read(&mut record), Err(Errno::AGAIN));
    assert_eq!(all.read(&mut record), Ok(len));
}

#[test]
fn a_wait_of_a_channel_ends_at_its_limit() {
    let bench = bench();
    let chain = bench.chain();
    let buffer = bench.buffer(4096);
    let mut wait = Wait { kind: channel::WAIT_SEMAPHORE, timeout: 30, payload: 1, ..Wait::default() };
    wait.dmabuf_fd = raw(&buffer);
    assert_eq!(channel::WAIT.send(&chain.channel, &mut wait), Err(Errno::TIMEDOUT));
    word(&cpu(&buffer, 4096), 0).store(1, Ordering::Release);
    assert_eq!(channel::WAIT.send(&chain.channel, &mut wait), Ok(0));
}

#[test]
fn text_files_are_read_and_memory_of_the_process_is_not_imported() {
    let bench = bench();
    let path = paths::DEVFREQ_MAX_FREQ;
    let file = DoorFd::open(&bench.door, path, OpenFlags::CLOSE_ON_EXEC).unwrap();
    let mut text = [0; 32];
    let len = file.read(&mut text).unwrap();
    assert_eq!(&text[..len], b"1300000000\n");
    assert_eq!(bench.orin.node_kind(path), Some(NodeKind::Text { bytes: len }));
    assert_eq!(DoorFd::open(&bench.door, path, FLAGS).err(), Some(Errno::ACCESS));
    drop(file);
    let page = vec![0_u8; 8192];
    let va = (page.as_ptr().expose_provenance() as u64).next_multiple_of(4096);
    let mut import = CreateHandleFromVa { va, size: 4096, flags: TAG, size_or_handle: 0 };
    // SAFETY: the request is refused.
    assert_eq!(unsafe { nvmap::FROM_VA.send_pointing(&bench.nvmap, &mut import) }, Err(Errno::INVAL));
    let log = bench.orin.kernel_log();
    assert!(log.iter().any(|line| line.contains("orin-sim: FROM_VA of")), "{log:?}");
}

#[test]
fn a_dma_buf_cannot_be_resized_by_the_program() {
    let bench = bench();
    let buffer = bench.buffer(8192);
    let again =
        rustix::fs::open(format!("/proc/self/fd/{}", buffer.raw()), OFlags::RDWR, Mode::empty()).unwrap();
    assert_eq!(rustix::fs::ftruncate(&again, 0), Err(Errno::PERM));
    // An open file that the model does not know does not keep the buffer.
    drop(buffer);
    assert_eq!(bench.orin.live().descriptors, 2);
}

#[test]
fn paths_of_the_board_have_a_kind() {
    let orin = SoftwareOrin::new(Config::default()).unwrap();
    let device = Some(NodeKind::Device { refused: false });
    for (path, kind) in [
        (c"/dev/nvmap", device),
        (c"/dev/nvgpu/igpu0/ctrl", device),
        (c"/dev/nvgpu/igpu0/as", device),
        (c"/dev/nvgpu/igpu0", Some(NodeKind::Folder)),
        (c"/dev/nvgpu", Some(NodeKind::Folder)),
        (c"/sys/class/devfreq/17000000.gpu", Some(NodeKind::Folder)),
        (c"/dev/nvgpu/igpu1", None),
        (c"/dev", None),
        (c"/", None),
        (c"", None),
    ] {
        assert_eq!(orin.node_kind(path), kind, "{path:?}");
    }
}
