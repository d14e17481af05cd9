//! Shared memory: several handles and descriptors.

use core::ffi::c_void;
use core::mem::MaybeUninit;
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::{AsFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;
use std::sync::{Arc, Mutex};

use kernel_door::forward::Forward;
use kernel_door::{Door, Errno, MapRequest, Protection};
use nvgpu_sys::nvmap as sys;
use nvmap::{Access, CacheMode, Error, Nvmap};
use orin_sim::{Config, LiveCounts, SoftwareOrin};
use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

fn open() -> (SoftwareOrin, Nvmap) {
    let orin = SoftwareOrin::new(Config::default()).unwrap();
    let door: Arc<dyn Door> = Arc::new(orin.clone());
    let nvmap = Nvmap::open(&door).unwrap();
    (orin, nvmap)
}

#[test]
fn an_import_is_another_handle_for_the_same_memory() {
    let (orin, nvmap) = open();
    let before = orin.live();
    let buffer = nvmap.buffer(8192).cache(CacheMode::WriteCombined).label("ring").allocate().unwrap();
    let import = nvmap.import_buffer(buffer.as_fd(), "ring again").unwrap();
    assert_ne!(buffer.handle(), import.handle());
    assert_ne!(buffer.dma_buf(), import.dma_buf());
    assert_eq!((import.size(), import.cache_mode()), (8192, CacheMode::WriteCombined));
    assert_eq!((import.label(), import.access()), ("ring again", Access::ReadWrite));
    let serial = |buffer: &nvmap::Buffer| buffer.as_dma_buf().parameters().unwrap().serial;
    assert_eq!(serial(&buffer), serial(&import));
    buffer.write_u32(4096, 7);
    assert_eq!(import.read_u32(4096), 7);
    // Either side may be dropped first.
    drop(buffer);
    import.write_u32(0, 8);
    assert_eq!(import.read_u32(0), 8);
    drop(import);
    assert_eq!(orin.live(), before);
}

#[test]
fn only_dma_bufs_can_be_imported() {
    let (orin, nvmap) = open();
    let before = orin.live();
    let file = std::fs::File::open("/dev/null").unwrap();
    let error = nvmap.import(file.as_fd(), "null").unwrap_err();
    assert_eq!(error.errno(), Some(Errno::INVAL), "{error}");
    assert_eq!(orin.live(), before);
}

#[test]
fn a_read_only_duplicate_cannot_be_written_by_any_way() {
    let (orin, nvmap) = open();
    let before = orin.live();
    let buffer = nvmap.buffer(4096).label("weights").allocate().unwrap();
    buffer.write_u32(0, 5);
    let shared = buffer.as_dma_buf().duplicate(Access::ReadOnly).unwrap();
    assert_eq!(shared.access(), Access::ReadOnly);
    assert_eq!(shared.parameters().unwrap().access, Access::ReadOnly);
    assert!(matches!(shared.write(0, &[1]), Err(Error::ReadOnly { .. })));
    assert!(matches!(shared.map(0, 4096, Access::ReadWrite), Err(Error::ReadOnly { .. })));
    // The system rejects a writable mapping too: the descriptor is read-only.
    let door = nvmap.door();
    let request =
        MapRequest { fd: shared.raw_fd(), offset: 0, len: 4096, protection: Protection::all(), place: None };
    // SAFETY: the descriptor is `shared`'s.
    assert_eq!(unsafe { door.mmap(&request) }.unwrap_err(), Errno::ACCESS);
    assert_eq!(shared.duplicate(Access::ReadWrite).unwrap_err().errno(), Some(Errno::PERM));

    let reader = nvmap.import_buffer(shared.as_fd(), "weights").unwrap();
    assert_eq!((reader.access(), reader.read_u32(0)), (Access::ReadOnly, 5));
    assert!(matches!(reader.copy_from_slice(0, &[1_u32]), Err(Error::ReadOnly { .. })));
    assert!(matches!(reader.fill(0, 4, 1), Err(Error::ReadOnly { .. })));
    let view = reader.view::<u32>(0, 4).unwrap();
    assert!(matches!(view.fill(1), Err(Error::ReadOnly { .. })));
    assert!(matches!(view.copy_from_slice(0, &[1]), Err(Error::ReadOnly { .. })));
    assert!(reader.access() == Access::ReadOnly && view.get(0) == 5);
    // The owner still writes, and the reader sees it.
    buffer.write_u32(0, 6);
    assert_eq!(view.get(0), 6);
    drop((buffer, shared));
    assert_eq!(reader.read_u32(0), 6);
    drop(reader);
    assert_eq!(orin.live(), before);
}

#[test]
#[should_panic(expected = "is read-only")]
fn a_word_of_a_read_only_buffer_cannot_be_stored() {
    let (_orin, nvmap) = open();
    let buffer = nvmap.buffer(4096).allocate().unwrap();
    let shared = buffer.as_dma_buf().duplicate(Access::ReadOnly).unwrap();
    nvmap.import_buffer(shared.as_fd(), "reader").unwrap().write_u32(0, 1);
}

/// A door that identifies a dma-buf by its inode, as the kernel does, not only by a descriptor of the software
/// Orin.
#[derive(Debug)]
struct ByInode {
    behind: SoftwareOrin,
    exported: Mutex<Vec<RawFd>>,
    /// FROM_FD returns a copy of the descriptor instead of a handle, as for another driver's dma-buf.
    foreign: bool,
}

fn inode(fd: RawFd) -> (u64, u64) {
    // SAFETY: the tests pass open descriptors, and the borrow ends with the call.
    let stat = rustix::fs::fstat(unsafe { BorrowedFd::borrow_raw(fd) }).unwrap();
    (stat.st_dev, stat.st_ino)
}

// SAFETY: the door behind answers; only buffer numbers differ.
unsafe impl Forward for ByInode {
    fn behind(&self) -> &dyn Door {
        &self.behind
    }

    unsafe fn ioctl(&self, fd: RawFd, request: u32, argument: *mut c_void) -> Result<i32, Errno> {
        if request == sys::code::FROM_FD {
            // SAFETY: the argument of FROM_FD is this struct, by the contract of `ioctl`.
            let argument = unsafe { &mut *argument.cast::<sys::CreateHandle>() };
            if self.foreign {
                // SAFETY: the descriptor is open for the duration of the call.
                let fd = unsafe { BorrowedFd::borrow_raw(argument.size_or_fd.cast_signed()) };
                argument.handle = rustix::io::dup(fd)?.into_raw_fd().cast_unsigned();
                return Ok(0);
            }
            let wanted = inode(argument.size_or_fd.cast_signed());
            let known = self.exported.lock().unwrap().iter().copied().find(|known| inode(*known) == wanted);
            argument.size_or_fd = known.ok_or(Errno::INVAL)?.cast_unsigned();
        }
        // SAFETY: the call is forwarded unchanged.
        let result = unsafe { self.behind.ioctl(fd, request, argument) };
        if request == sys::code::GET_FD && result.is_ok() {
            // SAFETY: the argument of GET_FD is this struct, by the contract of `ioctl`.
            let exported = unsafe { (*argument.cast::<sys::CreateHandle>()).size_or_fd };
            self.exported.lock().unwrap().push(exported.cast_signed());
        }
        result
    }

    unsafe fn close(&self, fd: RawFd) -> Result<(), Errno> {
        self.exported.lock().unwrap().retain(|known| *known != fd);
        // SAFETY: the call is forwarded unchanged.
        unsafe { self.behind.close(fd) }
    }
}

fn open_by_inode(foreign: bool) -> (SoftwareOrin, Nvmap) {
    let behind = SoftwareOrin::new(Config::default()).unwrap();
    let orin = behind.clone();
    let door: Arc<dyn Door> = Arc::new(ByInode { behind, exported: Mutex::default(), foreign });
    let nvmap = Nvmap::open(&door).unwrap();
    (orin, nvmap)
}

/// Sends a descriptor and a byte, which a message must have.
fn send(socket: &UnixStream, fd: BorrowedFd<'_>) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let fds = [fd];
    assert!(ancillary.push(SendAncillaryMessage::ScmRights(&fds)));
    assert_eq!(sendmsg(socket, &[IoSlice::new(&[0])], &mut ancillary, SendFlags::empty()), Ok(1));
}

fn receive(socket: &UnixStream) -> OwnedFd {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = RecvAncillaryBuffer::new(&mut space);
    let mut byte = [0];
    recvmsg(socket, &mut [IoSliceMut::new(&mut byte)], &mut ancillary, RecvFlags::CMSG_CLOEXEC).unwrap();
    let message = ancillary.drain().next().unwrap();
    let RecvAncillaryMessage::ScmRights(mut fds) = message else { panic!("another message") };
    fds.next().unwrap()
}

/// A handle number is invalid in another process; the descriptor is valid.
#[test]
fn a_descriptor_sent_over_a_socket_is_the_same_memory() {
    let (orin, nvmap) = open_by_inode(false);
    let before = orin.live();
    let (ours, theirs) = UnixStream::pair().unwrap();
    let buffer = nvmap.buffer(4096).label("image").allocate().unwrap();
    buffer.copy_from_slice(0, b"from here").unwrap();
    send(&ours, buffer.as_fd());
    let client = nvmap.clone();
    let receiver = std::thread::spawn(move || {
        let fd = receive(&theirs);
        let image = client.import_buffer(fd.as_fd(), "received").unwrap();
        // The received descriptor is not needed any more.
        drop(fd);
        let mut text = [0; 9];
        image.copy_to_slice(0, &mut text).unwrap();
        image.copy_from_slice(0, b"from there").unwrap();
        text
    });
    assert_eq!(&receiver.join().unwrap(), b"from here");
    let mut text = [0; 10];
    buffer.copy_to_slice(0, &mut text).unwrap();
    assert_eq!(&text, b"from there");
    drop(buffer);
    assert_eq!(orin.live(), before);
}

/// For another driver's dma-buf, FROM_FD of nvmap returns a descriptor instead of a handle.
#[test]
fn another_drivers_dma_buf_is_refused_and_nothing_stays_open() {
    let (orin, nvmap) = open_by_inode(true);
    let copy = {
        let buffer = nvmap.buffer(4096).allocate().unwrap();
        rustix::io::dup(buffer.as_fd()).unwrap()
    };
    // The duplicate keeps the dma-buf.
    let before = orin.live();
    assert_eq!(before.buffers, 1);
    let error = nvmap.import(copy.as_fd(), "camera").unwrap_err();
    assert!(matches!(&error, Error::ForeignDmaBuf { label } if label == "camera"), "{error}");
    assert_eq!(orin.live(), before);
    drop(copy);
    assert_eq!(orin.live().buffers, 0);
}

#[test]
fn every_order_of_dropping_gives_everything_back() {
    for order in 0..24_usize {
        let (orin, nvmap) = open();
        let buffer = nvmap.buffer(8192).label("shared").allocate().unwrap();
        let duplicate = buffer.as_dma_buf().duplicate(Access::ReadOnly).unwrap();
        let mapping = buffer.as_dma_buf().map(4096, 4096, Access::ReadWrite).unwrap();
        let pointer = mapping.pointer();
        let mut objects: Vec<Option<Box<dyn core::any::Any>>> = vec![
            Some(Box::new(nvmap)),
            Some(Box::new(buffer)),
            Some(Box::new(duplicate)),
            Some(Box::new(mapping)),
        ];
        // The digits of `order` in the factorial system pick which object goes next.
        let mut rest = order;
        for left in (1..=4).rev() {
            let pick = rest % left;
            rest /= left;
            let at = objects.iter().enumerate().filter(|(_, object)| object.is_some()).nth(pick).unwrap().0;
            objects[at] = None;
            if objects[3].is_some() {
                // SAFETY: the mapping is still there, and keeps its memory alive.
                unsafe { pointer.cast::<u32>().write_volatile(1) };
            }
        }
        assert_eq!(orin.live(), LiveCounts::default(), "order {order}");
    }
}
