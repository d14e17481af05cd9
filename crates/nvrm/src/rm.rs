//! The object manager (RM): a tree of objects with 32-bit handles.
//!
//! One open `/dev/nvidiactl` owns one client, the root of the tree. Freeing an object frees all objects below it;
//! closing the file frees everything. A call has two results: the errno of the ioctl, and the status of the object.

use core::ffi::{CStr, c_void};
use core::ptr;
use std::ffi::CString;
use std::sync::Arc;

use kernel_door::{Door, DoorFd, Errno, OpenFlags};
use zerocopy::{FromBytes, IntoBytes};

use crate::abi::escape::{self, request};
use crate::abi::{Class, Command, alloc};
use crate::error::{Error, Result, Status};
use crate::release::Release;
use crate::version::Version;

/// The control file.
pub const CONTROL_NODE: &CStr = c"/dev/nvidiactl";

/// Handle of an RM object in its client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Object(pub(crate) u32);

/// A client of the object manager.
#[derive(Debug)]
pub(crate) struct Rm {
    ctl: DoorFd,
    version: Version,
    release: Release,
    client: Object,
}

/// Opens a node.
pub(crate) fn open(door: &Arc<dyn Door>, path: &CStr) -> Result<DoorFd> {
    // Not O_NONBLOCK: the driver would defer opening the GPU, and polls would miss events.
    let flags = OpenFlags::READ_WRITE | OpenFlags::CLOSE_ON_EXEC;
    DoorFd::open(door, path, flags)
        .map_err(|errno| Error::Open { path: path.to_string_lossy().into_owned(), errno })
}

/// Returns the path `/dev/nvidia<minor>`.
pub(crate) fn device_node(minor: u32) -> CString {
    // PANIC: neither the prefix nor decimal digits contain a zero byte.
    CString::new(format!("/dev/nvidia{minor}")).expect("the path contains no zero byte")
}

/// Sends an escape to a file.
///
/// # Safety
///
/// Addresses inside `argument` are valid for the accesses of the request.
pub(crate) unsafe fn escape<T: FromBytes + IntoBytes>(
    file: &DoorFd,
    call: &'static str,
    number: u8,
    argument: &mut T,
) -> Result<()> {
    // SAFETY: the argument has the encoded size; the caller guarantees the addresses inside.
    unsafe { send(file, call, request(number, size_of::<T>()), ptr::from_mut(argument).cast()) }
}

/// Sends a request, and retries while the system is suspending.
///
/// # Safety
///
/// As [`Door::ioctl`].
pub(crate) unsafe fn send(
    file: &DoorFd,
    call: &'static str,
    request: u32,
    argument: *mut c_void,
) -> Result<()> {
    for _ in 0..1000 {
        // SAFETY: the contract of the caller is the same.
        match unsafe { file.door().ioctl(file.raw(), request, argument) } {
            Ok(_) => return Ok(()),
            Err(Errno::AGAIN | Errno::INTR) => std::thread::sleep(core::time::Duration::from_millis(1)),
            Err(errno) => return Err(Error::Call { call, errno }),
        }
    }
    Err(Error::Call { call, errno: Errno::AGAIN })
}

/// Converts a status to a result.
pub(crate) fn check(call: &'static str, what: &'static str, status: u32) -> Result<()> {
    match Status(status) {
        Status::OK => Ok(()),
        status => Err(Error::Status { call, what, status }),
    }
}

impl Rm {
    /// Opens the control file, reads the version and creates a client.
    pub(crate) fn open(door: &Arc<dyn Door>) -> Result<Self> {
        let ctl = open(door, CONTROL_NODE)?;
        let mut version = escape::ApiVersion { cmd: escape::VERSION_QUERY, ..Default::default() };
        // SAFETY: the argument contains no addresses.
        unsafe { escape(&ctl, "CHECK_VERSION_STR", escape::CHECK_VERSION_STR, &mut version) }?;
        let version: Version = text(&version.version).parse()?;
        let release = Release::of(version)?;
        if !release.is_tested() {
            tracing::warn!(%version, "this release of the driver is untested; release 580 is tested");
        }
        let mut rm = Self { ctl, version, release, client: Object(0) };
        rm.client = rm.allocate(Object(0), Object(0), &alloc::ROOT_CLIENT, &mut ())?;
        Ok(rm)
    }

    pub(crate) fn version(&self) -> Version {
        self.version
    }

    pub(crate) fn release(&self) -> Release {
        self.release
    }

    pub(crate) fn client(&self) -> Object {
        self.client
    }

    pub(crate) fn ctl(&self) -> &DoorFd {
        &self.ctl
    }

    pub(crate) fn door(&self) -> &Arc<dyn Door> {
        self.ctl.door()
    }

    /// Creates an object. The driver may change the parameters.
    pub(crate) fn alloc<P: FromBytes + IntoBytes>(
        &self,
        parent: Object,
        class: &Class<P>,
        parameters: &mut P,
    ) -> Result<Object> {
        self.allocate(self.client, parent, class, parameters)
    }

    fn allocate<P: FromBytes + IntoBytes>(
        &self,
        root: Object,
        parent: Object,
        class: &Class<P>,
        parameters: &mut P,
    ) -> Result<Object> {
        let bytes = size_of::<P>();
        let mut argument = escape::RmAlloc {
            root: root.0,
            parent: parent.0,
            class: class.number,
            alloc_params: if bytes == 0 { 0 } else { ptr::from_mut(parameters).expose_provenance() as u64 },
            // CAST: a struct of at most a few KiB.
            params_size: bytes as u32,
            ..Default::default()
        };
        // SAFETY: the parameters have the type of the class, at least the size of any release, and outlive the call.
        unsafe { escape(&self.ctl, "RM_ALLOC", escape::RM_ALLOC, &mut argument) }?;
        check("RM_ALLOC", class.name, argument.status)?;
        Ok(Object(argument.handle))
    }

    /// Sends a command without addresses in its parameters.
    pub(crate) fn control<P: FromBytes + IntoBytes>(
        &self,
        object: Object,
        command: &Command<P>,
        parameters: &mut P,
    ) -> Result<()> {
        // SAFETY: commands with addresses use `control_pointing`.
        unsafe { self.control_pointing(object, command, parameters) }
    }

    /// Sends a command.
    ///
    /// # Safety
    ///
    /// Addresses in the parameters are valid for the accesses of the command.
    pub(crate) unsafe fn control_pointing<P: FromBytes + IntoBytes>(
        &self,
        object: Object,
        command: &Command<P>,
        parameters: &mut P,
    ) -> Result<()> {
        let bytes = self.release.command_bytes(command.number, size_of::<P>());
        // The driver writes that many bytes.
        assert!(bytes <= size_of::<P>(), "the parameters of {} are shorter than the driver's", command.name);
        let mut argument = escape::RmControl {
            client: self.client.0,
            object: object.0,
            cmd: command.number,
            params: ptr::from_mut(parameters).expose_provenance() as u64,
            // CAST: a struct of at most a few KiB.
            params_size: bytes as u32,
            ..Default::default()
        };
        // SAFETY: the parameters have at least the stated size and outlive the call; the caller guarantees the rest.
        unsafe { escape(&self.ctl, "RM_CONTROL", escape::RM_CONTROL, &mut argument) }?;
        check("RM_CONTROL", command.name, argument.status)
    }

    /// Frees an object and all objects below it.
    pub(crate) fn free(&self, parent: Object, object: Object, what: &'static str) -> Result<()> {
        let mut argument =
            escape::RmFree { root: self.client.0, parent: parent.0, object: object.0, ..Default::default() };
        // SAFETY: the argument contains no addresses.
        unsafe { escape(&self.ctl, "RM_FREE", escape::RM_FREE, &mut argument) }?;
        check("RM_FREE", what, argument.status)
    }

    /// Like [`Rm::free`], but logs an error.
    pub(crate) fn free_or_log(&self, parent: Object, object: Object, what: &'static str) {
        if let Err(error) = self.free(parent, object, what) {
            tracing::warn!(%error, "an object could not be freed; closing the GPU frees it");
        }
    }
}

/// Returns the text in a zero-padded array.
pub(crate) fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use core::ptr::NonNull;
    use core::time::Duration;
    use std::os::fd::RawFd;

    use kernel_door::{Events, MapRequest};

    use super::*;

    type Answer<T> = core::result::Result<T, Errno>;

    /// A driver that answers each object with handle 7 and each command with its parameter plus one. It reaches
    /// parameters as a kernel does, by their address alone: Miri reports an address whose provenance was not exposed.
    #[derive(Debug)]
    struct Driver;

    // SAFETY: it writes only the arguments and the parameters; no test maps memory.
    unsafe impl Door for Driver {
        fn name(&self) -> &'static str {
            "planted"
        }

        fn open(&self, path: &CStr, _flags: OpenFlags) -> Answer<RawFd> {
            if path == CONTROL_NODE { Ok(3) } else { Err(Errno::NOENT) }
        }

        unsafe fn ioctl(&self, _fd: RawFd, code: u32, argument: *mut c_void) -> Answer<i32> {
            let is = |number, bytes| code == request(number, bytes);
            if is(escape::CHECK_VERSION_STR, size_of::<escape::ApiVersion>()) {
                // SAFETY: the request tells the type of the argument, which is valid during the call.
                let argument = unsafe { &mut *argument.cast::<escape::ApiVersion>() };
                argument.version[..9].copy_from_slice(b"580.65.06");
            } else if is(escape::RM_ALLOC, size_of::<escape::RmAlloc>()) {
                // SAFETY: as above.
                unsafe { (*argument.cast::<escape::RmAlloc>()).handle = 7 };
            } else if is(escape::RM_CONTROL, size_of::<escape::RmControl>()) {
                // SAFETY: as above.
                let argument = unsafe { &*argument.cast::<escape::RmControl>() };
                // CAST: 64 bits.
                let parameter = ptr::with_exposed_provenance_mut::<u32>(argument.params as usize);
                // SAFETY: the parameters of the test's command are one word.
                unsafe { *parameter += 1 };
            } else {
                return Err(Errno::NOTTY);
            }
            Ok(0)
        }

        unsafe fn mmap(&self, _request: &MapRequest) -> Answer<NonNull<u8>> {
            Err(Errno::NODEV)
        }

        unsafe fn munmap(&self, _pointer: NonNull<u8>, _len: usize) -> Answer<()> {
            Err(Errno::INVAL)
        }

        unsafe fn read(&self, _fd: RawFd, _buffer: &mut [u8]) -> Answer<usize> {
            Err(Errno::INVAL)
        }

        unsafe fn seek_end(&self, _fd: RawFd) -> Answer<u64> {
            Err(Errno::INVAL)
        }

        unsafe fn poll(&self, _fd: RawFd, _wanted: Events, _timeout: Duration) -> Answer<Events> {
            Err(Errno::INVAL)
        }

        unsafe fn close(&self, _fd: RawFd) -> Answer<()> {
            Ok(())
        }
    }

    #[test]
    fn what_the_driver_writes_through_an_address_is_read_afterwards() {
        let door: Arc<dyn Door> = Arc::new(Driver);
        let rm = Rm::open(&door).unwrap();
        assert_eq!((rm.client(), rm.version().to_string().as_str()), (Object(7), "580.65.06"));
        let mut parameter = 41_u32;
        rm.control(rm.client(), &Command::new(0xffff_0001, "PLANTED"), &mut parameter).unwrap();
        assert_eq!(parameter, 42);
    }
}
